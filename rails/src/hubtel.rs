//! Hubtel in Ghana: Receive Money into the POS Sales account, and Direct Send Money from the Prepaid
//! Deposit account. Nothing moves between the two by itself.
//!
//! Hubtel has no sandbox and keeps its documents behind a login: all that is known here is from
//! copies of them (2025-12 to 2026-04). Where those differ or are silent, the code says so and reads
//! leniently.
//!
//! Promise: a payment request goes out once, and so does a transfer that Hubtel may have taken,
//! because what it makes of a reference's second use is documented nowhere. A payment fails only by
//! a refusal in the first reply or by the end of the payer's time.

mod answers;
mod fields;
mod settings;
mod transfers;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    failure::FailureReason, ids::RailReference, money::Money, phone::Phone, provider::Provider,
};
use reqwest::{
    Method, RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderValue},
};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use crate::{
    answer::{PaymentRequest, Query, QueryOutcome, RailAnswer, RequestOutcome, WalletOutcome},
    callback::{Callback, CallbackError, CallbackSubject},
    client::{RailClient, Reply, SendError, plain_base, secret_header},
    name::{RailName, Terms},
    telemetry::misconfigured,
    transfer::{
        Destination, FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest,
    },
};

pub use settings::HubtelSettings;
use wire::{ReceiveMoney, SendMoney};

pub const TERMS: Terms = Terms {
    carries: &[Provider::Mtn, Provider::Telecel, Provider::At],
    asks_for_codes: &[],
    // After as long without a final callback, Hubtel demands the status check. That a payer has no
    // longer than that is to be confirmed with Hubtel.
    approval_window: Duration::from_secs(300),
    refuses_second_use: false,
    refuses_second_transfer: false,
    // When it takes the amount is documented nowhere.
    float_is_net: false,
    tells_wallets: true,
    // Hubtel does not sign callbacks: the address is the secret.
    callback_headers: &[],
};

/// The rail. Clones share connections.
#[derive(Clone)]
pub struct Hubtel(Arc<Inner>);

struct Inner {
    /// Absent without its credentials: then nothing goes over it.
    account: Option<Account>,
    callback_base: Option<String>,
    request_timeout: Duration,
    query_timeout: Duration,
}

struct Account {
    /// `Basic …`
    authorization: HeaderValue,
    pos_sales_id: String,
    /// Absent if nothing is paid out.
    prepaid_deposit_id: Option<String>,
    hosts: Hosts,
}

/// Each of Hubtel's APIs has a host of its own.
struct Hosts {
    receive: RailClient,
    receive_status: RailClient,
    send: RailClient,
    send_status: RailClient,
    balance: RailClient,
    names: RailClient,
}

impl Hosts {
    /// `stand_in`: an address in place of all of them.
    fn new(stand_in: Option<&Url>) -> anyhow::Result<Self> {
        let host = |own: &str| {
            let own = || Url::parse(own).context("a host of Hubtel's");
            let base = stand_in.cloned().map_or_else(own, Ok)?;
            RailClient::new(&base).context("HUBTEL_BASE_URL")
        };
        Ok(Self {
            receive: host("https://rmp.hubtel.com")?,
            receive_status: host("https://api-txnstatus.hubtel.com")?,
            send: host("https://smp.hubtel.com")?,
            send_status: host("https://smrsc.hubtel.com")?,
            balance: host("https://trnf.hubtel.com")?,
            names: host("https://rnv.hubtel.com")?,
        })
    }
}

impl Account {
    fn new(hubtel: &HubtelSettings) -> anyhow::Result<Option<Self>> {
        let Some(credentials) = hubtel.credentials() else {
            return Ok(None);
        };
        let authorization = format!("Basic {}", credentials.basic().expose_secret());
        Ok(Some(Self {
            authorization: secret_header(&authorization).context("HUBTEL_API_KEY")?,
            pos_sales_id: credentials.pos_sales_id.to_owned(),
            prepaid_deposit_id: hubtel.hubtel_prepaid_deposit_id.clone(),
            hosts: Hosts::new(hubtel.hubtel_base_url.as_ref())?,
        }))
    }

