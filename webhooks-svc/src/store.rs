//! All SQL of this service: endpoints and deliveries as callers see them. Accepting events is in
//! [`publish`], the feed in [`feed`], what became of events in [`event_deliveries`], beginning and
//! ending attempts in [`attempts`], whom to tell that attempts are exhausted in [`exhaustions`],
//! what merchants list in [`listing`], what they send once more in [`replays`], and what they try in
//! [`trials`].

pub mod attempts;
pub mod event_deliveries;
pub mod exhaustions;
pub mod feed;
pub mod listing;
pub mod publish;
pub mod replays;
pub mod trials;

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, MerchantId},
};
use db::{Conn, Result, Tx};
use uuid::Uuid;

use crate::{
    delivery::{Attempt, Delivery},
    endpoint::Endpoint,
};

/// Most attempts shown of one delivery. The default schedule makes seven, the rest were requested
/// by hand.
const ATTEMPTS_LISTED: i64 = 1_000;

/// How many endpoints to read at once when going through all of them.
const ENDPOINTS_AT_ONCE: i64 = 100;

/// Keeps an order among what is due at the same time.
const ONE_MS: Duration = Duration::from_millis(1);

/// The due time of what goes before everything else, in Unix milliseconds.
const FIRST_OF_ALL_MS: i64 = 0;

macro_rules! endpoint_columns {
    () => {
        "endpoint_id, merchant_id, url, events, enabled, secret, previous_secret,
         previous_signs_until, exhausted_since, created_at, updated_at"
    };
}
use endpoint_columns;

macro_rules! delivery_columns {
    () => {
        "delivery_id, merchant_id, event_id, event_type, status, attempts_count,
         next_attempt_at, created_at"
    };
}
use delivery_columns;

pub async fn find_endpoint(conn: &mut Conn, merchant_id: MerchantId) -> Result<Option<Endpoint>> {
    conn.sql(concat!(
        "select ",
        endpoint_columns!(),
        " from endpoints where merchant_id = $1"
    ))
    .bind(merchant_id)
    .optional()
    .await
}

/// Like [`find_endpoint`], and locks the endpoint until the transaction ends.
pub async fn lock_endpoint(tx: &mut Tx, merchant_id: MerchantId) -> Result<Option<Endpoint>> {
    tx.sql(concat!(
        "select ",
        endpoint_columns!(),
        " from endpoints where merchant_id = $1 for no key update"
    ))
    .bind(merchant_id)
    .optional()
    .await
}

/// Creates the endpoint, or changes the URL and events of the existing one. Returns it as it is
/// stored.
pub async fn upsert_endpoint(tx: &mut Tx, endpoint: &Endpoint) -> Result<Endpoint> {
    tx.sql(concat!(
        "insert into endpoints
             (endpoint_id, merchant_id, url, events, enabled, secret, created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $7)
         on conflict (merchant_id) do update
             set url = excluded.url, events = excluded.events, updated_at = excluded.updated_at
         returning ",
        endpoint_columns!()
    ))
    .bind(endpoint.endpoint_id)
    .bind(endpoint.merchant_id)
    .bind(endpoint.url.clone())
    .bind(endpoint.events.clone())
    .bind(endpoint.enabled)
    .bind(endpoint.secret.clone())
    .bind(endpoint.created_at)
    .one()
    .await
}

/// Writes the secrets of an endpoint that the transaction has locked.
pub async fn update_secrets(tx: &mut Tx, endpoint: &Endpoint) -> Result<()> {
    tx.sql(
        "update endpoints
         set secret = $2, previous_secret = $3, previous_signs_until = $4, updated_at = $5
         where endpoint_id = $1",
    )
    .bind(endpoint.endpoint_id)
    .bind(endpoint.secret.clone())
    .bind(endpoint.previous_secret.clone())
    .bind(endpoint.previous_signs_until)
    .bind(endpoint.updated_at)
    .run()
    .await
}

pub async fn set_enabled(
    tx: &mut Tx,
    merchant_id: MerchantId,
    enabled: bool,
    now: Timestamp,
) -> Result<Option<Endpoint>> {
    tx.sql(concat!(
        "update endpoints set enabled = $2, updated_at = $3 where merchant_id = $1 returning ",
        endpoint_columns!()
    ))
    .bind(merchant_id)
    .bind(enabled)
    .bind(now)
    .optional()
    .await
}

/// Up to a hundred endpoints, by id, after the given one.
pub async fn list_endpoints_after(conn: &mut Conn, after: Uuid) -> Result<Vec<Endpoint>> {
    conn.sql(concat!(
        "select ",
        endpoint_columns!(),
        " from endpoints where endpoint_id > $1 order by endpoint_id limit $2"
    ))
    .bind(after)
    .bind(ENDPOINTS_AT_ONCE)
    .all()
    .await
}

/// Ids of the keys that secrets are encrypted with.
pub async fn list_key_ids(conn: &mut Conn) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = conn
        .sql(
            "select substr(secret, 1, 8) as key_id from endpoints
             union
             select substr(previous_secret, 1, 8) from endpoints where previous_secret is not null",
        )
        .all()
        .await?;
    Ok(rows.into_iter().map(|(key_id,)| key_id).collect())
}

/// Newest first.
pub async fn list_deliveries(
    conn: &mut Conn,
    merchant_id: MerchantId,
    before: Option<DeliveryId>,
    limit: u32,
) -> Result<Vec<Delivery>> {
    let listing = match before {
        None => conn
            .sql(concat!(
                "select ",
                delivery_columns!(),
                " from deliveries where merchant_id = $1 order by delivery_id desc limit $2"
            ))
            .bind(merchant_id)
            .bind(i64::from(limit)),
        Some(before) => conn
            .sql(concat!(
                "select ",
                delivery_columns!(),
                " from deliveries where merchant_id = $1 and delivery_id < $3
                  order by delivery_id desc limit $2"
            ))
            .bind(merchant_id)
            .bind(i64::from(limit))
            .bind(before),
    };
    listing.all().await
}

pub async fn find_delivery(conn: &mut Conn, id: &DeliveryId) -> Result<Option<Delivery>> {
    conn.sql(concat!(
        "select ",
        delivery_columns!(),
        " from deliveries where delivery_id = $1"
    ))
    .bind(id.clone())
    .optional()
    .await
}

/// Oldest first.
pub async fn list_attempts(conn: &mut Conn, id: &DeliveryId) -> Result<Vec<Attempt>> {
    conn.sql(
        "select number, manual, started_at, finished_at, succeeded, http_status, error,
                duration_ms, response_excerpt, cause
         from attempts where delivery_id = $1 order by number limit $2",
    )
    .bind(id.clone())
    .bind(ATTEMPTS_LISTED)
    .all()
    .await
}

/// Records that one more attempt was requested by hand. It goes before everything else that waits
/// for its endpoint.
pub async fn ask_for_attempt(tx: &mut Tx, id: &DeliveryId) -> Result<Option<Delivery>> {
    tx.sql(concat!(
        "update deliveries set manual_waiting = manual_waiting + 1, due_at = $2
         where delivery_id = $1 returning ",
        delivery_columns!()
    ))
    .bind(id.clone())
    .bind(first_of_all())
    .optional()
    .await
}

fn first_of_all() -> Timestamp {
    Timestamp::from_unix_millis(FIRST_OF_ALL_MS).expect("1970 is a time")
}
