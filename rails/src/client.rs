//! One HTTP exchange with a rail.
//!
//! Promise: [`SendError::NotSent`] is returned only if no byte of the request left us. A body is
//! trusted only if it is declared as JSON; it is read up to a limit and never logged.

use std::time::Duration;

use anyhow::ensure;
use chassis::{
    error_chain::chain,
    http::{ReadError, client_builder, read_body},
};
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tracing::Span;

/// Rails answer with a few hundred bytes; a body longer than this is not theirs.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// How long an idle connection is kept. Shorter than servers commonly keep theirs, because a
/// request on a connection that is just being closed has an unknown outcome.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Longest that any call may take.
pub const RAIL_CALL_MAX: Duration = Duration::from_secs(8);

/// A rail's address and the connections to it.
#[derive(Clone, Debug)]
pub struct RailClient {
    client: Client,
    /// Without a trailing slash.
    base: String,
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Nothing was sent: there was no connection, or no valid request.
    NotSent,
    /// It may have been sent, and the rail may have acted on it.
    Lost,
}

/// A rail's whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: StatusCode,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Empty,
    /// Declared as JSON, but not yet parsed.
    Json(Vec<u8>),
    /// Of another type (a firewall's HTML page), or too long.
    Untrusted,
}

impl RailClient {
    /// # Errors
    /// The address is not a plain HTTP address, or TLS cannot be set up.
    pub fn new(base: &Url) -> anyhow::Result<Self> {
        let client = client_builder(RAIL_CALL_MAX)
            .pool_idle_timeout(IDLE_MAX)
            .build()?;
        let base = plain_base(base)?;
        Ok(Self { client, base })
    }

    /// A request to `path`, which begins with a slash.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Sends once and reads the whole reply. Nothing here or below repeats a request once a byte
    /// of it was written: the connection pool takes another connection only for a request that it
    /// has not begun to write.
    pub async fn send(
        &self,
        request: RequestBuilder,
        deadline: Instant,
    ) -> Result<Reply, SendError> {
        let exchange = async {
            let response = request.send().await.map_err(not_sent_or_lost)?;
            read(response).await
        };
        let in_time = timeout_at(deadline, exchange).await;
        let reply = in_time.unwrap_or_else(|_| {
            tracing::warn!("the rail did not answer in time");
            Err(SendError::Lost)
        })?;
        // For whoever reads in the log what a rail refuses: a wrong key or an unlisted address, say.
        Span::current().record("http.response.status_code", reply.status.as_u16());
        Ok(reply)
    }
}

/// A base URL to append paths to, without a trailing slash.
///
/// # Errors
/// It is not http(s), or has a user, a query or a fragment.
pub fn plain_base(url: &Url) -> anyhow::Result<String> {
    let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    ensure!(
        is_http && is_plain,
        "an address must be http(s)://host[:port][/path]"
    );
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Whether a call may have this time limit: more than nothing and at most [`RAIL_CALL_MAX`].
pub fn is_call_timeout(timeout: Duration) -> bool {
    !timeout.is_zero() && timeout <= RAIL_CALL_MAX
}

/// A header that is never logged.
///
/// # Errors
/// The secret holds a character that no header can carry.
pub fn secret_header(value: &str) -> anyhow::Result<HeaderValue> {
    let mut header = HeaderValue::from_str(value)?;
    header.set_sensitive(true);
    Ok(header)
}

/// Building a request and connecting fail before the first byte is sent. Everything else may fail
/// after it, also on a reused connection.
fn not_sent_or_lost(error: reqwest::Error) -> SendError {
    let error = error.without_url();
    let class = if error.is_connect() || error.is_builder() {
        SendError::NotSent
    } else {
        SendError::Lost
    };
    let error: anyhow::Error = error.into();
    tracing::warn!(
        error = %chain(error.as_ref()),
        ?class,
        "no reply from the rail"
    );
    class
}

async fn read(response: Response) -> Result<Reply, SendError> {
    let status = response.status();
    let is_json = is_json(&response);
    let body = match read_body(response, BODY_BYTES_MAX).await {
        Ok(body) if body.is_empty() => Body::Empty,
        Ok(body) if is_json => Body::Json(body.into()),
        Ok(_) | Err(ReadError::TooLong(_)) => Body::Untrusted,
        Err(ReadError::Broken(error)) => return Err(not_sent_or_lost(error)),
    };
    Ok(Reply { status, body })
}

/// `application/json`, or a type built on it; parameters do not matter.
fn is_json(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|text| text.split(';').next());
    let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

impl Reply {
    #[cfg(test)]
    pub fn json(status: u16, body: &str) -> Self {
        let body = Body::Json(body.as_bytes().to_vec());
        Self::new(status, body)
    }

    #[cfg(test)]
    pub fn empty(status: u16) -> Self {
        Self::new(status, Body::Empty)
    }

    #[cfg(test)]
    pub fn html(status: u16) -> Self {
        Self::new(status, Body::Untrusted)
    }

    #[cfg(test)]
    fn new(status: u16, body: Body) -> Self {
        let status = StatusCode::from_u16(status).expect("a status");
        Self { status, body }
    }

    /// The body's JSON object; `None` if there is none that can be trusted.
    pub fn object<T: DeserializeOwned>(&self) -> Option<T> {
        let Body::Json(body) = &self.body else {
            return None;
        };
        let is_object = body.trim_ascii_start().starts_with(b"{");
        is_object
            .then(|| serde_json::from_slice(body).ok())
            .flatten()
    }

    /// Whether the rail itself answered, as far as one can tell: with JSON or with nothing.
    pub fn is_trusted(&self) -> bool {
        match &self.body {
            Body::Empty => true,
            Body::Json(body) => serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok(),
            Body::Untrusted => false,
        }
    }

    /// Whether the rail refused our credentials, and so did nothing.
    pub fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED && self.is_trusted()
    }

    /// For operators: the status, and `words` if the body can be trusted.
    pub fn describe(&self, words: &str) -> Option<String> {
        let status = self.status.as_u16();
        let words = match &self.body {
            Body::Untrusted => "not JSON",
            Body::Empty | Body::Json(_) => words,
        };
        Some(format!("HTTP {status} {words}").trim_end().to_owned())
    }
}
