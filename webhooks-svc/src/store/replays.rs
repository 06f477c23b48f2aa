//! SQL of replays: exhausted deliveries that are sent once more.
//!
//! What a replay has queued carries its id until its attempt has ended. Queueing, counting and the
//! place up to which it has come are written together, so that a crash neither repeats nor loses one.

use std::collections::HashSet;

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, MerchantId},
};
use db::{Conn, Insert, Result, Tx, Update};
use sqlx::FromRow;
use uuid::Uuid;

use crate::{delivery::Status, replay::Replay};

/// How many replays of a merchant are listed.
const LISTED: i64 = 20;

macro_rules! replay_columns {
    () => {
        "replay_id, merchant_id, nonce, since, matched, queued_at, queued_id, queued, delivered,
         failed, due_at, created_at, finished_at"
    };
}

const COUNT: &str = "select count(*) as exhausted from (
    select delivery_id from deliveries
    where merchant_id = $1 and status = 'EXHAUSTED' and created_at >= $2 limit $3) counted";

/// How many of a merchant's deliveries are exhausted that were created from a time on, as far as
/// `limit`.
pub async fn count_exhausted(
    conn: &mut Conn,
    merchant_id: MerchantId,
    since: Timestamp,
    limit: i64,
) -> Result<i64> {
    let counted = conn.sql(COUNT).bind(merchant_id).bind(since).bind(limit);
    let (count,): (i64,) = counted.one().await?;
    Ok(count)
}

