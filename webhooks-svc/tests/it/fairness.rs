//! A receiver that hangs delays nobody else.

use std::time::Duration;

use chassis::testing::until;
use proto::webhooks::DeliveryStatus;

use crate::{
    receiver::{Answer, Receiver},
    world::{World, payment},
};

const HANGING_EVENTS: usize = 100;
const PROMPT_EVENTS: usize = 20;

/// Longer than any test waits.
const HANGS: Duration = Duration::from_secs(50);

#[tokio::test]
async fn a_hanging_endpoint_with_a_hundred_events_delays_no_other() {
    let hanging = Receiver::start(|_, _| Answer::Held).await;
    let prompt = Receiver::always(200).await;
    let mut world = World::start_with(&["--webhook-timeout=60s", "--lease=70s"]).await;
    let hanging_merchant = world.endpoint(&hanging.url()).await.merchant_id;
    let prompt_merchant = world.endpoint(&prompt.url()).await.merchant_id;
    // Makes all of them due at the same moment.
    world.enable(&hanging_merchant, false).await;
    for _ in 0..HANGING_EVENTS {
        world.publish(payment(&hanging_merchant)).await;
    }
    world.enable(&hanging_merchant, true).await;
    until("it hangs", async || hanging.open() == 4).await;
    for _ in 0..PROMPT_EVENTS {
        world.publish(payment(&prompt_merchant)).await;
    }
    until("the others arrive", async || {
        prompt.received().len() == PROMPT_EVENTS
    })
    .await;
    assert_eq!(
        hanging.open(),
        4,
        "while it hangs, it holds its four places and no more"
    );
    hanging.release();
    until("its own arrive, too", async || {
        hanging.received().len() == HANGING_EVENTS
    })
    .await;
    for delivery in world.deliveries(&hanging_merchant).await {
        world
            .in_state(&delivery.delivery_id, DeliveryStatus::Delivered)
            .await;
    }
    assert_eq!(hanging.received().len(), HANGING_EVENTS);
    assert_eq!(hanging.open_most(), 4);
}

#[tokio::test]
async fn when_all_places_are_taken_the_next_free_one_goes_to_who_has_none() {
    let hanging = Receiver::start(|number, _| match number {
        1 => Answer::Held,
        _ => Answer::Late(HANGS),
    })
    .await;
    let prompt = Receiver::always(200).await;
    let flags = [
        "--webhook-timeout=60s",
        "--lease=70s",
        "--webhook-concurrency=4",
    ];
    let mut world = World::start_with(&flags).await;
    let hanging_merchant = world.endpoint(&hanging.url()).await.merchant_id;
    let prompt_merchant = world.endpoint(&prompt.url()).await.merchant_id;
    for _ in 0..20 {
        world.publish(payment(&hanging_merchant)).await;
    }
    until("all places are taken", async || hanging.open() == 4).await;
    for _ in 0..5 {
        world.publish(payment(&prompt_merchant)).await;
    }
    // Frees one of the four places.
    hanging.release();
    until("the others arrive", async || prompt.received().len() == 5).await;
}

#[tokio::test]
async fn two_processes_share_the_work_and_the_places() {
    let receiver = Receiver::start(|_, _| Answer::Late(Duration::from_millis(10))).await;
    let mut world = World::start().await;
    let mut twin = world.replicate().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    for number in 0..PROMPT_EVENTS * 2 {
        let event = payment(&merchant_id);
        let answer = match number % 2 {
            0 => twin.publish(event).await,
            _ => world.client.publish(event).await,
        };
        answer.unwrap();
    }
    for delivery in world.deliveries(&merchant_id).await {
        world
            .in_state(&delivery.delivery_id, DeliveryStatus::Delivered)
            .await;
    }
    assert_eq!(
        receiver.received().len(),
        PROMPT_EVENTS * 2,
        "each of them once"
    );
    assert!(receiver.open_most() <= 4, "{}", receiver.open_most());
}

/// More than one query finds.
const WAITING_ENDPOINTS: usize = 300;

#[tokio::test]
async fn endpoints_that_wait_for_their_next_try_take_no_place_from_who_is_due() {
    let failing = Receiver::always(500).await;
    let slow = Receiver::start(|_, _| Answer::Held).await;
    let brief = &[
        "--webhook-timeout=60s",
        "--lease=70s",
        "--webhook-retry-schedule=1h",
    ];
    let mut world = World::start_with(brief).await;
    for _ in 0..WAITING_ENDPOINTS {
        let merchant_id = world.endpoint(&failing.url()).await.merchant_id;
        world.publish(payment(&merchant_id)).await;
    }
    until("the others have failed once", async || {
        failing.received().len() == WAITING_ENDPOINTS
    })
    .await;
    let merchant_id = world.endpoint(&slow.url()).await.merchant_id;
    for open in 1..=4 {
        world.publish(payment(&merchant_id)).await;
        until("it has one more", async || slow.open() == open).await;
    }
    slow.release();
}
