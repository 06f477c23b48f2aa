//! The Paystack Charge API for mobile money in Ghana (rails §4.2), as strict as the real one.
//!
//! Whatever became of a payment, charge and verify answer HTTP 200; `data.status` says it.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::{money::Currency, phone::Phone};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha512;

use crate::{
    config::Config,
    journal::JournalLost,
    network::{CodeTaken, Network, Taken},
    payment::{self, Details, Failure, Payment, Rail, Request},
    story::Story,
    wire,
};

const REFERENCE_CHARACTERS_MAX: usize = 100;

const OFFLINE: &str = "Please complete authorization on your mobile phone";
const VOUCHER: &str = "Please dial *110# to generate a voucher code, then enter it here";

pub fn routes() -> Router<Arc<Network>> {
    Router::new()
        .route("/charge", post(charge))
        .route("/charge/submit_otp", post(submit_otp))
        .route("/charge/{reference}", get(check))
        .route("/transaction/verify/{reference}", get(verify))
}

enum Refusal {
    /// 401
    Unauthorized,
    /// 400: message and code.
    Invalid(String, &'static str),
    /// 400 of type `processor_error`.
    Processor,
    /// No answer.
    Cut,
}

impl From<JournalLost> for Refusal {
    fn from(_: JournalLost) -> Self {
        Self::Cut
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, kind, message, code) = match self {
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "validation_error",
                "Invalid key".to_owned(),
                "invalid_Key",
            ),
            Self::Invalid(message, code) => {
                (StatusCode::BAD_REQUEST, "validation_error", message, code)
            }
            Self::Processor => (
                StatusCode::BAD_REQUEST,
                "processor_error",
                "The mobile money provider is unavailable, try again later".to_owned(),
                "processor_unavailable",
            ),
            Self::Cut => return wire::cut(),
        };
        let body = json!({
            "status": false,
            "message": message,
            "meta": {"nextStep": "Check the request against the documentation and try again"},
            "type": kind,
            "code": code,
        });
        (status, axum::Json(body)).into_response()
    }
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::Invalid(message.into(), "invalid_params")
}

fn not_found() -> Refusal {
    Refusal::Invalid(
        "Transaction reference not found".to_owned(),
        "transaction_not_found",
    )
}

fn invalid_reference() -> Refusal {
    Refusal::Invalid(
        "Transaction reference is invalid".to_owned(),
        "invalid_reference",
    )
}

fn check_key(config: &Config, headers: &HeaderMap) -> Result<(), Refusal> {
    match wire::credentials(headers, "Bearer") {
        Some(key) if key == config.paystack_secret_key => Ok(()),
        _ => Err(Refusal::Unauthorized),
    }
}

