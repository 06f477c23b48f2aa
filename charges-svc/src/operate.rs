//! What operators decide about charges, on evidence from a rail.
//!
//! Promise: an operator cannot settle a charge whose money the rail reported differently, end a
//! charge twice, or take more from a merchant than is available, but for what the rail took back.
//! Money leaves suspense only by a posting.

use std::sync::Arc;

use chassis::{
    clock::Timestamp,
    ids::{CaseId, Reference},
    money::Money,
};
use db::{Insert, Tx, Update};

use crate::{
    case::{Case, CaseKind, Closing, Decision},
    charge::{Charge, Event, ShownCharge, State},
    disbursement::DisbursementRefusal,
    error::{Error, Result},
    ledger::{self, PostingKind},
    service::Service,
    store::{
        self,
        evidence::{Action, Evidence, Note},
        postings::LedgerLine,
    },
};

/// A charge and everything that is known about it.
#[derive(Clone, Debug)]
pub struct ChargeFile {
    pub charge: ShownCharge,
    pub state: State,
    pub next_query_at: Option<Timestamp>,
    pub evidence: Vec<Evidence>,
    pub postings: Vec<LedgerLine>,
}

impl Service {
    pub async fn show_charge(&self, reference: &Reference) -> Result<ChargeFile> {
        let mut conn = self.db.read().await?;
        let charge = store::charges::find_by_reference(&mut conn, reference).await?;
        let charge = charge.ok_or(Error::ChargeNotFound)?;
        let evidence = store::evidence::list(&mut conn, charge.facts.transaction_id.uuid()).await?;
        let postings = store::postings::list(&mut conn, charge.facts.transaction_id).await?;
        Ok(ChargeFile {
            state: charge.progress.state,
            next_query_at: charge.timer.next_query_at,
            charge: charge.try_into()?,
            evidence,
            postings,
        })
    }

    /// Ends an open charge as SETTLED or FAILED.
    pub async fn resolve_charge(
        self: &Arc<Self>,
        reference: &Reference,
        event: Event,
        evidence: &str,
    ) -> Result<ChargeFile> {
        let mut tx = self.db.begin().await?;
        let found = store::charges::find_by_reference(&mut tx, reference).await?;
        let id = found.ok_or(Error::ChargeNotFound)?.facts.transaction_id;
        let charge = self.lock(&mut tx, id).await?;
        if charge.progress.state.is_terminal() {
            return Err(Error::ChargeAlreadyTerminal);
        }
        let outcome = match event {
            Event::Settled => Note::Succeeded,
            _ => Note::Failed,
        };
        let outcome = outcome.code();
        if event == Event::Settled && charge.progress.mismatched {
            return Err(Error::EvidenceMismatch);
        }
        let (said, now) = ((Action::Operator, outcome), self.clock.now());
        store::evidence::keep(&mut tx, id.uuid(), said, Some(evidence), now).await?;
        let step = self.step(&charge, event, now)?;
        self.write_step(&mut tx, &step).await?;
        tx.commit().await?;
        tracing::warn!(charge.reference = %reference, outcome, "an operator ended the charge");
        self.announce_now(step).await;
        self.show_charge(reference).await
    }

    /// Open cases, oldest first.
    pub async fn list_cases(&self) -> Result<Vec<Case>> {
        let mut conn = self.db.read().await?;
        Ok(store::cases::list_open(&mut conn).await?)
    }

    /// Closes a case and posts where its money went, or sends its money to the payer first. Money is
    /// released to a merchant who was already credited for the same session, or after the rail took
    /// it back, only if the operator says why.
    pub async fn close_case(&self, id: CaseId, decision: Decision) -> Result<Case> {
        let mut tx = self.db.begin().await?;
        let found = store::cases::find(&mut tx, id).await?;
        let found = found.ok_or(Error::CaseNotFound)?;
        if found.kind.is_of_report() {
            return self.close_report_case(tx, found, decision).await;
        }
        // A settlement of another charge of the session comes entirely before or after this.
        let session = store::charges::lock_session(&mut tx, found.subject).await?;
        let mut session = session.into_iter();
        let charge = session.find(|charge| charge.facts.transaction_id.uuid() == found.subject);
        let Some(charge) = charge else {
            drop(tx);
            return self.close_disbursement_case(found, decision).await;
        };
        if !charge.progress.state.is_terminal() {
            return Err(Error::CaseNeedsChargeResolved);
        }
        // Again, now that nobody else adds money to it.
        let found = store::cases::find(&mut tx, id).await?;
        let found = found.ok_or(Error::CaseNotFound)?;
        let now = self.clock.now();
        match (&decision, found.suspense()) {
            (Decision::Refund, Some(suspense)) => {
                return self
                    .refund_suspense(tx, &charge, found, suspense, now)
                    .await;
            }
            (Decision::Refunded(_), None) => {
                return Err(Error::Invalid {
                    field: "action",
                    message: "must be refund or release: no money waits with this case".into(),
                });
            }
            _ => {}
        }
        if found.kind == CaseKind::Reversed {
            let (id, currency) = (
                charge.facts.transaction_id,
                charge.facts.amount().currency(),
            );
            let refunds = store::disbursements::refunds(&mut tx, id, currency).await?;
            if refunds.are_on_their_way {
                return Err(Error::CaseBeingRefunded);
            }
        }
        let closing = decision.closing();
        // This also holds off a charge that is only just being created, see `is_released_beside`.
        if store::cases::close(&mut tx, id, closing, now).await? == Update::NotThere {
            return Err(Error::CaseClosed);
        }
        if store::disbursements::is_refunding(&mut tx, id).await? {
            return Err(Error::CaseBeingRefunded);
        }
        let case = store::cases::find(&mut tx, id)
            .await?
            .ok_or(Error::CaseNotFound)?;
        let is_overridden = self
            .check_decision(&mut tx, &charge, &case, &decision, now)
            .await?;
        post_closing(&mut tx, &case, &charge, closing, now).await?;
        tx.commit().await?;
        let closing = closing.code();
        tracing::warn!(case.id = %id, closing, is_overridden, "an operator closed the case");
        Ok(case)
    }

