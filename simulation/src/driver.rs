//! Steps a world's time: waits until nobody is working, then moves to the next moment that
//! anything waits for.
//!
//! A world rests when every thread of its process sleeps and PostgreSQL works on no statement,
//! except those that wait for a lock, whose holder may be waiting for time. That is why each world
//! has a process of its own. If this is misjudged, time moves while a message is on its way, which
//! is just a slow network that the services must cope with.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    ffi::OsString,
    fs::{self, DirEntry, File},
    io,
    os::unix::fs::FileExt as _,
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
    store::LockWaits,
    time::{Millis, Time},
};

/// Pause between two checks whether anybody is working.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// Checks after which the server is asked whether its statements wait for locks.
const LOOKS_BEFORE_LOCKS: u32 = 200;

/// Checks after which time moves even though somebody seems to be working. Should never happen.
const LOOKS_MAX: u32 = 100_000;

/// The longest step while a request or a delivery runs: finer than any deadline of the services.
/// It doubles while nothing happens that anybody waits for, but stays far finer than the sum of a
/// call's deadlines.
const STEP_BUSY: Millis = 400;
const STEP_BUSY_MAX: Millis = 1_600;

/// The longest first step while nothing runs, in which every worker looks once for what others
/// left behind. It grows until somebody works again.
const STEP_IDLE: Millis = 2_000;
const STEP_IDLE_GROWTH: u64 = 4;
const STEP_IDLE_MAX: Millis = 6 * 60 * 60 * 1_000;

/// Whatever is due this soon after the next thing happens together with it.
const SLACK_BUSY: Millis = 50;
const SLACK_IDLE: Millis = 500;

/// While nothing runs, services may also be woken late by this fraction of their wait.
const SLACK_IDLE_PART: u64 = 64;

/// The running replicas, by their place in the world.
pub type Running = Arc<Mutex<BTreeMap<usize, Replica>>>;

