//! What happens to charges, and in which transaction. The ways in which a charge begins, takes a
//! code, is asked about and is decided by operators each have a module of their own; here is what
//! they share.
//!
//! Promise: everything that becomes true by a step (state, postings, event, key) is committed
//! together or not at all, and no rail or service is called in between.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    ids::{ChargeId, EventId, MerchantId, Reference, SessionId},
    money::Money,
    shutdown::Tasks,
};
use db::{Db, Relay, Tx, outbox};
use uuid::Uuid;

use crate::{
    alarms::Alarms,
    case::CaseKind,
    charge::{Charge, Claim, Event, Facts, ShownCharge, State, Status},
    error::{Error, Result},
    ledger, message,
    rail::{Rail, Rails},
    schedule::{RESEND_WITHIN, Timing},
    store,
    tell::Teller,
};

/// A caller's key is kept so long after its charge has ended (design: "Idempotency-Key").
const KEY_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an answer waits for sessions-svc to hear of the change (design §3, step 4).
const RELAY_WAIT: Duration = Duration::from_millis(300);

/// Between two looks whether another relay is done with our row.
const RELAY_LOOK: Duration = Duration::from_millis(10);

/// What configuration decides.
#[derive(Clone, Debug)]
pub struct Settings {
    pub reconcile_schedule: Vec<Duration>,
    pub otp_lifetime: Duration,
    /// Real time. How long work of a process that died waits for another.
    pub lease: Duration,
    /// Real time. The longest that a rail call takes, with the writing of its outcome.
    pub call_and_write_max: Duration,
    /// Where fees that rails keep are posted: `fees:<name>`.
    pub fee_account: String,
}

/// The use cases, and what they need.
pub struct Service {
    pub db: Db,
    pub clock: Clock,
    pub tasks: Tasks,
    pub rails: Rails,
    pub settings: Settings,
    pub teller: Teller,
    pub relay: Relay,
    /// Wake the reconcilers: a query's time was committed.
    pub reconcile_alarms: Alarms,
}

/// What a POST on a charge answers.
#[derive(Clone, Debug)]
pub struct Told {
    pub charge: ShownCharge,
    pub message: String,
    /// This repeats the answer to an earlier request.
    pub replayed: bool,
}

impl Told {
    /// Of a charge as it stands.
    pub fn new(charge: ShownCharge, message: String) -> Self {
        let status = charge.status.in_answer();
        Self {
            charge: charge.told(status),
            message,
            replayed: false,
        }
    }

    /// The rail may have been called, and nobody knows what it said.
    pub fn unanswered(charge: ShownCharge) -> Self {
        Self::new(charge.told(Status::Initiated), message::unanswered())
    }

    /// From the record alone, whatever happened on the way.
    pub fn from_record(charge: ShownCharge) -> Self {
        let message = message::of(&charge);
        Self::new(charge, message)
    }
}

/// A change that was written and waits to be committed.
#[derive(Clone, Debug)]
pub struct Change {
    pub charge: Charge,
    pub outbox_row: Uuid,
}

impl Service {
    /// A merchant's charge. Void ones are not there.
    pub async fn get_charge(
        &self,
        merchant_id: MerchantId,
        reference: &Reference,
    ) -> Result<ShownCharge> {
        let mut conn = self.db.read().await?;
        let found = store::charges::find_shown(&mut conn, merchant_id, reference).await?;
        Ok(found.ok_or(Error::ChargeNotFound)?.try_into()?)
    }

    /// The newest hosted charge of a session, with the network's words to its payer.
    pub async fn get_hosted_charge(
        &self,
        session_id: SessionId,
    ) -> Result<store::charges::HostedCharge> {
        let mut conn = self.db.read().await?;
        let found = store::charges::find_hosted(&mut conn, session_id).await?;
        found.ok_or(Error::ChargeNotFound)
    }

    /// What a merchant has collected and not been paid out.
    pub async fn get_balance(&self, merchant_id: MerchantId) -> Result<Vec<Money>> {
        let mut conn = self.db.read().await?;
        Ok(store::postings::balances(&mut conn, merchant_id).await?)
    }