fn parse<'b, T: Deserialize<'b>>(headers: &HeaderMap, body: &'b Bytes) -> Result<T, Refusal> {
    if wire::media_type(headers) != "application/json" {
        return Err(invalid("Content-Type must be application/json"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))
}

#[derive(Deserialize)]
struct Charge {
    email: String,
    /// Pesewas.
    amount: i64,
    #[serde(default = "ghs")]
    currency: String,
    reference: String,
    mobile_money: MobileMoney,
    #[serde(default)]
    metadata: Value,
}

#[derive(Deserialize)]
struct MobileMoney {
    phone: String,
    provider: String,
}

fn ghs() -> String {
    Currency::GHS.code().to_owned()
}

async fn charge(
    State(network): State<Arc<Network>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    check_key(&network.config, &headers)?;
    let charge: Charge = parse(&headers, &body)?;
    let request = check_charge(&network.config, charge)?;
    match network.request(request).await? {
        Taken::New(payment) => match payment.story {
            Story::CutAtRequest => Err(Refusal::Cut),
            Story::Unavailable => Err(Refusal::Processor),
            _ => Ok(first_answer(&payment)),
        },
        Taken::Again(payment) if payment.state == payment::State::Refused => {
            Err(Refusal::Processor)
        }
        Taken::Again(_) => Err(Refusal::Invalid(
            "Duplicate Transaction Reference".to_owned(),
            "duplicate_reference",
        )),
    }
}

fn check_charge(config: &Config, charge: Charge) -> Result<Request, Refusal> {
    if !is_email(&charge.email) {
        return Err(invalid("Invalid Email Address Passed"));
    }
    if charge.amount <= 0 {
        return Err(invalid("Invalid Amount Sent"));
    }
    if charge.currency != Currency::GHS.code() {
        return Err(Refusal::Invalid(
            "Currency not supported by merchant".to_owned(),
            "unsupported_currency",
        ));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '=');
    let reference = charge.reference;
    if !(1..=REFERENCE_CHARACTERS_MAX).contains(&reference.len())
        || !reference.chars().all(is_allowed)
    {
        return Err(invalid("Reference may have letters, digits and -.= only"));
    }
    let network = match charge.mobile_money.provider.as_str() {
        "mtn" => payment::Network::Mtn,
        "vod" => payment::Network::Telecel,
        "atl" => payment::Network::At,
        _ => return Err(invalid("Invalid mobile money provider")),
    };
    let phone = local_number(&charge.mobile_money.phone)
        .ok_or_else(|| invalid("Invalid mobile money phone number"))?;
    Ok(Request {
        rail: Rail::Paystack,
        text: format!("Paystack {reference}"),
        reference,
        network,
        phone: phone.as_e164().to_owned(),
        amount_minor: charge.amount,
        currency: Currency::GHS,
        details: Details::Paystack {
            email: charge.email,
            metadata: charge.metadata,
        },
        callback_url: config.paystack_callback_url.clone(),
    })
}

fn is_email(text: &str) -> bool {
    let has_domain = |domain: &str| domain.contains('.') && !domain.starts_with('.');
    text.split_once('@')
        .is_some_and(|(name, domain)| !name.is_empty() && has_domain(domain))
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// `0XXXXXXXXX`, the one form of the samples.
fn local_number(text: &str) -> Option<Phone> {
    let is_local = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    Phone::parse_ghana_mobile(text).ok().filter(|_| is_local)
}

#[derive(Deserialize)]
struct SubmitOtp {
    otp: String,
    reference: String,
}

async fn submit_otp(
    State(network): State<Arc<Network>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    check_key(&network.config, &headers)?;
    let submitted: SubmitOtp = parse(&headers, &body)?;
    match network
        .submit_code(&submitted.reference, &submitted.otp)
        .await?
    {
        CodeTaken::Right(payment) if payment.story == Story::CutAtCode => Err(Refusal::Cut),
        CodeTaken::Right(payment) | CodeTaken::Wrong(payment) | CodeTaken::Expired(payment) => {
            Ok(answer(&payment))
        }
        CodeTaken::NotAwaited => Err(Refusal::Invalid(
            "Transaction is not waiting for an OTP".to_owned(),
            "invalid_params",
        )),
        CodeTaken::UnknownReference => Err(invalid_reference()),
    }
}

async fn check(
    State(network): State<Arc<Network>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    check_key(&network.config, &headers)?;
    match network.query(Rail::Paystack, &reference).await? {
        Some(payment) => Ok(answer(&payment)),
        None => Err(not_found()),
    }
}

async fn verify(
    State(network): State<Arc<Network>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    check_key(&network.config, &headers)?;
    let Some(payment) = network.query(Rail::Paystack, &reference).await? else {
        return Err(not_found());
    };
    let data = transaction(&payment);
    Ok(axum::Json(Envelope::new("Verification successful", data)).into_response())
}

/// What wraps every answer of HTTP 200.
#[derive(Serialize)]
struct Envelope<T> {
    status: bool,
    message: &'static str,
    data: T,
}

impl<T> Envelope<T> {
    fn new(message: &'static str, data: T) -> Self {
        Self {
            status: true,
            message,
            data,
        }
    }
}

/// The answer to a charge: a live prompt has just been sent.
fn first_answer(payment: &Payment) -> Response {
    if !matches!(payment.state, payment::State::Prompted { .. }) {
        return answer(payment);
    }
    let reference = &payment.request.reference;
    let data = json!({"reference": reference, "status": "pay_offline", "display_text": OFFLINE});
    axum::Json(Envelope::new("Charge attempted", data)).into_response()
}

/// The answer to a code and to a check.
fn answer(payment: &Payment) -> Response {
    let reference = &payment.request.reference;
    let data = match payment.state {
        payment::State::Prompted { .. } => json!({"reference": reference, "status": "pending"}),
        payment::State::AwaitingCode => {
            json!({"reference": reference, "status": "send_otp", "display_text": VOUCHER})
        }
        payment::State::Failed { failure, .. } => {
            json!({"reference": reference, "status": "failed", "message": words(failure)})
        }
        payment::State::Succeeded { .. } | payment::State::Refused => {
            return axum::Json(Envelope::new("Charge attempted", transaction(payment)))
                .into_response();
        }
    };
    axum::Json(Envelope::new("Charge attempted", data)).into_response()
}

fn words(failure: Failure) -> &'static str {
    match failure {
        Failure::InsufficientFunds => "The payer has insufficient funds",
        Failure::Declined => "The payer declined the request",
        Failure::TimedOut => "The request timed out before the payer answered",
        Failure::PayerNotFound => "The mobile money account was not found",
        Failure::LimitReached => "The payer has reached the transaction limit",
        Failure::CodeExpired => "The voucher code has expired",
    }
}

fn wallet(network: payment::Network) -> &'static str {
    match network {
        payment::Network::Mtn => "MTN Mobile Money",
        payment::Network::Telecel => "Telecel Cash",
        payment::Network::At => "AT Money",
    }
}

