//! Charges that somebody watches: who waits for a change of status is told of it.
//!
//! This process's own commits are told at once, those of other replicas by one statement for all
//! that is watched here. Promise: no change is missed. A watch says which version its watcher
//! knows, and whatever is committed after that is found by the next look.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chassis::{
    charge_status::ChargeStatus,
    error_chain::chain,
    ids::{MerchantId, Reference},
    shutdown::Shutdown,
};
use db::{Db, Result};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    charge::{Charge, ShownCharge},
    store::charges,
};

/// How often watchers are told what other replicas committed.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a watcher's stream lasts: as long as the connection that it is on may.
const LASTS: Duration = Duration::from_secs(300);

/// The most that a watcher is told in one message.
const TOLD_AT_ONCE_MAX: usize = 256;

/// A charge that is watched, and what its watcher knows of it.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Of its watcher's choice.
    pub id: u64,
    pub merchant_id: MerchantId,
    pub reference: Reference,
    pub status: ChargeStatus,
    pub version: i64,
}

/// What a watch is answered with.
#[derive(Clone, Debug)]
pub struct Told {
    pub watch_id: u64,
    pub charge: ShownCharge,
}

/// Everything that is watched in this process. Clones are the same.
#[derive(Clone, Debug)]
pub struct Watches(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    db: Db,
    shutdown: Shutdown,
    watched: Mutex<HashMap<Reference, Vec<Watched>>>,
    next_watcher: AtomicU64,
}

#[derive(Debug)]
struct Watched {
    watcher: u64,
    watch: Watch,
    tell: UnboundedSender<Told>,
}

impl Watches {
    pub fn new(db: &Db, shutdown: &Shutdown) -> Self {
        Self(Arc::new(Shared {
            db: db.clone(),
            shutdown: shutdown.clone(),
            watched: Mutex::default(),
            next_watcher: AtomicU64::new(0),
        }))
    }

    /// Opens a watcher's stream, which watches nothing yet.
    pub fn open(&self) -> Watching {
        let (tell, told) = mpsc::unbounded_channel();
        Watching {
            watches: self.clone(),
            watcher: self.0.next_watcher.fetch_add(1, Ordering::Relaxed),
            own: HashMap::new(),
            tell,
            told,
            ends_at: Instant::now() + LASTS,
            is_stopping: false,
        }
    }

    /// Tells a charge, as it was committed, to those who know an earlier version with another
    /// status.
    pub fn tell(&self, charge: &Charge) {
        let mut watched = self.0.watched();
        if watched.is_empty() {
            return;
        }
        let reference = &charge.facts.reference;
        if let Some(watches) = watched.get_mut(reference) {
            watches.retain_mut(|watch| !watch.is_told(charge));
            if watches.is_empty() {
                watched.remove(reference);
            }
        }
    }

    /// Tells what other replicas commit, for as long as it runs.
    pub async fn look_on(self) {
        loop {
            sleep(LOOK_EVERY).await;
            if let Err(error) = self.look().await {
                tracing::warn!(error = %chain(&error), "those who watch charges are not told");
            }
        }
    }

    async fn look(&self) -> Result<()> {
        let known: Vec<(Reference, i64)> = {
            let watched = self.0.watched();
            let known = watched.iter().filter_map(|(reference, watches)| {
                let known = watches.iter().map(|watched| watched.watch.version).min()?;
                Some((reference.clone(), known))
            });
            known.collect()
        };
        let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
        metrics::gauge!("charges_watched").set(count);
        if known.is_empty() {
            return Ok(());
        }
        let changed = charges::find_changed(&mut self.0.db.read().await?, &known).await?;
        for charge in &changed.rows {
            self.tell(charge);
        }
        Ok(())
    }
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, HashMap<Reference, Vec<Watched>>> {
        // No code panics while it holds the lock.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Tells the charge if it has changed and is shown with another status.
    fn is_told(&mut self, charge: &Charge) -> bool {
        let (watch, version) = (&mut self.watch, charge.progress.version);
        if watch.merchant_id != charge.facts.merchant_id || version <= watch.version {
            return false;
        }
        watch.version = version;
        match charge.progress.state.shown() {
            Some(status) if status != watch.status => self.answer(charge),
            Some(_) | None => false,
        }
    }

    fn answer(&self, charge: &Charge) -> bool {
        let Ok(charge) = ShownCharge::try_from(charge.clone()) else {
            return false;
        };
        let watch_id = self.watch.id;
        // A watcher that has gone needs no answer.
        self.tell.send(Told { watch_id, charge }).ok();
        true
    }
}

/// One watcher's stream. Dropped, it watches nothing any more.
#[derive(Debug)]
pub struct Watching {
    watches: Watches,
    watcher: u64,
    /// The charges of the watches without an answer.
    own: HashMap<u64, Reference>,
    tell: UnboundedSender<Told>,
    told: UnboundedReceiver<Told>,
    ends_at: Instant,
    /// Everything has been told, and only the rest is to be fetched.
    is_stopping: bool,
}

impl Watching {
    pub fn begin(&mut self, watch: Watch) {
        self.own.insert(watch.id, watch.reference.clone());
        let mut watched = self.watches.0.watched();
        let watches = watched.entry(watch.reference.clone()).or_default();
        watches.push(Watched {
            watcher: self.watcher,
            watch,
            tell: self.tell.clone(),
        });
    }

    /// Ends a watch that has no answer yet, if there is one with this id.
    pub fn end(&mut self, id: u64) {
        if let Some(reference) = self.own.remove(&id) {
            self.remove(id, &reference);
        }
    }

    fn remove(&self, id: u64, reference: &Reference) {
        let mut watched = self.watches.0.watched();
        if let Some(watches) = watched.get_mut(reference) {
            watches.retain(|one| (one.watcher, one.watch.id) != (self.watcher, id));
            if watches.is_empty() {
                watched.remove(reference);
            }
        }
    }

    /// Waits for what there is to tell. When the process stops, that is every charge as it is.
    /// Returns `None` once the stream is to end. May be dropped at any point.
    pub async fn told(&mut self) -> Option<Vec<Told>> {
        let mut told = Vec::new();
        if !self.is_stopping {
            let shutdown = self.watches.0.shutdown.clone();
            tokio::select! {
                _ = self.told.recv_many(&mut told, TOLD_AT_ONCE_MAX) => {}
                () = sleep_until(self.ends_at) => return None,
                () = shutdown.wait() => {
                    if let Err(error) = self.tell_all().await {
                        tracing::warn!(error = %chain(&error), "those who watch charges are not told");
                    }
                    self.is_stopping = true;
                }
            }
        }
        while told.len() < TOLD_AT_ONCE_MAX
            && let Ok(one) = self.told.try_recv()
        {
            told.push(one);
        }
        for one in &told {
            self.own.remove(&one.watch_id);
        }
        (!told.is_empty()).then_some(told)
    }

    /// Tells every charge as it is now.
    async fn tell_all(&self) -> Result<()> {
        let references: Vec<&Reference> = self.own.values().collect();
        let mut conn = self.watches.0.db.read().await?;
        let found = charges::find_shown(&mut conn, &references).await?;
        let mut watched = self.watches.0.watched();
        for charge in &found {
            let Some(watches) = watched.get_mut(&charge.facts.reference) else {
                continue;
            };
            watches.retain(|one| {
                let is_own = one.watcher == self.watcher
                    && one.watch.merchant_id == charge.facts.merchant_id;
                !(is_own && one.answer(charge))
            });
        }
        Ok(())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        for (id, reference) in &self.own {
            self.remove(*id, reference);
        }
    }
}
