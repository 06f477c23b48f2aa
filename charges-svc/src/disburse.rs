//! The disburser: sends disbursements to their rails when they are due, asks what became of them,
//! and acts on the answers.
//!
//! Promise: a disbursement goes out once, under a reference that was durable before. It goes out a
//! second time only under the same reference, on a rail that refuses a reference's second use, and
//! only if the rail has never shown that it has it, and has known nothing of it for a while. What may
//! have been sent is never returned to the merchant unless the rail, or an operator, says that it
//! failed.

mod float;
mod write;

use std::sync::Arc;

use anyhow::Context as _;
use chassis::{clock::Timestamp, error_chain::chain, failure::FailureReason, telemetry};
use db::{
    Update,
    work::{Claimed, TaskSet, Work},
};
use rails::{Rail, RailName, SendOutcome, TransferOutcome, TransferRequest};
use tokio::sync::Mutex;
use tracing::Instrument as _;

use crate::{
    budget::TokenBucket,
    case::CaseKind,
    charge::Claim,
    disbursement::{
        Destination, Disbursement, Event, Kind, State, Verdict, is_answer, judge, next_query,
        next_send,
    },
    error::{Error, Result},
    schedule::DAY,
    service::Service,
    store::{
        self,
        evidence::{Action, Summary},
    },
};
use write::{AfterFailure, Change, postings};

/// Most disbursements of one rail that are sent or asked about at the same time.
const RUNNING_MAX: usize = 16;

/// Pays out over one rail.
pub struct Disburser {
    service: Arc<Service>,
    rail: RailName,
    budget: TokenBucket,
    /// Held while the float is compared with what is about to leave it, so that this process's own
    /// do not overtake each other.
    sending: Arc<Mutex<()>>,
}

/// The name of a rail's work.
pub fn name(rail: RailName) -> &'static str {
    match rail {
        RailName::Momo => "disburse: momo",
        RailName::Paystack => "disburse: paystack",
        RailName::Hubtel => "disburse: hubtel",
    }
}

impl Disburser {
    pub fn new(rail: &Rail, service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            rail: rail.name,
            budget: TokenBucket::new(rail.queries_per_second, service.clock.now()),
            sending: Arc::default(),
        }
    }

    async fn claim_due(&mut self, tasks: &mut TaskSet) -> Result<Claimed> {
        let service = &self.service;
        let now = service.clock.now();
        let room = self.budget.available(now).min(tasks.room() as u64);
        if room == 0 {
            return Ok(Claimed::Part(self.budget.next_at()));
        }
        let limit = i64::try_from(room).unwrap_or(i64::MAX);
        let mut conn = service.db.write().await?;
        let lease = service.settings.lease;
        let claimed =
            store::disbursements::claim_due(&mut conn, &service.clock, self.rail, limit, lease);
        let claimed = claimed.await?;
        drop(conn);
        let found = (claimed.rows.len() + claimed.unknown) as u64;
        self.budget.spend(found);
        for disbursement in claimed.rows {
            tasks.start(self.advancing(disbursement));
        }
        Ok(match found {
            0 => Claimed::Nothing,
            found if found < room => Claimed::All,
            _ => Claimed::Part(now),
        })
    }

    /// Sends a disbursement that this process holds, or asks about it, in the name and trace of the
    /// request that created it.
    fn advancing(&self, disbursement: Disbursement) -> impl Future<Output = ()> + use<> {
        let (service, sending) = (Arc::clone(&self.service), Arc::clone(&self.sending));
        let rail = self.rail;
        let span = tracing::info_span!(
            parent: None,
            "disburse",
            disbursement.id = %disbursement.shown_id,
            state = disbursement.progress.state.code(),
            request.id = disbursement.asked_by.request_id.as_deref(),
        );
        telemetry::set_parent(&span, disbursement.traceparent.as_deref());
        let advancing = async move {
            let rail = service.rails.get(rail);
            let done = match disbursement.progress.state {
                State::Pending => service.send_first(rail, disbursement, &sending).await,
                State::Processing | State::Completed | State::Failed => {
                    service.ask_about(rail, disbursement).await
                }
            };
            if let Err(error) = done {
                tracing::error!(error = %chain(&error), "the disbursement waits for its lease");
            }
        };
        advancing.instrument(span)
    }
}

impl Work for Disburser {
    fn running_max(&self) -> usize {
        RUNNING_MAX
    }

    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let due = async {
            let real_now = self.service.clock.real_now();
            let mut conn = self.service.db.read().await?;
            store::disbursements::next_due(&mut conn, self.rail, real_now).await
        };
        due.await
            .context("nobody knows when a disbursement is next due")
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let claimed = self.claim_due(tasks).await;
        claimed.context("the due disbursements cannot be read")
    }
}

