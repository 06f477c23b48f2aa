//! Tests of an endpoint that are sent at once.

use std::time::Duration;

use chassis::{ids::MerchantId, testing::check_refusal};
use proto::webhooks::{FailureCause, ListEventsRequest, SendTestRequest, SendTestResponse};
use tonic::{Code, Status};

use crate::{
    receiver::{Answer, Receiver},
    signature::check_signed_by,
    world::{MINUTE, World},
};

async fn test(world: &mut World, merchant_id: &str) -> Result<SendTestResponse, Status> {
    let merchant_id = merchant_id.to_owned();
    let sent = world
        .people
        .send_test(SendTestRequest { merchant_id })
        .await;
    Ok(sent?.into_inner())
}

#[tokio::test]
async fn a_test_goes_the_way_of_every_delivery_and_is_kept_nowhere() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let endpoint = world.endpoint(&receiver.url()).await;
    let merchant_id = endpoint.merchant_id.clone();
    world.enable(&merchant_id, false).await;
    let sent = test(&mut world, &merchant_id).await.unwrap();
    let result = sent.result.unwrap();
    assert!(result.succeeded && result.http_status == Some(200));
    assert_eq!(result.response_excerpt(), "{}");
    assert_eq!(result.cause(), FailureCause::Unspecified);
    let arrived = receiver.received().remove(0);
    check_signed_by(&arrived, &[&endpoint.signing_secret]);
    let request = sent.request.unwrap();
    assert_eq!(request.body, arrived.text());
    assert!(arrived.text().contains(r#""type":"endpoint.test""#));
    for header in &request.headers {
        let name = header.name.to_lowercase();
        assert_eq!(arrived.header(&name), header.value, "{name}");
    }
    assert_eq!(request.headers.len(), arrived.headers.len());
    assert_eq!(world.deliveries(&merchant_id).await, []);
    let events = ListEventsRequest {
        merchant_id,
        ..ListEventsRequest::default()
    };
    let events = world.feed.list_events(events).await.unwrap().into_inner();
    assert_eq!(events.last_sequence, 0);
}

#[tokio::test]
async fn a_test_that_fails_says_why_and_is_not_repeated() {
    let late = Receiver::start(|_, _| Answer::Late(Duration::from_secs(60))).await;
    let broken = Receiver::always(500).await;
    let mut world = World::start_with(&["--webhook-timeout=1s", "--lease=6s"]).await;
    for (receiver, cause, error) in [
        (&late, FailureCause::Timeout, "timed out"),
        (&broken, FailureCause::Status, "answered 500"),
    ] {
        let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
        let result = test(&mut world, &merchant_id).await.unwrap();
        let result = result.result.unwrap();
        assert!(!result.succeeded);
        assert_eq!((result.cause(), result.error()), (cause, error));
        world.advance(100 * MINUTE).await;
        assert_eq!(receiver.connections(), 1);
    }
}

#[tokio::test]
async fn a_merchant_tests_ten_times_a_minute() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let other = world.endpoint(&receiver.url()).await.merchant_id;
    for _ in 0..10 {
        test(&mut world, &merchant_id).await.unwrap();
    }
    let more = test(&mut world, &merchant_id).await;
    check_refusal(more, Code::ResourceExhausted, "TOO_MANY_TRIES");
    assert_eq!(receiver.connections(), 10);
    test(&mut world, &other).await.unwrap();
    world.advance(MINUTE).await;
    test(&mut world, &merchant_id).await.unwrap();
}

#[tokio::test]
async fn a_test_meets_the_guard_and_needs_an_endpoint() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    world.flags = vec!["--webhook-allow-nets=".to_owned()];
    let mut world = world.restart().await;
    let refused = test(&mut world, &merchant_id)
        .await
        .unwrap()
        .result
        .unwrap();
    assert_eq!(refused.cause(), FailureCause::Address);
    assert_eq!(receiver.connections(), 0);
    let nobody = test(&mut world, &MerchantId::new().to_string()).await;
    check_refusal(nobody, Code::NotFound, "ENDPOINT_NOT_FOUND");
}
