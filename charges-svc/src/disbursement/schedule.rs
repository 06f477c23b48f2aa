//! When a disbursement is sent, and when its rail is asked about it.

use std::time::Duration;

use chassis::clock::Timestamp;

use super::{Disbursement, State};
use crate::{
    hint,
    schedule::{DAY, Timing},
};

/// When a disbursement that was not sent is tried again.
pub fn next_send(disbursement: &Disbursement, now: Timestamp) -> Timestamp {
    hint::ask_again(disbursement.created_at, now)
}

/// When the rail is asked next, after it was asked, or sent something, at `now`. `None` once
/// nothing more can come.
pub fn next_query(
    disbursement: &Disbursement,
    schedule: &[Duration],
    is_answered: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    let progress = &disbursement.progress;
    match progress.state {
        State::Pending => Some(next_send(disbursement, now)),
        State::Processing => {
            let sent_at = disbursement.first_sent_at();
            let timing = Timing {
                schedule,
                approval_window: Duration::ZERO,
                otp_lifetime: DAY,
                resend_within: None,
            };
            Some(timing.next_query(sent_at, sent_at, now))
        }
        State::Completed if progress.reversed_at.is_some() => None,
        State::Completed | State::Failed => {
            let ended_at = progress.completed_at.unwrap_or(progress.updated_at);
            match is_answered {
                true => Timing::query_after_failure(ended_at, now),
                false => Some(Timing::query_after_unanswered_look(ended_at, now)),
            }
        }
    }
}
