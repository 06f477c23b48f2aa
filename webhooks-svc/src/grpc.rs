//! The calls: proto to domain and back, nothing else.

mod merchant_events;
mod merchant_webhooks;
mod operations;
mod shown;

use std::{borrow::Cow, str::FromStr};

use chassis::{
    closed_list::{UnknownCode, count_unknown},
    grpc::{BatchedMethods, moved_to_operators},
    money::Money,
    page,
};
use proto::{
    batched::Publish,
    webhooks::{
        self as wire, Endpoint as ProtoEndpoint, GetDeliveryRequest, GetEndpointRequest,
        ListDeliveriesRequest, ListDeliveriesResponse, PublishRequest, PublishResponse,
        RedeliverRequest, RotateSecretRequest, SetEndpointEnabledRequest, SetEndpointRequest,
        webhooks_server::Webhooks,
    },
};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};

use crate::{
    delivery::{self, Attempt, Cause, Delivery},
    endpoint::Subscription,
    error::Error,
    event::{Data, Destination, Event, EventType, Number, Payment, Payout, Refund},
    service::{OpenEndpoint, Service},
};

chassis::proto_list! {
    delivery::Status = wire::DeliveryStatus { Pending, Delivered, Exhausted }
}

chassis::proto_list! {
    EventType = wire::EventType {
        PaymentSuccess, PaymentFailed, PayoutSuccess, PayoutFailed, RefundSuccess, RefundFailed,
        EndpointTest,
    }
}

chassis::proto_list! {
    Cause = wire::FailureCause {
        Status, Timeout, Dns, Address, Refused, Tls, Connection, Unsigned, Interrupted,
    }
}

/// The service, as it is called.
pub struct Grpc(pub Service);

/// What may be called by batches.
pub fn batched(service: &Service) -> BatchedMethods {
    let service = service.clone();
    BatchedMethods::default().method::<Publish, _>(move |request| {
        let service = service.clone();
        async move { publish(&service, request).await }
    })
}

async fn publish(service: &Service, request: PublishRequest) -> Result<PublishResponse, Status> {
    service.publish(parse_event(request)?).await?;
    Ok(PublishResponse {})
}

#[tonic::async_trait]
impl Webhooks for Grpc {
    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        let published = publish(&self.0, request.into_inner()).await;
        published.map(Response::new)
    }

    async fn set_endpoint(
        &self,
        _: Request<SetEndpointRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        Err(moved_to_operators())
    }

    async fn get_endpoint(
        &self,
        _: Request<GetEndpointRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        Err(moved_to_operators())
    }

    async fn rotate_secret(
        &self,
        _: Request<RotateSecretRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        Err(moved_to_operators())
    }

    async fn set_endpoint_enabled(
        &self,
        _: Request<SetEndpointEnabledRequest>,
    ) -> Result<Response<ProtoEndpoint>, Status> {
        Err(moved_to_operators())
    }

    async fn list_deliveries(
        &self,
        _: Request<ListDeliveriesRequest>,
    ) -> Result<Response<ListDeliveriesResponse>, Status> {
        Err(moved_to_operators())
    }

    async fn get_delivery(
        &self,
        _: Request<GetDeliveryRequest>,
    ) -> Result<Response<wire::Delivery>, Status> {
        Err(moved_to_operators())
    }

    async fn redeliver(
        &self,
        _: Request<RedeliverRequest>,
    ) -> Result<Response<wire::Delivery>, Status> {
        Err(moved_to_operators())
    }
}

fn invalid(field: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
    let message = message.into();
    Error::Invalid { field, message }
}

/// How many entries a page may have that is asked for like this.
fn page_size(asked: u32) -> Result<u32, Error> {
    page::size(asked).map_err(|fault| invalid(fault.field, fault.message))
}

fn parse<T: FromStr>(field: &'static str, text: &str) -> Result<T, Error> {
    text.parse()
        .map_err(|_| invalid(field, "is not of the right form"))
}

