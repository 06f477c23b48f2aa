//! MTN MoMo's collection product on the wire, and what its products share: each has
//! credentials and tokens of its own.

mod transfers;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::money::{Currency, Money};
use http::{HeaderMap, StatusCode, Uri};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    OpenCall, Rail, RailCredentials, RailReply, Rails, Word,
    book::{DebitRequest, View},
    life::Fare,
    payment::PayerNetwork,
    wire,
};
use crate::{
    choice::Choices,
    time::{MINUTE, Millis, SECOND},
};

const INTERNAL_ERROR: &str =
    r#"{"code":"INTERNAL_PROCESSING_ERROR","message":"An internal error occurred."}"#;

pub fn routes(rails: Rails) -> Router {
    Router::new()
        .route("/collection/token/", post(token))
        .route("/collection/v1_0/requesttopay", post(request_to_pay))
        .route("/collection/v1_0/requesttopay/{reference}", get(status))
        .merge(transfers::routes())
        .with_state(rails)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Product {
    Collection,
    Disbursement,
}

impl Product {
    /// Subscription key, API user and its key.
    fn credentials(self, settings: &RailCredentials) -> [&str; 3] {
        match self {
            Self::Collection => [
                &settings.momo_subscription_key,
                &settings.momo_api_user,
                &settings.momo_api_key,
            ],
            Self::Disbursement => [
                &settings.momo_disbursement_subscription_key,
                &settings.momo_disbursement_api_user,
                &settings.momo_disbursement_api_key,
            ],
        }
    }

    fn token(self) -> &'static str {
        match self {
            Self::Collection => "token",
            Self::Disbursement => "disbursement token",
        }
    }
}

/// The valid tokens, each with its product and its expiry.
#[derive(Default)]
pub struct Tokens(Mutex<HashMap<String, (Product, Millis)>>);

impl Tokens {
    /// The next token, and its claimed lifetime in seconds.
    fn mint(&self, rails: &Rails, product: Product) -> (String, u64) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minted = tokens.values().filter(|(of, _)| *of == product).count();
        let name = format!("{} {minted}", product.token());
        let mut choices = Choices::of(rails.0.seed, &name);
        let short = choices.between(60, 600);
        let claimed = choices.weighted(&[(9, 3_600), (1, short)]);
        let cut_short = choices.between(1, claimed);
        // Tokens also die early, as when a new one replaces them.
        let lives = choices.weighted(&[(9, claimed), (1, cut_short)]);
        let lives = if rails.is_calm() { claimed } else { lives };
        let token = hex::encode(&name);
        tokens.insert(token.clone(), (product, rails.now() + lives * SECOND));
        (token, claimed)
    }

    fn lives(&self, token: &str, product: Product, now: Millis) -> bool {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tokens.get(token);
        found.is_some_and(|(of, end)| *of == product && now < *end)
    }
}

fn problem(status: u16, code: &str) -> Response {
    let body = json!({"code": code, "message": "As the code says."});
    wire::json(status, body.to_string())
}

async fn token(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    mint(&rails, Product::Collection, &headers, &body).await
}

async fn mint(rails: &Rails, product: Product, headers: &HeaderMap, body: &[u8]) -> Response {
    let [subscription_key, user, key] = product.credentials(&rails.0.settings);
    let is_us = wire::header(headers, "Ocp-Apim-Subscription-Key") == subscription_key
        && wire::credentials(headers, "Basic ") == BASE64_STANDARD.encode(format!("{user}:{key}"));
    if !is_us {
        return problem(401, "ACCESS_DENIED");
    }
    if body.is_empty() {
        return StatusCode::LENGTH_REQUIRED.into_response();
    }
    let _open = OpenCall::of(rails);
    let (token, claimed) = rails.0.tokens.mint(rails, product);
    let fare = Fare::of_query(&mut Choices::of(rails.0.seed, &format!("minting {token}")));
    let fare = rails.fare(Rail::Momo, fare);
    rails.0.time.sleep(fare.delay.min(MINUTE)).await;
    if let Some(odd) = fare.odd {
        return wire::odd(odd, INTERNAL_ERROR);
    }
    let body = json!({"access_token": token, "token_type": "access_token", "expires_in": claimed});
    wire::json(200, body.to_string())
}

