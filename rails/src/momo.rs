//! MTN MoMo Open API, collection product (rails §4.1).
//!
//! Promise: a payment request goes out once per token, always under the caller's reference. If it
//! goes out again, after a refused token, MTN's own check for duplicates applies. Without a token
//! nothing is sent.

mod answers;
mod settings;
mod token;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::{failure::FailureReason, provider::Provider};
use reqwest::{
    Method, RequestBuilder, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use secrecy::ExposeSecret as _;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use crate::{
    answer::{OtpOutcome, PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome},
    callback::{Callback, CallbackError, CallbackSubject},
    client::{RailClient, Reply, SendError, plain_base, secret_header},
    name::{RailName, Terms},
    telemetry::count_call,
};

pub use settings::MomoSettings;
use token::Token;
use wire::RequestToPay;

pub const TERMS: Terms = Terms {
    carries: &[Provider::Mtn],
    asks_for_codes: &[],
    approval_window: Duration::from_secs(300),
    refuses_second_use: true,
    // MTN does not sign callbacks: the address is the secret.
    callback_headers: &[],
};

/// The rail. Clones share connections and the token.
#[derive(Clone)]
pub struct Momo(Arc<Inner>);

struct Inner {
    client: RailClient,
    subscription_key: HeaderValue,
    /// API user and key, used only to get a token.
    basic: HeaderValue,
    target_environment: HeaderValue,
    callback_base: Option<String>,
    request_timeout: Duration,
    query_timeout: Duration,
    /// Locked while a token is minted, so that all waiting calls share it.
    token: Mutex<Option<Token>>,
}

/// Why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallError {
    /// Nothing was sent: there was no token, or no connection.
    NotSent(FailureReason),
    Lost,
}

impl Momo {
    /// # Errors
    /// An address or a secret is unusable.
    pub fn new(momo: &MomoSettings, callback_base: Option<&Url>) -> anyhow::Result<Self> {
        let user = momo.momo_api_user.expose_secret();
        let key = momo.momo_api_key.expose_secret();
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{key}")));
        let subscription_key = momo.momo_subscription_key.expose_secret();
        let callback_base = callback_base.map(plain_base);
        Ok(Self(Arc::new(Inner {
            client: RailClient::new(&momo.momo_base_url).context("MOMO_BASE_URL")?,
            subscription_key: secret_header(subscription_key).context("MOMO_SUBSCRIPTION_KEY")?,
            basic: secret_header(&basic).context("MOMO_API_KEY")?,
            target_environment: HeaderValue::from_str(&momo.momo_target_environment)
                .context("MOMO_TARGET_ENVIRONMENT")?,
            callback_base: callback_base.transpose().context("CALLBACK_BASE_URL")?,
            request_timeout: momo.momo_request_timeout,
            query_timeout: momo.momo_query_timeout,
            token: Mutex::new(None),
        })))
    }

    pub async fn request_payment(&self, request: &PaymentRequest) -> RailAnswer<RequestOutcome> {
        let body = RequestToPay::new(request);
        let make = || {
            let made = self
                .collection(Method::POST, "/collection/v1_0/requesttopay")
                .header("X-Reference-Id", request.rail_reference.to_string())
                .json(&body);
            match self.callback_address(&request.callback_token) {
                Some(address) => made.header("X-Callback-Url", address),
                None => made,
            }
        };
        match self.send(make, self.0.request_timeout).await {
            Ok(reply) => answers::requested(&reply),
            Err(CallError::NotSent(reason)) => RailAnswer::silent(RequestOutcome::Refused(reason)),
            Err(CallError::Lost) => RailAnswer::silent(RequestOutcome::Unknown),
        }
    }

    /// This rail has no OTPs, so there is nothing to send.
    pub fn submit_otp(&self) -> RailAnswer<OtpOutcome> {
        tracing::error!("an OTP was submitted to a rail that knows none");
        RailAnswer::silent(OtpOutcome::NotSent)
    }

    pub async fn query(&self, query: &Query) -> RailAnswer<QueryOutcome> {
        let path = format!("/collection/v1_0/requesttopay/{}", query.rail_reference);
        let make = || self.collection(Method::GET, &path);
        match self.send(make, self.0.query_timeout).await {
            Ok(reply) => answers::found(&reply),
            Err(CallError::NotSent(_) | CallError::Lost) => {
                RailAnswer::silent(QueryOutcome::Unknown)
            }
        }
    }

    /// MTN does not sign callbacks: their secret address identifies the charge.
    pub fn read_callback(&self, _: &Callback) -> Result<CallbackSubject, CallbackError> {
        Ok(CallbackSubject::Address)
    }

    fn collection(&self, method: Method, path: &str) -> RequestBuilder {
        self.0
            .client
            .request(method, path)
            .header("X-Target-Environment", self.0.target_environment.clone())
            .header("Ocp-Apim-Subscription-Key", self.0.subscription_key.clone())
    }

    fn callback_address(&self, token: &str) -> Option<String> {
        let base = self.0.callback_base.as_ref()?;
        let rail = RailName::Momo;
        Some(format!("{base}/rails/{rail}/{token}"))
    }

    /// Sends with a token, and once more with a new one if MTN refuses the first.
    async fn send(
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
        self.0
            .client
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
            let mut kept = self.0.token.lock().await;
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
            .0
            .client
            .request(Method::POST, "/collection/token/")
            .header(AUTHORIZATION, self.0.basic.clone())
            .header("Ocp-Apim-Subscription-Key", self.0.subscription_key.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(r#"{"grant_type":"client_credentials"}"#);
        let reply = self.0.client.send(request, deadline).await;
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

impl fmt::Debug for Momo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Momo")
    }
}
