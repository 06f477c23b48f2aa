//! Sending an event once more by hand, from every state (spec §6.2).

use std::time::Duration;

use chassis::{
    ids::DeliveryId,
    testing::{check_refusal, until},
};
use proto::webhooks::{DeliveryStatus, GetDeliveryRequest, RedeliverRequest};
use tonic::Code;

use crate::{
    receiver::{Answer, Receiver},
    world::{HOUR, MINUTE, World},
};

#[tokio::test]
async fn a_failed_redelivery_leaves_the_schedule_as_it_is() {
    let receiver = Receiver::always(500).await;
    let mut world = World::start_with(&["--webhook-retry-schedule=1m,1h"]).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    let before = world.after_attempts(&id, 1).await;
    world.redeliver(&id).await;
    let after = world.after_attempts(&id, 2).await;
    assert_eq!(after.status(), DeliveryStatus::Pending);
    assert_eq!(after.next_attempt_at, before.next_attempt_at);
    assert!(after.attempts[1].manual && !after.attempts[0].manual);
    world.advance(MINUTE).await;
    world.advance(2 * HOUR).await;
    let exhausted = world.after_attempts(&id, 4).await;
    assert_eq!(
        exhausted.status(),
        DeliveryStatus::Exhausted,
        "three of the schedule, one by hand"
    );
    world.redeliver(&id).await;
    let still = world.after_attempts(&id, 5).await;
    assert_eq!(still.status(), DeliveryStatus::Exhausted);
    world.advance(100 * HOUR).await;
    world.after_attempts(&id, 5).await;
}

#[tokio::test]
async fn a_successful_redelivery_ends_the_schedule_of_a_pending_delivery() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number == 1 { 500 } else { 200 })).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.after_attempts(&id, 1).await;
    world.redeliver(&id).await;
    let delivery = world.in_state(&id, DeliveryStatus::Delivered).await;
    assert_eq!(delivery.next_attempt_at, None);
    world.advance(100 * HOUR).await;
    world.after_attempts(&id, 2).await;
    let seen = receiver.received();
    assert_eq!(seen[0].body, seen[1].body);
    assert_eq!(seen[0].event_id(), seen[1].event_id());
    assert_eq!(seen[1].header("x-service-attempt"), "2");
}

#[tokio::test]
async fn an_exhausted_delivery_is_delivered_by_hand() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number <= 2 { 500 } else { 200 })).await;
    let mut world = World::start_with(&["--webhook-retry-schedule=1m"]).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.advance(HOUR).await;
    world.in_state(&id, DeliveryStatus::Exhausted).await;
    world.redeliver(&id).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
}

#[tokio::test]
async fn a_delivered_event_can_be_sent_again_and_stays_delivered() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number == 3 { 500 } else { 200 })).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    for count in [2, 3] {
        world.redeliver(&id).await;
        let delivery = world.after_attempts(&id, count).await;
        assert_eq!(delivery.status(), DeliveryStatus::Delivered);
        assert_eq!(delivery.next_attempt_at, None);
    }
    world.advance(100 * HOUR).await;
    world.after_attempts(&id, 3).await;
}

#[tokio::test]
async fn a_redelivery_during_an_attempt_follows_it() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Late(Duration::from_millis(300)),
        _ => Answer::Status(200),
    })
    .await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    until("the first attempt runs", async || receiver.open() == 1).await;
    for _ in 0..3 {
        world.redeliver(&id).await;
    }
    let delivery = world.after_attempts(&id, 4).await;
    assert_eq!(delivery.status(), DeliveryStatus::Delivered);
    let manual: Vec<_> = delivery
        .attempts
        .iter()
        .map(|attempt| attempt.manual)
        .collect();
    assert_eq!(manual, [false, true, true, true]);
    assert_eq!(receiver.open_most(), 1, "one attempt at a time");
}

#[tokio::test]
async fn a_redelivery_goes_before_what_waits() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Status(200),
        2 => Answer::Held,
        _ => Answer::Status(200),
    })
    .await;
    let mut world = World::start_with(&["--webhook-endpoint-concurrency=1"]).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let first = world.deliver(&merchant_id).await;
    world.in_state(&first, DeliveryStatus::Delivered).await;
    for _ in 0..5 {
        world.deliver(&merchant_id).await;
    }
    until("the endpoint is busy", async || receiver.open() == 1).await;
    world.redeliver(&first).await;
    receiver.release();
    until("all arrive", async || receiver.received().len() == 7).await;
    assert_eq!(
        receiver.received()[2].header("x-service-delivery-id"),
        first
    );
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let mut world = World::start().await;
    for delivery_id in [
        DeliveryId::new().to_string(),
        "dlv_1".to_owned(),
        String::new(),
    ] {
        let request = RedeliverRequest {
            delivery_id: delivery_id.clone(),
        };
        let answer = world.operations.redeliver(request).await;
        check_refusal(answer, Code::NotFound, "DELIVERY_NOT_FOUND");
        let answer = world
            .operations
            .get_delivery(GetDeliveryRequest { delivery_id })
            .await;
        check_refusal(answer, Code::NotFound, "DELIVERY_NOT_FOUND");
    }
}
