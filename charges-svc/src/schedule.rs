//! When a rail is asked about a charge. Pure: a moment follows from the charge's own times alone,
//! so nothing has to be counted and whoever is late skips what it missed.

use std::time::Duration;

use chassis::clock::Timestamp;

/// Between two queries once the payer's time to approve is over.
const AFTER_WINDOW: Duration = Duration::from_secs(5 * 60);

/// From here on the rail is asked less often, and an operator has a case.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Between two queries after a day.
const AFTER_DAY: Duration = Duration::from_secs(60 * 60);

/// A failed charge is asked about again this long after it failed: money may come late.
const AFTER_FAILURE: [Duration; 3] = [
    Duration::from_secs(60 * 60),
    DAY,
    Duration::from_secs(72 * 60 * 60),
];

/// The times that decide about the charges of one rail.
#[derive(Clone, Copy, Debug)]
pub struct Timing<'a> {
    /// The first queries, each counted from the submission.
    pub schedule: &'a [Duration],
    /// How long the payer has to approve.
    pub approval_window: Duration,
    /// How long a code may be submitted.
    pub otp_lifetime: Duration,
}

impl Timing<'_> {
    /// The first query after `now`: as the schedule says, at the end of the window, then every
    /// five minutes, and every hour after a day.
    pub fn next_query(&self, submitted_at: Timestamp, now: Timestamp) -> Timestamp {
        let age = now.since(submitted_at);
        let steps = self.schedule.iter().copied();
        let marks = steps.chain([self.approval_window, DAY]);
        let after_window =
            self.approval_window + next_step(age, self.approval_window, AFTER_WINDOW);
        let regular = if age < DAY {
            (age >= self.approval_window).then_some(after_window)
        } else {
            Some(DAY + next_step(age, DAY, AFTER_DAY))
        };
        let next = marks.chain(regular).filter(|mark| *mark > age).min();
        submitted_at + next.unwrap_or(age + AFTER_DAY)
    }

    /// Whether the payer's time to approve is over.
    pub fn is_window_over(&self, submitted_at: Timestamp, now: Timestamp) -> bool {
        now.since(submitted_at) >= self.approval_window
    }

    /// The next look at a charge that failed; none after three days.
    pub fn query_after_failure(failed_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let looks = AFTER_FAILURE.into_iter().map(|after| failed_at + after);
        looks.filter(|look| *look > now).min()
    }
}

/// The first multiple of `step` after `start` that is past `age`, counted from `start`.
fn next_step(age: Duration, start: Duration, step: Duration) -> Duration {
    let since_start = age.saturating_sub(start).as_millis();
    let steps = since_start / step.as_millis().max(1) + 1;
    step.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queries_until(timing: Timing<'_>, end: Duration) -> Vec<u64> {
        let start: Timestamp = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let mut now = start;
        let mut found = Vec::new();
        loop {
            now = timing.next_query(start, now);
            if now.since(start) > end {
                return found;
            }
            found.push(now.since(start).as_secs());
        }
    }

    fn timing(schedule: &[Duration]) -> Timing<'_> {
        Timing {
            schedule,
            approval_window: 300 * SECOND,
            otp_lifetime: 600 * SECOND,
        }
    }

    #[test]
    fn the_rail_is_asked_as_the_design_says() {
        let schedule = [15, 30, 60, 120].map(Duration::from_secs);
        let found = queries_until(timing(&schedule), Duration::from_secs(26 * 3600));
        assert_eq!(found[..7], [15, 30, 60, 120, 300, 600, 900]);
        let day = 24 * 3600;
        let at_day = found
            .iter()
            .position(|query| *query == day)
            .expect("asked at a day");
        assert_eq!(
            found[at_day - 1..],
            [day - 300, day, day + 3600, day + 7200]
        );
    }

    #[test]
    fn a_late_worker_skips_what_it_missed() {
        let schedule = [15, 30].map(Duration::from_secs);
        let start: Timestamp = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let next = timing(&schedule).next_query(start, start + 31 * SECOND);
        assert_eq!(next.since(start), 300 * SECOND);
        let next = timing(&schedule).next_query(start, start + 601 * SECOND);
        assert_eq!(next.since(start), 900 * SECOND);
    }

    #[test]
    fn a_failed_charge_is_asked_about_three_times() {
        let failed_at: Timestamp = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let mut now = failed_at;
        let mut hours = Vec::new();
        while let Some(look) = Timing::query_after_failure(failed_at, now) {
            hours.push(look.since(failed_at).as_secs() / 3600);
            now = look;
        }
        assert_eq!(hours, [1, 24, 72]);
    }
}
