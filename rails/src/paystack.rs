//! Paystack Charge API, for Ghana mobile money (rails §4.2).
//!
//! Promise: a charge goes out once, under the caller's reference. A callback is accepted only with
//! our token and Paystack's signature, and even then only as a hint.

mod answers;
mod callback;
mod settings;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{failure::FailureReason, ids::RailReference, provider::Provider};
use reqwest::{
    Method, RequestBuilder,
    header::{AUTHORIZATION, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::{
    answer::{OtpOutcome, PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome},
    callback::{Callback, CallbackError, CallbackSubject},
    client::{RailClient, Reply, SendError, secret_header},
    name::Terms,
};

pub use settings::PaystackSettings;
use wire::{Charge, Otp};

pub const TERMS: Terms = Terms {
    carries: &[Provider::Mtn, Provider::Telecel, Provider::At],
    asks_for_codes: &[Provider::Telecel],
    approval_window: Duration::from_secs(180),
    refuses_second_use: false,
    callback_headers: &[callback::SIGNATURE],
};

/// The rail. Clones share connections.
#[derive(Clone)]
pub struct Paystack(Arc<Inner>);

struct Inner {
    client: RailClient,
    /// `Bearer …`
    bearer: HeaderValue,
    email_domain: String,
    request_timeout: Duration,
    query_timeout: Duration,
    secret_key: SecretString,
    callback_token: SecretString,
}

impl Paystack {
    /// # Errors
    /// An address or a secret is unusable.
    pub fn new(paystack: &PaystackSettings) -> anyhow::Result<Self> {
        let bearer = format!("Bearer {}", paystack.paystack_secret_key.expose_secret());
        Ok(Self(Arc::new(Inner {
            client: RailClient::new(&paystack.paystack_base_url).context("PAYSTACK_BASE_URL")?,
            bearer: secret_header(&bearer).context("PAYSTACK_SECRET_KEY")?,
            email_domain: paystack.paystack_email_domain.clone(),
            request_timeout: paystack.paystack_request_timeout,
            query_timeout: paystack.paystack_query_timeout,
            secret_key: paystack.paystack_secret_key.clone(),
            callback_token: paystack.paystack_callback_token.clone(),
        })))
    }

    pub async fn request_payment(&self, request: &PaymentRequest) -> RailAnswer<RequestOutcome> {
        let charge = Charge::new(request, &self.0.email_domain);
        let made = self.request(Method::POST, "/charge").json(&charge);
        match self.send(made, self.request_deadline()).await {
            Ok(reply) => answers::requested(&reply),
            Err(SendError::NotSent) => {
                RailAnswer::silent(RequestOutcome::Refused(FailureReason::RailUnavailable))
            }
            Err(SendError::Lost) => RailAnswer::silent(RequestOutcome::Unknown),
        }
    }

    pub async fn submit_otp(
        &self,
        rail_reference: RailReference,
        otp: &SecretString,
    ) -> RailAnswer<OtpOutcome> {
        let body = Otp {
            otp: otp.expose_secret(),
            reference: rail_reference.to_string(),
        };
        let made = self.request(Method::POST, "/charge/submit_otp").json(&body);
        match self.send(made, self.request_deadline()).await {
            Ok(reply) => answers::otp_submitted(&reply),
            Err(SendError::NotSent) => RailAnswer::silent(OtpOutcome::NotSent),
            Err(SendError::Lost) => RailAnswer::silent(OtpOutcome::Unknown),
        }
    }

    /// Asks verify. If that shows only that the payment is still open, the check of pending
    /// charges may show that Paystack waits for the payer's code, still or again.
    pub async fn query(&self, query: &Query) -> RailAnswer<QueryOutcome> {
        let deadline = Instant::now() + self.0.query_timeout;
        let reference = query.rail_reference;
        let verified = self
            .ask(&format!("/transaction/verify/{reference}"), query, deadline)
            .await;
        let is_open = matches!(
            verified.outcome,
            QueryOutcome::Pending | QueryOutcome::Abandoned { .. }
        );
        if !query.may_want_code || !is_open {
            return verified;
        }
        let checked = self
            .ask(&format!("/charge/{reference}"), query, deadline)
            .await;
        match (&verified.outcome, checked.outcome) {
            (_, QueryOutcome::Unknown | QueryOutcome::ReferenceUnknown) => verified,
            // Both hold: the payer has done nothing, and may still give a code.
            (QueryOutcome::Abandoned { .. }, QueryOutcome::OtpRequired) => RailAnswer {
                outcome: QueryOutcome::Abandoned { code_wanted: true },
                ..checked
            },
            (QueryOutcome::Abandoned { .. }, QueryOutcome::Pending) => verified,
            (_, outcome) => RailAnswer { outcome, ..checked },
        }
    }

    pub fn read_callback(&self, callback: &Callback) -> Result<CallbackSubject, CallbackError> {
        callback::read(callback, &self.0.secret_key, &self.0.callback_token)
    }

    async fn ask(&self, path: &str, query: &Query, deadline: Instant) -> RailAnswer<QueryOutcome> {
        match self.send(self.request(Method::GET, path), deadline).await {
            Ok(reply) => answers::found(&reply, query),
            Err(SendError::NotSent | SendError::Lost) => RailAnswer::silent(QueryOutcome::Unknown),
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let bearer = self.0.bearer.clone();
        self.0
            .client
            .request(method, path)
            .header(AUTHORIZATION, bearer)
    }

    fn request_deadline(&self) -> Instant {
        Instant::now() + self.0.request_timeout
    }

    async fn send(&self, request: RequestBuilder, deadline: Instant) -> Result<Reply, SendError> {
        self.0.client.send(request, deadline).await
    }
}

impl fmt::Debug for Paystack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Paystack")
    }
}
