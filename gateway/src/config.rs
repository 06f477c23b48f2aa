//! The settings of the gateway: flags, each with an environment variable.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use chassis::{
    clock::Timestamp,
    config::{self, Mode, Refusals, Settings, Telemetry, Tls},
    grpc::{self, Caller},
    money::Currency,
};
use clap::Parser;
use ipnet::IpNet;
use url::Url;

use crate::api::fields;
use crate::checkout::{
    abuse::AbuseLimits,
    quote::{ExchangeRate, ExchangeRates},
    rescue::Rescue,
};

/// The highest setting of `REQUESTS_MAX` and `WAITS_MAX`. Each request takes memory, so a higher one
/// would be no limit.
const REQUESTS_MAX: usize = 1_000_000;

/// The edge: the merchants' JSON API and dashboard, the hosted checkout and the rails' callbacks.
#[derive(Clone, Debug, Parser)]
#[command(name = "gateway", version)]
pub struct Config {
    #[command(subcommand)]
    pub command: Option<config::Command>,

    /// How strict the process is: `production` refuses settings that are only for trying things
    /// out.
    #[arg(long, env = "MODE", value_enum, default_value_t)]
    pub mode: Mode,

    /// Address of the merchants' API.
    #[arg(long, env = "API_LISTEN", default_value = "0.0.0.0:8080")]
    pub api_listen: SocketAddr,

    /// Address of `/healthz`, `/readyz` and `/metrics`. Without it, they are not served.
    #[arg(long, env = "ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,

    /// Address of merchants-svc, http:// or https://.
    #[arg(long, env = "MERCHANTS_URL")]
    pub merchants_url: String,

    /// Address of sessions-svc.
    #[arg(long, env = "SESSIONS_URL")]
    pub sessions_url: String,

    /// Address of charges-svc.
    #[arg(long, env = "CHARGES_URL")]
    pub charges_url: String,

    /// Address of webhooks-svc.
    #[arg(long, env = "WEBHOOKS_URL")]
    pub webhooks_url: String,

    /// Address of ratelimit-svc.
    #[arg(long, env = "RATELIMIT_URL")]
    pub ratelimit_url: String,

    /// How long a request waits to be counted. After that, it passes uncounted.
    #[arg(long, env = "RATELIMIT_TIMEOUT", default_value = "250ms", value_parser = config::duration)]
    pub ratelimit_timeout: Duration,

    /// Address of the hosted checkout.
    #[arg(long, env = "CHECKOUT_LISTEN", default_value = "0.0.0.0:8081")]
    pub checkout_listen: SocketAddr,

    /// Public address of the hosted checkout. Payment links begin with it.
    #[arg(long, env = "CHECKOUT_URL")]
    pub checkout_url: Url,

    /// Address of the merchants' dashboard.
    #[arg(long, env = "DASHBOARD_LISTEN", default_value = "0.0.0.0:8082")]
    pub dashboard_listen: SocketAddr,

    /// Public address of the dashboard.
    #[arg(long, env = "DASHBOARD_URL", default_value = "http://127.0.0.1:8082")]
    pub dashboard_url: Url,

    /// Public address of the merchants' API, for the examples that the dashboard shows.
    #[arg(long, env = "API_URL", default_value = "http://127.0.0.1:8080")]
    pub api_url: Url,

    /// Where merchants write to for help: every page of the dashboard names it. Production requires
    /// it.
    #[arg(long, env = "SUPPORT_EMAIL")]
    pub support_email: Option<String>,

    /// Most tries from one client address (of IPv6, a /64) in ten minutes to sign up at the dashboard,
    /// log in, prove who one is or set a password; a /48 has ten times as many. 0 is no limit.
    /// Each replica counts for itself. Accounts have limits of their own.
    #[arg(long, env = "DASHBOARD_TRIES_PER_ADDRESS", default_value_t = 100)]
    pub dashboard_tries_per_address: u32,

    /// Cedis for one unit of each other currency, such as USD=12.50,EUR=13.60. Sessions in a
    /// currency without a rate cannot be paid at the checkout. Production requires one for USD, the
    /// currency of sessions that name none.
    #[arg(long, env = "CHECKOUT_RATES", value_delimiter = ',')]
    pub checkout_rates: Vec<ExchangeRate>,

    /// What to tell payers who see no prompt, in place of our own words: JSON by network and
    /// language, such as {"MTN": {"en": "Dial *170#", "tw": "Frɛ *170#"}}. Each network in it needs
    /// every language, each in one line of at most 300 characters.
    #[arg(long, env = "CHECKOUT_RESCUE")]
    pub checkout_rescue: Option<Rescue>,

    #[command(flatten)]
    pub abuse: AbuseLimits,

    /// Most invalid API keys from one client address in a minute; 0 is no limit.
    #[arg(long, env = "AUTH_FAILURES_PER_MINUTE", default_value_t = 600)]
    pub auth_failures_per_minute: u32,

    /// Most callbacks from one client address in a minute that lack their rail's signature or go to
    /// an address that no rail was given; 0 is no limit.
    #[arg(long, env = "CALLBACK_FAILURES_PER_MINUTE", default_value_t = 600)]
    pub callback_failures_per_minute: u32,

    /// Most requests at once, at the API, the checkout and the dashboard each. Any more get 503 at once. One
    /// client address may use half of them.
    #[arg(long, env = "REQUESTS_MAX", default_value_t = 1024)]
    pub requests_max: usize,

