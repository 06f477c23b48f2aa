//! What operators do with endpoints and deliveries.

use chassis::{ids::DeliveryId, page::TOKEN_FAULT};
use proto::webhooks::{
    self as wire, Endpoint as ProtoEndpoint, GetDeliveryRequest, GetEndpointRequest,
    ListDeliveriesRequest, ListDeliveriesResponse, RedeliverRequest, RotateSecretRequest,
    SetEndpointEnabledRequest, SetEndpointRequest, webhook_operations_server::WebhookOperations,
};
use tonic::{Request, Response, Status};

use super::{Grpc, event_types_wanted, invalid, page_size, parse};
use crate::error::Error;

#[tonic::async_trait]
impl WebhookOperations for Grpc {
    async fn set_endpoint(
        &self,
        request: Request<SetEndpointRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        let request = request.into_inner();
        let merchant_id = parse("merchant_id", &request.merchant_id)?;
        let events = event_types_wanted(request.events)?;
        let endpoint = self
            .0
            .set_endpoint(merchant_id, &request.url, events)
            .await?;
        Ok(Response::new(endpoint.into()))
    }

    async fn get_endpoint(
        &self,
        request: Request<GetEndpointRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        let merchant_id = request.get_ref().merchant_id.parse();
        let merchant_id = merchant_id.map_err(|_| Error::EndpointNotFound)?;
        Ok(Response::new(
            self.0.get_endpoint(merchant_id).await?.into(),
        ))
    }

    async fn rotate_secret(
        &self,
        request: Request<RotateSecretRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        let merchant_id = request.get_ref().merchant_id.parse();
        let merchant_id = merchant_id.map_err(|_| Error::EndpointNotFound)?;
        Ok(Response::new(
            self.0.rotate_secret(merchant_id, None).await?.into(),
        ))
    }

    async fn set_endpoint_enabled(
        &self,
        request: Request<SetEndpointEnabledRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        let request = request.get_ref();
        let merchant_id = request.merchant_id.parse();
        let merchant_id = merchant_id.map_err(|_| Error::EndpointNotFound)?;
        let endpoint = self
            .0
            .set_endpoint_enabled(merchant_id, request.enabled)
            .await?;
        Ok(Response::new(endpoint.into()))
    }

    async fn list_deliveries(
        &self,
        request: Request<ListDeliveriesRequest>,
    ) -> Result<Response<ListDeliveriesResponse>, Status> {
        let request = request.into_inner();
        let merchant_id = parse("merchant_id", &request.merchant_id)?;
        let page_size = page_size(request.page_size)?;
        let before: Option<DeliveryId> = match request.page_token.as_str() {
            "" => None,
            token => Some(
                token
                    .parse()
                    .map_err(|_| invalid("page_token", TOKEN_FAULT))?,
            ),
        };
        // One more than requested tells whether this is the last page.
        let mut found = self
            .0
            .list_deliveries(merchant_id, before, page_size + 1)
            .await?;
        let size = usize::try_from(page_size).unwrap_or(usize::MAX);
        let is_last = found.len() <= size;
        found.truncate(size);
        let next = found.last().filter(|_| !is_last);
        Ok(Response::new(ListDeliveriesResponse {
            next_page_token: next.map_or_else(String::new, |last| last.delivery_id.to_string()),
            deliveries: found.into_iter().map(wire::Delivery::from).collect(),
        }))
    }

    async fn get_delivery(
        &self,
        request: Request<GetDeliveryRequest>,
    ) -> Result<Response<wire::Delivery>, Status> {
        let id = request.get_ref().delivery_id.parse();
        let id = id.map_err(|_| Error::DeliveryNotFound)?;
        let (delivery, attempts) = self.0.get_delivery(&id).await?;
        Ok(Response::new(wire::Delivery {
            attempts: attempts.into_iter().map(wire::Attempt::from).collect(),
            ..delivery.into()
        }))
    }

    async fn redeliver(
        &self,
        request: Request<RedeliverRequest>,
    ) -> Result<Response<wire::Delivery>, Status> {
        let id = request.get_ref().delivery_id.parse();
        let id = id.map_err(|_| Error::DeliveryNotFound)?;
        Ok(Response::new(self.0.redeliver(&id).await?.into()))
    }
}
