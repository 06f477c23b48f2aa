//! `/api/v1/events`: a merchant's events in the order of their numbers, to be pulled where webhooks
//! cannot arrive, or to prove that none was missed. Additive.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::{Path, RawQuery, State, rejection::PathRejection},
};
use chassis::ids::EventId;
use http::StatusCode;
use proto::webhooks::{FeedEvent, ListEventsRequest, ListEventsResponse, RedeliverEventRequest};
use serde::Serialize;
use serde_json::value::RawValue;

use super::list::{Parameters, whole};
use crate::{
    backend,
    edge::Edge,
    error::Error,
    field_error::{Fault, FieldCode},
    in_hand::RequestInHand,
    merchant::Merchant,
};

/// The highest number that an event can have.
const SEQUENCE_MAX: u64 = i64::MAX.unsigned_abs();

/// `EventsPage` of the contract.
#[derive(Debug, Serialize)]
pub struct EventsPage {
    data: Vec<NumberedEvent>,
    /// The number of the merchant's newest event; 0 for none.
    last_sequence: u64,
}

#[derive(Debug, Serialize)]
struct NumberedEvent {
    sequence: u64,
    /// The exact bytes of its webhooks.
    event: Box<RawValue>,
}

/// `Redelivery` of the contract.
#[derive(Debug, Serialize)]
pub struct Redelivery {
    delivery_id: String,
}

pub async fn list(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    Extension(in_hand): Extension<RequestInHand>,
    RawQuery(query): RawQuery,
) -> Result<Json<EventsPage>, Error> {
    let mut parameters = Parameters::new(query.as_deref());
    let request = ListEventsRequest {
        merchant_id: merchant.id.to_string(),
        after: parameters
            .optional("after", parse_after)
            .unwrap_or_default(),
        page_size: parameters.limit(),
        wait_seconds: 0,
    };
    let wait = parameters.wait();
    parameters.finish()?;
    let mut listed = read(&edge, request.clone(), Duration::ZERO).await?;
    if let Some(wait) = wait
        && listed.events.is_empty()
        && let Ok(Some(waited)) = in_hand.wait(read(&edge, request, wait)).await
    {
        listed = waited?;
    }
    let data: Result<_, Error> = listed.events.into_iter().map(TryInto::try_into).collect();
    Ok(Json(EventsPage {
        data: data?,
        last_sequence: listed.last_sequence,
    }))
}

fn parse_after(text: &str) -> Result<u64, Fault> {
    let after = whole(text).filter(|after| *after <= SEQUENCE_MAX);
    after.ok_or(Fault::new(
        FieldCode::OutOfRange,
        "must be the sequence of an event, or 0",
    ))
}

/// What follows, waited for.
async fn read(
    edge: &Edge,
    request: ListEventsRequest,
    wait: Duration,
) -> Result<ListEventsResponse, Error> {
    let request = ListEventsRequest {
        wait_seconds: u32::try_from(wait.as_secs()).unwrap_or(u32::MAX),
        ..request
    };
    edge.events
        .read(
            backend::DEADLINE + wait,
            request,
            |mut events, request| async move { events.list_events(request).await },
        )
        .await
}

pub async fn redeliver(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    event_id: Result<Path<String>, PathRejection>,
) -> Result<(StatusCode, Json<Redelivery>), Error> {
    let Path(event_id) = event_id.map_err(|_| Error::NotFound)?;
    let event_id: EventId = event_id.parse().map_err(|_| Error::NotFound)?;
    let request = RedeliverEventRequest {
        merchant_id: merchant.id.to_string(),
        event_id: event_id.to_string(),
    };
    let answer = edge
        .events
        .once(
            backend::DEADLINE,
            request,
            |mut events, request| async move { events.redeliver_event(request).await },
        )
        .await?;
    let redelivery = Redelivery {
        delivery_id: answer.delivery_id,
    };
    Ok((StatusCode::ACCEPTED, Json(redelivery)))
}

impl TryFrom<FeedEvent> for NumberedEvent {
    type Error = Error;

    fn try_from(event: FeedEvent) -> Result<Self, Error> {
        Ok(Self {
            sequence: event.sequence,
            event: RawValue::from_string(event.body).map_err(Error::internal)?,
        })
    }
}
