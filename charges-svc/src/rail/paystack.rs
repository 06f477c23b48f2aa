//! Paystack Charge API, for Ghana mobile money (rails §4.2).
//!
//! Promise: a charge goes out once, under the caller's reference. What Paystack sends to us is
//! believed to come from it only with our token and its signature, and even then only as a hint.

mod answers;

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::ids::RailReference;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::{
    Method, RequestBuilder,
    header::{AUTHORIZATION, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha512;
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use super::{
    Answer, Found, OtpSubmitted, PaymentRequest, Provider, Query, Requested,
    wire::{Reply, SendError, Wire, secret_header},
};
use crate::{config::rails, failure::FailureReason};

/// The network's own limit, whatever is configured.
const APPROVAL_WINDOW_MAX: Duration = Duration::from_secs(180);

/// The rail. Clones share connections.
#[derive(Clone)]
pub struct Paystack(Arc<Inner>);

struct Inner {
    wire: Wire,
    /// `Bearer …`
    bearer: HeaderValue,
    email_domain: String,
    request_timeout: Duration,
    query_timeout: Duration,
    queries_per_second: NonZeroU32,
    approval_window: Duration,
    /// The secret key and the callback token.
    secrets: [SecretString; 2],
}

/// What came to the callback address is not from Paystack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error("the callback's token is not the configured one")]
    WrongToken,
    #[error("the callback's signature is missing or wrong")]
    WrongSignature,
}

/// `POST /charge`
#[derive(Serialize)]
struct Charge {
    email: String,
    /// Pesewas.
    amount: i64,
    currency: &'static str,
    reference: String,
    mobile_money: MobileMoney,
    metadata: Metadata,
}

#[derive(Serialize)]
struct MobileMoney {
    phone: String,
    provider: &'static str,
}

#[derive(Serialize)]
struct Metadata {
    reference: String,
}

#[derive(Serialize)]
struct Otp<'a> {
    otp: &'a str,
    reference: String,
}

/// What a callback says that is of use: what to ask about.
#[derive(Deserialize)]
struct Callback {
    data: CallbackData,
}

#[derive(Deserialize)]
struct CallbackData {
    reference: String,
}