/// The thread that steps a world. Stops when dropped.
pub struct Driver {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

/// What the driver watches.
pub struct DriverInputs {
    pub time: Time,
    pub running: Running,
    /// Exchanges that PostgreSQL is working on.
    pub statements: Arc<AtomicUsize>,
    /// Tells which of them wait for a lock.
    pub lock_waits: Option<LockWaits>,
    /// The runtime of everything but the services.
    pub simulation: RuntimeMetrics,
    /// Where the databases read the time.
    pub clock_file: Option<PathBuf>,
}

impl Driver {
    /// # Errors
    /// No thread can be started.
    pub fn start(mut watched: DriverInputs) -> std::io::Result<Self> {
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

/// How long steps may be, given what happened before.
struct Stride {
    busy: Millis,
    idle: Millis,
}

impl Stride {
    const FIRST: Self = Self {
        busy: STEP_BUSY,
        idle: STEP_IDLE,
    };

    /// The length of the next step from `now`.
    fn next(&mut self, now: Millis, due: Millis, is_busy: bool) -> Millis {
        let most = now + if is_busy { self.busy } else { self.idle };
        let next = due.clamp(now + 1, most);
        let nothing_happens = next < due;
        *self = match (is_busy, nothing_happens) {
            (true, true) => Self {
                busy: (self.busy * 2).min(STEP_BUSY_MAX),
                idle: STEP_IDLE,
            },
            (true, false) => Self::FIRST,
            (false, _) => Self {
                busy: STEP_BUSY,
                idle: (self.idle * STEP_IDLE_GROWTH).min(STEP_IDLE_MAX),
            },
        };
        next
    }
}

impl DriverInputs {
    fn drive(&mut self, stopped: &AtomicBool) -> u64 {
        let mut steps = 0;
        let mut stride = Stride::FIRST;
        let mut others = OtherThreads::of_caller();
        self.tell_databases();
        while !stopped.load(Ordering::SeqCst) {
            self.wait_until_quiet(stopped, &mut others);
            let now = self.time.now();
            let is_busy = lock(&self.running)
                .values()
                .any(|replica| replica.clock.is_busy());
            self.step_to(stride.next(now, self.next_due(now, is_busy), is_busy));
            steps += 1;
        }
        steps
    }

    fn wait_until_quiet(&mut self, stopped: &AtomicBool, others: &mut OtherThreads) {
        let mut waiting = 0;
        for look in 1..=LOOKS_MAX {
            if stopped.load(Ordering::SeqCst) || self.rests(waiting, others) {
                return;
            }
            if look % LOOKS_BEFORE_LOCKS == 0
                && let Some(lock_waits) = &mut self.lock_waits
            {
                waiting = lock_waits.count().unwrap_or_default();
            }
            thread::sleep(LOOK_AGAIN);
        }
        let running = lock(&self.running);
        let awake: Vec<usize> = running
            .iter()
            .filter(|(_, replica)| replica.rests().is_none())
            .map(|(place, _)| *place)
            .collect();
        tracing::error!(
            statements = self.statements.load(Ordering::SeqCst),
            simulation_rests = parked(&self.simulation).is_some(),
            ?awake,
            now = self.time.now(),
            "the world does not come to rest"
        );
    }

    /// Whether nobody is working, except statements that wait for a lock.
    fn rests(&self, waiting: usize, others: &mut OtherThreads) -> bool {
        let before = self.wakings();
        let rests =
            before.is_some() && self.statements.load(Ordering::SeqCst) <= waiting && others.sleep();
        // Nobody woke up between the check of one thread and of the next.
        rests && self.wakings() == before
    }

    /// A number that stays the same while no runtime works, or `None` if one is working.
    fn wakings(&self) -> Option<u64> {
        let running = lock(&self.running);
        let own = parked(&self.simulation)?;
        // Each count only grows, so their sum stays the same only while each of them does.
        running
            .values()
            .try_fold(own, |sum, replica| Some(sum + replica.rests()?))
    }

    /// When the next thing is due that anybody waits for, including what comes along with it.
    fn next_due(&self, now: Millis, is_busy: bool) -> Millis {
        let slack = if is_busy { SLACK_BUSY } else { SLACK_IDLE };
        let late = |due: Millis| match is_busy {
            true => slack,
            false => slack.max((due - now) / SLACK_IDLE_PART),
        };
        let running = lock(&self.running);
        let start = self.time.start();
        let of_services = running
            .values()
            .filter_map(|replica| replica.clock.next_due());
        let of_services = of_services
            .map(|due| millis(start, due))
            .filter(|due| *due > now)
            .map(|due| due + late(due));
        let own = self.time.next_due().map(|due| due + slack);
        of_services.chain(own).min().unwrap_or(Millis::MAX)
    }

    fn step_to(&self, now: Millis) {
        let by = Duration::from_millis(now - self.time.now());
        let running = lock(&self.running);
        self.time.move_to(now);
        self.tell_databases();
        let steps: Vec<_> = running
            .values()
            .map(|replica| replica.advance(by))
            .collect();
        drop(running);
        for step in steps {
            // A replica that dies meanwhile takes no step.
            step.recv().ok();
        }
        // Anybody who woke earlier could talk to a replica whose clock has yet to move, which
        // would then record the answer before it was given.
        self.time.wake();
    }

    /// Gives PostgreSQL the world's time instead of its own (see `store.rs`).
    fn tell_databases(&self) {
        let Some(file) = &self.clock_file else { return };
        let now = self.time.timestamp().unix_millis().to_string();
        let beside = file.with_extension("new");
        let told = fs::write(&beside, now).and_then(|()| fs::rename(&beside, file));
        told.expect("the file is the simulation's own");
    }
}

/// Every thread of this process but one.
struct OtherThreads {
    /// The one's name in `/proc`; `None` on systems without it.
    left_out: Option<OsString>,
    /// Their open `/proc/self/task/…/stat`: to open each anew for every look takes longer than all else
    /// that the driver does.
    stats: HashMap<OsString, File>,
}

impl OtherThreads {
    fn of_caller() -> Self {
        let caller = fs::read_link("/proc/thread-self").ok();
        Self {
            left_out: caller.and_then(|path| path.file_name().map(OsString::from)),
            stats: HashMap::new(),
        }
    }

    /// Whether all of them sleep. On systems that do not tell, idle runtimes must be enough.
    fn sleep(&mut self) -> bool {
        let Ok(threads) = fs::read_dir("/proc/self/task") else {
            return true;
        };
        let mut asleep = 0;
        for thread in threads.flatten() {
            if Some(thread.file_name()) == self.left_out {
                continue;
            }
            let sleeps = self.sleeps(&thread).unwrap_or_else(|_| {
                // It has ended, so it was not asleep, and another may be called as it was.
                self.stats.remove(&thread.file_name());
                false
            });
            if !sleeps {
                return false;
            }
            asleep += 1;
        }
        if self.stats.len() > asleep {
            // Some of them have ended.
            self.stats.clear();
        }
        true
    }

    fn sleeps(&mut self, thread: &DirEntry) -> io::Result<bool> {
        let stat = match self.stats.entry(thread.file_name()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(unopened) => unopened.insert(File::open(thread.path().join("stat"))?),
        };
        // A name has 15 bytes at most.
        let mut start = [0; 64];
        let length = stat.read_at(&mut start, 0)?;
        let start = start.get(..length).unwrap_or_default();
        // The state follows the name, which is in parentheses (proc(5), `/proc/pid/stat`).
        let name_end = start.windows(2).rposition(|bytes| bytes == b") ");
        Ok(name_end.is_some_and(|end| start.get(end + 2) == Some(&b'S')))
    }
}

fn millis(start: Timestamp, due: Timestamp) -> Millis {
    Millis::try_from(due.since(start).as_millis()).unwrap_or(Millis::MAX)
}

/// Locks. No code panics while it holds the lock.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_is_not_asleep() {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let worker = thread::spawn(move || {
            while !seen.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
        let mut others = OtherThreads::of_caller();
        // The second look reads the file that the first has opened.
        let looks = [others.sleep(), others.sleep()];
        ended.store(true, Ordering::SeqCst);
        worker.join().unwrap();
        assert_eq!(looks, [false, false]);
    }
}
