//! Payouts: what a merchant has collected goes to its payout account.
//!
//! Promise: a merchant's payouts go to the account that it, or an operator, confirmed, and none
//! while a change of it is held.

use chassis::{
    clock::Timestamp,
    ids::{DisbursementId, MerchantId},
    money::Money,
};
use db::{
    Tx,
    idempotency::{IdempotencyKey, fingerprint},
};

use crate::{
    asked_by::AskedBy,
    disbursement::{Disbursement, DisbursementRefusal},
    error::{Error, Result},
    payout_account::PayoutAccount,
    reserve::DisbursementReply,
    service::Service,
    store::{self, idempotency::PAYOUT_KEYS},
};

/// What whoever asks for a payout was shown before.
#[derive(Clone, Copy, Debug)]
pub struct SeenTerms {
    pub fee: Money,
    pub account_updated_at: Timestamp,
}

impl Service {
    /// Records a payout that a merchant asks for, if the terms are those that were seen.
    pub async fn create_payout(
        &self,
        merchant_id: MerchantId,
        amount: Money,
        key: String,
        asked_by: AskedBy,
        seen: Option<SeenTerms>,
    ) -> Result<DisbursementReply> {
        let now = self.clock.now();
        let parts = [
            amount.minor_units().to_string(),
            amount.currency().code().to_owned(),
        ];
        let key = IdempotencyKey {
            merchant_id,
            key,
            fingerprint: fingerprint(parts.iter().map(Some)),
        };
        let mut tx = self.db.begin().await?;
        let id = DisbursementId::new();
        if let Some(reply) = self
            .replay_disbursement(&mut tx, &PAYOUT_KEYS, &key, id, now)
            .await?
        {
            return Ok(reply);
        }
        let made = self.reserve_payout(&mut tx, (merchant_id, amount), seen, (id, asked_by), now);
        let made = made.await;
        self.answer_first(tx, (merchant_id, id), made, now).await
    }

    async fn reserve_payout(
        &self,
        tx: &mut Tx,
        (merchant_id, amount): (MerchantId, Money),
        seen: Option<SeenTerms>,
        (id, asked_by): (DisbursementId, AskedBy),
        now: Timestamp,
    ) -> Result<Disbursement> {
        let minimum = self.settings.payout_minimum;
        if amount.minor_units() < minimum.minor_units() {
            return Err(Error::Invalid {
                field: "amount",
                message: format!("must be at least {}", minimum.to_major()).into(),
            });
        }
        let account = store::payout_accounts::find_shared(tx, merchant_id).await?;
        // Enabled for who sets its own account, by configuration; otherwise by an operator.
        let account = account.filter(|account| account.payouts_on_request);
        let account = account.ok_or(DisbursementRefusal::PayoutsNotEnabled)?;
        if account.held_until > now {
            return Err(DisbursementRefusal::PayoutAccountOnHold(account.held_until).into());
        }
        let mut payout = self.payout_to(&account, amount, false, now)?;
        payout.disbursement_id = id;
        payout.asked_by = asked_by;
        let is_as_seen = seen.is_none_or(|seen| {
            seen.account_updated_at == account.updated_at && seen.fee == payout.fee()
        });
        if !is_as_seen {
            return Err(DisbursementRefusal::PayoutTermsChanged.into());
        }
        self.reserve(tx, &payout).await?;
        Ok(payout)
    }

    /// What a payout asked for now costs the merchant. `None` if it has no payout account that this
    /// version can pay to.
    pub async fn get_payout_fee(&self, merchant_id: MerchantId) -> Result<Option<Money>> {
        let mut conn = self.db.read().await?;
        let account = store::payout_accounts::find_known(&mut conn, merchant_id).await?;
        Ok(account.and_then(|account| self.payout_fee(&account).ok()))
    }

    /// What a merchant pays for a payout to this account.
    pub fn payout_fee(&self, account: &PayoutAccount) -> Result<Money> {
        let rail = self.rail_to(&account.destination)?;
        Ok(self.settings.payout_fees.of(rail, &account.destination))
    }

    /// A payout to this account, not recorded yet.
    pub fn payout_to(
        &self,
        account: &PayoutAccount,
        amount: Money,
        scheduled: bool,
        now: Timestamp,
    ) -> Result<Disbursement> {
        let destination = account.destination.clone();
        let rail = self.rail_to(&destination)?;
        let fee = self.settings.payout_fees.of(rail, &destination);
        let merchant_id = account.merchant_id;
        let payout = Disbursement::payout(merchant_id, amount, destination, rail, scheduled, now);
        Ok(payout.with_fee(fee))
    }
}