fn event_types_wanted(types: Vec<i32>) -> Result<Subscription, Error> {
    let types: Result<_, _> = types.into_iter().map(parse_event_type).collect();
    let types = types.map_err(|_| invalid("events", "must be event types"))?;
    Ok(Subscription::new(types))
}

fn parse_event_type(event_type: i32) -> Result<EventType, UnknownCode> {
    let event_type = wire::EventType::try_from(event_type).unwrap_or_default();
    EventType::try_from(event_type)
}

/// UNSPECIFIED stands for a type that only a newer version knows.
fn stored_event_type(code: &str) -> wire::EventType {
    let known: Result<EventType, _> = code.parse();
    known.map_or_else(
        |_| {
            count_unknown("event_type");
            wire::EventType::Unspecified
        },
        Into::into,
    )
}

/// UNSPECIFIED stands for none, and for one that is not known: an older version recorded only a
/// status, and a newer one may know others.
fn stored_cause(
    code: Option<&str>,
    succeeded: bool,
    http_status: Option<i64>,
) -> wire::FailureCause {
    match code {
        None if !succeeded && http_status.is_some() => wire::FailureCause::Status,
        None => wire::FailureCause::Unspecified,
        Some(code) => code.parse().map_or_else(
            |_| {
                count_unknown("cause");
                wire::FailureCause::Unspecified
            },
            |cause: Cause| cause.into(),
        ),
    }
}

