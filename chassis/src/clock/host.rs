//! The host's own clock: the wall clock of this machine, or a simulated one.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::Timestamp;

#[derive(Debug)]
pub(super) enum Host {
    Wall,
    Simulated(Simulated),
}

/// See [`super::Clock::simulated`].
#[derive(Debug)]
pub(super) struct Simulated {
    start: Timestamp,
    offset_ms: i64,
    drift_ppm: i64,
    since: Instant,
}

impl Host {
    pub fn simulated(start: Timestamp, offset_ms: i64, drift_ppm: i64) -> Self {
        Self::Simulated(Simulated {
            start,
            offset_ms,
            drift_ppm,
            since: Instant::now(),
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::Wall => Timestamp::from_datetime(OffsetDateTime::now_utc()),
            Self::Simulated(simulated) => simulated.now(),
        }
    }
}

impl Simulated {
    fn now(&self) -> Timestamp {
        self.after(self.since.elapsed())
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
            let simulated = Simulated {
                start,
                offset_ms,
                drift_ppm,
                since: Instant::now(),
            };
            let shown = simulated.after(Duration::from_secs(1_000));
            assert_eq!(shown.unix_millis() - start.unix_millis(), shown_ms);
        }
    }
}
