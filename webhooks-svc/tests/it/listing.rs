//! A merchant's deliveries and endpoint, as its people see them.

use std::time::Duration;

use chassis::{
    ids::MerchantId,
    testing::{check_invalid, check_refusal, fake_server::closed_port, until},
};
use proto::webhooks::{
    AnswerClass, Delivery, DeliveryStatus, EventType, FailureCause, GetEndpointHealthRequest,
    GetMerchantDeliveryRequest, ListMerchantDeliveriesRequest, MerchantDelivery,
    RedeliverMerchantDeliveryRequest, RevealSecretsRequest, RotateMerchantSecretRequest,
    SetMerchantEndpointEnabledRequest, SetMerchantEndpointRequest,
};
use tonic::{Code, Status};

use crate::{
    receiver::{Answer, Receiver},
    world::{HOUR, MINUTE, World, payment},
};

/// One retry, a minute after the first failure.
const BRIEF: &[&str] = &[
    "--webhook-retry-schedule=1m",
    "--webhook-timeout=1s",
    "--lease=6s",
];

/// What makes another request of one.
type Change<'a> = dyn Fn(&mut ListMerchantDeliveriesRequest) + 'a;

async fn list(
    world: &mut World,
    request: ListMerchantDeliveriesRequest,
) -> Result<(Vec<Delivery>, String), Status> {
    let answer = world.people.list_merchant_deliveries(request).await?;
    let answer = answer.into_inner();
    Ok((answer.deliveries, answer.next_page_token))
}

fn of(merchant_id: &str) -> ListMerchantDeliveriesRequest {
    ListMerchantDeliveriesRequest {
        merchant_id: merchant_id.to_owned(),
        ..ListMerchantDeliveriesRequest::default()
    }
}

async fn ids(world: &mut World, request: ListMerchantDeliveriesRequest) -> Vec<String> {
    let (deliveries, _) = list(world, request).await.unwrap();
    deliveries.into_iter().map(|one| one.delivery_id).collect()
}

async fn get(world: &mut World, merchant_id: &str, delivery_id: &str) -> MerchantDelivery {
    let request = GetMerchantDeliveryRequest {
        merchant_id: merchant_id.to_owned(),
        delivery_id: delivery_id.to_owned(),
    };
    let got = world.people.get_merchant_delivery(request).await;
    got.unwrap().into_inner()
}

#[tokio::test]
async fn deliveries_are_filtered_by_all_that_is_given() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number == 1 { 404 } else { 200 })).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let failed = world.deliver(&merchant_id).await;
    world.after_attempts(&failed, 1).await;
    let delivered = world.deliver(&merchant_id).await;
    world.in_state(&delivered, DeliveryStatus::Delivered).await;
    assert_eq!(
        ids(&mut world, of(&merchant_id)).await,
        [delivered.clone(), failed.clone()]
    );
    let event_id = get(&mut world, &merchant_id, &failed).await;
    let event_id = event_id.delivery.unwrap().event_id;
    let (both, one, none): (&[&String], &[&String], &[&String]) =
        (&[&delivered, &failed], &[&failed], &[]);
    let checks: [(&Change<'_>, &[&String]); 9] = [
        (&|wanted| wanted.set_status(DeliveryStatus::Pending), one),
        (&|wanted| wanted.set_status(DeliveryStatus::Exhausted), none),
        (&|wanted| wanted.set_answer(AnswerClass::Http4xx), one),
        (&|wanted| wanted.set_answer(AnswerClass::None), none),
        (
            &|wanted| wanted.set_event_type(EventType::PaymentSuccess),
            both,
        ),
        (
            &|wanted| wanted.set_event_type(EventType::PaymentFailed),
            none,
        ),
        (
            &|wanted| wanted.to = "2026-01-01T00:00:00.000Z".to_owned(),
            none,
        ),
        (&|wanted| wanted.event_ids = vec![event_id.clone()], one),
        (
            &|wanted| {
                wanted.event_ids = vec![event_id.clone()];
                wanted.set_answer(AnswerClass::Http2xx);
            },
            none,
        ),
    ];
    for (narrow, expected) in checks {
        let mut wanted = of(&merchant_id);
        narrow(&mut wanted);
        let told = format!("{wanted:?}");
        let found = ids(&mut world, wanted).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{told}");
    }
    let wanted = of(&merchant_id);
    let (listed, _) = list(&mut world, wanted).await.unwrap();
    assert_eq!(listed[1].last_http_status, Some(404));
    assert_eq!(listed[1].last_cause(), FailureCause::Status);
    assert_eq!(listed[0].last_http_status, Some(200));
    assert_eq!(listed[0].last_cause(), FailureCause::Unspecified);
}

