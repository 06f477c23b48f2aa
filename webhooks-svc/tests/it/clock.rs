//! Hosts whose clocks are wrong.

use chassis::{clock::Clock, ids::MerchantId, testing::until};
use proto::webhooks::DeliveryStatus;

use crate::{
    receiver::{Answer, Receiver},
    world::World,
};

fn clock_off_by(skew_ms: i64) -> Clock {
    Clock::simulated(Clock::system().host_now(), skew_ms, 0)
}

#[tokio::test]
async fn an_attempt_of_another_host_is_not_ended_early() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Held,
        _ => Answer::Status(200),
    })
    .await;
    let mut world = World::start_by(clock_off_by(-60_000), &[]).await;
    if !world.database.url.starts_with("postgres") {
        // On SQLite a start ends running attempts, because nobody else can be running them.
        return;
    }
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    until("the attempt runs", async || receiver.open() == 1).await;
    let mut world = world.crash_and_start_by(clock_off_by(60_000)).await;
    // It looks for expired leases before it sends anything.
    let other = world.deliver(&merchant_id).await;
    world.in_state(&other, DeliveryStatus::Delivered).await;
    let delivery = world.delivery(&id).await;
    assert_eq!(delivery.attempts.len(), 1);
    assert_eq!(delivery.attempts[0].finished_at, None);
}

#[tokio::test]
async fn a_signature_bears_the_hosts_own_time() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let clock = clock_off_by(60_000);
    let mut world = World::start_by(clock.clone(), &[]).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let begun = clock.host_now().unix_seconds();
    let id = world.deliver(&merchant_id).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    let received = receiver.received();
    let signature = received[0].header("x-service-signature");
    let time = signature.split(&['=', ','][..]).nth(1).unwrap();
    let time: i64 = time.parse().unwrap();
    assert!((begun..=clock.host_now().unix_seconds()).contains(&time));
}

#[tokio::test]
async fn an_attempt_whose_lease_is_over_is_not_sent() {
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    // A hundred thousand times too fast: a lease is over as soon as it is taken.
    let clock = Clock::simulated(Clock::system().host_now(), 0, 100_000_000_000);
    let mut world = World::start_by(clock, &[]).await;
    let merchant_id = MerchantId::new().to_string();
    world
        .try_endpoint(&merchant_id, &receiver.url())
        .await
        .unwrap();
    let id = world.deliver(&merchant_id).await;
    world.in_state(&id, DeliveryStatus::Exhausted).await;
    for attempt in world.delivery(&id).await.attempts {
        assert_eq!(attempt.error(), "interrupted");
    }
    assert_eq!(receiver.received(), []);
}
