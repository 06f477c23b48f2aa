//! The rails' settings: where they are, who we are to them, and which provider goes over which.

use std::{num::NonZeroU32, time::Duration};

use chassis::{
    config::{Refusals, duration},
    ids,
};
use clap::{Args, ValueEnum};
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::rail::{
    self,
    wire::{is_call_timeout, plain_base},
};

/// MTN lets a partner make ten calls a second.
const MOMO_QUERIES_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("not zero");

/// Paystack publishes no limit; this many find the outcome of as many payments as it takes.
const PAYSTACK_QUERIES_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).expect("not zero");

/// Every rail, and the table of which carries which provider.
#[derive(Clone, Debug, Args)]
pub struct Rails {
    #[command(flatten)]
    pub momo: Momo,

    #[command(flatten)]
    pub paystack: Paystack,

    /// The rail that debits MTN wallets.
    #[arg(long, env = "RAIL_MTN", value_enum, default_value_t = RailName::Momo)]
    pub rail_mtn: RailName,

    /// The rail that debits Telecel wallets.
    #[arg(long, env = "RAIL_TELECEL", value_enum, default_value_t = RailName::Paystack)]
    pub rail_telecel: RailName,

    /// The rail that debits AT wallets.
    #[arg(long, env = "RAIL_AT", value_enum, default_value_t = RailName::Paystack)]
    pub rail_at: RailName,

    /// Public address of the gateway, where rails that are told an address with each payment call
    /// back. Without it they are told none, and payments are found by asking alone.
    #[arg(long, env = "CALLBACK_BASE_URL")]
    pub callback_base_url: Option<Url>,

    /// How long a payer has to approve, where the network gives more, as no real one does: networks
    /// give 300 s (MTN MoMo) and 180 s (Paystack).
    #[arg(long, env = "APPROVAL_WINDOW", default_value = "300s", value_parser = duration)]
    pub approval_window: Duration,
}

/// A rail, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RailName {
    Momo,
    Paystack,
}

/// MTN MoMo Open API, collection product.
#[derive(Clone, Debug, Args)]
pub struct Momo {
    /// Address of the API, such as `https://sandbox.momodeveloper.mtn.com`.
    #[arg(long, env = "MOMO_BASE_URL")]
    pub momo_base_url: Url,

    /// Subscription key of the collection product.
    #[arg(long, env = "MOMO_SUBSCRIPTION_KEY", hide_env_values = true)]
    pub momo_subscription_key: SecretString,

    /// API user, a UUID.
    #[arg(long, env = "MOMO_API_USER", hide_env_values = true)]
    pub momo_api_user: SecretString,

    /// API key of the API user.
    #[arg(long, env = "MOMO_API_KEY", hide_env_values = true)]
    pub momo_api_key: SecretString,

    /// `X-Target-Environment`: `sandbox`, or `mtnghana`.
    #[arg(long, env = "MOMO_TARGET_ENVIRONMENT")]
    pub momo_target_environment: String,

    /// How long a payment request may take, the token that it needs included; 8 s at most. Half of
    /// it is left for the request itself.
    #[arg(long, env = "MOMO_REQUEST_TIMEOUT", default_value = "8s", value_parser = duration)]
    pub momo_request_timeout: Duration,

    /// How long a query may take; 8 s at most.
    #[arg(long, env = "MOMO_QUERY_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub momo_query_timeout: Duration,

    /// How often this process asks MTN what became of payments; more wait. Several replicas share
    /// what MTN allows a partner, ten calls a second: each is given its part.
    #[arg(long, env = "MOMO_QUERIES_PER_SECOND", default_value_t = MOMO_QUERIES_PER_SECOND)]
    pub momo_queries_per_second: NonZeroU32,
}

/// Paystack Charge API.
#[derive(Clone, Debug, Args)]
pub struct Paystack {
    /// Address of the API.
    #[arg(
        long,
        env = "PAYSTACK_BASE_URL",
        default_value = "https://api.paystack.co"
    )]
    pub paystack_base_url: Url,

    /// Secret key (`sk_live_…` or `sk_test_…`); also signs what Paystack sends us.
    #[arg(long, env = "PAYSTACK_SECRET_KEY", hide_env_values = true)]
    pub paystack_secret_key: SecretString,

    /// Domain of the e-mail address that stands in for a payer who gave none.
    #[arg(long, env = "PAYSTACK_EMAIL_DOMAIN")]
    pub paystack_email_domain: String,

    /// The secret last segment of the webhook address that is configured at Paystack:
    /// `{gateway}/rails/paystack/{token}`.
    #[arg(long, env = "PAYSTACK_CALLBACK_TOKEN", hide_env_values = true)]
    pub paystack_callback_token: SecretString,

    /// How long a payment request or a submitted OTP may take; 8 s at most.
    #[arg(long, env = "PAYSTACK_REQUEST_TIMEOUT", default_value = "8s", value_parser = duration)]
    pub paystack_request_timeout: Duration,

    /// How long a query may take; 8 s at most.
    #[arg(long, env = "PAYSTACK_QUERY_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub paystack_query_timeout: Duration,

    /// How often this process asks Paystack what became of payments; more wait. Each replica has as
    /// many.
    #[arg(
        long,
        env = "PAYSTACK_QUERIES_PER_SECOND",
        default_value_t = PAYSTACK_QUERIES_PER_SECOND
    )]
    pub paystack_queries_per_second: NonZeroU32,
}

