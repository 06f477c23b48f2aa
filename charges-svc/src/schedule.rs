//! When a rail is queried about a charge, and when its silence is final. Pure: each time follows
//! from the charge's own times alone, so nothing is counted, and a late worker skips what it
//! missed.

use std::time::Duration;

use chassis::clock::Timestamp;

/// Between two queries once the network's silence is final.
const AFTER_WINDOW: Duration = Duration::from_secs(5 * 60);

/// From this age on the rail is queried less often, and an operator gets a case.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Between two queries after a day.
const AFTER_DAY: Duration = Duration::from_secs(60 * 60);

/// When to query a charge again after it failed, because money may come late.
const AFTER_FAILURE: [Duration; 3] = [
    Duration::from_secs(60 * 60),
    DAY,
    Duration::from_secs(72 * 60 * 60),
];

/// A query of a failed charge that the rail did not answer is repeated this much later.
const LOOK_AGAIN: Duration = Duration::from_secs(60 * 60);

/// A rail may have forgotten a payment that ended this long ago.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Oldest age of a charge whose payment request goes out a second time. Later the payer is
/// unlikely to be there to approve it.
pub const RESEND_WITHIN: Duration = Duration::from_secs(90);

/// The margin that is added to a network's window is the window divided by this: 50 s on MTN and
/// 30 s on Paystack. A request may still be in the network's own queues when our connection
/// closes.
const MARGIN_PART: u32 = 6;

/// The times that decide about the charges of one rail.
#[derive(Clone, Copy, Debug)]
pub struct Timing<'a> {
    /// The first queries, each counted from the submission.
    pub schedule: &'a [Duration],
    /// How long the network lets the payer approve, by its own clock.
    pub approval_window: Duration,
    /// How long a code may be submitted.
    pub otp_lifetime: Duration,
    /// Up to this age of the charge, a lost payment request may go out a second time. `None` means
    /// never, because the network does not promise to refuse the second.
    pub resend_within: Option<Duration>,
}

impl Timing<'_> {
    /// The first query after `now`: by the schedule, then when the network's silence is final,
    /// then every five minutes, and every hour after a day.
    pub fn next_query(
        &self,
        submitted_at: Timestamp,
        taken_by: Timestamp,
        now: Timestamp,
    ) -> Timestamp {
        let age = now.since(submitted_at);
        let end = self.final_at(taken_by).since(submitted_at);
        let steps = self.schedule.iter().copied();
        let marks = steps.chain([end, DAY]);
        let regular = if age < DAY {
            (age >= end).then_some(end + next_step(age, end, AFTER_WINDOW))
        } else {
            Some(DAY + next_step(age, DAY, AFTER_DAY))
        };
        let next = marks.chain(regular).filter(|mark| *mark > age).min();
        submitted_at + next.unwrap_or(age + AFTER_DAY)
    }

    /// When the payer's time is over by the network's own clock, if it took the payment by
    /// `taken_by`.
    pub fn final_at(&self, taken_by: Timestamp) -> Timestamp {
        taken_by + self.approval_window + self.approval_window / MARGIN_PART
    }

    /// The next query of a failed charge, after one that the rail answered. `None` after three
    /// days.
    pub fn query_after_failure(failed_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let looks = AFTER_FAILURE.into_iter().map(|after| failed_at + after);
        looks.filter(|look| *look > now).min()
    }

    /// Like [`Timing::query_after_failure`], after a query that the rail did not answer and which
    /// therefore does not count.
    pub fn query_after_unanswered_look(failed_at: Timestamp, now: Timestamp) -> Timestamp {
        let again = now + LOOK_AGAIN;
        let planned = Self::query_after_failure(failed_at, now);
        planned.map_or(again, |planned| planned.min(again))
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
            now = timing.next_query(start, start, now);
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
            resend_within: None,
        }
    }

    #[test]
    fn the_rail_is_asked_as_the_design_says() {
        let schedule = [15, 30, 60, 120].map(Duration::from_secs);
        let found = queries_until(timing(&schedule), Duration::from_secs(26 * 3600));
        assert_eq!(found[..7], [15, 30, 60, 120, 350, 650, 950]);
        let day = 24 * 3600;
        let at_day = found
            .iter()
            .position(|query| *query == day)
            .expect("asked at a day");
        assert_eq!(
            found[at_day - 1..],
            [day - 250, day, day + 3600, day + 7200]
        );
    }

    #[test]
    fn a_late_worker_skips_what_it_missed() {
        let schedule = [15, 30].map(Duration::from_secs);
        let start: Timestamp = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let next = timing(&schedule).next_query(start, start, start + 31 * SECOND);
        assert_eq!(next.since(start), 350 * SECOND);
        let next = timing(&schedule).next_query(start, start, start + 651 * SECOND);
        assert_eq!(next.since(start), 950 * SECOND);
    }

    #[test]
    fn the_networks_time_counts_from_when_it_can_have_taken_the_payment() {
        let start: Timestamp = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let taken_by = start + 18 * SECOND;
        let next = timing(&[]).next_query(start, taken_by, start);
        assert_eq!(next, taken_by + 350 * SECOND);
        assert_eq!(next, timing(&[]).final_at(taken_by));
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

    #[test]
    fn a_look_without_an_answer_is_repeated_every_hour_and_no_other_is_missed() {
        let failed_at: Timestamp = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let hour = 3600 * SECOND;
        for (asked_after, next_after) in [
            (hour, 2 * hour),
            (23 * hour + 1800 * SECOND, 24 * hour),
            (72 * hour, 73 * hour),
            (500 * hour, 501 * hour),
        ] {
            let next = Timing::query_after_unanswered_look(failed_at, failed_at + asked_after);
            assert_eq!(next, failed_at + next_after);
        }
    }
}
