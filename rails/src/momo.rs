//! MTN MoMo Open API (<https://momodeveloper.mtn.com>): collection and disbursement, two products
//! with credentials of their own.
//!
//! Promise: a payment request or a transfer goes out once per token, always under the caller's
//! reference. If it goes out again, after a refused token, MTN's own check for duplicates applies.
//! Without a token nothing is sent.

mod answers;
mod product;
mod settings;
mod token;
mod transfers;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    failure::FailureReason, ids::RailReference, money::Money, phone::Phone, provider::Provider,
};
use reqwest::{Method, Url};

use crate::{
    answer::{PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome, WalletOutcome},
    callback::{Callback, CallbackError, CallbackSubject},
    client::{RailClient, Reply, plain_base},
    name::{RailName, Terms},
    transfer::{
        Destination, FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest,
    },
};

use product::{CallError, Product};
pub use settings::MomoSettings;
use wire::{RequestToPay, Transfer};

pub const TERMS: Terms = Terms {
    carries: &[Provider::Mtn],
    asks_for_codes: &[],
    approval_window: Duration::from_secs(300),
    refuses_second_use: true,
    refuses_second_transfer: true,
    float_is_net: false,
    tells_wallets: true,
    // MTN does not sign callbacks: the address is the secret.
    callback_headers: &[],
};

/// The rail. Clones share connections and the token.
#[derive(Clone)]
pub struct Momo(Arc<Inner>);

struct Inner {
    collection: Product,
    /// Absent without its credentials: then nothing is paid out.
    disbursement: Option<Product>,
    callback_base: Option<String>,
    request_timeout: Duration,
    query_timeout: Duration,
}

impl Momo {
    /// # Errors
    /// An address or a secret is unusable.
    pub fn new(momo: &MomoSettings, callback_base: Option<&Url>) -> anyhow::Result<Self> {
        let client = RailClient::new(&momo.momo_base_url).context("MOMO_BASE_URL")?;
        let environment = &momo.momo_target_environment;
        let product = |path, credentials| Product::new(path, &client, environment, credentials);
        let collection = product("/collection", momo.collection());
        let collection = collection.context("MTN's collection product")?;
        let disbursement = momo.disbursement();
        let disbursement = disbursement
            .map(|credentials| product("/disbursement", credentials))
            .transpose()
            .context("MTN's disbursement product")?;
        let callback_base = callback_base.map(plain_base);
        Ok(Self(Arc::new(Inner {
            collection,
            disbursement,
            callback_base: callback_base.transpose().context("CALLBACK_BASE_URL")?,
            request_timeout: momo.momo_request_timeout,
            query_timeout: momo.momo_query_timeout,
        })))
    }

    pub async fn request_payment(&self, request: &PaymentRequest) -> RailAnswer<RequestOutcome> {
        let body = RequestToPay::new(request);
        let collection = &self.0.collection;
        let make = || {
            let made = collection
                .request(Method::POST, "/v1_0/requesttopay")
                .header("X-Reference-Id", request.rail_reference.to_string())
                .json(&body);
            match self.callback_address(&request.callback_token) {
                Some(address) => made.header("X-Callback-Url", address),
                None => made,
            }
        };
        match collection.send(make, self.0.request_timeout).await {
            Ok(reply) => answers::requested(&reply),
            Err(CallError::NotSent(reason)) => RailAnswer::silent(RequestOutcome::Refused(reason)),
            Err(CallError::Lost) => RailAnswer::silent(RequestOutcome::Unknown),
        }
    }

    pub async fn query(&self, query: &Query) -> RailAnswer<QueryOutcome> {
        let path = format!("/v1_0/requesttopay/{}", query.rail_reference);
        let collection = &self.0.collection;
        let make = || collection.request(Method::GET, &path);
        match collection.send(make, self.0.query_timeout).await {
            Ok(reply) => answers::found(&reply, query.rail_reference),
            Err(CallError::NotSent(_) | CallError::Lost) => {
                RailAnswer::silent(QueryOutcome::Unknown)
            }
        }
    }

