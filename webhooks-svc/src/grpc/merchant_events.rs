//! The calls for merchants: each is about the events and the endpoint of the merchant that it names,
//! and of nobody else.

use std::time::Duration;

use chassis::{grpc::CallInHand, ids::EventId};
use proto::webhooks::{
    self as wire, GetEventDeliveriesRequest, GetEventDeliveriesResponse,
    GetMerchantEndpointRequest, ListEventsRequest, ListEventsResponse, MerchantEndpoint,
    RedeliverEventRequest, RedeliverEventResponse, TestEndpointRequest, TestEndpointResponse,
    merchant_events_server::MerchantEvents,
};
use tonic::{Request, Response, Status};

use super::{Grpc, event_types, invalid, page_size, parse, stored_event_type};
use crate::{delivery::EventDelivery, endpoint::Endpoint, error::Error, event::FeedEvent};

/// Most events that one call may ask about.
const EVENTS_ASKED_MAX: usize = 100;

#[tonic::async_trait]
impl MerchantEvents for Grpc {
    async fn list_events(
        &self,
        request: Request<ListEventsRequest>,
    ) -> Result<Response<ListEventsResponse>, Status> {
        let in_hand = request.extensions().get::<CallInHand>().cloned();
        let request = request.into_inner();
        let merchant_id = parse("merchant_id", &request.merchant_id)?;
        let after = i64::try_from(request.after);
        let after = after.map_err(|_| invalid("after", "must be the number of an event"))?;
        let page_size = page_size(request.page_size)?;
        let longest = Duration::from_secs(request.wait_seconds.into());
        let waiting = self.0.waits.begin(merchant_id, after, longest);
        let mut page = self.0.list_events(merchant_id, after, page_size).await?;
        if page.events.is_empty() && !longest.is_zero() {
            match in_hand {
                Some(in_hand) => in_hand.wait(waiting).await,
                None => waiting.await,
            }
            page = self.0.list_events(merchant_id, after, page_size).await?;
        }
        let events = page.events.into_iter().map(wire::FeedEvent::from);
        Ok(Response::new(ListEventsResponse {
            events: events.collect(),
            last_sequence: u64::try_from(page.last_sequence).unwrap_or_default(),
        }))
    }

    async fn redeliver_event(
        &self,
        request: Request<RedeliverEventRequest>,
    ) -> Result<Response<RedeliverEventResponse>, Status> {
        let request = request.into_inner();
        let merchant_id = parse("merchant_id", &request.merchant_id)?;
        let event_id = request.event_id.parse();
        let event_id = event_id.map_err(|_| Error::EventNotFound)?;
        let delivery = self.0.redeliver_event(merchant_id, &event_id).await?;
        Ok(Response::new(RedeliverEventResponse {
            delivery_id: delivery.delivery_id.to_string(),
        }))
    }

    async fn get_event_deliveries(
        &self,
        request: Request<GetEventDeliveriesRequest>,
    ) -> Result<Response<GetEventDeliveriesResponse>, Status> {
        let request = request.into_inner();
        let merchant_id = parse("merchant_id", &request.merchant_id)?;
        if request.event_ids.len() > EVENTS_ASKED_MAX {
            return Err(invalid("event_ids", "must be at most 100").into());
        }
        let event_ids = request.event_ids.iter();
        let event_ids: Result<Vec<EventId>, _> =
            event_ids.map(|id| parse("event_ids", id)).collect();
        let events = self.0.event_deliveries(merchant_id, &event_ids?).await?;
        let events = events.into_iter().map(wire::EventDelivery::from).collect();
        Ok(Response::new(GetEventDeliveriesResponse { events }))
    }

    async fn get_merchant_endpoint(
        &self,
        request: Request<GetMerchantEndpointRequest>,
    ) -> Result<Response<MerchantEndpoint>, Status> {
        let merchant_id = parse("merchant_id", &request.get_ref().merchant_id)?;
        let open = self.0.get_endpoint(merchant_id).await?;
        Ok(Response::new(open.endpoint.into()))
    }

    async fn test_endpoint(
        &self,
        request: Request<TestEndpointRequest>,
    ) -> Result<Response<TestEndpointResponse>, Status> {
        let merchant_id = parse("merchant_id", &request.get_ref().merchant_id)?;
        let event_id = self.0.test_endpoint(merchant_id).await?;
        Ok(Response::new(TestEndpointResponse {
            event_id: event_id.to_string(),
        }))
    }
}

impl From<FeedEvent> for wire::FeedEvent {
    fn from(event: FeedEvent) -> Self {
        Self {
            sequence: u64::try_from(event.sequence).unwrap_or_default(),
            event_id: event.event_id.to_string(),
            body: event.body,
        }
    }
}

impl From<EventDelivery> for wire::EventDelivery {
    fn from(event: EventDelivery) -> Self {
        let delivery = event.delivery.map(|(delivery, attempts)| wire::Delivery {
            attempts: attempts.into_iter().map(Into::into).collect(),
            ..delivery.into()
        });
        Self {
            event_id: event.event_id.to_string(),
            r#type: stored_event_type(&event.event_type).into(),
            created_at: event.created_at.to_string(),
            delivery,
        }
    }
}

impl From<Endpoint> for MerchantEndpoint {
    fn from(endpoint: Endpoint) -> Self {
        Self {
            events: event_types(&endpoint.events),
            url: endpoint.url,
            enabled: endpoint.enabled,
            exhausted_since: endpoint.exhausted_since.map(|since| since.to_string()),
            created_at: endpoint.created_at.to_string(),
            updated_at: endpoint.updated_at.to_string(),
        }
    }
}
