//! One HTTP exchange with a rail.
//!
//! Promise: [`SendError::NotSent`] is returned only where no byte of the request left us. A body is
//! believed only if the rail says that it is JSON; it is read up to a limit and never logged.

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

/// Rails answer with a few hundred bytes; more than this is not an answer of theirs.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// How long an idle connection is kept. Shorter than servers commonly keep theirs, because a request
/// that meets a connection at its end has an unknown outcome.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Longest that any call may take (design: "the rail, 8 s at most").
pub const RAIL_CALL_MAX: Duration = Duration::from_secs(8);

/// A rail's address and the connections to it.
#[derive(Clone, Debug)]
pub struct RailClient {
    client: Client,
    /// Without a slash at its end.
    base: String,
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No connection was had: nothing was sent.
    NotSent,
    /// It may have been sent, and may have been done.
    Lost,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: StatusCode,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Empty,
    /// Declared as JSON. Whether it is shows when it is read.
    Json(Vec<u8>),
    /// Of another type (a firewall's HTML page), or too long.
    Untrusted,
}

impl RailClient {
    /// # Errors
    /// The address is no plain HTTP address, or TLS cannot be set up.
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

    /// Sends once and reads the whole reply. Nothing here or below repeats a request of which a
    /// byte was written: the connection pool takes another connection only for one that it has not
    /// begun to write.
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
        in_time.unwrap_or_else(|_| {
            tracing::warn!("the rail did not answer in time");
            Err(SendError::Lost)
        })
    }
}

/// An address that paths can be put behind.
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

/// Whether a call may be allowed to take so long.
pub fn is_call_timeout(timeout: Duration) -> bool {
    !timeout.is_zero() && timeout <= RAIL_CALL_MAX
}

/// A header that is shown nowhere.
///
/// # Errors
/// The secret holds a character that no header can carry.
pub fn secret_header(value: &str) -> anyhow::Result<HeaderValue> {
    let mut header = HeaderValue::from_str(value)?;
    header.set_sensitive(true);
    Ok(header)
}

/// An error of the connector, or of a request that could not even be made, comes before the first
/// byte. Everything else may come after it, also on a connection that was kept.
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

    /// The JSON object of the body. `None`: there is none that can be trusted.
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

    /// The rail does not know us, or no longer: it did nothing.
    pub fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED && self.is_trusted()
    }

    /// For operators: the status, and what the rail added in words.
    pub fn describe(&self, words: &str) -> Option<String> {
        let status = self.status.as_u16();
        let words = match &self.body {
            Body::Untrusted => "not JSON",
            Body::Empty | Body::Json(_) => words,
        };
        Some(format!("HTTP {status} {words}").trim_end().to_owned())
    }
}
