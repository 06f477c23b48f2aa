//! The people's calls.

use std::borrow::Cow;

use chassis::{
    grpc,
    ids::{ActivityId, LoginId, MerchantId, PersonId},
    page::PageAsked,
};
use proto::merchants::{
    Action as ProtoAction, Activity as ProtoActivity, BeginTotpRequest, BeginTotpResponse,
    ChangeEmailRequest, ChangeEmailResponse, ChangePasswordRequest, ChangePasswordResponse,
    ConfirmRequest, ConfirmTotpRequest, ConfirmTotpResponse, EndLoginsRequest, EndLoginsResponse,
    EnterCodeRequest, GetLoginRequest, InvitePersonRequest, InvitePersonResponse,
    ListActivityRequest, ListActivityResponse, ListLoginsRequest, ListLoginsResponse, ListedLogin,
    LogInRequest, LogInResponse, LogOutRequest, LogOutResponse, Login as ProtoLogin,
    NoteActivityRequest, NoteActivityResponse, Origin as ProtoOrigin, Person as ProtoPerson,
    RenewRecoveryCodesRequest, RenewRecoveryCodesResponse, RequestEmailChangeRequest,
    RequestEmailChangeResponse, RequestResetRequest, RequestResetResponse, ResetPasswordRequest,
    ResetPasswordResponse, Role as ProtoRole, SendVerificationRequest, SendVerificationResponse,
    SignUpRequest, SignUpResponse, VerifyEmailRequest, VerifyEmailResponse, confirm_request,
    end_logins_request, people_operations_server::PeopleOperations,
    people_server::People as PeopleService,
};
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{Request, Response, Status};

use super::{invalid, parse_id, parse_origin, parse_text};
use crate::{
    activity::{Action, Activity, Deed, Origin},
    error::Error,
    login::{BegunLogin, Ended, Identity, Login},
    password,
    person::{EmailAddress, Role},
    service::{
        logins::Proof,
        people::{People, SignUp},
    },
    token::TokenSha256,
    totp::TypedCode,
};

/// Entries on a page if the caller does not say how many.
const PAGE_SIZE_DEFAULT: u32 = 50;

chassis::proto_list! { Role = ProtoRole { Owner } }

chassis::proto_list! {
    Action = ProtoAction {
        SignedUp,
        EmailVerified,
        EmailChangeRequested,
        EmailChanged,
        LoggedIn,
        LoggedOut,
        LoginsEnded,
        PasswordChanged,
        PasswordReset,
        TotpChanged,
        RecoveryCodesRenewed,
        RecoveryCodeUsed,
        WrongCodes,
        KeyCreated,
        KeyRevoked,
        BusinessSubmitted,
        WebhookChanged,
        WebhookSecretShown,
        WebhookSecretRotated,
        EventsReplayed,
        PayoutAccountChanged,
        PayoutRequested,
        RefundRequested,
        DailySettlementSwitched,
    }
}

/// The people's service, as it is called.
pub struct PeopleGrpc(pub People);

/// Most characters of what is a form's own.
const FORM_LENGTH_MAX: usize = 64;

#[tonic::async_trait]
impl PeopleOperations for PeopleGrpc {
    async fn invite_person(
        &self,
        request: Request<InvitePersonRequest>,
    ) -> Result<Response<InvitePersonResponse>, Status> {
        let request = request.into_inner();
        let merchant_id = parse_id(&request.merchant_id, Error::MerchantNotFound)?;
        let email = parse_email(&request.email)?;
        let person_id = self.0.invite(merchant_id, email).await?;
        Ok(Response::new(InvitePersonResponse {
            person_id: person_id.to_string(),
        }))
    }
}

#[tonic::async_trait]
impl PeopleService for PeopleGrpc {
    async fn sign_up(
        &self,
        request: Request<SignUpRequest>,
    ) -> Result<Response<SignUpResponse>, Status> {
        self.0.sign_up(parse_sign_up(request.into_inner())?).await?;
        Ok(Response::new(SignUpResponse {}))
    }

    async fn verify_email(
        &self,
        request: Request<VerifyEmailRequest>,
    ) -> Result<Response<VerifyEmailResponse>, Status> {
        let request = request.into_inner();
        let token = parse_token(&request.token_sha256, Error::LinkNotFound)?;
        let origin = parse_origin(request.origin);
        let password = request.password.into();
        let email = self.0.verify_email(&token, password, origin).await?;
        Ok(Response::new(VerifyEmailResponse {
            email: email.as_str().to_owned(),
        }))
    }

