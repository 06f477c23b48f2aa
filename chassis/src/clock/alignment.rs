//! How far the host's clock is from the store's clock, which all replicas share.
//!
//! A reading of the store's clock between two of the host's bounds the offset. The first reading
//! sets it to the middle. Later ones change it only as far as they contradict it, so that varying
//! round trips do not make the clock jitter.
//!
//! The offset is measured from the host's monotonic time. Its wall clock may be set by hours
//! between two readings, which would end charges and forget keys. After a suspension, time is late
//! until the next reading, which makes nothing happen too early.

use std::time::Duration;

use tokio::time::Instant;

use super::{Clock, HostReading, Timestamp};

/// If host and store are this far apart, one of them is wrong, and the process is not ready.
const OFFSET_MAX: Duration = Duration::from_secs(2);

/// How long [`Clock::now`] stands still at most so as not to run backwards. A store whose clock
/// leapt further has shown plainly wrong times, which must end.
const HELD_MAX_MS: i64 = 2_000;

/// A smaller change between two readings is not a leap: time daemons speed clocks up and slow them
/// down.
const LEAP_MIN: Duration = Duration::from_secs(1);

/// One reading of the store's clock between two of the host's ([`Clock::steady_now`]).
#[derive(Clone, Copy, Debug)]
pub struct StoreReading {
    pub before: Timestamp,
    pub store: Timestamp,
    pub after: Timestamp,
}

impl StoreReading {
    /// The least and most milliseconds by which the store may be ahead of the host.
    fn bounds(&self) -> (i64, i64) {
        let (before, after) = (self.before.unix_millis(), self.after.unix_millis());
        let store = self.store.unix_millis();
        // One more on each side: every reading is truncated to its millisecond.
        (store - after - 1, store - before + 1)
    }
}

/// What the last reading said.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    /// Milliseconds by which the store is ahead of the host's monotonic time.
    steady_ms: i64,
    /// The same for its wall clock.
    wall_ms: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alignment {
    /// `None` before the first reading.
    measured: Option<Offsets>,
    /// How far the offsets may be off.
    error_ms: i64,
    /// [`Clock::now`] shows no earlier time (before travel): it has shown this one.
    held: Option<Timestamp>,
}

impl Alignment {
    /// The store's time.
    pub fn real(&self, host: HostReading) -> Timestamp {
        self.measured.map_or(host.wall, |offsets| {
            host.steady.plus_millis(offsets.steady_ms)
        })
    }

    /// The same, but never earlier than what was shown before.
    pub fn shown(&self, host: HostReading) -> Timestamp {
        let real = self.real(host);
        self.held.map_or(real, |held| held.max(real))
    }

    /// The store's time by whichever of the host's clocks shows the later one.
    pub fn latest(&self, host: HostReading) -> Timestamp {
        self.real(host).max(self.by_wall(host))
    }

    /// The store's time by the host's wall clock.
    fn by_wall(&self, host: HostReading) -> Timestamp {
        let wall_ms = self.measured.map_or(0, |offsets| offsets.wall_ms);
        host.wall.plus_millis(wall_ms)
    }

    /// How far the host's wall clock and the store's are apart.
    fn off_by(&self, host: HostReading) -> Duration {
        apart(host.wall, self.real(host))
    }

    fn take(&mut self, (least, most): (i64, i64), host: HostReading) {
        let shown = self.shown(host);
        let steady_ms = match self.measured {
            Some(known) => known.steady_ms.clamp(least, most),
            None => least + (most - least) / 2,
        };
        let real = host.steady.plus_millis(steady_ms);
        let back_ms = shown.unix_millis() - real.unix_millis();
        let is_first = self.measured.is_none();
        self.held = (!is_first && (1..=HELD_MAX_MS).contains(&back_ms)).then_some(shown);
        if !is_first && back_ms > HELD_MAX_MS {
            tracing::warn!(back_ms, "the store's clock had leapt, time is set back");
        }
        self.measured = Some(Offsets {
            steady_ms,
            wall_ms: real.unix_millis() - host.wall.unix_millis(),
        });
        self.error_ms = most - least - (most - least) / 2;
    }
}

