//! SQL of a merchant's deliveries, newest first, one of them whole, and how its endpoint does.

use std::collections::BTreeMap;

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EventId, MerchantId},
    limits::LOOKED_AT_MAX,
    page::{PageRequest, Place, Span},
};
use db::{Conn, Page, Result, Tx};
use sqlx::FromRow;

use crate::{
    delivery::{Delivery, Status},
    event::EventType,
};

/// Deliveries that an endpoint's figures count. Each costs a look at its attempts, and a page waits.
const HEALTH_LOOKED_AT_MAX: i64 = 5_000;

chassis::closed_list! {
    /// How the newest attempt of a delivery that has ended was answered.
    pub enum AnswerClass: "an answer's class" {
        /// Not at all, or none has ended.
        None = "NONE",
        Http2xx = "2XX",
        Http3xx = "3XX",
        Http4xx = "4XX",
        Http5xx = "5XX",
    }
}

impl AnswerClass {
    /// The hundreds of its statuses.
    fn hundreds(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Http2xx => 2,
            Self::Http3xx => 3,
            Self::Http4xx => 4,
            Self::Http5xx => 5,
        }
    }
}

/// Which deliveries to list: those that have everything that is given.
#[derive(Clone, Debug)]
pub struct WantedDeliveries {
    pub merchant_id: MerchantId,
    pub event_type: Option<EventType>,
    pub status: Option<Status>,
    pub answer: Option<AnswerClass>,
}

impl WantedDeliveries {
    /// Whether there is something that no index finds among what may be many.
    pub fn is_searched(&self) -> bool {
        self.event_type.is_some()
            || self.answer.is_some()
            || self
                .status
                .is_some_and(|status| status != Status::Exhausted)
    }
}

/// A delivery, and how its newest attempt that has ended did.
#[derive(Clone, Debug, FromRow)]
pub struct ListedDelivery {
    #[sqlx(flatten)]
    pub delivery: Delivery,
    pub last_http_status: Option<i64>,
    pub last_succeeded: Option<bool>,
    pub last_cause: Option<String>,
}

/// Something of the newest attempt of a delivery `d` that has ended.
macro_rules! of_last_attempt {
    ($column:literal) => {
        concat!(
            "(select a.",
            $column,
            " from attempts a where a.delivery_id = d.delivery_id and a.finished_at is not null
              order by a.number desc limit 1)"
        )
    };
}

macro_rules! listed_columns {
    () => {
        concat!(
            "d.delivery_id, d.merchant_id, d.event_id, d.event_type, d.status, d.attempts_count,
             d.next_attempt_at, d.created_at, ",
            of_last_attempt!("http_status"),
            " as last_http_status, ",
            of_last_attempt!("succeeded"),
            " as last_succeeded, ",
            of_last_attempt!("cause"),
            " as last_cause"
        )
    };
}

/// A delivery's answer is in the class of the parameter, 0 for none.
macro_rules! is_answered {
    ($class:literal) => {
        concat!(
            "(cast(",
            $class,
            " as bigint) is null or coalesce(",
            of_last_attempt!("http_status"),
            ", 0) between ",
            $class,
            " * 100 and ",
            $class,
            " * 100 + 99)"
        )
    };
}

/// The list, of the deliveries of which the first condition holds.
macro_rules! list {
    ($of:literal) => {
        concat!(
            "select d.created_at as place_at, d.delivery_id as place_id, ",
            listed_columns!(),
            " from deliveries d
              where d.merchant_id = $1 and (d.created_at, d.delivery_id) < ($2, $3)
                  and (d.created_at, d.delivery_id) >= ($4, $5)
                  and ",
            $of,
            " and (cast($7 as text) is null or d.event_type = $7)
              and (cast($8 as text) is null or d.status = $8)
              and ",
            is_answered!("$9"),
            " order by d.created_at desc, d.delivery_id desc limit $6"
        )
    };
}

const LIST: &str = list!("true");
const LIST_EXHAUSTED: &str = list!("d.status = 'EXHAUSTED'");

/// A page of what is wanted.
pub async fn list(
    conn: &mut Conn,
    wanted: &WantedDeliveries,
    page: &PageRequest<String>,
) -> Result<Page<ListedDelivery, String>> {
    let Span { from, before } = &page.span;
    let text = match wanted.status {
        Some(Status::Exhausted) => LIST_EXHAUSTED,
        Some(Status::Pending | Status::Delivered) | None => LIST,
    };
    conn.sql(text)
        .bind(wanted.merchant_id)
        .bind(before.at)
        .bind(before.id.clone())
        .bind(from.at)
        .bind(from.id.clone())
        .bind(i64::from(page.size) + 1)
        .bind(wanted.event_type)
        .bind(wanted.status)
        .bind(wanted.answer.map(AnswerClass::hundreds))
        .page(page.size)
        .await
}

