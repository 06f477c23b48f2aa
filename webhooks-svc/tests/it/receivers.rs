//! What counts as an answer, whatever the receiver does.

use std::time::Duration;

use chassis::testing::until;
use proto::webhooks::{Attempt, DeliveryStatus};

use crate::{
    receiver::{Answer, Receiver},
    world::{MINUTE, World},
};

/// One second for each attempt, for tests in which attempts time out.
const SHORT: &[&str] = &["--webhook-timeout=1s", "--lease=6s"];

/// The first attempt's record, and the delivery's status.
async fn attempt(world: &mut World, url: &str) -> (Attempt, DeliveryStatus) {
    let merchant_id = world.endpoint(url).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    let delivery = world.after_attempts(&id, 1).await;
    let status = delivery.status();
    (delivery.attempts[0].clone(), status)
}

async fn check_delivered(world: &mut World, answer: Answer, status: u32) -> Attempt {
    let receiver = Receiver::start(move |_, _| answer.clone()).await;
    let (attempt, state) = attempt(world, &receiver.url()).await;
    assert_eq!(state, DeliveryStatus::Delivered, "{attempt:?}");
    assert!(attempt.succeeded);
    assert_eq!(attempt.http_status, Some(status));
    assert_eq!(attempt.error, None);
    attempt
}

async fn check_failed(world: &mut World, answer: Answer, error: &str) -> Attempt {
    let receiver = Receiver::start(move |_, _| answer.clone()).await;
    let (attempt, state) = attempt(world, &receiver.url()).await;
    assert_eq!(state, DeliveryStatus::Pending, "{attempt:?}");
    assert!(!attempt.succeeded);
    let status = error
        .strip_prefix("answered ")
        .map(|status| status.parse().unwrap());
    assert_eq!(attempt.http_status, status);
    assert_eq!(attempt.error(), error);
    assert_eq!(receiver.connections(), 1, "an attempt is one request");
    attempt
}

fn raw(text: &str) -> Answer {
    Answer::Raw(text.as_bytes().to_vec())
}

#[tokio::test]
async fn any_2xx_is_success_and_every_other_status_is_failure() {
    let mut world = World::start().await;
    for status in [200, 201, 202, 204, 206, 299] {
        check_delivered(&mut world, Answer::Status(status), status.into()).await;
    }
    for status in [304, 400, 401, 404, 410, 429, 500, 503, 599] {
        let error = format!("answered {status}");
        check_failed(&mut world, Answer::Status(status), &error).await;
    }
}

#[tokio::test]
async fn a_redirect_is_failure_and_is_not_followed() {
    let elsewhere = Receiver::always(200).await;
    let mut world = World::start().await;
    for status in [301, 302, 303, 307, 308] {
        let url = elsewhere.url();
        let text = format!("HTTP/1.1 {status} X\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
        check_failed(&mut world, raw(&text), &format!("answered {status}")).await;
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_answer_in_time_counts_and_a_later_one_does_not() {
    let mut world = World::start_with(SHORT).await;
    check_delivered(&mut world, Answer::Late(Duration::from_millis(200)), 200).await;
    let late = Answer::Late(Duration::from_secs(60));
    let attempt = check_failed(&mut world, late, "timed out").await;
    assert!(attempt.duration_ms >= 1_000);
}

#[tokio::test]
async fn broken_connections_and_answers_are_failures() {
    let mut world = World::start_with(SHORT).await;
    check_failed(&mut world, Answer::Reset, "connection reset").await;
    let half = raw("HTTP/1.1 200 OK\r\nContent-Le");
    check_failed(
        &mut world,
        half,
        "connection closed before message completed",
    )
    .await;
    let other = raw("SSH-2.0-OpenSSH_9.2\r\n");
    check_failed(&mut world, other, "invalid HTTP version parsed").await;
}

#[tokio::test]
async fn a_receiver_that_is_not_there_is_failure() {
    let mut world = World::start_with(SHORT).await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", nobody.local_addr().unwrap());
    drop(nobody);
    let (refused, _) = attempt(&mut world, &url).await;
    assert_eq!(refused.error(), "connection refused");
    // A plain HTTP listener that is called with TLS.
    let receiver = Receiver::start(|_, _| Answer::Status(200)).await;
    let url = receiver.url().replace("http:", "https:");
    let (garbled, state) = attempt(&mut world, &url).await;
    assert_eq!(state, DeliveryStatus::Pending, "{garbled:?}");
    assert_eq!(receiver.received(), []);
    let (unknown, state) = attempt(&mut world, "http://merchant.invalid/hook").await;
    assert_eq!(state, DeliveryStatus::Pending, "{unknown:?}");
}

#[tokio::test]
async fn a_body_that_never_ends_does_not_undo_a_success() {
    let mut world = World::start_with(SHORT).await;
    let receiver = Receiver::start(|_, _| Answer::Endless).await;
    let (endless, state) = attempt(&mut world, &receiver.url()).await;
    assert_eq!(state, DeliveryStatus::Delivered);
    assert_eq!(
        endless.response_excerpt.as_ref().map(String::len),
        Some(1_024)
    );
    // The kernel's buffers take more than was read; a reader of everything would have taken far
    // more still.
    until("the connection is closed", async || receiver.open() == 0).await;
    assert!(
        receiver.sent() < 16 * 1024 * 1024,
        "{} bytes",
        receiver.sent()
    );
    let dripping = check_delivered(&mut world, Answer::Drip, 200).await;
    assert!(dripping.response_excerpt().starts_with("xx"));
    let cut = raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    let half = check_delivered(&mut world, cut, 200).await;
    assert_eq!(half.response_excerpt(), "half");
}

#[tokio::test]
async fn what_is_kept_of_an_answer_is_short_and_printable() {
    let mut world = World::start().await;
    let mut answer =
        b"HTTP/1.1 500 X\r\nContent-Encoding: gzip\r\n\r\nnot\0 gzip\x1b[31m \xff".to_vec();
    answer.extend("é".repeat(2_000).into_bytes());
    let attempt = check_failed(&mut world, Answer::Raw(answer), "answered 500").await;
    let excerpt = attempt.response_excerpt();
    assert!(excerpt.starts_with("not gzip[31m \u{fffd}éé"), "{excerpt}");
    assert!(excerpt.len() <= 1_024 && excerpt.len() > 1_000);
}

#[tokio::test]
async fn an_attempt_carries_the_headers_and_no_trace() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    let delivery = world.in_state(&id, DeliveryStatus::Delivered).await;
    let seen = receiver.received().remove(0);
    assert!(seen.head.starts_with("POST /hook HTTP/1.1\r\n"));
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.event_id(), delivery.event_id);
    assert_eq!(seen.header("x-service-delivery-id"), id);
    assert_eq!(seen.header("x-service-attempt"), "1");
    assert!(
        seen.header("user-agent")
            .starts_with("PaymentService-Webhooks/")
    );
    let mut names: Vec<_> = seen.headers.keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected = [
        "accept",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-service-attempt",
        "x-service-delivery-id",
        "x-service-event-id",
        "x-service-signature",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn time_travel_waits_for_attempts() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Status(500),
        _ => Answer::Late(Duration::from_millis(300)),
    })
    .await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.after_attempts(&id, 1).await;
    world.advance(MINUTE).await;
    let delivery = world.delivery(&id).await;
    assert_eq!(delivery.status(), DeliveryStatus::Delivered);
}
