//! The public API as a merchant's backend calls it. Prints what it sends and receives.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use chassis::http;
use reqwest::{Method, RequestBuilder, header::HeaderMap};
use serde_json::Value;

/// Longest wait for an answer. A charge may take 12 s.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Interval between polls. Merchants should use 3 to 5 seconds (spec §4.5).
const POLL_EVERY: Duration = Duration::from_millis(500);

/// A merchant's view of the API.
pub struct Api {
    base: String,
    key: String,
    client: reqwest::Client,
}

/// An answer of the API.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Api {
    pub fn new(base: &str, key: &str) -> anyhow::Result<Self> {
        Ok(Self {
            base: base.to_owned(),
            key: key.to_owned(),
            client: http::client(ANSWER_MAX)?,
        })
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<ApiResponse> {
        println!("\nPOST {path}\n  {body}");
        self.send(self.request(Method::POST, path).json(body)).await
    }

    pub async fn post_with_key(
        &self,
        path: &str,
        body: &Value,
        key: &str,
    ) -> anyhow::Result<ApiResponse> {
        println!("\nPOST {path}\n  Idempotency-Key: {key}\n  {body}");
        let request = self.request(Method::POST, path);
        self.send(request.header("Idempotency-Key", key).json(body))
            .await
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<ApiResponse> {
        println!("\nGET {path}");
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn get_without_key(&self, path: &str) -> anyhow::Result<ApiResponse> {
        println!("\nGET {path} (without a key)");
        self.send(self.client.get(format!("{}{path}", self.base)))
            .await
    }

    /// Polls `path` until `is_done` accepts the answer's body. Prints the last answer.
    pub async fn poll(
        &self,
        path: &str,
        wait_max: Duration,
        is_done: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<ApiResponse> {
        let polling = async {
            loop {
                let answer = self.answer(self.request(Method::GET, path)).await?;
                answer.expect(200)?;
                if is_done(&answer.body) {
                    return anyhow::Ok(answer);
                }
                tokio::time::sleep(POLL_EVERY).await;
            }
        };
        println!("\nGET {path} (until it ends)");
        let answer = tokio::time::timeout(wait_max, polling)
            .await
            .with_context(|| format!("{path} did not end in time"))??;
        answer.print();
        Ok(answer)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.base);
        self.client.request(method, url).bearer_auth(&self.key)
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<ApiResponse> {
        let answer = self.answer(request).await?;
        answer.print();
        Ok(answer)
    }

    async fn answer(&self, request: RequestBuilder) -> anyhow::Result<ApiResponse> {
        let response = request.send().await.context("the API does not answer")?;
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.json().await.context("the answer is not JSON")?;
        Ok(ApiResponse {
            code,
            headers,
            body,
        })
    }
}

impl ApiResponse {
    fn print(&self) {
        println!("  -> {} {}", self.code, self.body);
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Checks that the status code is `code` and that the answer has a request id.
    pub fn expect(&self, code: u16) -> anyhow::Result<()> {
        ensure!(
            self.code == code,
            "{} and not {code}: {}",
            self.code,
            self.body
        );
        ensure!(self.header("x-request-id").is_some(), "no X-Request-Id");
        Ok(())
    }

    pub fn expect_fields(&self, fields: &[(&str, Value)]) -> anyhow::Result<()> {
        for (name, value) in fields {
            let got = &self.body[name];
            ensure!(
                got == value,
                "{name} is {got} and not {value}: {}",
                self.body
            );
        }
        Ok(())
    }

    pub fn text(&self, name: &str) -> anyhow::Result<&str> {
        match self.body[name].as_str() {
            Some(text) => Ok(text),
            None => bail!("{name} is no text: {}", self.body),
        }
    }
}
