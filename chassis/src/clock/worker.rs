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
    /// When it wants to be woken. `None` means only by its alarm.
    pub due: Option<Timestamp>,
    /// Its alarm has rung and it has not yet looked.
    rung: bool,
}

impl WorkerState {
    /// Whether it is looking for work or about to.
    pub fn is_awake(&self) -> bool {
        !self.resting || self.rung
    }
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
            due: None,
            rung: false,
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

    /// Rests until `due` (moved time), a ring of the alarm, or one second of real time. May return
    /// early; the caller looks for work and rests again. Dropping the future keeps a ring.
    pub async fn rest(&mut self, due: Option<Timestamp>) {
        let resting = Rest::begin(self, due);
        let cap = tokio::time::sleep(REST_AT_MOST);
        tokio::pin!(cap);
        loop {
            let moved = self.clock.0.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let left = due.map_or(REST_AT_MOST, |due| due.since(self.clock.now()));
            if left.is_zero() {
                break;
            }
            tokio::select! {
                () = self.alarm.heard.notified() => break,
                () = &mut cap => break,
                () = tokio::time::sleep(left) => {}
                () = moved => {}
            }
        }
        drop(resting);
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
        let id = worker.alarm.worker;
        if let Some(state) = worker.clock.0.workers().get_mut(&id) {
            state.resting = true;
            state.due = due;
        }
        worker.clock.0.quieter.notify_waiters();
        Self {
            clock: worker.clock.clone(),
            worker: id,
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if let Some(state) = self.clock.0.workers().get_mut(&self.worker) {
            state.resting = false;
            state.rung = false;
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
    pub fn ring(&self) {
        if let Some(state) = self.clock.0.workers().get_mut(&self.worker) {
            state.rung = true;
        }
        self.heard.notify_one();
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alarm({})", self.worker)
    }
}
