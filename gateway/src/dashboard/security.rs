//! `/settings` and `/settings/security`: the password, the authenticator and the logins of whoever is
//! logged in.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, State},
    response::Response,
    routing::{get, post},
};
use chassis::grpc::Reason;
use http::StatusCode;
use proto::merchants::{
    BeginTotpRequest, ChangePasswordRequest, ConfirmTotpRequest, EndLoginsRequest,
    ListLoginsRequest, ListedLogin, RenewRecoveryCodesRequest, end_logins_request::Which,
};

use super::{
    Dashboard, address,
    enter::{parameter, refusal},
    interrupted::Carried,
    login::{Confirmed, Login, Sent, SentConfirmed},
    page::{
        Cell, Field, FormPage, LinksPage, MessagePage, Refusal, Section, TablePage, blame, respond,
    },
    text::{moment, phrase},
    visitor::device,
};
use crate::{
    backend,
    error::Error,
    pages::{form::FormFields, see},
};

const PATH: &str = "/settings/security";

pub fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/settings", get(show_settings))
        .route(PATH, get(show))
        .route(
            &format!("{PATH}/password"),
            get(show_password).post(change_password),
        )
        .route(&format!("{PATH}/totp"), get(show_totp).post(begin_totp))
        .route(&format!("{PATH}/totp/confirm"), post(confirm_totp))
        .route(
            &format!("{PATH}/recovery-codes"),
            get(show_recovery_codes).post(renew_recovery_codes),
        )
        .route(&format!("{PATH}/logins/end"), post(end_logins))
}

async fn show_settings(login: Login) -> Response {
    let page = LinksPage {
        shell: login.shell(Section::Settings, "Settings"),
        links: vec![
            (
                "Business",
                "/settings/business",
                "What we must know about your business before it is paid.",
            ),
            (
                "Integrations",
                "/settings/integrations",
                "API keys, and the webhook with all its deliveries.",
            ),
            (
                "Security",
                PATH,
                "Address, password, authenticator, recovery codes, and where you are logged in.",
            ),
            (
                "Activity",
                "/settings/activity",
                "Who did what, when and from where.",
            ),
        ],
    };
    respond(StatusCode::OK, page.shell.language, &page)
}

async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    login: Login,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let request = ListLoginsRequest {
        person_id: login.person_id.clone(),
    };
    let listed = dashboard.people.read(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.list_logins(request).await },
    );
    let logins = listed.await?.logins;
    let done = match parameter(query.as_deref(), "done").as_str() {
        "password" => Some("Your password is changed, and all your other logins have ended."),
        "email" => Some(
            "A link is on its way to the new address. Until you have opened it, nothing changes.",
        ),
        "ended" => Some("These logins have ended."),
        _ => None,
    };
    let shell = login.shell(Section::Settings, "Security").done(done);
    let mut page = TablePage::new(shell, &["Device", "Address", "Since", "Last seen", "State"]);
    page.caption = "Where you are logged in";
    page.facts = facts(&login);
    page.rows = logins.iter().map(|other| row(&login, other)).collect();
    page.row_action = "/settings/security/logins/end";
    if logins.len() > 1 {
        page.all_action = Some("End all others");
    }
    Ok(page.respond(StatusCode::OK))
}

/// How the person logs in.
fn facts(login: &Login) -> Vec<(&'static str, Cell)> {
    let email = Cell::text(&login.email).action("Change it", address::PATH);
    let mut facts = vec![
        (
            "E-mail address",
            match &login.email_pending {
                Some(pending) => email.detail(phrase!("{0} is not confirmed yet", pending)),
                None => email,
            },
        ),
        (
            "Password",
            Cell::phrase("Set").action("Change it", &format!("{PATH}/password")),
        ),
        (
            "Authenticator",
            match login.has_totp {
                true => Cell::state("On", "good").action("Replace it", &format!("{PATH}/totp")),
                false => Cell::state("Off", "bad").action("Set it up", &format!("{PATH}/totp")),
            },
        ),
    ];
    if login.has_totp {
        let left = Cell::text(&login.recovery_codes_left.to_string());
        let left = left.action("Make new ones", &format!("{PATH}/recovery-codes"));
        facts.push(("Recovery codes left", left));
    }
    facts
}

