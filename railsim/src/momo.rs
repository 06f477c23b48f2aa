//! The MTN MoMo Open API, collection (rails §4.1), as strict as the real one.
//!
//! Where the published contract leaves room (the shape of `reason`, numbers or strings, PUT or
//! POST), the reference decides, so that a client meets every variant.

pub mod body;
pub mod settings;

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
use serde::Deserialize;
use sha2::Sha256;
use url::Url;
use uuid::{Uuid, Version};

use crate::{
    journal::JournalLost,
    networks::{Intake, Networks},
    payment::{self, Payment},
    rail::{Details, Rail},
    request::{Network, PaymentRequest},
    story::Story,
    wire,
};

use body::{Payer, StatusBody};
use settings::MomoSettings;

const TOKEN_LIFETIME_S: u64 = 3_600;

/// The tighter of the two published limits.
const TEXT_CHARACTERS_MAX: usize = 128;

/// The answer of the firewall in front of the network to a form.
const REQUEST_REJECTED: &str = "<html><head><title>Request Rejected</title></head><body>\
    The requested URL was rejected. Please consult with your administrator.</body></html>";

pub fn routes() -> Router<Arc<Networks>> {
    Router::new()
        .route("/collection/token/", post(token))
        .route("/collection/v1_0/requesttopay", post(request_to_pay))
        .route("/collection/v1_0/requesttopay/{reference}", get(status))
}

/// `{code, message}` with its HTTP status.
enum MomoError {
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
    /// 500, which is how this network reports a client's mistake.
    Configuration(&'static str),
    /// 503
    Unavailable,
    /// No answer: the connection is cut.
    Cut,
}

impl From<JournalLost> for MomoError {
    fn from(_: JournalLost) -> Self {
        Self::Cut
    }
}

impl IntoResponse for MomoError {
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
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, MomoError> {
    if wire::media_type(&headers) == "application/x-www-form-urlencoded" {
        return Ok(Html(REQUEST_REJECTED).into_response());
    }
    let account = &networks.config.accounts.momo;
    check_subscription(account, &headers)?;
    let expected = format!("{}:{}", account.momo_api_user, account.momo_api_key);
    let given = wire::credentials(&headers, "Basic")
        .and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
    if given.as_deref() != Some(expected.as_bytes()) {
        return Err(MomoError::Unauthorized(
            "Access denied: API user or API key is wrong.",
        ));
    }
    let grant: Grant = parse(&headers, &body)?;
    if grant.grant_type != "client_credentials" {
        return Err(invalid("grant_type must be client_credentials"));
    }
    let expires_at = networks.clock.now() + std::time::Duration::from_secs(TOKEN_LIFETIME_S);
    let answer = serde_json::json!({
        "access_token": mint(account, expires_at),
        "token_type": "access_token",
        "expires_in": TOKEN_LIFETIME_S,
    });
    Ok(axum::Json(answer).into_response())
}

/// A token contains its expiry and a MAC over it, so it survives a restart of the network.
fn mint(account: &MomoSettings, expires_at: Timestamp) -> String {
    let expires_at = expires_at.unix_millis();
    let mut mac = Hmac::<Sha256>::new_from_slice(account.momo_api_key.as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(format!("collection {expires_at}").as_bytes());
    format!("{expires_at}.{}", hex::encode(mac.finalize().into_bytes()))
}

fn check_subscription(account: &MomoSettings, headers: &HeaderMap) -> Result<(), MomoError> {
    match wire::header(headers, "Ocp-Apim-Subscription-Key") {
        Some(key) if key == account.momo_subscription_key => Ok(()),
        Some(_) => Err(MomoError::Unauthorized(
            "Access denied due to invalid subscription key.",
        )),
        None => Err(MomoError::Unauthorized(
            "Access denied due to missing subscription key.",
        )),
    }
}

/// Checks what both payment calls must carry.
fn check_access(networks: &Networks, headers: &HeaderMap) -> Result<(), MomoError> {
    let account = &networks.config.accounts.momo;
    check_subscription(account, headers)?;
    let token = wire::credentials(headers, "Bearer")
        .ok_or(MomoError::Unauthorized("Access denied: no bearer token."))?;
    let expires_at = token
        .split_once('.')
        .and_then(|(millis, _)| Timestamp::from_unix_millis(millis.parse().ok()?).ok())
        .filter(|expires_at| mint(account, *expires_at) == token)
        .filter(|expires_at| networks.clock.now() < *expires_at);
    if expires_at.is_none() {
        return Err(MomoError::Unauthorized(
            "Access denied: the token is invalid or has expired.",
        ));
    }
    match wire::header(headers, "X-Target-Environment") {
        Some(environment) if environment == account.momo_target_environment => Ok(()),
        Some(_) => Err(MomoError::Configuration("NOT_ALLOWED_TARGET_ENVIRONMENT")),
        None => Err(invalid("X-Target-Environment is missing")),
    }
}

fn invalid(message: &str) -> MomoError {
    MomoError::Invalid("VALIDATION_ERROR", message.to_owned())
}

fn parse<'b, T: Deserialize<'b>>(headers: &HeaderMap, body: &'b Bytes) -> Result<T, MomoError> {
    if body.is_empty() {
        return Err(MomoError::NoBody);
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

async fn request_to_pay(
    State(networks): State<Arc<Networks>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, MomoError> {
    if body.is_empty() {
        return Err(MomoError::NoBody);
    }
    check_access(&networks, &headers)?;
    let account = &networks.config.accounts.momo;
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

/// Accepts only a version 4 UUID with its dashes, as this network does.
fn reference_id(text: &str) -> Result<String, MomoError> {
    let parsed = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
    match parsed.filter(|uuid| uuid.get_version() == Some(Version::Random)) {
        Some(uuid) => Ok(uuid.hyphenated().to_string()),
        None => Err(invalid("X-Reference-Id must be a version 4 UUID")),
    }
}

fn callback_url(account: &MomoSettings, headers: &HeaderMap) -> Result<Option<String>, MomoError> {
    if !headers.contains_key("X-Callback-Url") {
        return Ok(None);
    }
    let url = wire::header(headers, "X-Callback-Url")
        .and_then(|text| Url::parse(text).ok())
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or_else(|| invalid("X-Callback-Url must be an absolute URL"))?;
    let expected = account.momo_callback_host.as_deref();
    if expected.is_some_and(|expected| url.host_str() != Some(expected)) {
        return Err(MomoError::Configuration("INVALID_CALLBACK_URL_HOST"));
    }
    Ok(Some(url.into()))
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
    Ok(PaymentRequest {
        rail: Rail::Momo,
        reference,
        network: Network::Mtn,
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
    State(networks): State<Arc<Networks>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Response, MomoError> {
    check_access(&networks, &headers)?;
    let reference = reference_id(&reference)?;
    match networks.query(Rail::Momo, &reference).await? {
        Some(payment) => Ok(axum::Json(StatusBody::of(&payment)).into_response()),
        None => Err(MomoError::Unknown),
    }
}