impl Rails {
    pub fn check(&self, refusals: &mut Refusals) {
        for (variable, rail) in [
            ("RAIL_TELECEL", self.rail_telecel),
            ("RAIL_AT", self.rail_at),
        ] {
            let carries = rail == RailName::Paystack;
            refusals.unless(carries, variable, "paystack: momo carries MTN alone");
        }
        if let Some(url) = &self.callback_base_url {
            check_url(refusals, "CALLBACK_BASE_URL", url);
        }
        let waits = !self.approval_window.is_zero();
        refusals.unless(waits, "APPROVAL_WINDOW", "more than nothing");
        // A charge would be given up while the payer can still approve it.
        let is_real = self.approval_window >= rail::Momo::APPROVAL_WINDOW;
        refusals.in_production(is_real, "APPROVAL_WINDOW", "at least 5m");
        self.momo.check(refusals);
        self.paystack.check(refusals);
    }

    /// The longest that any call of a rail may take.
    pub fn longest_call(&self) -> Duration {
        let (momo, paystack) = (&self.momo, &self.paystack);
        momo.momo_request_timeout
            .max(momo.momo_query_timeout)
            .max(paystack.paystack_request_timeout)
            .max(paystack.paystack_query_timeout)
    }
}

impl Momo {
    fn check(&self, refusals: &mut Refusals) {
        check_url(refusals, "MOMO_BASE_URL", &self.momo_base_url);
        let key = &self.momo_subscription_key;
        check_secret(refusals, "MOMO_SUBSCRIPTION_KEY", key);
        let user = self.momo_api_user.expose_secret();
        let is_uuid = Uuid::parse_str(user).is_ok();
        refusals.unless(is_uuid, "MOMO_API_USER", "the API user's UUID");
        check_secret(refusals, "MOMO_API_KEY", &self.momo_api_key);
        let target = &self.momo_target_environment;
        let is_name = is_name(target);
        refusals.unless(is_name, "MOMO_TARGET_ENVIRONMENT", "mtnghana or sandbox");
        let is_real = !target.eq_ignore_ascii_case("sandbox");
        refusals.in_production(is_real, "MOMO_TARGET_ENVIRONMENT", "mtnghana");
        check_timeout(refusals, "MOMO_REQUEST_TIMEOUT", self.momo_request_timeout);
        check_timeout(refusals, "MOMO_QUERY_TIMEOUT", self.momo_query_timeout);
    }
}

impl Paystack {
    fn check(&self, refusals: &mut Refusals) {
        check_url(refusals, "PAYSTACK_BASE_URL", &self.paystack_base_url);
        let key = &self.paystack_secret_key;
        check_secret(refusals, "PAYSTACK_SECRET_KEY", key);
        let is_live = key.expose_secret().starts_with("sk_live_");
        refusals.in_production(
            is_live,
            "PAYSTACK_SECRET_KEY",
            "a key that begins with sk_live_",
        );
        let domain = &self.paystack_email_domain;
        refusals.unless(
            is_name(domain) && domain.contains('.'),
            "PAYSTACK_EMAIL_DOMAIN",
            "a domain's name",
        );
        let token = &self.paystack_callback_token;
        check_secret(refusals, "PAYSTACK_CALLBACK_TOKEN", token);
        // With any other, Paystack's calls would go to an address that is nobody's.
        let is_good = ids::is_segment(token.expose_secret());
        refusals.unless(is_good, "PAYSTACK_CALLBACK_TOKEN", ids::SEGMENT_FORM);
        let (request, query) = (self.paystack_request_timeout, self.paystack_query_timeout);
        check_timeout(refusals, "PAYSTACK_REQUEST_TIMEOUT", request);
        check_timeout(refusals, "PAYSTACK_QUERY_TIMEOUT", query);
    }
}

/// Letters, digits, dots and dashes.
pub(super) fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    !text.is_empty() && text.chars().all(is_letter)
}

fn check_url(refusals: &mut Refusals, variable: &'static str, url: &Url) {
    let wants = "http(s)://host[:port][/path]";
    refusals.unless(plain_base(url).is_ok(), variable, wants);
    refusals.public_url(variable, url.as_str());
}

fn check_secret(refusals: &mut Refusals, variable: &'static str, secret: &SecretString) {
    refusals.secret(variable, secret.expose_secret());
}

fn check_timeout(refusals: &mut Refusals, variable: &'static str, timeout: Duration) {
    let wants = "more than nothing and at most 8s";
    refusals.unless(is_call_timeout(timeout), variable, wants);
}
