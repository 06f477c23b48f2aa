//! SQL of publishing: events, their deliveries, and the attempts that start at once, in sets.

use chassis::{
    clock::Timestamp,
    ids::{EndpointId, EventId, MerchantId},
};
use db::{Result, Tx};
use sqlx::FromRow;
use uuid::Uuid;

use crate::{
    delivery::{NewDelivery, Status},
    endpoint::Endpoint,
    event::AcceptedEvent,
};

/// The endpoint of an event's merchant.
#[derive(Debug, FromRow)]
pub struct EventEndpoint {
    #[sqlx(flatten)]
    pub endpoint: Endpoint,
    /// Locked until the transaction ends, so that the number of its running attempts stays true.
    pub is_locked: bool,
}

/// The endpoints of these merchants, those of `starting` locked if they are switched on and nobody
/// else has them locked.
pub async fn find_endpoints(
    tx: &mut Tx,
    merchants: &[(MerchantId, bool)],
) -> Result<Vec<EventEndpoint>> {
    tx.sql_set(
        concat!(
            "given (merchant_id uuid, starting boolean)
             select ",
            super::endpoint_columns!(),
            ", locked_id is not null as is_locked
             from endpoints left join (
                 select endpoint_id as locked_id from endpoints
                 where merchant_id in (select merchant_id from given where starting) and enabled
                 order by endpoint_id for no key update skip locked
             ) locked on locked_id = endpoint_id
             where merchant_id in (select merchant_id from given)"
        ),
        merchants.len(),
    )
    .column(merchants.iter().map(|(merchant_id, _)| *merchant_id))
    .column(merchants.iter().map(|(_, starting)| *starting))
    .all()
    .await
}

/// What the store knows about an event that is published, and about its endpoint if asked.
#[derive(Debug, FromRow)]
pub struct EventState {
    pub event_id: EventId,
    pub is_known: bool,
    /// Who runs an attempt of the event's delivery.
    pub claim: Option<Uuid>,
    /// Attempts that run to the endpoint.
    pub running: i64,
    /// Something is due to the endpoint that nobody runs.
    pub has_waiting: bool,
}

/// Looks at these events. Of an endpoint that the transaction has locked, `running` stays true.
pub async fn look_at_events(
    tx: &mut Tx,
    events: &[(&AcceptedEvent, Option<EndpointId>)],
    now: Timestamp,
) -> Result<Vec<EventState>> {
    tx.sql_set(
        "given (event_id text, endpoint_id uuid)
         select given.event_id,
                (select count(*) from events e where e.event_id = given.event_id) > 0 as is_known,
                (select d.claim from deliveries d where d.event_id = given.event_id) as claim,
                (select count(*) from deliveries d
                 where d.endpoint_id = given.endpoint_id and d.claim is not null) as running,
                (select d.due_at from deliveries d
                 where d.endpoint_id = given.endpoint_id
                   and d.claim is null and d.due_at is not null and d.due_at <= $1
                 order by d.due_at limit 1) is not null as has_waiting
         from given",
        events.len(),
    )
    .bind(now)
    .column(events.iter().map(|(event, _)| event.event_id.clone()))
    .column(events.iter().map(|(_, endpoint_id)| *endpoint_id))
    .all()
    .await
}

/// Inserts events and their deliveries, and the attempts of those that are claimed.
pub async fn insert_events(
    tx: &mut Tx,
    events: &[&AcceptedEvent],
    deliveries: &[NewDelivery],
    now: Timestamp,
) -> Result<()> {
    let claimed = || {
        deliveries
            .iter()
            .filter(|delivery| delivery.claim.is_some())
    };
    tx.joint()
        .sql_set(
            "given (event_id text, merchant_id uuid, event_type text, body text, traceparent text,
                    created_at timestamptz)
             insert into events (event_id, merchant_id, event_type, body, traceparent, created_at)
             select event_id, merchant_id, event_type, body, traceparent, created_at from given",
            events.len(),
        )
        .column(events.iter().map(|event| event.event_id.clone()))
        .column(events.iter().map(|event| event.merchant_id))
        .column(events.iter().map(|event| event.event_type))
        .column(events.iter().map(|event| event.body.clone()))
        .column(events.iter().map(|event| event.traceparent.clone()))
        .column(events.iter().map(|event| event.created_at))
        .sql_set(
            "given (delivery_id text, event_id text, event_type text, merchant_id uuid,
                    endpoint_id uuid, attempts_count bigint, claim uuid, lease_until timestamptz)
             insert into deliveries
                 (delivery_id, event_id, event_type, merchant_id, endpoint_id, status,
                  attempts_count, failures, next_attempt_at, manual_waiting, manual_running, due_at,
                  claim, lease_until, created_at)
             select delivery_id, event_id, event_type, merchant_id, endpoint_id, $1,
                    attempts_count, 0, $2, 0, $3, $2, claim, lease_until, $2
             from given",
            deliveries.len(),
        )
        .bind(Status::Pending)
        .bind(now)
        .bind(false)
        .column(deliveries.iter().map(|new| new.delivery_id.clone()))
        .column(deliveries.iter().map(|new| new.event_id.clone()))
        .column(deliveries.iter().map(|new| new.event_type))
        .column(deliveries.iter().map(|new| new.merchant_id))
        .column(deliveries.iter().map(|new| new.endpoint_id))
        .column(deliveries.iter().map(|new| i64::from(new.claim.is_some())))
        .column(
            deliveries
                .iter()
                .map(|new| new.claim.map(|(claim, _)| claim)),
        )
        .column(
            deliveries
                .iter()
                .map(|new| new.claim.map(|(_, until)| until)),
        )
        .sql_set(
            "given (delivery_id text)
             insert into attempts
                 (delivery_id, number, manual, started_at, succeeded, duration_ms)
             select delivery_id, 1, $1, $2, $1, 0 from given",
            claimed().count(),
        )
        .bind(false)
        .bind(now)
        .column(claimed().map(|new| new.delivery_id.clone()))
        .run()
        .await
}
