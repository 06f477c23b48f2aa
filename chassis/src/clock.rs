//! What time it is, and waiting for it. The only module that asks the system.
//!
//! There are three times:
//!
//! - [`Clock::now`] is for records and due times. It is the store's time, which the local stack
//!   can move forward, and never runs backwards.
//! - [`Clock::real_now`] is the store's time, never moved: for leases.
//! - [`Clock::host_now`] is what the host's own clock shows: for the `t` of a signature, and for
//!   what is compared only with itself.
//!
//! The store's time is the last reading of its clock ([`Clock::align`], which `db` calls) plus the
//! monotonic time since. So replicas whose clocks differ agree on who holds a lease and what is
//! due, and setting a host's clock ends nothing. Without a store's clock (SQLite, processes
//! without a database) it is the host's. Durations are measured with `tokio::time::Instant`, never
//! with a clock.
//!
//! **Time travel.** [`Clock::advance`] moves from due time to due time. Before each step it waits
//! until the process is quiet: no [`Activity`] is alive (a request, a rail call, a relay, a
//! delivery), every [`Worker`] rests, no [`Alarm`] is unheard, and nothing is due. For this to
//! work, whoever hands work to a worker must ring its alarm before dropping its own activity.

mod alignment;
mod day;
mod host;
mod timestamp;
mod worker;