macro_rules! stop {
    ($of:literal) => {
        concat!(
            "select created_at, delivery_id from deliveries
             where merchant_id = $1 and (created_at, delivery_id) < ($2, $3)
                 and (created_at, delivery_id) >= ($4, $5) and ",
            $of,
            " order by created_at desc, delivery_id desc limit 1 offset $6"
        )
    };
}

const STOP: &str = stop!("true");
const STOP_EXHAUSTED: &str = stop!("status = 'EXHAUSTED'");

/// Where a page that looks at [`LOOKED_AT_MAX`] deliveries has to stop; `None` if there are fewer,
/// or an index finds what is wanted.
pub async fn stop(
    conn: &mut Conn,
    wanted: &WantedDeliveries,
    span: &Span<String>,
) -> Result<Option<Place<String>>> {
    if !wanted.is_searched() {
        return Ok(None);
    }
    let text = match wanted.status {
        Some(Status::Exhausted) => STOP_EXHAUSTED,
        Some(Status::Pending | Status::Delivered) | None => STOP,
    };
    let found: Option<(Timestamp, String)> = conn
        .sql(text)
        .bind(wanted.merchant_id)
        .bind(span.before.at)
        .bind(span.before.id.clone())
        .bind(span.from.at)
        .bind(span.from.id.clone())
        .bind(LOOKED_AT_MAX - 1)
        .optional()
        .await?;
    Ok(found.map(|(at, id)| Place { at, id }))
}

/// Those of a merchant's deliveries of these events that are wanted.
pub async fn list_of_events(
    conn: &mut Conn,
    wanted: &WantedDeliveries,
    span: &Span<String>,
    event_ids: &[EventId],
) -> Result<Vec<ListedDelivery>> {
    conn.sql_set(
        concat!(
            "given (wanted text) select ",
            listed_columns!(),
            " from deliveries d
              where d.event_id = any(array(select wanted from given)) and d.merchant_id = $1
                  and d.created_at >= $2 and d.created_at < $3
                  and (cast($4 as text) is null or d.event_type = $4)
                  and (cast($5 as text) is null or d.status = $5)
                  and ",
            is_answered!("$6"),
            " order by d.created_at desc, d.delivery_id desc"
        ),
        event_ids.len(),
    )
    .bind(wanted.merchant_id)
    .bind(span.from.at)
    .bind(span.before.at)
    .bind(wanted.event_type)
    .bind(wanted.status)
    .bind(wanted.answer.map(AnswerClass::hundreds))
    .column(event_ids.iter().cloned())
    .all()
    .await
}

/// A delivery with what its page needs beside its attempts.
#[derive(Clone, Debug, FromRow)]
pub struct WholeDelivery {
    #[sqlx(flatten)]
    pub listed: ListedDelivery,
    pub is_running: bool,
    pub is_asked_for: bool,
    /// What every attempt sends.
    pub body: String,
    /// Of the newest attempt.
    pub sent_url: Option<String>,
    pub sent_signature: Option<String>,
}

/// A merchant's delivery.
pub async fn find(
    conn: &mut Conn,
    merchant_id: MerchantId,
    id: &DeliveryId,
) -> Result<Option<WholeDelivery>> {
    conn.sql(concat!(
        "select ",
        listed_columns!(),
        ", d.claim is not null as is_running, d.manual_waiting > 0 as is_asked_for, e.body,
           (select a.url from attempts a where a.delivery_id = d.delivery_id
            order by a.number desc limit 1) as sent_url,
           (select a.signature from attempts a where a.delivery_id = d.delivery_id
            order by a.number desc limit 1) as sent_signature
          from deliveries d join events e on e.event_id = d.event_id
          where d.delivery_id = $1 and d.merchant_id = $2"
    ))
    .bind(id.clone())
    .bind(merchant_id)
    .optional()
    .await
}

/// Records that one more attempt of a merchant's delivery was requested by hand, unless one that
/// was has not begun. See [`super::ask_for_attempt`].
pub async fn ask_for_attempt(
    tx: &mut Tx,
    merchant_id: MerchantId,
    id: &DeliveryId,
) -> Result<Option<Delivery>> {
    tx.sql(concat!(
        "update deliveries
         set manual_waiting = case when manual_waiting > 0 then manual_waiting else 1 end, due_at = $3
         where delivery_id = $1 and merchant_id = $2 returning ",
        super::delivery_columns!()
    ))
    .bind(id.clone())
    .bind(merchant_id)
    .bind(super::first_of_all())
    .optional()
    .await
}

/// Attempts that took a time, of deliveries of a status.
#[derive(Clone, Copy, Debug)]
pub struct AttemptCount {
    pub status: Status,
    pub duration_ms: i64,
    pub attempts: i64,
    /// How many of them are the newest of their delivery.
    pub deliveries: i64,
}

