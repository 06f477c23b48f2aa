//! Paystack's address, our credentials there, and the limits of our calls.

use std::{num::NonZeroU32, time::Duration};

use chassis::{
    config::{Refusals, duration, is_name},
    ids,
};
use clap::Args;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use crate::checks::{check_secret, check_timeout, check_url};

/// Paystack publishes no limit. This many queries keep up with as many payments as it takes.
const PAYSTACK_QUERIES_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).expect("not zero");

/// Paystack Charge API.
#[derive(Clone, Debug, Args)]
pub struct PaystackSettings {
    /// Address of Paystack's API.
    #[arg(
        long,
        env = "PAYSTACK_BASE_URL",
        default_value = "https://api.paystack.co"
    )]
    pub paystack_base_url: Url,

    /// Paystack's secret key (`sk_live_…` or `sk_test_…`). It also signs what Paystack sends us.
    #[arg(long, env = "PAYSTACK_SECRET_KEY", hide_env_values = true)]
    pub paystack_secret_key: SecretString,

    /// Domain of the e-mail address that Paystack gets for a payer who gave none.
    #[arg(long, env = "PAYSTACK_EMAIL_DOMAIN")]
    pub paystack_email_domain: String,

    /// Secret last segment of the webhook address that is set at Paystack:
    /// `{gateway}/rails/paystack/{token}`.
    #[arg(long, env = "PAYSTACK_CALLBACK_TOKEN", hide_env_values = true)]
    pub paystack_callback_token: SecretString,

    /// How long a payment request or a code may take to reach Paystack and be answered, at most 8
    /// s.
    #[arg(long, env = "PAYSTACK_REQUEST_TIMEOUT", default_value = "8s", value_parser = duration)]
    pub paystack_request_timeout: Duration,

    /// How long a query to Paystack may take, at most 8 s.
    #[arg(long, env = "PAYSTACK_QUERY_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub paystack_query_timeout: Duration,

    /// Most queries to Paystack about charges in a second from this process; payouts and refunds
    /// have as many again. Any more wait.
    #[arg(
        long,
        env = "PAYSTACK_QUERIES_PER_SECOND",
        default_value_t = PAYSTACK_QUERIES_PER_SECOND
    )]
    pub paystack_queries_per_second: NonZeroU32,
}

impl PaystackSettings {
    pub fn check(&self, refusals: &mut Refusals) {
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
        // With any other token, Paystack's callbacks would go to an address that does not exist.
        let is_good = ids::is_segment(token.expose_secret());
        refusals.unless(is_good, "PAYSTACK_CALLBACK_TOKEN", ids::SEGMENT_FORM);
        let (request, query) = (self.paystack_request_timeout, self.paystack_query_timeout);
        check_timeout(refusals, "PAYSTACK_REQUEST_TIMEOUT", request);
        check_timeout(refusals, "PAYSTACK_QUERY_TIMEOUT", query);
    }

    /// What no text of Paystack's may show.
    pub fn secrets(&self) -> Vec<SecretString> {
        vec![
            self.paystack_secret_key.clone(),
            self.paystack_callback_token.clone(),
        ]
    }

    /// The longest that any of its calls may take.
    pub fn longest_call(&self) -> Duration {
        self.paystack_request_timeout
            .max(self.paystack_query_timeout)
    }
}
