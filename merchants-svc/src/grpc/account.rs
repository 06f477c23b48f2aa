//! A merchant's own keys and business: proto to domain and back.

use chassis::{
    ids::{KeyId, MerchantId, PersonId},
    limits::PAGE_SIZE_MAX,
    page::PageAsked,
};
use proto::merchants::{
    Business as ProtoBusiness, BusinessForm, BusinessKind as ProtoBusinessKind,
    CreateMerchantKeyRequest, CreateMerchantKeyResponse, FieldReason as ProtoFieldReason,
    GetBusinessRequest, GetMerchantKeyRequest, KycStatus as ProtoKycStatus,
    ListMerchantKeysRequest, ListMerchantKeysResponse, MerchantKey, RevokeMerchantKeyRequest,
    SubmitBusinessRequest, merchant_account_server::MerchantAccount,
};
use tonic::{Request, Response, Status};

use super::{Grpc, invalid, parse_id, parse_origin};
use crate::{
    business::{Business, FieldReason, Reasons, Submitted},
    business_form::{self, BusinessKind, Field, FieldFault, Form},
    error::Error,
    merchant::{KycStatus, Merchant, OwnKey},
    service::keys::KeyForm,
};

/// Characters of a key's name.
const LABEL_CHARACTERS_MAX: usize = 60;

chassis::proto_list! {
    BusinessKind = ProtoBusinessKind { SoleProprietor, Partnership, Company, Ngo }
}

#[tonic::async_trait]
impl MerchantAccount for Grpc {
    async fn list_merchant_keys(
        &self,
        request: Request<ListMerchantKeysRequest>,
    ) -> Result<Response<ListMerchantKeysResponse>, Status> {
        let request = request.into_inner();
        let merchant_id = parse_merchant(&request.merchant_id)?;
        let asked = PageAsked {
            size: match request.page_size {
                0 => PAGE_SIZE_MAX,
                size => size,
            },
            token: &request.page_token,
            from: "",
            to: "",
        };
        let page = asked.parse(KeyId::uuid);
        let page = page.map_err(|fault| invalid(fault.field, fault.message))?;
        let page = self.0.list_own_keys(merchant_id, page).await?;
        Ok(Response::new(ListMerchantKeysResponse {
            keys: page.rows.into_iter().map(MerchantKey::from).collect(),
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
        }))
    }

    async fn get_merchant_key(
        &self,
        request: Request<GetMerchantKeyRequest>,
    ) -> Result<Response<MerchantKey>, Status> {
        let request = request.get_ref();
        let merchant_id = parse_merchant(&request.merchant_id)?;
        let key_id: KeyId = parse_id(&request.key_id, Error::KeyNotFound)?;
        let key = self.0.get_own_key(merchant_id, key_id).await?;
        Ok(Response::new(key.into()))
    }

    async fn create_merchant_key(
        &self,
        request: Request<CreateMerchantKeyRequest>,
    ) -> Result<Response<CreateMerchantKeyResponse>, Status> {
        let request = request.into_inner();
        let merchant_id = parse_merchant(&request.merchant_id)?;
        let person_id = parse_person(&request.person_id)?;
        let nonce: Result<KeyId, _> = request.nonce.parse();
        let form = KeyForm {
            label: parse_label(&request.label)?,
            nonce: nonce
                .map_err(|_| invalid("nonce", "must be a UUID"))?
                .uuid(),
        };
        let origin = parse_origin(request.origin);
        let created = self.0.create_own_key(merchant_id, person_id, form, origin);
        let (key, secret) = created.await?;
        Ok(Response::new(CreateMerchantKeyResponse {
            key: Some(key.into()),
            api_key: secret.expose().to_owned(),
        }))
    }

    async fn revoke_merchant_key(
        &self,
        request: Request<RevokeMerchantKeyRequest>,
    ) -> Result<Response<MerchantKey>, Status> {
        let request = request.into_inner();
        let merchant_id = parse_merchant(&request.merchant_id)?;
        let person_id = parse_person(&request.person_id)?;
        let key_id: KeyId = parse_id(&request.key_id, Error::KeyNotFound)?;
        let origin = parse_origin(request.origin);
        let revoked = self
            .0
            .revoke_own_key(merchant_id, person_id, key_id, origin);
        Ok(Response::new(revoked.await?.into()))
    }

    async fn get_business(
        &self,
        request: Request<GetBusinessRequest>,
    ) -> Result<Response<ProtoBusiness>, Status> {
        let merchant_id = parse_merchant(&request.get_ref().merchant_id)?;
        let (merchant, submitted) = self.0.get_business(merchant_id).await?;
        let business = match submitted {
            Some(submitted) => shown_business(submitted),
            None => nothing_submitted(&merchant),
        };
        Ok(Response::new(business))
    }

    async fn submit_business(
        &self,
        request: Request<SubmitBusinessRequest>,
    ) -> Result<Response<ProtoBusiness>, Status> {
        let request = request.into_inner();
        let merchant_id = parse_merchant(&request.merchant_id)?;
        let person_id = parse_person(&request.person_id)?;
        let form = parse_form(&request.form.unwrap_or_default())?;
        let origin = parse_origin(request.origin);
        let submitting = self.0.submit_business(merchant_id, person_id, form, origin);
        Ok(Response::new(shown_business(submitting.await?)))
    }
}

