//! Paystack transfers in Ghana.
//!
//! Where the published contract leaves room (the status in the first reply, the HTTP status of a
//! repeated reference), the reference decides, so that a client meets every variant.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::money::Currency;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    credit::{CreditDetails, CreditRequest, Payee, story::Story},
    credits::Recipient,
    networks::Networks,
    paying::Taking,
    rail::Rail,
    request::Network,
};

use super::{
    Envelope, PaystackError, check_key, invalid, local_number, parse,
    transfer_body::{TransferBody, bank_code, recipient_details},
};

const REFERENCE_CHARACTERS_MIN: usize = 16;
const REFERENCE_CHARACTERS_MAX: usize = 50;

/// The Ghana banks that are simulated, by their codes at Paystack.
const BANKS: [(&str, &str); 2] = [("030100", "Absa Bank Ghana Ltd"), ("040100", "GCB Bank")];

pub fn routes() -> Router<Arc<Networks>> {
    Router::new()
        .route("/bank", get(banks))
        .route("/bank/resolve", get(resolve))
        .route("/transferrecipient", post(recipient))
        .route("/transfer", post(transfer))
        .route("/transfer/verify/{reference}", get(verify))
        .route("/balance", get(balance))
}

#[derive(Deserialize)]
struct BankFilter {
    #[serde(default)]
    currency: String,
    #[serde(default, rename = "type")]
    kind: String,
}

async fn banks(
    State(networks): State<Arc<Networks>>,
    Query(filter): Query<BankFilter>,
    headers: HeaderMap,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let wallets = [
        ("MTN", "MTN", "mtn-mobile-money"),
        ("Vodafone", "VOD", "vod-mobile-money"),
        ("AirtelTigo", "ATL", "atl-mobile-money"),
    ];
    let wallets = wallets.map(|(name, code, slug)| (name, code, slug.to_owned(), "mobile_money"));
    let banks = BANKS.map(|(code, name)| (name, code, name.replace(' ', "-"), "ghipss"));
    let wanted = wallets.into_iter().chain(banks);
    let wanted = wanted.filter(|(.., kind)| filter.kind.is_empty() || filter.kind == *kind);
    let is_ghana = filter.currency == Currency::GHS.code();
    let data: Vec<_> = (1..)
        .zip(wanted.filter(|_| is_ghana))
        .map(|(id, (name, code, slug, kind))| {
            json!({
                "name": name,
                "slug": slug.to_lowercase(),
                "code": code,
                "longcode": "",
                "gateway": null,
                "pay_with_bank": false,
                "active": true,
                "is_deleted": false,
                "country": "Ghana",
                "currency": Currency::GHS.code(),
                "type": kind,
                "id": id,
                "createdAt": "2018-03-29T12:54:59.000Z",
                "updatedAt": "2023-01-31T09:00:00.000Z",
            })
        })
        .collect();
    Ok(Json(Envelope::new("Banks retrieved", data)).into_response())
}

#[derive(Deserialize)]
struct AccountQuery {
    #[serde(default)]
    account_number: String,
    #[serde(default)]
    bank_code: String,
}

async fn resolve(
    State(networks): State<Arc<Networks>>,
    Query(asked): Query<AccountQuery>,
    headers: HeaderMap,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let payee = payee(&asked.account_number, &asked.bank_code);
    let story = |payee: Payee| Story::of(Rail::Paystack, payee.account());
    let Some(name) = payee.map(story).and_then(Story::holder) else {
        let body = json!({
            "status": false,
            "message": "Could not resolve account name. Check parameters or try again.",
        });
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, Json(body)).into_response());
    };
    let data = json!({
        "account_number": asked.account_number,
        "account_name": name,
        "bank_id": 1,
    });
    Ok(Json(Envelope::new("Account number resolved", data)).into_response())
}

/// The account with this number at this wallet or bank, if both are known.
fn payee(number: &str, code: &str) -> Option<Payee> {
    let network = match code {
        "MTN" => Network::Mtn,
        "VOD" => Network::Telecel,
        "ATL" => Network::At,
        _ => {
            let is_bank = BANKS.iter().any(|(known, _)| *known == code);
            let is_number =
                (6..=20).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
            return (is_bank && is_number).then(|| Payee::Bank {
                code: code.to_owned(),
                number: number.to_owned(),
            });
        }
    };
    let phone = local_number(number)?.as_e164().to_owned();
    Some(Payee::Wallet { network, phone })
}

#[derive(Deserialize)]
struct NewRecipient {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    account_number: String,
    bank_code: String,
    #[serde(default)]
    currency: String,
}

