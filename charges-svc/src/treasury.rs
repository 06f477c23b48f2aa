//! What operators do with money that goes out: how disbursements that nobody knows the end of have
//! ended, and what treasury moved by hand.
//!
//! Promise: an operator cannot end a disbursement twice.

use std::sync::Arc;

use chassis::{
    clock::Timestamp,
    ids::{CaseId, DisbursementId},
    money::{Currency, Money},
};
use db::{Insert, Update};
use rails::{FloatOutcome, RailName};

use crate::{
    case::{Case, CaseKind, Closing, Decision},
    charge::Claim,
    disbursement::{Disbursement, DisbursementRefusal, Event, State},
    error::{Error, Result},
    float_move::{Direction, FloatMove},
    ledger::{self, Account},
    service::Service,
    store::{
        self,
        evidence::{Action, Evidence, Note},
        postings::LedgerLine,
    },
};

/// What a rail holds.
#[derive(Clone, Debug)]
pub struct RailHoldings {
    pub rail: RailName,
    /// What it has collected and still holds, by the ledger.
    pub clearing: Money,
    /// What is there for disbursements, by the ledger.
    pub float: Money,
    /// The same by the rail's word, if it answered.
    pub rail_balance: Option<Money>,
}

/// A disbursement and everything that is known about it.
#[derive(Clone, Debug)]
pub struct DisbursementFile {
    pub disbursement: Disbursement,
    pub evidence: Vec<Evidence>,
    pub postings: Vec<LedgerLine>,
}

impl Service {
    pub async fn show_disbursement(&self, shown_id: &str) -> Result<DisbursementFile> {
        let mut conn = self.db.read().await?;
        let found = store::disbursements::find_shown(&mut conn, shown_id).await?;
        let disbursement = found.ok_or(Error::DisbursementNotFound)?;
        let id = disbursement.disbursement_id.uuid();
        Ok(DisbursementFile {
            disbursement,
            evidence: store::evidence::list(&mut conn, id).await?,
            postings: store::postings::list_of(&mut conn, id).await?,
        })
    }

    /// Ends a disbursement as COMPLETED or FAILED, on evidence that an operator has.
    pub async fn resolve_disbursement(
        self: &Arc<Self>,
        shown_id: &str,
        event: Event,
        evidence: &str,
    ) -> Result<DisbursementFile> {
        let mut tx = self.db.begin().await?;
        let found = store::disbursements::find_shown(&mut tx, shown_id).await?;
        let id = found.ok_or(Error::DisbursementNotFound)?.disbursement_id;
        let held = self.lock_disbursement(&mut tx, id).await?;
        if held.progress.state.is_terminal() {
            return Err(Error::DisbursementAlreadyTerminal);
        }
        if held.progress.state == State::Pending && event == Event::Completed {
            return Err(Error::Invalid {
                field: "outcome",
                message: "must be a failure: nothing was sent".into(),
            });
        }
        let now = self.clock.now();
        // A call that is under way may be sending it.
        let real_now = self.clock.real_now();
        let is_in_hand = held.claim.lease_until.is_some_and(|until| until > real_now);
        if held.progress.state == State::Processing && event != Event::Completed && is_in_hand {
            return Err(Error::DisbursementInHand);
        }
        let mut after = held.after(event, now)?;
        // Whoever holds it finds that it has changed.
        after.claim = Claim::default();
        after.next_due_at = Some(now);
        let outcome = match event {
            Event::Completed => Note::Succeeded,
            _ => Note::Failed,
        };
        let said = (Action::Operator, outcome.code());
        store::evidence::keep(&mut tx, id.uuid(), said, Some(evidence), now).await?;
        if store::disbursements::update(&mut tx, &held, &after).await? == Update::NotThere {
            return Err(Error::NotAsBefore);
        }
        self.end(&mut tx, &after, None, now).await?;
        if after.progress.state == State::Completed {
            let posting = ledger::disbursement(&after)?;
            if store::postings::post(&mut tx, &posting, now).await? == Insert::AlreadyThere {
                return Err(Error::PostedBefore);
            }
        }
        tx.commit().await?;
        self.relay.ring();
        let outcome = outcome.code();
        tracing::warn!(disbursement.id = %shown_id, outcome, "an operator ended the disbursement");
        self.show_disbursement(shown_id).await
    }

    async fn lock_disbursement(&self, tx: &mut db::Tx, id: DisbursementId) -> Result<Disbursement> {
        let found = store::disbursements::find_locked(tx, id).await?;
        found.ok_or(Error::DisbursementNotFound)
    }

    /// What each rail holds for us.
    pub async fn show_float(&self) -> Result<Vec<RailHoldings>> {
        let mut holdings = Vec::new();
        for rail in self.rails.each() {
            let said = rail.float().await.outcome;
            let code = rail.name.code().to_owned();
            let clearing = Account::Clearing { rail: code.clone() };
            let float = Account::Float { rail: code };
            let mut conn = self.db.read().await?;
            holdings.push(RailHoldings {
                rail: rail.name,
                clearing: store::postings::held(&mut conn, &clearing, Currency::GHS).await?,
                float: store::postings::held(&mut conn, &float, Currency::GHS).await?,
                rail_balance: match said {
                    FloatOutcome::Held(held) => Some(held),
                    FloatOutcome::Unknown => None,
                },
            });
        }
        Ok(holdings)
    }

