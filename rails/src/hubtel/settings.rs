//! Our accounts at Hubtel, our credentials there, and the limits of our calls.

use std::{num::NonZeroU32, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::config::{Refusals, duration};
use clap::Args;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use crate::checks::{check_secret, check_timeout, check_url};

/// Hubtel publishes no limit. This many queries keep up with as many payments as it takes.
const HUBTEL_QUERIES_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).expect("not zero");

/// Hubtel: Receive Money, and Direct Send Money. Without its credentials nothing goes over Hubtel.
#[derive(Clone, Debug, Args)]
pub struct HubtelSettings {
    /// One address in place of all of Hubtel's hosts, such as a simulator's. Without it, each API is
    /// called at its own host.
    #[arg(long, env = "HUBTEL_BASE_URL")]
    pub hubtel_base_url: Option<Url>,

    /// Hubtel's API id. It, the key and the POS Sales account go together: without all three, nothing
    /// goes over Hubtel.
    #[arg(long, env = "HUBTEL_API_ID", hide_env_values = true)]
    pub hubtel_api_id: Option<SecretString>,

    /// Key of that API id.
    #[arg(long, env = "HUBTEL_API_KEY", hide_env_values = true)]
    pub hubtel_api_key: Option<SecretString>,

    /// Number of the POS Sales account, into which Hubtel collects.
    #[arg(long, env = "HUBTEL_POS_SALES_ID")]
    pub hubtel_pos_sales_id: Option<String>,

    /// Number of the Prepaid Deposit account, from which Hubtel pays. Without it, nothing is paid out
    /// over Hubtel.
    #[arg(long, env = "HUBTEL_PREPAID_DEPOSIT_ID")]
    pub hubtel_prepaid_deposit_id: Option<String>,

    /// How long a payment request to Hubtel may take, at most 8 s.
    #[arg(long, env = "HUBTEL_REQUEST_TIMEOUT", default_value = "8s", value_parser = duration)]
    pub hubtel_request_timeout: Duration,

    /// How long a query to Hubtel may take, at most 8 s.
    #[arg(long, env = "HUBTEL_QUERY_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub hubtel_query_timeout: Duration,

    /// Most queries to Hubtel about charges in a second from this process; payouts and refunds have
    /// as many again. Any more wait.
    #[arg(long, env = "HUBTEL_QUERIES_PER_SECOND", default_value_t = HUBTEL_QUERIES_PER_SECOND)]
    pub hubtel_queries_per_second: NonZeroU32,
}

/// What Hubtel's APIs are called with.
pub(super) struct Credentials<'s> {
    pub api_id: &'s SecretString,
    pub api_key: &'s SecretString,
    pub pos_sales_id: &'s str,
}

impl Credentials<'_> {
    /// The API id and key as HTTP wants them (RFC 7617).
    pub fn basic(&self) -> SecretString {
        let (id, key) = (self.api_id.expose_secret(), self.api_key.expose_secret());
        BASE64_STANDARD.encode(format!("{id}:{key}")).into()
    }
}

impl HubtelSettings {
    /// `callback_base`: where rails call back.
    pub fn check(&self, callback_base: Option<&Url>, refusals: &mut Refusals) {
        if let Some(url) = &self.hubtel_base_url {
            check_url(refusals, "HUBTEL_BASE_URL", url);
        }
        let is_any_given = self.hubtel_api_id.is_some()
            || self.hubtel_api_key.is_some()
            || self.hubtel_pos_sales_id.is_some()
            || self.hubtel_prepaid_deposit_id.is_some();
        if is_any_given {
            self.check_credentials(refusals);
            let wants = "an address: Hubtel takes no payment without one to call back";
            refusals.unless(callback_base.is_some(), "CALLBACK_BASE_URL", wants);
        }
        let (request, query) = (self.hubtel_request_timeout, self.hubtel_query_timeout);
        check_timeout(refusals, "HUBTEL_REQUEST_TIMEOUT", request);
        check_timeout(refusals, "HUBTEL_QUERY_TIMEOUT", query);
    }

    fn check_credentials(&self, refusals: &mut Refusals) {
        // Hubtel's API ids are too short to be secrets, and a colon ends them in Basic credentials.
        let id = self.hubtel_api_id.as_ref().map(|id| id.expose_secret());
        let is_id = id.is_some_and(|id| !id.is_empty() && !id.contains(':'));
        let wants = "the API id, which has no colon, as the others have a value";
        refusals.unless(is_id, "HUBTEL_API_ID", wants);
        let key = self.hubtel_api_key.clone().unwrap_or_default();
        check_secret(refusals, "HUBTEL_API_KEY", &key);
        let wants = "the account's number";
        let is_account =
            |id: &String| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let collects = self.hubtel_pos_sales_id.as_ref();
        let is_given = collects.is_some_and(is_account);
        refusals.unless(is_given, "HUBTEL_POS_SALES_ID", wants);
        let pays = self.hubtel_prepaid_deposit_id.as_ref();
        let is_plain = pays.is_none_or(is_account);
        refusals.unless(is_plain, "HUBTEL_PREPAID_DEPOSIT_ID", wants);
        // What one account collects is not what the other pays from.
        let differ = pays.is_none() || pays != collects;
        let wants = "another account than HUBTEL_POS_SALES_ID";
        refusals.unless(differ, "HUBTEL_PREPAID_DEPOSIT_ID", wants);
    }

    /// The first setting that is missing for anything to go over it.
    pub fn missing(&self) -> Option<&'static str> {
        let needed = [
            ("HUBTEL_API_ID", self.hubtel_api_id.is_some()),
            ("HUBTEL_API_KEY", self.hubtel_api_key.is_some()),
            ("HUBTEL_POS_SALES_ID", self.hubtel_pos_sales_id.is_some()),
        ];
        let absent = needed.iter().find(|(_, is_given)| !is_given);
        absent.map(|(name, _)| *name)
    }

    /// `None` without all that it takes.
    pub(super) fn credentials(&self) -> Option<Credentials<'_>> {
        Some(Credentials {
            api_id: self.hubtel_api_id.as_ref()?,
            api_key: self.hubtel_api_key.as_ref()?,
            pos_sales_id: self.hubtel_pos_sales_id.as_deref()?,
        })
    }

    /// What no text of Hubtel's may show.
    pub fn secrets(&self) -> Vec<SecretString> {
        let Some(credentials) = self.credentials() else {
            return Vec::new();
        };
        let (id, key) = (credentials.api_id.clone(), credentials.api_key.clone());
        vec![credentials.basic(), key, id]
    }

    /// The longest that any of its calls may take. Without an account there are none.
    pub fn longest_call(&self) -> Duration {
        match self.missing() {
            None => self.hubtel_request_timeout.max(self.hubtel_query_timeout),
            Some(_) => Duration::ZERO,
        }
    }
}
