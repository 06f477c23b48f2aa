//! One event, sent to a developer's machine as a webhook would be (spec §6).

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chassis::{clock::Clock, http, ids::DeliveryId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::{Client, Response, StatusCode, Url, header::CONTENT_TYPE};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

use crate::services::Failure;

/// Longest wait for the receiver's answer (spec §6.2).
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Most of a refusal's body that is read, and shown.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;
const REFUSAL_CHARACTERS_MAX: usize = 200;

/// Bytes of a secret, as of a webhook endpoint's.
const SECRET_BYTES: usize = 32;

/// Sends events to one address, signed with one secret.
pub struct Forwarder {
    client: Client,
    to: Url,
    secret: SecretString,
    clock: Clock,
}

/// What became of an attempt.
#[derive(Debug)]
pub enum Attempt {
    Answered {
        status: StatusCode,
        took: Duration,
        /// The beginning of what a refusal says, in one line; empty if it says nothing.
        refusal: String,
    },
    /// There was a connection, and no answer.
    Silent(String),
    /// Nobody listens, so the receiver knows nothing of it.
    Unreachable(String),
}

impl Attempt {
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Answered { status, .. } if status.is_success())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered {
                status,
                took,
                refusal,
            } => {
                write!(f, "{} in {} ms", status.as_u16(), took.as_millis())?;
                match refusal.is_empty() {
                    true => Ok(()),
                    false => write!(f, ": {refusal}"),
                }
            }
            Self::Silent(why) => write!(f, "no answer: {why}"),
            Self::Unreachable(why) => write!(f, "not reachable: {why}"),
        }
    }
}

/// A new secret: `whsec_` and base64. The whole text keys the HMAC.
pub fn new_secret() -> SecretString {
    let mut bytes = [0_u8; SECRET_BYTES];
    rand::fill(&mut bytes);
    format!("whsec_{}", STANDARD.encode(bytes)).into()
}

impl Forwarder {
    pub fn new(to: Url, secret: SecretString) -> Result<Self, Failure> {
        let client = http::client_builder(ANSWER_MAX)
            .user_agent(concat!(
                "PaymentService-Webhooks/",
                env!("CARGO_PKG_VERSION")
            ))
            .build()
            .context("the HTTP client cannot be made")?;
        Ok(Self {
            client,
            to,
            secret,
            clock: Clock::system(),
        })
    }

    /// Makes one attempt to deliver this body, with the headers of a webhook.
    pub async fn send(
        &self,
        event_id: &str,
        delivery_id: &DeliveryId,
        number: u32,
        body: &str,
    ) -> Attempt {
        let unix_seconds = self.clock.host_now().unix_seconds();
        let began = Instant::now();
        let sent = self
            .client
            .post(self.to.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("X-Service-Signature", self.signature(unix_seconds, body))
            .header("X-Service-Event-Id", event_id)
            .header("X-Service-Delivery-Id", delivery_id.as_str())
            .header("X-Service-Attempt", number)
            .body(body.to_owned())
            .send()
            .await;
        match sent {
            Ok(answer) => Attempt::Answered {
                status: answer.status(),
                took: began.elapsed(),
                refusal: refusal(answer).await,
            },
            Err(error) if error.is_connect() => Attempt::Unreachable(cause(&error)),
            Err(error) => Attempt::Silent(cause(&error)),
        }
    }

    /// The value of `X-Service-Signature` (spec §6.3).
    fn signature(&self, unix_seconds: i64, body: &str) -> String {
        let key = self.secret.expose_secret().as_bytes();
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(format!("{unix_seconds}.{body}").as_bytes());
        let signature = hex::encode(mac.finalize().into_bytes());
        format!("t={unix_seconds},v1={signature}")
    }
}

/// What an answer says, if it is not 2xx, as far as it came in time.
async fn refusal(mut answer: Response) -> String {
    let mut body = Vec::new();
    if answer.status().is_success() {
        return String::new();
    }
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    let body = String::from_utf8_lossy(body.get(..REFUSAL_BYTES_MAX).unwrap_or(&body));
    // A terminal would obey control characters.
    let words = body.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words
        .join(" ")
        .chars()
        .take(REFUSAL_CHARACTERS_MAX)
        .collect()
}

/// The deepest cause, which is what a person can do something about.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "timed out".to_owned();
    }
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