#[tokio::test]
async fn pages_lead_through_every_delivery_once() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.deliver(&merchant_id).await);
    }
    made.reverse();
    for answer in [AnswerClass::Unspecified, AnswerClass::Http2xx] {
        for id in &made {
            world.in_state(id, DeliveryStatus::Delivered).await;
        }
        let mut seen = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListMerchantDeliveriesRequest {
                page_size: 2,
                page_token,
                answer: answer.into(),
                ..of(&merchant_id)
            };
            let (deliveries, next) = list(&mut world, request).await.unwrap();
            assert!(deliveries.len() <= 2);
            seen.extend(deliveries.into_iter().map(|one| one.delivery_id));
            if next.is_empty() {
                break;
            }
            page_token = next;
        }
        assert_eq!(seen, made);
    }
}

#[tokio::test]
async fn what_is_no_filter_is_refused_by_name() {
    let mut world = World::start().await;
    let checks: [(&Change<'_>, &str); 7] = [
        (
            &|wanted| wanted.merchant_id = "nobody".to_owned(),
            "merchant_id",
        ),
        (&|wanted| wanted.status = 99, "status"),
        (&|wanted| wanted.answer = 99, "answer"),
        (&|wanted| wanted.event_type = 99, "event_type"),
        (&|wanted| wanted.from = "yesterday".to_owned(), "from"),
        (&|wanted| wanted.page_token = "x".to_owned(), "page_token"),
        (
            &|wanted| wanted.event_ids = vec!["x".to_owned()],
            "event_ids",
        ),
    ];
    for (spoil, field) in checks {
        let mut wanted = of(&MerchantId::new().to_string());
        spoil(&mut wanted);
        check_invalid(list(&mut world, wanted).await, field);
    }
}

#[tokio::test]
async fn a_delivery_is_shown_with_what_was_sent_and_why_it_failed() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Status(503),
        2 => Answer::Late(Duration::from_secs(60)),
        _ => Answer::Status(200),
    })
    .await;
    let mut world = World::start_with(BRIEF).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    world.after_attempts(&id, 1).await;
    world.advance(MINUTE).await;
    world.after_attempts(&id, 2).await;
    let shown = get(&mut world, &merchant_id, &id).await;
    assert!(!shown.is_running && !shown.is_asked_for);
    let delivery = shown.delivery.unwrap();
    assert_eq!(delivery.status(), DeliveryStatus::Exhausted);
    let causes: Vec<_> = delivery.attempts.iter().map(|one| one.cause()).collect();
    assert_eq!(causes, [FailureCause::Status, FailureCause::Timeout]);
    assert_eq!(delivery.last_cause(), FailureCause::Timeout);
    let request = shown.request.unwrap();
    let arrived = receiver.received().remove(1);
    assert_eq!(request.url, Some(receiver.url()));
    assert_eq!(request.body, arrived.text());
    let mut shown: Vec<_> = request
        .headers
        .iter()
        .map(|header| (header.name.to_lowercase(), header.value.clone()))
        .collect();
    shown.sort();
    let mut sent: Vec<_> = arrived.headers.clone().into_iter().collect();
    sent.sort();
    assert_eq!(shown, sent, "every header, as it arrived");
}

#[tokio::test]
async fn causes_are_told_apart() {
    // Its default timeout: this machine's resolver may be slow to know that there is no such host.
    let mut world = World::start_with(&["--webhook-retry-schedule=1m"]).await;
    let (_closed, refused) = closed_port();
    let reset = Receiver::start(|_, _| Answer::Reset).await;
    for (url, cause) in [
        (refused, FailureCause::Refused),
        (reset.url(), FailureCause::Connection),
        ("http://merchant.invalid/".to_owned(), FailureCause::Dns),
    ] {
        let merchant_id = world.endpoint(&url).await.merchant_id;
        let id = world.deliver(&merchant_id).await;
        let delivery = world.after_attempts(&id, 1).await;
        let attempt = &delivery.attempts[0];
        assert_eq!(attempt.cause(), cause, "{url}: {attempt:?}");
    }
}

#[tokio::test]
async fn asking_twice_for_a_redelivery_that_has_not_begun_adds_none() {
    let receiver = Receiver::start(|number, _| match number {
        1 => Answer::Held,
        _ => Answer::Status(200),
    })
    .await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let id = world.deliver(&merchant_id).await;
    until("the attempt runs", async || receiver.open() == 1).await;
    assert!(get(&mut world, &merchant_id, &id).await.is_running);
    let request = RedeliverMerchantDeliveryRequest {
        merchant_id: merchant_id.clone(),
        delivery_id: id.clone(),
    };
    for _ in 0..3 {
        let asked = world.people.redeliver_merchant_delivery(request.clone());
        asked.await.unwrap();
    }
    assert!(get(&mut world, &merchant_id, &id).await.is_asked_for);
    receiver.release();
    let delivery = world.after_attempts(&id, 2).await;
    assert!(delivery.attempts[1].manual);
    world.advance(HOUR).await;
    world.after_attempts(&id, 2).await;
}

