//! Settings, from flags or the environment.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use chassis::{
    config::{Mode, Refusals, Settings, Telemetry, duration},
    money::Currency,
};
use clap::Parser;
use url::Url;

use crate::payment::Timing;

/// How long Paystack's payers have unless a prompt time is set (rails §4.2).
const PAYSTACK_PROMPT: Duration = Duration::from_secs(180);

/// How long MTN's payers have unless a prompt time is set (rails §4.1).
const MOMO_PROMPT: Duration = Duration::from_secs(300);

/// Simulated mobile-money networks: MTN MoMo and Paystack on one address, with a handset page.
#[derive(Clone, Parser)]
#[command(name = "railsim", version)]
pub struct Config {
    /// Anything but `development` is refused: these networks move no money.
    #[arg(long, env = "MODE", value_enum, default_value_t)]
    pub mode: Mode,

    /// Address of the networks' APIs and the handset page.
    #[arg(long, env = "RAILSIM_LISTEN", default_value = "127.0.0.1:8083")]
    pub listen: SocketAddr,

    /// Folder for the book of debits. Without it, the book is lost with the process.
    #[arg(long, env = "RAILSIM_DATA")]
    pub data: Option<PathBuf>,

    /// How long a payer has to answer a prompt [default: 300s on MTN, 180s on Paystack].
    #[arg(
        long,
        env = "RAILSIM_PROMPT_TIMEOUT",
        value_parser = duration
    )]
    pub prompt_timeout: Option<Duration>,

    /// How long a payer takes to answer a prompt.
    #[arg(
        long,
        env = "RAILSIM_APPROVE_DELAY",
        default_value = "1s",
        value_parser = duration
    )]
    pub approve_delay: Duration,

    /// How long the receiver of a callback may take to answer.
    #[arg(
        long,
        env = "RAILSIM_CALLBACK_TIMEOUT",
        default_value = "30s",
        value_parser = duration
    )]
    pub callback_timeout: Duration,

    /// Subscription key of MTN's collection product.
    #[arg(long, env = "MOMO_SUBSCRIPTION_KEY", hide_env_values = true)]
    pub momo_subscription_key: String,

    /// API user that gets MTN's tokens.
    #[arg(long, env = "MOMO_API_USER", hide_env_values = true)]
    pub momo_api_user: String,

    /// Key of that API user.
    #[arg(long, env = "MOMO_API_KEY", hide_env_values = true)]
    pub momo_api_key: String,

    /// The only X-Target-Environment that MTN serves.
    #[arg(long, env = "MOMO_TARGET_ENVIRONMENT", default_value = "mtnghana")]
    pub momo_target_environment: String,

    /// The only currency that MTN debits.
    #[arg(long, env = "MOMO_CURRENCY", default_value = "GHS")]
    pub momo_currency: Currency,

    /// The API user's providerCallbackHost. Without it, callbacks may go anywhere.
    #[arg(long, env = "MOMO_CALLBACK_HOST")]
    pub momo_callback_host: Option<String>,

    /// Secret key of the Paystack integration. It also signs Paystack's webhooks.
    #[arg(long, env = "PAYSTACK_SECRET_KEY", hide_env_values = true)]
    pub paystack_secret_key: String,

    /// Where Paystack sends its webhooks. Without it, it sends none.
    #[arg(long, env = "PAYSTACK_CALLBACK_URL", hide_env_values = true)]
    pub paystack_callback_url: Option<String>,

    #[command(flatten)]
    pub telemetry: Telemetry,
}

impl Config {
    pub(crate) fn timing(&self) -> Timing {
        Timing {
            approve_delay: self.approve_delay,
            momo_prompt: self.prompt_timeout.unwrap_or(MOMO_PROMPT),
            paystack_prompt: self.prompt_timeout.unwrap_or(PAYSTACK_PROMPT),
        }
    }
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        let is_trial = self.mode == Mode::Development;
        let wants = "development: simulated networks move no money";
        refusals.unless(is_trial, "MODE", wants);
        self.telemetry.check(refusals);
        let url = self.paystack_callback_url.as_deref();
        let is_url = |url: &str| Url::parse(url).is_ok_and(|url| url.has_host());
        let wants = "http(s)://host[:port]/path";
        refusals.unless(url.is_none_or(is_url), "PAYSTACK_CALLBACK_URL", wants);
    }
}
