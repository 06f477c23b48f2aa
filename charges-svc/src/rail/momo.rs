//! MTN MoMo Open API, collection product (rails §4.1).
//!
//! Promise: a payment request goes out once per token, always under the caller's reference; its
//! second sending, after a refused token, meets MTN's own check for duplicates. Without a token
//! nothing was sent.

mod answers;

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{
    Method, RequestBuilder,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

use super::{
    Answer, Found, OtpSubmitted, PaymentRequest, Query, Requested, count_call,
    wire::{self, Reply, SendError, Wire, secret_header},
    words::Member,
};
use crate::{config::rails, failure::FailureReason};

/// A token this close to its end may be refused on arrival.
const TOKEN_MARGIN: Duration = Duration::from_secs(60);

/// What MTN's texts for people hold at most; anything else in them is answered with a 400.
const TEXT_CHARS_MAX: usize = 100;

/// The rail. Clones share connections and the token.
#[derive(Clone)]
pub struct Momo(Arc<Inner>);

struct Inner {
    wire: Wire,
    subscription_key: HeaderValue,
    /// API user and key, for the token alone.
    basic: HeaderValue,
    target_environment: HeaderValue,
    callback_base: Option<String>,
    request_timeout: Duration,
    query_timeout: Duration,
    queries_per_second: NonZeroU32,
    approval_window: Duration,
    /// Held while a token is minted, so that one is minted for all who wait.
    token: Mutex<Option<Token>>,
    secrets: [SecretString; 3],
}

struct Token {
    /// `Bearer …`
    header: HeaderValue,
    until: Instant,
}

/// Why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallError {
    /// Nothing was sent, for want of a token or a connection.
    NotSent(FailureReason),
    Lost,
}

/// `POST …/requesttopay`. Every value is a string.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestToPay {
    amount: String,
    currency: &'static str,
    external_id: String,
    payer: Party,
    payer_message: String,
    payee_note: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Party {
    party_id_type: &'static str,
    party_id: String,
}

#[derive(Deserialize)]
struct Minted {
    access_token: String,
    #[serde(default)]
    expires_in: Member,
}

impl Momo {
    /// How long MTN lets a payer approve, whatever is configured. No network gives more.
    pub const APPROVAL_WINDOW: Duration = Duration::from_secs(300);

    /// # Errors
    /// An address or a secret that cannot be used.
    pub(super) fn from_config(config: &rails::Rails) -> anyhow::Result<Self> {
        let momo = &config.momo;
        let user = momo.momo_api_user.expose_secret();
        let key = momo.momo_api_key.expose_secret();
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{key}")));
        let subscription_key = momo.momo_subscription_key.expose_secret();
        let callback_base = config.callback_base_url.as_ref().map(wire::plain_base);
        Ok(Self(Arc::new(Inner {
            wire: Wire::new(&momo.momo_base_url).context("MOMO_BASE_URL")?,
            subscription_key: secret_header(subscription_key).context("MOMO_SUBSCRIPTION_KEY")?,
            basic: secret_header(&basic).context("MOMO_API_KEY")?,
            target_environment: HeaderValue::from_str(&momo.momo_target_environment)
                .context("MOMO_TARGET_ENVIRONMENT")?,
            callback_base: callback_base.transpose().context("CALLBACK_BASE_URL")?,
            request_timeout: momo.momo_request_timeout,
            query_timeout: momo.momo_query_timeout,
            queries_per_second: momo.momo_queries_per_second,
            approval_window: config.approval_window.min(Self::APPROVAL_WINDOW),
            token: Mutex::new(None),
            secrets: [
                momo.momo_subscription_key.clone(),
                momo.momo_api_key.clone(),
                momo.momo_api_user.clone(),
            ],
        })))
    }

    pub(super) fn approval_window(&self) -> Duration {
        self.0.approval_window
    }

    pub(super) fn queries_per_second(&self) -> NonZeroU32 {
        self.0.queries_per_second
    }

    /// What must not stand in any text.
    pub(super) fn secrets(&self) -> &[SecretString] {
        &self.0.secrets
    }

