//! Paystack in Ghana (<https://paystack.com/docs>), as strict as the real one: the Charge API for
//! mobile money, and transfers in a file of their own.
//!
//! Charge and verify answer HTTP 200 whatever the payment's outcome, which is in `data.status`.

pub mod body;
pub mod settings;
mod transfer;
pub mod transfer_body;

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::{money::Currency, phone::Phone};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    journal::JournalLost,
    networks::{CodeOutcome, Intake, Networks},
    payment::{self, Payment},
    rail::{Details, Rail},
    request::{Network, PaymentRequest},
    story::{MARKUP, Story},
    wire,
};

use body::{Transaction, words};
use settings::PaystackSettings;

const REFERENCE_CHARACTERS_MAX: usize = 100;

const OFFLINE: &str = "Please complete authorization on your mobile phone";
const VOUCHER: &str = "Please dial *110# to generate a voucher code, then enter it here";

pub fn routes() -> Router<Arc<Networks>> {
    Router::new()
        .route("/charge", post(charge))
        .route("/charge/submit_otp", post(submit_otp))
        .route("/charge/{reference}", get(check))
        .route("/transaction/verify/{reference}", get(verify))
        .merge(transfer::routes())
}

enum PaystackError {
    /// 401
    Unauthorized,
    /// 400: message and code.
    Invalid(String, &'static str),
    /// 400 of type `processor_error`.
    Processor,
    /// No answer: the connection is cut.
    Cut,
}

impl From<JournalLost> for PaystackError {
    fn from(_: JournalLost) -> Self {
        Self::Cut
    }
}

impl IntoResponse for PaystackError {
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

fn invalid(message: impl Into<String>) -> PaystackError {
    PaystackError::Invalid(message.into(), "invalid_params")
}

fn not_found() -> PaystackError {
    PaystackError::Invalid(
        "Transaction reference not found".to_owned(),
        "transaction_not_found",
    )
}

fn invalid_reference() -> PaystackError {
    PaystackError::Invalid(
        "Transaction reference is invalid".to_owned(),
        "invalid_reference",
    )
}

fn check_key(account: &PaystackSettings, headers: &HeaderMap) -> Result<(), PaystackError> {
    match wire::credentials(headers, "Bearer") {
        Some(key) if key == account.paystack_secret_key => Ok(()),
        _ => Err(PaystackError::Unauthorized),
    }
}

fn parse<'b, T: Deserialize<'b>>(headers: &HeaderMap, body: &'b Bytes) -> Result<T, PaystackError> {
    if wire::media_type(headers) != "application/json" {
        return Err(invalid("Content-Type must be application/json"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))
}

#[derive(Deserialize)]
struct Charge {
    email: String,
    /// In pesewas.
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
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let charge: Charge = parse(&headers, &body)?;
    let request = check_charge(&networks.config.accounts.paystack, charge)?;
    match networks.request(request).await? {
        Intake::New(payment) => match payment.story {
            Story::CutAtRequest => Err(PaystackError::Cut),
            Story::Unavailable => Err(PaystackError::Processor),
            _ => Ok(first_answer(&payment)),
        },
        Intake::Again(payment) if payment.state == payment::State::Refused => {
            Err(PaystackError::Processor)
        }
        Intake::Again(_) => Err(PaystackError::Invalid(
            "Duplicate Transaction Reference".to_owned(),
            "duplicate_reference",
        )),
    }
}

fn check_charge(
    account: &PaystackSettings,
    charge: Charge,
) -> Result<PaymentRequest, PaystackError> {
    if !is_email(&charge.email) {
        return Err(invalid("Invalid Email Address Passed"));
    }
    if charge.amount <= 0 {
        return Err(invalid("Invalid Amount Sent"));
    }
    if charge.currency != Currency::GHS.code() {
        return Err(PaystackError::Invalid(
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
        "mtn" => Network::Mtn,
        "vod" => Network::Telecel,
        "atl" => Network::At,
        _ => return Err(invalid("Invalid mobile money provider")),
    };
    let phone = local_number(&charge.mobile_money.phone)
        .ok_or_else(|| invalid("Invalid mobile money phone number"))?;
    Ok(PaymentRequest {
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
        callback_url: account.paystack_callback_url.clone(),
    })
}

fn is_email(text: &str) -> bool {
    let has_domain = |domain: &str| domain.contains('.') && !domain.starts_with('.');
    text.split_once('@')
        .is_some_and(|(name, domain)| !name.is_empty() && has_domain(domain))
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Accepts only `0XXXXXXXXX`, the form in Paystack's samples.
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
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let submitted: SubmitOtp = parse(&headers, &body)?;
    match networks
        .submit_code(Rail::Paystack, &submitted.reference, &submitted.otp)
        .await?
    {
        CodeOutcome::Right(payment) if payment.story == Story::CutAtCode => Err(PaystackError::Cut),
        CodeOutcome::Right(payment)
        | CodeOutcome::Wrong(payment)
        | CodeOutcome::Expired(payment) => Ok(answer(&payment)),
        CodeOutcome::NotAwaited => Err(PaystackError::Invalid(
            "Transaction is not waiting for an OTP".to_owned(),
            "invalid_params",
        )),
        CodeOutcome::UnknownReference => Err(invalid_reference()),
    }
}

async fn check(
    State(networks): State<Arc<Networks>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    match networks.query(Rail::Paystack, &reference).await? {
        Some(payment) => Ok(answer(&payment)),
        None => Err(not_found()),
    }
}

async fn verify(
    State(networks): State<Arc<Networks>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, PaystackError> {
    check_key(&networks.config.accounts.paystack, &headers)?;
    let Some(payment) = networks.query(Rail::Paystack, &reference).await? else {
        return Err(not_found());
    };
    let data = Transaction::of(&payment);
    Ok(axum::Json(Envelope::new("Verification successful", data)).into_response())
}

/// The envelope of every HTTP 200 answer.
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

/// The answer to a new charge. A live prompt is `pay_offline` here and `pending` in later answers.
fn first_answer(payment: &Payment) -> Response {
    if !matches!(payment.state, payment::State::Prompted { .. }) {
        return answer(payment);
    }
    let reference = &payment.request.reference;
    let data = json!({"reference": reference, "status": "pay_offline", "display_text": OFFLINE});
    axum::Json(Envelope::new("Charge attempted", data)).into_response()
}

/// The answer to a submitted code and to a check.
fn answer(payment: &Payment) -> Response {
    let reference = &payment.request.reference;
    let data = match payment.state {
        payment::State::Prompted { .. } => json!({"reference": reference, "status": "pending"}),
        payment::State::AwaitingCode => {
            let told = match payment.story {
                Story::SaysMarkup => MARKUP,
                _ => VOUCHER,
            };
            json!({"reference": reference, "status": "send_otp", "display_text": told})
        }
        payment::State::Failed { failure, .. } => {
            json!({"reference": reference, "status": "failed", "message": words(failure)})
        }
        payment::State::Succeeded { .. } | payment::State::Refused => {
            return axum::Json(Envelope::new("Charge attempted", Transaction::of(payment)))
                .into_response();
        }
    };
    axum::Json(Envelope::new("Charge attempted", data)).into_response()
}
