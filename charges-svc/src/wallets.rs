//! Adds what sessions-svc shows of a payer's wallet to transactions that it recorded before it was
//! told. It lists them, so this ends by itself, also where an older version goes on for a while
//! beside this one. One replica does it for all, and without haste: nobody waits for it.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::clock::Timestamp;
use db::{
    Update,
    work::{Claimed, TaskSet, Work},
};

use crate::{
    error::Result,
    service::Service,
    store::works::{self, Checkpoint},
};

/// The name of the work in the store.
const WALLETS: &str = "WALLETS";

/// From the start to the first look, which may well wait, and from one look to the next.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// From one page to the next, so that others are not kept from both databases.
const PAUSE: Duration = Duration::from_secs(1);

/// From the end of the list to the next round, for what older versions have recorded meanwhile.
const REST: Duration = Duration::from_secs(60 * 60);

/// How long a page may take. After that, and after a failure, any replica begins at the beginning.
const LEASE: Duration = Duration::from_secs(2 * 60);

pub struct WalletWork {
    service: Arc<Service>,
    due: Timestamp,
    round: Option<Round>,
}

/// How far this process has come through the list.
#[derive(Debug)]
struct Round {
    /// Until when it has claimed the work (real time).
    held: Timestamp,
    /// Where the next page begins; empty for the beginning.
    after: String,
    added: usize,
}

impl WalletWork {
    pub fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            due: service.clock.now() + LOOK_EVERY,
            round: None,
        }
    }

    /// The round, if this replica is the one to go on with it.
    async fn claimed(&mut self) -> Result<Option<Round>> {
        let Service { db, clock, .. } = &*self.service;
        let round = self.round.take();
        if round.is_none() {
            let seen = works::checkpoint(&mut db.read().await?, WALLETS).await?;
            if seen
                .ended_at
                .is_some_and(|ended_at| clock.now().since(ended_at) < REST)
            {
                return Ok(None);
            }
        }
        let real_now = clock.real_now();
        let until = real_now + LEASE;
        let due = round.as_ref().map_or(real_now, |round| round.held);
        let mut tx = db.begin().await?;
        if works::claim(&mut tx, WALLETS, due, until).await? == Update::NotThere {
            return Ok(None);
        }
        tx.commit().await?;
        let (after, added) = round.map_or((String::new(), 0), |round| (round.after, round.added));
        Ok(Some(Round {
            held: until,
            after,
            added,
        }))
    }

    async fn end(&self, round: Round) -> Result<()> {
        let Service { db, clock, .. } = &*self.service;
        let end = Checkpoint {
            next_at: clock.real_now(),
            block: 0,
            ended_at: Some(clock.now()),
        };
        let mut tx = db.begin().await?;
        if works::note(&mut tx, WALLETS, round.held, &end).await? == Update::Updated {
            tx.commit().await?;
            let added = round.added;
            tracing::info!(added, "transactions that lacked their wallets have them");
        }
        Ok(())
    }
}

impl Work for WalletWork {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        // Nobody waits for it, so time travel need not stop for it.
        Ok(Some(self.due).filter(|due| *due <= self.service.clock.now()))
    }

    async fn claim(&mut self, _: &mut TaskSet) -> anyhow::Result<Claimed> {
        self.due = self.service.clock.now() + LOOK_EVERY;
        let claimed = self.claimed().await;
        let Some(mut round) = claimed.context("the work on wallets is not claimed")? else {
            return Ok(Claimed::All);
        };
        let added = self.service.teller.add_wallets(round.after.clone()).await;
        let added = added.context("wallets were not added to transactions")?;
        round.added += added.count;
        match added.next {
            Some(next) => {
                round.after = next;
                self.round = Some(round);
                self.due = self.service.clock.now() + PAUSE;
            }
            None => {
                let ended = self.end(round).await;
                ended.context("the end of the work on wallets is not recorded")?;
            }
        }
        Ok(Claimed::All)
    }
}