/// A delivery whose attempts are counted.
#[derive(Clone, Debug, FromRow)]
struct LookedAt {
    delivery_id: DeliveryId,
    status: Status,
    attempts_count: i64,
}

/// Counts the attempts that ended since a time, of the newest deliveries that were created since
/// another; the shortest first.
pub async fn count_attempts(
    conn: &mut Conn,
    merchant_id: MerchantId,
    created_since: Timestamp,
    ended_since: Timestamp,
) -> Result<Vec<AttemptCount>> {
    let looked_at: Vec<LookedAt> = conn
        .sql(
            "select delivery_id, status, attempts_count from deliveries
             where merchant_id = $1 and created_at >= $2
             order by created_at desc, delivery_id desc limit $3",
        )
        .bind(merchant_id)
        .bind(created_since)
        .bind(HEALTH_LOOKED_AT_MAX)
        .all()
        .await?;
    // In a statement of its own: joined to a limit that it does not know, PostgreSQL reads the
    // attempts of all merchants.
    let attempts: Vec<(Status, i64, bool)> = conn
        .sql_set(
            "given (delivery_id text, status text, attempts_count bigint)
             select given.status, a.duration_ms, a.number = given.attempts_count
             from given join attempts a on a.delivery_id = given.delivery_id
             where a.finished_at >= $1",
            looked_at.len(),
        )
        .bind(ended_since)
        .column(
            looked_at
                .iter()
                .map(|looked_at| looked_at.delivery_id.clone()),
        )
        .column(looked_at.iter().map(|looked_at| looked_at.status))
        .column(looked_at.iter().map(|looked_at| looked_at.attempts_count))
        .all()
        .await?;
    let mut counts: BTreeMap<(i64, &'static str), AttemptCount> = BTreeMap::new();
    for (status, duration_ms, is_newest) in attempts {
        let kind = (duration_ms, status.code());
        let count = counts.entry(kind).or_insert(AttemptCount {
            status,
            duration_ms,
            attempts: 0,
            deliveries: 0,
        });
        count.attempts += 1;
        count.deliveries += i64::from(is_newest);
    }
    Ok(counts.into_values().collect())
}

/// When the oldest of the merchant's deliveries was created that is still looked at; `None` if all
/// of them are that were created from a time on.
pub async fn oldest_looked_at(
    conn: &mut Conn,
    merchant_id: MerchantId,
    created_since: Timestamp,
) -> Result<Option<Timestamp>> {
    let found: Option<(Timestamp,)> = conn
        .sql(
            "select created_at from deliveries where merchant_id = $1 and created_at >= $2
             order by created_at desc, delivery_id desc limit 1 offset $3",
        )
        .bind(merchant_id)
        .bind(created_since)
        .bind(HEALTH_LOOKED_AT_MAX - 1)
        .optional()
        .await?;
    Ok(found.map(|(at,)| at))
}

/// An event, as it was sent.
#[derive(Clone, Debug, FromRow)]
pub struct SentEvent {
    pub event_id: EventId,
    pub body: String,
}

/// A merchant's event, whether it was sent or not.
pub async fn find_event(
    conn: &mut Conn,
    merchant_id: MerchantId,
    event_id: &EventId,
) -> Result<Option<SentEvent>> {
    conn.sql("select event_id, body from events where event_id = $1 and merchant_id = $2")
        .bind(event_id.clone())
        .bind(merchant_id)
        .optional()
        .await
}

/// Up to `limit` events of a merchant's deliveries that were created between two times, the newest
/// first.
pub async fn list_events_around(
    conn: &mut Conn,
    merchant_id: MerchantId,
    (from, to): (Timestamp, Timestamp),
    limit: i64,
) -> Result<Vec<SentEvent>> {
    conn.sql(
        "select e.event_id, e.body from deliveries d join events e on e.event_id = d.event_id
         where d.merchant_id = $1 and d.created_at >= $2 and d.created_at <= $3
         order by d.created_at desc, d.delivery_id desc limit $4",
    )
    .bind(merchant_id)
    .bind(from)
    .bind(to)
    .bind(limit)
    .all()
    .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index};

    use super::*;

    #[tokio::test]
    async fn deliveries_are_listed_by_indexes_that_are_in_their_order() {
        let database = TestDb::new("webhooks-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        for (text, index) in [
            (LIST, "deliveries_newest"),
            (STOP, "deliveries_newest"),
            (LIST_EXHAUSTED, "deliveries_exhausted"),
            (STOP_EXHAUSTED, "deliveries_exhausted"),
        ] {
            check_ordered_by_index(&db, text, index).await;
        }
        db.close().await;
    }
}
