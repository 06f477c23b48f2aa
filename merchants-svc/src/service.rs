//! What merchants-svc does.

mod addresses;
mod businesses;
pub mod keys;
pub mod logins;
mod notices;
mod passwords;
pub mod people;
mod totp;

use chassis::{
    api_key::ApiKey,
    clock::{Alarm, Clock},
    config::Mode,
    ids::{KeyId, MerchantId, PersonId},
};
use db::{Db, Tx};

use crate::{
    error::Error,
    last_uses::LastUses,
    merchant::{ApiKeyRecord, Changes, KeyHolder, Merchant, NewMerchant},
    store,
};

/// Length of a SHA-256.
const DIGEST_BYTES: usize = 32;

#[derive(Clone, Debug)]
pub struct Service {
    pub db: Db,
    pub clock: Clock,
    /// Decides what kind of key is made.
    pub mode: Mode,
    pub last_uses: LastUses,
    /// Of what ends approvals.
    pub approvals: Alarm,
}

impl Service {
    /// The merchant behind the key with this SHA-256, and what it calls the key.
    pub async fn authenticate(&self, key_sha256: &[u8]) -> Result<KeyHolder, Error> {
        if key_sha256.len() != DIGEST_BYTES {
            return Err(Error::InvalidApiKey);
        }
        let holder = store::find_key_holder(&self.db, &hex::encode(key_sha256)).await?;
        let holder = holder.ok_or(Error::InvalidApiKey)?;
        self.last_uses.note(holder.key_id, self.clock.now());
        Ok(holder)
    }

    pub async fn create_merchant(&self, new: NewMerchant) -> Result<Merchant, Error> {
        let merchant = Merchant {
            merchant_id: MerchantId::new(),
            name: new.name,
            email: new.email,
            email_verified: new.email_verified,
            kyc_status: new.kyc_status,
            accepting_payments: new.accepting_payments,
            created_at: self.clock.now(),
        };
        let mut tx = self.db.begin().await?;
        store::insert_merchant(&mut tx, &merchant).await?;
        tx.commit().await?;
        tracing::info!(merchant.id = %merchant.merchant_id, "merchant created");
        Ok(merchant)
    }

    pub async fn get_merchant(&self, id: MerchantId) -> Result<Merchant, Error> {
        store::find_merchant(&self.db, id)
            .await?
            .ok_or(Error::MerchantNotFound)
    }

    /// The merchants that were made after this one, oldest first.
    pub async fn list_merchants(&self, after: Option<MerchantId>) -> Result<Vec<Merchant>, Error> {
        Ok(store::list_merchants(&self.db, after).await?)
    }

    /// Locks a merchant that the person belongs to until the transaction ends.
    async fn lock_own(
        &self,
        tx: &mut Tx,
        merchant_id: MerchantId,
        person_id: PersonId,
    ) -> Result<Merchant, Error> {
        let merchant = store::lock_merchant(tx, merchant_id).await?;
        let is_own = store::people::is_member(tx, person_id, merchant_id).await?;
        merchant.filter(|_| is_own).ok_or(Error::MerchantNotFound)
    }

    pub async fn update_merchant(
        &self,
        id: MerchantId,
        changes: Changes,
    ) -> Result<Merchant, Error> {
        let apply = |merchant: &mut Merchant| {
            merchant.email_verified = changes.email_verified.unwrap_or(merchant.email_verified);
            merchant.kyc_status = changes.kyc_status.unwrap_or(merchant.kyc_status);
            merchant.accepting_payments = changes
                .accepting_payments
                .unwrap_or(merchant.accepting_payments);
        };
        let merchant = store::update_merchant(&self.db, id, apply)
            .await?
            .ok_or(Error::MerchantNotFound)?;
        tracing::info!(merchant.id = %id, ?changes, "merchant changed");
        Ok(merchant)
    }

    /// Creates a key. Its secret exists only in the answer.
    pub async fn create_key(
        &self,
        merchant_id: MerchantId,
        label: String,
    ) -> Result<(ApiKeyRecord, ApiKey), Error> {
        let merchant = self.get_merchant(merchant_id).await?;
        let secret = new_secret(self.mode);
        let key = ApiKeyRecord {
            key_id: KeyId::new(),
            merchant_id: merchant.merchant_id,
            label,
            hint: secret.hint().to_owned(),
            created_at: self.clock.now(),
            revoked_at: None,
        };
        store::insert_key(&self.db, &key, &hex::encode(secret.sha256())).await?;
        tracing::info!(merchant.id = %merchant_id, key.id = %key.key_id, "API key created");
        Ok((key, secret))
    }

    pub async fn revoke_key(&self, id: KeyId) -> Result<ApiKeyRecord, Error> {
        let key = store::revoke_key(&self.db, id, self.clock.now())
            .await?
            .ok_or(Error::KeyNotFound)?;
        tracing::info!(merchant.id = %key.merchant_id, key.id = %id, "API key revoked");
        Ok(key)
    }

    pub async fn list_keys(&self, merchant_id: MerchantId) -> Result<Vec<ApiKeyRecord>, Error> {
        let merchant = self.get_merchant(merchant_id).await?;
        Ok(store::list_keys(&self.db, merchant.merchant_id).await?)
    }
}

/// Development makes test keys, so that production never takes one that was tried out somewhere.
fn new_secret(mode: Mode) -> ApiKey {
    match mode {
        Mode::Development => ApiKey::generate_test(),
        Mode::Production => ApiKey::generate(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_production_makes_live_keys() {
        assert!(new_secret(Mode::Development).is_test());
        assert!(!new_secret(Mode::Production).is_test());
    }
}