impl Service {
    /// The rail that pays this destination.
    pub fn rail_to(&self, destination: &Destination) -> Result<RailName> {
        let at_rail = destination.at_rail().ok_or(Error::Invalid {
            field: "destination",
            message: "is not known to this version".into(),
        })?;
        Ok(self.rails.for_destination(&at_rail).name)
    }

    /// Sends a PENDING disbursement, unless it has to wait.
    async fn send_first(
        self: &Arc<Self>,
        rail: &Rail,
        held: Disbursement,
        sending: &Mutex<()>,
    ) -> Result<()> {
        let mut conn = self.db.read().await?;
        let said = store::evidence::summarize(&mut conn, &[held.disbursement_id.uuid()]).await?;
        drop(conn);
        // Its reference may be known by an attempt that the rail seemed not to take.
        let was_sent = said.iter().any(|said| said.action == Action::Send.code());
        let Some(request) = request(&held, was_sent) else {
            tracing::error!("the destination is not known to this version");
            return Ok(());
        };
        let turn = sending.lock().await;
        let begun = self.begin_sending(rail, &held).await?;
        drop(turn);
        match begun {
            Some(sent) => self.hand_over(rail, sent, &request).await,
            None => Ok(()),
        }
    }

    /// Sends a disbursement that is recorded as sent, and writes what the rail says to that.
    /// When it is sent again, the rail may already have taken it the first time; a refusal of the
    /// second says nothing about that.
    async fn hand_over(
        self: &Arc<Self>,
        rail: &Rail,
        sent: Disbursement,
        request: &TransferRequest,
    ) -> Result<()> {
        let answer = rail.send(request).await;
        let now = self.clock.now();
        let is_first = sent.resent_at.is_none();
        let is_not_sent = matches!(
            answer.outcome,
            SendOutcome::NotSent(_) | SendOutcome::FloatEmpty
        );
        let event = match &answer.outcome {
            _ if is_not_sent && is_first => Some(Event::NotSent),
            SendOutcome::Refused(reason) if is_first => Some(Event::Failed(*reason)),
            _ => None,
        };
        let mut after = match event {
            Some(event) => sent.after(event, now)?,
            None => sent.clone(),
        };
        if is_not_sent && now.since(sent.first_sent_at()) < DAY {
            // So it goes out again, until its outcome is a person's to find.
            after.resent_at = None;
        }
        let mut change = Change::new(sent, self.released(after, now, true), now);
        change.heard(Action::Send, &answer);
        change.case = match &answer.outcome {
            SendOutcome::FloatEmpty => Some((
                CaseKind::FloatEmpty,
                "the rail says that the float is empty".to_owned(),
            )),
            SendOutcome::NotSent(_) if is_first => self.stuck(&change.after, now).await?,
            _ => None,
        };
        self.write(change).await.map(drop)
    }

    /// Whether what its rail does not know may go out again. A rail that had it once has forgotten it,
    /// and so may not refuse its second use either.
    async fn may_resend(&self, held: &Disbursement) -> Result<bool> {
        let mut conn = self.db.read().await?;
        let said = store::evidence::summarize(&mut conn, &[held.disbursement_id.uuid()]).await?;
        let was_there = said.iter().any(Summary::shows_a_transfer);
        Ok(!was_there && !float::is_barred(&mut conn, held).await?)
    }

    /// Asks the rail about a disbursement, and acts on the answer.
    async fn ask_about(self: &Arc<Self>, rail: &Rail, held: Disbursement) -> Result<()> {
        let asked_at = self.clock.now();
        let answer = rail
            .query_transfer(held.rail_reference, held.amount())
            .await;
        let now = self.clock.now();
        // What must not go out again is a person's to end, unless the rail ends it.
        let may_resend = answer.outcome == TransferOutcome::ReferenceUnknown
            && rail.name.terms().refuses_second_transfer
            && self.may_resend(&held).await?;
        let resend_after = may_resend.then_some(self.settings.disbursement_resend_after);
        let verdict = judge(&held, &answer.outcome, asked_at, resend_after);
        let is_answered = is_answer(&held, &answer.outcome, asked_at);
        let (event, case) = event_and_case(&verdict);
        let mut after = match event {
            Some(event) => held.after(event, now)?,
            None => held.clone(),
        };
        // The rail knows nothing of it, so a change of the account holds it like any other.
        let hold = match verdict {
            Verdict::SendAgain => float::hold(&mut self.db.read().await?, &held, now).await?,
            _ => None,
        };
        let may_be_known = true;
        let may_go = hold.is_none() && self.outlives_a_call(held.claim);
        let again = match verdict {
            Verdict::SendAgain if may_go => request(&held, may_be_known),
            _ => None,
        };
        if again.is_some() {
            after.resent_at = Some(now);
            after.next_due_at = next_query(&after, &self.settings.reconcile_schedule, true, now);
        } else {
            // Counted from when the query began: one that began before a look was due does not
            // stand for that look.
            after = self.released(after, asked_at, is_answered);
            after.next_due_at = after.next_due_at.map(|due| hold.unwrap_or(due).min(due));
        }
        let mut change = Change::new(held, after.clone(), now);
        change.heard(Action::Query, &answer);
        change.case = case;
        change.postings = postings(&after, &verdict)?;
        change.after_failure = AfterFailure::of(&verdict);
        let is_ours = self.write(change).await?;
        match again {
            Some(request) if is_ours == Update::Updated => {
                self.hand_over(rail, after, &request).await
            }
            _ => Ok(()),
        }
    }

