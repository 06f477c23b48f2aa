//! The feed: each merchant's events, numbered from 1 without gaps, for those who pull them.
//!
//! A work numbers what was accepted, in sets, so that publishing pays nothing for it. A number is
//! visible only once all before it are: who asks for what follows the last number it has seen
//! misses nothing. Whoever waits for the next event is told by this process's own numbering, and of
//! other replicas' by one statement for all who wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use chassis::{
    clock::{Alarm, Clock, Timestamp},
    error_chain::chain,
    ids::MerchantId,
    shutdown::Shutdown,
};
use db::{
    Db, Result,
    work::{Claimed, TaskSet, Work},
};
use tokio::sync::{Semaphore, watch};

use crate::store::feed;

/// The name of the work that numbers.
pub const WORK: &str = "webhooks: feed";

/// How long an accepted event waits for others, to be numbered with them.
const GATHERED_WITHIN: Duration = Duration::from_millis(50);

/// How often those who wait learn what other replicas numbered.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Longest wait for the next event.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The work that numbers events.
#[derive(Debug)]
pub struct Numbering {
    pub db: Db,
    pub clock: Clock,
    pub waits: Waits,
}

impl Work for Numbering {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let looked = async { feed::has_unnumbered(&mut self.db.read().await?).await }.await;
        let is_due = looked.context("the feed cannot be read")?;
        Ok(is_due.then(|| self.clock.now()))
    }

    async fn claim(&mut self, _tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let numbered = feed::number(&self.db).await;
        let numbered = numbered.context("events are not numbered")?;
        self.waits.tell(numbered.last);
        Ok(match numbered.is_partial {
            true => Claimed::Part(self.clock.now()),
            false => Claimed::All,
        })
    }
}

/// Those who wait for the next event of a merchant, in a bounded number of places. Clones share
/// them.
#[derive(Clone, Debug)]
pub struct Waits {
    /// The last number that each merchant for which somebody waits is known to have.
    known: Arc<Mutex<HashMap<MerchantId, watch::Sender<i64>>>>,
    places: Arc<Semaphore>,
    clock: Clock,
    alarm: Alarm,
    shutdown: Shutdown,
}

impl Waits {
    /// `alarm` is that of the work that numbers.
    pub fn new(places: usize, clock: &Clock, alarm: Alarm, shutdown: &Shutdown) -> Self {
        Self {
            known: Arc::default(),
            places: Arc::new(Semaphore::new(places)),
            clock: clock.clone(),
            alarm,
            shutdown: shutdown.clone(),
        }
    }

    /// An event was accepted, and is to be numbered.
    pub fn expect_event(&self) {
        self.alarm.ring_at(self.clock.now() + GATHERED_WITHIN);
    }

    /// Returns a wait that ends once the merchant may have an event after this number, after
    /// `longest`, or when the process stops. At once if no place is left.
    ///
    /// What is numbered after this returns ends the wait: look at the store before it is awaited.
    pub fn begin(
        &self,
        merchant_id: MerchantId,
        after: i64,
        longest: Duration,
    ) -> impl Future<Output = ()> + Send + 'static {
        let place = self.places.clone().try_acquire_owned();
        let mut known = self.known();
        let sender = known.entry(merchant_id).or_default();
        let mut last = sender.subscribe();
        drop(known);
        let shutdown = self.shutdown.clone();
        async move {
            let Ok(_place) = place else {
                metrics::counter!("webhook_feed_waits_refused_total").increment(1);
                return;
            };
            tokio::select! {
                _ = last.wait_for(|last| *last > after) => {}
                () = tokio::time::sleep(longest.min(WAIT_MAX)) => {}
                () = shutdown.wait() => {}
            }
        }
    }

    /// Tells those who wait what other replicas numbered, for as long as it runs.
    pub async fn watch(self, db: Db) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = self.look(&db).await {
                tracing::warn!(error = %chain(&error), "those who wait for events are not told");
            }
        }
    }

    async fn look(&self, db: &Db) -> Result<()> {
        let merchants: Vec<MerchantId> = {
            let mut known = self.known();
            known.retain(|_, sender| sender.receiver_count() > 0);
            known.keys().copied().collect()
        };
        if !merchants.is_empty() {
            let numbers = feed::last_numbers(&mut db.read().await?, &merchants).await?;
            self.tell(numbers);
        }
        Ok(())
    }

    fn tell(&self, numbers: impl IntoIterator<Item = (MerchantId, i64)>) {
        let known = self.known();
        for (merchant_id, number) in numbers {
            if let Some(sender) = known.get(&merchant_id) {
                sender.send_if_modified(|last| {
                    let is_new = number > *last;
                    *last = number.max(*last);
                    is_new
                });
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<MerchantId, watch::Sender<i64>>> {
        // No code panics while it holds the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
