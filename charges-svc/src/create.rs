//! How a charge is created: steps 2 to 5 of "One charge, end to end" in `docs/architecture.md`.
//!
//! Promise: one key is one charge. Its rail is called at most once, with a reference that was
//! durable before, and a second time only as `resend.rs` says. A caller is told that nothing was
//! started only if that is true and durable; if it cannot be determined, nothing is promised.

use std::{pin::pin, sync::Arc, time::Duration};

use chassis::{error_chain::chain, failure::FailureReason, telemetry};
use db::{
    Tx, Update,
    idempotency::{self, IdempotencyKey, KeyUse},
};
use rails::{PaymentRequest, RailAnswer, RequestOutcome};
use tokio::time::timeout_at;

use crate::{
    admission::StartPlace,
    charge::{Charge, Event, Facts, NewCharge, START_BY, ShownCharge, State, Void},
    early::ReplyPlace,
    error::{Error, Result},
    key_look::KeyLook,
    rail_call::{self, RailCall, Withdrawal},
    record::{Patience, Recorded, Recording},
    service::{ChargeReply, Service},
    store::{
        self,
        idempotency::{FirstRequest, KEYS},
    },
    tell::OpenOutcome,
};

/// A charge that is not recorded within this is given up.
const RECORD_BY: Duration = Duration::from_secs(5);

/// How long a request without an answer counts as running.
const RUNNING: Duration = Duration::from_secs(15);

impl Service {
    /// Debits a wallet. Answers as [`RailCall::answer_in_time`] does.
    pub async fn create_charge(
        self: &Arc<Self>,
        new: NewCharge,
        key: String,
    ) -> Result<ChargeReply> {
        let rail = self.rails.for_provider(new.provider);
        let call = RailCall::new(self, rail);
        let timing = self.timing(Some(rail));
        let mut charge = Charge::new(&new, rail.name, self.clock.now(), timing);
        charge.claim = call.lease.into();
        let key = IdempotencyKey {
            merchant_id: new.merchant_id,
            key,
            fingerprint: fingerprint(&new),
        };
        let place = self.admission.start(rail.name, &key);
        if place.is_none() {
            self.check_repeat(&key).await?;
        }
        let begun = charge.clone().try_into()?;
        let creation = Creation {
            call: call.clone(),
            charge,
            key,
            place,
        };
        call.answer_in_time(begun, Box::pin(creation.run())).await
    }
}

/// The creation of a charge, in a task of its own.
struct Creation {
    call: RailCall,
    charge: Charge,
    key: IdempotencyKey,
    /// Until the rail is called. A repeat of an earlier request needs none.
    place: Option<StartPlace>,
}

impl Creation {
    async fn run(mut self) -> Result<ChargeReply> {
        if let Some(told) = self.record().await? {
            return Ok(told);
        }
        if let Some(told) = self.open_session().await? {
            return Ok(told);
        }
        self.place = None;
        let place = self.call.service.awaited.enter(&self.charge.facts);
        match self.call_rail().await {
            Some(answer) => self.write_outcome(&answer, place).await,
            None => self.abandon(Error::NothingStarted).await,
        }
    }

    /// Step 2: makes the charge, its key and its timer durable. Returns the answer to an earlier
    /// request with the same key, or the charge's status if it is no longer ours.
    async fn record(&mut self) -> Result<Option<ChargeReply>> {
        let service = &self.call.service;
        let patience = Patience::default();
        let recorded = service.record_charge(&mut self.charge, &self.key, &patience);
        let recorded = timeout_at(self.call.started + RECORD_BY, recorded).await;
        let error: anyhow::Error = match recorded {
            Ok(Err(Error::Database(error))) => error.into(),
            Ok(done) => return done,
            Err(late) => late.into(),
        };
        tracing::error!(error = %chain(error.as_ref()), "the charge is not written, or not certainly");
        self.call.forbid();
        patience.end();
        match service.look_for(&self.charge, &self.key).await {
            Ok(None) => self.abandon(Error::NothingStarted).await.map(Some),
            Err(Error::Database(error)) => {
                tracing::error!(
                    error = %chain(&error),
                    "nobody knows whether the charge is written"
                );
                Err(Error::OutcomeUnknown)
            }
            found => found,
        }
    }

