//! What merchants, payers and the other services see of a charge.
//!
//! Promise: nobody sees a void charge. It cannot be converted to a [`ShownCharge`].

use std::sync::Arc;

use chassis::{
    charge_status::ChargeStatus, clock::Timestamp, closed_list::count_unknown,
    failure::FailureReason,
};

use super::{Charge, Facts, OTP_TRIES_MAX};

/// A charge as it is shown.
#[derive(Clone, Debug)]
pub struct ShownCharge {
    pub facts: Arc<Facts>,
    /// May lag behind the charge's state, see [`ShownCharge::told`].
    pub status: ChargeStatus,
    /// Present only with FAILED. As it was stored; only a newer version may know it.
    pub failure_reason: Option<String>,
    pub otp_tries: i64,
    pub otp_expires_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    /// Increases with each change of the charge's state.
    pub version: i64,
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
            version: progress.version,
        })
    }
}

impl ShownCharge {
    pub fn otp_tries_left(&self) -> i64 {
        OTP_TRIES_MAX - self.otp_tries
    }

    /// Why it failed, for people. A reason that only a newer version knows is said to be the
    /// network's.
    pub fn failure_message(&self) -> Option<&'static str> {
        let reason = self.failure_reason.as_deref()?;
        let reason = reason.parse().unwrap_or_else(|_| {
            count_unknown("failure_reason");
            FailureReason::RailError
        });
        Some(reason.message())
    }

    /// The charge as shown to a caller who is told this status, whatever it has become.
    pub fn shown_as(self, status: ChargeStatus) -> Self {
        let failure_reason = self
            .failure_reason
            .filter(|_| status == ChargeStatus::Failed);
        Self {
            status,
            failure_reason,
            ..self
        }
    }
}
