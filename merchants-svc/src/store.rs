//! All of this service's SQL.

pub mod activities;
pub mod businesses;
pub mod keys;
pub mod links;
pub mod logins;
pub mod mails;
pub mod notices;
pub mod people;
pub mod tries;

use chassis::{
    clock::Timestamp,
    ids::{KeyId, MerchantId},
};
use db::{Db, Result, Tx};
use uuid::Uuid;

use crate::merchant::{ApiKeyRecord, KeyHolder, Merchant};

/// How many old rows of a table are deleted at once.
const FORGOTTEN: i64 = 10_000;

/// Most keys listed at once; nobody has more in use.
const KEYS_LISTED: i64 = 1_000;

/// Most merchants listed at once.
const MERCHANTS_LISTED: i64 = 100;

pub async fn insert_merchant(tx: &mut Tx, merchant: &Merchant) -> Result<()> {
    tx.sql(
        "insert into merchants
             (merchant_id, name, email, email_verified, kyc_status, accepting_payments, created_at)
         values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(merchant.merchant_id)
    .bind(merchant.name.clone())
    .bind(merchant.email.clone())
    .bind(merchant.email_verified)
    .bind(merchant.kyc_status)
    .bind(merchant.accepting_payments)
    .bind(merchant.created_at)
    .run()
    .await
}

pub async fn find_merchant(db: &Db, id: MerchantId) -> Result<Option<Merchant>> {
    db.read()
        .await?
        .sql(
            "select merchant_id, name, email, email_verified, kyc_status, accepting_payments,
                    created_at
             from merchants where merchant_id = $1",
        )
        .bind(id)
        .optional()
        .await
}

/// The merchants whose ids follow this one, in their order, at most `MERCHANTS_LISTED`.
pub async fn list_merchants(db: &Db, after: Option<MerchantId>) -> Result<Vec<Merchant>> {
    db.read()
        .await?
        .sql(
            "select merchant_id, name, email, email_verified, kyc_status, accepting_payments,
                    created_at
             from merchants where merchant_id > $1 order by merchant_id limit $2",
        )
        .bind(after.unwrap_or(MerchantId::from(Uuid::nil())))
        .bind(MERCHANTS_LISTED)
        .all()
        .await
}

/// The merchant of a key that is not revoked, and which key it is.
pub async fn find_key_holder(db: &Db, key_sha256: &str) -> Result<Option<KeyHolder>> {
    db.read()
        .await?
        .sql(
            "select k.key_id, k.label, k.hint, m.merchant_id, m.name, m.email, m.email_verified, m.kyc_status,
                    m.accepting_payments, m.created_at
             from api_keys k join merchants m on m.merchant_id = k.merchant_id
             where k.key_sha256 = $1 and k.revoked_at is null",
        )
        .bind(key_sha256.to_owned())
        .optional()
        .await
}

/// Locks the merchant until the transaction ends.
pub async fn lock_merchant(tx: &mut Tx, id: MerchantId) -> Result<Option<Merchant>> {
    tx.sql(
        "select merchant_id, name, email, email_verified, kyc_status, accepting_payments,
                created_at
         from merchants where merchant_id = $1 for update",
    )
    .bind(id)
    .optional()
    .await
}

/// Locks the merchant, lets `change` alter it, and writes it back. `None` if there is no such
/// merchant.
pub async fn update_merchant(
    db: &Db,
    id: MerchantId,
    change: impl FnOnce(&mut Merchant),
) -> Result<Option<Merchant>> {
    let mut tx = db.begin().await?;
    let Some(mut merchant) = lock_merchant(&mut tx, id).await? else {
        return Ok(None);
    };
    change(&mut merchant);
    tx.sql(
        "update merchants set email_verified = $2, kyc_status = $3, accepting_payments = $4
         where merchant_id = $1",
    )
    .bind(id)
    .bind(merchant.email_verified)
    .bind(merchant.kyc_status)
    .bind(merchant.accepting_payments)
    .run()
    .await?;
    tx.commit().await?;
    Ok(Some(merchant))
}

pub async fn insert_key(db: &Db, key: &ApiKeyRecord, key_sha256: &str) -> Result<()> {
    let mut tx = db.begin().await?;
    tx.sql(
        "insert into api_keys (key_id, merchant_id, key_sha256, label, hint, created_at)
         values ($1, $2, $3, $4, $5, $6)",
    )
    .bind(key.key_id)
    .bind(key.merchant_id)
    .bind(key_sha256.to_owned())
    .bind(key.label.clone())
    .bind(key.hint.clone())
    .bind(key.created_at)
    .run()
    .await?;
    tx.commit().await
}

/// Sets the revocation time unless it is already set, and returns the key. `None` if there is no
/// such key.
pub async fn revoke_key(db: &Db, id: KeyId, now: Timestamp) -> Result<Option<ApiKeyRecord>> {
    let mut tx = db.begin().await?;
    let key = tx
        .sql(
            "update api_keys set revoked_at = coalesce(revoked_at, $2) where key_id = $1
             returning key_id, merchant_id, label, hint, created_at, revoked_at",
        )
        .bind(id)
        .bind(now)
        .optional()
        .await?;
    tx.commit().await?;
    Ok(key)
}

/// A merchant's keys, newest first, at most `KEYS_LISTED`.
pub async fn list_keys(db: &Db, merchant: MerchantId) -> Result<Vec<ApiKeyRecord>> {
    db.read()
        .await?
        .sql(
            "select key_id, merchant_id, label, hint, created_at, revoked_at
             from api_keys where merchant_id = $1 order by key_id desc limit $2",
        )
        .bind(merchant)
        .bind(KEYS_LISTED)
        .all()
        .await
}

/// Deletes logins and links that were over before this time, and tries that are over now. Returns
/// whether those were all.
pub async fn forget(db: &Db, before: Timestamp, now: Timestamp) -> Result<bool> {
    let mut conn = db.write().await?;
    let logins = conn
        .sql(
            "delete from logins where login_id = any(array(
                 select login_id from logins where last_seen_at < $1 limit $2
             ))",
        )
        .bind(before)
        .bind(FORGOTTEN)
        .rows_affected()
        .await?;
    let links = conn
        .sql(
            "delete from links where token_sha256 = any(array(
                 select token_sha256 from links where expires_at < $1 limit $2
             ))",
        )
        .bind(before)
        .bind(FORGOTTEN)
        .rows_affected()
        .await?;
    let tries = conn
        .sql(
            "delete from tries where ends_at <= (
                 select max(ends_at) from (
                     select ends_at from tries where ends_at < $1 order by ends_at limit $2
                 ) oldest
             )",
        )
        .bind(now)
        .bind(FORGOTTEN)
        .rows_affected()
        .await?;
    let most = FORGOTTEN.unsigned_abs();
    Ok([logins, links, tries].iter().all(|deleted| *deleted < most))
}
