//! The service under test: starting, stopping, crashing and calling it.

use std::{path::PathBuf, time::Duration};

use chassis::{
    clock::{Clock, Timestamp},
    grpc::Channel,
    ids::{EventId, MerchantId, SessionId},
    testing::{ServedService, ServiceProcess, until},
};
use clap::Parser as _;
use db::testing::TestDb;
use proto::{
    money::Money,
    webhooks::{
        Delivery, DeliveryStatus, Endpoint, EventType, GetDeliveryRequest, GetEndpointRequest,
        ListDeliveriesRequest, Payment, PublishRequest, PublishResponse, RedeliverRequest,
        SetEndpointEnabledRequest, SetEndpointRequest,
        merchant_events_client::MerchantEventsClient,
        merchant_webhooks_client::MerchantWebhooksClient, publish_request::Data,
        webhook_operations_client::WebhookOperationsClient, webhooks_client::WebhooksClient,
    },
};
use tempfile::TempDir;
use tokio::process::Command;
use tonic::Status;
use webhooks_svc::config::Config;

/// 32 bytes, in base64.
pub const SECRET_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub const OTHER_SECRET_KEY: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

/// Takes away the permission to call this machine.
pub const NO_NETS: &str = "--webhook-allow-nets=";

/// Where nothing listens.
const NOBODY: &str = "http://127.0.0.1:9";

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3_600);

pub type Client = WebhooksClient<Channel>;

pub type Operations = WebhookOperationsClient<Channel>;

/// What the people of a merchant call.
pub type People = MerchantWebhooksClient<Channel>;

/// A running service with its database and the folder of its clock.
pub struct World {
    pub client: Client,
    pub operations: Operations,
    pub feed: MerchantEventsClient<Channel>,
    pub people: People,
    pub clock: Clock,
    services: Vec<ServedService>,
    pub database: TestDb,
    /// In addition to those that every test has.
    pub flags: Vec<String>,
    folder: TempDir,
}

impl World {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(flags: &[&str]) -> Self {
        let database = TestDb::new("webhooks-svc").await;
        let folder = tempfile::tempdir().unwrap();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self::start_on(database, folder, flags).await
    }

    /// Starts on a host with this clock.
    pub async fn start_by(clock: Clock, flags: &[&str]) -> Self {
        let database = TestDb::new("webhooks-svc").await;
        let folder = tempfile::tempdir().unwrap();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self::start_by_on(clock, database, folder, flags).await
    }

    async fn start_on(database: TestDb, folder: TempDir, flags: Vec<String>) -> Self {
        let clock = Clock::travelling(clock_file(&folder)).unwrap();
        Self::start_by_on(clock, database, folder, flags).await
    }

    async fn start_by_on(
        clock: Clock,
        database: TestDb,
        folder: TempDir,
        flags: Vec<String>,
    ) -> Self {
        let service = serve(&database, &flags, &clock).await;
        Self {
            client: WebhooksClient::new(service.channel()),
            operations: WebhookOperationsClient::new(service.operators()),
            feed: MerchantEventsClient::new(service.channel()),
            people: People::new(service.channel()),
            clock,
            services: vec![service],
            database,
            flags,
            folder,
        }
    }

    /// Starts one more process on the same database.
    pub async fn replicate(&mut self) -> Client {
        self.replicate_with_feed().await.0
    }

    /// The same, with its feed.
    pub async fn replicate_with_feed(&mut self) -> (Client, MerchantEventsClient<Channel>) {
        let service = serve(&self.database, &self.flags, &self.clock).await;
        let client = WebhooksClient::new(service.channel());
        let feed = MerchantEventsClient::new(service.channel());
        self.services.push(service);
        (client, feed)
    }

    /// Lets running work end, and starts again.
    pub async fn restart(self) -> Self {
        for service in &self.services {
            service.stop().await;
        }
        Self::start_on(self.database, self.folder, self.flags).await
    }

    /// Cuts everything off as a crash would, and starts again.
    pub async fn crash(self) -> Self {
        let clock = Clock::travelling(clock_file(&self.folder)).unwrap();
        self.crash_and_start_by(clock).await
    }

    /// The same, on a host with another clock.
    pub async fn crash_and_start_by(self, clock: Clock) -> Self {
        for service in &self.services {
            service.crash().await;
        }
        Self::start_by_on(clock, self.database, self.folder, self.flags).await
    }

    pub async fn advance(&self, by: Duration) -> Timestamp {
        self.clock.advance(by).await.unwrap()
    }

    /// A new merchant's endpoint.
    pub async fn endpoint(&mut self, url: &str) -> Endpoint {
        self.try_endpoint(&MerchantId::new().to_string(), url)
            .await
            .unwrap()
    }

    pub async fn try_endpoint(&mut self, merchant_id: &str, url: &str) -> Result<Endpoint, Status> {
        let request = SetEndpointRequest {
            merchant_id: merchant_id.to_owned(),
            url: url.to_owned(),
            events: Vec::new(),
        };
        Ok(self.operations.set_endpoint(request).await?.into_inner())
    }