    pub(super) async fn request_payment(&self, request: &PaymentRequest) -> Answer<Requested> {
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
            Err(CallError::NotSent(reason)) => Answer::silent(Requested::Refused(reason)),
            Err(CallError::Lost) => Answer::silent(Requested::Unknown),
        }
    }

    /// This rail knows no OTP, so there is nothing to send.
    pub(super) fn submit_otp(&self) -> Answer<OtpSubmitted> {
        tracing::error!("an OTP was submitted to a rail that knows none");
        Answer::silent(OtpSubmitted::NotSent)
    }

    pub(super) async fn query(&self, query: &Query) -> Answer<Found> {
        let path = format!("/collection/v1_0/requesttopay/{}", query.rail_reference);
        let make = || self.collection(Method::GET, &path);
        match self.send(make, self.0.query_timeout).await {
            Ok(reply) => answers::found(&reply),
            Err(CallError::NotSent(_) | CallError::Lost) => Answer::silent(Found::Unknown),
        }
    }

    fn collection(&self, method: Method, path: &str) -> RequestBuilder {
        self.0
            .wire
            .request(method, path)
            .header("X-Target-Environment", self.0.target_environment.clone())
            .header("Ocp-Apim-Subscription-Key", self.0.subscription_key.clone())
    }

    fn callback_address(&self, token: &str) -> Option<String> {
        let base = self.0.callback_base.as_ref()?;
        Some(format!("{base}/rails/momo/{token}"))
    }

    /// Sends with a token; once more with another where the rail refuses the first.
    async fn send(
        &self,
        make: impl Fn() -> RequestBuilder,
        timeout: Duration,
    ) -> Result<Reply, CallError> {
        let start = Instant::now();
        // The other half is for the request: one that is sent too late has an unknown outcome,
        // one that is not sent has none.
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
            .wire
            .send(request, deadline)
            .await
            .map_err(|error| match error {
                SendError::NotSent => CallError::NotSent(FailureReason::RailUnavailable),
                SendError::Lost => CallError::Lost,
            })
    }

    /// The token that is kept, unless it is old or the `refused` one; otherwise a new one.
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
            .wire
            .request(Method::POST, "/collection/token/")
            .header(AUTHORIZATION, self.0.basic.clone())
            .header("Ocp-Apim-Subscription-Key", self.0.subscription_key.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(r#"{"grant_type":"client_credentials"}"#);
        let reply = self.0.wire.send(request, deadline).await;
        let minted = match &reply {
            Ok(reply) => Token::read(reply),
            Err(_) => Err(FailureReason::RailUnavailable),
        };
        let outcome = minted
            .as_ref()
            .map_or_else(|reason| reason.code(), |_| "minted");
        count_call("momo", "token", outcome, started.elapsed());
        minted.map_err(|reason| {
            tracing::error!(rail = "momo", %reason, "no token was minted");
            CallError::NotSent(reason)
        })
    }
}

impl Token {
    fn read(reply: &Reply) -> Result<Self, FailureReason> {
        if reply.is_unauthorized() {
            return Err(FailureReason::RailConfiguration);
        }
        let minted: Option<Minted> = reply.object().filter(|_| reply.status.is_success());
        let minted = minted.filter(|minted| !minted.access_token.is_empty());
        let minted = minted.ok_or(FailureReason::RailUnavailable)?;
        let header = secret_header(&format!("Bearer {}", minted.access_token));
        // One that does not say how long it lives is used once.
        let lives = minted
            .expires_in
            .text()
            .and_then(|seconds| seconds.parse().ok());
        let lives = Duration::from_secs(lives.unwrap_or_default());
        Ok(Self {
            header: header.map_err(|_| FailureReason::RailUnavailable)?,
            until: Instant::now() + lives.saturating_sub(TOKEN_MARGIN),
        })
    }
}

impl RequestToPay {
    fn new(request: &PaymentRequest) -> Self {
        let reference = request.reference.as_str();
        let description = request.description.as_deref().unwrap_or_default();
        let payer_message = text(&[description, &request.merchant_name, reference]);
        Self {
            amount: request.amount.to_major().to_string(),
            currency: request.amount.currency().code(),
            external_id: request.rail_reference.to_string(),
            payer: Party {
                party_id_type: "MSISDN",
                party_id: request.phone.without_plus().to_owned(),
            },
            payer_message,
            payee_note: text(&[reference]),
        }
    }
}

