//! `payctl webhook`.

use anyhow::anyhow;
use chassis::limits::PAGE_SIZE_MAX;
use clap::Subcommand;
use proto::webhooks::{
    Attempt, Delivery, Endpoint, EventType, GetDeliveryRequest, GetEndpointRequest,
    ListDeliveriesRequest, RedeliverRequest, RotateSecretRequest, SetEndpointEnabledRequest,
    SetEndpointRequest, webhook_operations_client::WebhookOperationsClient,
};
use serde_json::{Value, json};

use crate::services::{Failure, Services, refusal};

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Sets a merchant's endpoint. An existing signing secret is kept.
    Set {
        /// The merchant's id.
        merchant_id: String,
        #[arg(long)]
        url: String,
        /// Event types, separated by commas. Without it, the four of the specification.
        #[arg(long, value_delimiter = ',')]
        events: Vec<String>,
    },
    /// Shows a merchant's endpoint.
    Show {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Creates a new signing secret. For a while, the old one signs as well.
    Rotate {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Stops deliveries to the endpoint; they wait.
    Disable {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Resumes deliveries to the endpoint, with those that waited.
    Enable {
        /// The merchant's id.
        merchant_id: String,
    },
    /// Lists a merchant's deliveries, newest first.
    Deliveries {
        /// The merchant's id.
        merchant_id: String,
        /// Most deliveries to list.
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
    },
    /// Shows a delivery with every attempt.
    Delivery {
        /// The delivery's id.
        delivery_id: String,
    },
    /// Sends a delivery's event again, at once.
    Redeliver {
        /// The delivery's id.
        delivery_id: String,
    },
}

pub async fn run(services: &Services, command: WebhookCommand) -> Result<Value, Failure> {
    let mut webhooks = WebhookOperationsClient::new(services.webhooks()?);
    let endpoint = match command {
        WebhookCommand::Set {
            merchant_id,
            url,
            events,
        } => {
            let events = events.iter().map(|name| event_type(name).map(i32::from));
            let events = events.collect::<Result<_, _>>()?;
            let request = SetEndpointRequest {
                merchant_id,
                url,
                events,
            };
            webhooks.set_endpoint(request).await
        }
        WebhookCommand::Show { merchant_id } => {
            webhooks
                .get_endpoint(GetEndpointRequest { merchant_id })
                .await
        }
        WebhookCommand::Rotate { merchant_id } => {
            webhooks
                .rotate_secret(RotateSecretRequest { merchant_id })
                .await
        }
        WebhookCommand::Disable { merchant_id } => {
            let request = SetEndpointEnabledRequest {
                merchant_id,
                enabled: false,
            };
            webhooks.set_endpoint_enabled(request).await
        }
        WebhookCommand::Enable { merchant_id } => {
            let request = SetEndpointEnabledRequest {
                merchant_id,
                enabled: true,
            };
            webhooks.set_endpoint_enabled(request).await
        }
        WebhookCommand::Deliveries { merchant_id, limit } => {
            return deliveries(services, merchant_id, limit).await;
        }
        WebhookCommand::Delivery { delivery_id } => {
            let answer = webhooks
                .get_delivery(GetDeliveryRequest { delivery_id })
                .await;
            return Ok(delivery_json(answer.map_err(refusal)?.into_inner()));
        }
        WebhookCommand::Redeliver { delivery_id } => {
            let answer = webhooks.redeliver(RedeliverRequest { delivery_id }).await;
            return Ok(delivery_json(answer.map_err(refusal)?.into_inner()));
        }
    };
    Ok(endpoint_json(endpoint.map_err(refusal)?.into_inner()))
}

async fn deliveries(
    services: &Services,
    merchant_id: String,
    limit: usize,
) -> Result<Value, Failure> {
    let mut webhooks = WebhookOperationsClient::new(services.webhooks()?);
    let mut listed = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListDeliveriesRequest {
            merchant_id: merchant_id.clone(),
            page_size: PAGE_SIZE_MAX,
            page_token,
        };
        let page = webhooks
            .list_deliveries(request)
            .await
            .map_err(refusal)?
            .into_inner();
        listed.extend(page.deliveries.into_iter().map(delivery_json));
        page_token = page.next_page_token;
        if page_token.is_empty() || listed.len() >= limit {
            listed.truncate(limit);
            return Ok(listed.into());
        }
    }
}

pub fn event_type(name: &str) -> Result<EventType, Failure> {
    EventType::from_name(name.trim()).ok_or_else(|| {
        let known: Vec<_> = EventType::all().filter_map(EventType::name).collect();
        anyhow!(
            "{name} is not an event type; there are {}",
            known.join(", ")
        )
    })
}

fn endpoint_json(endpoint: Endpoint) -> Value {
    let events: Value = endpoint.events().map(EventType::name).collect();
    json!({
        "endpoint_id": endpoint.endpoint_id,
        "merchant_id": endpoint.merchant_id,
        "url": endpoint.url,
        "events": events,
        "enabled": endpoint.enabled,
        "signing_secret": endpoint.signing_secret,
        "previous_signing_secret": endpoint.previous_signing_secret,
        "exhausted_since": endpoint.exhausted_since,
        "created_at": endpoint.created_at,
        "updated_at": endpoint.updated_at,
    })
}

fn delivery_json(delivery: Delivery) -> Value {
    let mut shown = json!({
        "delivery_id": delivery.delivery_id,
        "merchant_id": delivery.merchant_id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type().name(),
        "status": delivery.status().code(),
        "attempts_count": delivery.attempts_count,
        "next_attempt_at": delivery.next_attempt_at,
        "created_at": delivery.created_at,
    });
    if !delivery.attempts.is_empty() {
        shown["attempts"] = delivery.attempts.into_iter().map(attempt_json).collect();
    }
    shown
}

fn attempt_json(attempt: Attempt) -> Value {
    json!({
        "number": attempt.number,
        "manual": attempt.manual,
        "started_at": attempt.started_at,
        "finished_at": attempt.finished_at,
        "succeeded": attempt.succeeded,
        "http_status": attempt.http_status,
        "error": attempt.error,
        "duration_ms": attempt.duration_ms,
        "response_excerpt": attempt.response_excerpt,
    })
}
