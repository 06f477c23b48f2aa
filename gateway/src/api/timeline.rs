//! `GET /api/v1/payments/charge/{reference}/timeline`: what has happened to a charge and its refunds,
//! with the deliveries of their events. Additive.
//!
//! Without webhooks-svc there is no answer: a timeline without attempts would look like a webhook that
//! was never sent. The dashboard's page has room to say so instead.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
};
use chassis::{ids::Reference, money::Money};
use proto::{
    charges::{ChargeTimeline, GetChargeTimelineRequest, TimelineEntry, TimelineKind},
    money::Money as ProtoMoney,
    webhooks::{Attempt, EventDelivery, GetEventDeliveriesRequest},
};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::amount;
use crate::{
    backend::{self, Charges, MerchantEvents},
    edge::Edge,
    error::Error,
    merchant::Merchant,
};

/// The kind of an attempt to deliver, which is shown after everything else of its moment.
pub const DELIVERY_ATTEMPT: &str = "DELIVERY_ATTEMPT";

/// `Timeline` of the contract.
#[derive(Debug, Serialize)]
pub struct Timeline {
    reference: String,
    status: &'static str,
    /// Oldest first.
    entries: Vec<Entry>,
    /// The charge has more refunds than those shown, which are its newest.
    has_more_refunds: bool,
}

#[derive(Debug, Serialize)]
pub struct Entry {
    pub at: String,
    pub kind: &'static str,
    /// The refund that it is about, and not the charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refund_id: Option<String>,
    #[serde(flatten)]
    pub what: What,
}

/// What an entry says, by its kind.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum What {
    Request {
        #[serde(flatten)]
        amount: Amount,
        /// Of the program that asked for it, if that is on record.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        key_name: Option<String>,
        /// Whether the payer asked for it, at the hosted checkout.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        at_checkout: bool,
    },
    Prompt {},
    Said {
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<&'static str>,
        times: u32,
        last_at: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        network_reference: Option<String>,
    },
    Status {
        status: String,
        failure_reason: Option<String>,
    },
    Ledger {
        posting: String,
        account: &'static str,
        #[serde(flatten)]
        amount: Amount,
    },
    Event {
        event_id: String,
        event_type: Option<String>,
        /// Null if there was no endpoint for it.
        delivery_status: Option<&'static str>,
        attempts_count: u32,
        next_attempt_at: Option<String>,
    },
    Attempt {
        event_id: String,
        number: u32,
        manual: bool,
        succeeded: bool,
        http_status: Option<u32>,
        error: Option<String>,
        duration_ms: u32,
        /// Null while it runs.
        finished_at: Option<String>,
        response_excerpt: Option<String>,
    },
}

/// An amount and its currency, as two fields.
#[derive(Debug)]
pub struct Amount(pub Money);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(money) = self;
        let mut fields = serializer.serialize_map(Some(2))?;
        fields.serialize_entry("amount", &amount::to_json(*money))?;
        fields.serialize_entry("currency", money.currency().code())?;
        fields.end()
    }
}

pub async fn timeline(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    reference: Result<Path<String>, PathRejection>,
) -> Result<Json<Timeline>, Error> {
    let Path(reference) = reference.map_err(|_| Error::NotFound)?;
    let reference: Reference = reference.parse().map_err(|_| Error::NotFound)?;
    let timeline = of_charge(&edge.charges, &merchant, &reference).await?;
    let deliveries = deliveries(&edge.events, &merchant, &timeline.entries).await?;
    let status = timeline.status().code();
    Ok(Json(Timeline {
        reference: reference.to_string(),
        status: status.ok_or_else(|| Error::internal("a charge without status"))?,
        entries: merged(timeline.entries, deliveries)?,
        has_more_refunds: timeline.has_more_refunds,
    }))
}

/// What charges-svc knows of what has happened to a charge.
pub async fn of_charge(
    charges: &Charges,
    merchant: &Merchant,
    reference: &Reference,
) -> Result<ChargeTimeline, Error> {
    let request = GetChargeTimelineRequest {
        merchant_id: merchant.id.to_string(),
        reference: reference.to_string(),
    };
    let timeline = charges.read(
        backend::DEADLINE,
        request,
        |mut charges, request| async move { charges.get_charge_timeline(request).await },
    );
    timeline.await
}

/// What became of a timeline's events, by their ids. One that has not been accepted yet is not
/// among them.
pub async fn deliveries(
    events: &MerchantEvents,
    merchant: &Merchant,
    entries: &[TimelineEntry],
) -> Result<HashMap<String, EventDelivery>, Error> {
    let event_ids = entries.iter();
    let event_ids: Vec<String> = event_ids
        .filter_map(|entry| entry.event_id.clone())
        .collect();
    if event_ids.is_empty() {
        return Ok(HashMap::new());
    }
    let request = GetEventDeliveriesRequest {
        merchant_id: merchant.id.to_string(),
        event_ids,
    };
    let answer = events.read(
        backend::DEADLINE,
        request,
        |mut events, request| async move { events.get_event_deliveries(request).await },
    );
    let events = answer.await?.events.into_iter();
    Ok(events
        .map(|event| (event.event_id.clone(), event))
        .collect())
}

