//! Whether new charges are taken on. They are refused while what was begun before them is late, and
//! while too much is in hand: each would need the same rail, the same database and the same
//! receivers, and make it later still.
//!
//! Promise: a refusal is immediate, nothing of the charge is recorded, and its caller is told so.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{clock::Clock, error_chain::chain, ids::MerchantId};
use db::{Db, idempotency::IdempotencyKey, outbox};
use rails::{RailName, Rails};
use tokio::time::Instant;

use crate::{
    store,
    turns::{RailTurns, Turns},
};

/// How late the oldest of what is due may be (moved time). Far more than a rail's budget delays
/// a busy minute's queries, and far less than a payer waits.
const LATE_MAX: Duration = Duration::from_secs(30);

/// How long it must have been so, in real time: a process that has just started, or a clock that
/// was moved, finds everything late.
const LATE_FOR: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much a process has in hand before it starts no more: charges that it records, or that
/// sessions-svc opens; answers to queries that it writes; and callbacks of the new charge's rail: those
/// with a turn, until what the rail says of them is written, and those that wait for the reconciler.
/// What it does at its fastest in a third of a second; more would only wait, and then be too late.
const IN_HAND_MAX: usize = 256;

/// The label of what is refused because too much is in hand.
const STARTS: &str = "starts";

/// What is due at each rail and for the other services, whether it is late, and what this process
/// has in hand.
#[derive(Debug)]
pub struct Admission {
    queues: Vec<Queue>,
    starts: Arc<Starts>,
    /// How many steps of earlier charges are being written after a query.
    steps: Arc<AtomicUsize>,
    /// Where callbacks in hand are counted, for each rail.
    turns: Turns,
    /// Whether anybody has asked since the last look. Nobody looks for nobody.
    is_asked: AtomicBool,
}

/// The charges that are being started.
#[derive(Debug, Default)]
struct Starts {
    /// Under which keys. A key may stand here twice, and the second finds the first when it is
    /// recorded.
    keys: Mutex<Vec<KeyName>>,
    was_full: AtomicBool,
}

type KeyName = (MerchantId, String);

/// Held while a charge is being started.
#[derive(Debug)]
pub struct StartPlace {
    key: KeyName,
    starts: Arc<Starts>,
}

impl Starts {
    /// A place beside what else is in hand, most of it of this label.
    fn enter(
        self: &Arc<Self>,
        key: &IdempotencyKey,
        in_hand: usize,
        behind: &'static str,
    ) -> Option<StartPlace> {
        let mut keys = self.keys();
        if keys.len() + in_hand >= IN_HAND_MAX {
            if !self.was_full.swap(true, Ordering::Relaxed) {
                let starting = keys.len();
                tracing::warn!(
                    behind,
                    starting,
                    others = in_hand,
                    "too much is in hand, so new charges are refused"
                );
            }
            return None;
        }
        let key = (key.merchant_id, key.key.clone());
        keys.push(key.clone());
        let starts = Arc::clone(self);
        Some(StartPlace { key, starts })
    }

    /// Tells of the end of refusals, once it is one.
    fn look(&self, in_hand: usize) {
        let is_relaxed = self.keys().len() + in_hand <= IN_HAND_MAX / 2;
        if is_relaxed && self.was_full.swap(false, Ordering::Relaxed) {
            tracing::info!("little is in hand, so new charges are taken on again");
        }
    }

    fn keys(&self) -> MutexGuard<'_, Vec<KeyName>> {
        // No code panics while it holds the lock.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StartPlace {
    fn drop(&mut self) {
        let mut keys = self.starts.keys();
        if let Some(place) = keys.iter().position(|key| *key == self.key) {
            keys.swap_remove(place);
        }
    }
}

/// Held while a step of an earlier charge is being written after a query.
#[derive(Debug)]
pub struct StepPlace(Arc<AtomicUsize>);

impl Drop for StepPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Queue {
    of: QueueName,
    is_late: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueName {
    /// Queries of a rail.
    Rail(RailName),
    /// What the other services are to be told.
    Outbox,
}

impl QueueName {
    fn label(self) -> &'static str {
        match self {
            Self::Rail(rail) => rail.code(),
            Self::Outbox => "outbox",
        }
    }
}

impl Admission {
    pub fn new(rails: &Rails, turns: &Turns) -> Self {
        let rails = rails.each().map(|rail| QueueName::Rail(rail.name));
        let queue = |of| Queue {
            of,
            is_late: AtomicBool::default(),
        };
        Self {
            queues: rails.chain([QueueName::Outbox]).map(queue).collect(),
            starts: Arc::default(),
            steps: Arc::default(),
            turns: turns.clone(),
            is_asked: AtomicBool::default(),
        }
    }

