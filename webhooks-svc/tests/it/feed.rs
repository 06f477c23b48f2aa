//! The feed: every event of a merchant once, numbered without gaps, whoever numbers and whenever.

use std::{mem, sync::Arc, time::Duration};

use chassis::{
    grpc::Channel,
    ids::{EventId, MerchantId},
    testing::{check_invalid, check_refusal, until},
};
use proto::webhooks::{
    DeliveryStatus, FeedEvent, GetMerchantEndpointRequest, ListEventsRequest,
    RedeliverEventRequest, SetEndpointRequest, TestEndpointRequest,
    merchant_events_client::MerchantEventsClient,
};
use tokio::{task::JoinSet, time::Instant};
use tonic::Code;

use crate::{
    receiver::Receiver,
    signature::check_signed_by,
    world::{Client, HOUR, World, payment},
};

const PUBLISHERS: usize = 20;
const EVENTS_EACH: usize = 10;

type Feed = MerchantEventsClient<Channel>;

/// What follows `after`, waited for.
async fn pull(feed: &mut Feed, merchant_id: &str, after: u64, wait_seconds: u32) -> Vec<FeedEvent> {
    let request = ListEventsRequest {
        merchant_id: merchant_id.to_owned(),
        after,
        page_size: 7,
        wait_seconds,
    };
    let listed = feed.list_events(request).await.unwrap().into_inner();
    let seen = listed.events.last().map_or(0, |event| event.sequence);
    assert!(listed.last_sequence >= seen, "never behind the events");
    listed.events
}

#[tokio::test]
async fn a_page_that_is_too_large_is_refused() {
    let world = World::start().await;
    for page_size in [101, u32::MAX] {
        let request = ListEventsRequest {
            merchant_id: MerchantId::new().to_string(),
            page_size,
            ..ListEventsRequest::default()
        };
        let answer = world.feed.clone().list_events(request).await;
        check_invalid(answer, "page_size");
    }
}

/// Reads until this many events were seen, and checks that none was skipped.
async fn read_all(mut feed: Feed, merchant_id: String, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let after = seen.len() as u64;
        for event in pull(&mut feed, &merchant_id, after, 5).await {
            assert_eq!(event.sequence, seen.len() as u64 + 1, "none is skipped");
            assert!(event.body.contains(&event.event_id));
            seen.push(event.event_id);
        }
    }
    seen
}

/// Runs it beside the test.
fn begin<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinSet<T> {
    let mut running = JoinSet::new();
    running.spawn(task);
    running
}

async fn end<T: 'static>(mut running: JoinSet<T>) -> T {
    running.join_next().await.unwrap().unwrap()
}

async fn publish_some(mut client: Client, merchant_id: Arc<str>) -> Vec<String> {
    let mut published = Vec::new();
    for _ in 0..EVENTS_EACH {
        let event = payment(&merchant_id);
        published.push(event.event_id.clone());
        client.publish(event).await.unwrap();
    }
    published
}

#[tokio::test]
async fn every_reader_sees_every_event_once_and_none_too_early_on_two_replicas() {
    let mut world = World::start().await;
    let (replica, replicas_feed) = world.replicate_with_feed().await;
    let merchants: [Arc<str>; 2] = [(); 2].map(|()| MerchantId::new().to_string().into());
    let count = PUBLISHERS / 2 * EVENTS_EACH;
    let mut readers = Vec::new();
    for merchant_id in &merchants {
        for feed in [world.feed.clone(), replicas_feed.clone()] {
            readers.push(begin(read_all(feed, merchant_id.to_string(), count)));
        }
    }
    let mut publishers = JoinSet::new();
    for number in 0..PUBLISHERS {
        let client = match number % 4 < 2 {
            true => world.client.clone(),
            false => replica.clone(),
        };
        publishers.spawn(publish_some(client, merchants[number % 2].clone()));
    }
    let mut published = publishers.join_all().await.concat();
    let mut seen = Vec::new();
    for pair in readers.chunks_mut(2) {
        let [one, other] = pair else {
            panic!("two readers each")
        };
        let one = end(mem::take(one)).await;
        assert_eq!(one, end(mem::take(other)).await, "all readers agree");
        seen.extend(one);
    }
    published.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, published);
}