    /// The times that decide about charges of this rail.
    pub fn timing(&self, rail: &Rail) -> Timing<'_> {
        Timing {
            schedule: &self.settings.reconcile_schedule,
            approval_window: rail.approval_window(),
            otp_lifetime: self.settings.otp_lifetime,
            resend_within: rail.refuses_second_use().then_some(RESEND_WITHIN),
        }
    }

    pub fn rail_of(&self, charge: &Facts) -> &Rail {
        self.rails.get(charge.rail)
    }

    /// Writes what an event makes of a charge that this transaction holds, with everything that
    /// becomes true by it.
    pub async fn change(&self, tx: &mut Tx, before: &Charge, event: Event) -> Result<Change> {
        let now = self.clock.now();
        let timing = self.timing(self.rail_of(&before.facts));
        let after = before.after(event, now, timing)?;
        if !store::charges::change(tx, &before.progress, &after).await? {
            // It is locked, so this is a mistake of ours; nothing is committed.
            return Err(Error::Illegal(crate::charge::Illegal {
                state: before.progress.state,
                event,
            }));
        }
        let event_id = match after.progress.state {
            State::Settled => {
                self.look_for_release(tx, &after, now).await?;
                self.post_settlement(tx, &after, now).await?;
                self.end(tx, &after, now).await?
            }
            State::Failed => self.end(tx, &after, now).await?,
            State::Void => {
                store::idempotency::free(tx, after.facts.transaction_id).await?;
                None
            }
            State::Submitting | State::Initiated | State::OtpRequired | State::OtpSubmitting => {
                None
            }
        };
        let subject = after.facts.transaction_id.to_string();
        let event_id = event_id.as_ref().map(EventId::as_str);
        let outbox_row = outbox::put(tx, &subject, event_id, now).await?;
        Ok(Change {
            charge: after,
            outbox_row,
        })
    }

    /// What settles is the truth and is not refused. But where an operator has released money of an
    /// earlier charge of the session, the merchant is credited twice, and a person must look.
    ///
    /// Before the merchant's balance is touched, which who releases touches after the case.
    async fn look_for_release(&self, tx: &mut Tx, charge: &Charge, now: Timestamp) -> Result<()> {
        let is_first = charge.facts.charge_number == 1;
        if is_first || !store::cases::is_released_beside(tx, &charge.facts).await? {
            return Ok(());
        }
        let detail = "the charge settled after money of another charge of its session was released";
        let about = (CaseKind::CreditedTwice, detail.to_owned());
        self.open_case(tx, charge, about, None, now).await
    }

    async fn post_settlement(&self, tx: &mut Tx, charge: &Charge, now: Timestamp) -> Result<()> {
        let posting = ledger::settlement(&charge.facts)?;
        if store::postings::post(tx, &posting, now).await? {
            return Ok(());
        }
        Err(Error::PostedBefore)
    }

    /// The charge has ended: the event that tells of it is fixed here, and its key will go.
    async fn end(&self, tx: &mut Tx, charge: &Charge, now: Timestamp) -> Result<Option<EventId>> {
        let id = charge.facts.transaction_id;
        store::idempotency::forget_later(tx, id, now + KEY_KEPT).await?;
        store::cases::close_unknown_outcome(tx, id, now).await?;
        Ok(Some(EventId::new()))
    }

    /// Whether a rail call that begins now is over, and written down, while the charge is held.
    pub fn outlives_a_call(&self, claim: Claim) -> bool {
        let over_at = self.clock.latest_now() + self.settings.call_and_write_max;
        claim.lease_until.is_some_and(|until| until >= over_at)
    }

    /// The charge, held until the transaction ends.
    pub async fn lock(&self, tx: &mut Tx, id: ChargeId) -> Result<Charge> {
        let found = store::charges::find_locked(tx, id).await?;
        found.ok_or(Error::ChargeNotFound)
    }

    /// After a commit: whoever has work by it looks for it.
    pub fn announce(&self, change: &Change) {
        count(&change.charge);
        self.relay.ring();
        self.reconcile_alarms.ring(change.charge.facts.rail);
    }

    /// After a commit: tells sessions-svc at once, and waits a moment for it to have heard. The
    /// relay goes on by itself.
    pub async fn announce_now(&self, change: &Change) {
        count(&change.charge);
        self.reconcile_alarms.ring(change.charge.facts.rail);
        let row = change.outbox_row;
        let telling = async {
            if !self.relay.at_once(row, RELAY_WAIT).await {
                // The loop may have it already, and be nearly done.
                self.wait_until_relayed(row).await;
            }
        };
        if tokio::time::timeout(RELAY_WAIT, telling).await.is_err() {
            tracing::info!("sessions-svc has not heard yet, the relay goes on");
        }
    }

    async fn wait_until_relayed(&self, row: Uuid) {
        let is_left = async || {
            let mut conn = self.db.read().await?;
            store::is_in_outbox(&mut conn, row).await
        };
        while is_left().await.unwrap_or(false) {
            tokio::time::sleep(RELAY_LOOK).await;
        }
    }
}

fn count(charge: &Charge) {
    if charge.progress.state.is_terminal() {
        let (reference, progress) = (&charge.facts.reference, &charge.progress);
        let state = progress.state.code();
        let reason = progress.failure_reason.map_or("", |reason| reason.code());
        tracing::info!(charge.reference = %reference, state, reason, "the charge has ended");
        metrics::counter!("charges_ended_total", "state" => state, "reason" => reason).increment(1);
    }
}
