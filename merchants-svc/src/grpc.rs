//! Converts between proto and domain, and nothing else.

mod account;
mod notices;
mod operations;
pub mod people;
mod reviews;

use std::{borrow::Cow, str::FromStr};

use chassis::{
    grpc::moved_to_operators,
    limits::{EMAIL_CHARACTERS_MAX, NAME_CHARACTERS_MAX},
};
use proto::merchants::{
    ApiKey, AuthenticateRequest, CreateKeyRequest, CreateKeyResponse, CreateMerchantRequest,
    GetMerchantRequest, KycStatus as ProtoKycStatus, ListKeysRequest, ListKeysResponse,
    Merchant as ProtoMerchant, Origin as ProtoOrigin, RevokeKeyRequest, UpdateMerchantRequest,
    merchants_server::Merchants,
};
use tonic::{Request, Response, Status};

use crate::{
    activity::Origin,
    error::Error,
    merchant::{ApiKeyRecord, KycStatus, Merchant, NewMerchant},
    service::Service,
};

chassis::proto_list! {
    KycStatus = ProtoKycStatus { Pending, InReview, Approved, Rejected, Expired }
}

/// The service, as it is called.
pub struct Grpc(pub Service);

#[tonic::async_trait]
impl Merchants for Grpc {
    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> Result<Response<ProtoMerchant>, Status> {
        let holder = self
            .0
            .authenticate(&request.into_inner().key_sha256)
            .await?;
        Ok(Response::new(ProtoMerchant {
            key_name: Some(holder.key_name()),
            ..holder.merchant.into()
        }))
    }

    async fn get_merchant(
        &self,
        request: Request<GetMerchantRequest>,
    ) -> Result<Response<ProtoMerchant>, Status> {
        let id = parse_id(&request.get_ref().merchant_id, Error::MerchantNotFound)?;
        Ok(Response::new(self.0.get_merchant(id).await?.into()))
    }

    async fn create_merchant(
        &self,
        _: Request<CreateMerchantRequest>,
    ) -> Result<Response<ProtoMerchant>, Status> {
        Err(moved_to_operators())
    }

    async fn update_merchant(
        &self,
        _: Request<UpdateMerchantRequest>,
    ) -> Result<Response<ProtoMerchant>, Status> {
        Err(moved_to_operators())
    }

    async fn create_key(
        &self,
        _: Request<CreateKeyRequest>,
    ) -> Result<Response<CreateKeyResponse>, Status> {
        Err(moved_to_operators())
    }

    async fn revoke_key(&self, _: Request<RevokeKeyRequest>) -> Result<Response<ApiKey>, Status> {
        Err(moved_to_operators())
    }

    async fn list_keys(
        &self,
        _: Request<ListKeysRequest>,
    ) -> Result<Response<ListKeysResponse>, Status> {
        Err(moved_to_operators())
    }
}

/// A malformed identifier names nothing, so the answer is `not_found`.
fn parse_id<T: FromStr>(text: &str, not_found: Error) -> Result<T, Error> {
    text.parse().map_err(|_| not_found)
}

fn parse_new_merchant(request: CreateMerchantRequest) -> Result<NewMerchant, Error> {
    Ok(NewMerchant {
        name: parse_text("name", &request.name, 1)?,
        email: parse_email(&request.email)?,
        email_verified: request.email_verified,
        kyc_status: parse_kyc_status("kyc_status", request.kyc_status)?,
        accepting_payments: request.accepting_payments,
    })
}

fn parse_text(field: &'static str, text: &str, least: usize) -> Result<String, Error> {
    let text = text.trim();
    let characters = text.chars().count();
    if !(least..=NAME_CHARACTERS_MAX).contains(&characters) || text.chars().any(char::is_control) {
        let message = format!(
            "must be {least} to {NAME_CHARACTERS_MAX} characters, without control characters"
        );
        return Err(invalid(field, message));
    }
    Ok(text.to_owned())
}

fn parse_email(text: &str) -> Result<String, Error> {
    let text = text.trim();
    let is_email = text.len() <= EMAIL_CHARACTERS_MAX
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
        && text.split_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && !host.is_empty() && !host.contains('@')
        });
    if !is_email {
        return Err(invalid("email", "must be an e-mail address"));
    }
    Ok(text.to_owned())
}

/// Characters of a browser's name that are kept.
const USER_AGENT_CHARACTERS_MAX: usize = 400;

/// Longest text of an IP address.
const ADDRESS_CHARACTERS_MAX: usize = 45;

/// Keeps what it can: nobody is kept out for what their browser says.
fn parse_origin(origin: Option<ProtoOrigin>) -> Origin {
    let origin = origin.unwrap_or_default();
    let cut = |text: &str, most| {
        let kept = text.chars().filter(|c| !c.is_control()).take(most);
        kept.collect()
    };
    Origin {
        address: cut(&origin.address, ADDRESS_CHARACTERS_MAX),
        user_agent: cut(&origin.user_agent, USER_AGENT_CHARACTERS_MAX),
    }
}

fn invalid(field: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
    let message = message.into();
    Error::Invalid { field, message }
}

fn parse_kyc_status(field: &'static str, status: i32) -> Result<Option<KycStatus>, Error> {
    let status = ProtoKycStatus::try_from(status)
        .map_err(|_| invalid(field, "must be one of the statuses"))?;
    // UNSPECIFIED means that there is no record.
    Ok(KycStatus::try_from(status).ok())
}

impl From<Merchant> for ProtoMerchant {
    fn from(merchant: Merchant) -> Self {
        Self {
            merchant_id: merchant.merchant_id.to_string(),
            name: merchant.name,
            email: merchant.email,
            email_verified: merchant.email_verified,
            kyc_status: merchant
                .kyc_status
                .map(ProtoKycStatus::from)
                .unwrap_or_default()
                .into(),
            accepting_payments: merchant.accepting_payments,
            created_at: merchant.created_at.to_string(),
            key_name: None,
        }
    }
}

impl From<ApiKeyRecord> for ApiKey {
    fn from(key: ApiKeyRecord) -> Self {
        Self {
            key_id: key.key_id.to_string(),
            merchant_id: key.merchant_id.to_string(),
            label: key.label,
            hint: key.hint,
            created_at: key.created_at.to_string(),
            revoked_at: key.revoked_at.map(|at| at.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        for status in KycStatus::ALL {
            let sent = ProtoKycStatus::from(*status);
            assert_eq!(sent.code(), Some(status.code()));
        }
    }
}
