//! The feed of events: a reader of each merchant's, who pulls by `after` while everything is killed,
//! and a webhook endpoint that mostly fails meanwhile.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::http::StatusCode;
use anyhow::Context as _;
use axum::{Router, extract::State, routing::post};
use chassis::{
    error_chain::chain,
    grpc::Channel,
    http,
    shutdown::{Shutdown, Tasks},
};
use proto::webhooks::{
    EventType, ListEventsRequest, SetEndpointRequest, merchant_events_client::MerchantEventsClient,
    webhook_operations_client::WebhookOperationsClient,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{net::TcpListener, time::sleep};

use super::{choices::Choices, world::World};
use crate::grpc;

/// How many times in a hundred the endpoint refuses a delivery, and does not answer it in time.
const REFUSES: u64 = 50;
const HANGS: u64 = 5;

/// Longer than WEBHOOK_TIMEOUT.
const HANGS_FOR: Duration = Duration::from_secs(15);

/// How long a reader waits for the next event at the service.
const WAIT_SECONDS: u32 = 2;

/// Before a reader whose call failed calls again.
const CALL_AGAIN: Duration = Duration::from_millis(50);

const PAGE: u32 = 100;

/// An endpoint that runs until it is dropped.
pub struct Endpoint {
    url: String,
    counts: Arc<Counts>,
    shutdown: Shutdown,
}

#[derive(Default)]
struct Counts {
    seed: u64,
    received: AtomicU64,
    refused: AtomicU64,
}

impl Endpoint {
    pub async fn start(seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let counts = Arc::new(Counts {
            seed,
            ..Counts::default()
        });
        let router = Router::new()
            .route("/", post(receive))
            .with_state(counts.clone());
        let shutdown = Shutdown::new();
        let served = http::serve(router, listener, http::Limits::default(), shutdown.clone());
        Tasks::new().spawn(async {
            if let Err(error) = served.await {
                eprintln!("the receiver failed: {}", chain(error.as_ref()));
            }
        });
        Ok(Self {
            url,
            counts,
            shutdown,
        })
    }

    /// Makes it the endpoint of every merchant, for every type of event.
    pub async fn set(&self, operators_url: &str, world: &World) -> anyhow::Result<()> {
        let mut webhooks = WebhookOperationsClient::new(grpc::connect(operators_url)?);
        let events = [
            EventType::PaymentSuccess,
            EventType::PaymentFailed,
            EventType::PayoutSuccess,
            EventType::PayoutFailed,
            EventType::RefundSuccess,
            EventType::RefundFailed,
        ];
        for merchant in &world.merchants {
            let request = SetEndpointRequest {
                merchant_id: merchant.merchant_id.clone(),
                url: self.url.clone(),
                events: events.map(Into::into).to_vec(),
            };
            webhooks.set_endpoint(request).await?;
        }
        Ok(())
    }

    /// Deliveries that were accepted, and that were not.
    pub fn counts(&self) -> (u64, u64) {
        let Counts {
            received, refused, ..
        } = &*self.counts;
        (
            received.load(Ordering::Relaxed),
            refused.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

async fn receive(State(counts): State<Arc<Counts>>) -> StatusCode {
    let (received, refused) = (&counts.received, &counts.refused);
    let number = received.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed);
    let mut choices = Choices::of(counts.seed, &format!("delivery {number}"));
    if choices.chance(REFUSES) {
        refused.fetch_add(1, Ordering::Relaxed);
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if choices.chance(HANGS) {
        refused.fetch_add(1, Ordering::Relaxed);
        sleep(HANGS_FOR).await;
        return StatusCode::GATEWAY_TIMEOUT;
    }
    received.fetch_add(1, Ordering::Relaxed);
    StatusCode::OK
}

/// What a reader has seen, in that order.
#[derive(Default)]
pub struct Seen {
    pub events: Vec<Numbered>,
    /// Numbers that did not follow the one before.
    pub gaps: Vec<String>,
}

/// An event with its number in its merchant's feed.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Numbered {
    pub sequence: u64,
    pub event: Value,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Numbered>,
}

/// Reads a merchant's events as they come, through the gateways, until there is nothing more after
/// `end` has begun.
pub async fn follow(world: Arc<World>, place: usize, end: Shutdown) -> anyhow::Result<Seen> {
    let merchant = world.merchants.get(place).context("no such merchant")?;
    let mut seen = Seen::default();
    let mut calls = 0;
    loop {
        calls += 1;
        let is_end = end.has_begun();
        let after = seen.last();
        let path = format!("/api/v1/events?after={after}&limit={PAGE}&wait={WAIT_SECONDS}");
        let answer = world.read(merchant, &path, calls).await;
        let answered = answer.ok().filter(|answer| answer.status == StatusCode::OK);
        let Some(answer) = answered else {
            // Somebody on the way was killed.
            sleep(CALL_AGAIN).await;
            continue;
        };
        let page: Page = serde_json::from_value(answer.body)?;
        if page.data.is_empty() && is_end {
            return Ok(seen);
        }
        seen.take(&merchant.merchant_id, page.data);
    }
}

/// Reads all of a merchant's events at once, at webhooks-svc itself.
pub async fn read(
    feed: &mut MerchantEventsClient<Channel>,
    merchant_id: &str,
) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    loop {
        let request = ListEventsRequest {
            merchant_id: merchant_id.to_owned(),
            after: seen.last(),
            page_size: PAGE,
            wait_seconds: 0,
        };
        let events = feed.list_events(request).await?.into_inner().events;
        if events.is_empty() {
            return Ok(seen);
        }
        let numbered = events.into_iter().map(|event| {
            Ok(Numbered {
                sequence: event.sequence,
                event: serde_json::from_str(&event.body)?,
            })
        });
        seen.take(merchant_id, numbered.collect::<anyhow::Result<_>>()?);
    }
}

impl Seen {
    fn last(&self) -> u64 {
        self.events.last().map_or(0, |event| event.sequence)
    }

    fn take(&mut self, merchant_id: &str, events: Vec<Numbered>) {
        for event in events {
            let (last, number) = (self.last(), event.sequence);
            if number != last + 1 {
                let gap = format!("{merchant_id}: {number} followed {last}");
                self.gaps.push(gap);
            }
            self.events.push(event);
        }
    }
}
