//! MTN MoMo's disbursement product on the wire.

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use chassis::money::{Currency, Money};
use http::{HeaderMap, StatusCode, Uri};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::json;

use super::{INTERNAL_ERROR, Product, mint, problem, refusal, status_body};
use crate::rails::{Rail, RailReply, Rails, Word, credits::CreditRequest, wire};

const DISBURSEMENT: Product = Product::Disbursement;

pub fn routes() -> Router<Rails> {
    let holder = "/disbursement/v1_0/accountholder/msisdn/{msisdn}";
    Router::new()
        .route("/disbursement/token/", post(token))
        .route("/disbursement/v1_0/transfer", post(transfer))
        .route("/disbursement/v1_0/transfer/{reference}", get(status))
        .route("/disbursement/v1_0/account/balance", get(balance))
        .route(&format!("{holder}/active"), get(active))
        .route(&format!("{holder}/basicuserinfo"), get(user_info))
}

async fn token(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    mint(&rails, DISBURSEMENT, &headers, &body).await
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Transfer {
    amount: String,
    currency: String,
    external_id: String,
    payee: Payee,
    payer_message: String,
    payee_note: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payee {
    party_id_type: String,
    party_id: String,
}

async fn transfer(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refusal) = refusal(&rails, DISBURSEMENT, &headers) {
        return refusal;
    }
    let Some(asked) = read(&headers, &body) else {
        return problem(400, "VALIDATION_ERROR");
    };
    match rails.transfer(asked).await {
        RailReply::Odd(odd) => wire::odd(odd, INTERNAL_ERROR),
        RailReply::Says(Word::Duplicate409, _) => problem(409, "RESOURCE_ALREADY_EXIST"),
        RailReply::Says(Word::Refused(code), _) => match code {
            "SERVICE_UNAVAILABLE" => problem(503, code),
            "NOT_ALLOWED" => problem(500, code),
            code => problem(400, code),
        },
        RailReply::Says(..) => StatusCode::ACCEPTED.into_response(),
    }
}

/// `None` if it is not a transfer that this rail accepts.
fn read(headers: &HeaderMap, body: &[u8]) -> Option<CreditRequest> {
    let transfer: Transfer = serde_json::from_slice(body).ok()?;
    let reference = wire::header(headers, "X-Reference-Id").to_owned();
    uuid::Uuid::try_parse(&reference).ok()?;
    let currency: Currency = transfer.currency.parse().ok()?;
    let amount = Decimal::from_str_exact(&transfer.amount).ok()?;
    let amount = Money::from_major(amount, currency).ok()?;
    let callback: Option<Uri> = wire::header(headers, "X-Callback-Url").parse().ok();
    let callback = callback.and_then(|uri| Some(uri.path_and_query()?.to_string()));
    // Empty texts gave 500 in production.
    let is_fine = transfer.external_id == reference
        && amount.is_positive()
        && transfer.payee.party_id_type == "MSISDN"
        && !transfer.payer_message.is_empty()
        && !transfer.payee_note.is_empty();
    is_fine.then(|| CreditRequest {
        rail: Rail::Momo,
        reference,
        account: format!("+{}", transfer.payee.party_id),
        amount,
        callback,
    })
}

async fn status(
    State(rails): State<Rails>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refusal(&rails, DISBURSEMENT, &headers) {
        return refusal;
    }
    match rails.query_transfer((Rail::Momo, reference)).await {
        RailReply::Odd(odd) => wire::odd(odd, INTERNAL_ERROR),
        RailReply::Says(Word::Unknown404, _) => problem(404, "RESOURCE_NOT_FOUND"),
        RailReply::Says(word, view) => {
            wire::json(200, status_body("payee", word, &view).to_string())
        }
    }
}

async fn balance(State(rails): State<Rails>, headers: HeaderMap) -> Response {
    if let Some(refusal) = refusal(&rails, DISBURSEMENT, &headers) {
        return refusal;
    }
    let held = || rails.float(Rail::Momo).held_minor;
    match rails.tell(Rail::Momo, "balances of", held).await {
        Err(odd) => wire::odd(odd, INTERNAL_ERROR),
        Ok(minor) => {
            let held = Money::new(minor, Currency::GHS).to_major().to_string();
            let body = json!({"availableBalance": held, "currency": "GHS"});
            wire::json(200, body.to_string())
        }
    }
}

/// Some wallets are not there, and some answers say nothing.
async fn active(
    State(rails): State<Rails>,
    Path(_msisdn): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refusal(&rails, DISBURSEMENT, &headers) {
        return refusal;
    }
    let mut choices = rails.credits_mut().draw("wallets");
    let what = choices.weighted(&[(8, Some(true)), (1, Some(false)), (1, None)]);
    match rails.tell(Rail::Momo, "wallets at", || what).await {
        Err(odd) => wire::odd(odd, INTERNAL_ERROR),
        Ok(None) => StatusCode::OK.into_response(),
        Ok(Some(is_there)) => wire::json(200, json!({"result": is_there}).to_string()),
    }
}

async fn user_info(
    State(rails): State<Rails>,
    Path(_msisdn): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refusal(&rails, DISBURSEMENT, &headers) {
        return refusal;
    }
    match rails.tell(Rail::Momo, "names at", || ()).await {
        Err(odd) => wire::odd(odd, INTERNAL_ERROR),
        Ok(()) => wire::json(200, json!({"name": "Ama Mensah"}).to_string()),
    }
}