    /// Step 3: sessions-svc creates the charge's session, or lets the charge claim one. Returns
    /// the charge's status if it is no longer ours.
    async fn open_session(&self) -> Result<Option<ChargeReply>> {
        let told = match self.call.service.teller.open(&self.charge).await {
            Ok(OpenOutcome::Recorded) => return Ok(None),
            Ok(OpenOutcome::Refused) if self.charge.facts.hosted => Error::SessionNotPayable,
            Ok(OpenOutcome::Refused) => Error::NothingStarted,
            Err(status) => {
                tracing::warn!(error = %chain(&status), "sessions-svc does not take the charge");
                Error::NothingStarted
            }
        };
        self.abandon(told).await.map(Some)
    }

    /// Step 4: requests the payment from the rail. `None` means that it was too late and the rail
    /// was not called.
    async fn call_rail(&self) -> Option<RailAnswer<RequestOutcome>> {
        let request = request(&self.charge.facts);
        let asking = pin!(self.call.rail().request_payment(&request));
        self.call.make(self.charge.claim, asking).await
    }

    /// Step 5: turns the rail's reply into the charge's state and the answer.
    async fn write_outcome(
        self,
        answer: &RailAnswer<RequestOutcome>,
        place: ReplyPlace,
    ) -> Result<ChargeReply> {
        let service = &self.call.service;
        let writing = service.write_request_outcome(&self.charge, answer, place);
        let written = writing.await;
        rail_call::told_after(written, self.charge)
    }

    /// The rail was not called and will not be. Tells the caller so once nothing is left of the
    /// charge, or how the charge stands if somebody was answered about it or has taken it over.
    async fn abandon(&self, told: Error) -> Result<ChargeReply> {
        // A request that still waits learns this from our result, one that gave up from the gate.
        self.call.forbid();
        let event = if self.call.started.elapsed() < START_BY {
            Event::Withdrawn
        } else {
            Event::Failed(FailureReason::RailUnavailable)
        };
        let service = &self.call.service;
        match service.give_up(&self.charge, event).await {
            Ok(Withdrawal::Done) => Err(told),
            Ok(Withdrawal::TooLate) => Ok(service.told_late(self.charge.clone().try_into()?).await),
            Err(error) => {
                // The reconciler will end it, because its reference stays unknown to the rail.
                tracing::error!(error = %chain(&error), "the charge is not given up yet");
                Err(Error::OutcomeUnknown)
            }
        }
    }
}