#[tokio::test]
async fn what_an_older_version_stored_is_numbered_in_the_order_of_its_time() {
    let mut world = World::start().await;
    let merchant_id = MerchantId::new();
    let db = world.database.connect().await;
    let mut stored = Vec::new();
    for second in 0..5 {
        let event_id = EventId::new();
        let mut tx = db.begin().await.unwrap();
        tx.sql(
            "insert into events (event_id, merchant_id, event_type, body, created_at)
             values ($1, $2, $3, $1, $4)",
        )
        .bind(event_id.clone())
        .bind(merchant_id)
        .bind("payment.success")
        .bind(world.clock.now() + Duration::from_secs(second))
        .run()
        .await
        .unwrap();
        tx.commit().await.unwrap();
        stored.push(event_id.to_string());
    }
    let seen = read_all(world.feed.clone(), merchant_id.to_string(), 5).await;
    assert_eq!(seen, stored);
    world.publish(payment(&merchant_id.to_string())).await;
    let next = pull(&mut world.feed, &merchant_id.to_string(), 5, 5).await;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].sequence, 6);
}

#[tokio::test]
async fn a_wait_ends_with_the_next_event_and_holds_up_neither_the_clock_nor_the_end() {
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let wait = |world: &World| {
        let (mut feed, merchant_id) = (world.feed.clone(), merchant_id.clone());
        let began = Instant::now();
        begin(async move {
            let events = pull(&mut feed, &merchant_id, 0, 8).await;
            (events, began.elapsed())
        })
    };
    let mut waiting = wait(&world);
    world.advance(HOUR).await;
    assert!(
        waiting.try_join_next().is_none(),
        "time moved while it waits"
    );
    world.publish(payment(&merchant_id)).await;
    let (events, took) = end(waiting).await;
    assert_eq!(events.len(), 1);
    assert!(took < Duration::from_secs(6), "{took:?}");
    let other = MerchantId::new().to_string();
    let mut feed = world.feed.clone();
    let waiting = begin(async move { pull(&mut feed, &other, 0, 8).await });
    // It waits once the clock may move.
    world.advance(HOUR).await;
    let began = Instant::now();
    let _world = world.restart().await;
    assert_eq!(end(waiting).await, []);
    assert!(began.elapsed() < Duration::from_secs(6), "the end answers");
}

#[tokio::test]
async fn an_event_is_sent_again_and_also_one_that_had_no_endpoint() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let event = payment(&merchant_id);
    world.publish(event.clone()).await;
    let redeliver = |merchant_id: &str, event_id: &str| RedeliverEventRequest {
        merchant_id: merchant_id.to_owned(),
        event_id: event_id.to_owned(),
    };
    let request = redeliver(&merchant_id, &event.event_id);
    let answer = world.feed.redeliver_event(request.clone()).await;
    check_refusal(answer, Code::NotFound, "ENDPOINT_NOT_FOUND");
    let endpoint = world
        .try_endpoint(&merchant_id, &receiver.url())
        .await
        .unwrap();
    let answer = world.feed.redeliver_event(request.clone()).await.unwrap();
    let delivery_id = answer.into_inner().delivery_id;
    world
        .in_state(&delivery_id, DeliveryStatus::Delivered)
        .await;
    let again = world.feed.redeliver_event(request).await.unwrap();
    assert_eq!(again.into_inner().delivery_id, delivery_id);
    world.after_attempts(&delivery_id, 2).await;
    for arrival in receiver.received() {
        assert_eq!(arrival.event_id(), event.event_id);
        check_signed_by(&arrival, &[&endpoint.signing_secret]);
    }
    let others = world.endpoint(&receiver.url()).await.merchant_id;
    for (merchant_id, event_id) in [(&others, &event.event_id), (&merchant_id, &delivery_id)] {
        let answer = world
            .feed
            .redeliver_event(redeliver(merchant_id, event_id))
            .await;
        check_refusal(answer, Code::NotFound, "EVENT_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_test_event_is_signed_and_sent_whatever_the_endpoint_names() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let test = TestEndpointRequest {
        merchant_id: merchant_id.clone(),
    };
    let answer = world.feed.test_endpoint(test.clone()).await;
    check_refusal(answer, Code::NotFound, "ENDPOINT_NOT_FOUND");
    let request = SetEndpointRequest {
        merchant_id: merchant_id.clone(),
        url: receiver.url(),
        events: vec![proto::webhooks::EventType::RefundFailed.into()],
    };
    let endpoint = world.operations.set_endpoint(request).await.unwrap();
    let answer = world.feed.test_endpoint(test).await.unwrap();
    let event_id = answer.into_inner().event_id;
    until("it arrives", async || receiver.received().len() == 1).await;
    let arrival = &receiver.received()[0];
    check_signed_by(arrival, &[&endpoint.get_ref().signing_secret]);
    assert!(arrival.text().contains(r#""type":"endpoint.test""#));
    let listed = pull(&mut world.feed, &merchant_id, 0, 5).await;
    assert_eq!(listed[0].event_id, event_id);
    assert_eq!(listed[0].body, arrival.text());
    let request = GetMerchantEndpointRequest { merchant_id };
    let shown = world.feed.get_merchant_endpoint(request).await.unwrap();
    assert_eq!(shown.get_ref().url, receiver.url());
}