    fn request(&self, host: &RailClient, method: Method, path: &str) -> RequestBuilder {
        let authorization = self.authorization.clone();
        host.request(method, path)
            .header(AUTHORIZATION, authorization)
    }
}

impl Hubtel {
    /// # Errors
    /// An address or a secret is unusable.
    pub fn new(hubtel: &HubtelSettings, callback_base: Option<&Url>) -> anyhow::Result<Self> {
        let callback_base = callback_base.map(plain_base);
        Ok(Self(Arc::new(Inner {
            account: Account::new(hubtel)?,
            callback_base: callback_base.transpose().context("CALLBACK_BASE_URL")?,
            request_timeout: hubtel.hubtel_request_timeout,
            query_timeout: hubtel.hubtel_query_timeout,
        })))
    }

    pub async fn request_payment(&self, request: &PaymentRequest) -> RailAnswer<RequestOutcome> {
        let refused = |reason| RailAnswer::silent(RequestOutcome::Refused(reason));
        let address = self.callback_address(&request.callback_token);
        let (Some(account), Some(address)) = (&self.0.account, address) else {
            return refused(FailureReason::RailConfiguration);
        };
        let path = format!(
            "/merchantaccount/merchants/{}/receive/mobilemoney",
            account.pos_sales_id
        );
        let hosts = &account.hosts;
        let body = ReceiveMoney::new(request, address);
        let made = account.request(&hosts.receive, Method::POST, &path);
        let made = made.json(&body);
        let deadline = Instant::now() + self.0.request_timeout;
        match hosts.receive.send(made, deadline).await {
            Ok(reply) => answers::requested(&reply, request.rail_reference, &body.description),
            Err(SendError::NotSent) => refused(FailureReason::RailUnavailable),
            Err(SendError::Lost) => RailAnswer::silent(RequestOutcome::Unknown),
        }
    }

    pub async fn query(&self, query: &Query) -> RailAnswer<QueryOutcome> {
        let unknown = RailAnswer::silent(QueryOutcome::Unknown);
        let Some(account) = &self.0.account else {
            // What is open began with an account.
            misconfigured(RailName::Hubtel, "query");
            return unknown;
        };
        let reference = query.rail_reference;
        let path = format!(
            "/transactions/{}/status?clientReference={}",
            account.pos_sales_id,
            wire::client_reference(reference)
        );
        match self
            .look(account, &account.hosts.receive_status, &path)
            .await
        {
            Ok(reply) => answers::found(&reply, reference),
            Err(SendError::NotSent | SendError::Lost) => unknown,
        }
    }

    pub async fn wallet(&self, provider: Provider, phone: &Phone) -> RailAnswer<WalletOutcome> {
        let reply = self.verify(provider, phone).await;
        reply.map_or(RailAnswer::silent(WalletOutcome::Unknown), |reply| {
            answers::wallet(&reply)
        })
    }

    /// Hubtel does not sign callbacks: their secret address identifies the charge.
    pub fn read_callback(&self, _: &Callback) -> Result<CallbackSubject, CallbackError> {
        Ok(CallbackSubject::Address)
    }

    /// Why a payment failed is said in callbacks alone.
    pub fn callback_text(&self, callback: &Callback) -> Option<String> {
        answers::callback_text(&callback.body)
    }

    pub async fn send(&self, request: &TransferRequest) -> RailAnswer<SendOutcome> {
        let not_sent = |reason| RailAnswer::silent(SendOutcome::NotSent(reason));
        let address = self.callback_address(&request.callback_token);
        let body = address.and_then(|address| SendMoney::new(request, address));
        let (Some((account, prepaid)), Some(body)) = (self.paying(), body) else {
            return not_sent(FailureReason::RailConfiguration);
        };
        let path = format!("/api/merchants/{prepaid}/send/mobilemoney");
        let hosts = &account.hosts;
        let made = account
            .request(&hosts.send, Method::POST, &path)
            .json(&body);
        let deadline = Instant::now() + self.0.request_timeout;
        match hosts.send.send(made, deadline).await {
            Ok(reply) => transfers::sent(&reply, request),
            Err(SendError::NotSent) => not_sent(FailureReason::RailUnavailable),
            Err(SendError::Lost) => RailAnswer::silent(SendOutcome::Unknown),
        }
    }

