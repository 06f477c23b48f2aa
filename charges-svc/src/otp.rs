//! How a code is submitted to the rail.
//!
//! Promise: a code is sent once, however many submit it at the same time, and its try is counted
//! first. A code is never stored or logged.

use std::{pin::pin, sync::Arc};

use chassis::{
    charge_status::ChargeStatus,
    error_chain::chain,
    failure::FailureReason,
    ids::{ChargeId, MerchantId, Reference},
    limits::{OTP_CHARACTERS_MAX, is_visible_ascii},
};
use db::Tx;
use rails::{CallOutcome as _, OtpOutcome, RailAnswer};
use secrecy::SecretString;

use crate::{
    charge::{Charge, Event, Lease, State},
    error::{Error, Result},
    rail_call::{self, RailCall, Withdrawal},
    service::{ChargeReply, Service},
    store::{self, evidence::Action},
};

/// A code as received, not yet checked.
pub struct Otp(pub String);

impl Otp {
    fn check(self) -> Result<SecretString> {
        if !is_visible_ascii(self.0.as_bytes(), OTP_CHARACTERS_MAX) {
            let message = format!("must be 1 to {OTP_CHARACTERS_MAX} visible ASCII characters");
            return Err(Error::Invalid {
                field: "otp",
                message: message.into(),
            });
        }
        Ok(self.0.into())
    }
}

impl Service {
    /// Submits the payer's code. Answers as [`RailCall::answer_in_time`] does.
    pub async fn submit_otp(
        self: &Arc<Self>,
        merchant_id: MerchantId,
        reference: &Reference,
        otp: Otp,
    ) -> Result<ChargeReply> {
        let charge = self.get_charge(merchant_id, reference.clone()).await?;
        let otp = otp.check()?;
        if charge.status != ChargeStatus::OtpRequired {
            return Err(Error::NotAwaitingOtp);
        }
        // The newer version that knows its rail takes the code.
        let rail = self.rail_of(&charge.facts).ok_or(Error::NothingStarted)?;
        let submission = Submission {
            call: RailCall::new(self, rail),
            id: charge.facts.transaction_id,
            otp,
        };
        let call = submission.call.clone();
        call.answer_in_time(charge, Box::pin(submission.run()))
            .await
    }
}

/// The submission of a code, in a task of its own.
struct Submission {
    call: RailCall,
    id: ChargeId,
    otp: SecretString,
}

impl Submission {
    async fn run(self) -> Result<ChargeReply> {
        let taken = self.take_charge().await?;
        match self.call_rail(&taken).await {
            Some(answer) => self.write_outcome(taken, &answer).await,
            None => Err(self.call.service.give_back(&taken).await),
        }
    }

    /// Takes the charge for this code and counts the try.
    async fn take_charge(&self) -> Result<Charge> {
        let taken = self.call.service.take_for_code(self.id, self.call.lease);
        taken.await.map_err(|error| match error {
            Error::Database(error) => {
                // It failed before its commit was attempted.
                tracing::error!(error = %chain(&error), "the charge is not taken for the code");
                Error::NothingStarted
            }
            error => error,
        })
    }

    /// Sends the code to the rail. `None` means that it was too late and the code was not sent.
    async fn call_rail(&self, taken: &Charge) -> Option<RailAnswer<OtpOutcome>> {
        let rail = self.call.rail();
        let submitting = pin!(rail.submit_otp(taken.facts.rail_reference, &self.otp));
        self.call.make(taken.claim, submitting).await
    }

    /// Turns the rail's reply into the charge's state and the answer.
    async fn write_outcome(
        &self,
        taken: Charge,
        answer: &RailAnswer<OtpOutcome>,
    ) -> Result<ChargeReply> {
        let written = self.call.service.write_code_outcome(&taken, answer).await;
        rail_call::told_after(written, taken)
    }
}

impl Service {
    /// Takes the charge for one code, and counts the try.
    async fn take_for_code(&self, id: ChargeId, lease: Lease) -> Result<Charge> {
        let mut tx = self.db.begin().await?;
        let before = self.lock(&mut tx, id).await?;
        if before.progress.state != State::OtpRequired {
            return Err(Error::NotAwaitingOtp);
        }
        let mut step = self.step(&before, Event::CodeSent, self.clock.now())?;
        step.after.claim = lease.into();
        let taken = step.after.clone();
        self.write_step(&mut tx, &step).await?;
        if let Err(error) = tx.commit().await {
            tracing::error!(error = %chain(&error), "nobody knows whether the charge is taken for the code");
            return Err(self.give_back(&taken).await);
        }
        self.announce(step);
        Ok(taken)
    }

