//! Setting where a merchant's payouts go, by operators and by the merchant itself.
//!
//! Promises: no account is set whose holder neither the rail nor whoever sets it has confirmed. Of
//! settings at once, one is the first and each other a change of it. A change holds payouts, and
//! every account that was set is told to the merchant, whoever set it.

use std::time::Duration;

use chassis::{ids::MerchantId, page::PageRequest};
use db::{Insert, Page, Update};
use rails::HolderOutcome;
use uuid::Uuid;

use crate::{
    disbursement::{Destination, DisbursementRefusal},
    error::{Error, Result},
    payout_account::{
        AccountChange, HolderToConfirm, OwnOutcome, OwnSetting, PayoutAccount, is_same_name,
    },
    service::Service,
    store,
};

/// So that no two settings of an account have the same time, by which a form knows what it has
/// seen.
const TICK: Duration = Duration::from_millis(1);

impl Service {
    /// Sets where a merchant's payouts go. `is_confirmed`: the operator vouches for the holder,
    /// whatever the rail says.
    pub async fn set_payout_account(
        &self,
        merchant_id: MerchantId,
        destination: Destination,
        is_confirmed: bool,
    ) -> Result<PayoutAccount> {
        let told = match self.ask_holder(&destination).await? {
            HolderOutcome::Named(name) => Some(name),
            HolderOutcome::Active | HolderOutcome::NotThere | HolderOutcome::Unknown => None,
        };
        let ours = destination.holder_name.as_deref().unwrap_or_default();
        let is_known = told.as_deref().is_some_and(|told| is_same_name(ours, told));
        if !is_known && !is_confirmed {
            return Err(Error::HolderMismatch(told));
        }
        let set = self.write_account(merchant_id, destination, told, None);
        let account = set.await?;
        let to = &account.destination;
        tracing::warn!(merchant.id = %merchant_id, ?to, "an operator set a payout account");
        Ok(account)
    }

    /// The same by the merchant, which confirms exactly what the rail tells at this moment.
    pub async fn set_own_payout_account(
        &self,
        merchant_id: MerchantId,
        asked: OwnSetting,
    ) -> Result<OwnOutcome> {
        let told = match self.ask_holder(&asked.destination).await? {
            HolderOutcome::Named(name) => Some(name),
            HolderOutcome::Active | HolderOutcome::Unknown => None,
            HolderOutcome::NotThere => {
                return Err(Error::Invalid {
                    field: "account",
                    message: "is not known to the network".into(),
                });
            }
        };
        if asked.confirmed_name.as_deref() != Some(told.as_deref().unwrap_or_default()) {
            let destination = asked.destination;
            return Ok(OwnOutcome::ToConfirm(HolderToConfirm { destination, told }));
        }
        let destination = asked.destination.clone();
        let set = self.write_account(merchant_id, destination, told, Some(&asked));
        let account = set.await?;
        let to = &account.destination;
        tracing::info!(merchant.id = %merchant_id, ?to, "the merchant set its payout account");
        Ok(OwnOutcome::Set(account))
    }

    /// Whose account it is. A name has single blanks, so that a form brings it back as it was.
    async fn ask_holder(&self, destination: &Destination) -> Result<HolderOutcome> {
        let rail = self.rail_to(destination)?;
        let at_rail = destination.at_rail().ok_or(Error::Invalid {
            field: "account",
            message: "is not known to this version".into(),
        })?;
        let asked = self.rails.get(rail).holder(&at_rail).await;
        Ok(match asked.outcome {
            HolderOutcome::Named(name) => {
                let words: Vec<&str> = name.split_whitespace().collect();
                HolderOutcome::Named(words.join(" "))
            }
            other => other,
        })
    }

