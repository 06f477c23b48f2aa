//! The merchants' API, called over HTTP with a merchant's key.

use std::time::Duration;

use anyhow::{Context as _, Error, anyhow, ensure};
use chassis::{api_key::ApiKey, http};
use reqwest::{Client, RequestBuilder, StatusCode, header::RETRY_AFTER};
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

/// Longest answer: a page of a hundred events is far below.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// When to try again if the API does not say.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct MerchantApi {
    client: Client,
    url: String,
    pub key: ApiKey,
}

/// Why there is no usable answer.
#[derive(Debug)]
pub struct Unanswered {
    pub why: Error,
    /// When it makes sense to ask again. `None` if it makes none.
    pub again_after: Option<Duration>,
}

impl MerchantApi {
    pub fn new(url: &str, key: ApiKey, answer_max: Duration) -> Result<Self, Error> {
        let is_safe = key.is_test() || url.starts_with("https://") || is_on_this_machine(url);
        ensure!(
            is_safe,
            "a live key is sent over https alone, and not to {url}"
        );
        Ok(Self {
            client: http::client(answer_max)?,
            url: url.trim_end_matches('/').to_owned(),
            key,
        })
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Unanswered> {
        let url = format!("{}{path}", self.url);
        self.send(self.client.get(url)).await
    }

    /// Posts under a new Idempotency-Key.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Unanswered> {
        let url = format!("{}{path}", self.url);
        let request = self.client.post(url).json(body);
        let key = Uuid::new_v4().to_string();
        self.send(request.header("Idempotency-Key", key)).await
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Unanswered> {
        let later = |why: Error| Unanswered {
            why: why.context(format!("the API at {} does not answer", self.url)),
            again_after: Some(AGAIN_AFTER),
        };
        let sent = request.bearer_auth(self.key.expose()).send().await;
        let answer = sent.map_err(|error| later(error.into()))?;
        let status = answer.status();
        let retry_after = answer.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let body = http::read_body(answer, ANSWER_BYTES_MAX).await;
        let body = body.map_err(|error| later(error.into()))?;
        if status.is_success() {
            let read = serde_json::from_slice(&body).context("the API's answer cannot be read");
            return read.map_err(|why| Unanswered {
                why,
                again_after: None,
            });
        }
        let may_pass = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let again_after = retry_after.map_or(AGAIN_AFTER, Duration::from_secs);
        Err(Unanswered {
            why: refusal(status, &body),
            again_after: may_pass.then_some(again_after),
        })
    }
}

fn is_on_this_machine(url: &str) -> bool {
    let url = reqwest::Url::parse(url).ok();
    let host = url.as_ref().and_then(reqwest::Url::host_str);
    host.is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"))
}

/// An error's answer in words: its code, the fields at fault, and what it says to people. A charge
/// that was refused outright is one with its message.
fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = |name: &str| body[name].as_str();
    let fields = body["fields"].as_array().into_iter().flatten();
    let fields = fields.filter_map(|field| {
        let (name, message) = (field["field"].as_str()?, field["message"].as_str()?);
        Some(format!("; {name} {message}"))
    });
    let fields: String = fields.collect();
    let code = said("code").or(said("status")).unwrap_or("no reason");
    let words = said("error").or(said("message")).unwrap_or_default();
    anyhow!("the API answered {status}, {code}: {words}{fields}")
}