pub async fn insert(tx: &mut Tx, replay: &Replay) -> Result<Insert> {
    tx.sql(
        "insert into replays
             (replay_id, merchant_id, nonce, since, matched, queued_at, queued_id, queued,
              delivered, failed, due_at, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         on conflict do nothing",
    )
    .bind(replay.replay_id)
    .bind(replay.merchant_id)
    .bind(replay.nonce)
    .bind(replay.since)
    .bind(replay.matched)
    .bind(replay.queued_at)
    .bind(replay.queued_id.clone())
    .bind(replay.queued)
    .bind(replay.delivered)
    .bind(replay.failed)
    .bind(replay.due_at)
    .bind(replay.created_at)
    .insert()
    .await
}

pub async fn find(
    conn: &mut Conn,
    merchant_id: MerchantId,
    replay_id: Uuid,
) -> Result<Option<Replay>> {
    conn.sql(concat!(
        "select ",
        replay_columns!(),
        " from replays where replay_id = $1 and merchant_id = $2"
    ))
    .bind(replay_id)
    .bind(merchant_id)
    .optional()
    .await
}

pub async fn find_by_nonce(
    conn: &mut Conn,
    merchant_id: MerchantId,
    nonce: Uuid,
) -> Result<Option<Replay>> {
    conn.sql(concat!(
        "select ",
        replay_columns!(),
        " from replays where merchant_id = $1 and nonce = $2"
    ))
    .bind(merchant_id)
    .bind(nonce)
    .optional()
    .await
}

const LIST: &str = concat!(
    "select ",
    replay_columns!(),
    " from replays where merchant_id = $1 order by created_at desc, replay_id desc limit $2"
);

/// The newest first.
pub async fn list(conn: &mut Conn, merchant_id: MerchantId) -> Result<Vec<Replay>> {
    let listing = conn.sql(LIST).bind(merchant_id).bind(LISTED);
    listing.all().await
}

const NEXT_DUE: &str =
    "select due_at from replays where due_at is not null order by due_at limit $1";

pub async fn next_due(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let found: Option<(Timestamp,)> = conn.sql(NEXT_DUE).bind(1_i64).optional().await?;
    Ok(found.map(|(at,)| at))
}

/// A replay that is due, locked until the transaction ends. Nobody else's.
pub async fn lock_due(tx: &mut Tx, now: Timestamp) -> Result<Option<Replay>> {
    tx.sql(concat!(
        "select ",
        replay_columns!(),
        " from replays where due_at is not null and due_at <= $1
          order by due_at limit 1 for no key update skip locked"
    ))
    .bind(now)
    .optional()
    .await
}

/// Takes back those of a replay whose attempts have ended. Returns how they stand.
pub async fn take_ended(tx: &mut Tx, replay_id: Uuid) -> Result<Vec<Status>> {
    let ended: Vec<(DeliveryId, Status)> = tx
        .sql(
            "select delivery_id, status from deliveries
             where replay_id = $1 and manual_waiting = 0 and claim is null
             for update skip locked",
        )
        .bind(replay_id)
        .all()
        .await?;
    tx.sql_set(
        "given (wanted text)
         update deliveries set replay_id = null
         where delivery_id in (select wanted from given)",
        ended.len(),
    )
    .column(ended.iter().map(|(id, _)| id.clone()))
    .run()
    .await?;
    Ok(ended.into_iter().map(|(_, status)| status).collect())
}

/// How many of a replay are queued or running.
pub async fn count_unended(tx: &mut Tx, replay_id: Uuid) -> Result<i64> {
    let counted = tx.sql("select count(*) as unended from deliveries where replay_id = $1");
    let (count,): (i64,) = counted.bind(replay_id).one().await?;
    Ok(count)
}

/// A delivery to queue, and its place among those of its replay.
#[derive(Clone, Debug, FromRow)]
pub struct Next {
    pub delivery_id: DeliveryId,
    pub created_at: Timestamp,
}

const NEXT: &str = "select delivery_id, created_at from deliveries
    where merchant_id = $1 and status = 'EXHAUSTED'
        and (created_at, delivery_id) > ($2, $3) and created_at < $4
    order by created_at, delivery_id limit $5";

/// The next of a replay, the oldest first.
pub async fn list_next(tx: &mut Tx, replay: &Replay, limit: i64) -> Result<Vec<Next>> {
    tx.sql(NEXT)
        .bind(replay.merchant_id)
        .bind(replay.queued_at)
        .bind(replay.queued_id.clone())
        .bind(replay.created_at)
        .bind(limit)
        .all()
        .await
}

/// Locks those that are exhausted still and that nobody else has locked. Returns them in no certain
/// order.
pub async fn lock(tx: &mut Tx, next: &[Next]) -> Result<HashSet<DeliveryId>> {
    let locked: Vec<(DeliveryId,)> = tx
        .sql_set(
            "given (wanted text)
             select delivery_id from deliveries
             where delivery_id = any(array(select wanted from given)) and status = 'EXHAUSTED'
             for update skip locked",
            next.len(),
        )
        .column(next.iter().map(|next| next.delivery_id.clone()))
        .all()
        .await?;
    Ok(locked.into_iter().map(|(id,)| id).collect())
}

/// Requests an attempt of each, due one after the other from `now` on, behind what is due already.
pub async fn queue(tx: &mut Tx, replay_id: Uuid, next: &[Next], now: Timestamp) -> Result<()> {
    let due = std::iter::successors(Some(now), |at| Some(*at + super::ONE_MS));
    tx.sql_set(
        "given (wanted text, wanted_at timestamptz)
         update deliveries
         set replay_id = $1, due_at = given.wanted_at,
             manual_waiting = case when manual_waiting > 0 then manual_waiting else 1 end
         from given where delivery_id = given.wanted",
        next.len(),
    )
    .bind(replay_id)
    .column(next.iter().map(|next| next.delivery_id.clone()))
    .column(due.take(next.len()))
    .run()
    .await
}

/// Lets a merchant's replay go on now: its endpoint was switched on.
pub async fn wake(tx: &mut Tx, merchant_id: MerchantId, now: Timestamp) -> Result<()> {
    tx.sql("update replays set due_at = $2 where merchant_id = $1 and finished_at is null")
        .bind(merchant_id)
        .bind(now)
        .run()
        .await
}

/// Records how far a replay has come.
pub async fn update(tx: &mut Tx, replay: &Replay) -> Result<Update> {
    tx.sql(
        "update replays
         set queued_at = $2, queued_id = $3, queued = $4, delivered = $5, failed = $6, due_at = $7,
             finished_at = $8
         where replay_id = $1",
    )
    .bind(replay.replay_id)
    .bind(replay.queued_at)
    .bind(replay.queued_id.clone())
    .bind(replay.queued)
    .bind(replay.delivered)
    .bind(replay.failed)
    .bind(replay.due_at)
    .bind(replay.finished_at)
    .update()
    .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index, plan};

    use super::*;

    #[tokio::test]
    async fn what_is_exhausted_is_found_by_its_index() {
        let database = TestDb::new("webhooks-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, NEXT, "deliveries_exhausted").await;
        check_ordered_by_index(&db, LIST, "replays_newest").await;
        check_ordered_by_index(&db, NEXT_DUE, "replays_due").await;
        let plan = plan(&db, COUNT).await;
        assert!(plan.contains("deliveries_exhausted"), "{plan}");
        db.close().await;
    }
}
