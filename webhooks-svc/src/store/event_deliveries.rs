//! SQL of what became of events, for the merchant whose events they are.

use std::collections::HashMap;

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EventId, MerchantId},
};
use db::{Conn, Result};
use sqlx::FromRow;

use crate::delivery::{Attempt, Delivery, EventDelivery};

/// Most attempts of one delivery that are shown: far more than a schedule makes. They are the
/// newest.
const ATTEMPTS_SHOWN: i64 = 50;

#[derive(FromRow)]
struct EventRow {
    event_id: EventId,
    event_type: String,
    created_at: Timestamp,
}

#[derive(FromRow)]
struct AttemptRow {
    delivery_id: DeliveryId,
    #[sqlx(flatten)]
    attempt: Attempt,
}

/// What became of these events, as far as they are this merchant's. In no certain order.
pub async fn list(
    conn: &mut Conn,
    merchant_id: MerchantId,
    event_ids: &[EventId],
) -> Result<Vec<EventDelivery>> {
    let events: Vec<EventRow> = conn
        .sql_set(
            "given (wanted text)
             select event_id, event_type, created_at from events
             where event_id = any(array(select wanted from given)) and merchant_id = $1",
            event_ids.len(),
        )
        .bind(merchant_id)
        .column(event_ids.iter().cloned())
        .all()
        .await?;
    let deliveries: Vec<Delivery> = conn
        .sql_set(
            concat!(
                "given (wanted text) select ",
                super::delivery_columns!(),
                " from deliveries
                  where event_id = any(array(select wanted from given)) and merchant_id = $1"
            ),
            event_ids.len(),
        )
        .bind(merchant_id)
        .column(event_ids.iter().cloned())
        .all()
        .await?;
    let mut attempts = list_attempts(conn, &deliveries).await?;
    let delivered = deliveries.into_iter().map(|delivery| {
        let attempts = attempts.remove(&delivery.delivery_id).unwrap_or_default();
        (delivery.event_id.clone(), (delivery, attempts))
    });
    let mut delivered: HashMap<_, _> = delivered.collect();
    let listed = events.into_iter().map(|event| EventDelivery {
        delivery: delivered.remove(&event.event_id),
        event_id: event.event_id,
        event_type: event.event_type,
        created_at: event.created_at,
    });
    Ok(listed.collect())
}

/// The newest attempts of each, oldest first, with at most 200 characters of each answer.
async fn list_attempts(
    conn: &mut Conn,
    deliveries: &[Delivery],
) -> Result<HashMap<DeliveryId, Vec<Attempt>>> {
    // Attempts are numbered from 1 without gaps.
    let rows: Vec<AttemptRow> = conn
        .sql_set(
            "given (delivery text, shown_after bigint)
             select delivery_id, number, manual, started_at, finished_at, succeeded, http_status,
                 error, duration_ms, substr(response_excerpt, 1, 200) as response_excerpt,
                 cause
             from given join attempts on delivery_id = delivery and number > shown_after
             order by delivery_id, number",
            deliveries.len(),
        )
        .column(
            deliveries
                .iter()
                .map(|delivery| delivery.delivery_id.clone()),
        )
        .column(
            deliveries
                .iter()
                .map(|delivery| delivery.attempts_count - ATTEMPTS_SHOWN),
        )
        .all()
        .await?;
    let mut attempts: HashMap<_, Vec<Attempt>> = HashMap::new();
    for row in rows {
        attempts
            .entry(row.delivery_id)
            .or_default()
            .push(row.attempt);
    }
    Ok(attempts)
}