impl Service {
    /// Refuses a new charge. A repeat of an earlier request may go on.
    async fn check_repeat(&self, key: &IdempotencyKey) -> Result<()> {
        // First what is not recorded yet, so that it is not missed while it is being recorded.
        if self.admission.is_starting(key) {
            return Err(Error::IdempotencyInProgress);
        }
        match self.key_looks.run(KeyLook(key.clone())).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::NothingStarted),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "nobody knows whether it is a repeat");
                Err(Error::OutcomeUnknown)
            }
        }
    }

    /// Writes the charge and sets its number and trace. Returns the answer to an earlier request
    /// with the same key, if there was one.
    async fn record_charge(
        &self,
        charge: &mut Charge,
        key: &IdempotencyKey,
        patience: &Patience,
    ) -> Result<Option<ChargeReply>> {
        charge.facts_mut().traceparent = telemetry::current_traceparent();
        let recording = Recording::new(charge.clone(), key.clone(), patience.clone());
        let charge_number = match self.recordings.run(recording).await? {
            Recorded::Numbered(number) => number,
            Recorded::Before => {
                let mut conn = self.db.read().await?;
                let id = charge.facts.transaction_id;
                let recorded = store::charges::find(&mut conn, id).await?;
                recorded.ok_or(Error::ChargeNotFound)?.facts.charge_number
            }
            Recorded::Repeat(first) => {
                return self.replay(self.db.begin().await?, first).await.map(Some);
            }
            Recorded::Reuse => return Err(Error::IdempotencyKeyReused),
            Recorded::Contended => return Err(Error::IdempotencyInProgress),
            Recorded::Freed | Recorded::GivenUp => return Err(Error::NothingStarted),
            Recorded::NotPayable => return Err(Error::SessionNotPayable),
        };
        charge.facts_mut().charge_number = charge_number;
        if let Some(due) = charge.timer.next_query_at {
            self.reconcile_alarms.ring_at(&charge.facts.rail, due);
        }
        Ok(None)
    }

    /// Finds out what became of a [`Service::record_charge`] whose outcome is unknown. Taking the
    /// key waits for any transaction that has taken it and is still open, so what is seen here is
    /// final. Returns the answer to the earlier request that has the key, or `None` if the charge
    /// is written.
    async fn look_for(&self, charge: &Charge, key: &IdempotencyKey) -> Result<Option<ChargeReply>> {
        let (id, now) = (charge.facts.transaction_id, charge.facts.created_at);
        let mut tx = self.db.begin().await?;
        match KEYS.take::<FirstRequest>(&mut tx, key, id, now).await? {
            KeyUse::Repeat(ours) if ours.transaction_id == id => Ok(None),
            KeyUse::Repeat(first) => self.replay(tx, first).await.map(Some),
            KeyUse::Reuse => Err(Error::IdempotencyKeyReused),
            // The key was free, and this transaction is not committed either.
            KeyUse::First | KeyUse::Freed => Err(Error::NothingStarted),
        }
    }

    /// The answer to a request whose key was used before. An answer rendered from the record is
    /// stored as the key's answer: from then on a caller knows the charge, and it cannot become
    /// void.
    async fn replay(&self, mut tx: Tx, first: FirstRequest) -> Result<ChargeReply> {
        let id = first.transaction_id;
        let charge = store::charges::find(&mut tx, id).await?;
        let charge = charge.ok_or(Error::ChargeNotFound)?;
        // It has become void since its key was read, so the key is free for the next try.
        let charge = ShownCharge::try_from(charge).map_err(|Void| Error::IdempotencyInProgress)?;
        if let Some((status, message)) = first.answer_status.zip(first.answer_message) {
            return Ok(ChargeReply {
                charge: charge.shown_as(status),
                message,
                replayed: true,
            });
        }
        if self.clock.now().since(first.started_at) < RUNNING {
            return Err(Error::IdempotencyInProgress);
        }
        let told = ChargeReply::from_record(charge);
        let kept = store::idempotency::answer(&mut tx, id, told.charge.status, &told.message).await;
        if kept.map_err(Error::of_contended_key)? == Update::NotThere {
            // It was answered or became void since it was read. The next try learns which.
            return Err(Error::IdempotencyInProgress);
        }
        tx.commit().await?;
        Ok(ChargeReply {
            replayed: true,
            ..told
        })
    }

    /// Ends a charge that was certainly not sent: as void, or as FAILED if a repeated request may
    /// have been answered from its record. Leaves alone what somebody else, who may send it, has
    /// taken over.
    async fn give_up(&self, charge: &Charge, event: Event) -> Result<Withdrawal> {
        let id = charge.facts.transaction_id;
        let mut tx = self.db.begin().await?;
        let before = self.lock(&mut tx, id).await?;
        let is_ours = before.claim.fence == charge.claim.fence && before.timer.resent_at.is_none();
        if before.progress.state != State::Submitting || !is_ours {
            return Ok(withdrawal(&before));
        }
        let is_told = store::idempotency::lock_answered(&mut tx, id).await?;
        let event = match event {
            Event::Withdrawn if is_told => Event::Failed(FailureReason::RailUnavailable),
            event => event,
        };
        let step = self.step(&before, event, self.clock.now())?;
        self.write_step(&mut tx, &step).await?;
        tx.commit().await?;
        let withdrawal = withdrawal(&step.after);
        self.announce(step);
        Ok(withdrawal)
    }
}

fn withdrawal(charge: &Charge) -> Withdrawal {
    match charge.progress.state {
        State::Void => Withdrawal::Done,
        _ => Withdrawal::TooLate,
    }
}

/// The payment request, the same each time it is sent.
pub fn request(charge: &Facts) -> PaymentRequest {
    PaymentRequest {
        rail_reference: charge.rail_reference,
        reference: charge.reference.clone(),
        amount: charge.amount(),
        phone: charge.phone.clone(),
        provider: charge.provider,
        payer_email: charge.payer_email.clone(),
        merchant_name: charge.merchant_name.clone().unwrap_or_default(),
        description: charge.description.clone(),
        callback_token: charge.callback_token.clone(),
    }
}

/// What the request asks for, independent of how it was written. The merchant's name is not part
/// of it, because it may change between two tries.
fn fingerprint(new: &NewCharge) -> String {
    let amount =
        |amount: chassis::money::Money| format!("{} {}", amount.minor_units(), amount.currency());
    let hosted = new.hosted.as_ref();
    let parts: [Option<String>; 9] = [
        Some(amount(new.amount)),
        Some(new.phone.as_e164().to_owned()),
        Some(new.provider.code().to_owned()),
        new.description.clone(),
        new.payer_email.clone(),
        new.payer_name.clone(),
        hosted.map(|hosted| hosted.session_id.to_string()),
        hosted.map(|hosted| amount(hosted.amount)),
        hosted.and_then(|hosted| hosted.rate.clone()),
    ];
    idempotency::fingerprint(parts)
}
