//! What MTN's products have in common: tokens, headers, refusals and the parts of their bodies.

use axum::{
    body::Bytes,
    response::{Html, IntoResponse, Response},
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

use crate::{journal::JournalLost, networks::Networks, wire};

use super::{
    body::Party,
    settings::{MomoSettings, Product},
};

const TOKEN_LIFETIME_S: u64 = 3_600;

/// The tighter of the two published limits.
const TEXT_CHARACTERS_MAX: usize = 128;

/// The answer of the firewall in front of the network to a form.
const REQUEST_REJECTED: &str = "<html><head><title>Request Rejected</title></head><body>\
    The requested URL was rejected. Please consult with your administrator.</body></html>";

/// `{code, message}` with its HTTP status.
pub enum MomoError {
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

/// Answers a request for a token of one product.
pub fn token(
    networks: &Networks,
    product: Product<'_>,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, MomoError> {
    if wire::media_type(headers) == "application/x-www-form-urlencoded" {
        return Ok(Html(REQUEST_REJECTED).into_response());
    }
    check_subscription(product, headers)?;
    let expected = format!("{}:{}", product.api_user, product.api_key);
    let given = wire::credentials(headers, "Basic")
        .and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
    if given.as_deref() != Some(expected.as_bytes()) {
        return Err(MomoError::Unauthorized(
            "Access denied: API user or API key is wrong.",
        ));
    }
    let grant: Grant = parse(headers, body)?;
    if grant.grant_type != "client_credentials" {
        return Err(invalid("grant_type must be client_credentials"));
    }
    let expires_at = networks.clock.now() + std::time::Duration::from_secs(TOKEN_LIFETIME_S);
    let answer = serde_json::json!({
        "access_token": mint(product, expires_at),
        "token_type": "access_token",
        "expires_in": TOKEN_LIFETIME_S,
    });
    Ok(axum::Json(answer).into_response())
}

/// A token contains its expiry and a MAC over it, so it survives a restart of the network. One
/// product's token is none of the other's.
fn mint(product: Product<'_>, expires_at: Timestamp) -> String {
    let expires_at = expires_at.unix_millis();
    let mut mac = Hmac::<Sha256>::new_from_slice(product.api_key.as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(format!("{} {expires_at}", product.name).as_bytes());
    format!("{expires_at}.{}", hex::encode(mac.finalize().into_bytes()))
}

fn check_subscription(product: Product<'_>, headers: &HeaderMap) -> Result<(), MomoError> {
    match wire::header(headers, "Ocp-Apim-Subscription-Key") {
        Some(key) if key == product.subscription_key => Ok(()),
        Some(_) => Err(MomoError::Unauthorized(
            "Access denied due to invalid subscription key.",
        )),
        None => Err(MomoError::Unauthorized(
            "Access denied due to missing subscription key.",
        )),
    }
}

/// Checks what every call but that for a token must carry.
pub fn check_access(
    networks: &Networks,
    product: Product<'_>,
    headers: &HeaderMap,
) -> Result<(), MomoError> {
    let account = &networks.config.accounts.momo;
    check_subscription(product, headers)?;
    let token = wire::credentials(headers, "Bearer")
        .ok_or(MomoError::Unauthorized("Access denied: no bearer token."))?;
    let expires_at = token
        .split_once('.')
        .and_then(|(millis, _)| Timestamp::from_unix_millis(millis.parse().ok()?).ok())
        .filter(|expires_at| mint(product, *expires_at) == token)
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

pub fn invalid(message: &str) -> MomoError {
    MomoError::Invalid("VALIDATION_ERROR", message.to_owned())
}

pub fn parse<'b, T: Deserialize<'b>>(headers: &HeaderMap, body: &'b Bytes) -> Result<T, MomoError> {
    if body.is_empty() {
        return Err(MomoError::NoBody);
    }
    if wire::media_type(headers) != "application/json" {
        return Err(invalid("Content-Type must be application/json"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(&error.to_string()))
}

/// Accepts only a version 4 UUID with its dashes, as this network does.
pub fn reference_id(text: &str) -> Result<String, MomoError> {
    let parsed = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
    match parsed.filter(|uuid| uuid.get_version() == Some(Version::Random)) {
        Some(uuid) => Ok(uuid.hyphenated().to_string()),
        None => Err(invalid("X-Reference-Id must be a version 4 UUID")),
    }
}

pub fn callback_url(
    account: &MomoSettings,
    headers: &HeaderMap,
) -> Result<Option<String>, MomoError> {
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

/// A wallet's number: with its country code and without a plus.
pub fn phone(party: &Party, role: &str) -> Result<String, MomoError> {
    let digits = &party.party_id;
    let is_number = (8..=15).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0');
    if party.party_id_type != "MSISDN" || !is_number {
        return Err(invalid(&format!(
            "{role} must be an MSISDN with its country code and without a plus"
        )));
    }
    Ok(format!("+{digits}"))
}

/// The texts of a request are short and plain.
pub fn check_texts(texts: [(&str, &str); 2]) -> Result<(), MomoError> {
    for (name, text) in texts {
        if text.chars().count() > TEXT_CHARACTERS_MAX || !text.chars().all(is_allowed) {
            return Err(invalid(&format!(
                "{name} is too long or has special characters"
            )));
        }
    }
    Ok(())
}

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, ' ' | '.' | '-')
}

pub fn amount(text: &str, currency: Currency) -> Option<Money> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let major: Decimal = text.parse().ok().filter(|_| plain)?;
    Money::from_major(major, currency)
        .ok()
        .filter(|money| money.is_positive())
}
