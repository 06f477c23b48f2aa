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
use chassis::http;
use reqwest::{Client, Response, Url, header};
use url::Position;

use crate::{
    delivery::{AttemptOutcome, AttemptRun, AttemptVerdict},
    guard::Guard,
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

/// What the receiver answered, or why it did not.
type AttemptResult = Result<Response, String>;

impl Sender {
    /// `timeout` covers a whole attempt.
    pub fn new(guard: Guard, timeout: Duration) -> anyhow::Result<Self> {
        let client = http::client_builder(timeout)
            .connect_timeout(timeout)
            .user_agent(USER_AGENT)
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

    /// Sends the attempt's body. Any 2xx in time is success, whatever becomes of its body.
    pub async fn send(&self, url: &str, attempt: &AttemptRun, signature: String) -> AttemptOutcome {
        let response = match self.guard.check_url(url) {
            Ok(url) => self.post(url, attempt, signature).await,
            Err(refusal) => Err(format!("not sent: the URL {refusal}")),
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => return failed(error),
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
            error,
            duration: Duration::ZERO,
            response_excerpt: excerpt(&read_start(response).await),
        }
    }

    async fn post(&self, url: Url, attempt: &AttemptRun, signature: String) -> AttemptResult {
        let is_kept = self.kept.keeps(&url[..Position::BeforePath]);
        let mut request = self
            .client
            .post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("X-Service-Signature", signature)
            .header("X-Service-Event-Id", attempt.event_id.as_str())
            .header("X-Service-Delivery-Id", attempt.delivery_id.as_str())
            .header("X-Service-Attempt", attempt.attempts_count)
            .body(attempt.body.clone());
        if !is_kept {
            request = request.header(header::CONNECTION, "close");
        }
        request.send().await.map_err(|error| reason(&error))
    }
}

/// The outcome of an attempt without an answer.
pub fn failed(error: String) -> AttemptOutcome {
    AttemptOutcome {
        verdict: AttemptVerdict::Failed,
        http_status: None,
        error: Some(printable(&error, ERROR_BYTES_MAX)),
        duration: Duration::ZERO,
        response_excerpt: None,
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

/// Why a request failed, in a few words.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "timed out".to_owned();
    }
    let mut deepest: &dyn StdError = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    match deepest.downcast_ref::<io::Error>() {
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => deepest.to_string(),
    }
}
