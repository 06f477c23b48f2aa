//! The whole payment service in one local process: every service on its own loopback port,
//! embedded databases, simulated networks, and one clock that can be moved.
//!
//! `cargo run` starts it, and the end-to-end tests drive it. Nothing here is for production: every
//! service has its own binary, and this crate only calls their `serve`.

mod clock;
pub mod config;
pub mod demo;
mod login;
pub mod ready;
mod services;
mod story;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::{clock::Clock, shutdown::Shutdown};
use proto::{
    merchants::{
        CreateKeyRequest, CreateMerchantRequest, GetMerchantRequest, KycStatus,
        merchant_operations_client::MerchantOperationsClient,
    },
    webhooks::{GetEndpointRequest, webhook_operations_client::WebhookOperationsClient},
};

use config::Config;
use ready::{DemoMerchant, Ready};

pub use story::Story;

/// The file in the data folder with the demo merchant's id and key.
const DEMO_FILE: &str = "demo.json";

/// The running services.
pub struct Stack {
    pub ready: Ready,
    pub clock: Clock,
    services: services::Services,
    demo_file: PathBuf,
    shutdown: Shutdown,
    /// Removed on drop.
    _ephemeral: Option<tempfile::TempDir>,
}

impl Stack {
    /// Starts everything and returns once it answers.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        let ephemeral = config.ephemeral.then(tempfile::tempdir).transpose()?;
        let data = match &ephemeral {
            Some(folder) => folder.path().to_owned(),
            None => config.data.clone(),
        };
        std::fs::create_dir_all(&data)
            .with_context(|| format!("the data folder {} cannot be made", data.display()))?;
        let clock = Clock::travelling(data.join("clock"))
            .context("how far the clock was moved cannot be read from the data folder")?;
        let shutdown = Shutdown::new();
        let services = services::start(config, &data, &clock, &shutdown).await?;
        let demo_file = data.join(DEMO_FILE);
        let demo = demo_merchant(&services, &demo_file).await?;
        Ok(Self {
            ready: services.ready(demo),
            demo_file,
            clock,
            services,
            shutdown,
            _ephemeral: ephemeral,
        })
    }

    /// Lets a person of the demo merchant into the dashboard, unless one was let in before. It takes
    /// the way of every invitation, by a mail.
    pub async fn let_in(&mut self) -> anyhow::Result<()> {
        if self.ready.demo.login.is_none() {
            let login = login::let_in(&self.services, &self.ready).await?;
            self.ready.demo.login = Some(login);
            let kept = serde_json::to_vec_pretty(&self.ready.demo)?;
            ready::write_private(&self.demo_file, &kept)?;
        }
        Ok(())
    }

    /// Stops everything, with each service draining what runs. Fails if a service had failed.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.begin();
        self.services.wait().await
    }

    /// Returns if a service ends by itself, which none should.
    pub async fn failed(&mut self) -> anyhow::Error {
        self.services.failed().await
    }
}

/// The merchant and key stored in `file` if the merchant still exists, otherwise new ones, which
/// are then stored there.
async fn demo_merchant(services: &services::Services, file: &Path) -> anyhow::Result<DemoMerchant> {
    let mut merchants = MerchantOperationsClient::new(services.merchants_operators.clone());
    if let Some(mut kept) = read_demo(file)? {
        let request = GetMerchantRequest {
            merchant_id: kept.merchant_id.clone(),
        };
        if merchants.get_merchant(request).await.is_ok() {
            kept.webhook_secret = webhook_secret(services, &kept.merchant_id).await;
            return Ok(kept);
        }
    }
    let new = CreateMerchantRequest {
        name: "Demo Shop".to_owned(),
        email: "demo@example.com".to_owned(),
        email_verified: true,
        kyc_status: KycStatus::Approved.into(),
        accepting_payments: true,
    };
    let merchant = merchants.create_merchant(new).await?.into_inner();
    let request = CreateKeyRequest {
        merchant_id: merchant.merchant_id.clone(),
        label: "demo".to_owned(),
    };
    let key = merchants.create_key(request).await?.into_inner();
    let demo = DemoMerchant {
        merchant_id: merchant.merchant_id,
        api_key: key.api_key,
        login: None,
        webhook_secret: None,
    };
    ready::write_private(file, &serde_json::to_vec_pretty(&demo)?)?;
    Ok(demo)
}

fn read_demo(file: &Path) -> anyhow::Result<Option<DemoMerchant>> {
    match std::fs::read(file) {
        Ok(content) => serde_json::from_slice(&content)
            .map(Some)
            .with_context(|| format!("{} is not what was written there", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn webhook_secret(services: &services::Services, merchant_id: &str) -> Option<String> {
    let mut webhooks = WebhookOperationsClient::new(services.webhooks_operators.clone());
    let request = GetEndpointRequest {
        merchant_id: merchant_id.to_owned(),
    };
    let endpoint = webhooks.get_endpoint(request).await.ok()?;
    Some(endpoint.into_inner().signing_secret)
}
