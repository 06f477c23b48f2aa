//! How far the host's clock is from the store's, which all replicas share.
//!
//! A look at the store's clock between two at the host's says between which bounds the offset
//! lies. The first look sets it to their middle. Each later one changes it only where it
//! contradicts what is known, and by no more than that, so that varying round trips do not make
//! the clock jitter.

use std::time::Duration;

use tokio::time::Instant;

use super::{Clock, Timestamp};

/// A host that is as far from the store as this is wrong, or the store is: the process is not
/// ready.
const OFFSET_MAX: Duration = Duration::from_secs(2);

/// The longest that [`Clock::now`] stands still so as not to run backwards. A host whose clock
/// leapt further has shown times that were plainly wrong, and must not go on doing so.
const HELD_MAX_MS: i64 = 2_000;

/// One look at the store's clock, between two at the host's.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub before: Timestamp,
    pub store: Timestamp,
    pub after: Timestamp,
}

impl Look {
    /// The least and the most milliseconds by which the store may be ahead of the host. `None`
    /// where the host's clock was set in between.
    fn bounds(&self) -> Option<(i64, i64)> {
        let (before, after) = (self.before.unix_millis(), self.after.unix_millis());
        let store = self.store.unix_millis();
        // One more on each side: every reading is cut off to its millisecond.
        (before <= after).then_some((store - after - 1, store - before + 1))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alignment {
    /// Milliseconds by which the store is ahead of the host; `None`: nobody has looked.
    measured_ms: Option<i64>,
    /// The offset may be wrong by so much.
    error_ms: i64,
    /// [`Clock::now`] shows no earlier time (before travel): it has shown this one.
    held: Option<Timestamp>,
}

impl Alignment {
    pub fn offset_ms(&self) -> i64 {
        self.measured_ms.unwrap_or(0)
    }

    /// The store's time.
    pub fn real(&self, host: Timestamp) -> Timestamp {
        host.plus_millis(self.offset_ms())
    }

    /// The same, but never earlier than what was shown before.
    pub fn shown(&self, host: Timestamp) -> Timestamp {
        let real = self.real(host);
        self.held.map_or(real, |held| held.max(real))
    }

    fn take(&mut self, (least, most): (i64, i64), host: Timestamp) {
        let shown = self.shown(host);
        let offset_ms = match self.measured_ms {
            Some(known) => known.clamp(least, most),
            None => least + (most - least) / 2,
        };
        let back_ms = shown.unix_millis() - host.plus_millis(offset_ms).unix_millis();
        let is_first = self.measured_ms.is_none();
        self.held = (!is_first && (1..=HELD_MAX_MS).contains(&back_ms)).then_some(shown);
        if !is_first && back_ms > HELD_MAX_MS {
            tracing::warn!(back_ms, "the host's clock had leapt, time is set back");
        }
        self.measured_ms = Some(offset_ms);
        self.error_ms = most - least - (most - least) / 2;
    }
}

impl Clock {
    /// Brings this clock into line with the store's. Of several looks the quickest counts. False:
    /// none was of use, and everything stays as it was.
    pub fn align(&self, looks: &[Look]) -> bool {
        let bounds = looks.iter().filter_map(Look::bounds);
        let Some(bounds) = bounds.min_by_key(|(least, most)| most - least) else {
            return false;
        };
        let mut alignment = self.0.alignment();
        alignment.take(bounds, self.host_now());
        tracing::debug!(
            offset_ms = alignment.offset_ms(),
            error_ms = alignment.error_ms,
            "the store's clock was looked at"
        );
        drop(alignment);
        metrics::gauge!("clock_offset_seconds").set(self.offset());
        true
    }

    /// How far the host's clock and the store's are apart, where that was measured.
    pub fn offset(&self) -> Duration {
        Duration::from_millis(self.0.alignment().offset_ms().unsigned_abs())
    }

    /// Whether the host's clock may be that of the store, as far as is known.
    pub fn agrees_with_store(&self) -> bool {
        let error_ms = self.0.alignment().error_ms.unsigned_abs();
        self.offset() < OFFSET_MAX + Duration::from_millis(error_ms)
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

/// How long a lease lasts: by the store's time, which the others go by, and by this process's own
/// monotonic time, which nobody can set. Begun before the lease is written, so that it is over
/// here before it is over for anybody else.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// What is written. Real time.
    pub until: Timestamp,
    begun: Instant,
    length: Duration,
}

impl Term {
    /// Whether somebody else may have taken over, by either time: the wall's goes on while the
    /// machine is suspended, the monotonic one whatever the wall is set to.
    pub fn is_over(&self, clock: &Clock) -> bool {
        clock.real_now() >= self.until || self.left().is_zero()
    }

    /// What is left of it by monotonic time.
    pub fn left(&self) -> Duration {
        self.length.saturating_sub(self.begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host's time at which everything happens, unless a test says otherwise.
    const HOST_MS: i64 = 1_700_000_000_000;

    fn at(since_ms: i64) -> Timestamp {
        Timestamp::from_unix_millis(HOST_MS + since_ms).unwrap()
    }

    /// Of a store that is ahead by so much, after a journey there and one back.
    fn look(ahead_ms: i64, [there_ms, back_ms]: [i64; 2]) -> Look {
        Look {
            before: at(0),
            store: at(there_ms + ahead_ms),
            after: at(there_ms + back_ms),
        }
    }

    fn take(alignment: &mut Alignment, look: Look) {
        alignment.take(look.bounds().unwrap(), at(0));
    }

    #[test]
    fn without_a_look_the_stores_time_is_the_hosts() {
        let alignment = Alignment::default();
        assert_eq!(alignment.real(at(0)), at(0));
        assert_eq!(alignment.shown(at(0)), at(0));
    }

    #[test]
    fn a_look_that_contradicts_nothing_changes_nothing() {
        let mut alignment = Alignment::default();
        for journey in [[1, 1], [800, 0], [0, 800]] {
            take(&mut alignment, look(50, journey));
            assert_eq!(alignment.offset_ms(), 50);
        }
    }

    #[test]
    fn a_look_changes_no_more_than_it_contradicts() {
        let mut alignment = Alignment::default();
        take(&mut alignment, look(50, [0, 0]));
        take(&mut alignment, look(1_000, [300, 100]));
        assert_eq!(alignment.offset_ms(), 1_000 - 100 - 1);
    }

    #[test]
    fn time_stands_still_rather_than_run_backwards() {
        let mut alignment = Alignment::default();
        take(&mut alignment, look(0, [0, 0]));
        for _ in 0..2 {
            take(&mut alignment, look(-500, [0, 0]));
            assert_eq!(alignment.shown(at(0)), at(0));
            assert_eq!(alignment.real(at(0)), at(-499), "leases see it at once");
        }
        assert_eq!(alignment.shown(at(600)), at(101), "it has caught up");
    }

    #[test]
    fn time_that_had_leapt_is_set_back() {
        let mut alignment = Alignment::default();
        take(&mut alignment, look(0, [0, 0]));
        take(&mut alignment, look(-3_600_000, [0, 0]));
        assert_eq!(alignment.shown(at(0)), alignment.real(at(0)));
    }

    #[tokio::test]
    async fn the_quickest_look_sets_the_offset() {
        let clock = Clock::simulated(at(0), 60_000, 0);
        let (slow, quick) = (look(-60_000, [900, 100]), look(-60_000, [10, 10]));
        assert!(clock.align(&[slow, quick, slow]));
        assert_eq!(clock.offset(), Duration::from_secs(60));
        let moved = clock.host_now().since(clock.now());
        assert!(moved.abs_diff(Duration::from_secs(60)) < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn a_look_during_which_the_host_was_set_back_is_none() {
        let clock = Clock::simulated(at(0), 0, 0);
        let torn = Look {
            before: at(60_000),
            store: at(60_000),
            after: at(0),
        };
        assert!(!clock.align(&[torn]));
        assert_eq!(clock.offset(), Duration::ZERO);
    }

    #[tokio::test]
    async fn an_offset_of_two_seconds_is_too_much() {
        for ahead_ms in [-1_000, 1_000] {
            let clock = Clock::simulated(at(0), 0, 0);
            assert!(clock.agrees_with_store());
            assert!(clock.align(&[look(ahead_ms, [0, 0])]));
            assert!(clock.agrees_with_store());
            assert!(clock.align(&[look(ahead_ms * 3, [0, 0])]));
            assert!(!clock.agrees_with_store());
        }
    }

    #[tokio::test]
    async fn a_term_is_over_by_the_stores_time() {
        let clock = Clock::simulated(at(0), 0, 0);
        let term = clock.term(Duration::from_secs(3_600));
        assert!(!term.is_over(&clock));
        assert!(clock.align(&[look(3_600_000, [0, 0])]));
        assert!(term.is_over(&clock));
    }

    #[tokio::test]
    async fn a_term_is_over_by_monotonic_time_whatever_the_clocks_show() {
        let clock = Clock::simulated(at(0), 0, 0);
        let term = clock.term(Duration::from_millis(10));
        assert!(clock.align(&[look(-3_600_000, [0, 0])]));
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(term.is_over(&clock));
    }
}