    pub async fn get_endpoint(&mut self, merchant_id: &str) -> Endpoint {
        let merchant_id = merchant_id.to_owned();
        let request = GetEndpointRequest { merchant_id };
        self.operations
            .get_endpoint(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub async fn enable(&mut self, merchant_id: &str, enabled: bool) -> Endpoint {
        let merchant_id = merchant_id.to_owned();
        let request = SetEndpointEnabledRequest {
            merchant_id,
            enabled,
        };
        self.operations
            .set_endpoint_enabled(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub async fn publish(&mut self, request: PublishRequest) {
        self.try_publish(request).await.unwrap();
    }

    pub async fn try_publish(
        &mut self,
        request: PublishRequest,
    ) -> Result<PublishResponse, Status> {
        Ok(self.client.publish(request).await?.into_inner())
    }

    /// Publishes an event; returns its delivery's id.
    pub async fn deliver(&mut self, merchant_id: &str) -> String {
        let event = payment(merchant_id);
        self.publish(event.clone()).await;
        let deliveries = self.deliveries(merchant_id).await;
        let delivery = deliveries
            .into_iter()
            .find(|delivery| delivery.event_id == event.event_id);
        delivery.unwrap().delivery_id
    }

    pub async fn deliveries(&mut self, merchant_id: &str) -> Vec<Delivery> {
        let request = ListDeliveriesRequest {
            merchant_id: merchant_id.to_owned(),
            page_size: 100,
            page_token: String::new(),
        };
        self.operations
            .list_deliveries(request)
            .await
            .unwrap()
            .into_inner()
            .deliveries
    }

    pub async fn delivery(&mut self, delivery_id: &str) -> Delivery {
        let delivery_id = delivery_id.to_owned();
        let request = GetDeliveryRequest { delivery_id };
        self.operations
            .get_delivery(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub async fn redeliver(&mut self, delivery_id: &str) -> Delivery {
        let delivery_id = delivery_id.to_owned();
        let request = RedeliverRequest { delivery_id };
        self.operations
            .redeliver(request)
            .await
            .unwrap()
            .into_inner()
    }

    /// The delivery once this many of its attempts have ended and none runs.
    pub async fn after_attempts(&mut self, delivery_id: &str, count: usize) -> Delivery {
        until("the attempts have ended", async || {
            let attempts = self.delivery(delivery_id).await.attempts;
            attempts.len() >= count && attempts.iter().all(|attempt| attempt.finished_at.is_some())
        })
        .await;
        let delivery = self.delivery(delivery_id).await;
        assert_eq!(delivery.attempts.len(), count, "{delivery:?}");
        assert_eq!(delivery.attempts_count as usize, count);
        delivery
    }

    /// The delivery once it is in this state.
    pub async fn in_state(&mut self, delivery_id: &str, status: DeliveryStatus) -> Delivery {
        until("the delivery is in its state", async || {
            self.delivery(delivery_id).await.status() == status
        })
        .await;
        self.delivery(delivery_id).await
    }
}

async fn serve(database: &TestDb, flags: &[String], clock: &Clock) -> ServedService {
    let config = config(&database.url, flags);
    ServedService::start(|sockets, shutdown| {
        webhooks_svc::serve(config, sockets, clock.clone(), shutdown)
    })
    .await
}

/// Starts the service as its own process, which can be killed and has its own environment.
pub async fn start_process(
    database: &TestDb,
    flags: &[&str],
    environment: &[(&str, &str)],
) -> ServiceProcess {
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_webhooks-svc"));
    command
        .args(&arguments(&database.url, &flags)[1..])
        .envs(environment.iter().copied());
    ServiceProcess::start(&mut command).await
}

fn clock_file(folder: &TempDir) -> PathBuf {
    folder.path().join("clock")
}

/// Settings that allow calls to receivers on this machine.
pub fn config(database_url: &str, flags: &[String]) -> Config {
    Config::try_parse_from(arguments(database_url, flags)).unwrap()
}

pub fn arguments(database_url: &str, flags: &[String]) -> Vec<String> {
    let mut arguments = vec![
        "webhooks-svc".to_owned(),
        format!("--database-url={database_url}"),
    ];
    let defaults = [
        ("--webhook-secret-key", SECRET_KEY),
        ("--merchants-url", NOBODY),
        ("--webhook-allow-http", "true"),
        ("--webhook-allow-nets", "127.0.0.0/8"),
    ];
    for (flag, value) in defaults {
        if !flags.iter().any(|given| given.starts_with(flag)) {
            arguments.push(format!("{flag}={value}"));
        }
    }
    // `NO_NETS` is not passed on: it only leaves the default out.
    let given = flags.iter().filter(|flag| *flag != NO_NETS);
    arguments.extend(given.cloned());
    arguments
}

/// A payment that succeeded.
pub fn payment(merchant_id: &str) -> PublishRequest {
    PublishRequest {
        event_id: EventId::new().to_string(),
        merchant_id: merchant_id.to_owned(),
        r#type: EventType::PaymentSuccess.into(),
        created_at: "2026-01-31T09:00:00.000Z".to_owned(),
        data: Some(Data::Payment(Payment {
            tx_id_display: Some("TX-0123456789".to_owned()),
            session_id: SessionId::new().to_string(),
            amount: Some(money(2550, "GHS")),
            method: Some("MOBILE_MONEY".to_owned()),
            status: "SETTLED".to_owned(),
            session_status: "COMPLETED".to_owned(),
            ..Payment::default()
        })),
    }
}

pub fn money(minor_units: i64, currency: &str) -> Money {
    let currency = currency.to_owned();
    Money {
        minor_units,
        currency,
    }
}
