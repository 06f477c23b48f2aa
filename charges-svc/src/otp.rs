//! How a code goes to the rail (design §3, "OTP").
//!
//! Promise: a code is sent once, by one of however many submit it at the same time, and its try is
//! counted before. A code is never stored or logged.

use std::sync::Arc;

use chassis::ids::{ChargeId, MerchantId, Reference};
use db::Tx;
use secrecy::SecretString;

use crate::{
    charge::{Charge, Event, Facts, Lease, ShownCharge, State},
    error::{Error, Result},
    failure::FailureReason,
    message,
    rail::{Answer, OtpSubmitted, Outcome as _},
    rail_call::{self, RailCall},
    service::{Service, Told},
    store,
};

impl Service {
    /// Submits a code that the payer was given. Answers as [`RailCall::answer_in_time`] does.
    pub async fn submit_otp(
        self: &Arc<Self>,
        merchant_id: MerchantId,
        reference: &Reference,
        otp: Otp,
    ) -> Result<Told> {
        let charge = self.get_charge(merchant_id, reference).await?;
        let otp = otp.check()?;
        let rail_call = RailCall::new(self);
        let work = send(rail_call.clone(), charge.facts.clone(), otp);
        rail_call.answer_in_time(charge, work).await
    }

    /// Takes the charge for one code, and counts the try.
    async fn take_for_code(&self, id: ChargeId, lease: Lease) -> Result<Charge> {
        let mut tx = self.db.begin().await?;
        let before = self.lock(&mut tx, id).await?;
        if before.progress.state != State::OtpRequired {
            return Err(Error::NotAwaitingOtp);
        }
        let change = self.change(&mut tx, &before, Event::CodeSent).await?;
        let mut taken = change.charge.clone();
        taken.claim = store::charges::claim(&mut tx, id, lease).await?;
        if let Err(error) = tx.commit().await {
            tracing::error!(%error, "nobody knows whether the charge is taken for the code");
            return Err(self.give_back(&taken).await);
        }
        self.announce(&change);
        Ok(taken)
    }

    /// The code was not sent and will not be: its try is given back. Returns what the caller is
    /// told.
    async fn give_back(&self, taken: &Charge) -> Error {
        match self.try_give_back(taken).await {
            Ok(true) => Error::NothingStarted,
            Ok(false) => Error::OutcomeUnknown,
            Err(error) => {
                // The reconciler finds that the rail still waits.
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the code's try is not given back"
                );
                Error::OutcomeUnknown
            }
        }
    }

    /// Locking the charge waits for the transaction that took it, so that what is seen is final.
    /// False: somebody else has changed the charge.
    async fn try_give_back(&self, taken: &Charge) -> Result<bool> {
        let mut tx = self.db.begin().await?;
        let before = self.lock(&mut tx, taken.facts.transaction_id).await?;
        if before.progress.version < taken.progress.version {
            // It was never taken.
            return Ok(true);
        }
        if before.progress.state != State::OtpSubmitting || before.claim.fence != taken.claim.fence
        {
            return Ok(false);
        }
        let change = self.change(&mut tx, &before, Event::CodeNotSent).await?;
        tx.commit().await?;
        self.announce(&change);
        Ok(true)
    }

    /// Writes down what the rail said to the code.
    async fn write_code_outcome(
        self: &Arc<Self>,
        taken: &Charge,
        answer: &Answer<OtpSubmitted>,
    ) -> Result<Told> {
        let mut tx = self.db.begin().await?;
        let mut before = self.lock(&mut tx, taken.facts.transaction_id).await?;
        let is_ours = before.progress.state == State::OtpSubmitting
            && before.progress.version == taken.progress.version;
        let (mut change, now) = (None, self.clock.now());
        if is_ours {
            before.timer.end_call(now);
        }
        let evidence = ("submit_otp", answer.outcome.label());
        let words = answer.rail_text.as_deref();
        store::evidence::keep(&mut tx, taken.facts.transaction_id, evidence, words, now).await?;
        let event = match event_of(&answer.outcome) {
            Some(Event::CodeWrong) if may_be_accepted(&mut tx, &before, evidence).await? => None,
            event => event,
        };
        let told = match event {
            Some(event) if is_ours => {
                let made = change.insert(self.change(&mut tx, &before, event).await?);
                if let OtpSubmitted::Accepted { instruction } = &answer.outcome {
                    let (id, words) = (before.facts.transaction_id, instruction.as_deref());
                    store::charges::keep_instruction(&mut tx, id, words).await?;
                }
                let shown = ShownCharge::try_from(made.charge.clone())?;
                let message = message_of(&shown, &answer.outcome);
                Told::new(shown, message)
            }
            None if is_ours => {
                let timing = self.timing(self.rail_of(&before.facts));
                before.timer.next_query_at = before.query_after(now, timing);
                let (id, fence) = (before.facts.transaction_id, taken.claim.fence);
                store::charges::release_until(&mut tx, id, fence, &before.timer).await?;
                Told::unanswered(before.try_into()?)
            }
            // A query was quicker.
            Some(_) | None => Told::from_record(before.try_into()?),
        };
        tx.commit().await?;
        match &change {
            Some(change) => self.announce_now(change).await,
            None => self.reconcile_alarms.ring(taken.facts.rail),
        }
        Ok(told)
    }
}

