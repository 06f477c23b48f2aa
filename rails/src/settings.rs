//! The rails' settings: their addresses, our credentials, and which rail carries which provider.

use std::time::Duration;

use chassis::{
    config::{Refusals, duration},
    provider::Provider,
};
use clap::Args;
use reqwest::Url;

use crate::{checks::check_url, name::RailName, rail::Accounts};

/// Every rail, and the table of which carries which provider.
#[derive(Clone, Debug, Args)]
pub struct RailSettings {
    #[command(flatten)]
    pub(crate) accounts: Accounts,

    #[command(flatten)]
    pub(crate) routes: Routes,

    /// Public address of the gateway, for rails that are told with each payment where to call back.
    /// Without it they do not call back, and outcomes are found by queries alone.
    #[arg(long, env = "CALLBACK_BASE_URL")]
    pub(crate) callback_base_url: Option<Url>,

    /// How long a payer has to approve, if the network gives more. No real one does: MTN MoMo gives
    /// 300 s and Paystack 180 s; Hubtel wants its status asked after 300 s.
    #[arg(long, env = "APPROVAL_WINDOW", default_value = "300s", value_parser = duration)]
    pub(crate) approval_window: Duration,
}

/// Which rail carries which provider.
#[derive(Clone, Copy, Debug, Args)]
pub struct Routes {
    /// The rail that debits MTN wallets and pays them.
    #[arg(long, env = "RAIL_MTN", value_enum, default_value_t = RailName::Momo)]
    rail_mtn: RailName,

    /// The rail that debits Telecel wallets and pays them.
    #[arg(long, env = "RAIL_TELECEL", value_enum, default_value_t = RailName::Paystack)]
    rail_telecel: RailName,

    /// The rail that debits AT wallets and pays them.
    #[arg(long, env = "RAIL_AT", value_enum, default_value_t = RailName::Paystack)]
    rail_at: RailName,
}

impl Routes {
    pub fn rail_for(&self, provider: Provider) -> RailName {
        match provider {
            Provider::Mtn => self.rail_mtn,
            Provider::Telecel => self.rail_telecel,
            Provider::At => self.rail_at,
        }
    }

    fn check(&self, accounts: &Accounts, refusals: &mut Refusals) {
        for provider in Provider::ALL {
            let variable = match provider {
                Provider::Mtn => "RAIL_MTN",
                Provider::Telecel => "RAIL_TELECEL",
                Provider::At => "RAIL_AT",
            };
            let carries = |rail: &RailName| rail.terms().carries.contains(provider);
            let carriers = RailName::ALL.iter().filter(|rail| carries(rail));
            let carriers: Vec<_> = carriers.map(|rail| rail.code()).collect();
            let wants = format!("a rail that carries {provider}: {}", carriers.join(" or "));
            let rail = self.rail_for(*provider);
            refusals.unless(carries(&rail), variable, &wants);
            if let Some(missing) = accounts.missing(rail) {
                let wants =
                    format!("a rail with an account, and {rail} has none without {missing}");
                refusals.unless(false, variable, &wants);
            }
        }
    }
}

impl RailSettings {
    pub fn check(&self, refusals: &mut Refusals) {
        let Self {
            accounts,
            routes,
            callback_base_url,
            approval_window,
        } = self;
        accounts.check(callback_base_url.as_ref(), refusals);
        routes.check(accounts, refusals);
        if let Some(url) = callback_base_url {
            check_url(refusals, "CALLBACK_BASE_URL", url);
        }
        let waits = !approval_window.is_zero();
        refusals.unless(waits, "APPROVAL_WINDOW", "more than nothing");
        // With less, a charge would be given up while the payer can still approve it.
        let windows = RailName::ALL
            .iter()
            .map(|rail| rail.terms().approval_window);
        let longest = windows.max().unwrap_or_default();
        let wants = format!("at least {}m", longest.as_secs().div_ceil(60));
        refusals.in_production(*approval_window >= longest, "APPROVAL_WINDOW", &wants);
    }

    /// The longest that a call to any rail may take.
    pub fn longest_call(&self) -> Duration {
        self.accounts.longest_call()
    }
}
