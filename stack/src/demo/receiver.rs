//! A merchant's webhook endpoint. Stores what it receives, and verifies it as the specification
//! tells receivers to (spec §6.3), with its own code.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use chassis::{
    clock::Clock,
    error_chain::chain,
    http,
    shutdown::{Shutdown, Tasks},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;
use tokio::{net::TcpListener, sync::watch};

/// Receivers reject deliveries that are further from their own time (spec §6.3).
const TOLERANCE_SECONDS: u64 = 300;

/// One webhook as it arrived.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A receiver that runs until it is dropped.
pub struct Receiver {
    pub url: String,
    deliveries: Arc<Mutex<Vec<WebhookRequest>>>,
    arrived: watch::Receiver<usize>,
    shutdown: Shutdown,
}

#[derive(Clone)]
struct Inbox {
    deliveries: Arc<Mutex<Vec<WebhookRequest>>>,
    arrived: Arc<watch::Sender<usize>>,
}

impl Receiver {
    /// Listens on a free loopback port and answers every delivery with 200.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/webhooks", listener.local_addr()?);
        let (sender, arrived) = watch::channel(0);
        let deliveries = Arc::<Mutex<Vec<WebhookRequest>>>::default();
        let inbox = Inbox {
            deliveries: deliveries.clone(),
            arrived: Arc::new(sender),
        };
        let router = Router::new()
            .route("/webhooks", post(receive))
            .with_state(inbox);
        let shutdown = Shutdown::new();
        let served = http::serve(router, listener, http::Limits::default(), shutdown.clone());
        Tasks::new().spawn(async {
            if let Err(error) = served.await {
                tracing::error!(error = %chain(error.as_ref()), "the receiver failed");
            }
        });
        Ok(Self {
            url,
            deliveries,
            arrived,
            shutdown,
        })
    }

    /// Everything received so far, in order.
    pub fn deliveries(&self) -> Vec<WebhookRequest> {
        let deliveries = self.deliveries.lock();
        deliveries.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the first delivery of the transaction's event.
    pub async fn wait_for(
        &self,
        tx_id_display: &str,
        wait_max: Duration,
    ) -> anyhow::Result<WebhookRequest> {
        let is_wanted = |delivery: &WebhookRequest| {
            delivery
                .json()
                .is_ok_and(|event| event["data"]["tx_id_display"] == tx_id_display)
        };
        let mut arrived = self.arrived.clone();
        let waiting = async {
            loop {
                if let Some(found) = self.deliveries().into_iter().find(is_wanted) {
                    return anyhow::Ok(found);
                }
                arrived.changed().await?;
            }
        };
        tokio::time::timeout(wait_max, waiting)
            .await
            .with_context(|| format!("no event of {tx_id_display} arrived in time"))?
    }

    /// Checks that each transaction, payout and refund has only one event. The same event may be delivered again.
    pub fn check_no_event_came_twice(&self) -> anyhow::Result<()> {
        let mut events = BTreeMap::<String, String>::new();
        for delivery in self.deliveries() {
            let event = delivery.json()?;
            let data = &event["data"];
            // A session that is paid again after a failure has a transaction for each attempt.
            let parts = ["session_id", "tx_id_display", "payout_id", "refund_id"];
            let subject = parts.map(|part| data[part].to_string()).join(" ");
            let id = event["id"].to_string();
            if let Some(known) = events.insert(subject.clone(), id.clone()) {
                ensure!(known == id, "{subject} has two events, {known} and {id}");
            }
        }
        Ok(())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

async fn receive(State(inbox): State<Inbox>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let delivery = WebhookRequest { headers, body };
    let count = {
        let deliveries = inbox.deliveries.lock();
        let mut deliveries = deliveries.unwrap_or_else(PoisonError::into_inner);
        deliveries.push(delivery);
        deliveries.len()
    };
    inbox.arrived.send_replace(count);
    StatusCode::OK
}

impl WebhookRequest {
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).context("the body of a delivery is not JSON")
    }

    pub fn print(&self) {
        println!(
            "\nwebhook\n  X-Service-Signature: {}\n  {}",
            self.header("x-service-signature").unwrap_or("none"),
            String::from_utf8_lossy(&self.body)
        );
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Checks `X-Service-Signature` over the raw body, in constant time, and its age.
    pub fn verify(&self, signing_secret: &str) -> anyhow::Result<()> {
        let signature = self.header("x-service-signature").context("no signature")?;
        let mut time = None;
        let mut candidates = Vec::new();
        for part in signature.split(',') {
            match part.split_once('=') {
                Some(("t", seconds)) => time = Some(seconds),
                Some(("v1", hex)) => candidates.push(hex::decode(hex)?),
                _ => bail!("a part of the signature is unknown: {part}"),
            }
        }
        let time = time.context("the signature has no time")?;
        let age = Clock::system()
            .host_now()
            .unix_seconds()
            .abs_diff(time.parse()?);
        ensure!(
            age <= TOLERANCE_SECONDS,
            "the signature is {age} s away from now"
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(signing_secret.as_bytes())?;
        mac.update(time.as_bytes());
        mac.update(b".");
        mac.update(&self.body);
        let is_right = |candidate: &Vec<u8>| mac.clone().verify_slice(candidate).is_ok();
        ensure!(candidates.iter().any(is_right), "the signature is wrong");
        Ok(())
    }

    pub fn expect(&self, event_type: &str, status: &str, reason: &Value) -> anyhow::Result<()> {
        let event = self.json()?;
        let data = &event["data"];
        let id = event["id"].as_str().unwrap_or_default();
        ensure!(id.starts_with("evt_"), "the event's id is {id}");
        ensure!(
            event["type"] == event_type,
            "the event is no {event_type}: {event}"
        );
        ensure!(
            data["status"] == status,
            "the event's status is not {status}: {event}"
        );
        ensure!(
            data["failure_reason"] == *reason,
            "the event's reason is not {reason}: {event}"
        );
        ensure!(
            data["method"] == "MOBILE_MONEY",
            "the event's method is another: {event}"
        );
        ensure!(
            data["currency"] == "GHS" && data["amount"].is_number(),
            "no amount: {event}"
        );
        Ok(())
    }
}