    async fn send_verification(
        &self,
        request: Request<SendVerificationRequest>,
    ) -> Result<Response<SendVerificationResponse>, Status> {
        let person = parse_person(&request.get_ref().person_id)?;
        self.0.send_verification(person).await?;
        Ok(Response::new(SendVerificationResponse {}))
    }

    async fn request_email_change(
        &self,
        request: Request<RequestEmailChangeRequest>,
    ) -> Result<Response<RequestEmailChangeResponse>, Status> {
        let request = request.into_inner();
        let person = parse_person(&request.person_id)?;
        let email = parse_email(&request.email)?;
        let origin = parse_origin(request.origin);
        self.0.request_email_change(person, email, origin).await?;
        Ok(Response::new(RequestEmailChangeResponse {}))
    }

    async fn change_email(
        &self,
        request: Request<ChangeEmailRequest>,
    ) -> Result<Response<ChangeEmailResponse>, Status> {
        let request = request.into_inner();
        let token = parse_token(&request.token_sha256, Error::LinkNotFound)?;
        let origin = parse_origin(request.origin);
        let password = request.password.into();
        let email = self.0.change_email(&token, password, origin).await?;
        Ok(Response::new(ChangeEmailResponse {
            email: email.as_str().to_owned(),
        }))
    }

    async fn log_in(
        &self,
        request: Request<LogInRequest>,
    ) -> Result<Response<LogInResponse>, Status> {
        let request = request.into_inner();
        // Nobody has an address that is none.
        let email: EmailAddress = request.email.parse().map_err(|_| Error::WrongPassword)?;
        let password = request.password.into();
        let earlier = TokenSha256::parse(&request.earlier_token_sha256);
        let origin = parse_origin(request.origin);
        let begun = self.0.log_in(&email, password, earlier, origin).await?;
        Ok(Response::new(begun.into()))
    }

    async fn enter_code(
        &self,
        request: Request<EnterCodeRequest>,
    ) -> Result<Response<LogInResponse>, Status> {
        let request = request.into_inner();
        let token = parse_token(&request.token_sha256, Error::LoginEnded)?;
        let code = TypedCode::parse(&request.code);
        let origin = parse_origin(request.origin);
        let begun = self.0.enter_code(&token, &code, origin).await?;
        Ok(Response::new(begun.into()))
    }

    async fn get_login(
        &self,
        request: Request<GetLoginRequest>,
    ) -> Result<Response<ProtoLogin>, Status> {
        let token = parse_token(&request.get_ref().token_sha256, Error::LoginEnded)?;
        Ok(Response::new(self.0.get_login(&token).await?.into()))
    }

    async fn log_out(
        &self,
        request: Request<LogOutRequest>,
    ) -> Result<Response<LogOutResponse>, Status> {
        if let Some(token) = TokenSha256::parse(&request.get_ref().token_sha256) {
            self.0.log_out(&token).await?;
        }
        Ok(Response::new(LogOutResponse {}))
    }

    async fn list_logins(
        &self,
        request: Request<ListLoginsRequest>,
    ) -> Result<Response<ListLoginsResponse>, Status> {
        let person = parse_person(&request.get_ref().person_id)?;
        let logins = self.0.list_logins(person).await?;
        Ok(Response::new(ListLoginsResponse {
            logins: logins.into_iter().map(ListedLogin::from).collect(),
        }))
    }

    async fn end_logins(
        &self,
        request: Request<EndLoginsRequest>,
    ) -> Result<Response<EndLoginsResponse>, Status> {
        let request = request.into_inner();
        let person = parse_person(&request.person_id)?;
        let login = |id: &str| parse_id::<LoginId>(id, Error::LoginNotFound);
        let which = match &request.which {
            Some(end_logins_request::Which::LoginId(id)) => Ended::One(login(id)?),
            Some(end_logins_request::Which::AllBut(id)) => Ended::AllBut(login(id)?),
            None => return Err(invalid("which", "must name a login").into()),
        };
        let origin = parse_origin(request.origin);
        let ended = self.0.end_logins(person, which, origin).await?;
        Ok(Response::new(EndLoginsResponse {
            ended: u32::try_from(ended).unwrap_or(u32::MAX),
        }))
    }

    async fn request_reset(
        &self,
        request: Request<RequestResetRequest>,
    ) -> Result<Response<RequestResetResponse>, Status> {
        let request = request.into_inner();
        // Nobody has an address that is none.
        if let Ok(email) = request.email.parse::<EmailAddress>() {
            let origin = parse_origin(request.origin);
            self.0.request_reset(&email, &origin).await?;
        }
        Ok(Response::new(RequestResetResponse {}))
    }