/// The full transaction: what verify answers and the webhook carries.
#[derive(Serialize)]
pub struct Transaction<'p> {
    id: u64,
    domain: &'static str,
    status: &'static str,
    reference: &'p str,
    amount: i64,
    currency: &'static str,
    message: Option<&'static str>,
    gateway_response: &'static str,
    paid_at: Option<String>,
    created_at: String,
    channel: &'static str,
    metadata: &'p Value,
    customer: Customer<'p>,
    authorization: Authorization,
}

#[derive(Serialize)]
struct Customer<'p> {
    email: &'p str,
}

#[derive(Serialize)]
struct Authorization {
    channel: &'static str,
    bank: &'static str,
    country_code: &'static str,
}

fn transaction(payment: &Payment) -> Transaction<'_> {
    let (status, gateway_response, message, paid_at) = match payment.state {
        payment::State::Succeeded { at } => ("success", "Approved", None, Some(at.to_string())),
        payment::State::Failed { failure, .. } => {
            ("failed", words(failure), Some(words(failure)), None)
        }
        payment::State::Prompted { .. } => ("ongoing", "Waiting for the payer", None, None),
        payment::State::AwaitingCode | payment::State::Refused => {
            ("pending", "Waiting for the payer", None, None)
        }
    };
    let (email, metadata) = match &payment.request.details {
        Details::Paystack { email, metadata } => (email.as_str(), metadata),
        Details::Momo { .. } => ("", &Value::Null),
    };
    Transaction {
        id: payment.number,
        domain: "test",
        status,
        reference: &payment.request.reference,
        amount: payment.reported().minor_units(),
        currency: payment.request.currency.code(),
        message,
        gateway_response,
        paid_at,
        created_at: payment.created_at.to_string(),
        channel: "mobile_money",
        metadata,
        customer: Customer { email },
        authorization: Authorization {
            channel: "mobile_money",
            bank: wallet(payment.request.network),
            country_code: "GH",
        },
    }
}

/// The body of the one webhook that there is: `charge.success`.
pub fn webhook_body(payment: &Payment) -> Vec<u8> {
    #[derive(Serialize)]
    struct Webhook<'p> {
        event: &'static str,
        data: Transaction<'p>,
    }
    let webhook = Webhook {
        event: "charge.success",
        data: transaction(payment),
    };
    serde_json::to_vec(&webhook).expect("a transaction has string keys only")
}

/// The value of `x-paystack-signature`: hex HMAC-SHA512 of the raw body.
pub fn signature(config: &Config, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha512>::new_from_slice(config.paystack_secret_key.as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}
