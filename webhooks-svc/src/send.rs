//! One attempt on the wire: a POST that does not rely on the receiver's good will.
//!
//! One timeout for all of it, whatever the receiver does; no redirect, proxy, cookie or
//! decompression; at most about [`BODY_BYTES_READ`] bytes of the answer's body are read.
//!
//! Connections are kept for the next attempt, for a moment. A request that finds its kept connection
//! closed before a byte of it was written goes out on a new one; one that may have arrived is not sent
//! again.

use std::{error::Error as StdError, io, sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    http,
    ids::{DeliveryId, EventId},
};
use reqwest::{Client, Response, Url, header};
use url::Position;

use crate::{
    delivery::{AttemptOutcome, AttemptVerdict, Cause, Sent},
    guard::{Guard, ResolveError},
    kept_hosts::{IDLE_MAX, KeptHosts},
};

/// How much of an answer's body is read, so that it can end.
const BODY_BYTES_READ: usize = 16 * 1_024;

/// At most this much of an answer's body is kept.
const EXCERPT_BYTES_MAX: usize = 1_024;

/// Longest reason that is kept.
const ERROR_BYTES_MAX: usize = 200;

const USER_AGENT: &str = concat!("PaymentService-Webhooks/", env!("CARGO_PKG_VERSION"));

/// Most idle connections to one host: many endpoints may share it.
const IDLE_PER_HOST_MAX: usize = 32;

/// Sends attempts.
#[derive(Clone, Debug)]
pub struct Sender {
    client: Client,
    guard: Guard,
    kept: Arc<KeptHosts>,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub event_id: &'a EventId,
    pub delivery_id: &'a DeliveryId,
    /// Number of the attempt, from 1.
    pub attempt: i64,
    pub body: &'a str,
    /// The value of its header.
    pub signature: &'a str,
}

impl Message<'_> {
    /// The headers that are not the HTTP client's own.
    pub fn headers(&self) -> [(&'static str, String); 6] {
        [
            ("Content-Type", "application/json".to_owned()),
            ("User-Agent", USER_AGENT.to_owned()),
            ("X-Service-Signature", self.signature.to_owned()),
            ("X-Service-Event-Id", self.event_id.to_string()),
            ("X-Service-Delivery-Id", self.delivery_id.to_string()),
            ("X-Service-Attempt", self.attempt.to_string()),
        ]
    }
}

/// The headers as they arrive, with those of the HTTP client. Without a signature if there is none,
/// and without a host if it is not known where it goes.
pub fn shown_headers(url: Option<&str>, message: &Message<'_>) -> Vec<(&'static str, String)> {
    let url = url.and_then(|url| Url::parse(url).ok());
    let host = url.map(|url| url[Position::BeforeHost..Position::AfterPort].to_owned());
    let ours = message.headers().into_iter();
    let known = ours.filter(|(_, value)| !value.is_empty());
    let mut headers: Vec<_> = host.map(|host| ("Host", host)).into_iter().collect();
    headers.extend(known);
    headers.push(("Accept", "*/*".to_owned()));
    headers.push(("Content-Length", message.body.len().to_string()));
    headers
}

/// What the receiver answered, or why it did not.
type AttemptResult = Result<Response, (Cause, String)>;

impl Sender {
    /// `timeout` covers a whole attempt.
    pub fn new(guard: Guard, timeout: Duration) -> anyhow::Result<Self> {
        let client = http::client_builder(timeout)
            .connect_timeout(timeout)
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .dns_resolver(guard.clone())
            .build()
            .context("the HTTP client cannot be made")?;
        let kept = Arc::default();
        Ok(Self {
            client,
            guard,
            kept,
        })
    }

