//! Refunds: what was collected goes back to the wallet that paid, from the merchant's balance or,
//! if it never got there, from suspense.
//!
//! Promise: a charge's refunds never exceed what was collected for it, because each is recorded
//! under the lock of its charge. A case's suspense is sent back once, also if the rail pays a refund
//! of it that had failed.

use chassis::{
    clock::Timestamp,
    ids::{DisbursementId, MerchantId, Reference},
    money::Money,
};
use db::{
    Conn, Insert, Tx,
    idempotency::{IdempotencyKey, fingerprint},
};

use crate::{
    asked_by::AskedBy,
    case::Case,
    charge::{Charge, Facts, State},
    disbursement::{Disbursement, DisbursementRefusal},
    error::{Error, Result},
    reserve::DisbursementReply,
    service::Service,
    store::{self, idempotency::REFUND_KEYS},
};

/// Most refunds of one charge, without those that failed.
const REFUNDS_MAX: i64 = 10;

impl Service {
    /// Records a refund of a settled charge: of `amount`, or of all that is left.
    pub async fn create_refund(
        &self,
        merchant_id: MerchantId,
        reference: &Reference,
        amount: Option<Money>,
        key: String,
        asked_by: AskedBy,
    ) -> Result<DisbursementReply> {
        let now = self.clock.now();
        let minor = amount.map(|amount| amount.minor_units().to_string());
        let key = IdempotencyKey {
            merchant_id,
            key,
            fingerprint: fingerprint([Some(reference.to_string()), minor]),
        };
        let mut tx = self.db.begin().await?;
        let found = store::charges::find_by_reference(&mut tx, reference).await?;
        let found = found.filter(|charge| charge.facts.merchant_id == merchant_id);
        let id = found.ok_or(Error::ChargeNotFound)?.facts.transaction_id;
        let charge = self.lock(&mut tx, id).await?;
        let new_id = DisbursementId::new();
        if let Some(reply) = self
            .replay_disbursement(&mut tx, &REFUND_KEYS, &key, new_id, now)
            .await?
        {
            return Ok(reply);
        }
        let made = self.reserve_refund(&mut tx, &charge, amount, (new_id, asked_by), now);
        let made = made.await;
        self.answer_first(tx, (merchant_id, new_id), made, now)
            .await
    }

    async fn reserve_refund(
        &self,
        tx: &mut Tx,
        charge: &Charge,
        amount: Option<Money>,
        (id, asked_by): (DisbursementId, AskedBy),
        now: Timestamp,
    ) -> Result<Disbursement> {
        if charge.progress.state != State::Settled {
            return Err(DisbursementRefusal::ChargeNotSettled.into());
        }
        let (left, count) = refundable(tx, &charge.facts).await?;
        let amount = amount.unwrap_or(left);
        if amount.minor_units() > left.minor_units() || !amount.is_positive() {
            return Err(DisbursementRefusal::RefundExceedsCharge(left).into());
        }
        if amount != left {
            self.check_part(amount, count)?;
        }
        let rail = self.rails.for_provider(charge.facts.provider).name;
        let mut refund = Disbursement::refund(&charge.facts, None, amount, rail, now);
        refund.disbursement_id = id;
        refund.asked_by = asked_by;
        self.reserve(tx, &refund).await?;
        Ok(refund)
    }

    /// Records a refund of what a case of this locked charge holds in suspense. The case closes when
    /// the refund has arrived.
    pub async fn refund_suspense(
        &self,
        mut tx: Tx,
        charge: &Charge,
        case: Case,
        suspense: Money,
        now: Timestamp,
    ) -> Result<Case> {
        let id = case.case_id;
        if !store::cases::lock_open(&mut tx, id).await? {
            return Err(Error::CaseClosed);
        }
        // Also so that the insert does not wait for one that is just ending, which waits for the case.
        if store::disbursements::is_refunding(&mut tx, id).await? {
            return Err(Error::CaseBeingRefunded);
        }
        if store::cases::is_reversed(&mut tx, charge.facts.transaction_id).await? {
            return Err(Error::RefundAfterReversal);
        }
        if store::disbursements::find_paid_late(&mut tx, id)
            .await?
            .is_some()
        {
            return Err(Error::RefundPaidLate);
        }
        if suspense.currency() != charge.facts.amount().currency() {
            return Err(Error::Invalid {
                field: "action",
                message: "must be refunded: the wallet takes another currency".into(),
            });
        }
        let rail = self.rails.for_provider(charge.facts.provider).name;
        let refund = Disbursement::refund(&charge.facts, Some(id), suspense, rail, now);
        if store::disbursements::insert(&mut tx, &refund).await? == Insert::AlreadyThere {
            return Err(Error::CaseBeingRefunded);
        }
        let case = store::cases::find(&mut tx, id).await?;
        tx.commit().await?;
        self.announce_new(&refund);
        tracing::warn!(case.id = %id, refund.id = %refund.shown_id, "an operator refunds suspense");
        case.ok_or(Error::CaseNotFound)
    }

    /// Refuses a part that is too small, or one too many: the house bears what a rail takes for each
    /// transfer.
    fn check_part(&self, amount: Money, refunds: i64) -> Result<(), DisbursementRefusal> {
        let minimum = self.settings.refund_minimum;
        let message = if amount.minor_units() < minimum.minor_units() {
            format!(
                "must be at least {}, or all that is left",
                minimum.to_major()
            )
        } else if refunds + 1 >= REFUNDS_MAX {
            format!("must be all that is left, in the last of {REFUNDS_MAX} refunds of a charge")
        } else {
            return Ok(());
        };
        Err(DisbursementRefusal::PartOfCharge(message.into()))
    }
}

/// What was collected for a settled charge and is not refunded, nor on its way back, and how many
/// refunds it has had. Nothing is left if the rail took the payment back, or an operator took the
/// credit back. Stable while the charge is locked.
pub async fn refundable(conn: &mut Conn, charge: &Facts) -> Result<(Money, i64)> {
    let (id, collected) = (charge.transaction_id, charge.amount());
    let nothing = Money::new(0, collected.currency());
    if store::cases::is_reversed(conn, id).await?
        || store::postings::is_taken_back(conn, id).await?
    {
        return Ok((nothing, 0));
    }
    let refunds = store::disbursements::refunds(conn, id, collected.currency()).await?;
    let left = collected.minor_units() - refunds.sum.minor_units();
    Ok((Money::new(left.max(0), collected.currency()), refunds.count))
}
