//! `/api/v1/webhook-endpoint`: where a merchant's events are sent. A person sets it; a key may read
//! and test it. Additive.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use http::StatusCode;
use proto::webhooks::{
    EventType, GetMerchantEndpointRequest, MerchantEndpoint, TestEndpointRequest,
};
use serde::Serialize;

use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

/// What an endpoint gets whose events nobody has chosen: those of the specification (spec §6.1).
const SPECIFIED: [EventType; 4] = [
    EventType::PaymentSuccess,
    EventType::PaymentFailed,
    EventType::PayoutSuccess,
    EventType::PayoutFailed,
];

/// `WebhookEndpoint` of the contract.
#[derive(Debug, Serialize)]
pub struct EndpointShown {
    url: String,
    /// The types that it gets.
    events: Vec<String>,
    enabled: bool,
    exhausted_since: Option<String>,
    created_at: String,
    updated_at: String,
}

/// `EndpointTest` of the contract.
#[derive(Debug, Serialize)]
pub struct EndpointTest {
    event_id: String,
}

pub async fn read(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
) -> Result<Json<EndpointShown>, Error> {
    let request = GetMerchantEndpointRequest {
        merchant_id: merchant.id.to_string(),
    };
    let endpoint = edge
        .events
        .read(
            backend::DEADLINE,
            request,
            |mut events, request| async move { events.get_merchant_endpoint(request).await },
        )
        .await?;
    Ok(Json(endpoint.into()))
}

pub async fn test(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
) -> Result<(StatusCode, Json<EndpointTest>), Error> {
    let request = TestEndpointRequest {
        merchant_id: merchant.id.to_string(),
    };
    let answer = edge
        .events
        .once(
            backend::DEADLINE,
            request,
            |mut events, request| async move { events.test_endpoint(request).await },
        )
        .await?;
    let made = EndpointTest {
        event_id: answer.event_id,
    };
    Ok((StatusCode::ACCEPTED, Json(made)))
}

impl From<MerchantEndpoint> for EndpointShown {
    fn from(endpoint: MerchantEndpoint) -> Self {
        let chosen: Vec<EventType> = endpoint.events().collect();
        let events: &[EventType] = match chosen.is_empty() {
            true => &SPECIFIED,
            false => &chosen,
        };
        Self {
            // Types that only a newer version knows have no name.
            events: events.iter().filter_map(|of| of.name()).collect(),
            url: endpoint.url,
            enabled: endpoint.enabled,
            exhausted_since: endpoint.exhausted_since,
            created_at: endpoint.created_at,
            updated_at: endpoint.updated_at,
        }
    }
}
