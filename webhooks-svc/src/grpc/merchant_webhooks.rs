//! The calls for the people of a merchant: each is about the merchant that it names, and of nobody
//! else.

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EventId, MerchantId},
    page::{PageAsked, PageRequest},
};
use proto::webhooks::{
    self as wire, ConformanceRun, CountExhaustedRequest, CountExhaustedResponse,
    CreateConformanceRunRequest, DiagnoseSignatureRequest, EndpointHealth, EndpointSecrets,
    GetConformanceRunRequest, GetEndpointHealthRequest, GetMerchantDeliveryRequest,
    GetReplayRequest, ListMerchantDeliveriesRequest, ListMerchantDeliveriesResponse,
    ListReplaysRequest, ListReplaysResponse, MerchantDelivery, MerchantEndpoint,
    RedeliverMerchantDeliveryRequest, RevealSecretsRequest, RotateMerchantSecretRequest,
    SendTestRequest, SendTestResponse, SetMerchantEndpointEnabledRequest,
    SetMerchantEndpointRequest, SignatureDiagnosis, StartConformanceRunRequest, StartReplayRequest,
    merchant_webhooks_server::MerchantWebhooks,
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{Grpc, event_types_wanted, invalid, parse, parse_event_type};
use crate::{
    delivery, error::Error, replaying::COUNTED_MAX, store::listing::AnswerClass,
    store::listing::WantedDeliveries,
};

/// Most events whose deliveries one call may ask for.
const EVENTS_ASKED_MAX: usize = 100;

/// Longest pasted header, and largest pasted body: as much as the receivers of the guide take.
const HEADER_CHARACTERS_MAX: usize = 2_000;
const BODY_BYTES_MAX: usize = 64 * 1_024;

chassis::proto_list! {
    AnswerClass = wire::AnswerClass { None, Http2xx, Http3xx, Http4xx, Http5xx }
}

#[tonic::async_trait]
impl MerchantWebhooks for Grpc {
    async fn get_endpoint_health(
        &self,
        request: Request<GetEndpointHealthRequest>,
    ) -> Result<Response<EndpointHealth>, Status> {
        let merchant_id = merchant_id(&request.get_ref().merchant_id)?;
        let health = self.0.endpoint_health(merchant_id).await?;
        Ok(Response::new(health.into()))
    }

    async fn set_merchant_endpoint(
        &self,
        request: Request<SetMerchantEndpointRequest>,
    ) -> Result<Response<MerchantEndpoint>, Status> {
        let request = request.into_inner();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let events = event_types_wanted(request.events)?;
        let set = self
            .0
            .set_endpoint(merchant_id, &request.url, events)
            .await?;
        Ok(Response::new(set.endpoint.into()))
    }

    async fn set_merchant_endpoint_enabled(
        &self,
        request: Request<SetMerchantEndpointEnabledRequest>,
    ) -> Result<Response<MerchantEndpoint>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let set = self
            .0
            .set_endpoint_enabled(merchant_id, request.enabled)
            .await?;
        Ok(Response::new(set.endpoint.into()))
    }

    async fn reveal_secrets(
        &self,
        request: Request<RevealSecretsRequest>,
    ) -> Result<Response<EndpointSecrets>, Status> {
        let merchant_id = merchant_id(&request.get_ref().merchant_id)?;
        let open = self.0.get_endpoint(merchant_id).await?;
        Ok(Response::new(open.into()))
    }

    async fn rotate_merchant_secret(
        &self,
        request: Request<RotateMerchantSecretRequest>,
    ) -> Result<Response<EndpointSecrets>, Status> {
        let request = request.into_inner();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let seen = match request.updated_at.as_str() {
            "" => None,
            // What is no time was never the endpoint's.
            seen => Some(seen.parse().map_err(|_| Error::FormUsed)?),
        };
        let open = self.0.rotate_secret(merchant_id, seen).await?;
        Ok(Response::new(open.into()))
    }

    async fn list_merchant_deliveries(
        &self,
        request: Request<ListMerchantDeliveriesRequest>,
    ) -> Result<Response<ListMerchantDeliveriesResponse>, Status> {
        let request = request.into_inner();
        let wanted = wanted(&request)?;
        let asked = PageAsked {
            size: request.page_size,
            token: &request.page_token,
            from: &request.from,
            to: &request.to,
        };
        let asked: PageRequest<String> = asked
            .parse(|id: DeliveryId| id.to_string())
            .map_err(|fault| invalid(fault.field, fault.message))?;
        let page = match request.event_ids.as_slice() {
            [] => self.0.list_merchant_deliveries(wanted, asked).await?,
            ids => {
                let ids = event_ids(ids)?;
                self.0
                    .list_deliveries_of_events(&wanted, &asked, &ids)
                    .await?
            }
        };
        Ok(Response::new(ListMerchantDeliveriesResponse {
            deliveries: page.rows.into_iter().map(wire::Delivery::from).collect(),
            next_page_token: page.next.map_or_else(String::new, |next| next.to_string()),
        }))
    }

    async fn get_merchant_delivery(
        &self,
        request: Request<GetMerchantDeliveryRequest>,
    ) -> Result<Response<MerchantDelivery>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let id = delivery_id(&request.delivery_id)?;
        let (whole, attempts) = self.0.get_merchant_delivery(merchant_id, &id).await?;
        Ok(Response::new(super::shown::whole_delivery(whole, attempts)))
    }

    async fn redeliver_merchant_delivery(
        &self,
        request: Request<RedeliverMerchantDeliveryRequest>,
    ) -> Result<Response<wire::Delivery>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let id = delivery_id(&request.delivery_id)?;
        let delivery = self.0.redeliver_of_merchant(merchant_id, &id).await?;
        Ok(Response::new(delivery.into()))
    }

    async fn count_exhausted(
        &self,
        request: Request<CountExhaustedRequest>,
    ) -> Result<Response<CountExhaustedResponse>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let since = since(&request.since)?;
        let count = self.0.count_exhausted(merchant_id, since).await?;
        Ok(Response::new(CountExhaustedResponse {
            count: super::count(count.min(COUNTED_MAX)),
            is_more: count > COUNTED_MAX,
        }))
    }

    async fn start_replay(
        &self,
        request: Request<StartReplayRequest>,
    ) -> Result<Response<wire::Replay>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let since = since(&request.since)?;
        let nonce = parse("nonce", &request.nonce)?;
        let replay = self.0.start_replay(merchant_id, since, nonce).await?;
        Ok(Response::new(replay.into()))
    }

    async fn get_replay(
        &self,
        request: Request<GetReplayRequest>,
    ) -> Result<Response<wire::Replay>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let id = request.replay_id.parse();
        let id = id.map_err(|_| Error::ReplayNotFound)?;
        let replay = self.0.get_replay(merchant_id, id).await?;
        Ok(Response::new(replay.into()))
    }

    async fn list_replays(
        &self,
        request: Request<ListReplaysRequest>,
    ) -> Result<Response<ListReplaysResponse>, Status> {
        let merchant_id = merchant_id(&request.get_ref().merchant_id)?;
        let replays = self.0.list_replays(merchant_id).await?;
        Ok(Response::new(ListReplaysResponse {
            replays: replays.into_iter().map(wire::Replay::from).collect(),
        }))
    }

    async fn send_test(
        &self,
        request: Request<SendTestRequest>,
    ) -> Result<Response<SendTestResponse>, Status> {
        let merchant_id = merchant_id(&request.get_ref().merchant_id)?;
        let trial = self.0.send_test(merchant_id).await?;
        Ok(Response::new(trial.into()))
    }

    async fn diagnose_signature(
        &self,
        request: Request<DiagnoseSignatureRequest>,
    ) -> Result<Response<SignatureDiagnosis>, Status> {
        let request = request.into_inner();
        let merchant_id = merchant_id(&request.merchant_id)?;
        if request.header.chars().count() > HEADER_CHARACTERS_MAX {
            return Err(invalid("header", "must be at most 2000 characters").into());
        }
        if request.body.len() > BODY_BYTES_MAX {
            return Err(invalid("body", "must be at most 64 KiB").into());
        }
        let event_id = match request.event_id.trim() {
            "" => None,
            id => Some(parse("event_id", id)?),
        };
        let (diagnosis, said) = self
            .0
            .diagnose(merchant_id, &request.header, &request.body, event_id)
            .await?;
        Ok(Response::new(super::shown::diagnosis(&diagnosis, said)))
    }

    async fn create_conformance_run(
        &self,
        request: Request<CreateConformanceRunRequest>,
    ) -> Result<Response<ConformanceRun>, Status> {
        let merchant_id = merchant_id(&request.get_ref().merchant_id)?;
        let run = self.0.create_conformance_run(merchant_id).await?;
        Ok(Response::new(run.into()))
    }

    async fn start_conformance_run(
        &self,
        request: Request<StartConformanceRunRequest>,
    ) -> Result<Response<ConformanceRun>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let id = run_id(&request.run_id)?;
        let run = self
            .0
            .start_conformance_run(merchant_id, id, &request.url)
            .await?;
        Ok(Response::new(run.into()))
    }

    async fn get_conformance_run(
        &self,
        request: Request<GetConformanceRunRequest>,
    ) -> Result<Response<ConformanceRun>, Status> {
        let request = request.get_ref();
        let merchant_id = merchant_id(&request.merchant_id)?;
        let id = run_id(&request.run_id)?;
        let run = self.0.get_conformance_run(merchant_id, id).await?;
        Ok(Response::new(run.into()))
    }
}

