//! Which callbacks about one payment or credit are still to be sent, and when.
//!
//! Pure: time is an argument.

use std::time::Duration;

use chassis::clock::Timestamp;

/// Paystack repeats an unanswered webhook four times at this interval …
const WEBHOOK_RETRY_FIRST: Duration = Duration::from_secs(3 * 60);
const WEBHOOK_RETRIES_FIRST: u32 = 4;
/// … then at this interval, until what it reports is as old as that.
const WEBHOOK_RETRY_LATER: Duration = Duration::from_secs(60 * 60);
const WEBHOOK_RETRY_UNTIL: Duration = Duration::from_secs(72 * 60 * 60);

/// The callbacks that are left.
#[derive(Clone, Debug, Default)]
pub struct CallPlan {
    left: u32,
    failures: u32,
    due: Option<Timestamp>,
    /// When that happened which is reported.
    about: Option<Timestamp>,
    /// Whether a callback is being sent now. Not stored, so that a restart sends it again.
    calling: bool,
}

impl CallPlan {
    /// Plans callbacks about what happened at `at`, in place of those that were left.
    pub fn plan(&mut self, count: u32, at: Timestamp) {
        *self = Self {
            left: count,
            failures: 0,
            due: (count > 0).then_some(at),
            about: Some(at),
            calling: self.calling,
        };
    }

    /// One is done: answered, or about to be sent by a rail that sends it only once.
    pub fn done(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.failures = 0;
        if self.left == 0 {
            self.due = None;
        }
    }

    pub fn failed(&mut self, at: Timestamp) {
        self.failures += 1;
        let wait = if self.failures <= WEBHOOK_RETRIES_FIRST {
            WEBHOOK_RETRY_FIRST
        } else {
            WEBHOOK_RETRY_LATER
        };
        let due = at + wait;
        let about = self.about.unwrap_or(at);
        self.due = Some(due).filter(|due| due.since(about) <= WEBHOOK_RETRY_UNTIL);
    }

    /// Sets whether a callback is being sent.
    pub fn set_calling(&mut self, calling: bool) {
        self.calling = calling;
    }

    /// When the next one is to be sent.
    pub fn next(&self) -> Option<Timestamp> {
        self.due.filter(|_| !self.calling)
    }
}
