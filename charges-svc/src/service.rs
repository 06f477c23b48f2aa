//! What happens to charges, and in which transaction. Creating a charge, submitting a code,
//! querying the rail and operators' decisions each have a module of their own. This one holds what
//! they share.
//!
//! Promise: everything that a step makes true (state, postings, event, key) is committed together
//! or not at all, and no rail or service is called in between.

use std::{sync::Arc, time::Duration};

use chassis::{
    charge_status::ChargeStatus,
    clock::{Clock, Timestamp},
    closed_list::count_unknown,
    ids::{ChargeId, EventId, MerchantId, Reference, SessionId},
    money::Money,
    shutdown::Tasks,
};
use db::{Db, GroupCommit, Relay, RelayOutcome, Searches, Telling, Tx};
use rails::{Rail, Rails};
use tokio::sync::Mutex;

use crate::{
    admission::Admission,
    alarms::Alarms,
    case::{Case, CaseKind},
    charge::{Charge, Claim, Event, Facts, ShownCharge, State},
    early::AwaitedReplies,
    error::{Error, Result},
    hint::Hint,
    key_look::KeyLook,
    ledger, message,
    payout_fees::PayoutFees,
    reading::Reading,
    record::Recording,
    schedule::{DAY, RESEND_WITHIN, Timing},
    statement_key::StatementKeys,
    steps::StepWriter,
    store::{
        self,
        charges::Held,
        idempotency::KEYS,
        steps::{Step, Written},
    },
    tell::Teller,
    turns::Turns,
    watch::Watches,
    weather::Look,
};

/// How long an answer waits for sessions-svc to learn of the change.
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
    /// How long payouts wait after a change of the payout account.
    pub payout_account_hold: Duration,
    pub first_payout_account_hold: Duration,
    /// Whether a merchant that sets its own first account may ask for payouts.
    pub payouts_on_request_by_default: bool,
    /// How long a rail must have known nothing of a disbursement before it is sent once more.
    pub disbursement_resend_after: Duration,
    /// Since midnight, UTC. When the daily settlement begins.
    pub settlement_time: Duration,
    /// The least that it pays out, and what it leaves on the balance.
    pub settlement_minimum: Money,
    pub settlement_reserve: Money,
    /// The least that a merchant can ask for, and the least part of a charge that it can refund.
    pub payout_minimum: Money,
    pub refund_minimum: Money,
    pub payout_fees: PayoutFees,
}

/// The use cases, and what they need.
pub struct Service {
    pub db: Db,
    pub clock: Clock,
    pub tasks: Tasks,
    pub rails: Rails,
    pub settings: Settings,
    /// `None` if none is configured.
    pub statement_keys: Option<Arc<StatementKeys>>,
    pub teller: Teller,
    pub relay: Relay<Charge>,
    pub readings: GroupCommit<Reading>,
    pub recordings: GroupCommit<Recording>,
    pub hints: GroupCommit<Hint>,
    pub key_looks: GroupCommit<KeyLook>,
    pub steps: StepWriter,
    pub searches: Searches,
    /// What was told last of how networks do.
    pub weather: Mutex<Option<Look>>,
    pub admission: Admission,
    pub turns: Turns,
    pub awaited: Arc<AwaitedReplies>,
    pub watches: Watches,
    /// Wake the reconcilers after a query's due time was committed.
    pub reconcile_alarms: Alarms,
    /// Wake the disbursers after a disbursement's due time was committed.
    pub disburse_alarms: Alarms,
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
            charge: charge.shown_as(status),
            message,
            replayed: false,
        }
    }

    /// The answer if the rail may have been called and nobody knows its reply.
    pub fn unanswered(charge: ShownCharge) -> Self {
        Self::new(
            charge.shown_as(ChargeStatus::Initiated),
            message::unanswered(),
        )
    }

    /// The answer from the record alone, whatever happened on the way.
    pub fn from_record(charge: ShownCharge) -> Self {
        let message = message::of(&charge);
        Self::new(charge, message)
    }
}

