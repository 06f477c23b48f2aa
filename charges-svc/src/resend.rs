//! A payment request that goes out a second time: the first process died between recording the
//! charge and calling the rail, and the rail promises to refuse the second use of a reference.
//!
//! Promise: this happens once, within [`RESEND_WITHIN`], only after the session has taken the
//! charge again and the rail has said that it knows no such payment, and only after it is durable
//! that the request goes out. Nobody was told that nothing was started, because that is told only
//! of ended charges.

use std::sync::Arc;

use chassis::{clock::Clock, error_chain::chain};
use db::{Tx, Update};
use rails::{Rail, RequestOutcome};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    charge::{Charge, Lease, START_BY},
    create,
    error::Result,
    schedule::RESEND_WITHIN,
    service::Service,
    store::{
        self,
        evidence::{Action, Note},
    },
    tell::OpenOutcome,
};

/// A payment request that is about to go out a second time.
#[derive(Clone, Debug)]
pub struct Resend {
    charge: Charge,
    lease: Lease,
    begun: Instant,
}

impl Resend {
    /// Whether it is too late to send it: the commit took time, and the charge's timer relies on
    /// [`START_BY`].
    fn is_late(&self, clock: &Clock) -> bool {
        self.begun.elapsed() >= START_BY
            || clock.now().since(self.charge.facts.created_at) >= RESEND_WITHIN
            || self.lease.term.is_over(clock)
    }
}

impl Service {
    /// Step 3 again, for a charge that may be sent a second time: whether its session takes it.
    pub async fn is_taken_again(&self, charge: &Charge) -> Result<bool> {
        let timing = self.timing_of(&charge.facts);
        if !charge.may_be_resent(self.clock.now(), timing) {
            return Ok(false);
        }
        Ok(match self.teller.open(charge).await {
            Ok(OpenOutcome::Recorded) => true,
            // It is not certain what its process did before it died, so this is no reason to end
            // it.
            Ok(OpenOutcome::Refused) => false,
            Err(status) => {
                tracing::warn!(
                    error = %chain(&status),
                    "sessions-svc does not take the charge again"
                );
                false
            }
        })
    }

    /// Records, beforehand, that the request goes out a second time, and holds the charge
    /// meanwhile. `None` if it is too late or somebody else holds the charge.
    pub async fn begin_resend(
        &self,
        tx: &mut Tx,
        charge: &Charge,
        fence: Option<Uuid>,
    ) -> Result<Option<Resend>> {
        let (id, begun, now) = (
            charge.facts.transaction_id,
            Instant::now(),
            self.clock.now(),
        );
        let timing = self.timing_of(&charge.facts);
        if !charge.may_be_resent(now, timing) {
            return Ok(None);
        }
        let mut resent = charge.clone();
        resent.timer.begin_resend(now);
        let marked = store::charges::mark_resent(tx, id, fence, &resent.timer).await?;
        if marked == Update::NotThere {
            return Ok(None);
        }
        let lease = Lease::new(&self.clock, self.settings.lease);
        resent.claim = store::charges::claim(tx, id, lease).await?;
        let said = (Action::RequestPayment, Note::SentAgain.code());
        store::evidence::keep(tx, id.uuid(), said, None, now).await?;
        Ok(Some(Resend {
            charge: resent,
            lease,
            begun,
        }))
    }

    /// Sends the request, if it is still ours to send.
    pub async fn resend(self: &Arc<Self>, rail: &Rail, resending: &Resend) -> Result<()> {
        let charge = &resending.charge;
        if resending.is_late(&self.clock) || !self.outlives_a_call(charge.claim) {
            // The next holder queries the rail, as after any request that may have gone out.
            return Ok(());
        }
        tracing::warn!(
            charge.reference = %charge.facts.reference,
            "its process died before the rail's reply, the payment request goes out once more"
        );
        let place = self.awaited.enter(&charge.facts);
        let mut answer = rail.request_payment(&create::request(&charge.facts)).await;
        // A refusal is about this request alone. The first may still be on its way.
        if let RequestOutcome::Refused(_) = answer.outcome {
            answer.outcome = RequestOutcome::Unknown;
        }
        self.write_request_outcome(charge, &answer, place).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::charge::tests::charge;

    #[tokio::test]
    async fn what_could_not_go_out_in_time_does_not_go_out() {
        let created_at = charge().facts.created_at;
        for (age, waited, is_late) in [
            (31, 9, false),
            (31, 10, true),
            (81, 8, false),
            (81, 9, true),
        ] {
            let (age, waited) = (Duration::from_secs(age), Duration::from_secs(waited));
            let clock = Clock::simulated(created_at + age + waited, 0, 0);
            let resending = Resend {
                charge: charge(),
                lease: Lease::new(&clock, Duration::from_secs(30)),
                begun: Instant::now() - waited,
            };
            assert_eq!(resending.is_late(&clock), is_late, "{age:?} {waited:?}");
        }
    }
}