    /// Posts what treasury moved by hand, once.
    pub async fn move_float(&self, moved: &FloatMove) -> Result<()> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        if store::float_moves::insert(&mut tx, moved, now).await? == Insert::AlreadyThere {
            let before = store::float_moves::is_same(&mut tx, moved).await?;
            return match before {
                true => Ok(()),
                false => Err(Error::FloatMoveReused),
            };
        }
        let rail = || moved.rail.code().to_owned();
        let clearing = || Account::Clearing { rail: rail() };
        let float = || Account::Float { rail: rail() };
        // What a rail holds is a debit, so what it gains is taken from its account.
        let accounts = match moved.direction {
            Direction::ClearingToFloat => (float(), clearing()),
            Direction::HouseToFloat => (float(), Account::House),
            Direction::FloatToHouse => (Account::House, float()),
            Direction::ClearingToHouse => (Account::House, clearing()),
        };
        let posting = ledger::float_move(moved.move_id, accounts, moved.amount)?;
        if store::postings::post(&mut tx, &posting, now).await? == Insert::AlreadyThere {
            return Err(Error::PostedBefore);
        }
        tx.commit().await?;
        let (rail, direction) = (moved.rail.code(), moved.direction.code());
        tracing::warn!(move.id = %moved.move_id, rail, direction, "treasury moved money");
        Ok(())
    }

    /// Closes a case about a disbursement. What was paid late is borne by the merchant, who has it
    /// twice ([`Decision::Refund`]), or by the house.
    pub async fn close_disbursement_case(&self, case: Case, decision: Decision) -> Result<Case> {
        let refuse = |message: &'static str| {
            Err(Error::Invalid {
                field: "action",
                message: message.into(),
            })
        };
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        let about = self.lock_disbursement(&mut tx, case.subject.into()).await?;
        let is_paid_late = case.kind == CaseKind::PaidLate;
        let is_about_end = matches!(case.kind, CaseKind::UnknownOutcome | CaseKind::Mismatch);
        if is_about_end && !about.progress.state.is_terminal() {
            return Err(Error::CaseNeedsChargeResolved);
        }
        let closing = decision.closing();
        let mut refunded = None;
        if let Some(of_case) = about.refunded.case_id.filter(|_| is_paid_late) {
            if store::cases::lock_open(&mut tx, of_case).await? {
                // The refund that is on its way may arrive all the same.
                if store::disbursements::is_refunding(&mut tx, of_case).await? {
                    return Err(Error::CaseBeingRefunded);
                }
                return self.take_for_suspense(tx, &case, of_case, now).await;
            }
            refunded = store::cases::closing(&mut tx, of_case).await?;
        }
        match decision {
            Decision::Release(_) => {}
            Decision::Refund if is_paid_late => {
                if about.refunded.case_id.is_some() && refunded != Some(Closing::Release) {
                    return refuse("must be release: the merchant was not given this money");
                }
            }
            Decision::Refund | Decision::Refunded(_) => {
                return refuse("must be release: no money waits with this case");
            }
        }
        if store::cases::close(&mut tx, case.case_id, closing, now).await? == Update::NotThere {
            return Err(Error::CaseClosed);
        }
        if is_paid_late {
            let amount = about.amount();
            if closing == Closing::Refund {
                let currency = amount.currency();
                let available =
                    store::postings::lock_available(&mut tx, about.merchant_id, currency).await?;
                if available.minor_units() < amount.minor_units() {
                    return Err(DisbursementRefusal::InsufficientBalance(available).into());
                }
            }
            let posting = ledger::paid_late(case.case_id, &about, closing)?;
            if store::postings::post(&mut tx, &posting, now).await? == Insert::AlreadyThere {
                return Err(Error::PostedBefore);
            }
        }
        let closed = store::cases::find(&mut tx, case.case_id).await?;
        tx.commit().await?;
        let (id, closing) = (case.case_id, closing.code());
        tracing::warn!(case.id = %id, closing, "an operator closed the case");
        closed.ok_or(Error::CaseNotFound)
    }

    /// Closes a case about what was paid late, and the case whose suspense that stands for: whatever
    /// was decided, nothing is left to post.
    async fn take_for_suspense(
        &self,
        mut tx: db::Tx,
        late: &Case,
        of_case: CaseId,
        now: Timestamp,
    ) -> Result<Case> {
        let known = Closing::OutcomeKnown;
        for (case_id, closing) in [(late.case_id, known), (of_case, Closing::Refund)] {
            if store::cases::close(&mut tx, case_id, closing, now).await? == Update::NotThere {
                return Err(Error::CaseClosed);
            }
        }
        let closed = store::cases::find(&mut tx, late.case_id).await?;
        tx.commit().await?;
        tracing::warn!(case.id = %late.case_id, of_case.id = %of_case, "an operator closed the cases");
        closed.ok_or(Error::CaseNotFound)
    }
}