    /// How a disbursement is left by who held it: due again at its time, and held by nobody.
    fn released(&self, mut left: Disbursement, now: Timestamp, is_answered: bool) -> Disbursement {
        left.next_due_at = match left.progress.state {
            State::Pending => Some(next_send(&left, now)),
            _ => next_query(&left, &self.settings.reconcile_schedule, is_answered, now),
        };
        left.claim = Claim::default();
        left
    }

    /// A case for a disbursement that a rail has not taken for a day, without the time in which it
    /// was held.
    async fn stuck(
        &self,
        waiting: &Disbursement,
        now: Timestamp,
    ) -> Result<Option<(CaseKind, String)>> {
        if now.since(waiting.created_at) < DAY {
            return Ok(None);
        }
        let mut conn = self.db.read().await?;
        let held_until = store::payout_accounts::held_until(&mut conn, waiting.merchant_id).await?;
        let is_held =
            waiting.kind == Kind::Payout && held_until.is_some_and(|until| now.since(until) < DAY);
        let detail = "the rail has taken nothing of a disbursement for a day";
        Ok((!is_held).then(|| (CaseKind::NotSent, detail.to_owned())))
    }

    /// Records a callback that is about no charge. Returns whether it is about a disbursement.
    pub async fn keep_transfer_hint(
        &self,
        rail: RailName,
        about: &store::hints::About,
        rail_text: Option<&str>,
    ) -> Result<bool> {
        let now = self.clock.now();
        // Anybody can call this, so what is about nothing of ours costs one read more.
        let mut conn = self.db.read().await?;
        let found = store::disbursements::find_called(&mut conn, rail, about).await?;
        drop(conn);
        let Some(id) = found else {
            return Ok(false);
        };
        let mut tx = self.db.begin().await?;
        store::disbursements::put_hint(&mut tx, id, now).await?;
        let said = (Action::Callback, store::evidence::Note::Received.code());
        store::evidence::keep(&mut tx, id.uuid(), said, rail_text, now).await?;
        tx.commit().await?;
        self.disburse_alarms.ring_at(rail.code(), now);
        Ok(true)
    }
}

/// What a verdict does to a disbursement, and the case that it opens.
fn event_and_case(verdict: &Verdict) -> (Option<Event>, Option<(CaseKind, String)>) {
    let case = |kind, detail: &str| Some((kind, detail.to_owned()));
    match verdict {
        Verdict::Complete { .. } => (Some(Event::Completed), None),
        Verdict::Fail(reason) => (Some(Event::Failed(*reason)), None),
        Verdict::FailOfReversal { .. } => (Some(Event::Failed(FailureReason::RailError)), None),
        Verdict::FailOfEmptyFloat => (
            Some(Event::Failed(FailureReason::RailUnavailable)),
            case(
                CaseKind::FloatEmpty,
                "the rail ended it because the float was empty",
            ),
        ),
        Verdict::TakeBack { .. } => (
            Some(Event::Reversed),
            case(CaseKind::TakenBack, "the rail took back what it had paid"),
        ),
        Verdict::PaidLate { .. } => (
            None,
            case(CaseKind::PaidLate, "the rail paid it after it had failed"),
        ),
        Verdict::Open(kind, detail) => (None, case(*kind, detail)),
        Verdict::SendAgain
        | Verdict::Confirm { .. }
        | Verdict::FailAgain
        | Verdict::TakeBackLate { .. }
        | Verdict::Wait => (None, None),
    }
}

/// What the rail is asked to pay. `None` if only a newer version knows the destination.
fn request(sent: &Disbursement, may_be_known: bool) -> Option<TransferRequest> {
    Some(TransferRequest {
        rail_reference: sent.rail_reference,
        shown_id: sent.shown_id.clone(),
        amount: sent.amount(),
        destination: sent.destination.at_rail()?,
        may_be_known,
        callback_token: sent.callback_token.clone(),
    })
}