impl Paystack {
    /// # Errors
    /// An address or a secret that cannot be used.
    pub(super) fn from_config(config: &rails::Rails) -> anyhow::Result<Self> {
        let paystack = &config.paystack;
        let secrets = [
            paystack.paystack_secret_key.clone(),
            paystack.paystack_callback_token.clone(),
        ];
        let bearer = format!("Bearer {}", paystack.paystack_secret_key.expose_secret());
        Ok(Self(Arc::new(Inner {
            wire: Wire::new(&paystack.paystack_base_url).context("PAYSTACK_BASE_URL")?,
            bearer: secret_header(&bearer).context("PAYSTACK_SECRET_KEY")?,
            email_domain: paystack.paystack_email_domain.clone(),
            request_timeout: paystack.paystack_request_timeout,
            query_timeout: paystack.paystack_query_timeout,
            queries_per_second: paystack.paystack_queries_per_second,
            approval_window: config.approval_window.min(APPROVAL_WINDOW_MAX),
            secrets,
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
        let charge = Charge::new(request, &self.0.email_domain);
        let made = self.request(Method::POST, "/charge").json(&charge);
        match self.send(made, self.request_deadline()).await {
            Ok(reply) => answers::requested(&reply),
            Err(SendError::NotSent) => {
                Answer::silent(Requested::Refused(FailureReason::RailUnavailable))
            }
            Err(SendError::Lost) => Answer::silent(Requested::Unknown),
        }
    }

    pub(super) async fn submit_otp(
        &self,
        rail_reference: RailReference,
        otp: &SecretString,
    ) -> Answer<OtpSubmitted> {
        let body = Otp {
            otp: otp.expose_secret(),
            reference: rail_reference.to_string(),
        };
        let made = self.request(Method::POST, "/charge/submit_otp").json(&body);
        match self.send(made, self.request_deadline()).await {
            Ok(reply) => answers::otp_submitted(&reply),
            Err(SendError::NotSent) => Answer::silent(OtpSubmitted::NotSent),
            Err(SendError::Lost) => Answer::silent(OtpSubmitted::Unknown),
        }
    }

    /// Asks verify. Where it knows only that the payment is under way, the check of pending charges
    /// may know that the payer's code is waited for, still or again.
    pub(super) async fn query(&self, query: &Query) -> Answer<Found> {
        let deadline = Instant::now() + self.0.query_timeout;
        let reference = query.rail_reference;
        let verified = self
            .ask(&format!("/transaction/verify/{reference}"), query, deadline)
            .await;
        let is_open = matches!(verified.outcome, Found::Pending | Found::Abandoned { .. });
        if !query.may_want_code || !is_open {
            return verified;
        }
        let checked = self
            .ask(&format!("/charge/{reference}"), query, deadline)
            .await;
        match (&verified.outcome, checked.outcome) {
            (_, Found::Unknown | Found::ReferenceUnknown) => verified,
            // Both hold: the payer did nothing, and may still hand over a code.
            (Found::Abandoned { .. }, Found::OtpRequired) => Answer {
                outcome: Found::Abandoned { code_wanted: true },
                ..checked
            },
            (Found::Abandoned { .. }, Found::Pending) => verified,
            (_, outcome) => Answer { outcome, ..checked },
        }
    }

    /// Whether a callback is Paystack's, and which payment it is about, if it says so.
    ///
    /// # Errors
    /// It did not come to the configured address, or Paystack did not sign this body.
    pub fn read_callback(
        &self,
        token: &str,
        body: &[u8],
        signature: Option<&str>,
    ) -> Result<Option<RailReference>, CallbackError> {
        let [secret_key, callback_token] = &self.0.secrets;
        let configured = callback_token.expose_secret().as_bytes();
        if !bool::from(configured.ct_eq(token.as_bytes())) {
            return Err(CallbackError::WrongToken);
        }
        let signature = signature.and_then(|text| hex::decode(text.trim()).ok());
        let signature = signature.ok_or(CallbackError::WrongSignature)?;
        Hmac::<Sha512>::new_from_slice(secret_key.expose_secret().as_bytes())
            .expect("HMAC takes keys of any length")
            .chain_update(body)
            .verify_slice(&signature)
            .map_err(|_| CallbackError::WrongSignature)?;
        let callback: Option<Callback> = serde_json::from_slice(body).ok();
        Ok(callback.and_then(|callback| callback.data.reference.parse().ok()))
    }

    async fn ask(&self, path: &str, query: &Query, deadline: Instant) -> Answer<Found> {
        match self.send(self.request(Method::GET, path), deadline).await {
            Ok(reply) => answers::found(&reply, query),
            Err(SendError::NotSent | SendError::Lost) => Answer::silent(Found::Unknown),
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let bearer = self.0.bearer.clone();
        self.0
            .wire
            .request(method, path)
            .header(AUTHORIZATION, bearer)
    }

    fn request_deadline(&self) -> Instant {
        Instant::now() + self.0.request_timeout
    }

    async fn send(&self, request: RequestBuilder, deadline: Instant) -> Result<Reply, SendError> {
        self.0.wire.send(request, deadline).await
    }
}

impl Charge {
    fn new(request: &PaymentRequest, email_domain: &str) -> Self {
        let stand_in = || format!("{}@{email_domain}", request.rail_reference);
        Self {
            email: request.payer_email.clone().unwrap_or_else(stand_in),
            amount: request.amount.minor_units(),
            currency: request.amount.currency().code(),
            reference: request.rail_reference.to_string(),
            mobile_money: MobileMoney {
                phone: request.phone.local(),
                provider: provider_code(request.provider),
            },
            metadata: Metadata {
                reference: request.reference.to_string(),
            },
        }
    }
}

fn provider_code(provider: Provider) -> &'static str {
    match provider {
        Provider::Mtn => "mtn",
        Provider::Telecel => "vod",
        Provider::At => "atl",
    }
}

impl fmt::Debug for Paystack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Paystack")
    }
}
