//! MTN's address, our credentials there, and the limits of our calls.

use std::{num::NonZeroU32, time::Duration};

use chassis::config::{Refusals, duration, is_name};
use clap::Args;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::checks::{check_secret, check_timeout, check_url};

/// MTN lets a partner make ten calls a second.
const MOMO_QUERIES_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("not zero");

/// What one of MTN's products is called with.
pub struct Credentials {
    pub subscription_key: SecretString,
    pub api_user: SecretString,
    pub api_key: SecretString,
}

/// MTN MoMo Open API: collection, and disbursement.
#[derive(Clone, Debug, Args)]
pub struct MomoSettings {
    /// Address of MTN's API, such as `https://sandbox.momodeveloper.mtn.com`.
    #[arg(long, env = "MOMO_BASE_URL")]
    pub momo_base_url: Url,

    /// Subscription key of MTN's collection product.
    #[arg(long, env = "MOMO_SUBSCRIPTION_KEY", hide_env_values = true)]
    pub momo_subscription_key: SecretString,

    /// MTN's API user, a UUID.
    #[arg(long, env = "MOMO_API_USER", hide_env_values = true)]
    pub momo_api_user: SecretString,

    /// Key of that API user.
    #[arg(long, env = "MOMO_API_KEY", hide_env_values = true)]
    pub momo_api_key: SecretString,

    /// Subscription key of MTN's disbursement product. Without it and the next two, nothing is paid
    /// out to MTN wallets.
    #[arg(
        long,
        env = "MOMO_DISBURSEMENT_SUBSCRIPTION_KEY",
        hide_env_values = true
    )]
    pub momo_disbursement_subscription_key: Option<SecretString>,

    /// MTN's API user for disbursements, a UUID.
    #[arg(long, env = "MOMO_DISBURSEMENT_API_USER", hide_env_values = true)]
    pub momo_disbursement_api_user: Option<SecretString>,

    /// Key of that API user.
    #[arg(long, env = "MOMO_DISBURSEMENT_API_KEY", hide_env_values = true)]
    pub momo_disbursement_api_key: Option<SecretString>,

    /// `X-Target-Environment` at MTN: `mtnghana` or `sandbox`.
    #[arg(long, env = "MOMO_TARGET_ENVIRONMENT")]
    pub momo_target_environment: String,

    /// How long a payment request to MTN may take, at most 8 s. Half of it is kept for the request
    /// itself, should MTN be slow to issue the token.
    #[arg(long, env = "MOMO_REQUEST_TIMEOUT", default_value = "8s", value_parser = duration)]
    pub momo_request_timeout: Duration,

    /// How long a query to MTN may take, at most 8 s.
    #[arg(long, env = "MOMO_QUERY_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub momo_query_timeout: Duration,

    /// Most queries to MTN about charges in a second from this process; payouts and refunds have as
    /// many again. Any more wait. MTN allows a partner ten calls a second, so give each replica
    /// half of its share.
    #[arg(long, env = "MOMO_QUERIES_PER_SECOND", default_value_t = MOMO_QUERIES_PER_SECOND)]
    pub momo_queries_per_second: NonZeroU32,
}

impl MomoSettings {
    pub fn check(&self, refusals: &mut Refusals) {
        check_url(refusals, "MOMO_BASE_URL", &self.momo_base_url);
        let key = &self.momo_subscription_key;
        check_secret(refusals, "MOMO_SUBSCRIPTION_KEY", key);
        let user = self.momo_api_user.expose_secret();
        let is_uuid = Uuid::parse_str(user).is_ok();
        refusals.unless(is_uuid, "MOMO_API_USER", "the API user's UUID");
        check_secret(refusals, "MOMO_API_KEY", &self.momo_api_key);
        self.check_disbursement(refusals);
        let target = &self.momo_target_environment;
        let is_name = is_name(target);
        refusals.unless(is_name, "MOMO_TARGET_ENVIRONMENT", "mtnghana or sandbox");
        let is_real = !target.eq_ignore_ascii_case("sandbox");
        refusals.in_production(is_real, "MOMO_TARGET_ENVIRONMENT", "mtnghana");
        check_timeout(refusals, "MOMO_REQUEST_TIMEOUT", self.momo_request_timeout);
        check_timeout(refusals, "MOMO_QUERY_TIMEOUT", self.momo_query_timeout);
    }

    /// All three or none.
    fn check_disbursement(&self, refusals: &mut Refusals) {
        let given = [
            (
                "MOMO_DISBURSEMENT_SUBSCRIPTION_KEY",
                &self.momo_disbursement_subscription_key,
            ),
            (
                "MOMO_DISBURSEMENT_API_USER",
                &self.momo_disbursement_api_user,
            ),
            ("MOMO_DISBURSEMENT_API_KEY", &self.momo_disbursement_api_key),
        ];
        if given.iter().all(|(_, secret)| secret.is_none()) {
            return;
        }
        for (variable, secret) in given {
            match secret {
                Some(secret) => check_secret(refusals, variable, secret),
                None => refusals.unless(false, variable, "a value, as the others have one"),
            }
        }
        let user = self.momo_disbursement_api_user.as_ref();
        let is_uuid = user.is_none_or(|user| Uuid::parse_str(user.expose_secret()).is_ok());
        refusals.unless(is_uuid, "MOMO_DISBURSEMENT_API_USER", "the API user's UUID");
    }

    pub(super) fn collection(&self) -> Credentials {
        Credentials {
            subscription_key: self.momo_subscription_key.clone(),
            api_user: self.momo_api_user.clone(),
            api_key: self.momo_api_key.clone(),
        }
    }

    pub(super) fn disbursement(&self) -> Option<Credentials> {
        Some(Credentials {
            subscription_key: self.momo_disbursement_subscription_key.clone()?,
            api_user: self.momo_disbursement_api_user.clone()?,
            api_key: self.momo_disbursement_api_key.clone()?,
        })
    }

    /// What no text of MTN's may show.
    pub fn secrets(&self) -> Vec<SecretString> {
        let products = [Some(self.collection()), self.disbursement()];
        let secrets = products
            .into_iter()
            .flatten()
            .flat_map(|product| [product.subscription_key, product.api_key, product.api_user]);
        secrets.collect()
    }

    /// The longest that any of its calls may take.
    pub fn longest_call(&self) -> Duration {
        self.momo_request_timeout.max(self.momo_query_timeout)
    }
}
