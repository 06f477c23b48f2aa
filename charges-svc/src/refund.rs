//! Refunds: what was collected goes back to the wallet that paid.
//!
//! Promise: a charge's refunds never exceed what was collected for it, because each is recorded
//! under the lock of its charge.

use chassis::{
    ids::{DisbursementId, MerchantId, Reference},
    money::Money,
};
use db::idempotency::{IdempotencyKey, fingerprint};

use crate::{
    charge::{Charge, State},
    disbursement::Disbursement,
    error::{Error, Result},
    payout::DisbursementReply,
    service::Service,
    store::{self, idempotency::REFUND_KEYS},
};

impl Service {
    /// Records a refund of a settled charge: of `amount`, or of all that is left.
    pub async fn create_refund(
        &self,
        merchant_id: MerchantId,
        reference: &Reference,
        amount: Option<Money>,
        key: String,
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
        if charge.progress.state != State::Settled {
            return Err(Error::ChargeNotSettled);
        }
        let left = self.refundable(&mut tx, &charge).await?;
        let amount = amount.unwrap_or(left);
        if amount.minor_units() > left.minor_units() || !amount.is_positive() {
            return Err(Error::RefundExceedsCharge(left));
        }
        let rail = self.rails.for_provider(charge.facts.provider).name;
        let mut refund = Disbursement::refund(&charge.facts, None, amount, rail, now);
        refund.disbursement_id = new_id;
        self.reserve(&mut tx, &refund).await?;
        tx.commit().await?;
        self.announce_new(&refund);
        Ok(DisbursementReply {
            disbursement: refund,
            replayed: false,
        })
    }

    /// What was collected for a locked charge and is not refunded, nor on its way back. Nothing, if
    /// the rail took the payment back.
    async fn refundable(&self, tx: &mut db::Tx, charge: &Charge) -> Result<Money> {
        let collected = charge.facts.amount();
        let id = charge.facts.transaction_id;
        let nothing = Money::new(0, collected.currency());
        if store::cases::is_reversed(tx, id).await? {
            return Ok(nothing);
        }
        let refunded = store::disbursements::refunded(tx, id, collected.currency()).await?;
        let left = collected.minor_units() - refunded.minor_units();
        Ok(Money::new(left.max(0), collected.currency()))
    }
}
