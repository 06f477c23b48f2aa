//! A stand-in for webhooks-svc that records what is published.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use chassis::testing::ServedService;
use proto::webhooks::{
    Delivery, Endpoint, GetDeliveryRequest, GetEndpointRequest, ListDeliveriesRequest,
    ListDeliveriesResponse, PublishRequest, PublishResponse, RedeliverRequest, RotateSecretRequest,
    SetEndpointEnabledRequest, SetEndpointRequest,
    webhooks_server::{Webhooks as WebhooksService, WebhooksServer},
};
use tonic::{Request, Response, Status, service::Routes};

pub struct Webhooks {
    pub url: String,
    receiver: Receiver,
    _service: ServedService,
}

#[derive(Clone, Default)]
struct Receiver {
    taken: Arc<Mutex<Vec<PublishRequest>>>,
    /// Events are recorded, but their acknowledgements are lost.
    mute: Arc<AtomicBool>,
}

impl Webhooks {
    pub async fn start() -> Self {
        let receiver = Receiver::default();
        let routes = Routes::new(WebhooksServer::new(receiver.clone()));
        let service = ServedService::of(routes).await;
        Self {
            url: service.url(),
            receiver,
            _service: service,
        }
    }

    /// Every publication so far, in order of arrival, repetitions included.
    pub fn taken(&self) -> Vec<PublishRequest> {
        self.receiver.taken.lock().unwrap().clone()
    }

    pub fn set_mute(&self, mute: bool) {
        self.receiver.mute.store(mute, Ordering::SeqCst);
    }
}

#[tonic::async_trait]
impl WebhooksService for Receiver {
    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        self.taken.lock().unwrap().push(request.into_inner());
        if self.mute.load(Ordering::SeqCst) {
            return Err(Status::unavailable("the connection broke"));
        }
        Ok(Response::new(PublishResponse {}))
    }

    async fn set_endpoint(
        &self,
        _: Request<SetEndpointRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_endpoint(
        &self,
        _: Request<GetEndpointRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn rotate_secret(
        &self,
        _: Request<RotateSecretRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn set_endpoint_enabled(
        &self,
        _: Request<SetEndpointEnabledRequest>,
    ) -> Result<Response<Endpoint>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list_deliveries(
        &self,
        _: Request<ListDeliveriesRequest>,
    ) -> Result<Response<ListDeliveriesResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_delivery(
        &self,
        _: Request<GetDeliveryRequest>,
    ) -> Result<Response<Delivery>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn redeliver(&self, _: Request<RedeliverRequest>) -> Result<Response<Delivery>, Status> {
        Err(Status::unimplemented(""))
    }
}
