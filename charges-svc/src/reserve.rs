//! What payouts and refunds share: each is recorded with what is reserved for it, once for its key.
//!
//! Promise: both happen together, under the lock of the merchant's balance, so payouts and refunds
//! never overdraw it. What was refused for what stood in its way stays refused under its key: the
//! same request may come once more, late, when its caller has long been told that nothing happened.

use chassis::{
    clock::Timestamp,
    ids::{DisbursementId, MerchantId},
};
use db::{
    Insert, Tx, Update,
    idempotency::{IdempotencyKey, KeyUse, Keys},
};

use crate::{
    disbursement::{Disbursement, DisbursementRefusal, Kind},
    error::{Error, Result},
    ledger,
    service::Service,
    store::{self, idempotency::TakenKey},
};

/// The answer to a request that creates a disbursement.
#[derive(Clone, Debug)]
pub struct DisbursementReply {
    pub disbursement: Disbursement,
    /// Whether this repeats the answer to an earlier request.
    pub replayed: bool,
}

impl Service {
    /// Takes the key for a new disbursement, or answers as the first request with it was answered.
    pub async fn replay_disbursement(
        &self,
        tx: &mut Tx,
        keys: &'static Keys,
        key: &IdempotencyKey,
        id: DisbursementId,
        now: Timestamp,
    ) -> Result<Option<DisbursementReply>> {
        let used: KeyUse<TakenKey> = keys
            .take(tx, key, id, now)
            .await
            .map_err(Error::of_contended_key)?;
        match used {
            KeyUse::First => Ok(None),
            KeyUse::Repeat(TakenKey {
                refusal: Some(refusal),
                ..
            }) => Err(Error::RefusedBefore(refusal.parse()?)),
            KeyUse::Repeat(first) => {
                let found = store::disbursements::find(tx, first.disbursement_id).await?;
                let disbursement = found.ok_or(Error::DisbursementNotFound)?.as_created();
                Ok(Some(DisbursementReply {
                    disbursement,
                    replayed: true,
                }))
            }
            KeyUse::Reuse => Err(Error::IdempotencyKeyReused),
            KeyUse::Freed => Err(Error::IdempotencyInProgress),
        }
    }

    /// Records a new disbursement with what is reserved for it, unless the merchant has not enough.
    pub async fn reserve(&self, tx: &mut Tx, new: &Disbursement) -> Result<()> {
        let wanted = new.reserved()?;
        let available =
            store::postings::lock_available(tx, new.merchant_id, wanted.currency()).await?;
        if available.minor_units() < wanted.minor_units() {
            return Err(DisbursementRefusal::InsufficientBalance(available).into());
        }
        if store::disbursements::insert(tx, new).await? == Insert::AlreadyThere {
            return Err(Error::NotAsBefore);
        }
        let posting = ledger::reserve(new)?;
        match store::postings::post(tx, &posting, new.created_at).await? {
            Insert::Inserted => Ok(()),
            Insert::AlreadyThere => Err(Error::PostedBefore),
        }
    }

    /// Ends the first request with a key: commits what it made, or why it was refused.
    pub async fn answer_first(
        &self,
        mut tx: Tx,
        (merchant_id, id): (MerchantId, DisbursementId),
        made: Result<Disbursement>,
        now: Timestamp,
    ) -> Result<DisbursementReply> {
        let made = match made {
            Err(Error::Refused(refusal)) => {
                let kept = store::idempotency::refuse(&mut tx, id, &refusal, now);
                if kept.await? == Update::NotThere {
                    return Err(Error::NotAsBefore);
                }
                tx.commit().await?;
                tracing::info!(merchant.id = %merchant_id, %refusal, "a request for money is refused");
                return Err(refusal.into());
            }
            made => made?,
        };
        tx.commit().await?;
        self.announce_new(&made);
        Ok(DisbursementReply {
            disbursement: made,
            replayed: false,
        })
    }

    /// After the commit: its rail is due to be called.
    pub fn announce_new(&self, new: &Disbursement) {
        let (kind, id, rail) = (new.kind.code(), &new.shown_id, &new.rail);
        tracing::info!(disbursement.id = %id, kind, rail, "a disbursement is recorded");
        self.disburse_alarms.ring_at(&new.rail, new.created_at);
    }

    /// A merchant's payout or refund.
    pub async fn get_disbursement(
        &self,
        merchant_id: MerchantId,
        kind: Kind,
        shown_id: &str,
    ) -> Result<Disbursement> {
        let mut conn = self.db.read().await?;
        let of = (merchant_id, kind);
        let found = store::disbursements::find_of_merchant(&mut conn, of, shown_id).await?;
        found.ok_or(Error::DisbursementNotFound)
    }
}