/// A login of the person of this one.
fn row(login: &Login, other: &ListedLogin) -> Vec<Cell> {
    let origin = other.origin.clone().unwrap_or_default();
    let state = match other.login_id == login.id {
        true => Cell::state("This one", "good"),
        false => Cell::phrase("Live")
            .button("End it", "login_id", &other.login_id)
            .about(phrase!(
                "{0}, {1}, since {2}",
                device(&origin.user_agent),
                &origin.address,
                moment(&other.created_at)
            )),
    };
    vec![
        Cell::of(device(&origin.user_agent)),
        Cell::text(&origin.address),
        Cell::time(&other.created_at),
        Cell::time(&other.last_seen_at),
        state,
    ]
}

async fn end_logins(
    State(dashboard): State<Arc<Dashboard>>,
    Sent { login, fields }: Sent,
) -> Result<Response, Refusal> {
    let which = match fields.get("login_id") {
        "" => Which::AllBut(login.id.clone()),
        login_id => Which::LoginId(login_id.to_owned()),
    };
    let request = EndLoginsRequest {
        person_id: login.person_id.clone(),
        origin: login.visitor.origin(),
        which: Some(which),
    };
    let ended = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.end_logins(request).await },
    );
    ended.await?;
    Ok(see(&format!("{PATH}?done=ended")))
}

fn password_form(login: &Login) -> FormPage {
    let shell = login.shell(Section::Settings, "Change your password");
    let mut page = FormPage::new(shell, "/settings/security/password", "Change the password");
    page.lead = vec!["All your other logins end, on every device.".into()];
    page.fields = vec![Field::new_password()];
    page.links = vec![("Back", PATH)];
    page
}

async fn show_password(Confirmed(login): Confirmed) -> Response {
    password_form(&login).respond(StatusCode::OK)
}

async fn change_password(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    dashboard.tries.take(login.visitor.address)?;
    let request = ChangePasswordRequest {
        person_id: login.person_id.clone(),
        login_id: login.id.clone(),
        password: fields.exact("password").to_owned(),
        origin: login.visitor.origin(),
    };
    let changed = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.change_password(request).await },
    );
    match changed.await {
        Ok(_) => Ok(see(&format!("{PATH}?done=password"))),
        Err(Error::Validation(faults)) => {
            let mut page = password_form(&login);
            let notice = blame(&mut page.fields, &faults);
            Ok(page.refuse(StatusCode::BAD_REQUEST, notice))
        }
        Err(
            error @ Error::AtDashboard {
                reason: Reason::TooManyTries,
                ..
            },
        ) => {
            let (status, notice) = refusal(error, "")?;
            Ok(password_form(&login).refuse(status, Some(notice)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Where an authenticator was asked for; the page of security, if nowhere else.
fn asked_at(then: &str) -> String {
    match then {
        "" => PATH.to_owned(),
        then => Carried::to(then).then,
    }
}

async fn show_totp(Confirmed(login): Confirmed, RawQuery(query): RawQuery) -> Response {
    let shell = login.shell(Section::Settings, "Set up an authenticator");
    let mut page = FormPage::new(shell, "/settings/security/totp", "Go on");
    let lead = "An authenticator is an app on your phone that shows a new code every 30 seconds. With it, a stolen password alone opens nothing.";
    page.lead = vec![lead.into()];
    if login.has_totp {
        let kept =
            "The one that you have goes on working until the new one has shown a right code.";
        page.lead.push(kept.into());
    }
    page.hidden = vec![("then", asked_at(&parameter(query.as_deref(), "then")))];
    page.links = vec![("Back", PATH)];
    page.respond(StatusCode::OK)
}

async fn begin_totp(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    let request = BeginTotpRequest {
        person_id: login.person_id.clone(),
    };
    let begun = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.begin_totp(request).await },
    );
    let begun = begun.await?;
    let mut page = totp_form(&login, &fields);
    page.secrets = vec![
        ("Key", begun.secret),
        ("The same as an address", begun.uri.clone()),
    ];
    page.qr = qr(&begun.uri);
    Ok(page.respond(StatusCode::OK))
}

fn totp_form(login: &Login, fields: &FormFields) -> FormPage {
    let shell = login.shell(Section::Settings, "Add it to your authenticator");
    let mut page = FormPage::new(shell, "/settings/security/totp/confirm", "Turn it on");
    let lead = "Scan the picture with your authenticator, or type the key. Then enter the code that it shows.";
    page.lead = vec![lead.into()];
    page.hidden = vec![("then", asked_at(fields.get("then")))];
    page.fields = vec![Field::totp()];
    page.links = vec![("Leave it as it is", PATH)];
    page
}

async fn confirm_totp(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, fields }): SentConfirmed,
) -> Result<Response, Refusal> {
    let request = ConfirmTotpRequest {
        person_id: login.person_id.clone(),
        code: fields.get("code").to_owned(),
        origin: login.visitor.origin(),
    };
    let confirmed = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.confirm_totp(request).await },
    );
    match confirmed.await {
        Ok(confirmed) => {
            let next = asked_at(fields.get("then"));
            Ok(recovery_codes(&login, &confirmed.recovery_codes, &next))
        }
        Err(Error::AtDashboard {
            reason: Reason::TotpNotBegun,
            ..
        }) => Ok(see(&format!("{PATH}/totp"))),
        Err(error) => {
            let wrong = "This code is not right. Look at the app once more, or begin anew.";
            let (status, notice) = refusal(error, wrong)?;
            Ok(totp_form(&login, &fields).refuse(status, Some(notice)))
        }
    }
}

