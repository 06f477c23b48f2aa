//! Spec §6.2: when attempts are made, and when they end.

use std::time::Duration;

use chassis::clock::Timestamp;
use proto::webhooks::DeliveryStatus;

use crate::{
    receiver::{Answer, Receiver},
    world::{HOUR, MINUTE, World},
};

/// Delays of spec §6.2.
const DELAYS: [Duration; 6] = [
    MINUTE,
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3_600),
    Duration::from_secs(8 * 3_600),
    Duration::from_secs(24 * 3_600),
];

const SECOND: Duration = Duration::from_secs(1);

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[tokio::test]
async fn seven_attempts_at_the_times_of_the_specification_with_a_restart_before_each() {
    let receiver = Receiver::always(500).await;
    let mut world = World::start().await;
    let merchant = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant).await;
    let mut delivery = world.after_attempts(&id, 1).await;
    for (number, delay) in DELAYS.into_iter().enumerate() {
        let number = number + 1;
        assert_eq!(delivery.status(), DeliveryStatus::Pending);
        let failed_at = time(delivery.attempts.last().unwrap().finished_at());
        assert_eq!(time(delivery.next_attempt_at()), failed_at + delay);
        world = world.restart().await;
        let shortly_before = failed_at + (delay - 10 * SECOND);
        world.advance(shortly_before.since(world.clock.now())).await;
        assert_eq!(
            world.delivery(&id).await.attempts.len(),
            number,
            "too early"
        );
        world.advance(MINUTE).await;
        delivery = world.delivery(&id).await;
        assert_eq!(delivery.attempts.len(), number + 1);
        let late = time(&delivery.attempts[number].started_at).since(failed_at + delay);
        assert!(late < SECOND, "{late:?} late");
        assert!(time(&delivery.attempts[number].started_at) >= failed_at + delay);
    }
    assert_eq!(delivery.status(), DeliveryStatus::Exhausted);
    assert_eq!(delivery.next_attempt_at, None);
    world.advance(100 * HOUR).await;
    world = world.restart().await;
    world.advance(HOUR).await;
    assert_eq!(
        world.delivery(&id).await.attempts.len(),
        7,
        "exhausted means no more"
    );
    let seen = receiver.received();
    assert_eq!(seen.len(), 7);
    for (number, copy) in seen.iter().enumerate() {
        assert_eq!(copy.body, seen[0].body);
        assert_eq!(copy.event_id(), delivery.event_id);
        assert_eq!(copy.header("x-service-delivery-id"), id);
        assert_eq!(copy.header("x-service-attempt"), (number + 1).to_string());
    }
}

#[tokio::test]
async fn a_success_ends_the_schedule() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number == 3 { 204 } else { 503 })).await;
    let mut world = World::start().await;
    let merchant = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant).await;
    world.after_attempts(&id, 1).await;
    world.advance(100 * HOUR).await;
    let delivery = world.after_attempts(&id, 3).await;
    assert_eq!(delivery.status(), DeliveryStatus::Delivered);
    assert_eq!(delivery.next_attempt_at, None);
    let outcomes: Vec<_> = delivery
        .attempts
        .iter()
        .map(|attempt| {
            (
                attempt.succeeded,
                attempt.http_status(),
                attempt.error.as_deref(),
            )
        })
        .collect();
    let failed = (false, 503, Some("answered 503"));
    assert_eq!(outcomes, [failed, failed, (true, 204, None)]);
}

#[tokio::test]
async fn a_schedule_of_the_configuration_is_kept() {
    let receiver = Receiver::always(500).await;
    let mut world = World::start_with(&["--webhook-retry-schedule=10s,20s"]).await;
    let merchant = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant).await;
    world.after_attempts(&id, 1).await;
    world.advance(HOUR).await;
    let delivery = world.after_attempts(&id, 3).await;
    assert_eq!(delivery.status(), DeliveryStatus::Exhausted);
}

#[tokio::test]
async fn the_first_exhaustion_marks_the_endpoint_until_a_success() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number <= 4 { 500 } else { 200 })).await;
    let mut world = World::start_with(&["--webhook-retry-schedule=10s"]).await;
    let merchant = world.endpoint(&receiver.url()).await.merchant_id;
    for _ in 0..2 {
        let id = world.deliver(&merchant).await;
        world.after_attempts(&id, 1).await;
        world.advance(MINUTE).await;
        world.after_attempts(&id, 2).await;
    }
    let deliveries = world.deliveries(&merchant).await;
    let first = world.delivery(&deliveries[1].delivery_id).await;
    assert_eq!(first.status(), DeliveryStatus::Exhausted);
    assert_eq!(deliveries[0].status(), DeliveryStatus::Exhausted);
    let endpoint = world.get_endpoint(&merchant).await;
    assert_eq!(
        endpoint.exhausted_since, first.attempts[1].finished_at,
        "the first one's time"
    );
    let id = world.deliver(&merchant).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    assert_eq!(world.get_endpoint(&merchant).await.exhausted_since, None);
}
