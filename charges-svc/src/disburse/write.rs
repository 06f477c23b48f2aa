//! What is written when something becomes of a disbursement: its state, postings, evidence, case and
//! event, together.

use std::sync::Arc;

use chassis::{
    clock::Timestamp,
    ids::{CaseId, EventId},
};
use db::{Insert, Tx, Update};
use rails::{CallOutcome, RailAnswer};
use uuid::Uuid;

use crate::{
    case::{Case, CaseKind, Closing},
    disbursement::{Disbursement, State, Verdict},
    error::{Error, Result},
    ledger::{self, Posting, PostingKind},
    service::Service,
    store::{
        self,
        evidence::Action,
        idempotency::{PAYOUT_KEYS, REFUND_KEYS},
    },
    tell,
};

/// What is written about a disbursement that this process holds.
pub(super) struct Change {
    pub(super) before: Disbursement,
    pub(super) after: Disbursement,
    /// If the ledger holds the first of them already, none of this is news: rails repeat themselves.
    pub(super) postings: Vec<Posting>,
    pub(super) after_failure: Option<AfterFailure>,
    said: Option<(Action, &'static str, Option<String>)>,
    pub(super) case: Option<(CaseKind, String)>,
    at: Timestamp,
}

/// What the rail says of a disbursement that FAILED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// It was paid all the same.
    Paid,
    Failed,
    TakenBack,
}

impl AfterFailure {
    pub(super) fn of(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::PaidLate { .. } => Some(Self::Paid),
            Verdict::FailAgain => Some(Self::Failed),
            Verdict::TakeBackLate { .. } => Some(Self::TakenBack),
            _ => None,
        }
    }
}

impl Change {
    pub(super) fn new(before: Disbursement, after: Disbursement, at: Timestamp) -> Self {
        Self {
            before,
            after,
            postings: Vec::new(),
            after_failure: None,
            said: None,
            case: None,
            at,
        }
    }

    pub(super) fn heard<T: CallOutcome>(&mut self, action: Action, answer: &RailAnswer<T>) {
        self.said = Some((action, answer.outcome.label(), answer.rail_text.clone()));
    }
}

impl Service {
    /// Writes a change and tells others of it. Returns [`Update::NotThere`], and writes nothing but
    /// what the rail said, if somebody else has taken the disbursement over: it is theirs to send.
    pub(super) async fn write(self: &Arc<Self>, change: Change) -> Result<Update> {
        let mut tx = self.db.begin().await?;
        if store::disbursements::update(&mut tx, &change.before, &change.after).await?
            == Update::NotThere
        {
            tracing::warn!("somebody else has taken the disbursement over");
            // What the rail said is evidence all the same.
            keep_said(&mut tx, &change).await?;
            tx.commit().await?;
            return Ok(Update::NotThere);
        }
        let is_told = self.write_rest(&mut tx, &change).await?;
        tx.commit().await?;
        if is_told {
            self.relay.ring();
        }
        if let Some(due) = change.after.next_due_at {
            self.disburse_alarms.ring_at(&change.after.rail, due);
        }
        Ok(Update::Updated)
    }

    /// Writes what becomes true with a change. Returns whether others are to be told.
    async fn write_rest(&self, tx: &mut Tx, change: &Change) -> Result<bool> {
        let (after, now) = (&change.after, change.at);
        let id = after.disbursement_id;
        keep_said(tx, change).await?;
        let is_news = post_news(tx, &change.postings, now).await?;
        if let Some((kind, detail)) = change.case.as_ref().filter(|_| is_news) {
            self.open_disbursement_case(tx, after, *kind, detail, now)
                .await?;
        }
        match change.after_failure {
            Some(AfterFailure::TakenBack) => take_back_late(tx, after, now).await?,
            Some(said) => {
                if let Some(detail) = contradiction(tx, id.uuid(), said).await? {
                    let mismatch = CaseKind::Mismatch;
                    self.open_disbursement_case(tx, after, mismatch, detail, now)
                        .await?;
                }
            }
            None => {}
        }
        let is_new_state = after.progress.state != change.before.progress.state;
        let is_end = is_new_state && after.progress.state.is_terminal();
        if is_end {
            let opened = change.case.as_ref().map(|(kind, _)| *kind);
            self.end(tx, after, opened, now).await?;
        }
        Ok(is_end)
    }