/// A code as it came, not yet looked at.
pub struct Otp(pub String);

impl Otp {
    /// Longest code taken.
    const LENGTH_MAX: usize = 32;

    fn check(self) -> Result<SecretString> {
        let is_code = (1..=Self::LENGTH_MAX).contains(&self.0.len())
            && self.0.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_code {
            let (field, message) = ("otp", "must be 1 to 32 visible ASCII characters");
            return Err(Error::Invalid { field, message });
        }
        Ok(self.0.into())
    }
}

/// One code on its way, in a task of its own.
async fn send(rail_call: RailCall, charge: Facts, otp: SecretString) -> Result<Told> {
    let service = &rail_call.service;
    let rail = service.rail_of(&charge);
    let lease = Lease::new(&service.clock, service.settings.lease);
    let taken = match service.take_for_code(charge.transaction_id, lease).await {
        Ok(taken) => taken,
        Err(Error::Database(error)) => {
            // Before its commit was tried.
            tracing::error!(%error, "the charge is not taken for the code");
            return Err(Error::NothingStarted);
        }
        Err(error) => return Err(error),
    };
    if !rail_call.may_call(lease, &taken) {
        return Err(service.give_back(&taken).await);
    }
    let answer = rail.submit_otp(taken.facts.rail_reference, &otp).await;
    let written = service.write_code_outcome(&taken, &answer).await;
    rail_call::told_after(written, taken)
}

/// Whether the last code is wrong, and the rail may still accept an earlier one: it has not called
/// all of them wrong. Then its own word alone ends the charge.
async fn may_be_accepted(
    tx: &mut Tx,
    charge: &Charge,
    wrong: (&'static str, &'static str),
) -> Result<bool> {
    let called_wrong = store::evidence::times(tx, charge.facts.transaction_id, wrong).await?;
    Ok(charge.progress.otp_tries_left() == 0 && called_wrong < charge.progress.otp_tries)
}

/// What the rail's reply makes of the charge; `None`: nobody knows yet.
fn event_of(outcome: &OtpSubmitted) -> Option<Event> {
    match outcome {
        OtpSubmitted::Accepted { .. } => Some(Event::Accepted),
        OtpSubmitted::Succeeded => Some(Event::Approved),
        OtpSubmitted::WrongCode { .. } => Some(Event::CodeWrong),
        OtpSubmitted::Expired => Some(Event::Failed(FailureReason::OtpExpired)),
        OtpSubmitted::Failed(reason) => Some(Event::Failed(*reason)),
        OtpSubmitted::NotSent => Some(Event::CodeNotSent),
        OtpSubmitted::Unknown => None,
    }
}

fn message_of(charge: &ShownCharge, outcome: &OtpSubmitted) -> String {
    match outcome {
        OtpSubmitted::Accepted { instruction } => message::accepted(charge, instruction.as_deref()),
        OtpSubmitted::WrongCode { .. } => message::code_wrong(charge),
        OtpSubmitted::NotSent => message::code_not_sent(charge),
        OtpSubmitted::Succeeded => message::approved(),
        OtpSubmitted::Expired | OtpSubmitted::Failed(_) => message::of(charge),
        OtpSubmitted::Unknown => message::unanswered(),
    }
}
