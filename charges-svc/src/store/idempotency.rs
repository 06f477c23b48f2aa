//! The keys of CreateCharge, this service's only operation that takes them (the API's alias and v1
//! are the same operation), and the answers to their first requests.

use chassis::{clock::Timestamp, ids::ChargeId};
use db::{Conn, Insert, Result, Tx, Update, idempotency::Keys};
use sqlx::FromRow;

use crate::charge::Status;

pub use db::idempotency::Key;

pub const KEYS: Keys = db::idempotency_keys! {
    operation: "operation" = "create_charge",
    subject: "transaction_id",
    own: "started_at" = "$5",
    read: "fingerprint, transaction_id, started_at, answer_status, answer_message",
    forget_at: "forget_at",
};

/// A used key.
#[derive(Clone, Debug, FromRow)]
pub struct Record {
    pub fingerprint: String,
    pub transaction_id: ChargeId,
    pub started_at: Timestamp,
    pub answer_status: Option<Status>,
    pub answer_message: Option<String>,
}

pub async fn take(tx: &mut Tx, key: &Key, id: ChargeId, now: Timestamp) -> Result<Insert> {
    KEYS.take(tx, key, id).bind(now).insert().await
}

pub async fn find(conn: &mut Conn, key: &Key) -> Result<Option<Record>> {
    KEYS.find(conn, key).await
}

/// Stores an answer. The first one stays. Returns [`Update::NotThere`] if there is one already or
/// the key is free again.
pub async fn answer(tx: &mut Tx, id: ChargeId, status: Status, message: &str) -> Result<Update> {
    tx.sql(
        "update idempotency_keys set answer_status = $2, answer_message = $3
         where transaction_id = $1 and answer_status is null",
    )
    .bind(id)
    .bind(status)
    .bind(message)
    .update()
    .await
}

/// Whether somebody was answered. Nobody can be until the transaction ends.
pub async fn lock_answered(tx: &mut Tx, id: ChargeId) -> Result<bool> {
    let found: Option<(Option<Status>,)> = tx
        .sql("select answer_status from idempotency_keys where transaction_id = $1 for update")
        .bind(id)
        .optional()
        .await?;
    Ok(found.is_some_and(|(answer,)| answer.is_some()))
}