    /// The place of a new charge that may go to this rail. Counts it if it may not.
    pub fn start(&self, rail: RailName, key: &IdempotencyKey) -> Option<StartPlace> {
        self.is_asked.store(true, Ordering::Relaxed);
        let ours = [QueueName::Rail(rail), QueueName::Outbox];
        let mut ours = self.queues.iter().filter(|queue| ours.contains(&queue.of));
        let late = ours.find(|queue| queue.is_late.load(Ordering::Relaxed));
        let place = match late {
            Some(late) => Err(late.of.label()),
            None => {
                let (steps, at_rail) = self.in_hand(self.turns.at(rail));
                let behind = if at_rail > IN_HAND_MAX / 2 {
                    rail.code()
                } else {
                    STARTS
                };
                let place = self.starts.enter(key, steps + at_rail, behind);
                place.ok_or(behind)
            }
        };
        place.inspect_err(|behind| count_refusals(behind, 1)).ok()
    }

    /// The place of a step of an earlier charge. There always is one, and new charges have one
    /// fewer.
    pub fn enter_step(&self) -> StepPlace {
        self.steps.fetch_add(1, Ordering::Relaxed);
        StepPlace(Arc::clone(&self.steps))
    }

    /// What is in hand beside the charges that are being started: steps that are being written, and
    /// other callbacks of this rail.
    fn in_hand(&self, rail: &RailTurns) -> (usize, usize) {
        let steps = self.steps.load(Ordering::Relaxed);
        // As if all steps were those of callbacks of this rail, as nearly all are.
        let called_back = rail.called_back().saturating_sub(steps);
        (steps, rail.waiting() + called_back)
    }

    /// Whether a charge with this key is being started here.
    pub fn is_starting(&self, key: &IdempotencyKey) -> bool {
        let is_it =
            |(merchant_id, name): &KeyName| *merchant_id == key.merchant_id && *name == key.key;
        self.starts.keys().iter().any(is_it)
    }

    /// Registers the refusals at 0, so that their first increase is seen as one.
    pub fn show_counters(&self) {
        for queue in &self.queues {
            count_refusals(queue.of.label(), 0);
        }
        count_refusals(STARTS, 0);
    }

    /// Looks every second how late each queue is, without end.
    pub async fn watch(&self, db: &Db, clock: &Clock) {
        let mut late_since = vec![None; self.queues.len()];
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let each = self.turns.each().map(|turns| self.in_hand(turns));
            let most = each.map(|(steps, at_rail)| steps + at_rail).max();
            self.starts.look(most.unwrap_or(0));
            let is_asked = self.is_asked.swap(false, Ordering::Relaxed);
            for (queue, late_since) in self.queues.iter().zip(&mut late_since) {
                if is_asked || late_since.is_some() {
                    queue.look(late_since, db, clock).await;
                }
            }
        }
    }
}

impl Queue {
    async fn look(&self, late_since: &mut Option<Instant>, db: &Db, clock: &Clock) {
        match lateness(self.of, db, clock).await {
            Ok(late) if late <= LATE_MAX => *late_since = None,
            Ok(_) => {
                late_since.get_or_insert_with(Instant::now);
            }
            // Whoever writes a charge finds out, too.
            Err(error) => {
                return tracing::debug!(error = %chain(&error), "nobody knows what is late");
            }
        }
        let is_late = late_since.is_some_and(|since| since.elapsed() >= LATE_FOR);
        let was_late = self.is_late.swap(is_late, Ordering::Relaxed);
        let queue = self.of.label();
        match (was_late, is_late) {
            (false, true) => tracing::warn!(queue, "late, so new charges are refused"),
            (true, false) => tracing::info!(queue, "new charges are taken on again"),
            (false, false) | (true, true) => {}
        }
    }
}

fn count_refusals(behind: &'static str, count: u64) {
    metrics::counter!("charges_refused_total", "behind" => behind).increment(count);
}

/// How late the oldest is that waits and that nobody holds.
async fn lateness(queue: QueueName, db: &Db, clock: &Clock) -> db::Result<Duration> {
    let due = match queue {
        QueueName::Rail(rail) => {
            store::charges::next_due(&mut db.read().await?, rail, clock.real_now()).await?
        }
        QueueName::Outbox => outbox::next_due(db, clock).await?,
    };
    Ok(due.map_or(Duration::ZERO, |due| clock.now().since(due)))
}