fn apart(one: Timestamp, other: Timestamp) -> Duration {
    one.since(other).max(other.since(one))
}

impl Clock {
    /// Aligns this clock with the store's, using the quickest of the readings. Without any,
    /// nothing changes.
    pub fn align(&self, looks: &[StoreReading]) {
        let bounds = looks.iter().map(StoreReading::bounds);
        let Some(bounds) = bounds.min_by_key(|(least, most)| most - least) else {
            return;
        };
        let mut alignment = self.0.alignment();
        alignment.take(bounds, self.0.host.read());
        tracing::debug!(?alignment, "the store's clock was looked at");
        drop(alignment);
        metrics::gauge!("clock_offset_seconds").set(self.offset());
    }

    /// How far the host's wall clock and the store's are apart, as far as is known.
    pub fn offset(&self) -> Duration {
        self.0.alignment().off_by(self.0.host.read())
    }

    /// Whether the host's clock agrees with the store's, as far as is known.
    pub fn agrees_with_store(&self) -> bool {
        let error_ms = self.0.alignment().error_ms.unsigned_abs();
        self.offset() < OFFSET_MAX + Duration::from_millis(error_ms)
    }

    /// Whether the host's wall clock was set, or the machine suspended, since the last reading of
    /// the store's clock.
    pub fn has_leapt(&self) -> bool {
        let (alignment, host) = (self.0.alignment(), self.0.host.read());
        apart(alignment.by_wall(host), alignment.real(host)) > LEAP_MIN
    }

    /// A term that begins now.
    pub fn term(&self, length: Duration) -> Term {
        Term {
            until: self.real_now() + length,
            begun: Instant::now(),
            length,
        }
    }
}

/// How long a lease lasts: by the store's time, which others follow, and by this process's own
/// monotonic time, which nobody can set. It starts before the lease is written, so that it ends
/// here before it ends for anybody else.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// What is written to the store. Real time.
    pub until: Timestamp,
    begun: Instant,
    length: Duration,
}

impl Term {
    /// Whether somebody else may have taken over, by any clock: the wall clock goes on while the
    /// machine is suspended, the monotonic one whatever the wall clock is set to.
    pub fn is_over(&self, clock: &Clock) -> bool {
        clock.latest_now() >= self.until || self.left().is_zero()
    }

