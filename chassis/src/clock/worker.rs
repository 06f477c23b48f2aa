//! Loops that rest until something is due, and what time travel waits for.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::Notify;

use super::{Clock, Timestamp};

/// The longest that a worker rests without looking, so that it finds other replicas' rows.
const REST_AT_MOST: Duration = Duration::from_secs(1);

pub(super) struct WorkerState {
    pub name: &'static str,
    resting: bool,
    /// When it wants to be woken, as it said when it went to rest. `None` means only by its alarm.
    rests_until: Option<Timestamp>,
    /// The earliest due time that its alarm was told since it last looked.
    told: Option<Timestamp>,
    /// What its alarm has rung for and it has not yet heard.
    rung: Option<Wake>,
}

impl WorkerState {
    /// Whether it is looking for work or about to.
    pub fn is_awake(&self) -> bool {
        !self.resting || self.rung.is_some()
    }

    /// When it is to be woken.
    pub fn due(&self) -> Option<Timestamp> {
        self.rests_until.into_iter().chain(self.told).min()
    }
}

/// Why a worker was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// Something that its alarm was told is due now ([`Alarm::ring_at`]).
    Told,
    /// Its due time has come, or one that its alarm was told earlier. Others may have followed it.
    Due,
    /// It is to look for what is due: its alarm has rung ([`Alarm::ring`]), or it has rested long.
    Look,
}

impl Clock {
    /// Marks something that time travel must wait for until this is dropped.
    pub fn activity(&self) -> Activity {
        self.0.activities.fetch_add(1, Ordering::SeqCst);
        Activity(self.clone())
    }

    /// Registers a loop that does what is due and then rests. It counts as busy until it rests.
    pub fn worker(&self, name: &'static str) -> Worker {
        let id = self.0.next_worker.fetch_add(1, Ordering::SeqCst);
        let state = WorkerState {
            name,
            resting: false,
            rests_until: None,
            told: None,
            rung: None,
        };
        self.0.workers().insert(id, state);
        let alarm = Alarm {
            clock: self.clone(),
            worker: id,
            heard: Arc::new(Notify::new()),
        };
        Worker {
            name,
            clock: self.clone(),
            alarm,
        }
    }
}

/// Something runs that time travel waits for. Ends when it is dropped.
#[derive(Debug)]
pub struct Activity(Clock);

impl Drop for Activity {
    fn drop(&mut self) {
        let shared = &self.0.0;
        if shared.activities.fetch_sub(1, Ordering::SeqCst) == 1 {
            shared.quieter.notify_waiters();
        }
    }
}

/// A loop's place at the clock. Dropped, it is no longer waited for.
#[derive(Debug)]
pub struct Worker {
    name: &'static str,
    clock: Clock,
    alarm: Alarm,
}

impl Worker {
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What wakes this worker, for those who give it work.
    pub fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// Rests until `due` (moved time) or an earlier time that the alarm was told, a ring of the
    /// alarm, or one second of real time. Dropping the future keeps a ring.
    pub async fn rest(&mut self, due: Option<Timestamp>) -> Wake {
        let _resting = Rest::begin(self, due);
        let cap = tokio::time::sleep(REST_AT_MOST);
        tokio::pin!(cap);
        loop {
            let moved = self.clock.0.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let left = match self.woken() {
                Ok(wake) => return wake,
                Err(left) => left,
            };
            tokio::select! {
                () = self.alarm.heard.notified() => {}
                () = &mut cap => return Wake::Look,
                () = tokio::time::sleep(left) => {}
                () = moved => {}
            }
        }
    }

    /// Why it is to wake now, or how long it may rest.
    fn woken(&self) -> Result<Wake, Duration> {
        let now = self.clock.now();
        let mut workers = self.clock.0.workers();
        let Some(state) = workers.get_mut(&self.alarm.worker) else {
            return Err(REST_AT_MOST);
        };
        let left = state.due().map_or(REST_AT_MOST, |due| due.since(now));
        let due = left.is_zero().then_some(Wake::Due);
        let Some(wake) = state.rung.max(due) else {
            return Err(left);
        };
        // No longer resting when nothing is rung any more, so that it counts as awake throughout.
        state.resting = false;
        state.rung = None;
        Ok(wake)
    }

    /// What the alarm has rung for since the worker woke.
    pub fn hear(&self) -> Option<Wake> {
        let mut workers = self.clock.0.workers();
        let state = workers.get_mut(&self.alarm.worker);
        state.and_then(|state| state.rung.take())
    }

    /// Forgets what the alarm was told. Call it before reading what is due: what is told from then
    /// on may not be read.
    pub fn forget_told(&self) {
        self.change(|state| state.told = None);
    }

    fn change(&self, change: impl FnOnce(&mut WorkerState)) {
        let mut workers = self.clock.0.workers();
        workers.get_mut(&self.alarm.worker).map(change);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.clock.0.workers().remove(&self.alarm.worker);
        self.clock.0.quieter.notify_waiters();
    }
}

/// The worker counts as resting while this lives.
struct Rest {
    clock: Clock,
    worker: u64,
}

impl Rest {
    fn begin(worker: &Worker, due: Option<Timestamp>) -> Self {
        worker.change(|state| {
            state.resting = true;
            state.rests_until = due;
        });
        worker.clock.0.quieter.notify_waiters();
        Self {
            clock: worker.clock.clone(),
            worker: worker.alarm.worker,
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(state) = self.clock.0.workers().get_mut(&self.worker) {
            state.resting = false;
        }
    }
}

/// Wakes one worker. Rung while the worker is busy, it makes the next rest end at once.
#[derive(Clone)]
pub struct Alarm {
    clock: Clock,
    worker: u64,
    heard: Arc<Notify>,
}

impl Alarm {
    /// Something is due, or will be: the worker looks. Call it after the commit.
    pub fn ring(&self) {
        self.wake(|state| {
            state.rung = Some(Wake::Look);
            true
        });
    }

    /// This is when something that was just committed is due (moved time). The worker wakes then,
    /// and need not look before.
    pub fn ring_at(&self, due: Timestamp) {
        let is_due = due <= self.clock.now();
        self.wake(|state| {
            if is_due {
                state.rung = state.rung.max(Some(Wake::Told));
                return true;
            }
            let is_earlier = state.due().is_none_or(|known| due < known);
            // Also if it is not earlier than the end of the last rest, which may be over.
            state.told = state.told.into_iter().chain([due]).min();
            is_earlier
        });
    }

    fn wake(&self, change: impl FnOnce(&mut WorkerState) -> bool) {
        let mut workers = self.clock.0.workers();
        let is_woken = workers.get_mut(&self.worker).is_some_and(change);
        drop(workers);
        if is_woken {
            self.heard.notify_one();
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alarm({})", self.worker)
    }
}