    async fn reset_password(
        &self,
        request: Request<ResetPasswordRequest>,
    ) -> Result<Response<ResetPasswordResponse>, Status> {
        let request = request.into_inner();
        let token = parse_token(&request.token_sha256, Error::LinkNotFound)?;
        let origin = parse_origin(request.origin);
        let password = request.password.into();
        self.0.reset_password(&token, password, origin).await?;
        Ok(Response::new(ResetPasswordResponse {}))
    }

    async fn confirm(
        &self,
        request: Request<ConfirmRequest>,
    ) -> Result<Response<ProtoLogin>, Status> {
        let request = request.into_inner();
        let token = parse_token(&request.token_sha256, Error::LoginEnded)?;
        let proof = match request.proof {
            Some(confirm_request::Proof::Password(password)) => Proof::Password(password.into()),
            Some(confirm_request::Proof::Code(code)) => Proof::Code(TypedCode::parse(&code)),
            None => return Err(invalid("proof", "must be a password or a code").into()),
        };
        let origin = parse_origin(request.origin);
        let confirmed = self.0.confirm(&token, proof, &origin).await?;
        Ok(Response::new(confirmed.into()))
    }

    async fn change_password(
        &self,
        request: Request<ChangePasswordRequest>,
    ) -> Result<Response<ChangePasswordResponse>, Status> {
        let request = request.into_inner();
        let person = parse_person(&request.person_id)?;
        let login = parse_id(&request.login_id, Error::LoginEnded)?;
        let origin = parse_origin(request.origin);
        let password = request.password.into();
        let changed = self.0.change_password(person, login, password, origin);
        changed.await?;
        Ok(Response::new(ChangePasswordResponse {}))
    }

    async fn begin_totp(
        &self,
        request: Request<BeginTotpRequest>,
    ) -> Result<Response<BeginTotpResponse>, Status> {
        let person = parse_person(&request.get_ref().person_id)?;
        let begun = self.0.begin_totp(person).await?;
        Ok(Response::new(BeginTotpResponse {
            uri: begun.uri.expose_secret().to_owned(),
            secret: begun.secret.expose_secret().to_owned(),
        }))
    }

    async fn confirm_totp(
        &self,
        request: Request<ConfirmTotpRequest>,
    ) -> Result<Response<ConfirmTotpResponse>, Status> {
        let request = request.into_inner();
        let person = parse_person(&request.person_id)?;
        let code = TypedCode::parse(&request.code);
        let origin = parse_origin(request.origin);
        let codes = self.0.confirm_totp(person, &code, origin).await?;
        Ok(Response::new(ConfirmTotpResponse {
            recovery_codes: exposed(&codes),
        }))
    }

    async fn renew_recovery_codes(
        &self,
        request: Request<RenewRecoveryCodesRequest>,
    ) -> Result<Response<RenewRecoveryCodesResponse>, Status> {
        let request = request.into_inner();
        let person = parse_person(&request.person_id)?;
        let origin = parse_origin(request.origin);
        let codes = self.0.renew_recovery_codes(person, origin).await?;
        Ok(Response::new(RenewRecoveryCodesResponse {
            recovery_codes: exposed(&codes),
        }))
    }

    async fn note_activity(
        &self,
        request: Request<NoteActivityRequest>,
    ) -> Result<Response<NoteActivityResponse>, Status> {
        let request = request.into_inner();
        let action = request.action().try_into().ok();
        let action = action.filter(|action: &Action| action.is_told());
        let deed = Deed {
            merchant_id: parse_id(&request.merchant_id, Error::MerchantNotFound)?,
            person_id: parse_id(&request.person_id, Error::MerchantNotFound)?,
            action: action
                .ok_or_else(|| invalid("action", "must be one that another service does"))?,
            object: parse_text("object", &request.object, 0)?,
            origin: parse_origin(request.origin),
            at: self.0.clock.now(),
        };
        if request.form.len() > FORM_LENGTH_MAX {
            return Err(invalid("form", "must be at most 64 characters").into());
        }
        self.0.note_activity(deed, &request.form).await?;
        Ok(Response::new(NoteActivityResponse {}))
    }

    async fn list_activity(
        &self,
        request: Request<ListActivityRequest>,
    ) -> Result<Response<ListActivityResponse>, Status> {
        let request = request.into_inner();
        let merchant: MerchantId = parse_id(&request.merchant_id, Error::MerchantNotFound)?;
        let asked = PageAsked {
            size: match request.page_size {
                0 => PAGE_SIZE_DEFAULT,
                size => size,
            },
            token: &request.page_token,
            from: "",
            to: "",
        };
        let page = asked.parse(ActivityId::uuid);
        let page = page.map_err(|fault| invalid(fault.field, fault.message))?;
        let page = self.0.list_activity(merchant, page).await?;
        let next = page.next.map(|place| place.map(ActivityId::from));
        Ok(Response::new(ListActivityResponse {
            activities: page.rows.into_iter().map(ProtoActivity::from).collect(),
            next_page_token: next.map(|place| place.to_string()).unwrap_or_default(),
        }))
    }
}