/// The first text of which something is left once everything is taken out that MTN might refuse.
fn text(candidates: &[&str]) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '-');
    let clean = |candidate: &&str| {
        let spaced = candidate.replace(|c| !allowed(c), " ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let cut: String = words.join(" ").chars().take(TEXT_CHARS_MAX).collect();
        cut.trim_end().to_owned()
    };
    let says_something = |text: &String| text.contains(|c: char| c.is_ascii_alphanumeric());
    let said = candidates.iter().map(clean).find(says_something);
    said.unwrap_or_else(|| "Payment".to_owned())
}

impl fmt::Debug for Momo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Momo")
    }
}

#[cfg(test)]
mod tests {
    use chassis::{
        ids::{RailReference, Reference, TxIdDisplay},
        money::{Currency, Money},
        phone::Phone,
    };

    use super::*;
    use crate::rail::Provider;

    #[test]
    fn texts_hold_only_what_mtn_takes_and_are_never_empty() {
        let long = "ab ".repeat(60);
        for (candidates, expected) in [
            (["Order 17", "Shop"], "Order 17"),
            (
                ["Kofi's \"best\" order №17!", "Shop"],
                "Kofi s best order 17",
            ),
            (["", "Ama & Co."], "Ama Co."),
            (["ご注文", "Shop"], "Shop"),
            (["- . -", "Shop"], "Shop"),
            (["", "★"], "Payment"),
            ([" \t a \n b ", ""], "a b"),
            ([long.as_str(), ""], &long[..100]),
        ] {
            let text = text(&candidates);
            assert_eq!(text, expected, "{candidates:?}");
            assert!(
                !text.is_empty() && text.len() <= TEXT_CHARS_MAX,
                "{candidates:?}"
            );
        }
    }

    #[test]
    fn a_request_is_all_strings_as_the_wire_wants_them() {
        let rail_reference = RailReference::new();
        let reference = Reference::new(&TxIdDisplay::new());
        let body = RequestToPay::new(&PaymentRequest {
            rail_reference,
            reference: reference.clone(),
            amount: Money::new(2550, Currency::GHS),
            phone: Phone::parse_ghana_mobile("0241234567").unwrap(),
            provider: Provider::Mtn,
            payer_email: None,
            merchant_name: "Shop".to_owned(),
            description: None,
            callback_token: "token".to_owned(),
        });
        let expected = serde_json::json!({
            "amount": "25.50",
            "currency": "GHS",
            "externalId": rail_reference.to_string(),
            "payer": {"partyIdType": "MSISDN", "partyId": "233241234567"},
            "payerMessage": "Shop",
            "payeeNote": reference.as_str(),
        });
        assert_eq!(serde_json::to_value(&body).unwrap(), expected);
    }

    fn read(reply: &Reply) -> Result<(String, Duration), FailureReason> {
        let before = Instant::now();
        let token = Token::read(reply)?;
        let header = token.header.to_str().expect("a text").to_owned();
        Ok((header, token.until.saturating_duration_since(before)))
    }

    #[test]
    fn a_token_is_kept_until_shortly_before_its_end() {
        for (expires_in, secs) in [
            ("3600", 3540),
            (r#""3600""#, 3540),
            ("60", 0),
            ("5", 0),
            ("null", 0),
        ] {
            let body = format!(r#"{{"access_token":"abc","expires_in":{expires_in}}}"#);
            let (header, kept) = read(&Reply::json(200, &body)).unwrap();
            assert_eq!(header, "Bearer abc");
            let slack = Duration::from_secs(5);
            let secs = Duration::from_secs(secs);
            assert!(
                kept >= secs && kept <= secs + slack,
                "{expires_in}: {kept:?}"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_none() {
        for reply in [
            Reply::html(200),
            Reply::empty(200),
            Reply::json(200, "{}"),
            Reply::json(200, r#"{"access_token":7}"#),
            Reply::json(200, r#"{"access_token":""}"#),
            Reply::json(200, r#"{"access_token":"a\nb"}"#),
            Reply::json(500, r#"{"access_token":"abc"}"#),
            Reply::html(401),
            Reply::empty(411),
        ] {
            assert_eq!(
                read(&reply),
                Err(FailureReason::RailUnavailable),
                "{reply:?}"
            );
        }
        let keys_are_wrong = read(&Reply::json(401, r#"{"statusCode":401}"#));
        assert_eq!(keys_are_wrong, Err(FailureReason::RailConfiguration));
    }
}
