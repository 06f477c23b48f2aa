//! Every rail, and which of them carries which provider.

use anyhow::Context as _;
use chassis::{
    config::{Mode, Refusals},
    provider::Provider,
};

use crate::{
    momo::Momo,
    name::RailName,
    paystack::Paystack,
    rail::Rail,
    settings::{Routes, Settings},
};

/// Every rail, ready to be called.
#[derive(Clone, Debug)]
pub struct Rails {
    momo: Rail,
    paystack: Rail,
    routes: Routes,
}

impl Rails {
    /// # Errors
    /// A setting is unusable, see [`Settings::check`].
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let mut refusals = Refusals::new(Mode::Development);
        settings.check(&mut refusals);
        refusals.into_result()?;
        let (callback_base, window) = (&settings.callback_base_url, settings.approval_window);
        let momo = Momo::new(&settings.momo, callback_base.as_ref(), window);
        let paystack = Paystack::new(&settings.paystack, window);
        Ok(Self {
            momo: Rail::Momo(momo.context("the momo rail")?),
            paystack: Rail::Paystack(paystack.context("the paystack rail")?),
            routes: settings.routes,
        })
    }

    pub fn for_provider(&self, provider: Provider) -> &Rail {
        self.get(self.routes.rail_for(provider))
    }

    pub fn get(&self, name: RailName) -> &Rail {
        match name {
            RailName::Momo => &self.momo,
            RailName::Paystack => &self.paystack,
        }
    }

    pub fn each(&self) -> impl Iterator<Item = &Rail> {
        RailName::ALL.iter().map(|name| self.get(*name))
    }
}