    /// Sends it. Any 2xx in time is success, whatever becomes of the answer's body.
    pub async fn send(&self, url: &str, message: &Message<'_>) -> AttemptOutcome {
        let sent = Sent {
            url: url.to_owned(),
            signature: message.signature.to_owned(),
        };
        let response = match self.guard.check_url(url) {
            Ok(url) => self.post(url, message).await,
            Err(refusal) => {
                return failed(Cause::Address, &format!("not sent: the URL {refusal}"));
            }
        };
        let response = match response {
            Ok(response) => response,
            Err((cause, error)) => {
                return AttemptOutcome {
                    sent: Some(sent),
                    ..failed(cause, &error)
                };
            }
        };
        let status = response.status();
        let (verdict, error) = if status.is_success() {
            (AttemptVerdict::Succeeded, None)
        } else {
            (
                AttemptVerdict::Failed,
                Some(format!("answered {}", status.as_u16())),
            )
        };
        AttemptOutcome {
            verdict,
            http_status: Some(status.as_u16()),
            cause: error.is_some().then_some(Cause::Status),
            error,
            duration: Duration::ZERO,
            response_excerpt: excerpt(&read_start(response).await),
            sent: Some(sent),
        }
    }

    async fn post(&self, url: Url, message: &Message<'_>) -> AttemptResult {
        let is_kept = self.kept.keeps(&url[..Position::BeforePath]);
        let mut request = self.client.post(url).body(message.body.to_owned());
        for (name, value) in message.headers() {
            request = request.header(name, value);
        }
        if !is_kept {
            request = request.header(header::CONNECTION, "close");
        }
        request.send().await.map_err(|error| failure(&error))
    }
}

/// The outcome of an attempt without an answer.
pub fn failed(cause: Cause, error: &str) -> AttemptOutcome {
    AttemptOutcome {
        verdict: AttemptVerdict::Failed,
        http_status: None,
        error: Some(printable(error, ERROR_BYTES_MAX)),
        cause: Some(cause),
        duration: Duration::ZERO,
        response_excerpt: None,
        sent: None,
    }
}

/// Reads a body until its end, our limit, a failure or the deadline.
async fn read_start(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < BODY_BYTES_READ
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body
}

fn excerpt(body: &[u8]) -> Option<String> {
    let start = body.get(..EXCERPT_BYTES_MAX).unwrap_or(body);
    let text = printable(&String::from_utf8_lossy(start), EXCERPT_BYTES_MAX);
    (!text.is_empty()).then_some(text)
}

/// Cuts at a character's end and drops control characters, except line breaks and tabs: neither
/// databases nor terminals want them.
fn printable(text: &str, bytes_max: usize) -> String {
    let is_plain = |c: &char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    let mut bytes = 0;
    let fits = |c: &char| {
        bytes += c.len_utf8();
        bytes <= bytes_max
    };
    text.chars().filter(is_plain).take_while(fits).collect()
}

/// Why a request failed, also in a few words.
fn failure(error: &reqwest::Error) -> (Cause, String) {
    if error.is_timeout() {
        return (Cause::Timeout, "timed out".to_owned());
    }
    let mut cause = Cause::Connection;
    let mut deepest: &dyn StdError = error;
    while let Some(inner) = inner(deepest) {
        deepest = inner;
        cause = told_by(deepest).unwrap_or(cause);
    }
    let text = match deepest.downcast_ref::<io::Error>() {
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => deepest.to_string(),
    };
    (cause, text)
}

/// What an error wraps. An I/O error names as its source only what its own content wraps.
fn inner<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    let wrapped = error.downcast_ref::<io::Error>();
    match wrapped.and_then(io::Error::get_ref) {
        Some(content) => Some(content),
        None => error.source(),
    }
}

fn told_by(error: &(dyn StdError + 'static)) -> Option<Cause> {
    if let Some(error) = error.downcast_ref::<ResolveError>() {
        return Some(match error {
            ResolveError::Unknown(_) => Cause::Dns,
            ResolveError::NotPublic => Cause::Address,
        });
    }
    if error.is::<rustls::Error>() {
        return Some(Cause::Tls);
    }
    let error = error.downcast_ref::<io::Error>()?;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Cause::Refused),
        // The other end hung up on the handshake.
        io::ErrorKind::UnexpectedEof if error.to_string().starts_with("tls ") => Some(Cause::Tls),
        _ => None,
    }
}
