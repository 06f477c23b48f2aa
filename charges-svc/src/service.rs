//! What happens to charges, and in which transaction. Creating a charge, submitting a code,
//! querying the rail and operators' decisions each have a module of their own. This one holds what
//! they share.
//!
//! Promise: everything that a step makes true (state, postings, event, key) is committed together
//! or not at all, and no rail or service is called in between.

use std::time::Duration;

use chassis::{
    charge_status::ChargeStatus,
    clock::{Clock, Timestamp},
    closed_list::count_unknown,
    ids::{ChargeId, EventId, MerchantId, Reference, SessionId},
    money::Money,
    shutdown::Tasks,
};
use db::{Db, Insert, Relay, RelayOutcome, Telling, Tx, UntoldRow, Update};
use rails::{Rail, Rails};

use crate::{
    alarms::Alarms,
    case::CaseKind,
    charge::{Charge, Claim, Event, Facts, ShownCharge, State},
    error::{Error, Result},
    ledger, message,
    schedule::{DAY, RESEND_WITHIN, Timing},
    store::{self, idempotency::KEYS},
    tell::Teller,
};

/// How long an answer waits for sessions-svc to learn of the change (design §3, step 4).
const RELAY_WAIT: Duration = Duration::from_millis(300);

/// The configured settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub reconcile_schedule: Vec<Duration>,
    pub otp_lifetime: Duration,
    /// Real time. How long the work of a process that died waits for another.
    pub lease: Duration,
    /// Real time. Longest duration of a rail call and of writing its outcome, together.
    pub call_and_write_max: Duration,
    /// Name of the account for the fees that rails keep: `fees:<name>`.
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
    pub relay: Relay<Charge>,
    /// Wake the reconcilers after a query's due time was committed.
    pub reconcile_alarms: Alarms,
}

/// The answer to a POST on a charge.
#[derive(Clone, Debug)]
pub struct ChargeReply {
    pub charge: ShownCharge,
    pub message: String,
    /// Whether this repeats the answer to an earlier request.
    pub replayed: bool,
}

impl ChargeReply {
    /// The answer for a charge as it stands.
    pub fn new(charge: ShownCharge, message: String) -> Self {
        // No answer to a POST says SETTLED (spec §4.3).
        let status = match charge.status {
            ChargeStatus::Initiated | ChargeStatus::Settled => ChargeStatus::Initiated,
            ChargeStatus::OtpRequired => ChargeStatus::OtpRequired,
            ChargeStatus::Failed => ChargeStatus::Failed,
        };
        Self {
            charge: charge.told(status),
            message,
            replayed: false,
        }
    }

    /// The answer if the rail may have been called and nobody knows its reply.
    pub fn unanswered(charge: ShownCharge) -> Self {
        Self::new(charge.told(ChargeStatus::Initiated), message::unanswered())
    }

    /// The answer from the record alone, whatever happened on the way.
    pub fn from_record(charge: ShownCharge) -> Self {
        let message = message::of(&charge);
        Self::new(charge, message)
    }
}

/// A change to a charge that was written in a transaction.
#[derive(Debug)]
pub struct Change {
    pub charge: Charge,
    pub outbox_row: UntoldRow<Charge>,
}

impl Service {
    /// A merchant's charge. A void one is not found.
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

    /// What a merchant has collected and has not been paid out.
    pub async fn get_balance(&self, merchant_id: MerchantId) -> Result<Vec<Money>> {
        let mut conn = self.db.read().await?;
        Ok(store::postings::balances(&mut conn, merchant_id).await?)
    }

