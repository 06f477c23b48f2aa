//! Every rail, and which of them carries which provider.

use anyhow::Context as _;
use chassis::provider::Provider;

use crate::{
    name::RailName,
    rail::Rail,
    settings::{RailSettings, Routes},
    transfer::Destination,
};

/// Every rail, ready to be called.
#[derive(Clone, Debug)]
pub struct Rails {
    /// One of each name.
    each: Vec<Rail>,
    routes: Routes,
}

impl Rails {
    /// # Errors
    /// An address or a secret is unusable, see [`RailSettings::check`].
    pub fn new(settings: &RailSettings) -> anyhow::Result<Self> {
        let callback_base = settings.callback_base_url.as_ref();
        let (accounts, window) = (&settings.accounts, settings.approval_window);
        let rail = |name: &RailName| {
            Rail::new(*name, accounts, callback_base, window)
                .with_context(|| format!("the {name} rail"))
        };
        let each: anyhow::Result<_> = RailName::ALL.iter().map(rail).collect();
        Ok(Self {
            each: each?,
            routes: settings.routes,
        })
    }

    pub fn for_provider(&self, provider: Provider) -> &Rail {
        self.get(self.routes.rail_for(provider))
    }

    /// The rail that pays this account: a wallet's network has one, and Paystack pays banks.
    pub fn for_destination(&self, destination: &Destination) -> &Rail {
        match destination {
            Destination::Wallet { provider, .. } => self.for_provider(*provider),
            Destination::Bank { .. } => self.get(RailName::Paystack),
        }
    }

    pub fn get(&self, name: RailName) -> &Rail {
        let rail = self.each().find(|rail| rail.name == name);
        rail.expect("there is one of each name")
    }

    pub fn each(&self) -> impl Iterator<Item = &Rail> {
        self.each.iter()
    }
}
