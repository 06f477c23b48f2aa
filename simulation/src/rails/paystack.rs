//! Paystack's Charge API for mobile money on the wire.

pub mod transfers;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::Response,
    routing::{get, post},
};
use chassis::{
    money::{Currency, Money},
    phone::Phone,
};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Rail, RailReply, Rails, Word,
    book::{DebitRequest, View},
    life::PROCESSOR_ERROR,
    payment::PayerNetwork,
    wire,
};

const INTERNAL_ERROR: &str =
    r#"{"status":false,"message":"Something went wrong","type":"api_error","code":"unknown"}"#;

pub fn routes(rails: Rails) -> Router {
    Router::new()
        .route("/charge", post(charge))
        .route("/charge/submit_otp", post(submit_otp))
        .route("/charge/{reference}", get(check))
        .route("/transaction/verify/{reference}", get(verify))
        .merge(transfers::routes())
        .with_state(rails)
}

fn problem(status: u16, kind: &str, message: &str, code: &str) -> Response {
    let body = json!({
        "status": false,
        "message": message,
        "meta": {"nextStep": "Check the request and try again"},
        "type": kind,
        "code": code,
    });
    wire::json(status, body.to_string())
}

fn is_us(rails: &Rails, headers: &HeaderMap) -> bool {
    wire::credentials(headers, "Bearer ") == rails.0.settings.paystack_secret_key
}

fn stranger() -> Response {
    problem(401, "validation_error", "Invalid key", "invalid_Key")
}

#[derive(Deserialize)]
struct Charge {
    email: String,
    amount: i64,
    currency: String,
    reference: String,
    mobile_money: MobileMoney,
}

#[derive(Deserialize)]
struct MobileMoney {
    phone: String,
    provider: String,
}

#[derive(Deserialize)]
struct Otp {
    otp: String,
    reference: String,
}

async fn charge(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    let Some(asked) = read(&body) else {
        return problem(400, "validation_error", "Invalid request", "invalid_params");
    };
    render(rails.request(asked).await, "pay_offline")
}

/// `None` if it is not a request that this rail accepts.
fn read(body: &[u8]) -> Option<DebitRequest> {
    let charge: Charge = serde_json::from_slice(body).ok()?;
    let currency: Currency = charge.currency.parse().ok()?;
    let phone = Phone::parse_ghana_mobile(&charge.mobile_money.phone).ok()?;
    let network = match charge.mobile_money.provider.as_str() {
        "mtn" | "atl" => PayerNetwork::Paystack,
        "vod" => PayerNetwork::PaystackTelecel,
        _ => return None,
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '=');
    let is_fine = charge.amount > 0
        && charge.email.contains('@')
        && !charge.reference.is_empty()
        && charge.reference.chars().all(allowed);
    is_fine.then(|| DebitRequest {
        network,
        reference: charge.reference,
        phone: phone.as_e164().to_owned(),
        amount: Money::new(charge.amount, currency),
        callback: None,
    })
}

async fn submit_otp(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    let Ok(otp) = serde_json::from_slice::<Otp>(&body) else {
        return problem(400, "validation_error", "Invalid request", "invalid_params");
    };
    render(rails.submit_code(otp.reference, otp.otp).await, "pending")
}

async fn check(
    State(rails): State<Rails>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    render(
        rails.query((Rail::Paystack, reference), true).await,
        "pending",
    )
}

async fn verify(
    State(rails): State<Rails>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    render(
        rails.query((Rail::Paystack, reference), false).await,
        "pending",
    )
}

/// `accepted` is the status for a payment that the payer has been asked to approve.
fn render(answer: RailReply, accepted: &str) -> Response {
    let (word, view) = match answer {
        RailReply::Odd(odd) => return wire::odd(odd, INTERNAL_ERROR),
        RailReply::Says(word, view) => (word, view),
    };
    let is_ongoing = view.shape & 32 == 0;
    let data = match word {
        Word::Unknown404 => {
            let message = "Transaction reference not found";
            return problem(400, "validation_error", message, "transaction_not_found");
        }
        Word::Duplicate409 => {
            let message = "Duplicate Transaction Reference";
            return problem(400, "validation_error", message, "duplicate_reference");
        }
        Word::CodeNotAwaited => {
            let message = "Transaction is not waiting for an OTP";
            return problem(400, "validation_error", message, "invalid_params");
        }
        Word::Refused(PROCESSOR_ERROR) => {
            let message = "The provider is unavailable, try again later";
            return problem(400, PROCESSOR_ERROR, message, "processor_unavailable");
        }
        Word::Refused(words) | Word::Failed(words) => {
            let mut data = transaction("failed", &view);
            data["message"] = words.into();
            data["gateway_response"] = words.into();
            data
        }
        Word::Accepted => json!({
            "reference": view.reference,
            "status": accepted,
            "display_text": "Please complete authorization on your mobile phone",
        }),
        Word::CodeWanted => json!({
            "reference": view.reference,
            "status": "send_otp",
            "display_text": "Please dial *110# to generate a voucher code",
        }),
        Word::Success => transaction("success", &view),
        Word::Reversed => transaction("reversed", &view),
        Word::Abandoned => transaction("abandoned", &view),
        Word::Pending | Word::Nothing if is_ongoing => transaction("ongoing", &view),
        Word::Pending | Word::Nothing => transaction("pending", &view),
    };
    let body = json!({"status": true, "message": "Charge attempted", "data": data});
    wire::json(200, body.to_string())
}

fn transaction(status: &str, view: &View) -> Value {
    let amount = if view.shape & 4 == 0 {
        Value::from(view.amount_minor)
    } else {
        Value::from(view.amount_minor.to_string())
    };
    let gateway_response = if status == "success" {
        "Approved"
    } else {
        "Transaction in progress"
    };
    json!({
        "id": view.shape >> 40,
        "domain": "live",
        "status": status,
        "reference": view.reference,
        "amount": amount,
        "currency": view.currency,
        "gateway_response": gateway_response,
        "channel": "mobile_money",
        "authorization": {"channel": "mobile_money", "country_code": "GH"},
    })
}

/// The only event there is.
pub fn webhook_body(view: &View) -> String {
    let data = transaction("success", view);
    json!({"event": "charge.success", "data": data}).to_string()
}
