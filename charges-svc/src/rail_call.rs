//! A request that leads to a rail call: who decides whether the rail is called, and what the
//! request is told.
//!
//! Promise: the decision is made once, either by the task that is about to call the rail or by the
//! request that no longer waits for it. A request that answers "nothing was started" is right, and
//! one that must not say so knows that.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use chassis::{error_chain::chain, ids::ChargeId};
use futures::future::BoxFuture;
use rails::{Rail, RailName};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use crate::{
    charge::{Charge, Claim, Event, Lease, START_BY, ShownCharge},
    error::{Error, Result},
    message,
    service::{ChargeReply, Service},
    store::{self, steps::Step},
};

/// Longest time until a request is answered.
const ANSWER_BY: Duration = Duration::from_secs(9);

/// A request on its way to a rail. Clones are the same request.
#[derive(Clone)]
pub struct RailCall {
    pub service: Arc<Service>,
    rail: RailName,
    /// The lease that holds the charge while the rail is called.
    pub lease: Lease,
    pub started: Instant,
    gate: Gate,
}

impl RailCall {
    /// A request that begins now.
    pub fn new(service: &Arc<Service>, rail: &Rail) -> Self {
        Self {
            service: Arc::clone(service),
            rail: rail.name,
            lease: Lease::new(&service.clock, service.settings.lease),
            started: Instant::now(),
            gate: Gate::default(),
        }
    }

    pub fn rail(&self) -> &Rail {
        self.service.rails.get(self.rail)
    }

    /// Calls the rail about the charge that the task holds by this claim. `None` means that it was
    /// too late and the rail was not called.
    pub async fn make<R>(&self, held: Claim, call: Pin<&mut impl Future<Output = R>>) -> Option<R> {
        let is_late = self.started.elapsed() >= START_BY
            || self.lease.term.is_over(&self.service.clock)
            || !self.service.outlives_a_call(held);
        if is_late || !self.gate.may_call() {
            return None;
        }
        Some(call.await)
    }

    /// Forbids the call, for whoever gives up or no longer waits. Returns whether it is certain
    /// that the rail has not been called and will not be.
    pub fn forbid(&self) -> bool {
        self.gate.forbid_call()
    }

    /// Does the work in a task of its own. Answers by [`ANSWER_BY`]; the work goes on if it is not
    /// done by then. It is boxed, because whatever is handed on and then awaited takes its place
    /// twice.
    pub async fn answer_in_time(
        self,
        charge: ShownCharge,
        work: BoxFuture<'static, Result<ChargeReply>>,
    ) -> Result<ChargeReply> {
        let (id, activity) = (charge.facts.transaction_id, self.service.clock.activity());
        let (done, outcome) = oneshot::channel();
        self.service.tasks.spawn(async move {
            if done.send(work.await).is_err() {
                tracing::info!(transaction.id = %id, "what was begun is done, its caller is gone");
            }
            drop(activity);
        });
        match timeout_at(self.started + ANSWER_BY, outcome).await {
            Ok(Ok(told)) => told,
            // Too late, or the task panicked. The rail will no longer be called, but the record
            // may not have been undone.
            Ok(Err(_)) | Err(_) if self.forbid() => Err(Error::OutcomeUnknown),
            Ok(Err(_)) | Err(_) => Ok(self.service.told_late(charge).await),
        }
    }
}

/// What became of the record of a rail call that was not made and will not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// Nothing is left of it.
    Done,
    /// It stands: somebody was answered about it, or has taken it over.
    TooLate,
}

/// What a request is told once the rail was called. Failing to write the reply is not a failure of
/// the request: the rail may have what was sent, and the reconciler queries it.
pub fn told_after(written: Result<ChargeReply>, sent: Charge) -> Result<ChargeReply> {
    written.or_else(|error| {
        tracing::error!(error = %chain(&error), "the rail's reply is not written");
        Ok(ChargeReply::unanswered(sent.try_into()?))
    })
}

impl Service {
    /// The answer if the rail may have been called and its reply is not here: the charge's status,
    /// never an error.
    pub async fn told_late(&self, called: ShownCharge) -> ChargeReply {
        match self.read_charge(called.facts.transaction_id).await {
            Ok(charge) => ChargeReply::from_record(charge),
            Err(error) => {
                tracing::error!(error = %chain(&error), "the record cannot be read");
                ChargeReply::unanswered(called)
            }
        }
    }

    async fn read_charge(&self, id: ChargeId) -> Result<ShownCharge> {
        let mut conn = self.db.read().await?;
        let found = store::charges::find(&mut conn, id).await?;
        Ok(found.ok_or(Error::ChargeNotFound)?.try_into()?)
    }
}

/// What the request is told by the step that the rail's reply led to. The step keeps `instruction`,
/// the network's own words to the payer.
pub fn reply(step: &mut Step, event: Event, instruction: Option<&str>) -> Result<ChargeReply> {
    if let Event::Accepted | Event::CodeWanted = event {
        step.instruction = Some(instruction.map(str::to_owned));
    }
    let shown = ShownCharge::try_from(step.after.clone())?;
    let message = message::after(&shown, event, instruction);
    Ok(ChargeReply::new(shown, message))
}

/// The gate in front of a rail call. Clones are the same gate.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<OnceLock<CallPermit>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallPermit {
    Call,
    Forbid,
}

impl Gate {
    fn may_call(&self) -> bool {
        *self.0.get_or_init(|| CallPermit::Call) == CallPermit::Call
    }

    fn forbid_call(&self) -> bool {
        *self.0.get_or_init(|| CallPermit::Forbid) == CallPermit::Forbid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_asks_decides() {
        let gate = Gate::default();
        assert!(gate.may_call());
        assert!(!gate.forbid_call());
        let gate = Gate::default();
        assert!(gate.forbid_call());
        assert!(!gate.may_call());
    }
}
