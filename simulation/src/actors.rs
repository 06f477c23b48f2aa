//! The actors of a world: merchants' backends, payers at the checkout, operators, and the chaos
//! that takes replicas away. Each follows its own choices.

pub mod chaos;
pub mod disburse;
pub mod merchant;
pub mod operator;
pub mod payer;
pub mod treasury;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use proto::{
    merchants::{
        CreateKeyRequest, CreateMerchantRequest, KycStatus,
        merchant_operations_client::MerchantOperationsClient,
    },
    webhooks::{EventType, SetEndpointRequest, webhook_operations_client::WebhookOperationsClient},
};
use reqwest::{RequestBuilder, header::RETRY_AFTER};
use serde_json::Value;

use crate::{
    history::{History, RequestEnd},
    service::Service,
    time::{Millis, SECOND, Time},
    world::{World, url},
};

/// Merchants in a world.
pub const MERCHANTS: usize = 2;

const EVENTS: [EventType; 6] = [
    EventType::PaymentSuccess,
    EventType::PaymentFailed,
    EventType::PayoutSuccess,
    EventType::PayoutFailed,
    EventType::RefundSuccess,
    EventType::RefundFailed,
];

/// Attempts at what must be there before anything begins.
const TRIES_MAX: u32 = 30;

/// What every actor has.
#[derive(Clone)]
pub struct Stage {
    pub world: Arc<World>,
    pub history: History,
    pub merchants: Arc<[Account]>,
    client: reqwest::Client,
}

/// A merchant's account.
#[derive(Clone, Debug)]
pub struct Account {
    pub merchant_id: String,
    pub api_key: String,
    pub signing_secret: String,
}

impl Stage {
    /// Lets time run, and opens the merchants' accounts.
    ///
    /// # Errors
    /// A service refuses although nothing fails yet.
    pub async fn set(world: Arc<World>) -> anyhow::Result<Self> {
        // A replica that starts beside another may have to wait for it.
        world.let_time_run()?;
        let mut merchants = Vec::new();
        for number in 0..MERCHANTS {
            let account = insist(&world.time, async || Account::open(&world, number).await);
            merchants.push(account.await?);
        }
        let stage = Self {
            world,
            history: History::default(),
            merchants: merchants.into(),
            // In real time. Only a bug in the simulation itself would use it up.
            client: chassis::http::client(Duration::from_secs(300))?,
        };
        treasury::begin(&stage).await?;
        Ok(stage)
    }

    fn api(&self, path: &str) -> String {
        format!("{}{path}", url(self.world.api.address()))
    }

    fn page(&self, session_id: &str, rest: &str) -> String {
        format!(
            "{}/pay/{session_id}{rest}",
            url(self.world.checkout.address())
        )
    }

    /// Sends, and waits for as long as the caller is patient.
    async fn ask(&self, request: RequestBuilder, patience: Millis) -> RequestEnd {
        let exchange = async {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            let retry_after = response.headers().contains_key(RETRY_AFTER);
            let body = response.bytes().await.ok()?;
            let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
            let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
            let at = self.world.time.now();
            Some(RequestEnd::Answer {
                at,
                status,
                body,
                retry_after,
            })
        };
        tokio::select! {
            told = exchange => told.unwrap_or(RequestEnd::Nothing),
            () = self.world.time.sleep(patience) => RequestEnd::Nothing,
        }
    }
}

/// Tries again what met a replica that has yet to start, although nothing fails yet.
async fn insist<T>(time: &Time, attempt: impl AsyncFn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut tries = 0;
    loop {
        match attempt().await {
            Err(_) if tries < TRIES_MAX => tries += 1,
            ended => return ended,
        }
        time.sleep(SECOND).await;
    }
}

impl Account {
    async fn open(world: &World, number: usize) -> anyhow::Result<Self> {
        let mut merchants =
            MerchantOperationsClient::new(world.inside.channel(Service::Merchants)?);
        let new = CreateMerchantRequest {
            name: format!("Shop {number}"),
            email: format!("shop{number}@example.com"),
            email_verified: true,
            kyc_status: KycStatus::Approved.into(),
            accepting_payments: true,
        };
        let merchant = merchants
            .create_merchant(new)
            .await
            .context("no merchant")?
            .into_inner();
        let request = CreateKeyRequest {
            merchant_id: merchant.merchant_id.clone(),
            label: "simulation".to_owned(),
        };
        let key = merchants
            .create_key(request)
            .await
            .context("no key")?
            .into_inner();
        let mut webhooks = WebhookOperationsClient::new(world.inside.channel(Service::Webhooks)?);
        let request = SetEndpointRequest {
            merchant_id: merchant.merchant_id.clone(),
            url: world.receiver.url(number),
            // The additive ones are sent to endpoints that name them.
            events: EVENTS.map(Into::into).to_vec(),
        };
        let endpoint = webhooks
            .set_endpoint(request)
            .await
            .context("no endpoint")?
            .into_inner();
        Ok(Self {
            merchant_id: merchant.merchant_id,
            api_key: key.api_key,
            signing_secret: endpoint.signing_secret,
        })
    }
}
