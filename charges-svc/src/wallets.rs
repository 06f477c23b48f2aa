//! Adds what sessions-svc shows of a payer's wallet to transactions that it recorded before it was
//! told. It lists them, so this ends by itself, also where an older version goes on for a while
//! beside this one.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::clock::Timestamp;
use db::work::{Claimed, TaskSet, Work};

use crate::service::Service;

/// From the start to the first look, which may well wait, and from a failure to the next.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// From the end of the list to the next look for what older versions have recorded meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(60 * 60);

pub struct WalletWork {
    service: Arc<Service>,
    due: Timestamp,
    /// Where the next page begins; empty for the beginning.
    after: String,
}

impl WalletWork {
    pub fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            due: service.clock.now() + LOOK_AGAIN,
            after: String::new(),
        }
    }
}

impl Work for WalletWork {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        // Nobody waits for it, so time travel need not stop for it.
        Ok(Some(self.due).filter(|due| *due <= self.service.clock.now()))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        let now = self.service.clock.now();
        self.due = now + LOOK_AGAIN;
        let added = self.service.teller.add_wallets(self.after.clone()).await;
        let next = added.context("wallets were not added to transactions")?;
        self.due = match next {
            Some(_) => now,
            None => now + LOOK_EVERY,
        };
        self.after = next.unwrap_or_default();
        Ok(match self.after.is_empty() {
            true => Claimed::All,
            false => Claimed::Part(now),
        })
    }
}
