//! A product of MTN's API, with credentials and a token of its own.

use std::time::Duration;

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::failure::FailureReason;
use reqwest::{
    Method, RequestBuilder,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use secrecy::ExposeSecret as _;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use super::{settings::Credentials, token::Token};
use crate::{
    client::{RailClient, Reply, SendError, secret_header},
    name::RailName,
    telemetry::count_call,
};

pub struct Product {
    /// What its addresses begin with.
    path: &'static str,
    client: RailClient,
    subscription_key: HeaderValue,
    /// API user and key, used only to get a token.
    basic: HeaderValue,
    target_environment: HeaderValue,
    /// Locked while a token is minted, so that all waiting calls share it.
    token: Mutex<Option<Token>>,
}

/// Why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Nothing was sent: there was no token, or no connection.
    NotSent(FailureReason),
    Lost,
}

impl Product {
    /// # Errors
    /// A secret is unusable.
    pub fn new(
        path: &'static str,
        client: &RailClient,
        target_environment: &str,
        credentials: Credentials,
    ) -> anyhow::Result<Self> {
        let user = credentials.api_user.expose_secret();
        let key = credentials.api_key.expose_secret();
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{key}")));
        let subscription_key = credentials.subscription_key.expose_secret();
        Ok(Self {
            path,
            client: client.clone(),
            subscription_key: secret_header(subscription_key).context("the subscription key")?,
            basic: secret_header(&basic).context("the API key")?,
            target_environment: HeaderValue::from_str(target_environment)
                .context("MOMO_TARGET_ENVIRONMENT")?,
            token: Mutex::new(None),
        })
    }

    /// A request to `path` of this product.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, &format!("{}{path}", self.path))
            .header("X-Target-Environment", self.target_environment.clone())
            .header("Ocp-Apim-Subscription-Key", self.subscription_key.clone())
    }

    /// Sends with a token, and once more with a new one if MTN refuses the first.
    pub async fn send(
        &self,
        make: impl Fn() -> RequestBuilder,
        timeout: Duration,
    ) -> Result<Reply, CallError> {
        let start = Instant::now();
        // The other half is for the request: one that is sent too late has an unknown outcome, one
        // that is not sent is certainly not debited.
        let token_deadline = start + timeout / 2;
        let deadline = start + timeout;
        let token = self.token(None, token_deadline).await?;
        let reply = self.send_with(&make, &token, deadline).await?;
        if !reply.is_unauthorized() {
            return Ok(reply);
        }
        let token = self.token(Some(&token), token_deadline).await?;
        self.send_with(&make, &token, deadline).await
    }

    async fn send_with(
        &self,
        make: &impl Fn() -> RequestBuilder,
        token: &HeaderValue,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        let request = make().header(AUTHORIZATION, token.clone());
        self.client
            .send(request, deadline)
            .await
            .map_err(|error| match error {
                SendError::NotSent => CallError::NotSent(FailureReason::RailUnavailable),
                SendError::Lost => CallError::Lost,
            })
    }

    /// The cached token, unless it is too old or the `refused` one; otherwise a new one.
    async fn token(
        &self,
        refused: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<HeaderValue, CallError> {
        let in_time = timeout_at(deadline, async {
            let mut kept = self.token.lock().await;
            if let Some(token) = kept.as_ref()
                && token.until > Instant::now()
                && refused != Some(&token.header)
            {
                return Ok(token.header.clone());
            }
            *kept = None;
            let minted = self.mint(deadline).await?;
            let header = minted.header.clone();
            *kept = Some(minted);
            Ok(header)
        });
        let no_token = CallError::NotSent(FailureReason::RailUnavailable);
        in_time.await.unwrap_or(Err(no_token))
    }

    async fn mint(&self, deadline: Instant) -> Result<Token, CallError> {
        let started = Instant::now();
        let request = self
            .client
            .request(Method::POST, &format!("{}/token/", self.path))
            .header(AUTHORIZATION, self.basic.clone())
            .header("Ocp-Apim-Subscription-Key", self.subscription_key.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(r#"{"grant_type":"client_credentials"}"#);
        let reply = self.client.send(request, deadline).await;
        let minted = match &reply {
            Ok(reply) => Token::read(reply),
            Err(_) => Err(FailureReason::RailUnavailable),
        };
        let outcome = minted
            .as_ref()
            .map_or_else(|reason| reason.code(), |_| "minted");
        count_call(RailName::Momo, "token", outcome, started.elapsed());
        minted.map_err(|reason| {
            tracing::error!(rail = RailName::Momo.code(), %reason, "no token was minted");
            CallError::NotSent(reason)
        })
    }
}
