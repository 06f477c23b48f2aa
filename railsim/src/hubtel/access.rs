//! What all of Hubtel's calls have in common: who may call, refusals, and the parts of a request.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    extract::{ConnectInfo, FromRequestParts},
    response::{Html, IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::{
    money::{Currency, Money},
    phone::Phone,
};
use http::{HeaderMap, StatusCode, request::Parts};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use url::Url;

use crate::{journal::JournalLost, networks::Networks, request::Network, wire};

use super::body::Code;

const REFERENCE_CHARACTERS_MAX: usize = 36;

/// Digits of a number with its country code.
const MSISDN_DIGITS: usize = 12;

/// A request that is not executed.
pub enum HubtelError {
    /// 403, from what stands in front of the API.
    NotListed,
    /// 429, from there too.
    Busy,
    /// A code and a message, with this HTTP status.
    Refused(StatusCode, Code, String),
    /// No answer: the connection is cut.
    Cut,
}

impl HubtelError {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Refused(StatusCode::BAD_REQUEST, Code::Invalid, message.into())
    }

    pub fn repeated() -> Self {
        Self::invalid("ClientReference was used before")
    }

    pub fn refused(status: StatusCode, code: Code) -> Self {
        Self::Refused(status, code, code.message().to_owned())
    }
}

impl From<JournalLost> for HubtelError {
    fn from(_: JournalLost) -> Self {
        Self::Cut
    }
}

impl IntoResponse for HubtelError {
    fn into_response(self) -> Response {
        let page = |title| Html(format!("<html><body><h1>{title}</h1></body></html>"));
        match self {
            Self::NotListed => (StatusCode::FORBIDDEN, page("403 Forbidden")).into_response(),
            Self::Busy => {
                let page = page("429 Too Many Requests");
                (StatusCode::TOO_MANY_REQUESTS, page).into_response()
            }
            Self::Refused(status, code, message) => {
                let body = json!({"Message": message, "ResponseCode": code.digits(), "Data": null});
                (status, Json(body)).into_response()
            }
            Self::Cut => wire::cut(),
        }
    }
}

/// Proof that a call came from a listed address, with the API id and its key.
pub struct Client;

impl FromRequestParts<Arc<Networks>> for Client {
    type Rejection = HubtelError;

    async fn from_request_parts(
        parts: &mut Parts,
        networks: &Arc<Networks>,
    ) -> Result<Self, HubtelError> {
        let account = &networks.config.accounts.hubtel;
        let listed = &account.hubtel_allowed_addresses;
        let caller = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let caller = caller.map(|ConnectInfo(peer)| peer.ip().to_canonical());
        let is_listed = listed
            .iter()
            .any(|listed| Some(listed.to_canonical()) == caller);
        if !listed.is_empty() && !is_listed {
            return Err(HubtelError::NotListed);
        }
        let expected = format!("{}:{}", account.hubtel_api_id, account.hubtel_api_key);
        let given = wire::credentials(&parts.headers, "Basic")
            .and_then(|encoded| BASE64_STANDARD.decode(encoded).ok());
        if given.as_deref() != Some(expected.as_bytes()) {
            let status = StatusCode::UNAUTHORIZED;
            return Err(HubtelError::refused(status, Code::NotAuthorized));
        }
        Ok(Self)
    }
}

/// Refuses a path with another account than ours.
pub fn check_account(ours: &str, given: &str) -> Result<(), HubtelError> {
    if given == ours {
        return Ok(());
    }
    let status = StatusCode::BAD_REQUEST;
    Err(HubtelError::refused(status, Code::NotAuthorized))
}

pub fn parse<'b, T: Deserialize<'b>>(
    headers: &HeaderMap,
    body: &'b Bytes,
) -> Result<T, HubtelError> {
    if wire::media_type(headers) != "application/json" {
        return Err(HubtelError::invalid(
            "Content-Type must be application/json",
        ));
    }
    serde_json::from_slice(body).map_err(|error| HubtelError::invalid(error.to_string()))
}

/// What requests of both directions have in common.
pub struct Asked<'b> {
    pub msisdn: &'b str,
    pub channel: &'b str,
    pub amount: &'b RawValue,
    pub callback_url: &'b str,
    pub description: &'b str,
    pub reference: &'b str,
}

/// The same in our terms.
pub struct Checked {
    pub network: Network,
    /// In E.164 form.
    pub phone: String,
    pub amount_minor: i64,
}

impl Asked<'_> {
    pub fn check(&self) -> Result<Checked, HubtelError> {
        let (network, phone) = wallet(self.msisdn, self.channel)?;
        let wants = "Amount must be a positive number with at most two decimals";
        let amount_minor = amount(self.amount).ok_or_else(|| HubtelError::invalid(wants))?;
        let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
        if !Url::parse(self.callback_url).is_ok_and(|url| is_web(&url)) {
            return Err(HubtelError::invalid("PrimaryCallbackUrl must be an URL"));
        }
        let is_empty = self.description.trim().is_empty();
        if is_empty || self.description.contains(['&', '%', '^']) {
            let wants = "Description is required, without & % ^";
            return Err(HubtelError::invalid(wants));
        }
        let length = self.reference.len();
        let is_plain = self.reference.bytes().all(|b| b.is_ascii_alphanumeric());
        if !(1..=REFERENCE_CHARACTERS_MAX).contains(&length) || !is_plain {
            let wants = "ClientReference must have 1 to 36 letters and digits";
            return Err(HubtelError::invalid(wants));
        }
        Ok(Checked {
            network,
            phone,
            amount_minor,
        })
    }
}

/// A wallet's network, and its number in E.164 form. Hubtel takes the number with the country code
/// and without a plus.
pub fn wallet(msisdn: &str, channel: &str) -> Result<(Network, String), HubtelError> {
    let network = match channel {
        "mtn-gh" => Network::Mtn,
        "vodafone-gh" => Network::Telecel,
        "tigo-gh" => Network::At,
        _ => return Err(HubtelError::invalid("Channel is unknown")),
    };
    let is_international = msisdn.len() == MSISDN_DIGITS
        && msisdn.starts_with("233")
        && msisdn.bytes().all(|byte| byte.is_ascii_digit());
    let phone = Phone::parse_ghana_mobile(msisdn).ok();
    let phone = phone.filter(|_| is_international);
    let phone = phone.ok_or_else(|| HubtelError::invalid("The number must begin with 233"))?;
    Ok((network, phone.as_e164().to_owned()))
}

fn amount(token: &RawValue) -> Option<i64> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let token = token.get();
    let major: Decimal = token.parse().ok().filter(|_| token.bytes().all(plain))?;
    let has_cents = major.scale() <= Currency::GHS.exponent();
    let money = Money::from_major(major, Currency::GHS).ok();
    let money = money.filter(|money| has_cents && money.is_positive());
    money.map(Money::minor_units)
}
