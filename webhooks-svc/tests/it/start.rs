//! An attempt that starts in the moment of publishing.

use std::time::Duration;

use chassis::{clock::Timestamp, testing::until};
use proto::webhooks::{DeliveryStatus, PublishRequest};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    receiver::{Answer, Receiver},
    world::{Client, MINUTE, World, payment},
};

const EVENTS: usize = 60;

/// Publishes all at the same moment, in turn through each client.
async fn burst(clients: &[Client], events: &[PublishRequest]) {
    let mut calls = JoinSet::new();
    for (event, client) in events.iter().zip(clients.iter().cycle()) {
        let (mut client, event) = (client.clone(), event.clone());
        calls.spawn(async move { client.publish(event).await });
    }
    while let Some(published) = calls.join_next().await {
        published.unwrap().unwrap();
    }
}

/// Changes one row in a transaction of its own.
async fn write(world: &World, text: &'static str, delivery_id: &str, at: Timestamp) {
    let db = world.database.connect().await;
    let mut tx = db.begin().await.unwrap();
    let write = tx.sql(text).bind(delivery_id.to_owned()).bind(at);
    assert_eq!(write.rows_affected().await.unwrap(), 1);
    tx.commit().await.unwrap();
    db.close().await;
}

#[tokio::test]
async fn it_is_on_record_when_publishing_is_acknowledged() {
    let receiver = Receiver::start(|_, _| Answer::Held).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    for running in 1..=5 {
        let id = world.deliver(&merchant_id).await;
        let attempts = world.delivery(&id).await.attempts.len();
        assert_eq!(attempts, usize::from(running <= 4), "four places");
    }
    until("four run", async || receiver.open() == 4).await;
    receiver.release();
    until("all have arrived", async || receiver.received().len() == 5).await;
    for delivery in world.deliveries(&merchant_id).await {
        world
            .in_state(&delivery.delivery_id, DeliveryStatus::Delivered)
            .await;
    }
}

#[tokio::test]
async fn what_a_process_that_died_before_sending_left_behind_is_interrupted_and_sent_later() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    world.enable(&merchant_id, false).await;
    let event = payment(&merchant_id);
    world.publish(event.clone()).await;
    let id = world.deliveries(&merchant_id).await[0].delivery_id.clone();
    // What is committed before the attempt starts, by a process whose lease has ended.
    let long_ago = Timestamp::from_unix_millis(0).unwrap();
    write(
        &world,
        "insert into attempts (delivery_id, number, manual, started_at, succeeded, duration_ms)
         values ($1, 1, 1 = 0, $2, 1 = 0, 0)",
        &id,
        world.clock.now(),
    )
    .await;
    let db = world.database.connect().await;
    let mut tx = db.begin().await.unwrap();
    tx.sql(
        "update deliveries set claim = $2, lease_until = $3, attempts_count = 1
         where delivery_id = $1",
    )
    .bind(id.clone())
    .bind(Uuid::new_v4())
    .bind(long_ago)
    .run()
    .await
    .unwrap();
    tx.commit().await.unwrap();
    db.close().await;
    world.enable(&merchant_id, true).await;
    let delivery = world.after_attempts(&id, 1).await;
    assert_eq!(delivery.attempts[0].error(), "interrupted");
    assert_eq!(receiver.received().len(), 0);
    // Told again, as by a relay that never heard of the commit.
    world.publish(event.clone()).await;
    world.advance(MINUTE).await;
    world.after_attempts(&id, 2).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    let received = receiver.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].event_id(), event.event_id);
    assert_eq!(received[0].header("x-service-attempt"), "2");
}

#[tokio::test]
async fn a_burst_through_two_processes_keeps_the_places_of_each_endpoint() {
    let late = || Receiver::start(|_, _| Answer::Late(Duration::from_millis(5)));
    let receivers = [late().await, late().await];
    let mut world = World::start().await;
    let clients = [world.client.clone(), world.replicate().await];
    let mut events = Vec::new();
    for receiver in &receivers {
        let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
        events.extend((0..EVENTS).map(|_| payment(&merchant_id)));
    }
    burst(&clients, &events).await;
    for receiver in &receivers {
        until("all have arrived", async || {
            receiver.received().len() >= EVENTS
        })
        .await;
    }
    for event in [&events[0], &events[EVENTS]] {
        for delivery in world.deliveries(&event.merchant_id).await {
            let delivered = world
                .in_state(&delivery.delivery_id, DeliveryStatus::Delivered)
                .await;
            assert_eq!(delivered.attempts.len(), 1, "{delivered:?}");
        }
    }
    for receiver in &receivers {
        assert_eq!(receiver.received().len(), EVENTS, "each of them once");
        assert!(receiver.open_most() <= 4, "{}", receiver.open_most());
    }
}

#[tokio::test]
async fn an_event_that_is_published_many_times_at_once_is_sent_once() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let clients = [world.client.clone(), world.replicate().await];
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let event = payment(&merchant_id);
    burst(&clients, &vec![event; 16]).await;
    let deliveries = world.deliveries(&merchant_id).await;
    assert_eq!(deliveries.len(), 1);
    let id = &deliveries[0].delivery_id;
    world.in_state(id, DeliveryStatus::Delivered).await;
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_lost_claim_costs_its_own_attempt_only() {
    let receiver = Receiver::start(|_, _| Answer::Held).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.deliver(&merchant_id).await);
    }
    until("all run", async || receiver.open() == 4).await;
    // As if the process had been frozen for longer than the lease of one of them.
    let long_ago = Timestamp::from_unix_millis(0).unwrap();
    let expire = "update deliveries set lease_until = $2 where delivery_id = $1";
    write(&world, expire, &ids[1], long_ago).await;
    world.after_attempts(&ids[1], 1).await;
    // They end at the same moment.
    receiver.release();
    for (number, id) in ids.iter().enumerate() {
        let delivery = world.after_attempts(id, 1).await;
        let (status, error) = match number {
            1 => (DeliveryStatus::Pending, "interrupted"),
            _ => (DeliveryStatus::Delivered, ""),
        };
        assert_eq!(delivery.status(), status);
        assert_eq!(delivery.attempts[0].error(), error);
    }
}