use std::{
    collections::HashMap,
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use alignment::Alignment;
use host::{Host, HostReading};
use worker::WorkerState;

pub use alignment::{StoreReading, Term};
pub use day::{Day, DayError};
pub use timestamp::{Timestamp, TimestampError};
pub use worker::{Activity, Alarm, Wake, Worker};

/// How long [`Clock::advance`] sleeps between two checks when nothing wakes it sooner.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process's clock. Clones show the same time.
#[derive(Clone)]
pub struct Clock(Arc<ClockState>);

struct ClockState {
    host: Host,
    alignment: Mutex<Alignment>,
    /// Milliseconds by which moved time is ahead of real time.
    ahead_ms: AtomicI64,
    /// Running requests, rail calls, relays and deliveries.
    activities: AtomicUsize,
    workers: Mutex<HashMap<u64, WorkerState>>,
    next_worker: AtomicU64,
    /// Time has moved, so resting workers look again.
    moved: Notify,
    /// An activity ended or a worker went to rest.
    quieter: Notify,
    /// Held through one [`Clock::advance`].
    travel: tokio::sync::Mutex<()>,
    /// Where `ahead_ms` is stored, or `None` if this clock does not travel.
    kept_in: Option<PathBuf>,
}

/// This clock does not travel, or could not keep how far it was moved.
#[derive(Debug, thiserror::Error)]
pub enum TravelError {
    #[error("this clock cannot be moved")]
    NotTravelling,
    #[error("how far the clock was moved cannot be kept")]
    NotKept(#[source] io::Error),
}

impl Clock {
    /// Real time: the clock of every binary except the local stack.
    pub fn system() -> Self {
        Self::new(Host::real(), 0, None)
    }

    /// A clock for the simulation and for tests. In the simulation, the runtime's time is paused and
    /// stepped from outside. This host's clock shows `start` plus the runtime's time
    /// since now, runs `drift_ppm` millionths fast, and is off by `offset_ms`. The driver consults
    /// [`Clock::is_busy`] and [`Clock::next_due`].
    pub fn simulated(start: Timestamp, offset_ms: i64, drift_ppm: i64) -> Self {
        Self::new(Host::simulated(start, offset_ms, drift_ppm), 0, None)
    }

    /// Sets a simulated host's wall clock forward, or back if `by_ms` is negative, as an operator
    /// or a time daemon would. Leaves a real host's alone.
    pub fn step_host(&self, by_ms: i64) {
        self.0.host.step(by_ms);
    }

    /// A clock that can be moved. `file` stores how far, across restarts.
    pub fn travelling(file: PathBuf) -> io::Result<Self> {
        let ahead_ms = match std::fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(Self::new(Host::real(), ahead_ms, Some(file)))
    }

    fn new(host: Host, ahead_ms: i64, kept_in: Option<PathBuf>) -> Self {
        Self(Arc::new(ClockState {
            host,
            alignment: Mutex::default(),
            ahead_ms: AtomicI64::new(ahead_ms),
            activities: AtomicUsize::new(0),
            workers: Mutex::default(),
            next_worker: AtomicU64::new(0),
            moved: Notify::new(),
            quieter: Notify::new(),
            travel: tokio::sync::Mutex::default(),
            kept_in,
        }))
    }

    /// The store's time, moved: for records and due times.
    pub fn now(&self) -> Timestamp {
        let ahead_ms = self.0.ahead_ms.load(Ordering::SeqCst);
        // Read under the lock, so that it cannot run backwards across an alignment.
        let alignment = self.0.alignment();
        alignment.shown(self.0.host.read()).plus_millis(ahead_ms)
    }

    /// The store's time, never moved: for leases.
    pub fn real_now(&self) -> Timestamp {
        let alignment = self.0.alignment();
        alignment.real(self.0.host.read())
    }

    /// The latest that [`Clock::real_now`] may truly be, also by the host's wall clock, which goes
    /// on while the machine is suspended. For those who must stop in time.
    pub fn latest_now(&self) -> Timestamp {
        let alignment = self.0.alignment();
        alignment.latest(self.0.host.read())
    }

    /// The host's own clock: for signatures, and for what stays within this process.
    pub fn host_now(&self) -> Timestamp {
        self.0.host.read().wall
    }

    /// The host's monotonic time, as a moment near [`Clock::host_now`]: for readings of the
    /// store's clock.
    pub fn steady_now(&self) -> Timestamp {
        self.0.host.read().steady
    }

    /// Moves time forward by `by`, stopping at every due time on the way, so that what is due then
    /// happens then. Returns the new time once everything is quiet.
    pub async fn advance(&self, by: Duration) -> Result<Timestamp, TravelError> {
        if self.0.kept_in.is_none() {
            return Err(TravelError::NotTravelling);
        }
        let _one_at_a_time = self.0.travel.lock().await;
        let target = self.now() + by;
        loop {
            let next = self.quiet_until().await;
            match next.filter(|due| *due < target) {
                Some(due) => self.move_to(due)?,
                None => break,
            }
        }
        self.move_to(target)?;
        self.quiet_until().await;
        Ok(self.now())
    }

    /// Whether anything is running, or a worker is looking for work or about to.
    pub fn is_busy(&self) -> bool {
        // After the workers, as in `look`.
        self.0.workers().values().any(WorkerState::is_awake)
            || self.0.activities.load(Ordering::SeqCst) > 0
    }

    /// The earliest time that a resting worker waits for, even if it is past.
    pub fn next_due(&self) -> Option<Timestamp> {
        let workers = self.0.workers();
        workers.values().filter_map(WorkerState::due).min()
    }

    /// Waits until nothing is running and nothing is due. Returns what is due next.
    async fn quiet_until(&self) -> Option<Timestamp> {
        loop {
            let quieter = self.0.quieter.notified();
            tokio::pin!(quieter);
            quieter.as_mut().enable();
            let busy = match self.look() {
                Ok(next) => return next,
                Err(busy) => busy,
            };
            if tokio::time::timeout(LOOK_AGAIN, quieter).await.is_err() {
                tracing::trace!(busy, "still waiting for work to end");
            }
        }
    }

    /// What is due next, or the name of something that is not quiet.
    fn look(&self) -> Result<Option<Timestamp>, &'static str> {
        let workers = self.0.workers();
        let now = self.now();
        for worker in workers.values() {
            let is_due = worker.due().is_some_and(|due| due <= now);
            if worker.is_awake() || is_due {
                return Err(worker.name);
            }
        }
        // Checked after the workers: whoever wakes one rings first and ends its activity later.
        if self.0.activities.load(Ordering::SeqCst) > 0 {
            return Err("an activity");
        }
        Ok(workers.values().filter_map(WorkerState::due).min())
    }

    fn move_to(&self, target: Timestamp) -> Result<(), TravelError> {
        let step = target.since(self.now()).as_millis();
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let ahead_ms = self.0.ahead_ms.load(Ordering::SeqCst).saturating_add(step);
        if let Some(file) = &self.0.kept_in {
            // Stored before it is shown: time must not run backwards across a crash.
            keep(file, ahead_ms).map_err(TravelError::NotKept)?;
        }
        self.0.ahead_ms.store(ahead_ms, Ordering::SeqCst);
        self.0.moved.notify_waiters();
        Ok(())
    }
}

/// Replaces the file's content atomically.
fn keep(file: &std::path::Path, ahead_ms: i64) -> io::Result<()> {
    let written = file.with_extension("new");
    std::fs::write(&written, ahead_ms.to_string())?;
    std::fs::rename(written, file)
}

impl ClockState {
    fn workers(&self) -> MutexGuard<'_, HashMap<u64, WorkerState>> {
        // No code panics while it holds the lock.
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alignment(&self) -> MutexGuard<'_, Alignment> {
        // No code panics while it holds the lock.
        let locked = self.alignment.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn travelling() -> Clock {
        let file = std::env::temp_dir().join(format!("clock-{}", uuid::Uuid::new_v4()));
        Clock::travelling(file).expect("a new clock")
    }

    #[tokio::test]
    async fn travel_stops_at_every_due_time_in_order() {
        let clock = travelling();
        let start = clock.now();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut worker = clock.worker("ticks");
        let tasks = crate::shutdown::Tasks::new();
        let (ticking, heard) = (clock.clone(), seen.clone());
        tasks.spawn(async move {
            for tick in 1..=3_u64 {
                let due = start + Duration::from_secs(3_600 * tick);
                while ticking.now() < due {
                    worker.rest(Some(due)).await;
                }
                heard
                    .lock()
                    .unwrap()
                    .push(ticking.now().since(start).as_secs() / 3_600);
            }
            loop {
                worker.rest(None).await;
            }
        });
        clock
            .advance(Duration::from_secs(2 * 3_600 + 60))
            .await
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [1, 2]);
        clock
            .advance(Duration::from_secs(24 * 3_600))
            .await
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
        assert!(clock.now().since(start) >= Duration::from_secs(26 * 3_600));
    }

    #[tokio::test]
    async fn travel_waits_for_what_runs_and_for_what_was_rung() {
        let clock = travelling();
        let mut worker = clock.worker("relay");
        let alarm = worker.alarm();
        let done = Arc::new(AtomicBool::new(false));
        let tasks = crate::shutdown::Tasks::new();
        let (relay_clock, relay_done) = (clock.clone(), done.clone());
        tasks.spawn(async move {
            worker.rest(None).await;
            let delivery = relay_clock.activity();
            worker.rest(None).await;
            relay_done.store(true, Ordering::SeqCst);
            drop(delivery);
            loop {
                worker.rest(None).await;
            }
        });
        let request = clock.activity();
        alarm.ring();
        drop(request);
        alarm.ring();
        clock.advance(Duration::from_secs(1)).await.unwrap();
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn how_far_it_was_moved_outlives_the_process() {
        let file = std::env::temp_dir().join(format!("clock-{}", uuid::Uuid::new_v4()));
        let clock = Clock::travelling(file.clone()).unwrap();
        let moved = clock.advance(Duration::from_secs(86_400)).await.unwrap();
        let again = Clock::travelling(file).unwrap();
        assert!(again.now() >= moved);
    }

    #[tokio::test]
    async fn who_steps_time_sees_what_runs_and_what_is_due_next() {
        let clock = Clock::system();
        assert!(!clock.is_busy());
        let activity = clock.activity();
        assert!(clock.is_busy());
        drop(activity);
        let mut worker = clock.worker("ticks");
        assert!(clock.is_busy(), "it looks for work");
        let due = clock.now() + Duration::from_secs(3_600);
        let alarm = worker.alarm();
        let mut resting = std::pin::pin!(worker.rest(Some(due)));
        assert!(futures::poll!(&mut resting).is_pending());
        assert_eq!((clock.is_busy(), clock.next_due()), (false, Some(due)));
        alarm.ring();
        assert!(clock.is_busy(), "it is about to look");
        resting.await;
        assert!(clock.is_busy(), "it looks");
    }

    #[tokio::test]
    async fn a_real_clock_cannot_be_moved() {
        let moved = Clock::system().advance(Duration::from_secs(1)).await;
        assert!(matches!(moved, Err(TravelError::NotTravelling)));
    }
}