    /// Opens a case, and settles what the disbursement means for the case whose suspense it pays.
    async fn open_disbursement_case(
        &self,
        tx: &mut Tx,
        about: &Disbursement,
        kind: CaseKind,
        detail: &str,
        now: Timestamp,
    ) -> Result<()> {
        if let Some(refunded) = about.refunded.case_id {
            match kind {
                // The payer has it by an earlier refund that was paid late.
                CaseKind::TakenBack if take_late_refund(tx, refunded, now).await? => {}
                // The suspense is there again.
                CaseKind::TakenBack => store::cases::reopen(tx, refunded).await?,
                // It has done what it was for, unless that was done otherwise meanwhile.
                CaseKind::PaidLate
                    if store::cases::lock_open(tx, refunded).await?
                        && !store::disbursements::is_refunding(tx, refunded).await? =>
                {
                    return match store::cases::close(tx, refunded, Closing::Refund, now).await? {
                        Update::Updated => Ok(()),
                        Update::NotThere => Err(Error::NotAsBefore),
                    };
                }
                _ => {}
            }
        }
        let case = Case::of_disbursement(about, kind, detail.to_owned(), now);
        if let Some(case_id) = store::cases::open(tx, &case).await? {
            case.announce(case_id);
        }
        Ok(())
    }

    /// What becomes true when a disbursement ends: its fee is paid or, if it failed, its money is
    /// returned; others are told; its key and its cases end, but for the one that was `opened` with
    /// its end.
    pub async fn end(
        &self,
        tx: &mut Tx,
        ended: &Disbursement,
        opened: Option<CaseKind>,
        now: Timestamp,
    ) -> Result<()> {
        let id = ended.disbursement_id;
        let posting = match ended.progress.state {
            State::Completed => ledger::payout_fee(ended)?,
            State::Failed => ledger::returned(ended)?,
            State::Pending | State::Processing => None,
        };
        if let Some(posting) = posting
            && store::postings::post(tx, &posting, now).await? == Insert::AlreadyThere
        {
            return Err(Error::PostedBefore);
        }
        let over = [
            CaseKind::UnknownOutcome,
            CaseKind::NotSent,
            CaseKind::FloatEmpty,
        ];
        for kind in over.into_iter().filter(|kind| Some(*kind) != opened) {
            let known = Closing::OutcomeKnown;
            let _if_open = store::cases::close_of(tx, id.uuid(), kind, known, now).await?;
        }
        if let (State::Completed, Some(case_id)) = (ended.progress.state, ended.refunded.case_id)
            && store::cases::close(tx, case_id, Closing::Refund, now).await? == Update::NotThere
        {
            tracing::error!(case.id = %case_id, "the case whose suspense was refunded is closed");
        }
        if let (State::Failed, Some(case_id)) = (ended.progress.state, ended.refunded.case_id)
            && store::cases::lock_open(tx, case_id).await?
            && take_late_refund(tx, case_id, now).await?
            && store::cases::close(tx, case_id, Closing::Refund, now).await? == Update::NotThere
        {
            return Err(Error::NotAsBefore);
        }
        for keys in [&PAYOUT_KEYS, &REFUND_KEYS] {
            keys.forget_later(tx, id, now).await?;
        }
        let event_id = EventId::of(id.uuid());
        db::outbox::put(tx, &tell::subject_of(id), Some(event_id.as_str()), now).await?;
        let (state, reason) = (ended.progress.state.code(), &ended.progress.failure_reason);
        tracing::info!(disbursement.id = %ended.shown_id, state, ?reason, "the disbursement has ended");
        metrics::counter!(
            "disbursements_ended_total",
            "kind" => ended.kind.code(),
            "state" => state,
            "reason" => reason.clone().unwrap_or_default()
        )
        .increment(1);
        Ok(())
    }
}

/// What a verdict posts, besides the return of what failed. The fee is last, and so never tells
/// whether the rest is news: it may have been posted with a success that was heard before.
pub(super) fn postings(after: &Disbursement, verdict: &Verdict) -> Result<Vec<Posting>> {
    let (moved, fee) = match verdict {
        Verdict::Complete { fee } => (Some(ledger::disbursement(after)?), fee),
        Verdict::TakeBack { fee } => (Some(ledger::disbursement_reversal(after)?), fee),
        Verdict::PaidLate { fee } => (Some(ledger::late_disbursement(after)?), fee),
        Verdict::Confirm { fee }
        | Verdict::FailOfReversal { fee }
        | Verdict::TakeBackLate { fee } => (None, fee),
        Verdict::Wait
        | Verdict::Fail(_)
        | Verdict::FailOfEmptyFloat
        | Verdict::FailAgain
        | Verdict::SendAgain
        | Verdict::Open(..) => (None, &None),
    };
    let fee = fee.map(|fee| ledger::disbursement_fee(after, fee));
    Ok(moved.into_iter().chain(fee.transpose()?).collect())
}

async fn keep_said(tx: &mut Tx, change: &Change) -> Result<()> {
    if let Some((action, outcome, rail_text)) = &change.said {
        let subject = change.after.disbursement_id.uuid();
        let (said, text) = ((*action, *outcome), rail_text.as_deref());
        store::evidence::keep(tx, subject, said, text, change.at).await?;
    }
    Ok(())
}