/// A login is a person's, so an id that is none is that of nobody who is logged in.
fn parse_person(text: &str) -> Result<PersonId, Error> {
    parse_id(text, Error::LoginEnded)
}

fn parse_email(text: &str) -> Result<EmailAddress, Error> {
    let email = text.parse();
    email.map_err(|_| invalid("email", "must be an e-mail address"))
}

fn parse_token(digest: &[u8], unknown: Error) -> Result<TokenSha256, Error> {
    TokenSha256::parse(digest).ok_or(unknown)
}

/// Names every field that is at fault, so that a form can be corrected at once.
fn parse_sign_up(request: SignUpRequest) -> Result<SignUp, Status> {
    let name = parse_text("business_name", &request.business_name, 1);
    let email = request.email.parse::<EmailAddress>();
    let password = SecretString::from(request.password);
    // Comparing with a name takes time by its length.
    let (known_name, known_email) = (name.as_deref().ok(), email.as_ref().ok());
    let names = known_name
        .into_iter()
        .chain(known_email.map(EmailAddress::as_str));
    let checked = password::check(&password, &names.collect::<Vec<_>>());
    let fault_of_name = match &name {
        Err(Error::Invalid { message, .. }) => Some(message.clone()),
        Err(_) | Ok(_) => None,
    };
    let fault_of_email = email.is_err().then_some("must be an e-mail address".into());
    let faults: [(&str, Option<Cow<'_, str>>); 3] = [
        ("business_name", fault_of_name),
        ("email", fault_of_email),
        ("password", checked.err().map(Cow::from)),
    ];
    let faults: Vec<(&str, &str)> = faults
        .iter()
        .filter_map(|(field, fault)| Some((*field, fault.as_deref()?)))
        .collect();
    match (name, email) {
        (Ok(business_name), Ok(email)) if faults.is_empty() => Ok(SignUp {
            business_name,
            email,
            password,
            origin: parse_origin(request.origin),
        }),
        _ => Err(grpc::invalid(&faults)),
    }
}

fn exposed(codes: &[SecretString]) -> Vec<String> {
    let shown = codes.iter().map(|code| code.expose_secret().to_owned());
    shown.collect()
}

impl From<BegunLogin> for LogInResponse {
    fn from(begun: BegunLogin) -> Self {
        Self {
            token: begun.token.expose().to_owned(),
            needs_code: begun.needs_code,
        }
    }
}

impl From<Identity> for ProtoLogin {
    fn from(identity: Identity) -> Self {
        let person = identity.person;
        Self {
            login_id: identity.login.login_id.to_string(),
            person: Some(ProtoPerson {
                person_id: person.person_id.to_string(),
                email: person.email.as_str().to_owned(),
                email_verified: person.verified_at.is_some(),
                has_totp: person.totp_secret.is_some(),
                recovery_codes_left: u32::try_from(identity.recovery_codes_left).unwrap_or(0),
                email_pending: person.email_pending.map(|email| email.as_str().to_owned()),
            }),
            merchant: Some(identity.merchant.into()),
            role: ProtoRole::from(identity.role).into(),
            needs_code: identity.login.needs_code,
            confirmed_at: identity.login.confirmed_at.to_string(),
        }
    }
}

impl From<Login> for ListedLogin {
    fn from(login: Login) -> Self {
        Self {
            login_id: login.login_id.to_string(),
            origin: Some(login.origin.into()),
            created_at: login.created_at.to_string(),
            last_seen_at: login.last_seen_at.to_string(),
        }
    }
}

impl From<Origin> for ProtoOrigin {
    fn from(origin: Origin) -> Self {
        Self {
            address: origin.address,
            user_agent: origin.user_agent,
        }
    }
}

impl From<Activity> for ProtoActivity {
    fn from(activity: Activity) -> Self {
        Self {
            activity_id: activity.activity_id.to_string(),
            action: ProtoAction::from(activity.action).into(),
            object: activity.object,
            email: activity.email,
            origin: Some(activity.origin.into()),
            created_at: activity.created_at.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        for action in Action::ALL {
            let sent = ProtoAction::from(*action);
            assert_eq!(sent.as_str_name(), format!("ACTION_{}", action.code()));
        }
        for role in Role::ALL {
            let sent = ProtoRole::from(*role);
            assert_eq!(sent.as_str_name(), format!("ROLE_{}", role.code()));
        }
    }
}