#[tokio::test]
async fn an_endpoint_is_shown_with_how_it_does() {
    let receiver =
        Receiver::start(|number, _| Answer::Status(if number <= 2 { 500 } else { 200 })).await;
    let mut world = World::start_with(BRIEF).await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let exhausted = world.deliver(&merchant_id).await;
    world.after_attempts(&exhausted, 1).await;
    let health = async |world: &mut World| {
        let request = GetEndpointHealthRequest {
            merchant_id: merchant_id.clone(),
        };
        let health = world.people.get_endpoint_health(request).await;
        health.unwrap().into_inner()
    };
    let failing = health(&mut world).await;
    assert_eq!((failing.ended, failing.failing), (0, 1));
    world.advance(MINUTE).await;
    world.after_attempts(&exhausted, 2).await;
    for _ in 0..3 {
        let id = world.deliver(&merchant_id).await;
        world.in_state(&id, DeliveryStatus::Delivered).await;
    }
    let told = health(&mut world).await;
    assert_eq!((told.ended, told.delivered, told.exhausted), (4, 3, 1));
    assert_eq!(told.failing, 0);
    assert!(told.median_ms <= told.p95_ms && told.p95_ms.is_some());
    let endpoint = told.endpoint.unwrap();
    assert_eq!(endpoint.url, receiver.url());
    assert!(endpoint.enabled && endpoint.exhausted_since.is_none());
    assert_eq!(told.previous_signs_until, None);
    world.advance(25 * HOUR).await;
    let later = health(&mut world).await;
    assert_eq!((later.ended, later.median_ms), (0, None));
}

#[tokio::test]
async fn people_set_switch_and_rotate_their_endpoint() {
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    let set = |url: &str| SetMerchantEndpointRequest {
        merchant_id: merchant_id.clone(),
        url: url.to_owned(),
        events: vec![EventType::PaymentSuccess.into()],
    };
    let reveal = RevealSecretsRequest {
        merchant_id: merchant_id.clone(),
    };
    let none = world.people.reveal_secrets(reveal.clone()).await;
    check_refusal(none, Code::NotFound, "ENDPOINT_NOT_FOUND");
    let refused = world
        .people
        .set_merchant_endpoint(set("http://10.0.0.1/"))
        .await;
    check_invalid(refused, "url");
    let made = world
        .people
        .set_merchant_endpoint(set("http://127.0.0.1:9/"))
        .await;
    let made = made.unwrap().into_inner();
    assert!(made.enabled);
    assert_eq!(made.events, [i32::from(EventType::PaymentSuccess)]);
    let off = SetMerchantEndpointEnabledRequest {
        merchant_id: merchant_id.clone(),
        enabled: false,
    };
    let off = world.people.set_merchant_endpoint_enabled(off).await;
    let off = off.unwrap().into_inner();
    assert!(!off.enabled);
    let first = world.people.reveal_secrets(reveal.clone()).await;
    let first = first.unwrap().into_inner();
    assert!(first.current.starts_with("whsec_") && first.previous.is_none());
    let rotate = RotateMerchantSecretRequest {
        merchant_id: merchant_id.clone(),
        updated_at: off.updated_at,
    };
    world.advance(HOUR).await;
    let rotated = world.people.rotate_merchant_secret(rotate.clone()).await;
    let rotated = rotated.unwrap().into_inner();
    let again = world.people.rotate_merchant_secret(rotate).await;
    check_refusal(again, Code::FailedPrecondition, "FORM_USED");
    assert_eq!(rotated.previous, Some(first.current));
    let health = GetEndpointHealthRequest { merchant_id };
    let health = world.people.get_endpoint_health(health).await;
    let health = health.unwrap().into_inner();
    assert_eq!(health.previous_signs_until, rotated.previous_signs_until);
    assert!(health.previous_signs_until.is_some());
    world.advance(25 * HOUR).await;
    let later = world.people.reveal_secrets(reveal).await;
    let later = later.unwrap().into_inner();
    assert_eq!((later.previous, later.previous_signs_until), (None, None));
}

#[tokio::test]
async fn an_event_of_which_nothing_was_sent_shows_no_signature() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    world.enable(&merchant_id, false).await;
    world.publish(payment(&merchant_id)).await;
    let (listed, _) = list(&mut world, of(&merchant_id)).await.unwrap();
    let shown = get(&mut world, &merchant_id, &listed[0].delivery_id).await;
    let request = shown.request.unwrap();
    assert_eq!(request.url, None);
    let names: Vec<_> = request
        .headers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert!(!names.contains(&"X-Service-Signature") && !names.contains(&"Host"));
}
