//! The time of a simulated world. It stands still while anybody works, and is stepped by
//! [`crate::driver`] from one thing that waits to the next.
//!
//! The simulation itself waits with [`Time::sleep`], so that the world knows how far it may step.
//! The services wait with tokio's own timers, in runtimes that are paused and stepped along.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chassis::clock::Timestamp;
use tokio::sync::Notify;

/// 2026-03-01T09:00:00Z, so that no session of a run expires at midnight or another round time.
pub const START_UNIX_MS: i64 = 1_772_355_600_000;

/// Milliseconds since the world began.
pub type Millis = u64;

pub const SECOND: Millis = 1_000;
pub const MINUTE: Millis = 60 * SECOND;
pub const HOUR: Millis = 60 * MINUTE;

/// The true time of one world. Clones share it.
#[derive(Clone)]
pub struct Time(Arc<Shared>);

struct Shared {
    start: Timestamp,
    now: AtomicU64,
    next_sleeper: AtomicU64,
    sleepers: Mutex<BTreeMap<(Millis, u64), Arc<Notify>>>,
}

impl Time {
    pub fn starting_at(start: Timestamp) -> Self {
        Self(Arc::new(Shared {
            start,
            now: AtomicU64::new(0),
            next_sleeper: AtomicU64::new(0),
            sleepers: Mutex::default(),
        }))
    }

    pub fn now(&self) -> Millis {
        self.0.now.load(Ordering::SeqCst)
    }

    pub fn timestamp(&self) -> Timestamp {
        self.0.start + Duration::from_millis(self.now())
    }

    pub fn start(&self) -> Timestamp {
        self.0.start
    }

    pub async fn sleep(&self, length: Millis) {
        self.sleep_until(self.now() + length).await;
    }

    pub async fn sleep_until(&self, due: Millis) {
        if due <= self.now() {
            return;
        }
        let id = self.0.next_sleeper.fetch_add(1, Ordering::SeqCst);
        let awake = Arc::new(Notify::new());
        self.sleepers().insert((due, id), Arc::clone(&awake));
        let asleep = Asleep {
            time: self,
            key: (due, id),
        };
        awake.notified().await;
        drop(asleep);
    }

    /// When the next sleeper wakes.
    pub fn next_due(&self) -> Option<Millis> {
        let sleepers = self.sleepers();
        sleepers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Moves to `now` and wakes everybody who slept until then.
    pub fn step_to(&self, now: Millis) {
        self.move_to(now);
        self.wake();
    }

    /// Moves to `now` without waking anybody.
    pub fn move_to(&self, now: Millis) {
        self.0.now.fetch_max(now, Ordering::SeqCst);
    }

    /// Wakes everybody who slept until now.
    pub fn wake(&self) {
        let sleepers = self.sleepers();
        let due = sleepers.range(..=(self.now(), u64::MAX));
        for awake in due.map(|(_, awake)| awake) {
            awake.notify_one();
        }
    }

    fn sleepers(&self) -> MutexGuard<'_, BTreeMap<(Millis, u64), Arc<Notify>>> {
        // No code panics while it holds the lock.
        self.0
            .sleepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves the list of sleepers when dropped, awake or not.
struct Asleep<'t> {
    time: &'t Time,
    key: (Millis, u64),
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.time.sleepers().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn time_moves_before_anybody_wakes() {
        let start = Timestamp::from_unix_millis(START_UNIX_MS).expect("a timestamp");
        let time = Time::starting_at(start);
        let mut sleeper = Box::pin(time.sleep_until(10));
        assert_eq!(sleeper.as_mut().now_or_never(), None);
        time.move_to(10);
        assert_eq!(time.now(), 10);
        assert_eq!(sleeper.as_mut().now_or_never(), None, "it was not woken");
        time.wake();
        assert_eq!(sleeper.as_mut().now_or_never(), Some(()));
    }
}
