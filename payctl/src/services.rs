//! Where the services are, and how their refusals read.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use chassis::{config::Tls, grpc};
use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::Status;

use crate::merchant_api::MerchantApi;

/// The error that an operator sees, printed with its causes.
pub type Failure = anyhow::Error;

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, Args)]
pub struct Services {
    /// Address at which merchants-svc listens to operators.
    #[arg(long, env, global = true)]
    merchants_grpc_url: Option<String>,

    /// Address at which charges-svc listens to operators.
    #[arg(long, env, global = true)]
    charges_grpc_url: Option<String>,

    /// Address at which webhooks-svc listens to operators.
    #[arg(long, env, global = true)]
    webhooks_grpc_url: Option<String>,

    /// Address of the local stack's clock.
    #[arg(long, env, global = true)]
    clock_url: Option<String>,

    /// Address of the merchants' API.
    #[arg(long, env, global = true)]
    api_url: Option<String>,

    /// A merchant's API key.
    #[arg(long, env, global = true, hide_env_values = true)]
    api_key: Option<SecretString>,

    #[command(flatten)]
    tls: Tls,
}

/// What signs the events that `listen` forwards.
#[derive(Debug, Args)]
pub struct SigningSecret {
    /// Signs the events: whsec_…. Without it, a new secret is made and shown.
    #[arg(long, env = "WEBHOOK_SECRET", hide_env_values = true)]
    secret: Option<SecretString>,
}

impl SigningSecret {
    /// The secret that was given. Refused here, because clap would show it.
    pub fn given(self) -> Result<Option<SecretString>, Failure> {
        let is_secret = |text: &str| {
            text.strip_prefix("whsec_")
                .is_some_and(|rest| !rest.is_empty())
        };
        match self.secret {
            Some(given) if !is_secret(given.expose_secret()) => {
                Err(anyhow!("WEBHOOK_SECRET is not a signing secret: whsec_…"))
            }
            given => Ok(given),
        }
    }
}

impl Services {
    pub fn merchants(&self) -> Result<grpc::Channel, Failure> {
        self.connect(self.merchants_grpc_url.as_deref(), "MERCHANTS_GRPC_URL")
    }

    pub fn charges(&self) -> Result<grpc::Channel, Failure> {
        self.connect(self.charges_grpc_url.as_deref(), "CHARGES_GRPC_URL")
    }

    pub fn webhooks(&self) -> Result<grpc::Channel, Failure> {
        self.connect(self.webhooks_grpc_url.as_deref(), "WEBHOOKS_GRPC_URL")
    }

    pub fn clock_url(&self) -> Result<&str, Failure> {
        self.clock_url.as_deref().ok_or_else(|| unset("CLOCK_URL"))
    }

    /// The merchants' API, for answers that may take so long.
    pub fn merchant_api(&self, answer_max: Duration) -> Result<MerchantApi, Failure> {
        let url = self.api_url.as_deref();
        let url = url.ok_or_else(|| {
            anyhow!("API_URL is not set: the address of the API, for example http://127.0.0.1:8080")
        })?;
        let key = self.api_key.as_ref();
        let key = key.ok_or_else(|| anyhow!("API_KEY is not set: a merchant's API key"))?;
        let key = key.expose_secret().parse();
        let key = key.map_err(|_| anyhow!("API_KEY is not an API key: service_sk_…"))?;
        MerchantApi::new(url, key, answer_max)
    }

    fn connect(&self, url: Option<&str>, variable: &'static str) -> Result<grpc::Channel, Failure> {
        let url = url.ok_or_else(|| unset(variable))?;
        grpc::connect(url, &self.tls, ANSWER_MAX).with_context(|| format!("{variable} is {url}"))
    }
}

fn unset(variable: &str) -> Failure {
    anyhow!("{variable} is not set: the address to ask, for example http://127.0.0.1:50052")
}

/// A refusal in words: the reason, the fields at fault, the message.
pub fn refusal(status: Status) -> Failure {
    let fields: Vec<String> = grpc::violations(&status)
        .into_iter()
        .map(|(field, description)| format!("{field} {description}"))
        .collect();
    if !fields.is_empty() {
        return anyhow!("{}", fields.join("; "));
    }
    match grpc::reason(&status) {
        Some(reason) => anyhow!("{reason}: {}", status.message()),
        None => anyhow!("{:?}: {}", status.code(), status.message()),
    }
}
