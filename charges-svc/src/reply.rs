//! What follows from the rail's reply to a payment request, the first or the second: step 5 of "One
//! charge, end to end" in `docs/architecture.md`.
//!
//! Promise: one step records what the rail said, what the request is told, and the callback that
//! came before it.

use std::{sync::Arc, time::Duration};

use chassis::error_chain::chain;
use rails::{CallOutcome as _, RailAnswer, RequestOutcome};

use crate::{
    charge::{Charge, Event, ShownCharge, State},
    early::ReplyPlace,
    error::{Error, Result},
    rail_call,
    service::{ChargeReply, Service},
    store::{
        charges::Held,
        evidence::{Action, Statement},
        idempotency::Answer,
        steps::{HintEnd, ReceivedCallback, Step},
    },
};

/// How often to try to write the rail's reply, and the wait before the second try. If all of them
/// fail, the reconciler queries the rail later.
const WRITE_TRIES: u32 = 4;
const WRITE_AGAIN: Duration = Duration::from_millis(100);

impl Service {
    /// Writes the rail's reply, with several tries, and the callback that waits for it in its
    /// `place`.
    pub async fn write_request_outcome(
        self: &Arc<Self>,
        charge: &Charge,
        answer: &RailAnswer<RequestOutcome>,
        place: ReplyPlace,
    ) -> Result<ChargeReply> {
        let place = &Arc::new(place);
        let mut wait = WRITE_AGAIN;
        for _ in 1..WRITE_TRIES {
            match self.try_write_request_outcome(charge, answer, place).await {
                Err(Error::Database(error)) => {
                    tracing::warn!(error = %chain(&error), "the rail's reply is not written yet")
                }
                done => return done,
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        self.try_write_request_outcome(charge, answer, place).await
    }

    async fn try_write_request_outcome(
        self: &Arc<Self>,
        charge: &Charge,
        answer: &RailAnswer<RequestOutcome>,
        place: &Arc<ReplyPlace>,
    ) -> Result<ChargeReply> {
        let id = charge.facts.transaction_id;
        let (service, heard) = (Arc::clone(self), answer.clone());
        let (claim, waiting) = (charge.claim, Arc::clone(place));
        let callback = move |held: &Held| {
            // Not if somebody else has taken the charge over.
            let is_ours = held.charge.claim.fence == claim.fence;
            is_ours.then(|| waiting.callback()).flatten()
        };
        let decide = {
            let callback = callback.clone();
            move |held: &Held| service.decide_reply(held, &heard, || callback(held)).ok()
        };
        let written = match Held::known(charge) {
            Some(known) => self.steps.write_known(known, decide).await?,
            None => self.steps.write(id, decide).await?,
        };
        let step = match written {
            Some(step) => step,
            None => {
                let mut tx = self.db.begin().await?;
                let held = self.hold(&mut tx, id).await?;
                let step = self.decide_reply(&held, answer, || callback(&held))?;
                self.write_step(&mut tx, &step).await?;
                tx.commit().await?;
                step
            }
        };
        match step.received() {
            Some(_) => place.tell(step.after.clone()),
            None => place.close(),
        }
        let told = told_of(&step)?;
        self.announce_now(step).await;
        Ok(told)
    }

    /// What follows from the rail's reply to a payment request, and with it from the callback that
    /// waits for it.
    fn decide_reply(
        &self,
        held: &Held,
        answer: &RailAnswer<RequestOutcome>,
        callback: impl FnOnce() -> Option<ReceivedCallback>,
    ) -> Result<Step> {
        let now = self.clock.now();
        let mut before = held.charge.clone();
        before.timer.end_call(now);
        let is_conclusive = match answer.outcome {
            // Somebody has sent the request again meanwhile, and the rail may have taken that one.
            RequestOutcome::Refused(_) => before.timer.resent_at.is_none(),
            _ => true,
        };
        let event = event_of(&answer.outcome);
        let mut came = None;
        let (mut step, told) = if before.progress.state == State::Submitting && is_conclusive {
            // Its session has taken it, or the request would not have gone out.
            let mut step = self.step_of_taken(&before, event, now)?;
            let told = rail_call::reply(&mut step, event, instruction_of(&answer.outcome))?;
            came = callback();
            (step, told)
        } else {
            // Somebody was quicker: a query, or our own earlier try whose commit was not
            // confirmed.
            let mut after = held.charge.clone();
            after.progress.seen_at_rail |= event.is_shown_by_rail();
            let told = ChargeReply::from_record(after.clone().try_into()?);
            (Step::new(&held.charge, after, now), told)
        };
        match came {
            Some(came) => step.receive(came),
            None => step.end_hint(HintEnd::NotYet, held.hinted_at),
        }
        step.evidence = Some(Statement {
            action: Action::RequestPayment,
            outcome: answer.outcome.label(),
            rail_text: answer.rail_text.clone(),
            at: now,
        });
        step.answer = Some(Answer {
            status: told.charge.status,
            message: told.message,
        });
        Ok(step)
    }
}

/// What the request is told once this step, which answers it, is written.
fn told_of(step: &Step) -> Result<ChargeReply> {
    let shown = ShownCharge::try_from(step.after.clone())?;
    Ok(match &step.answer {
        Some(answer) => ChargeReply {
            charge: shown.shown_as(answer.status),
            message: answer.message.clone(),
            replayed: false,
        },
        None => ChargeReply::from_record(shown),
    })
}

fn event_of(outcome: &RequestOutcome) -> Event {
    match outcome {
        RequestOutcome::Accepted { .. } => Event::Accepted,
        RequestOutcome::Succeeded => Event::Approved,
        RequestOutcome::OtpRequired { .. } => Event::CodeWanted,
        RequestOutcome::Refused(reason) => Event::Failed(*reason),
        RequestOutcome::AlreadyKnown => Event::AlreadyKnown,
        RequestOutcome::Unknown => Event::Unanswered,
    }
}

/// The network's own words to the payer.
fn instruction_of(outcome: &RequestOutcome) -> Option<&str> {
    match outcome {
        RequestOutcome::Accepted { instruction } | RequestOutcome::OtpRequired { instruction } => {
            instruction.as_deref()
        }
        RequestOutcome::Succeeded
        | RequestOutcome::Refused(_)
        | RequestOutcome::AlreadyKnown
        | RequestOutcome::Unknown => None,
    }
}