/// The entries with what became of their events: oldest first, and what happened at one moment in
/// the order of its kinds.
pub fn merged(
    entries: Vec<TimelineEntry>,
    mut deliveries: HashMap<String, EventDelivery>,
) -> Result<Vec<Entry>, Error> {
    let mut placed: Vec<(i32, Entry)> = Vec::new();
    for entry in entries {
        let kind = entry.kind();
        let event = entry.event_id.as_ref();
        let event = event.and_then(|event_id| deliveries.remove(event_id));
        if let Some(event) = &event {
            let attempts = event
                .delivery
                .iter()
                .flat_map(|delivery| &delivery.attempts);
            let attempts = attempts.map(|attempt| attempted(&entry, event, attempt));
            placed.extend(attempts.map(|attempt| (i32::MAX, attempt)));
        }
        // What only a newer version knows is left out.
        if let (Some(code), Some(what)) = (kind.code(), What::of(&entry, event)?) {
            let entry = Entry {
                at: entry.at,
                kind: code,
                refund_id: entry.refund_id,
                what,
            };
            placed.push((kind.into(), entry));
        }
    }
    // Times of one form sort as texts.
    placed.sort_by(|(one, a), (other, b)| (&a.at, one).cmp(&(&b.at, other)));
    Ok(placed.into_iter().map(|(_, entry)| entry).collect())
}

fn attempted(of: &TimelineEntry, event: &EventDelivery, attempt: &Attempt) -> Entry {
    let attempt = attempt.clone();
    Entry {
        at: attempt.started_at,
        kind: DELIVERY_ATTEMPT,
        refund_id: of.refund_id.clone(),
        what: What::Attempt {
            event_id: event.event_id.clone(),
            number: attempt.number,
            manual: attempt.manual,
            succeeded: attempt.succeeded,
            http_status: attempt.http_status,
            error: attempt.error,
            duration_ms: attempt.duration_ms,
            finished_at: attempt.finished_at,
            response_excerpt: attempt.response_excerpt,
        },
    }
}

impl What {
    /// `None` for an event that has not been accepted yet, and for what only a newer version knows.
    fn of(entry: &TimelineEntry, event: Option<EventDelivery>) -> Result<Option<Self>, Error> {
        Ok(Some(match entry.kind() {
            TimelineKind::Request => {
                let asked_by = entry.asked_by.clone().unwrap_or_default();
                Self::Request {
                    amount: shown(entry.amount.as_ref())?,
                    request_id: asked_by.request_id,
                    key_name: asked_by.key_name,
                    at_checkout: entry.at_checkout,
                }
            }
            TimelineKind::Prompt => Self::Prompt {},
            TimelineKind::NetworkRequest
            | TimelineKind::Otp
            | TimelineKind::Callback
            | TimelineKind::Query => Self::Said {
                outcome: entry.outcome().code(),
                times: entry.times(),
                last_at: entry.last_at().to_owned(),
                network_reference: entry.network_reference.clone(),
            },
            TimelineKind::Status => Self::Status {
                status: entry.status().to_owned(),
                failure_reason: entry.failure_reason.clone(),
            },
            TimelineKind::Ledger => {
                let change = entry.balance_change.clone().unwrap_or_default();
                let amount = shown(change.amount.as_ref())?;
                Self::Ledger {
                    posting: change.posting,
                    account: match change.is_reserved {
                        true => "RESERVED",
                        false => "AVAILABLE",
                    },
                    amount,
                }
            }
            TimelineKind::Event => return Ok(event.map(Self::event)),
            TimelineKind::Unspecified => return Ok(None),
        }))
    }

    fn event(event: EventDelivery) -> Self {
        let delivery = event.delivery.as_ref();
        Self::Event {
            event_type: event.r#type().name(),
            delivery_status: delivery.and_then(|delivery| delivery.status().code()),
            attempts_count: delivery.map_or(0, |delivery| delivery.attempts_count),
            next_attempt_at: delivery.and_then(|delivery| delivery.next_attempt_at.clone()),
            event_id: event.event_id,
        }
    }
}

fn shown(money: Option<&ProtoMoney>) -> Result<Amount, Error> {
    let money = money.ok_or_else(|| Error::internal("an entry without amount"))?;
    Ok(Amount(Money::try_from(money).map_err(Error::internal)?))
}
