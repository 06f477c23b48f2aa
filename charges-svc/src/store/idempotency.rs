//! The keys of CreateCharge (the API's alias and v1 are the same operation), and the answers to
//! their first requests; and the keys of disbursements, whose answers follow from their records or
//! are refusals.

use std::{collections::HashSet, sync::LazyLock};

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{ChargeId, DisbursementId, MerchantId},
};
use db::{
    Conn, Joint, Result, Tx, Update,
    idempotency::{Columns, IdempotencyKey, KEPT, Keys},
};
use sqlx::FromRow;

use crate::disbursement::DisbursementRefusal;

pub static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    Keys::new(Columns {
        operation: Some("create_charge"),
        subject: "transaction_id",
        taken_at: Some("started_at"),
        read: "transaction_id, started_at, answer_status, answer_message",
        forget_at: "forget_at",
    })
});

pub static PAYOUT_KEYS: LazyLock<Keys> = LazyLock::new(|| disbursement_keys("create_payout"));

pub static REFUND_KEYS: LazyLock<Keys> = LazyLock::new(|| disbursement_keys("create_refund"));

/// The column has its name from when only charges had keys.
fn disbursement_keys(operation: &'static str) -> Keys {
    Keys::new(Columns {
        operation: Some(operation),
        subject: "transaction_id",
        taken_at: Some("started_at"),
        read: "transaction_id, refusal",
        forget_at: "forget_at",
    })
}

/// The disbursement that a key stands for, or why there is none.
#[derive(Clone, Debug, FromRow)]
pub struct TakenKey {
    #[sqlx(rename = "transaction_id")]
    pub disbursement_id: DisbursementId,
    /// [`DisbursementRefusal::to_text`].
    pub refusal: Option<String>,
}

/// Stores that the request of this key was refused. The key is kept for as long as one whose
/// disbursement ends now. Returns [`Update::NotThere`] if nobody has taken it.
pub async fn refuse(
    tx: &mut Tx,
    id: DisbursementId,
    refusal: &DisbursementRefusal,
    now: Timestamp,
) -> Result<Update> {
    tx.sql("update idempotency_keys set refusal = $2, forget_at = $3 where transaction_id = $1")
        .bind(id)
        .bind(refusal.to_text())
        .bind(now + KEPT)
        .update()
        .await
}

/// The first request with a key, and its answer once there is one.
#[derive(Clone, Debug, FromRow)]
pub struct FirstRequest {
    pub transaction_id: ChargeId,
    pub started_at: Timestamp,
    pub answer_status: Option<ChargeStatus>,
    pub answer_message: Option<String>,
}

/// What a request is told, and each that repeats it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: ChargeStatus,
    pub message: String,
}

/// Whether each of these keys is taken.
pub async fn taken_set(conn: &mut Conn, keys: &[&IdempotencyKey]) -> Result<Vec<bool>> {
    let taken: Vec<(MerchantId, String)> = conn
        .sql_set(
            "given (merchant uuid, name text)
             select merchant_id, key from given
             join idempotency_keys on merchant_id = merchant and operation = 'create_charge'
                 and key = name",
            keys.len(),
        )
        .column(keys.iter().map(|key| key.merchant_id))
        .column(keys.iter().map(|key| key.key.as_str()))
        .all()
        .await?;
    let taken: HashSet<_> = taken.into_iter().collect();
    let is_taken = |key: &&IdempotencyKey| taken.contains(&(key.merchant_id, key.key.clone()));
    Ok(keys.iter().map(is_taken).collect())
}

/// Stores the answers to several charges' requests, of which the first stays, and when the keys of
/// those that have ended may be forgotten.
pub(super) fn answer_set<'c>(
    joint: Joint<'c>,
    keys: &[(ChargeId, Option<&Answer>, Option<Timestamp>)],
) -> Joint<'c> {
    joint
        .sql_set(
            "given (id uuid, status text, message text, over_at timestamptz)
             update idempotency_keys set
                 answer_status = coalesce(answer_status, given.status),
                 answer_message = case when answer_status is null then given.message
                     else answer_message end,
                 forget_at = coalesce(given.over_at, forget_at)
             from given
             where transaction_id = any(array(select id from given))
                 and transaction_id = given.id",
            keys.len(),
        )
        .column(keys.iter().map(|(id, _, _)| *id))
        .column(
            keys.iter()
                .map(|(_, answer, _)| answer.map(|answer| answer.status)),
        )
        .column(
            keys.iter()
                .map(|(_, answer, _)| answer.map(|answer| answer.message.as_str())),
        )
        .column(keys.iter().map(|(_, _, forget_at)| *forget_at))
}

/// Stores an answer. The first one stays. Returns [`Update::NotThere`] if there is one already or
/// the key is free again.
pub async fn answer(
    tx: &mut Tx,
    id: ChargeId,
    status: ChargeStatus,
    message: &str,
) -> Result<Update> {
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
    let found: Option<(Option<ChargeStatus>,)> = tx
        .sql("select answer_status from idempotency_keys where transaction_id = $1 for update")
        .bind(id)
        .optional()
        .await?;
    Ok(found.is_some_and(|(answer,)| answer.is_some()))
}
