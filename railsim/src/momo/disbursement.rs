//! MTN's disbursement product.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::money::Money;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;

use crate::{
    credit::{CreditDetails, CreditRequest, Payee, story::Story},
    networks::Networks,
    paying::Taking,
    rail::Rail,
    request::Network,
    wire,
};

use super::{
    access::{
        self, MomoError, amount, callback_url, check_access, check_texts, invalid, parse, phone,
        reference_id,
    },
    body::{Party, StatusBody},
    settings::{MomoSettings, Product},
};

pub fn routes() -> Router<Arc<Networks>> {
    let account = "/disbursement/v1_0/accountholder/{kind}/{id}";
    Router::new()
        .route("/disbursement/token/", post(token))
        .route("/disbursement/v1_0/transfer", post(transfer))
        .route("/disbursement/v1_0/transfer/{reference}", get(status))
        .route("/disbursement/v1_0/account/balance", get(balance))
        .route(&format!("{account}/active"), get(active))
        .route(&format!("{account}/basicuserinfo"), get(basic_user_info))
}

/// The product, if there is a client of it.
fn product(networks: &Networks) -> Result<Product<'_>, MomoError> {
    let product = networks.config.accounts.momo.disbursement();
    product.ok_or(MomoError::Unauthorized(
        "Access denied due to invalid subscription key.",
    ))
}

async fn token(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, MomoError> {
    access::token(&networks, product(&networks)?, &headers, &body)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Transfer {
    amount: String,
    currency: String,
    external_id: String,
    payee: Party,
    payer_message: String,
    payee_note: String,
}

async fn transfer(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, MomoError> {
    if body.is_empty() {
        return Err(MomoError::NoBody);
    }
    check_access(&networks, product(&networks)?, &headers)?;
    let account = &networks.config.accounts.momo;
    let reference = reference_id(wire::header(&headers, "X-Reference-Id").unwrap_or_default())?;
    let callback_url = callback_url(account, &headers)?;
    let transfer: Transfer = parse(&headers, &body)?;
    let request = check_transfer(account, reference, callback_url, transfer)?;
    match networks.request_credit(request).await? {
        Taking::Taken(credit) => match credit.story {
            Story::CutAfter => Err(MomoError::Cut),
            _ => Ok(StatusCode::ACCEPTED.into_response()),
        },
        Taking::Again => Err(MomoError::AlreadyExists),
        Taking::NoPayee => Err(MomoError::Invalid(
            "PAYEE_NOT_FOUND",
            "Payee does not exist".to_owned(),
        )),
        // MTN looks at the float only later.
        Taking::NoFloat | Taking::Unavailable => Err(MomoError::Unavailable),
        Taking::Lost => Err(MomoError::Cut),
    }
}

fn check_transfer(
    account: &MomoSettings,
    reference: String,
    callback_url: Option<String>,
    transfer: Transfer,
) -> Result<CreditRequest, MomoError> {
    if transfer.currency != account.momo_currency.code() {
        return Err(MomoError::Configuration("INVALID_CURRENCY"));
    }
    let amount = amount(&transfer.amount, account.momo_currency)
        .ok_or_else(|| invalid("amount must be a positive decimal in a string"))?;
    let phone = phone(&transfer.payee, "payee")?;
    check_texts([
        ("payerMessage", &transfer.payer_message),
        ("payeeNote", &transfer.payee_note),
    ])?;
    // Empty texts gave a 500 in production (payouts M10).
    let texts = [
        &transfer.external_id,
        &transfer.payer_message,
        &transfer.payee_note,
    ];
    if texts.iter().any(|text| text.is_empty()) {
        return Err(MomoError::Configuration("INTERNAL_PROCESSING_ERROR"));
    }
    Ok(CreditRequest {
        rail: Rail::Momo,
        reference,
        payee: Payee::Wallet {
            network: Network::Mtn,
            phone,
        },
        amount_minor: amount.minor_units(),
        currency: amount.currency(),
        details: CreditDetails::Momo {
            external_id: transfer.external_id,
            payer_message: transfer.payer_message,
            payee_note: transfer.payee_note,
        },
        callback_url,
    })
}

async fn status(
    State(networks): State<Arc<Networks>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, MomoError> {
    check_access(&networks, product(&networks)?, &headers)?;
    let reference = reference_id(&reference)?;
    match networks.query_credit(Rail::Momo, &reference).await? {
        Some(credit) => Ok(axum::Json(StatusBody::of_credit(&credit)).into_response()),
        None => Err(MomoError::Unknown),
    }
}

async fn balance(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
) -> Result<Response, MomoError> {
    check_access(&networks, product(&networks)?, &headers)?;
    let currency = networks.config.accounts.momo.momo_currency;
    let held = Money::new(networks.float_minor(Rail::Momo).await?, currency);
    let body = json!({
        "availableBalance": held.to_major().to_string(),
        "currency": currency.code(),
    });
    Ok(axum::Json(body).into_response())
}

async fn active(
    State(networks): State<Arc<Networks>>,
    Path((kind, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, MomoError> {
    check_access(&networks, product(&networks)?, &headers)?;
    // The type in other letters was answered so (payouts M8).
    if kind != "msisdn" {
        return Ok(StatusCode::OK.into_response());
    }
    let is_there = Story::of(Rail::Momo, &id).holder().is_some();
    Ok(axum::Json(json!({"result": is_there})).into_response())
}

async fn basic_user_info(
    State(networks): State<Arc<Networks>>,
    Path((_, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, MomoError> {
    check_access(&networks, product(&networks)?, &headers)?;
    let holder = Story::of(Rail::Momo, &id).holder();
    let name = holder.ok_or(MomoError::Unknown)?;
    let (given_name, family_name) = name.split_once(' ').unwrap_or((name, ""));
    let body = json!({
        "sub": "0",
        "name": name,
        "given_name": given_name,
        "family_name": family_name,
        "birthdate": "1990-01-01",
        "locale": "en_GH",
        "gender": "FEMALE",
        "updated_at": "1700000000",
    });
    Ok(axum::Json(body).into_response())
}