fn merchant_id(text: &str) -> Result<MerchantId, Error> {
    parse("merchant_id", text)
}

fn delivery_id(text: &str) -> Result<DeliveryId, Error> {
    text.parse().map_err(|_| Error::DeliveryNotFound)
}

fn run_id(text: &str) -> Result<Uuid, Error> {
    text.parse().map_err(|_| Error::ConformanceNotFound)
}

fn since(text: &str) -> Result<Timestamp, Error> {
    let since: Option<Timestamp> = text.parse().ok();
    let since = since.filter(|since| since.is_recordable());
    since.ok_or(invalid("since", "must be a time from 1970 on"))
}

fn event_ids(texts: &[String]) -> Result<Vec<EventId>, Error> {
    if texts.len() > EVENTS_ASKED_MAX {
        return Err(invalid("event_ids", "must be at most 100"));
    }
    texts.iter().map(|id| parse("event_ids", id)).collect()
}

/// UNSPECIFIED stands for any.
fn wanted(request: &ListMerchantDeliveriesRequest) -> Result<WantedDeliveries, Error> {
    let event_type = match request.event_type {
        0 => None,
        known => Some(
            parse_event_type(known).map_err(|_| invalid("event_type", "must be an event type"))?,
        ),
    };
    let status = match request.status {
        0 => None,
        known => {
            let known = wire::DeliveryStatus::try_from(known).unwrap_or_default();
            let known = delivery::Status::try_from(known);
            Some(known.map_err(|_| invalid("status", "must be a delivery's status"))?)
        }
    };
    let answer = match request.answer {
        0 => None,
        known => {
            let known = wire::AnswerClass::try_from(known).unwrap_or_default();
            let known = AnswerClass::try_from(known);
            Some(known.map_err(|_| invalid("answer", "must be an answer's class"))?)
        }
    };
    Ok(WantedDeliveries {
        merchant_id: merchant_id(&request.merchant_id)?,
        event_type,
        status,
        answer,
    })
}
