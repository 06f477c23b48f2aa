//! SQL of the feed: numbering events, and reading them by number.

use std::collections::BTreeMap;

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EventId, MerchantId},
};
use db::{Conn, Db, Result, Tx};
use sqlx::FromRow;

use super::first_of_all;
use crate::{
    delivery::{Delivery, Status},
    event::FeedEvent,
};

/// How many events one transaction numbers.
const NUMBERED_AT_ONCE: i64 = 500;

/// What a transaction numbered.
#[derive(Debug)]
pub struct Numbered {
    /// The last number of each merchant.
    pub last: BTreeMap<MerchantId, i64>,
    /// There may be more.
    pub is_partial: bool,
}

#[derive(FromRow)]
struct Counter {
    merchant_id: MerchantId,
    last: i64,
}

#[derive(FromRow)]
struct Unnumbered {
    event_id: EventId,
    merchant_id: MerchantId,
}

pub async fn has_unnumbered(conn: &mut Conn) -> Result<bool> {
    let first: Option<(String,)> = conn
        .sql("select event_id from events where sequence is null limit 1")
        .optional()
        .await?;
    Ok(first.is_some())
}

/// Numbers a set of events, the oldest first.
///
/// A merchant's numbers are given out under its counter's lock, which ends with the commit: a number
/// is visible only once all before it are.
pub async fn number(db: &Db) -> Result<Numbered> {
    let mut tx = db.begin().await?;
    let found: Vec<(MerchantId,)> = tx
        .sql(
            "select distinct merchant_id from (
                 select merchant_id from events where sequence is null
                 order by created_at, event_id limit $1
             ) oldest order by merchant_id",
        )
        .bind(NUMBERED_AT_ONCE)
        .all()
        .await?;
    let merchants: Vec<MerchantId> = found.into_iter().map(|(id,)| id).collect();
    let mut last = lock_counters(&mut tx, &merchants).await?;
    // Only now: others may have numbered some of them before the locks.
    let events: Vec<Unnumbered> = tx
        .sql(
            "select event_id, merchant_id from events where sequence is null
             order by created_at, event_id limit $1",
        )
        .bind(NUMBERED_AT_ONCE)
        .all()
        .await?;
    let is_partial = i64::try_from(events.len()).is_ok_and(|found| found >= NUMBERED_AT_ONCE);
    let mut numbers = Vec::with_capacity(events.len());
    for event in events {
        // Of a merchant that came just now, the next set takes it.
        if let Some(last) = last.get_mut(&event.merchant_id) {
            *last += 1;
            numbers.push((event.event_id, *last));
        }
    }
    tx.joint()
        .sql_set(
            "given (event_id text, sequence bigint)
             update events set sequence = given.sequence from given
             where events.event_id = given.event_id",
            numbers.len(),
        )
        .column(numbers.iter().map(|(event_id, _)| event_id.clone()))
        .column(numbers.iter().map(|(_, sequence)| *sequence))
        .sql_set(
            "given (merchant_id uuid, last bigint)
             update event_counters set last = given.last from given
             where event_counters.merchant_id = given.merchant_id",
            last.len(),
        )
        .column(last.keys().copied())
        .column(last.values().copied())
        .run()
        .await?;
    tx.commit().await?;
    Ok(Numbered { last, is_partial })
}

/// The counters of these merchants, locked, in the order of their ids in which everybody locks them.
async fn lock_counters(tx: &mut Tx, merchants: &[MerchantId]) -> Result<BTreeMap<MerchantId, i64>> {
    tx.sql_set(
        "given (merchant_id uuid)
         insert into event_counters (merchant_id, last)
         select merchant_id, 0 from given order by merchant_id
         on conflict (merchant_id) do nothing",
        merchants.len(),
    )
    .column(merchants.iter().copied())
    .run()
    .await?;
    let counters: Vec<Counter> = tx
        .sql_set(
            "given (merchant_id uuid)
             select merchant_id, last from event_counters
             where merchant_id in (select merchant_id from given)
             order by merchant_id for no key update",
            merchants.len(),
        )
        .column(merchants.iter().copied())
        .all()
        .await?;
    let counters = counters.into_iter();
    Ok(counters.map(|row| (row.merchant_id, row.last)).collect())
}

/// The last numbers of these merchants.
pub async fn last_numbers(
    conn: &mut Conn,
    merchants: &[MerchantId],
) -> Result<BTreeMap<MerchantId, i64>> {
    let counters: Vec<Counter> = conn
        .sql_set(
            "given (merchant_id uuid)
             select merchant_id, last from event_counters
             where merchant_id in (select merchant_id from given)",
            merchants.len(),
        )
        .column(merchants.iter().copied())
        .all()
        .await?;
    let counters = counters.into_iter();
    Ok(counters.map(|row| (row.merchant_id, row.last)).collect())
}

/// Up to `limit` events with numbers above `after`, in their order.
pub async fn list(
    conn: &mut Conn,
    merchant_id: MerchantId,
    after: i64,
    limit: u32,
) -> Result<Vec<FeedEvent>> {
    conn.sql(
        "select sequence, event_id, body from events
         where merchant_id = $1 and sequence > $2 order by sequence limit $3",
    )
    .bind(merchant_id)
    .bind(after)
    .bind(i64::from(limit))
    .all()
    .await
}

/// Whether this event is this merchant's.
pub async fn has_event(tx: &mut Tx, merchant_id: MerchantId, event_id: &EventId) -> Result<bool> {
    let found: Option<(String,)> = tx
        .sql("select event_id from events where event_id = $1 and merchant_id = $2")
        .bind(event_id.clone())
        .bind(merchant_id)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Requests one more attempt of the event's delivery, if it has one. See
/// [`super::ask_for_attempt`].
pub async fn ask_for_attempt(tx: &mut Tx, event_id: &EventId) -> Result<Option<Delivery>> {
    tx.sql(concat!(
        "update deliveries set manual_waiting = manual_waiting + 1, due_at = $2
         where event_id = $1 returning ",
        super::delivery_columns!()
    ))
    .bind(event_id.clone())
    .bind(first_of_all())
    .optional()
    .await
}

/// Creates the delivery of an event that has none, to its merchant's endpoint, due now.
pub async fn insert_delivery(
    tx: &mut Tx,
    event_id: &EventId,
    now: Timestamp,
) -> Result<Option<Delivery>> {
    tx.sql(concat!(
        "insert into deliveries
             (delivery_id, event_id, event_type, merchant_id, endpoint_id, status,
              attempts_count, failures, next_attempt_at, manual_waiting, manual_running, due_at,
              created_at)
         select $2, v.event_id, v.event_type, v.merchant_id, e.endpoint_id, $3,
                0, 0, $4, 0, $5, $4, $4
         from events v join endpoints e on e.merchant_id = v.merchant_id
         where v.event_id = $1
         returning ",
        super::delivery_columns!()
    ))
    .bind(event_id.clone())
    .bind(DeliveryId::new())
    .bind(Status::Pending)
    .bind(now)
    .bind(false)
    .optional()
    .await
}
