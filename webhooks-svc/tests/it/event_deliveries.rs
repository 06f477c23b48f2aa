//! What became of events, as their merchant sees it.

use std::iter;

use chassis::{
    ids::{EventId, MerchantId},
    testing::check_invalid,
};
use proto::webhooks::{
    DeliveryStatus, EventDelivery, EventType, GetEventDeliveriesRequest, PublishRequest,
};
use tonic::Status;

use crate::{
    receiver::{Answer, Receiver},
    world::{World, payment},
};

async fn ask(
    world: &World,
    merchant_id: &str,
    event_ids: impl IntoIterator<Item = String>,
) -> Result<Vec<EventDelivery>, Status> {
    let request = GetEventDeliveriesRequest {
        merchant_id: merchant_id.to_owned(),
        event_ids: event_ids.into_iter().collect(),
    };
    let answer = world.feed.clone().get_event_deliveries(request).await?;
    Ok(answer.into_inner().events)
}

/// Publishes an event of this merchant.
async fn publish(world: &mut World, merchant_id: &str) -> PublishRequest {
    let event = payment(merchant_id);
    world.publish(event.clone()).await;
    event
}

/// The only delivery of this merchant.
async fn delivery_id(world: &mut World, merchant_id: &str) -> String {
    world.deliveries(merchant_id).await.remove(0).delivery_id
}

#[tokio::test]
async fn an_event_is_told_with_its_delivery_and_every_attempt() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number == 1 { 500 } else { 200 })).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let event = publish(&mut world, &merchant_id).await;
    let id = delivery_id(&mut world, &merchant_id).await;
    world.after_attempts(&id, 1).await;
    world.redeliver(&id).await;
    world.in_state(&id, DeliveryStatus::Delivered).await;
    let told = ask(&world, &merchant_id, [event.event_id.clone()])
        .await
        .unwrap();
    let [told] = &told[..] else {
        panic!("one event: {told:?}");
    };
    assert_eq!(told.event_id, event.event_id);
    assert_eq!(told.r#type(), EventType::PaymentSuccess);
    assert_eq!(told.created_at, event.created_at);
    let delivery = told.delivery.as_ref().unwrap();
    assert_eq!(delivery.delivery_id, id);
    assert_eq!(delivery.status(), DeliveryStatus::Delivered);
    let attempts = delivery.attempts.iter();
    let attempts: Vec<_> = attempts
        .map(|attempt| (attempt.number, attempt.http_status(), attempt.manual))
        .collect();
    assert_eq!(attempts, [(1, 500, false), (2, 200, true)]);
}

#[tokio::test]
async fn an_event_without_an_endpoint_has_no_delivery_and_an_unknown_one_is_left_out() {
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let event = publish(&mut world, &merchant_id).await;
    let unknown = EventId::new().to_string();
    let told = ask(&world, &merchant_id, [unknown, event.event_id.clone()]).await;
    let told = told.unwrap();
    let ids: Vec<_> = told.iter().map(|told| &told.event_id).collect();
    assert_eq!(ids, [&event.event_id]);
    assert!(told[0].delivery.is_none());
    assert_eq!(ask(&world, &merchant_id, []).await.unwrap(), []);
}

#[tokio::test]
async fn anothers_event_is_left_out_like_an_unknown_one() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let event = publish(&mut world, &merchant_id).await;
    let other = world.endpoint(&receiver.url()).await.merchant_id;
    let told = ask(&world, &other, [event.event_id]).await.unwrap();
    assert_eq!(told, []);
}

#[tokio::test]
async fn of_many_attempts_the_newest_are_told_and_all_are_counted() {
    let body = "long ".repeat(100);
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\nconnection: close\r\n\r\n";
    let answer = [head, &body].concat().into_bytes();
    let receiver = Receiver::start(move |_, _| Answer::Raw(answer.clone())).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let event = publish(&mut world, &merchant_id).await;
    let id = delivery_id(&mut world, &merchant_id).await;
    for count in 1..=52 {
        world.after_attempts(&id, count).await;
        world.redeliver(&id).await;
    }
    world.after_attempts(&id, 53).await;
    let told = ask(&world, &merchant_id, [event.event_id]).await.unwrap();
    let delivery = told[0].delivery.as_ref().unwrap();
    assert_eq!(delivery.attempts_count, 53);
    let numbers: Vec<u32> = delivery.attempts.iter().map(|one| one.number).collect();
    assert_eq!(numbers, (4..=53).collect::<Vec<_>>());
    for attempt in &delivery.attempts {
        assert_eq!(attempt.response_excerpt(), "long ".repeat(40));
    }
}

#[tokio::test]
async fn what_is_no_event_and_too_many_of_them_are_refused() {
    let world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let none = ask(&world, &merchant_id, ["none".to_owned()]).await;
    check_invalid(none, "event_ids");
    let many = iter::repeat_with(|| EventId::new().to_string()).take(101);
    check_invalid(ask(&world, &merchant_id, many).await, "event_ids");
    let nobody = ask(&world, "nobody", [EventId::new().to_string()]).await;
    check_invalid(nobody, "merchant_id");
}