impl Service {
    /// A merchant's charge. A void one is not found.
    pub async fn get_charge(
        &self,
        merchant_id: MerchantId,
        reference: Reference,
    ) -> Result<ShownCharge> {
        let reading = Reading {
            merchant_id,
            reference,
        };
        let found = self.readings.run(reading).await?;
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

    /// What a merchant has available and reserved, and what is held for a decision about its payments
    /// if that is wanted.
    pub async fn get_balance(
        &self,
        merchant_id: MerchantId,
        with_suspense: bool,
    ) -> Result<store::postings::Balances> {
        let mut conn = self.db.read().await?;
        Ok(store::postings::balances(&mut conn, merchant_id, with_suspense).await?)
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

    /// What an event makes true of a charge. Others are told of it.
    pub fn step(&self, before: &Charge, event: Event, now: Timestamp) -> Result<Step> {
        Ok(self.with_outbox_row(self.step_without_row(before, event, now)?))
    }

    /// The same for a charge that its session has taken as it is shown: it is told only what is
    /// shown differently from then on.
    pub fn step_of_taken(&self, before: &Charge, event: Event, now: Timestamp) -> Result<Step> {
        let step = self.step_without_row(before, event, now)?;
        let (was, is) = (
            step.before.progress.state.shown(),
            step.after.progress.state.shown(),
        );
        Ok(if was == is {
            step
        } else {
            self.with_outbox_row(step)
        })
    }

    fn step_without_row(&self, before: &Charge, event: Event, now: Timestamp) -> Result<Step> {
        let timing = self.timing_of(&before.facts);
        let mut step = Step::new(before, before.after(event, now, timing)?, now);
        let after = &step.after;
        if after.progress.state == State::Settled {
            step.postings.push(ledger::settlement(&after.facts)?);
        }
        Ok(step)
    }

    /// The step with the outbox row from which the relay tells others.
    fn with_outbox_row(&self, mut step: Step) -> Step {
        let after = &step.after;
        let event_id = match after.progress.state {
            State::Settled | State::Failed => Some(EventId::of(after.facts.transaction_id.uuid())),
            State::Void
            | State::Submitting
            | State::Initiated
            | State::OtpRequired
            | State::OtpSubmitting => None,
        };
        let subject = after.facts.transaction_id.to_string();
        let event_id = event_id.as_ref().map(EventId::as_str);
        step.outbox_row = Some(self.relay.row(&subject, event_id, step.at));
        step
    }

    /// Writes a step of a charge that this transaction has locked, with everything that becomes
    /// true by it.
    pub async fn write_step(&self, tx: &mut Tx, step: &Step) -> Result<()> {
        let state = step.after.progress.state;
        if step.is_change() && state == State::Settled {
            self.look_for_release(tx, &step.after, step.at).await?;
        }
        match store::steps::write(tx, &[step]).await? {
            Written::All => {}
            Written::NotAsBefore => return Err(Error::NotAsBefore),
            Written::PostedBefore => return Err(Error::PostedBefore),
        }
        if step.is_change() && state == State::Void {
            KEYS.free(tx, step.after.facts.transaction_id).await?;
        }
        Ok(())
    }

    /// Whether [`Self::write_step`] does more than write this step.
    pub fn is_more_to_write(step: &Step) -> bool {
        let may_be_released = step.after.facts.charge_number != 1;
        step.is_change()
            && match step.after.progress.state {
                State::Settled => may_be_released,
                State::Void => true,
                State::Failed
                | State::Submitting
                | State::Initiated
                | State::OtpRequired
                | State::OtpSubmitting => false,
            }
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

    /// Opens an operator's case, once of its kind, and posts its money: now, or later when the
    /// rail says how much it is.
    pub async fn open_case(
        &self,
        tx: &mut Tx,
        charge: &Charge,
        (kind, detail): (CaseKind, String),
        suspense: Option<Money>,
        now: Timestamp,
    ) -> Result<()> {
        let about = (charge.facts.transaction_id, &charge.facts.reference);
        let case = Case::new(about, kind, detail, suspense, now);
        let Some(case_id) = store::cases::open(tx, &case).await? else {
            return Ok(());
        };
        if let Some(amount) = suspense {
            if kind == CaseKind::Mismatch {
                store::charges::mark_mismatched(tx, charge.facts.transaction_id).await?;
            }
            let posting = ledger::suspense(&charge.facts, amount)?;
            let _once = store::postings::post(tx, &posting, now).await?;
        }
        case.announce(case_id);
        Ok(())
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

    /// The same, with what a rail's answer to a query depends on.
    pub async fn hold(&self, tx: &mut Tx, id: ChargeId) -> Result<Held> {
        let found = store::charges::hold(tx, id).await?;
        found.ok_or(Error::ChargeNotFound)
    }

    /// After a commit: wakes those for whom the step means work, tells others of it and whoever
    /// watches the charge, and counts a charge that has ended.
    pub fn announce(&self, step: Step) {
        drop(self.after_commit(step));
    }

    /// After a commit: the same, and waits a moment until sessions-svc knows. The relay goes on by
    /// itself.
    pub async fn announce_now(&self, step: Step) {
        if let Some(telling) = self.after_commit(step)
            && telling.within(RELAY_WAIT).await == RelayOutcome::Later
        {
            tracing::info!("sessions-svc has not heard yet, the relay goes on");
        }
    }

    fn after_commit(&self, step: Step) -> Option<Telling> {
        let Step {
            after,
            outbox_row,
            due,
            ..
        } = step;
        self.watches.tell(&after);
        let rail = &after.facts.rail;
        match due {
            Some(due) => self.reconcile_alarms.ring_at(rail, due),
            None if after.timer.next_query_at.is_some() => self.reconcile_alarms.ring(rail),
            None => {}
        }
        let row = outbox_row?;
        count(&after);
        Some(self.relay.tell(row, after))
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