    /// Gives back the try of a code that was not sent and will not be. Returns the caller's error.
    async fn give_back(&self, taken: &Charge) -> Error {
        match self.try_give_back(taken).await {
            Ok(Withdrawal::Done) => Error::NothingStarted,
            Ok(Withdrawal::TooLate) => Error::OutcomeUnknown,
            Err(error) => {
                // The reconciler will find that the rail is still waiting.
                tracing::error!(error = %chain(&error), "the code's try is not given back");
                Error::OutcomeUnknown
            }
        }
    }

    /// Locking the charge waits for the transaction that took it, so what is seen here is final.
    async fn try_give_back(&self, taken: &Charge) -> Result<Withdrawal> {
        let mut tx = self.db.begin().await?;
        let before = self.lock(&mut tx, taken.facts.transaction_id).await?;
        if before.progress.version < taken.progress.version {
            // It was never taken.
            return Ok(Withdrawal::Done);
        }
        if before.progress.state != State::OtpSubmitting || before.claim.fence != taken.claim.fence
        {
            return Ok(Withdrawal::TooLate);
        }
        let step = self.step(&before, Event::CodeNotSent, self.clock.now())?;
        self.write_step(&mut tx, &step).await?;
        tx.commit().await?;
        self.announce(step);
        Ok(Withdrawal::Done)
    }

    /// Writes the rail's reply to the code.
    async fn write_code_outcome(
        self: &Arc<Self>,
        taken: &Charge,
        answer: &RailAnswer<OtpOutcome>,
    ) -> Result<ChargeReply> {
        let mut tx = self.db.begin().await?;
        let mut before = self.lock(&mut tx, taken.facts.transaction_id).await?;
        let is_ours = before.progress.state == State::OtpSubmitting
            && before.progress.version == taken.progress.version;
        let now = self.clock.now();
        if is_ours {
            before.timer.end_call(now);
        }
        let evidence = (Action::SubmitOtp, answer.outcome.label());
        let words = answer.rail_text.as_deref();
        store::evidence::keep(
            &mut tx,
            taken.facts.transaction_id.uuid(),
            evidence,
            words,
            now,
        )
        .await?;
        let event = match event_of(&answer.outcome) {
            Some(Event::CodeWrong) if may_be_accepted(&mut tx, &before, evidence).await? => None,
            event => event,
        };
        let (step, told) = match event {
            Some(event) if is_ours => {
                let instruction = match &answer.outcome {
                    OtpOutcome::Accepted { instruction } => instruction.as_deref(),
                    _ => None,
                };
                let mut step = self.step(&before, event, now)?;
                let told = rail_call::reply(&mut step, event, instruction)?;
                self.write_step(&mut tx, &step).await?;
                (Some(step), told)
            }
            None if is_ours => {
                let timing = self.timing_of(&before.facts);
                before.timer.next_query_at = before.query_after(now, timing);
                let (id, fence) = (before.facts.transaction_id, taken.claim.fence);
                let _ours =
                    store::charges::release_until(&mut tx, id, fence, &before.timer).await?;
                (None, ChargeReply::unanswered(before.try_into()?))
            }
            // A query was quicker.
            Some(_) | None => (None, ChargeReply::from_record(before.try_into()?)),
        };
        tx.commit().await?;
        match step {
            Some(step) => self.announce_now(step).await,
            None => self.reconcile_alarms.ring(&taken.facts.rail),
        }
        Ok(told)
    }
}

/// Whether the rail, which calls the last code wrong, may still accept an earlier one, because it
/// has not called all of them wrong. Then only its own word ends the charge.
async fn may_be_accepted(
    tx: &mut Tx,
    charge: &Charge,
    wrong: (Action, &'static str),
) -> Result<bool> {
    let called_wrong = store::evidence::times(tx, charge.facts.transaction_id, wrong).await?;
    Ok(charge.progress.otp_tries_left() == 0 && called_wrong < charge.progress.otp_tries)
}

/// What the rail's reply means for the charge. `None` if nobody knows yet.
fn event_of(outcome: &OtpOutcome) -> Option<Event> {
    match outcome {
        OtpOutcome::Accepted { .. } => Some(Event::Accepted),
        OtpOutcome::Succeeded => Some(Event::Approved),
        OtpOutcome::WrongCode { .. } => Some(Event::CodeWrong),
        OtpOutcome::Expired => Some(Event::Failed(FailureReason::OtpExpired)),
        OtpOutcome::Failed(reason) => Some(Event::Failed(*reason)),
        OtpOutcome::NotSent => Some(Event::CodeNotSent),
        OtpOutcome::Unknown => None,
    }
}
