//! What is shown of a charge: to merchants, to payers and to the other services.
//!
//! Promise: a void charge is shown to nobody. None can be made into this.

use chassis::{clock::Timestamp, failure::FailureReason};

use super::{Charge, Facts, OTP_TRIES_MAX, Status};

/// A charge as it is shown.
#[derive(Clone, Debug)]
pub struct ShownCharge {
    pub facts: Facts,
    /// May be less than the charge has become, see [`ShownCharge::told`].
    pub status: Status,
    /// Present with FAILED alone.
    pub failure_reason: Option<FailureReason>,
    pub otp_tries: i64,
    pub otp_expires_at: Option<Timestamp>,
    pub updated_at: Timestamp,
}

/// A void charge is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the charge is void")]
pub struct Void;

impl TryFrom<Charge> for ShownCharge {
    type Error = Void;

    fn try_from(charge: Charge) -> Result<Self, Void> {
        let (progress, timer) = (charge.progress, charge.timer);
        Ok(Self {
            facts: charge.facts,
            status: progress.state.shown().ok_or(Void)?,
            failure_reason: progress.failure_reason,
            otp_tries: progress.otp_tries,
            otp_expires_at: timer.otp_expires_at,
            updated_at: progress.updated_at,
        })
    }
}

impl ShownCharge {
    pub fn otp_tries_left(&self) -> i64 {
        OTP_TRIES_MAX - self.otp_tries
    }

    /// The same to somebody who is told this status, whatever the charge has become.
    pub fn told(self, status: Status) -> Self {
        let failure_reason = self.failure_reason.filter(|_| status == Status::Failed);
        Self {
            status,
            failure_reason,
            ..self
        }
    }
}