    pub async fn query_transfer(
        &self,
        reference: RailReference,
        amount: Money,
    ) -> RailAnswer<TransferOutcome> {
        let unknown = RailAnswer::silent(TransferOutcome::Unknown);
        let Some((account, prepaid)) = self.paying() else {
            misconfigured(RailName::Hubtel, "query_transfer");
            return unknown;
        };
        // A sample leaves out `/transactions`: to be confirmed with Hubtel.
        let reference_there = wire::client_reference(reference);
        let path = format!(
            "/api/merchants/{prepaid}/transactions/status?clientReference={reference_there}"
        );
        match self.look(account, &account.hosts.send_status, &path).await {
            Ok(reply) => {
                let found = transfers::found(&reply, reference);
                match &found.outcome {
                    // The status gives no reason. A callback that names the float is unsigned, so the
                    // balance decides.
                    TransferOutcome::Failed(FailureReason::RailError)
                        if self.float().await.outcome.lacks(amount) =>
                    {
                        let outcome = TransferOutcome::FloatEmpty;
                        RailAnswer { outcome, ..found }
                    }
                    _ => found,
                }
            }
            Err(SendError::NotSent | SendError::Lost) => unknown,
        }
    }

    pub async fn float(&self) -> RailAnswer<FloatOutcome> {
        let unknown = RailAnswer::silent(FloatOutcome::Unknown);
        let Some((account, prepaid)) = self.paying() else {
            return unknown;
        };
        let path = format!("/api/inter-transfers/prepaid/{prepaid}");
        match self.look(account, &account.hosts.balance, &path).await {
            Ok(reply) => transfers::float(&reply),
            Err(SendError::NotSent | SendError::Lost) => unknown,
        }
    }

    pub async fn holder(&self, destination: &Destination) -> RailAnswer<HolderOutcome> {
        let reply = match destination {
            Destination::Wallet {
                provider, phone, ..
            } => self.verify(*provider, phone).await,
            Destination::Bank { .. } => None,
        };
        reply.map_or(RailAnswer::silent(HolderOutcome::Unknown), |reply| {
            transfers::named(&reply)
        })
    }

    /// Whose wallet a number is. Hubtel enables this for each account on request.
    async fn verify(&self, provider: Provider, phone: &Phone) -> Option<Reply> {
        let account = self.0.account.as_ref()?;
        let path = format!(
            "/v2/merchantaccount/merchants/{}/mobilemoney/verify?channel={}&customerMsisdn={}",
            account.pos_sales_id,
            wire::channel(provider),
            phone.without_plus()
        );
        let told = self.look(account, &account.hosts.names, &path).await;
        told.ok()
    }

    /// What pays, and the number of its account at Hubtel.
    fn paying(&self) -> Option<(&Account, &str)> {
        let account = self.0.account.as_ref()?;
        Some((account, account.prepaid_deposit_id.as_deref()?))
    }

    async fn look(
        &self,
        account: &Account,
        host: &RailClient,
        path: &str,
    ) -> Result<Reply, SendError> {
        let asked = account.request(host, Method::GET, path);
        host.send(asked, Instant::now() + self.0.query_timeout)
            .await
    }

    fn callback_address(&self, token: &str) -> Option<String> {
        let base = self.0.callback_base.as_ref()?;
        let rail = RailName::Hubtel;
        Some(format!("{base}/rails/{rail}/{token}"))
    }
}

impl fmt::Debug for Hubtel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hubtel")
    }
}
