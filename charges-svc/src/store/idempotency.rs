//! Idempotency keys: what a caller's key stands for, and what was answered.

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, MerchantId},
};
use db::{Conn, Result, Tx};
use sqlx::FromRow;

use crate::charge::Status;

/// The one operation of this service that takes keys; the alias and v1 of the API are one.
const CREATE_CHARGE: &str = "create_charge";

/// Whose key it is.
#[derive(Clone, Debug)]
pub struct Key {
    pub merchant_id: MerchantId,
    pub key: String,
    /// SHA-256 of the request, in hex.
    pub fingerprint: String,
}

/// A key that was used.
#[derive(Clone, Debug, FromRow)]
pub struct Record {
    pub fingerprint: String,
    pub transaction_id: ChargeId,
    pub started_at: Timestamp,
    pub answer_status: Option<Status>,
    pub answer_message: Option<String>,
}

/// Takes a key for a charge. False: it was used before.
pub async fn take(tx: &mut Tx, key: &Key, id: ChargeId, now: Timestamp) -> Result<bool> {
    let taken = tx
        .sql(
            "insert into idempotency_keys
                 (merchant_id, operation, key, fingerprint, transaction_id, started_at)
             values ($1, $2, $3, $4, $5, $6)
             on conflict (merchant_id, operation, key) do nothing",
        )
        .bind(key.merchant_id)
        .bind(CREATE_CHARGE)
        .bind(&key.key)
        .bind(&key.fingerprint)
        .bind(id)
        .bind(now)
        .run()
        .await?;
    Ok(taken == 1)
}

pub async fn find(conn: &mut Conn, key: &Key) -> Result<Option<Record>> {
    conn.sql(
        "select fingerprint, transaction_id, started_at, answer_status, answer_message
         from idempotency_keys
         where merchant_id = $1 and operation = $2 and key = $3",
    )
    .bind(key.merchant_id)
    .bind(CREATE_CHARGE)
    .bind(&key.key)
    .optional()
    .await
}

/// Keeps what is answered. The first answer stays. False: there is one, or the key is free again.
pub async fn answer(tx: &mut Tx, id: ChargeId, status: Status, message: &str) -> Result<bool> {
    let kept = tx
        .sql(
            "update idempotency_keys set answer_status = $2, answer_message = $3
             where transaction_id = $1 and answer_status is null",
        )
        .bind(id)
        .bind(status)
        .bind(message)
        .run()
        .await?;
    Ok(kept == 1)
}

/// Whether somebody was answered. Nobody is until the transaction ends.
pub async fn lock_answered(tx: &mut Tx, id: ChargeId) -> Result<bool> {
    let found: Option<(Option<Status>,)> = tx
        .sql("select answer_status from idempotency_keys where transaction_id = $1 for update")
        .bind(id)
        .optional()
        .await?;
    Ok(found.is_some_and(|(answer,)| answer.is_some()))
}

/// Frees a key: nothing was started under it.
pub async fn free(tx: &mut Tx, id: ChargeId) -> Result<()> {
    tx.sql("delete from idempotency_keys where transaction_id = $1")
        .bind(id)
        .run()
        .await?;
    Ok(())
}

/// The charge has ended: its key is kept until `forget_at`.
pub async fn forget_later(tx: &mut Tx, id: ChargeId, forget_at: Timestamp) -> Result<()> {
    tx.sql("update idempotency_keys set forget_at = $2 where transaction_id = $1")
        .bind(id)
        .bind(forget_at)
        .run()
        .await?;
    Ok(())
}

/// Removes keys whose time is over, at most `limit`. Returns how many.
pub async fn sweep(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<u64> {
    tx.sql(
        "delete from idempotency_keys where transaction_id in (
             select transaction_id from idempotency_keys
             where forget_at <= $1 order by forget_at limit $2
         )",
    )
    .bind(now)
    .bind(limit)
    .run()
    .await
}
