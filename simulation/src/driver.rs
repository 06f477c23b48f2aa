//! Steps the time of a world: waits until nobody works, then goes to the next moment for which
//! anything waits.
//!
//! Whether the world is quiet is judged by whether its threads rest. Judged wrongly, time moves
//! while a message is on its way: that is a slow network, which the services must bear.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use chassis::clock::Timestamp;
use tokio::runtime::RuntimeMetrics;

use crate::{
    replica::{Replica, parked},
    time::{Millis, Time},
};

/// Between two looks whether anybody works.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Looks in a row that find everybody at rest.
const LOOKS: usize = 2;

/// Looks after which time moves although a statement runs: it may wait for a lock whose holder
/// waits for time.
const LOOKS_MAX: usize = 1_000;

/// The longest step while a request or a delivery runs: finer than any deadline of the services.
const STEP_BUSY: Millis = 400;

/// The longest step while nothing runs, at first; it doubles while nothing happens.
const STEP_IDLE: Millis = 2_000;
const STEP_IDLE_MAX: Millis = 30 * 60 * 1_000;

/// Every replica that runs, by its number in the world.
pub type Running = Arc<Mutex<BTreeMap<usize, Replica>>>;

/// The thread that steps a world. Stops when it is dropped.
pub struct Driver {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

/// What the driver looks at.
pub struct Watched {
    pub time: Time,
    pub running: Running,
    /// Exchanges that PostgreSQL works on.
    pub statements: Arc<AtomicUsize>,
    /// The runtime of everything that is no service.
    pub simulation: RuntimeMetrics,
    /// Where the databases read the time.
    pub clock_file: Option<PathBuf>,
}

impl Driver {
    /// # Errors
    /// No thread can be started.
    pub fn start(watched: Watched) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let name = "driver".to_owned();
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || watched.drive(&stopped))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Stops; returns how many steps were taken.
    pub fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take();
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl Watched {
    fn drive(&self, stopped: &AtomicBool) -> u64 {
        let (mut steps, mut idle) = (0, STEP_IDLE);
        self.tell_databases();
        while !stopped.load(Ordering::SeqCst) {
            self.wait_until_quiet(stopped);
            let now = self.time.now();
            let is_busy = lock(&self.running)
                .values()
                .any(|replica| replica.clock.is_busy());
            let most = if is_busy { STEP_BUSY } else { idle };
            idle = if is_busy {
                STEP_IDLE
            } else {
                (idle * 2).min(STEP_IDLE_MAX)
            };
            let due = self.next_due(now).unwrap_or(Millis::MAX);
            self.step_to(due.clamp(now + 1, now + most));
            steps += 1;
            if steps % 100 == 0 {
                tracing::debug!(steps, now = self.time.now(), is_busy, most, "time moves");
            }
        }
        steps
    }

    fn wait_until_quiet(&self, stopped: &AtomicBool) {
        let mut quiet_looks = 0;
        let mut before = None;
        for look in 0.. {
            let is_given_up = look > LOOKS_MAX;
            if quiet_looks >= LOOKS || stopped.load(Ordering::SeqCst) {
                return;
            }
            if is_given_up {
                self.complain();
                return;
            }
            let seen = self.look(is_given_up);
            quiet_looks = if seen.is_some() && seen == before {
                quiet_looks + 1
            } else {
                0
            };
            before = seen;
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn complain(&self) {
        let running = lock(&self.running);
        let awake: Vec<usize> = running
            .iter()
            .filter(|(_, replica)| replica.rests().is_none())
            .map(|(place, _)| *place)
            .collect();
        tracing::debug!(
            statements = self.statements.load(Ordering::SeqCst),
            simulation_rests = parked(&self.simulation).is_some(),
            ?awake,
            now = self.time.now(),
            "the world does not come to rest"
        );
    }

    /// What stays the same while nobody works; `None`: somebody does.
    fn look(&self, statements_may_run: bool) -> Option<u64> {
        if !statements_may_run && self.statements.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let running = lock(&self.running);
        let own = parked(&self.simulation)?;
        // Each count only grows, so their sum stays the same only while each of them does.
        running
            .values()
            .try_fold(own, |sum, replica| Some(sum + replica.rests()?))
    }

    fn next_due(&self, now: Millis) -> Option<Millis> {
        let running = lock(&self.running);
        let start = self.time.start();
        let of_services = running
            .values()
            .filter_map(|replica| replica.clock.next_due());
        let of_services = of_services
            .map(|due| millis(start, due))
            .filter(|due| *due > now);
        of_services.chain(self.time.next_due()).min()
    }

    fn step_to(&self, now: Millis) {
        let by = Duration::from_millis(now - self.time.now());
        let running = lock(&self.running);
        self.time.step_to(now);
        self.tell_databases();
        let steps: Vec<_> = running
            .values()
            .map(|replica| replica.advance(by))
            .collect();
        drop(running);
        for step in steps {
            // One that dies on the way takes no step.
            step.recv().ok();
        }
    }

    /// PostgreSQL is given the world's time instead of its own (see `store.rs`).
    fn tell_databases(&self) {
        let Some(file) = &self.clock_file else { return };
        let now = self.time.timestamp().unix_millis().to_string();
        let beside = file.with_extension("new");
        let told = fs::write(&beside, now).and_then(|()| fs::rename(&beside, file));
        told.expect("the file is the simulation's own");
    }
}

fn millis(start: Timestamp, due: Timestamp) -> Millis {
    Millis::try_from(due.since(start).as_millis()).unwrap_or(Millis::MAX)
}

/// No code panics while it holds the lock.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