    /// The time left, by monotonic time.
    pub fn left(&self) -> Duration {
        self.length.saturating_sub(self.begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host's time in tests, unless one says otherwise.
    const HOST_MS: i64 = 1_700_000_000_000;

    fn at(since_ms: i64) -> Timestamp {
        Timestamp::from_unix_millis(HOST_MS + since_ms).unwrap()
    }

    /// A reading of a store that is this far ahead, with the given delays there and back.
    fn look(ahead_ms: i64, [there_ms, back_ms]: [i64; 2]) -> StoreReading {
        StoreReading {
            before: at(0),
            store: at(there_ms + ahead_ms),
            after: at(there_ms + back_ms),
        }
    }

    /// A host whose clock nobody has set.
    fn host(since_ms: i64) -> HostReading {
        HostReading {
            wall: at(since_ms),
            steady: at(since_ms),
        }
    }

    fn take(alignment: &mut Alignment, look: StoreReading) {
        alignment.take(look.bounds(), host(0));
    }

    fn ahead_ms(alignment: &Alignment) -> i64 {
        alignment.real(host(0)).unix_millis() - HOST_MS
    }

    #[test]
    fn without_a_look_the_stores_time_is_the_hosts() {
        let alignment = Alignment::default();
        assert_eq!(alignment.real(host(0)), at(0));
        assert_eq!(alignment.shown(host(0)), at(0));
    }

    #[test]
    fn a_look_that_contradicts_nothing_changes_nothing() {
        let mut alignment = Alignment::default();
        for journey in [[1, 1], [800, 0], [0, 800]] {
            take(&mut alignment, look(50, journey));
            assert_eq!(ahead_ms(&alignment), 50);
        }
    }

    #[test]
    fn a_look_changes_no_more_than_it_contradicts() {
        let mut alignment = Alignment::default();
        take(&mut alignment, look(50, [0, 0]));
        take(&mut alignment, look(1_000, [300, 100]));
        assert_eq!(ahead_ms(&alignment), 1_000 - 100 - 1);
    }

    #[test]
    fn time_stands_still_rather_than_run_backwards() {
        let mut alignment = Alignment::default();
        take(&mut alignment, look(0, [0, 0]));
        for _ in 0..2 {
            take(&mut alignment, look(-500, [0, 0]));
            assert_eq!(alignment.shown(host(0)), at(0));
            assert_eq!(alignment.real(host(0)), at(-499), "leases see it at once");
        }
        assert_eq!(alignment.shown(host(600)), at(101), "it has caught up");
    }

    #[test]
    fn time_that_had_leapt_is_set_back() {
        let mut alignment = Alignment::default();
        take(&mut alignment, look(0, [0, 0]));
        take(&mut alignment, look(-3_600_000, [0, 0]));
        assert_eq!(alignment.shown(host(0)), alignment.real(host(0)));
    }

    #[tokio::test]
    async fn the_quickest_look_sets_the_offset() {
        let clock = Clock::simulated(at(0), 60_000, 0);
        let (slow, quick) = (look(-60_000, [900, 100]), look(-60_000, [10, 10]));
        clock.align(&[slow, quick, slow]);
        assert_eq!(clock.offset(), Duration::from_secs(60));
        let moved = clock.host_now().since(clock.now());
        assert!(moved.abs_diff(Duration::from_secs(60)) < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn an_offset_of_two_seconds_is_too_much() {
        for ahead_ms in [-1_000, 1_000] {
            let clock = Clock::simulated(at(0), 0, 0);
            assert!(clock.agrees_with_store());
            clock.align(&[look(ahead_ms, [0, 0])]);
            assert!(clock.agrees_with_store());
            clock.align(&[look(ahead_ms * 3, [0, 0])]);
            assert!(!clock.agrees_with_store());
        }
    }

    const DAY_MS: i64 = 24 * 3_600_000;

    #[tokio::test]
    async fn a_hosts_leap_does_not_move_the_stores_time() {
        for leap_ms in [2 * DAY_MS, -2 * DAY_MS] {
            let clock = Clock::simulated(at(0), 60_000, 0);
            clock.align(&[look(-60_000, [0, 0])]);
            clock.step_host(leap_ms);
            for shown in [clock.now(), clock.real_now()] {
                let off = shown.unix_millis() - HOST_MS;
                assert!((-5_000..=5_000).contains(&off), "{leap_ms}: {off}");
            }
            assert!(clock.has_leapt());
            assert!(!clock.agrees_with_store(), "seen before the next look");
        }
    }

    #[tokio::test]
    async fn where_no_store_was_looked_at_time_is_the_hosts() {
        let clock = Clock::simulated(at(0), 0, 0);
        clock.step_host(DAY_MS);
        assert!(clock.now() >= at(DAY_MS) && clock.real_now() >= at(DAY_MS));
        assert!(clock.agrees_with_store() && !clock.has_leapt());
    }

    #[tokio::test]
    async fn a_term_is_over_by_the_hosts_wall_clock() {
        let clock = Clock::simulated(at(0), 60_000, 0);
        clock.align(&[look(-60_000, [0, 0])]);
        let term = clock.term(Duration::from_secs(3_600));
        assert!(!term.is_over(&clock));
        // This is what a suspension looks like: monotonic time stood still.
        clock.step_host(3_600_000);
        assert!(term.is_over(&clock));
    }

    #[tokio::test]
    async fn a_term_is_over_by_the_stores_time() {
        let clock = Clock::simulated(at(0), 0, 0);
        let term = clock.term(Duration::from_secs(3_600));
        assert!(!term.is_over(&clock));
        clock.align(&[look(3_600_000, [0, 0])]);
        assert!(term.is_over(&clock));
    }

    #[tokio::test]
    async fn a_term_is_over_by_monotonic_time_whatever_the_clocks_show() {
        let clock = Clock::simulated(at(0), 0, 0);
        let term = clock.term(Duration::from_millis(10));
        clock.align(&[look(-3_600_000, [0, 0])]);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(term.is_over(&clock));
    }
}
