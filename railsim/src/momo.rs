//! The MTN MoMo Open API (<https://momodeveloper.mtn.com>), as strict as the real one: collection,
//! and disbursement in a file of its own.
//!
//! Where the published contract leaves room (the shape of `reason`, numbers or strings, PUT or
//! POST), the reference decides, so that a client meets every variant.

mod access;
pub mod body;
mod disbursement;
pub mod settings;

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::json;

use crate::{
    networks::{Intake, Networks},
    payment::{self, Payment},
    rail::{Details, Rail},
    request::{Network, PaymentRequest},
    story::Story,
    wire,
};

use access::{
    MomoError, amount, callback_url, check_access, check_texts, invalid, parse, phone, reference_id,
};
use body::{Party, StatusBody};
use settings::MomoSettings;

pub fn routes() -> Router<Arc<Networks>> {
    Router::new()
        .route("/collection/token/", post(token))
        .route("/collection/v1_0/requesttopay", post(request_to_pay))
        .route("/collection/v1_0/requesttopay/{reference}", get(status))
        .route(
            "/collection/v1_0/accountholder/{kind}/{id}/active",
            get(active),
        )
        .merge(disbursement::routes())
}

async fn token(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, MomoError> {
    let product = networks.config.accounts.momo.collection();
    access::token(&networks, product, &headers, &body)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestToPay {
    amount: String,
    currency: String,
    external_id: String,
    payer: Party,
    payer_message: String,
    payee_note: String,
}

async fn request_to_pay(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, MomoError> {
    if body.is_empty() {
        return Err(MomoError::NoBody);
    }
    let account = &networks.config.accounts.momo;
    check_access(&networks, account.collection(), &headers)?;
    let reference = reference_id(wire::header(&headers, "X-Reference-Id").unwrap_or_default())?;
    let callback_url = callback_url(account, &headers)?;
    let request: RequestToPay = parse(&headers, &body)?;
    let request = check_request(account, reference, callback_url, request)?;

    match networks.request(request).await? {
        Intake::New(payment) => match payment.story {
            Story::CutAtRequest => Err(MomoError::Cut),
            _ => answer(&payment),
        },
        Intake::Again(payment) if payment.state == payment::State::Refused => answer(&payment),
        Intake::Again(_) => Err(MomoError::AlreadyExists),
    }
}

fn answer(payment: &Payment) -> Result<Response, MomoError> {
    match payment.story {
        Story::UnknownPayer => Err(MomoError::Invalid(
            "PAYER_NOT_FOUND",
            "Payer was not found.".to_owned(),
        )),
        Story::Unavailable => Err(MomoError::Unavailable),
        _ => Ok(StatusCode::ACCEPTED.into_response()),
    }
}

fn check_request(
    account: &MomoSettings,
    reference: String,
    callback_url: Option<String>,
    request: RequestToPay,
) -> Result<PaymentRequest, MomoError> {
    if request.currency != account.momo_currency.code() {
        return Err(MomoError::Configuration("INVALID_CURRENCY"));
    }
    let amount = amount(&request.amount, account.momo_currency)
        .ok_or_else(|| invalid("amount must be a positive decimal in a string"))?;
    let phone = phone(&request.payer, "payer")?;
    if request.external_id.is_empty() {
        return Err(invalid("externalId is empty"));
    }
    check_texts([
        ("payerMessage", &request.payer_message),
        ("payeeNote", &request.payee_note),
    ])?;
    Ok(PaymentRequest {
        rail: Rail::Momo,
        reference,
        network: Network::Mtn,
        phone,
        amount_minor: amount.minor_units(),
        currency: amount.currency(),
        text: request.payer_message.clone(),
        details: Details::Momo {
            external_id: request.external_id,
            payer_message: request.payer_message,
            payee_note: request.payee_note,
        },
        callback_url,
    })
}

async fn status(
    State(networks): State<Arc<Networks>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, MomoError> {
    let product = networks.config.accounts.momo.collection();
    check_access(&networks, product, &headers)?;
    let reference = reference_id(&reference)?;
    match networks.query(Rail::Momo, &reference).await? {
        Some(payment) => Ok(axum::Json(StatusBody::of(&payment)).into_response()),
        None => Err(MomoError::Unknown),
    }
}

async fn active(
    State(networks): State<Arc<Networks>>,
    Path((kind, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, MomoError> {
    let product = networks.config.accounts.momo.collection();
    check_access(&networks, product, &headers)?;
    // The type in other letters was answered so (payouts M8).
    if kind != "msisdn" {
        return Ok(StatusCode::OK.into_response());
    }
    match Story::of(Rail::Momo, Network::Mtn, &id) {
        Story::Unavailable => Err(MomoError::Unavailable),
        story => {
            let is_active = story != Story::UnknownPayer;
            Ok(axum::Json(json!({"result": is_active})).into_response())
        }
    }
}
