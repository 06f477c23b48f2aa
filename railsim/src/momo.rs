//! The MTN MoMo Open API, collection (rails §4.1), as strict as the real one.
//!
//! Where the published contract leaves room (the shape of `reason`, numbers or strings, PUT or
//! POST) the reference decides, so that a client meets every variant.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::{
    clock::Timestamp,
    money::{Currency, Money},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, StatusCode};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Sha256;
use url::Url;
use uuid::{Uuid, Version};

use crate::{
    config::Config,
    journal::JournalLost,
    network::{Network, Taken},
    payment::{self, Details, Failure, Payment, Rail, Request},
    story::Story,
    wire,
};

const TOKEN_LIFETIME_S: u64 = 3_600;

/// The tighter of the two published limits.
const TEXT_CHARACTERS_MAX: usize = 128;

/// What the firewall in front of the network answers to a form.
const REQUEST_REJECTED: &str = "<html><head><title>Request Rejected</title></head><body>\
    The requested URL was rejected. Please consult with your administrator.</body></html>";

pub fn routes() -> Router<Arc<Network>> {
    Router::new()
        .route("/collection/token/", post(token))
        .route("/collection/v1_0/requesttopay", post(request_to_pay))
        .route("/collection/v1_0/requesttopay/{reference}", get(status))
}