    /// `own`: what the merchant's person asked for; `None` if an operator sets it.
    async fn write_account(
        &self,
        merchant_id: MerchantId,
        destination: Destination,
        told: Option<String>,
        own: Option<&OwnSetting>,
    ) -> Result<PayoutAccount> {
        let now = self.clock.now();
        let first = PayoutAccount {
            merchant_id,
            destination,
            rail_holder_name: told,
            payouts_on_request: own.is_some() && self.settings.payouts_on_request_by_default,
            daily_settlement: false,
            held_until: match own {
                Some(_) => now + self.settings.first_payout_account_hold,
                // An operator knows whose account it is.
                None => now,
            },
            updated_at: now,
        };
        let mut tx = self.db.begin().await?;
        let before = match store::payout_accounts::insert(&mut tx, &first).await? {
            Insert::Inserted => None,
            Insert::AlreadyThere => {
                let before = store::payout_accounts::find_locked(&mut tx, merchant_id).await?;
                Some(before.ok_or(Error::NotAsBefore)?)
            }
        };
        let account = match &before {
            None => first,
            Some(before) if before.destination == first.destination => {
                let account = PayoutAccount {
                    rail_holder_name: first.rail_holder_name,
                    ..before.clone()
                };
                store::payout_accounts::update(&mut tx, &account).await?;
                tx.commit().await?;
                return Ok(account);
            }
            Some(before) => PayoutAccount {
                destination: first.destination,
                rail_holder_name: first.rail_holder_name,
                held_until: now + self.settings.payout_account_hold,
                updated_at: now.max(before.updated_at + TICK),
                ..before.clone()
            },
        };
        let seen = before.as_ref().map(|before| before.updated_at);
        if own.is_some_and(|own| own.seen != seen) {
            return Err(Error::FormUsed);
        }
        if before.is_some() {
            store::payout_accounts::update(&mut tx, &account).await?;
        }
        let change = AccountChange {
            notice_id: Uuid::now_v7(),
            merchant_id,
            created_at: account.updated_at,
            account_before: before.as_ref().map(PayoutAccount::masked),
            account_after: Some(account.masked()),
            held_until: Some(account.held_until),
            person_id: own.map(|own| own.person_id),
        };
        store::payout_accounts::note_change(&mut tx, &change).await?;
        tx.commit().await?;
        Ok(account)
    }

    pub async fn get_payout_account(&self, merchant_id: MerchantId) -> Result<PayoutAccount> {
        let mut conn = self.db.read().await?;
        let found = store::payout_accounts::find(&mut conn, merchant_id).await?;
        found.ok_or(Error::PayoutAccountNotFound)
    }

    /// Sets the switches that are given. Stopping payouts on request stops the daily settlement, too,
    /// which the merchant may have switched on, unless both are given.
    pub async fn switch_payouts(
        &self,
        merchant_id: MerchantId,
        payouts_on_request: Option<bool>,
        daily_settlement: Option<bool>,
    ) -> Result<PayoutAccount> {
        let stopped = (payouts_on_request == Some(false)).then_some(false);
        let daily_settlement = daily_settlement.or(stopped);
        let mut tx = self.db.begin().await?;
        let switched = store::payout_accounts::switch(
            &mut tx,
            merchant_id,
            payouts_on_request,
            daily_settlement,
        );
        if switched.await? == Update::NotThere {
            return Err(Error::PayoutAccountNotFound);
        }
        tx.commit().await?;
        self.get_payout_account(merchant_id).await
    }

    /// Switches a merchant's daily settlement as it wants; on only where it may ask for payouts, too,
    /// so that an operator who stops those stops both.
    pub async fn switch_daily_settlement(
        &self,
        merchant_id: MerchantId,
        is_on: bool,
    ) -> Result<PayoutAccount> {
        let mut tx = self.db.begin().await?;
        let account = store::payout_accounts::find_locked(&mut tx, merchant_id).await?;
        let account = account.ok_or(Error::PayoutAccountNotFound)?;
        if is_on && !account.payouts_on_request {
            return Err(DisbursementRefusal::PayoutsNotEnabled.into());
        }
        let switched = store::payout_accounts::switch(&mut tx, merchant_id, None, Some(is_on));
        if switched.await? == Update::NotThere {
            return Err(Error::NotAsBefore);
        }
        tx.commit().await?;
        Ok(PayoutAccount {
            daily_settlement: is_on,
            ..account
        })
    }

    /// The accounts that were set for a merchant, newest first.
    pub async fn list_account_changes(
        &self,
        merchant_id: MerchantId,
        page: PageRequest<Uuid>,
    ) -> Result<Page<AccountChange, Uuid>> {
        let mut conn = self.db.read().await?;
        Ok(store::payout_accounts::list_changes(&mut conn, merchant_id, page).await?)
    }
}