    /// Most requests that wait at once for something to happen (`?wait=`), besides those of
    /// REQUESTS_MAX. Any more are answered at once. One client address may use half of them.
    #[arg(long, env = "WAITS_MAX", default_value_t = 10_000)]
    pub waits_max: usize,

    /// Networks of the proxies whose X-Forwarded-For is believed, separated by commas; `none` if
    /// clients connect directly. Production requires it: behind a proxy that is missing here, all
    /// clients share the proxy's address and its limits.
    #[arg(long, env = "TRUSTED_PROXIES")]
    pub trusted_proxies: Option<TrustedProxies>,

    /// Since when POST /api/payments/initiate has been deprecated.
    #[arg(
        long,
        env = "ALIAS_DEPRECATED_AT",
        default_value = "2026-11-01T00:00:00.000Z"
    )]
    pub alias_deprecated_at: Timestamp,

    /// When POST /api/payments/initiate will be removed, once that is announced.
    #[arg(long, env = "ALIAS_SUNSET")]
    pub alias_sunset: Option<Timestamp>,

    #[command(flatten)]
    pub tls: Tls,

    #[command(flatten)]
    pub telemetry: Telemetry,
}

/// The networks whose X-Forwarded-For is believed.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl FromStr for TrustedProxies {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::default());
        }
        let networks = text.split(',').map(|network| network.trim().parse());
        let networks: Result<_, _> = networks.collect();
        networks
            .map(Self)
            .map_err(|_| "must be networks such as 10.0.0.0/8 with commas between them, or none")
    }
}

impl Config {
    pub fn trusted_proxies(&self) -> Vec<IpNet> {
        self.trusted_proxies.clone().unwrap_or_default().0
    }

    /// The addresses that people are told.
    fn check_public(&self, refusals: &mut Refusals) {
        let urls = [
            ("CHECKOUT_URL", &self.checkout_url),
            ("DASHBOARD_URL", &self.dashboard_url),
            ("API_URL", &self.api_url),
        ];
        for (variable, url) in urls {
            let is_base = matches!(url.scheme(), "http" | "https")
                && url.username().is_empty()
                && url.password().is_none()
                // The pages link to each other by path only.
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none();
            refusals.unless(is_base, variable, "http(s)://host[:port]");
            refusals.public_url(variable, url.as_str());
        }
        let support_email = self.support_email.as_ref();
        let is_address = |email: &String| fields::email_address(email.clone()).is_ok();
        let wants = "an e-mail address such as help@example.com";
        refusals.unless(support_email.is_none_or(is_address), "SUPPORT_EMAIL", wants);
        let wants = "where merchants write to for help,";
        refusals.in_production(support_email.is_some(), "SUPPORT_EMAIL", wants);
    }
}

impl Settings for Config {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn check(&self, refusals: &mut Refusals) {
        let addresses = [
            ("API_LISTEN", Some(self.api_listen)),
            ("CHECKOUT_LISTEN", Some(self.checkout_listen)),
            ("DASHBOARD_LISTEN", Some(self.dashboard_listen)),
            ("ADMIN_LISTEN", self.admin_listen),
        ];
        config::check_listen(refusals, &addresses);
        self.tls.check(refusals);
        self.tls.check_caller(Caller::Gateway, refusals);
        self.telemetry.check(refusals);
        let services = [
            ("MERCHANTS_URL", &self.merchants_url),
            ("SESSIONS_URL", &self.sessions_url),
            ("CHARGES_URL", &self.charges_url),
            ("WEBHOOKS_URL", &self.webhooks_url),
            ("RATELIMIT_URL", &self.ratelimit_url),
        ];
        for (variable, url) in services {
            grpc::check_url(refusals, variable, url, &self.tls);
        }
        self.check_public(refusals);
        let is_clear = ExchangeRates::is_clear(&self.checkout_rates);
        refusals.unless(is_clear, "CHECKOUT_RATES", "one rate for each currency");
        let has_default = ExchangeRates::new(&self.checkout_rates).has(Currency::USD);
        let wants = "a rate for USD, the currency of sessions that name none,";
        refusals.in_production(has_default, "CHECKOUT_RATES", wants);
        let waits = !self.ratelimit_timeout.is_zero();
        refusals.unless(waits, "RATELIMIT_TIMEOUT", "more than nothing");
        let is_some = (1..=REQUESTS_MAX).contains(&self.requests_max);
        refusals.unless(is_some, "REQUESTS_MAX", "at least 1 and at most 1000000");
        let is_some = self.waits_max <= REQUESTS_MAX;
        refusals.unless(is_some, "WAITS_MAX", "at most 1000000");
        let is_all = |net: &IpNet| net.prefix_len() == 0;
        let some = !self.trusted_proxies().iter().any(is_all);
        let wants = "your proxies' networks, not everybody's,";
        refusals.in_production(some, "TRUSTED_PROXIES", wants);
        let is_told = self.trusted_proxies.is_some();
        let wants = "your proxies' networks, or none where clients connect directly,";
        refusals.in_production(is_told, "TRUSTED_PROXIES", wants);
        let limits = [
            ("AUTH_FAILURES_PER_MINUTE", self.auth_failures_per_minute),
            (
                "CALLBACK_FAILURES_PER_MINUTE",
                self.callback_failures_per_minute,
            ),
            (
                "DASHBOARD_TRIES_PER_ADDRESS",
                self.dashboard_tries_per_address,
            ),
        ];
        for (variable, limit) in limits {
            refusals.in_production(limit > 0, variable, "a limit");
        }
        self.abuse.check(refusals);
    }
}