async fn show_recovery_codes(Confirmed(login): Confirmed) -> Response {
    let shell = login.shell(Section::Settings, "Make new recovery codes");
    let mut page = FormPage::new(shell, "/settings/security/recovery-codes", "Make new codes");
    page.lead = vec!["The codes that you have stop working.".into()];
    page.links = vec![("Keep them", PATH)];
    page.respond(StatusCode::OK)
}

async fn renew_recovery_codes(
    State(dashboard): State<Arc<Dashboard>>,
    SentConfirmed(Sent { login, .. }): SentConfirmed,
) -> Result<Response, Refusal> {
    let request = RenewRecoveryCodesRequest {
        person_id: login.person_id.clone(),
        origin: login.visitor.origin(),
    };
    let renewed = dashboard.people.once(
        backend::DEADLINE,
        request,
        |mut people, request| async move { people.renew_recovery_codes(request).await },
    );
    match renewed.await {
        Ok(renewed) => Ok(recovery_codes(&login, &renewed.recovery_codes, PATH)),
        Err(Error::AtDashboard {
            reason: Reason::TotpNotBegun,
            ..
        }) => Ok(see(&format!("{PATH}/totp"))),
        Err(error) => Err(error.into()),
    }
}

/// `next`: where it goes on.
fn recovery_codes(login: &Login, codes: &[String], next: &str) -> Response {
    let shell = login.shell(Section::Settings, "Your recovery codes");
    let line = "Each opens your account once, when the authenticator is lost. Print them or write them down: they are shown this once.";
    let mut page = MessagePage::saying(shell, line).next("I have stored them", next);
    page.secrets = vec![("Recovery codes", codes.join("\n"))];
    page.respond(StatusCode::OK)
}

/// A picture of the address for a phone's camera: one path of squares, and its size.
fn qr(uri: &str) -> Option<(String, usize)> {
    use std::fmt::Write as _;

    let code = qrcodegen::QrCode::encode_text(uri, qrcodegen::QrCodeEcc::Medium).ok()?;
    let mut path = String::new();
    for y in 0..code.size() {
        for x in (0..code.size()).filter(|x| code.get_module(*x, y)) {
            write!(path, "M{x},{y}h1v1h-1z").ok()?;
        }
    }
    Some((path, usize::try_from(code.size()).ok()?))
}