/// Writes what a verdict posts. Returns whether it was not there before.
async fn post_news(tx: &mut Tx, postings: &[Posting], now: Timestamp) -> Result<bool> {
    let mut is_news = true;
    for (place, posting) in postings.iter().enumerate() {
        if store::postings::post(tx, posting, now).await? == Insert::AlreadyThere {
            tracing::info!(kind = posting.kind.code(), "it is in the ledger already");
            // The fee may still be missing: not every answer tells it.
            is_news &= place > 0;
        }
    }
    Ok(is_news)
}

/// Whether the rail paid another refund of this case after it had failed, and nobody has decided
/// about that: then it is what the case's suspense was for, and nothing is left to decide.
async fn take_late_refund(tx: &mut Tx, case_id: CaseId, now: Timestamp) -> Result<bool> {
    let Some(late) = store::disbursements::find_paid_late(tx, case_id).await? else {
        return Ok(false);
    };
    let (late, known) = (late.uuid(), Closing::OutcomeKnown);
    let closed = store::cases::close_of(tx, late, CaseKind::PaidLate, known, now).await?;
    Ok(closed == Update::Updated)
}

/// How what the rail says of a disbursement that FAILED contradicts what it said after that, by
/// what the ledger holds.
async fn contradiction(
    tx: &mut Tx,
    subject: Uuid,
    said: AfterFailure,
) -> Result<Option<&'static str>> {
    let is_taken_back = store::postings::is_posted(tx, PostingKind::LateReversal, subject).await?;
    let is_paid = !is_taken_back
        && store::postings::is_posted(tx, PostingKind::LateDisbursement, subject).await?;
    Ok(match said {
        AfterFailure::Paid if is_taken_back => {
            Some("the rail reports success after it had taken it back")
        }
        AfterFailure::Failed if is_paid => {
            Some("the rail reports a failure after it reported that it had paid late")
        }
        _ => None,
    })
}

/// What the rail had paid late is in the float again: whoever bore it has it
/// back, and nothing is left to decide about it.
async fn take_back_late(tx: &mut Tx, about: &Disbursement, now: Timestamp) -> Result<()> {
    let subject = about.disbursement_id.uuid();
    if !store::postings::is_posted(tx, PostingKind::LateDisbursement, subject).await? {
        return Ok(());
    }
    let decided = store::cases::closing_of(tx, subject, CaseKind::PaidLate).await?;
    let posting = ledger::late_reversal(about, decided.flatten())?;
    if store::postings::post(tx, &posting, now).await? == Insert::AlreadyThere {
        return Ok(());
    }
    match (decided, about.refunded.case_id) {
        // It had closed the case whose suspense it paid, so there was nothing to decide.
        (None | Some(Some(Closing::OutcomeKnown)), Some(refunded)) => {
            if !take_late_refund(tx, refunded, now).await? {
                store::cases::reopen(tx, refunded).await?;
            }
        }
        (Some(_), _) => {
            let paid_late = CaseKind::PaidLate;
            let known = Closing::OutcomeKnown;
            let _if_open = store::cases::close_of(tx, subject, paid_late, known, now).await?;
        }
        (None, None) => {}
    }
    tracing::warn!(disbursement.id = %about.shown_id, "the rail took back what it had paid late");
    Ok(())
}

#[cfg(test)]
mod tests {
    use chassis::{
        ids::MerchantId,
        money::{Currency, Money},
    };
    use rails::RailName;

    use super::*;
    use crate::disbursement::Destination;

    /// Otherwise the ledger's float holds more than the rail's.
    #[test]
    fn the_fee_of_what_was_taken_back_before_anybody_had_heard_of_it_is_posted() {
        let ghs = |minor| Money::new(minor, Currency::GHS);
        let now = "2026-01-31T09:00:00.000Z".parse().expect("a timestamp");
        let (to, rail) = (Destination::default(), RailName::Paystack);
        let payout = Disbursement::payout(MerchantId::new(), ghs(2_000), to, rail, false, now);
        let fee = ledger::disbursement_fee(&payout, ghs(100)).expect("a posting");
        let heard = Some(ghs(100));
        for verdict in [
            Verdict::FailOfReversal { fee: heard },
            Verdict::TakeBackLate { fee: heard },
        ] {
            let posted = postings(&payout, &verdict).expect("postings");
            assert_eq!(posted, std::slice::from_ref(&fee), "{verdict:?}");
        }
        let none = postings(&payout, &Verdict::FailOfReversal { fee: None });
        assert_eq!(none.expect("postings"), []);
        // Otherwise a fee that was posted before would hide the reversal.
        let reversal = ledger::disbursement_reversal(&payout).expect("a posting");
        let taken_back = postings(&payout, &Verdict::TakeBack { fee: heard });
        assert_eq!(taken_back.expect("postings"), [reversal, fee]);
    }
}
