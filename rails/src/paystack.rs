//! Paystack for Ghana (<https://paystack.com/docs>): the Charge API for mobile money, and transfers.
//!
//! Promise: a charge or a transfer goes out once, under the caller's reference. A callback is accepted only with
//! our token and Paystack's signature, and even then only as a hint.

mod answers;
mod callback;
mod settings;
mod transfers;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{failure::FailureReason, ids::RailReference, money::Money, provider::Provider};
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
    transfer::{
        Destination, FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest,
    },
};

pub use settings::PaystackSettings;
use transfers::{Recipient, Transfer};
use wire::{Charge, Otp};

pub const TERMS: Terms = Terms {
    carries: &[Provider::Mtn, Provider::Telecel, Provider::At],
    asks_for_codes: &[Provider::Telecel],
    approval_window: Duration::from_secs(180),
    refuses_second_use: false,
    refuses_second_transfer: true,
    // It takes the amount at creation.
    float_is_net: true,
    tells_wallets: false,
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
        match self.send_by(made, self.request_deadline()).await {
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
        match self.send_by(made, self.request_deadline()).await {
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

    /// Makes the payee known, which pays nothing and may be repeated, and then sends the transfer.
    pub async fn send(&self, request: &TransferRequest) -> RailAnswer<SendOutcome> {
        let deadline = self.request_deadline();
        // The other half is for the transfer: one that is sent too late has an unknown outcome.
        let known_by = Instant::now() + self.0.request_timeout / 2;
        let unavailable = SendOutcome::NotSent(FailureReason::RailUnavailable);
        let made = self.request(Method::POST, "/transferrecipient");
        let made = made.json(&Recipient::new(request));
        let recipient = match self.send_by(made, known_by).await {
            Ok(reply) => match transfers::recipient(&reply) {
                Ok(recipient) => recipient,
                Err(answer) => return answer,
            },
            Err(SendError::NotSent | SendError::Lost) => return RailAnswer::silent(unavailable),
        };
        let made = self.request(Method::POST, "/transfer");
        let made = made.json(&Transfer::new(request, &recipient));
        match self.send_by(made, deadline).await {
            Ok(reply) => transfers::sent(&reply, request),
            Err(SendError::NotSent) => RailAnswer::silent(unavailable),
            Err(SendError::Lost) => RailAnswer::silent(SendOutcome::Unknown),
        }
    }

    pub async fn query_transfer(
        &self,
        reference: RailReference,
        amount: Money,
    ) -> RailAnswer<TransferOutcome> {
        match self.look(&format!("/transfer/verify/{reference}")).await {
            Ok(reply) => transfers::found(&reply, reference, amount),
            Err(_) => RailAnswer::silent(TransferOutcome::Unknown),
        }
    }

    pub async fn float(&self) -> RailAnswer<FloatOutcome> {
        match self.look("/balance").await {
            Ok(reply) => transfers::float(&reply),
            Err(_) => RailAnswer::silent(FloatOutcome::Unknown),
        }
    }

    pub async fn holder(&self, destination: &Destination) -> RailAnswer<HolderOutcome> {
        let asked = self.request(Method::GET, &transfers::resolve_path(destination));
        let deadline = Instant::now() + self.0.query_timeout;
        match self.send_by(asked, deadline).await {
            Ok(reply) => transfers::named(&reply),
            Err(_) => RailAnswer::silent(HolderOutcome::Unknown),
        }
    }

    async fn look(&self, path: &str) -> Result<Reply, SendError> {
        let deadline = Instant::now() + self.0.query_timeout;
        self.send_by(self.request(Method::GET, path), deadline)
            .await
    }

    pub fn read_callback(&self, callback: &Callback) -> Result<CallbackSubject, CallbackError> {
        callback::read(callback, &self.0.secret_key, &self.0.callback_token)
    }

    async fn ask(&self, path: &str, query: &Query, deadline: Instant) -> RailAnswer<QueryOutcome> {
        match self
            .send_by(self.request(Method::GET, path), deadline)
            .await
        {
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

    async fn send_by(
        &self,
        request: RequestBuilder,
        deadline: Instant,
    ) -> Result<Reply, SendError> {
        self.0.client.send(request, deadline).await
    }
}

impl fmt::Debug for Paystack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Paystack")
    }
}
