//! A merchant's own keys.

use chassis::{
    api_key::ApiKey,
    ids::{KeyId, MerchantId, PersonId},
    page::PageRequest,
};
use db::{Insert, Page};
use uuid::Uuid;

use super::{Service, new_secret};
use crate::{
    activity::{Action, Deed, Origin},
    error::Error,
    merchant::{ApiKeyRecord, NewKey, OwnKey},
    store,
};

/// How many keys of a merchant may be live when it makes another: more than it can keep apart.
const LIVE_KEYS_MAX: i64 = 10;

/// What a person asks for who makes a key.
#[derive(Clone, Debug)]
pub struct KeyForm {
    pub label: String,
    /// Of the form that was sent: it makes one key.
    pub nonce: Uuid,
}

impl Service {
    pub async fn list_own_keys(
        &self,
        merchant_id: MerchantId,
        page: PageRequest<Uuid>,
    ) -> Result<Page<OwnKey, Uuid>, Error> {
        let merchant = self.get_merchant(merchant_id).await?;
        let mut conn = self.db.read().await?;
        Ok(store::keys::list(&mut conn, merchant.merchant_id, page).await?)
    }

    pub async fn get_own_key(
        &self,
        merchant_id: MerchantId,
        key_id: KeyId,
    ) -> Result<OwnKey, Error> {
        let mut conn = self.db.read().await?;
        let found = store::keys::find(&mut conn, merchant_id, key_id).await?;
        found.ok_or(Error::KeyNotFound)
    }

    /// Makes a key for a person of the merchant. Its secret exists only in the answer.
    pub async fn create_own_key(
        &self,
        merchant_id: MerchantId,
        person_id: PersonId,
        form: KeyForm,
        origin: Origin,
    ) -> Result<(OwnKey, ApiKey), Error> {
        let now = self.clock.now();
        let secret = new_secret(self.mode);
        let record = ApiKeyRecord {
            key_id: KeyId::new(),
            merchant_id,
            label: form.label,
            hint: secret.hint().to_owned(),
            created_at: now,
            revoked_at: None,
        };
        let key = NewKey {
            record,
            sha256: hex::encode(secret.sha256()),
        };
        let mut tx = self.db.begin().await?;
        // Also so that the keys are counted one after the other.
        let merchant = self.lock_own(&mut tx, merchant_id, person_id).await?;
        if !merchant.email_verified {
            return Err(Error::EmailNotVerified);
        }
        let live = store::keys::count_live(&mut tx, merchant_id).await?;
        if store::keys::insert(&mut tx, &key, person_id, form.nonce).await? == Insert::AlreadyThere
        {
            return Err(Error::FormUsed);
        }
        if live >= LIVE_KEYS_MAX {
            return Err(Error::TooManyKeys);
        }
        let deed = Deed {
            merchant_id,
            person_id,
            action: Action::KeyCreated,
            object: key.record.shown(),
            origin,
            at: now,
        };
        store::activities::note(&mut tx, &deed).await?;
        let made = store::keys::find(&mut tx, merchant_id, key.record.key_id).await?;
        let made = made.ok_or(Error::KeyNotFound)?;
        tx.commit().await?;
        tracing::info!(merchant.id = %merchant_id, key.id = %made.record.key_id, "API key created");
        Ok((made, secret))
    }

    /// Revokes one of the merchant's keys.
    pub async fn revoke_own_key(
        &self,
        merchant_id: MerchantId,
        person_id: PersonId,
        key_id: KeyId,
        origin: Origin,
    ) -> Result<OwnKey, Error> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        self.lock_own(&mut tx, merchant_id, person_id).await?;
        let found = store::keys::find(&mut tx, merchant_id, key_id).await?;
        let mut key = found.ok_or(Error::KeyNotFound)?;
        if key.record.revoked_at.is_some() {
            return Ok(key);
        }
        store::keys::revoke(&mut tx, merchant_id, key_id, now).await?;
        key.record.revoked_at = Some(now);
        let deed = Deed {
            merchant_id,
            person_id,
            action: Action::KeyRevoked,
            object: key.record.shown(),
            origin,
            at: now,
        };
        store::activities::note(&mut tx, &deed).await?;
        tx.commit().await?;
        tracing::info!(merchant.id = %merchant_id, key.id = %key_id, "API key revoked");
        Ok(key)
    }
}