    /// The times that decide about this rail's charges. `None` is a rail that only a newer version
    /// knows: nothing is sent to it from here, and its silence ends no charge.
    pub fn timing(&self, rail: Option<&Rail>) -> Timing<'_> {
        let may_resend = rail.is_some_and(|rail| rail.name.terms().refuses_second_use);
        Timing {
            schedule: &self.settings.reconcile_schedule,
            approval_window: rail.map_or(DAY, |rail| rail.approval_window),
            otp_lifetime: self.settings.otp_lifetime,
            resend_within: may_resend.then_some(RESEND_WITHIN),
        }
    }

    /// The times that decide about this charge, see [`Self::timing`].
    pub fn timing_of(&self, charge: &Facts) -> Timing<'_> {
        self.timing(self.rail_of(charge))
    }

    /// The rail that carries a charge, unless only a newer version knows it.
    pub fn rail_of(&self, charge: &Facts) -> Option<&Rail> {
        let name = charge.rail.parse().ok();
        if name.is_none() {
            count_unknown("rail");
        }
        Some(self.rails.get(name?))
    }

    /// Writes the effect of an event on a charge that this transaction has locked, with everything
    /// that becomes true by it.
    pub async fn change(&self, tx: &mut Tx, before: &Charge, event: Event) -> Result<Change> {
        let now = self.clock.now();
        let timing = self.timing_of(&before.facts);
        let after = before.after(event, now, timing)?;
        if store::charges::change(tx, &before.progress, &after).await? == Update::NotThere {
            // The charge is locked, so this is a bug, and nothing is committed.
            return Err(Error::Illegal(crate::charge::IllegalTransition {
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
                KEYS.free(tx, after.facts.transaction_id).await?;
                None
            }
            State::Submitting | State::Initiated | State::OtpRequired | State::OtpSubmitting => {
                None
            }
        };
        let subject = after.facts.transaction_id.to_string();
        let event_id = event_id.as_ref().map(EventId::as_str);
        let outbox_row = self.relay.row(&subject, event_id, now);
        outbox_row.put(tx).await?;
        Ok(Change {
            charge: after,
            outbox_row,
        })
    }

    /// Opens a case if an operator has released the money of an earlier charge of the session. The
    /// settlement is a fact and is not refused, but it credits the merchant twice, and a person
    /// must decide.
    ///
    /// Called before the merchant's balance is touched, because a release also touches the case
    /// first.
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
        if store::postings::post(tx, &posting, now).await? == Insert::Inserted {
            return Ok(());
        }
        Err(Error::PostedBefore)
    }

    /// Ends a charge: lets its key expire, closes its case of an unknown outcome, and fixes the id
    /// of its event.
    async fn end(&self, tx: &mut Tx, charge: &Charge, now: Timestamp) -> Result<Option<EventId>> {
        let id = charge.facts.transaction_id;
        KEYS.forget_later(tx, id, now).await?;
        store::cases::close_unknown_outcome(tx, id, now).await?;
        Ok(Some(EventId::new()))
    }

    /// Whether a rail call that begins now will be over, and its outcome written, while the charge
    /// is held.
    pub fn outlives_a_call(&self, claim: Claim) -> bool {
        let over_at = self.clock.latest_now() + self.settings.call_and_write_max;
        claim.lease_until.is_some_and(|until| until >= over_at)
    }

    /// The charge, locked until the transaction ends.
    pub async fn lock(&self, tx: &mut Tx, id: ChargeId) -> Result<Charge> {
        let found = store::charges::find_locked(tx, id).await?;
        found.ok_or(Error::ChargeNotFound)
    }

    /// After a commit: tells sessions-svc, wakes those for whom the change means work, and counts a
    /// charge that has ended.
    pub fn announce(&self, change: Change) -> Telling {
        let Change { charge, outbox_row } = change;
        count(&charge);
        self.reconcile_alarms.ring(&charge.facts.rail);
        self.relay.tell(outbox_row, charge)
    }

    /// The same, and waits a moment for sessions-svc to know. The relay goes on by itself.
    pub async fn announce_now(&self, change: Change) {
        if self.announce(change).within(RELAY_WAIT).await == RelayOutcome::Later {
            tracing::info!("sessions-svc has not heard yet, the relay goes on");
        }
    }
}

fn count(charge: &Charge) {
    if charge.progress.state.is_terminal() {
        let (reference, progress) = (&charge.facts.reference, &charge.progress);
        let state = progress.state.code();
        let reason = progress.failure_reason.clone().unwrap_or_default();
        tracing::info!(charge.reference = %reference, state, reason, "the charge has ended");
        metrics::counter!("charges_ended_total", "state" => state, "reason" => reason).increment(1);
    }
}