    /// Refuses a release that something speaks against, unless the operator says why, and keeps
    /// what the operator says. Returns whether something was overridden.
    async fn check_decision(
        &self,
        tx: &mut Tx,
        charge: &Charge,
        case: &Case,
        decision: &Decision,
        now: Timestamp,
    ) -> Result<bool> {
        let transaction_id = charge.facts.transaction_id;
        let reason = match decision {
            Decision::Refund => return Ok(false),
            Decision::Refunded(evidence) => {
                let said = (Action::Operator, Note::Refunded.code());
                store::evidence::keep(tx, transaction_id.uuid(), said, Some(evidence), now).await?;
                return Ok(false);
            }
            Decision::Release(_) if case.suspense().is_none() => return Ok(false),
            Decision::Release(reason) => reason.as_deref(),
        };
        let credited = store::charges::find_credited_beside(tx, &charge.facts).await?;
        let is_reversed = store::cases::is_reversed(tx, transaction_id).await?;
        let late = store::disbursements::find_paid_late(tx, case.case_id).await?;
        let over = match credited {
            _ if late.is_some() => Some((Note::ReleasedOverPayment, Error::RefundPaidLate)),
            _ if is_reversed => Some((Note::ReleasedOverReversal, Error::ReleaseAfterReversal)),
            Some(other) => {
                let refusal = Error::ReleaseWouldCreditTwice(other);
                Some((Note::ReleasedOverPayment, refusal))
            }
            None => None,
        };
        match (over, reason) {
            (Some((over, _)), Some(reason)) => {
                let said = (Action::Operator, over.code());
                store::evidence::keep(tx, transaction_id.uuid(), said, Some(reason), now).await?;
                Ok(true)
            }
            (Some((_, refusal)), None) => Err(refusal),
            // Nothing was overridden, even if a reason was given.
            (None, _) => Ok(false),
        }
    }
}

/// Posts where a case's money went. Refuses if that was posted before.
async fn post_closing(
    tx: &mut Tx,
    case: &Case,
    charge: &Charge,
    closing: Closing,
    now: Timestamp,
) -> Result<()> {
    let id = charge.facts.transaction_id;
    let released = store::cases::released(tx, id).await?;
    let refunded = match (case.kind, closing) {
        (CaseKind::CreditedTwice, Closing::Refund) => refunded(tx, charge).await?,
        _ => Money::new(0, charge.facts.amount().currency()),
    };
    let Some(posting) = ledger::closing(case, charge, closing, released, refunded)? else {
        return Ok(());
    };
    let is_reversal = posting.kind == PostingKind::Reversal;
    if is_reversal && store::postings::is_taken_back(tx, id).await? {
        return Err(Error::AlreadyTakenBack);
    }
    // What the rail has taken back is gone, whatever the merchant has. This is not.
    if is_reversal && case.kind == CaseKind::CreditedTwice {
        let currency = charge.facts.amount().currency();
        let merchant_id = charge.facts.merchant_id;
        let available = store::postings::lock_available(tx, merchant_id, currency).await?;
        let [_, taken] = posting.lines();
        if available.minor_units() < taken.amount.minor_units() {
            return Err(DisbursementRefusal::InsufficientBalance(available).into());
        }
    }
    match store::postings::post(tx, &posting, now).await? {
        Insert::Inserted => Ok(()),
        Insert::AlreadyThere if is_reversal => Err(Error::AlreadyTakenBack),
        Insert::AlreadyThere => Err(Error::PostedBefore),
    }
}

/// What the merchant has sent back by refunds of what it was credited twice. Refuses if that is all,
/// or while a refund may still fail and return its money.
async fn refunded(tx: &mut Tx, charge: &Charge) -> Result<Money> {
    let (id, credited) = (charge.facts.transaction_id, charge.facts.amount());
    let refunds = store::disbursements::refunds(tx, id, credited.currency()).await?;
    if refunds.are_on_their_way {
        return Err(Error::CaseBeingRefunded);
    }
    if refunds.sum.minor_units() >= credited.minor_units() {
        return Err(Error::AlreadyTakenBack);
    }
    Ok(refunds.sum)
}