async fn recipient(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let new: NewRecipient = parse(&headers, &body)?;
    if new.name.trim().is_empty() {
        return Err(invalid("Name is required"));
    }
    // Without a currency it is one of naira.
    if new.currency != Currency::GHS.code() {
        return Err(invalid("Currency is not supported for this recipient"));
    }
    let payee = payee(&new.account_number, &new.bank_code);
    let kind = match &payee {
        Some(Payee::Wallet { .. }) => "mobile_money",
        Some(Payee::Bank { .. }) => "ghipss",
        None => return Err(invalid("Account number or bank code is invalid")),
    };
    let payee = payee.filter(|_| new.kind == kind);
    let payee = payee.ok_or_else(|| invalid("Recipient type is invalid"))?;
    // The same number has the same recipient.
    let hash = Sha256::digest(format!("{}/{}", bank_code(&payee), payee.account()));
    let mut code = hex::encode(hash);
    code.truncate(15);
    let recipient = Recipient {
        code: format!("RCP_{code}"),
        name: new.name,
        payee,
    };
    let known = networks.know_recipient(recipient).await?;
    let data = json!({
        "active": true,
        "currency": Currency::GHS.code(),
        "domain": "test",
        "name": known.name,
        "recipient_code": known.code,
        "type": kind,
        "details": recipient_details(&known.payee),
    });
    let body = Envelope::new("Transfer recipient created successfully", data);
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

#[derive(Deserialize)]
struct NewTransfer {
    source: String,
    /// In pesewas.
    amount: i64,
    #[serde(default)]
    currency: String,
    recipient: String,
    reference: String,
    #[serde(default)]
    reason: String,
}

async fn transfer(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let new: NewTransfer = parse(&headers, &body)?;
    check_transfer(&new)?;
    let found = networks.find_recipient(&new.recipient).await?;
    let recipient = found.ok_or_else(invalid_recipient)?;
    let is_odd = new.reference.bytes().last().is_some_and(|b| b & 1 == 1);
    let request = CreditRequest {
        rail: Rail::Paystack,
        reference: new.reference,
        payee: recipient.payee,
        amount_minor: new.amount,
        currency: Currency::GHS,
        details: CreditDetails::Paystack {
            reason: new.reason,
            recipient_code: recipient.code,
            recipient_name: recipient.name,
        },
        callback_url: networks
            .config
            .accounts
            .paystack
            .paystack_callback_url
            .clone(),
    };
    match networks.request_credit(request).await? {
        Taking::Taken(credit) if credit.story == Story::CutAfter => Err(PaystackError::Cut),
        Taking::Taken(credit) => {
            let data = TransferBody::first(&credit, is_odd);
            Ok(Json(Envelope::new("Transfer has been queued", data)).into_response())
        }
        Taking::Again => Ok(duplicate(is_odd)),
        Taking::NoPayee => Err(invalid_recipient()),
        Taking::NoFloat => Err(PaystackError::Invalid(
            "Your balance is not enough to fulfil this request".to_owned(),
            "insufficient_balance",
        )),
        Taking::Unavailable => {
            let body = json!({"status": false, "message": "Too many requests, try again later"});
            Ok((StatusCode::TOO_MANY_REQUESTS, Json(body)).into_response())
        }
        Taking::Lost => Err(PaystackError::Cut),
    }
}

fn check_transfer(new: &NewTransfer) -> Result<(), PaystackError> {
    if new.source != "balance" {
        return Err(invalid("Source is invalid"));
    }
    if new.amount <= 0 {
        return Err(invalid("Invalid Amount Sent"));
    }
    // Without a currency it is naira.
    if new.currency != Currency::GHS.code() {
        return Err(invalid("Currency is not the recipient's"));
    }
    let length = REFERENCE_CHARACTERS_MIN..=REFERENCE_CHARACTERS_MAX;
    let is_allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    if !length.contains(&new.reference.len()) || !new.reference.bytes().all(is_allowed) {
        return Err(invalid(
            "Reference must have 16 to 50 lower-case letters, digits, - and _",
        ));
    }
    Ok(())
}

fn invalid_recipient() -> PaystackError {
    PaystackError::Invalid(
        "Transfer recipient specified is invalid".to_owned(),
        "invalid_transfer_recipient",
    )
}

/// A repeated reference is 400, and 404 was seen too.
fn duplicate(is_odd: bool) -> Response {
    let status = match is_odd {
        true => StatusCode::NOT_FOUND,
        false => StatusCode::BAD_REQUEST,
    };
    let body = json!({
        "status": false,
        "message": "Please provide a unique reference. Reference already exists on a transfer",
        "meta": {"nextStep": "Provide a reference that was not used before"},
        "type": "validation_error",
        "code": "duplicate_transfer_reference",
    });
    (status, Json(body)).into_response()
}

async fn verify(
    State(networks): State<Arc<Networks>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let Some(credit) = networks.query_credit(Rail::Paystack, &reference).await? else {
        let body = json!({"status": false, "message": "Transfer not found"});
        return Ok((StatusCode::NOT_FOUND, Json(body)).into_response());
    };
    let data = TransferBody::of(&credit);
    Ok(Json(Envelope::new("Transfer retrieved", data)).into_response())
}

async fn balance(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let held = networks.float_minor(Rail::Paystack).await?;
    let data = json!([{"currency": Currency::GHS.code(), "balance": held}]);
    Ok(Json(Envelope::new("Balances retrieved", data)).into_response())
}