fn parse_event(request: PublishRequest) -> Result<Event, Error> {
    let event_type = parse_event_type(request.r#type);
    let event_type = event_type.map_err(|_| invalid("type", "must be an event type"))?;
    Ok(Event {
        event_id: parse("event_id", &request.event_id)?,
        merchant_id: parse("merchant_id", &request.merchant_id)?,
        event_type,
        created_at: parse("created_at", &request.created_at)?,
        data: parse_data(event_type, request.data)?,
    })
}

fn parse_data(
    event_type: EventType,
    data: Option<wire::publish_request::Data>,
) -> Result<Data, Error> {
    use wire::publish_request::Data as Wire;
    let wrong = || Err(invalid("data", "must be what events of this type carry"));
    match event_type {
        EventType::PaymentSuccess | EventType::PaymentFailed => match data {
            Some(Wire::Payment(payment)) => parse_payment(payment).map(Data::Payment),
            Some(Wire::Payout(_) | Wire::Refund(_)) | None => wrong(),
        },
        EventType::PayoutSuccess | EventType::PayoutFailed => match data {
            Some(Wire::Payout(payout)) => parse_payout(payout).map(Data::Payout),
            Some(Wire::Payment(_) | Wire::Refund(_)) | None => wrong(),
        },
        EventType::RefundSuccess | EventType::RefundFailed => match data {
            Some(Wire::Refund(refund)) => parse_refund(refund).map(Data::Refund),
            Some(Wire::Payment(_) | Wire::Payout(_)) | None => wrong(),
        },
        // It is made here.
        EventType::EndpointTest => wrong(),
    }
}

fn parse_payment(payment: wire::Payment) -> Result<Payment, Error> {
    let amount = parse_money("payment.amount", payment.amount.as_ref())?;
    let settled = payment.settled.as_ref();
    let settled = settled
        .map(|settled| parse_money("payment.settled", Some(settled)))
        .transpose()?;
    let rate = payment.rate.as_deref();
    Ok(Payment {
        tx_id_display: payment.tx_id_display,
        session_id: payment.session_id,
        amount: amount.into(),
        currency: amount.currency().code(),
        method: payment.method,
        status: payment.status,
        failure_reason: payment.failure_reason,
        failure_message: payment.failure_message,
        session_status: payment.session_status,
        settled_amount: settled.map(Number::from),
        settled_currency: settled.map(|settled| settled.currency().code()),
        rate: rate.map(|rate| parse("payment.rate", rate)).transpose()?,
    })
}

fn parse_refund(refund: wire::Refund) -> Result<Refund, Error> {
    let amount = parse_money("refund.amount", refund.amount.as_ref())?;
    Ok(Refund {
        refund_id: refund.refund_id,
        reference: refund.reference,
        tx_id_display: refund.tx_id_display,
        session_id: refund.session_id,
        amount: amount.into(),
        currency: amount.currency().code(),
        method: refund.method,
        status: refund.status,
        failure_reason: refund.failure_reason,
        failure_message: refund.failure_message,
        created_at: refund.created_at,
        completed_at: refund.completed_at,
        from_balance: !refund.from_suspense,
    })
}

fn parse_payout(payout: wire::Payout) -> Result<Payout, Error> {
    let amount = parse_money("payout.amount", payout.amount.as_ref())?;
    Ok(Payout {
        payout_id: payout.payout_id,
        amount: amount.into(),
        currency: amount.currency().code(),
        method: payout.method,
        status: payout.status,
        destination: Destination {
            kind: payout.destination_type,
            provider: payout.destination_provider,
            account: payout.destination_account,
        },
        failure_reason: payout.failure_reason,
        created_at: payout.created_at,
        completed_at: payout.completed_at,
    })
}

fn parse_money(field: &'static str, money: Option<&proto::money::Money>) -> Result<Money, Error> {
    let money = money.and_then(|money| Money::try_from(money).ok());
    money.ok_or(invalid(field, "must be an amount and its currency"))
}

/// UNSPECIFIED stands for types that only a newer version knows.
fn event_types(events: &Subscription) -> Vec<i32> {
    let types = events.types();
    types
        .map(|known| {
            known
                .map_or(wire::EventType::Unspecified, Into::into)
                .into()
        })
        .collect()
}

impl From<OpenEndpoint> for ProtoEndpoint {
    fn from(open: OpenEndpoint) -> Self {
        let OpenEndpoint { endpoint, secrets } = open;
        Self {
            events: event_types(&endpoint.events),
            endpoint_id: endpoint.endpoint_id.to_string(),
            merchant_id: endpoint.merchant_id.to_string(),
            url: endpoint.url,
            enabled: endpoint.enabled,
            signing_secret: secrets.current.expose_secret().to_owned(),
            previous_signing_secret: secrets
                .previous
                .map(|previous| previous.expose_secret().to_owned()),
            exhausted_since: endpoint.exhausted_since.map(|since| since.to_string()),
            created_at: endpoint.created_at.to_string(),
            updated_at: endpoint.updated_at.to_string(),
        }
    }
}

impl From<Delivery> for wire::Delivery {
    fn from(delivery: Delivery) -> Self {
        Self {
            delivery_id: delivery.delivery_id.to_string(),
            merchant_id: delivery.merchant_id.to_string(),
            event_id: delivery.event_id.to_string(),
            event_type: stored_event_type(&delivery.event_type).into(),
            status: wire::DeliveryStatus::from(delivery.status).into(),
            attempts_count: count(delivery.attempts_count),
            next_attempt_at: delivery.next_attempt_at.map(|at| at.to_string()),
            created_at: delivery.created_at.to_string(),
            ..Self::default()
        }
    }
}

impl From<Attempt> for wire::Attempt {
    fn from(attempt: Attempt) -> Self {
        Self {
            number: count(attempt.number),
            manual: attempt.manual,
            started_at: attempt.started_at.to_string(),
            finished_at: attempt.finished_at.map(|at| at.to_string()),
            succeeded: attempt.succeeded,
            http_status: attempt.http_status.map(count),
            error: attempt.error,
            duration_ms: count(attempt.duration_ms),
            response_excerpt: attempt.response_excerpt,
            cause: stored_cause(
                attempt.cause.as_deref(),
                attempt.succeeded,
                attempt.http_status,
            )
            .into(),
        }
    }
}

/// A count that the database holds as bigint.
fn count(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_contract() {
        for status in delivery::Status::ALL {
            let sent = wire::DeliveryStatus::from(*status);
            assert_eq!(sent.code(), Some(status.code()));
        }
        for event_type in EventType::ALL {
            let sent = wire::EventType::from(*event_type);
            assert_eq!(sent.name().as_deref(), Some(event_type.code()));
        }
    }
}
