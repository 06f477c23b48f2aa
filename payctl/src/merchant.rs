//! `payctl merchant` and `payctl key`.

use chassis::grpc;
use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use proto::merchants::{
    ApiKey, CreateKeyRequest, CreateMerchantRequest, GetMerchantRequest, InvitePersonRequest,
    KycStatus, ListKeysRequest, Merchant, RevokeKeyRequest, UpdateMerchantRequest,
    merchant_operations_client::MerchantOperationsClient,
    people_operations_client::PeopleOperationsClient,
};
use serde_json::{Value, json};

use crate::services::{Failure, Services, refusal};

#[derive(Debug, Subcommand)]
pub enum MerchantCommand {
    /// Creates a merchant.
    Create(Create),
    /// Shows a merchant.
    Show {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Changes what is given and leaves the rest.
    Update(Update),
    /// Lets somebody into the merchant's dashboard: mails them a link to choose a password.
    Invite {
        /// The merchant's id.
        merchant_id: String,
        #[arg(long)]
        email: String,
    },
}

#[derive(Debug, Args)]
pub struct Create {
    /// Shown to payers.
    #[arg(long)]
    name: String,
    #[arg(long)]
    email: String,
    /// Marks the e-mail address as verified.
    #[arg(long)]
    email_verified: bool,
    /// State of the KYC record. Without it, there is none.
    #[arg(long, value_parser = kyc_status(), ignore_case = true)]
    kyc: Option<KycStatus>,
    /// Does not let the merchant start payments yet.
    #[arg(long)]
    not_accepting: bool,
}

#[derive(Debug, Args)]
pub struct Update {
    /// The merchant's id.
    merchant_id: String,
    /// State of the KYC record; `none` clears it.
    #[arg(long, value_parser = kyc_status(), ignore_case = true)]
    kyc: Option<KycStatus>,
    #[arg(long)]
    email_verified: Option<bool>,
    /// Whether the merchant may start payments.
    #[arg(long)]
    accepting: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Creates an API key and shows it, this once.
    Create {
        /// The merchant's id.
        merchant_id: String,
        /// Name that people know it by.
        #[arg(long, default_value = "")]
        label: String,
    },
    /// Revokes an API key, everywhere within a second.
    Revoke {
        /// The key's id, not the key.
        key_id: String,
    },
    /// Lists a merchant's API keys, newest first.
    List {
        /// The merchant's id.
        merchant_id: String,
    },
}

/// Parses a KYC status as the specification spells it, in either case, or `none`.
fn kyc_status() -> impl TypedValueParser<Value = KycStatus> {
    let codes = KycStatus::all().filter_map(KycStatus::code);
    PossibleValuesParser::new(codes.chain(["none"]))
        .map(|code| KycStatus::from_code(&code.to_ascii_uppercase()).unwrap_or_default())
}

/// The same without `none`.
pub fn a_kyc_status() -> impl TypedValueParser<Value = KycStatus> {
    let codes = KycStatus::all().filter_map(KycStatus::code);
    PossibleValuesParser::new(codes)
        .map(|code| KycStatus::from_code(&code.to_ascii_uppercase()).unwrap_or_default())
}

pub async fn run(services: &Services, command: MerchantCommand) -> Result<Value, Failure> {
    let mut merchants = MerchantOperationsClient::new(services.merchants()?);
    let answer = match command {
        MerchantCommand::Create(new) => merchants.create_merchant(create_request(new)).await,
        MerchantCommand::Show { merchant_id } => {
            let request = GetMerchantRequest { merchant_id };
            merchants.get_merchant(request).await
        }
        MerchantCommand::Update(changes) => {
            merchants.update_merchant(update_request(changes)).await
        }
        MerchantCommand::Invite { merchant_id, email } => {
            let mut people = PeopleOperationsClient::new(services.merchants()?);
            let request = InvitePersonRequest { merchant_id, email };
            let invited = people.invite_person(request).await.map_err(refusal)?;
            return Ok(json!({ "person_id": invited.into_inner().person_id }));
        }
    };
    Ok(merchant_json(answer.map_err(refusal)?.into_inner()))
}

pub async fn run_key(services: &Services, command: KeyCommand) -> Result<Value, Failure> {
    let mut merchants = MerchantOperationsClient::new(services.merchants()?);
    match command {
        KeyCommand::Create { merchant_id, label } => {
            create_key(&mut merchants, CreateKeyRequest { merchant_id, label }).await
        }
        KeyCommand::Revoke { key_id } => {
            let answer = merchants.revoke_key(RevokeKeyRequest { key_id }).await;
            Ok(key_json(answer.map_err(refusal)?.into_inner()))
        }
        KeyCommand::List { merchant_id } => {
            let answer = merchants.list_keys(ListKeysRequest { merchant_id }).await;
            let keys = answer.map_err(refusal)?.into_inner().keys;
            Ok(keys.into_iter().map(key_json).collect())
        }
    }
}

async fn create_key(
    merchants: &mut MerchantOperationsClient<grpc::Channel>,
    request: CreateKeyRequest,
) -> Result<Value, Failure> {
    let answer = merchants.create_key(request).await.map_err(refusal)?;
    let answer = answer.into_inner();
    let mut shown = key_json(answer.key.unwrap_or_default());
    shown["api_key"] = answer.api_key.into();
    Ok(shown)
}

fn create_request(new: Create) -> CreateMerchantRequest {
    CreateMerchantRequest {
        name: new.name,
        email: new.email,
        email_verified: new.email_verified,
        kyc_status: new.kyc.unwrap_or_default().into(),
        accepting_payments: !new.not_accepting,
    }
}

fn update_request(changes: Update) -> UpdateMerchantRequest {
    UpdateMerchantRequest {
        merchant_id: changes.merchant_id,
        email_verified: changes.email_verified,
        kyc_status: changes.kyc.map(i32::from),
        accepting_payments: changes.accepting,
    }
}

pub fn merchant_json(merchant: Merchant) -> Value {
    json!({
        "merchant_id": merchant.merchant_id,
        "name": merchant.name,
        "email": merchant.email,
        "email_verified": merchant.email_verified,
        "kyc_status": merchant.kyc_status().code(),
        "accepting_payments": merchant.accepting_payments,
        "created_at": merchant.created_at,
    })
}

fn key_json(key: ApiKey) -> Value {
    json!({
        "key_id": key.key_id,
        "merchant_id": key.merchant_id,
        "label": key.label,
        "hint": key.hint,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
    })
}