/// `{code, message}` with its HTTP status.
enum Refusal {
    /// 400
    Invalid(&'static str, String),
    /// 401
    Unauthorized(&'static str),
    /// 404
    Unknown,
    /// 409
    AlreadyExists,
    /// 411
    NoBody,
    /// 500: the client's own mistake, as this network says it.
    Configuration(&'static str),
    /// 503
    Unavailable,
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
        let (status, code, message) = match self {
            Self::Invalid(code, message) => (StatusCode::BAD_REQUEST, code, message),
            Self::Unauthorized(message) => (
                StatusCode::UNAUTHORIZED,
                "ACCESS_DENIED",
                message.to_owned(),
            ),
            Self::Unknown => (
                StatusCode::NOT_FOUND,
                "RESOURCE_NOT_FOUND",
                "Requested resource was not found.".to_owned(),
            ),
            Self::AlreadyExists => (
                StatusCode::CONFLICT,
                "RESOURCE_ALREADY_EXIST",
                "Duplicated reference id. Creation of resource failed.".to_owned(),
            ),
            Self::NoBody => {
                let page = Html("<html><body>Length Required</body></html>");
                return (StatusCode::LENGTH_REQUIRED, page).into_response();
            }
            Self::Configuration(code) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                code,
                "The request is not allowed as it was configured.".to_owned(),
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "SERVICE_UNAVAILABLE",
                "Service temporarily unavailable, try again later.".to_owned(),
            ),
            Self::Cut => return wire::cut(),
        };
        (
            status,
            axum::Json(serde_json::json!({"code": code, "message": message})),
        )
            .into_response()
    }
}

#[derive(Deserialize)]
struct Grant {
    grant_type: String,
}

async fn token(
    State(network): State<Arc<Network>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    if wire::media_type(&headers) == "application/x-www-form-urlencoded" {
        return Ok(Html(REQUEST_REJECTED).into_response());
    }
    check_subscription(&network.config, &headers)?;
    let config = &network.config;
    let expected = format!("{}:{}", config.momo_api_user, config.momo_api_key);
    let given = wire::credentials(&headers, "Basic")
        .and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
    if given.as_deref() != Some(expected.as_bytes()) {
        return Err(Refusal::Unauthorized(
            "Access denied: API user or API key is wrong.",
        ));
    }
    let grant: Grant = parse(&headers, &body)?;
    if grant.grant_type != "client_credentials" {
        return Err(invalid("grant_type must be client_credentials"));
    }
    let expires_at = network.clock.now() + std::time::Duration::from_secs(TOKEN_LIFETIME_S);
    let answer = serde_json::json!({
        "access_token": mint(config, expires_at),
        "token_type": "access_token",
        "expires_in": TOKEN_LIFETIME_S,
    });
    Ok(axum::Json(answer).into_response())
}

/// A token carries its end and a MAC over it, so it outlives a restart of the network.
fn mint(config: &Config, expires_at: Timestamp) -> String {
    let expires_at = expires_at.unix_millis();
    let mut mac = Hmac::<Sha256>::new_from_slice(config.momo_api_key.as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(format!("collection {expires_at}").as_bytes());
    format!("{expires_at}.{}", hex::encode(mac.finalize().into_bytes()))
}

fn check_subscription(config: &Config, headers: &HeaderMap) -> Result<(), Refusal> {
    match wire::header(headers, "Ocp-Apim-Subscription-Key") {
        Some(key) if key == config.momo_subscription_key => Ok(()),
        Some(_) => Err(Refusal::Unauthorized(
            "Access denied due to invalid subscription key.",
        )),
        None => Err(Refusal::Unauthorized(
            "Access denied due to missing subscription key.",
        )),
    }
}

/// What both calls on a payment must carry.
fn check_access(network: &Network, headers: &HeaderMap) -> Result<(), Refusal> {
    check_subscription(&network.config, headers)?;
    let token = wire::credentials(headers, "Bearer")
        .ok_or(Refusal::Unauthorized("Access denied: no bearer token."))?;
    let expires_at = token
        .split_once('.')
        .and_then(|(millis, _)| Timestamp::from_unix_millis(millis.parse().ok()?).ok())
        .filter(|expires_at| mint(&network.config, *expires_at) == token)
        .filter(|expires_at| network.clock.now() < *expires_at);
    if expires_at.is_none() {
        return Err(Refusal::Unauthorized(
            "Access denied: the token is invalid or has expired.",
        ));
    }
    match wire::header(headers, "X-Target-Environment") {
        Some(environment) if environment == network.config.momo_target_environment => Ok(()),
        Some(_) => Err(Refusal::Configuration("NOT_ALLOWED_TARGET_ENVIRONMENT")),
        None => Err(invalid("X-Target-Environment is missing")),
    }
}

fn invalid(message: &str) -> Refusal {
    Refusal::Invalid("VALIDATION_ERROR", message.to_owned())
}

fn parse<'b, T: Deserialize<'b>>(headers: &HeaderMap, body: &'b Bytes) -> Result<T, Refusal> {
    if body.is_empty() {
        return Err(Refusal::NoBody);
    }
    if wire::media_type(headers) != "application/json" {
        return Err(invalid("Content-Type must be application/json"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(&error.to_string()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestToPay {
    amount: String,
    currency: String,
    external_id: String,
    payer: Payer,
    payer_message: String,
    payee_note: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payer {
    party_id_type: String,
    party_id: String,
}

async fn request_to_pay(
    State(network): State<Arc<Network>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    if body.is_empty() {
        return Err(Refusal::NoBody);
    }
    check_access(&network, &headers)?;
    let reference = reference_id(wire::header(&headers, "X-Reference-Id").unwrap_or_default())?;
    let callback_url = callback_url(&network.config, &headers)?;
    let request: RequestToPay = parse(&headers, &body)?;
    let request = check_request(&network.config, reference, callback_url, request)?;

    match network.request(request).await? {
        Taken::New(payment) => match payment.story {
            Story::CutAtRequest => Err(Refusal::Cut),
            _ => answer(&payment),
        },
        Taken::Again(payment) if payment.state == payment::State::Refused => answer(&payment),
        Taken::Again(_) => Err(Refusal::AlreadyExists),
    }
}

fn answer(payment: &Payment) -> Result<Response, Refusal> {
    match payment.story {
        Story::UnknownPayer => Err(Refusal::Invalid(
            "PAYER_NOT_FOUND",
            "Payer was not found.".to_owned(),
        )),
        Story::Unavailable => Err(Refusal::Unavailable),
        _ => Ok(StatusCode::ACCEPTED.into_response()),
    }
}

/// The one form that this network takes: a version 4 UUID with its dashes.
fn reference_id(text: &str) -> Result<String, Refusal> {
    let parsed = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
    match parsed.filter(|uuid| uuid.get_version() == Some(Version::Random)) {
        Some(uuid) => Ok(uuid.hyphenated().to_string()),
        None => Err(invalid("X-Reference-Id must be a version 4 UUID")),
    }
}

fn callback_url(config: &Config, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    if !headers.contains_key("X-Callback-Url") {
        return Ok(None);
    }
    let url = wire::header(headers, "X-Callback-Url")
        .and_then(|text| Url::parse(text).ok())
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or_else(|| invalid("X-Callback-Url must be an absolute URL"))?;
    let expected = config.momo_callback_host.as_deref();
    if expected.is_some_and(|expected| url.host_str() != Some(expected)) {
        return Err(Refusal::Configuration("INVALID_CALLBACK_URL_HOST"));
    }
    Ok(Some(url.into()))
}

fn check_request(
    config: &Config,
    reference: String,
    callback_url: Option<String>,
    request: RequestToPay,
) -> Result<Request, Refusal> {
    if request.currency != config.momo_currency.code() {
        return Err(Refusal::Configuration("INVALID_CURRENCY"));
    }
    let amount = amount(&request.amount, config.momo_currency)
        .ok_or_else(|| invalid("amount must be a positive decimal in a string"))?;
    let digits = &request.payer.party_id;
    let is_number = (8..=15).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0');
    if request.payer.party_id_type != "MSISDN" || !is_number {
        return Err(invalid(
            "payer must be an MSISDN with its country code and without a plus",
        ));
    }
    if request.external_id.is_empty() {
        return Err(invalid("externalId is empty"));
    }
    for (name, text) in [
        ("payerMessage", &request.payer_message),
        ("payeeNote", &request.payee_note),
    ] {
        if text.chars().count() > TEXT_CHARACTERS_MAX || !text.chars().all(is_allowed) {
            return Err(invalid(&format!(
                "{name} is too long or has special characters"
            )));
        }
    }
    Ok(Request {
        rail: Rail::Momo,
        reference,
        network: payment::Network::Mtn,
        phone: format!("+{digits}"),
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

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, ' ' | '.' | '-')
}

fn amount(text: &str, currency: Currency) -> Option<Money> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let major: Decimal = text.parse().ok().filter(|_| plain)?;
    Money::from_major(major, currency)
        .ok()
        .filter(|money| money.is_positive())
}

async fn status(
    State(network): State<Arc<Network>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    check_access(&network, &headers)?;
    let reference = reference_id(&reference)?;
    match network.query(Rail::Momo, &reference).await? {
        Some(payment) => Ok(axum::Json(status_body(&payment)).into_response()),
        None => Err(Refusal::Unknown),
    }
}

/// The status answer, and the body of a callback.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusBody<'p> {
    amount: Box<RawValue>,
    currency: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    financial_transaction_id: Option<Box<RawValue>>,
    external_id: &'p str,
    payer: Payer,
    payer_message: &'p str,
    payee_note: &'p str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<serde_json::Value>,
}

pub fn status_body(payment: &Payment) -> StatusBody<'_> {
    let variant = Variant::of(payment);
    let (external_id, payer_message, payee_note) = match &payment.request.details {
        Details::Momo {
            external_id,
            payer_message,
            payee_note,
        } => (
            external_id.as_str(),
            payer_message.as_str(),
            payee_note.as_str(),
        ),
        Details::Paystack { .. } => ("", "", ""),
    };
    let (status, reason, transaction) = match payment.state {
        payment::State::Succeeded { .. } => (
            "SUCCESSFUL",
            None,
            Some(variant.number(&payment.number.to_string())),
        ),
        payment::State::Failed { failure, .. } => (
            "FAILED",
            Some(variant.reason(code(failure, payment.story))),
            None,
        ),
        payment::State::Prompted { .. }
        | payment::State::AwaitingCode
        | payment::State::Refused => ("PENDING", None, None),
    };
    StatusBody {
        amount: variant.number(&payment.reported().to_major().to_string()),
        currency: payment.request.currency.code(),
        financial_transaction_id: transaction,
        external_id,
        payer: Payer {
            party_id_type: "MSISDN".to_owned(),
            party_id: payment.request.phone.trim_start_matches('+').to_owned(),
        },
        payer_message,
        payee_note,
        status,
        reason,
    }
}

/// MTN has two words for a prompt that ran out; both are used.
fn code(failure: Failure, story: Story) -> &'static str {
    match failure {
        Failure::InsufficientFunds => "NOT_ENOUGH_FUNDS",
        Failure::Declined => "APPROVAL_REJECTED",
        Failure::TimedOut if story == Story::LateMoney => "EXPIRED",
        Failure::TimedOut | Failure::CodeExpired => "COULD_NOT_PERFORM_TRANSACTION",
        Failure::PayerNotFound => "PAYER_NOT_FOUND",
        Failure::LimitReached => "PAYER_LIMIT_REACHED",
    }
}

/// What the published contract leaves open, as the reference's last byte decides it.
pub struct Variant(u8);

impl Variant {
    pub fn of(payment: &Payment) -> Self {
        let last = payment.request.reference.get(34..).unwrap_or_default();
        Self(u8::from_str_radix(last, 16).unwrap_or_default())
    }

    /// A callback is a PUT or a POST.
    pub fn calls_by_put(&self) -> bool {
        self.0 & 1 == 1
    }

    /// A reason is a string or an object.
    fn reason(&self, code: &str) -> serde_json::Value {
        if self.0 & 2 == 0 {
            return code.into();
        }
        serde_json::json!({"code": code, "message": "The payment was not completed."})
    }

    /// Amounts and numbers are strings or JSON numbers.
    fn number(&self, digits: &str) -> Box<RawValue> {
        let token = if self.0 & 4 == 0 {
            format!("\"{digits}\"")
        } else {
            digits.to_owned()
        };
        RawValue::from_string(token).expect("digits and a dot are a JSON token")
    }
}
