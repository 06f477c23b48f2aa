//! The host's own clocks: those of this machine, or simulated ones.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use time::OffsetDateTime;
use tokio::time::Instant;

use super::Timestamp;

#[derive(Debug)]
pub(super) enum Host {
    Real { start: Timestamp, since: Instant },
    Simulated(SimulatedHost),
}

/// What a host's two clocks show at the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostReading {
    /// The wall clock, which people and time daemons set.
    pub wall: Timestamp,
    /// What the wall clock showed when this process started, plus the monotonic time since. Nobody
    /// can set it, and it stands still while the machine is suspended.
    pub steady: Timestamp,
}

/// See [`super::Clock::simulated`].
#[derive(Debug)]
pub(super) struct SimulatedHost {
    start: Timestamp,
    offset_ms: i64,
    drift_ppm: i64,
    since: Instant,
    /// How far its wall clock was set since then.
    stepped_ms: AtomicI64,
}

impl Host {
    pub fn simulated(start: Timestamp, offset_ms: i64, drift_ppm: i64) -> Self {
        Self::Simulated(SimulatedHost {
            start,
            offset_ms,
            drift_ppm,
            since: Instant::now(),
            stepped_ms: AtomicI64::new(0),
        })
    }

    pub fn real() -> Self {
        Self::Real {
            start: wall(),
            since: Instant::now(),
        }
    }

    pub fn step(&self, by_ms: i64) {
        match self {
            Self::Real { .. } => {}
            Self::Simulated(simulated) => {
                simulated.stepped_ms.fetch_add(by_ms, Ordering::SeqCst);
            }
        }
    }

    pub fn read(&self) -> HostReading {
        match self {
            Self::Real { start, since } => HostReading {
                wall: wall(),
                steady: *start + since.elapsed(),
            },
            Self::Simulated(simulated) => simulated.read(),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
fn wall() -> Timestamp {
    Timestamp::from_datetime(OffsetDateTime::now_utc())
}

impl SimulatedHost {
    fn read(&self) -> HostReading {
        let steady = self.after(self.since.elapsed());
        let stepped_ms = self.stepped_ms.load(Ordering::SeqCst);
        HostReading {
            wall: steady.plus_millis(stepped_ms),
            steady,
        }
    }

    fn after(&self, elapsed: Duration) -> Timestamp {
        let elapsed_us = i128::try_from(elapsed.as_micros()).unwrap_or(i128::MAX);
        let drifted = elapsed_us.saturating_mul(1_000_000 + i128::from(self.drift_ppm));
        let elapsed_ms = i64::try_from(drifted / 1_000_000_000).unwrap_or(i64::MAX);
        let since_start_ms = elapsed_ms.saturating_add(self.offset_ms);
        self.start.plus_millis(since_start_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_host_is_off_and_drifts() {
        let start = Timestamp::from_unix_millis(1_700_000_000_000).unwrap();
        for (offset_ms, drift_ppm, shown_ms) in [
            (0, 0, 1_000_000),
            (-60_000, 100, 940_100),
            (60_000, -100, 1_059_900),
        ] {
            let simulated = SimulatedHost {
                start,
                offset_ms,
                drift_ppm,
                since: Instant::now(),
                stepped_ms: AtomicI64::new(0),
            };
            let shown = simulated.after(Duration::from_secs(1_000));
            assert_eq!(shown.unix_millis() - start.unix_millis(), shown_ms);
        }
    }
}
