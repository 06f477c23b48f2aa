//! What was acknowledged survives a crash at any point.

use std::{collections::HashMap, time::Duration};

use chassis::{clock::Timestamp, ids::MerchantId, testing::until};
use db::testing::TestDb;
use proto::webhooks::{
    DeliveryStatus, webhook_operations_client::WebhookOperationsClient,
    webhooks_client::WebhooksClient,
};

use crate::{
    receiver::{Answer, Arrival, Receiver},
    world::{MINUTE, World, payment, start_process},
};

/// Short leases, for PostgreSQL; on SQLite a start ends them.
const SHORT: &[&str] = &["--webhook-timeout=3s", "--lease=8s"];

/// For a process whose clock cannot be moved.
const RETRY_SOON: [&str; 3] = [
    "--webhook-timeout=1s",
    "--lease=6s",
    "--webhook-retry-schedule=100ms,200ms,300ms,1s,1s,1s,1s,1s,1s,1s",
];

#[tokio::test]
async fn an_attempt_that_a_crash_cut_off_counts_as_failed_and_the_schedule_goes_on() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Held,
        _ => Answer::Status(200),
    })
    .await;
    let mut world = World::start_with(SHORT).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    until("the attempt runs", async || receiver.open() == 1).await;
    let begun = world.delivery(&id).await;
    assert_eq!(begun.attempts.len(), 1, "it is on record before it is sent");
    assert_eq!(begun.attempts[0].finished_at, None);
    let mut world = world.crash().await;
    let delivery = world.after_attempts(&id, 1).await;
    assert_eq!(delivery.status(), DeliveryStatus::Pending);
    assert_eq!(delivery.attempts[0].error(), "interrupted");
    assert!(!delivery.attempts[0].succeeded);
    world.advance(MINUTE).await;
    world.after_attempts(&id, 2).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    let seen = receiver.received();
    assert_eq!(seen[0].body, seen[1].body);
}

#[tokio::test]
async fn a_redelivery_that_a_crash_cut_off_is_sent_again() {
    let receiver = Receiver::start(|number, _| match number {
        2 => Answer::Held,
        _ => Answer::Status(200),
    })
    .await;
    let mut world = World::start_with(SHORT).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    world.redeliver(&id).await;
    until("the attempt runs", async || receiver.open() == 1).await;
    let mut world = world.crash().await;
    let delivery = world.after_attempts(&id, 3).await;
    assert_eq!(delivery.status(), DeliveryStatus::Delivered);
    let ends: Vec<_> = delivery
        .attempts
        .iter()
        .map(|attempt| attempt.succeeded)
        .collect();
    assert_eq!(ends, [true, false, true]);
}

#[tokio::test]
async fn whoever_lost_its_lease_cannot_record_any_more() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Held,
        _ => Answer::Status(500),
    })
    .await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    until("the attempt runs", async || receiver.open() == 1).await;
    // As if the process had been frozen for longer than its lease.
    let db = world.database.connect().await;
    let mut tx = db.begin().await.unwrap();
    let long_ago = Timestamp::from_unix_millis(0).unwrap();
    let expire = tx.sql("update deliveries set lease_until = $1 where claim is not null");
    assert_eq!(expire.bind(long_ago).rows_affected().await.unwrap(), 1);
    tx.commit().await.unwrap();
    db.close().await;
    let delivery = world.after_attempts(&id, 1).await;
    assert_eq!(delivery.attempts[0].error(), "interrupted");
    receiver.release();
    world.advance(MINUTE).await;
    let delivery = world.after_attempts(&id, 2).await;
    assert_eq!(
        delivery.status(),
        DeliveryStatus::Pending,
        "the late 200 came too late"
    );
    assert_eq!(delivery.attempts[0].error(), "interrupted");
    assert_eq!(delivery.attempts[1].error(), "answered 500");
}

#[tokio::test]
async fn what_runs_when_the_service_stops_ends_in_order() {
    let receiver = Receiver::start(|_, _| Answer::Late(Duration::from_millis(300))).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    until("the attempt runs", async || receiver.open() == 1).await;
    let mut world = world.restart().await;
    let delivery = world.after_attempts(&id, 1).await;
    assert_eq!(delivery.status(), DeliveryStatus::Delivered);
}

#[tokio::test]
async fn kill_9_loses_nothing_and_changes_no_byte() {
    const ROUNDS: usize = 5;
    const EVENTS_PER_ROUND: usize = 8;
    let receiver = Receiver::start(|number, _| match number % 4 {
        0 => Answer::Status(500),
        1 => Answer::Late(Duration::from_millis(50)),
        _ => Answer::Status(200),
    })
    .await;
    let proxy = Receiver::always(200).await;
    let proxy_url = format!("http://{}", proxy.address);
    let proxies = ["HTTP_PROXY", "http_proxy", "ALL_PROXY"].map(|name| (name, &*proxy_url));
    let database = TestDb::new("webhooks-svc").await;
    let merchant_id = MerchantId::new().to_string();
    let mut published = Vec::new();
    for round in 0..ROUNDS {
        let process = start_process(&database, &RETRY_SOON, &proxies).await;
        let mut client = WebhooksClient::new(process.channel());
        let mut operations = WebhookOperationsClient::new(process.operators());
        let endpoint = proto::webhooks::SetEndpointRequest {
            merchant_id: merchant_id.clone(),
            url: receiver.url(),
            events: Vec::new(),
        };
        operations.set_endpoint(endpoint).await.unwrap();
        for number in 0..EVENTS_PER_ROUND {
            let event = payment(&merchant_id);
            client.publish(event.clone()).await.unwrap();
            published.push(event.event_id);
            // Each round lasts longer before the kill, which always leaves work.
            tokio::time::sleep(Duration::from_millis((round * number) as u64)).await;
        }
        process.kill().await;
    }
    let process = start_process(&database, &RETRY_SOON, &proxies).await;
    let mut operations = WebhookOperationsClient::new(process.operators());
    let list = proto::webhooks::ListDeliveriesRequest {
        merchant_id,
        page_size: 100,
        page_token: String::new(),
    };
    let open = operations.clone();
    until("everything is delivered", async || {
        let listed = open
            .clone()
            .list_deliveries(list.clone())
            .await
            .unwrap()
            .into_inner();
        listed
            .deliveries
            .iter()
            .all(|delivery| delivery.status() == DeliveryStatus::Delivered)
    })
    .await;
    let listed = operations
        .list_deliveries(list.clone())
        .await
        .unwrap()
        .into_inner()
        .deliveries;
    assert_eq!(listed.len(), published.len(), "one delivery for each event");
    check_copies(&published, &receiver.received());
    assert_eq!(proxy.connections(), 0, "no proxy is asked");
}

/// Checks that every event arrived, with the same body in all its copies.
fn check_copies(published: &[String], received: &[Arrival]) {
    let mut bodies: HashMap<&str, &[u8]> = HashMap::new();
    for copy in received {
        let body = bodies.entry(copy.event_id()).or_insert(&copy.body);
        assert_eq!(*body, copy.body, "{} changed", copy.event_id());
    }
    for event_id in published {
        assert!(bodies.contains_key(&**event_id), "{event_id} was lost");
    }
    assert_eq!(bodies.len(), published.len());
}