/// The refusal of a call that lacks what every call must carry.
fn refusal(rails: &Rails, product: Product, headers: &HeaderMap) -> Option<Response> {
    let settings = &rails.0.settings;
    let [subscription_key, ..] = product.credentials(settings);
    let key = wire::header(headers, "Ocp-Apim-Subscription-Key");
    let token = wire::credentials(headers, "Bearer ");
    if key != subscription_key || !rails.0.tokens.lives(token, product, rails.now()) {
        return Some(problem(401, "ACCESS_DENIED"));
    }
    if wire::header(headers, "X-Target-Environment") != settings.momo_target_environment {
        return Some(problem(500, "NOT_ALLOWED_TARGET_ENVIRONMENT"));
    }
    None
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestToPay {
    amount: String,
    currency: String,
    external_id: String,
    payer: Payer,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payer {
    party_id: String,
}

async fn request_to_pay(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refusal) = refusal(&rails, Product::Collection, &headers) {
        return refusal;
    }
    let Some(asked) = read(&headers, &body) else {
        return problem(400, "VALIDATION_ERROR");
    };
    match rails.request(asked).await {
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

/// `None` if it is not a request that this rail accepts.
fn read(headers: &HeaderMap, body: &[u8]) -> Option<DebitRequest> {
    let request: RequestToPay = serde_json::from_slice(body).ok()?;
    let reference = wire::header(headers, "X-Reference-Id").to_owned();
    uuid::Uuid::try_parse(&reference).ok()?;
    let currency: Currency = request.currency.parse().ok()?;
    let amount = Decimal::from_str_exact(&request.amount).ok()?;
    let amount = Money::from_major(amount, currency).ok()?;
    let callback: Option<Uri> = wire::header(headers, "X-Callback-Url").parse().ok();
    let callback = callback.and_then(|uri| Some(uri.path_and_query()?.to_string()));
    let is_ours = request.external_id == reference && amount.is_positive();
    is_ours.then(|| DebitRequest {
        network: PayerNetwork::Momo,
        reference,
        phone: format!("+{}", request.payer.party_id),
        amount,
        callback,
    })
}

async fn status(
    State(rails): State<Rails>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refusal(&rails, Product::Collection, &headers) {
        return refusal;
    }
    match rails.query((Rail::Momo, reference), false).await {
        RailReply::Odd(odd) => wire::odd(odd, INTERNAL_ERROR),
        RailReply::Says(Word::Unknown404, _) => problem(404, "RESOURCE_NOT_FOUND"),
        RailReply::Says(word, view) => {
            wire::json(200, status_body("payer", word, &view).to_string())
        }
    }
}

/// A payment's status, or a transfer's, in one of the forms seen in the wild.
fn status_body(party: &str, word: Word, view: &View) -> Value {
    let currency: Currency = view.currency.parse().expect("one that was asked for");
    let amount = Money::new(view.amount_minor, currency)
        .to_major()
        .to_string();
    let number = |digits: String| {
        let number = serde_json::from_str(&digits).ok();
        let number = number.filter(|_| view.shape & 4 == 0);
        number.unwrap_or(Value::String(digits))
    };
    let mut body = json!({
        "amount": number(amount),
        "currency": view.currency,
        "externalId": view.reference,
        party: {"partyIdType": "MSISDN", "partyId": view.phone.trim_start_matches('+')},
        "status": "PENDING",
    });
    match word {
        Word::Success => {
            body["status"] = "SUCCESSFUL".into();
            body["financialTransactionId"] = number((view.shape >> 40).to_string());
        }
        Word::Failed(code) => {
            body["status"] = "FAILED".into();
            body["reason"] = if view.shape & 2 == 0 {
                code.into()
            } else {
                json!({"code": code, "message": "The payment was not completed."})
            };
        }
        _ => {}
    }
    body
}

/// The body of a callback about a payment, which has a `payer`, or a transfer, which has a
/// `payee`. Whatever it says, nobody believes it.
pub fn callback_body(party: &str, word: Word, view: &View) -> String {
    match view.shape >> 8 & 7 {
        0 => String::new(),
        1 => "{}".to_owned(),
        2 => r#"{"status":"SUCCESSFUL"}"#.to_owned(),
        3 => r#"{"status":"FAILED","reason":"EXPIRED"}"#.to_owned(),
        _ => status_body(party, word, view).to_string(),
    }
}