fn parse_merchant(text: &str) -> Result<MerchantId, Error> {
    parse_id(text, Error::MerchantNotFound)
}

/// Whose merchant it is not, whoever that is, does not find it.
fn parse_person(text: &str) -> Result<PersonId, Error> {
    parse_id(text, Error::MerchantNotFound)
}

fn parse_label(text: &str) -> Result<String, Error> {
    let text = text.trim();
    let is_label = (1..=LABEL_CHARACTERS_MAX).contains(&text.chars().count())
        && !text.chars().any(char::is_control);
    if !is_label {
        let message = "must be 1 to 60 characters, without control characters";
        return Err(invalid("label", message));
    }
    Ok(text.to_owned())
}

/// Reads every field, so that all that are at fault are named at once.
fn parse_form(form: &BusinessForm) -> Result<Form, Error> {
    let mut faults = Faults::default();
    let kind = BusinessKind::try_from(form.kind())
        .map_err(|_| FieldFault("must be one of the kinds of business"));
    let kind = faults.take(Field::Kind, kind);
    let registered_name = business_form::parse_name(&form.registered_name);
    let registered_name = faults.take(Field::RegisteredName, registered_name);
    let registration_number = business_form::parse_registration_number(&form.registration_number);
    let registration_number = faults.take(Field::RegistrationNumber, registration_number);
    let tin = faults.take(Field::Tin, form.tin.parse());
    let activity = faults.take(
        Field::Activity,
        business_form::parse_activity(&form.activity),
    );
    let website = faults.take(Field::Website, business_form::parse_website(&form.website));
    let digital_address = faults.take(Field::DigitalAddress, form.digital_address.parse());
    let town = faults.take(Field::Town, business_form::parse_town(&form.town));
    let owner_name = faults.take(
        Field::OwnerName,
        business_form::parse_name(&form.owner_name),
    );
    let owner_ghana_card = faults.take(Field::OwnerGhanaCard, form.owner_ghana_card.parse());
    let owner_phone = business_form::parse_phone(&form.owner_phone);
    let owner_phone = faults.take(Field::OwnerPhone, owner_phone);
    let whole = || {
        Some(Form {
            kind: kind?,
            registered_name: registered_name?,
            registration_number: registration_number?,
            tin: tin?,
            activity: activity?,
            website: website?,
            digital_address: digital_address?,
            town: town?,
            owner_name: owner_name?,
            owner_ghana_card: owner_ghana_card?,
            owner_phone: owner_phone?,
        })
    };
    whole().ok_or(Error::InvalidForm(faults.0))
}

/// The fields at fault so far.
#[derive(Default)]
struct Faults(Vec<(Field, FieldFault)>);

impl Faults {
    fn take<T>(&mut self, field: Field, parsed: Result<T, FieldFault>) -> Option<T> {
        parsed.map_err(|fault| self.0.push((field, fault))).ok()
    }
}

fn nothing_submitted(merchant: &Merchant) -> ProtoBusiness {
    ProtoBusiness {
        status: shown_status(merchant.kyc_status).into(),
        ..Default::default()
    }
}

pub fn shown_business(submitted: Submitted) -> ProtoBusiness {
    let status = shown_status(submitted.status());
    let business: Business = submitted.business;
    ProtoBusiness {
        status: status.into(),
        form: Some(shown_form(business.form)),
        submitted_at: Some(business.submitted_at.to_string()),
        decided_at: business.decided_at.map(|at| at.to_string()),
        expires_on: business.expires_on.map(|day| day.to_string()),
        reasons: shown_reasons(business.reasons),
    }
}

fn shown_status(status: Option<KycStatus>) -> ProtoKycStatus {
    status.map(ProtoKycStatus::from).unwrap_or_default()
}

fn shown_form(form: Form) -> BusinessForm {
    BusinessForm {
        kind: ProtoBusinessKind::from(form.kind).into(),
        registered_name: form.registered_name,
        registration_number: form.registration_number,
        tin: form.tin.as_str().to_owned(),
        activity: form.activity,
        website: form.website,
        digital_address: form.digital_address.as_str().to_owned(),
        town: form.town,
        owner_name: form.owner_name,
        owner_ghana_card: form.owner_ghana_card.as_str().to_owned(),
        owner_phone: form.owner_phone.as_e164().to_owned(),
    }
}

pub fn shown_reasons(reasons: Reasons) -> Vec<ProtoFieldReason> {
    let shown = |FieldReason { field, reason }| ProtoFieldReason { field, reason };
    reasons.0.into_iter().map(shown).collect()
}

impl From<OwnKey> for MerchantKey {
    fn from(key: OwnKey) -> Self {
        Self {
            key_id: key.record.key_id.to_string(),
            label: key.record.label,
            hint: key.record.hint,
            created_at: key.record.created_at.to_string(),
            created_by: key.created_by,
            last_used_at: key.last_used_at.map(|at| at.to_string()),
            revoked_at: key.record.revoked_at.map(|at| at.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        for kind in BusinessKind::ALL {
            let sent = ProtoBusinessKind::from(*kind);
            assert_eq!(sent.code(), Some(kind.code()));
        }
    }
}
