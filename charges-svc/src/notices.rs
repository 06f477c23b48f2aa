//! Tells merchants which payout accounts were set for them, whoever did it.
//!
//! Apart from the outbox, whose rows are payments' outcomes: no mail holds those up.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::clock::Timestamp;
use db::work::{Claimed, TaskSet, Work};

use crate::{service::Service, store::payout_accounts};

/// Pause after a merchant could not be told.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The work that tells merchants. Each replica does all of it: merchants-svc mails a notice once.
pub struct NoticeTeller {
    service: Arc<Service>,
    not_before: Timestamp,
}

impl NoticeTeller {
    pub fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            not_before: Timestamp::EPOCH,
        }
    }

    /// Tells one. Returns whether there was one to tell.
    async fn tell_next(&self) -> anyhow::Result<bool> {
        let Service {
            db, clock, teller, ..
        } = &*self.service;
        let found = payout_accounts::find_untold(&mut db.read().await?).await?;
        let Some(change) = found else {
            return Ok(false);
        };
        teller.tell_account_change(&change).await?;
        let mut conn = db.write().await?;
        payout_accounts::told(&mut conn, change.notice_id, clock.now()).await?;
        Ok(true)
    }
}

impl Work for NoticeTeller {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let mut conn = self.service.db.read().await?;
        let found = payout_accounts::find_untold(&mut conn).await;
        let found = found.context("notices cannot be read")?;
        Ok(found.map(|change| change.created_at.max(self.not_before)))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        match self.tell_next().await {
            // There may be others.
            Ok(true) => Ok(Claimed::Part(self.service.clock.now())),
            Ok(false) => Ok(Claimed::Nothing),
            Err(error) => {
                self.not_before = self.service.clock.now() + AGAIN_AFTER;
                Err(error)
            }
        }
    }
}