    /// The product that debits answers for payers.
    pub async fn wallet(&self, phone: &Phone) -> RailAnswer<WalletOutcome> {
        let msisdn = phone.without_plus();
        let path = format!("/v1_0/accountholder/msisdn/{msisdn}/active");
        let collection = &self.0.collection;
        let make = || collection.request(Method::GET, &path);
        match collection.send(make, self.0.query_timeout).await {
            Ok(reply) => answers::wallet(&reply),
            Err(CallError::NotSent(_) | CallError::Lost) => {
                RailAnswer::silent(WalletOutcome::Unknown)
            }
        }
    }

    /// MTN does not sign callbacks: their secret address identifies the charge.
    pub fn read_callback(&self, _: &Callback) -> Result<CallbackSubject, CallbackError> {
        Ok(CallbackSubject::Address)
    }

    pub async fn send(&self, request: &TransferRequest) -> RailAnswer<SendOutcome> {
        let unconfigured = SendOutcome::NotSent(FailureReason::RailConfiguration);
        let (Some(product), Some(body)) = (&self.0.disbursement, Transfer::new(request)) else {
            return RailAnswer::silent(unconfigured);
        };
        let make = || {
            let made = product
                .request(Method::POST, "/v1_0/transfer")
                .header("X-Reference-Id", request.rail_reference.to_string())
                .json(&body);
            match self.callback_address(&request.callback_token) {
                Some(address) => made.header("X-Callback-Url", address),
                None => made,
            }
        };
        match product.send(make, self.0.request_timeout).await {
            Ok(reply) => {
                let sent = transfers::sent(&reply);
                match &sent.outcome {
                    SendOutcome::Refused(_)
                        if transfers::is_ambiguous(&reply) && self.lacks(request.amount).await =>
                    {
                        let outcome = SendOutcome::FloatEmpty;
                        RailAnswer { outcome, ..sent }
                    }
                    _ => sent,
                }
            }
            Err(CallError::NotSent(reason)) => RailAnswer::silent(SendOutcome::NotSent(reason)),
            Err(CallError::Lost) => RailAnswer::silent(SendOutcome::Unknown),
        }
    }

    pub async fn query_transfer(
        &self,
        reference: RailReference,
        amount: Money,
    ) -> RailAnswer<TransferOutcome> {
        let path = format!("/v1_0/transfer/{reference}");
        let Some(reply) = self.look(&path).await else {
            return RailAnswer::silent(TransferOutcome::Unknown);
        };
        let found = transfers::found(&reply, reference);
        match &found.outcome {
            TransferOutcome::Failed(_)
                if transfers::is_ambiguous(&reply) && self.lacks(amount).await =>
            {
                let outcome = TransferOutcome::FloatEmpty;
                RailAnswer { outcome, ..found }
            }
            _ => found,
        }
    }

    /// Whether our balance is below `amount`, if MTN says how much there is. MTN gives one reason
    /// for a float that is too low and for a payee who may not receive: this tells them apart.
    async fn lacks(&self, amount: Money) -> bool {
        self.float().await.outcome.lacks(amount)
    }

    pub async fn float(&self) -> RailAnswer<FloatOutcome> {
        match self.look("/v1_0/account/balance").await {
            Some(reply) => transfers::float(&reply),
            None => RailAnswer::silent(FloatOutcome::Unknown),
        }
    }

    pub async fn holder(&self, destination: &Destination) -> RailAnswer<HolderOutcome> {
        let Destination::Wallet { phone, .. } = destination else {
            return RailAnswer::silent(HolderOutcome::Unknown);
        };
        let account = format!("/v1_0/accountholder/msisdn/{}", phone.without_plus());
        let Some(reply) = self.look(&format!("{account}/active")).await else {
            return RailAnswer::silent(HolderOutcome::Unknown);
        };
        let active = transfers::active(&reply);
        if active.outcome != HolderOutcome::Active {
            return active;
        }
        match self.look(&format!("{account}/basicuserinfo")).await {
            Some(reply) => transfers::named(&reply),
            None => active,
        }
    }

    /// The reply to a question about disbursements, if there is one.
    async fn look(&self, path: &str) -> Option<Reply> {
        let product = self.0.disbursement.as_ref()?;
        let make = || product.request(Method::GET, path);
        product.send(make, self.0.query_timeout).await.ok()
    }

    fn callback_address(&self, token: &str) -> Option<String> {
        let base = self.0.callback_base.as_ref()?;
        let rail = RailName::Momo;
        Some(format!("{base}/rails/{rail}/{token}"))
    }
}

impl fmt::Debug for Momo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Momo")
    }
}
