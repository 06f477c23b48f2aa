//! Spec §6.1: what an event looks like, and which events are delivered.

use chassis::{
    ids::{EventId, MerchantId},
    testing::{check_invalid, until},
};
use proptest::prelude::*;
use proto::webhooks::{
    DeliveryStatus, EventType, ListDeliveriesRequest, Payment, Payout, PublishRequest, Refund,
    SetEndpointRequest, publish_request::Data,
};
use tokio::task::JoinSet;
use webhooks_svc::event::Number;

use crate::{
    receiver::Receiver,
    world::{World, money, payment},
};

const SESSION: &str = "5f0c7a3e-6f0b-4b52-9a53-0d7c9a1f2b3c";

/// Delivers an event and compares every byte of its `data` and envelope.
async fn check_body(event_type: EventType, type_code: &str, data: Data, expected: &str) {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let endpoint = SetEndpointRequest {
        merchant_id: MerchantId::new().to_string(),
        url: receiver.url(),
        events: vec![event_type.into()],
    };
    let merchant_id = endpoint.merchant_id.clone();
    world.operations.set_endpoint(endpoint).await.unwrap();
    let event = PublishRequest {
        r#type: event_type.into(),
        data: Some(data),
        ..payment(&merchant_id)
    };
    world.publish(event.clone()).await;
    until("it arrives", async || !receiver.received().is_empty()).await;
    let expected = format!(
        r#"{{"id":"{}","type":"{type_code}","created_at":"2026-01-31T09:00:00.000Z","data":{expected}}}"#,
        event.event_id
    );
    assert_eq!(receiver.received()[0].text(), expected);
}

fn settled() -> Payment {
    Payment {
        tx_id_display: Some("TX-0123456789".to_owned()),
        session_id: SESSION.to_owned(),
        amount: Some(money(2550, "GHS")),
        method: Some("MOBILE_MONEY".to_owned()),
        status: "SETTLED".to_owned(),
        session_status: "COMPLETED".to_owned(),
        ..Payment::default()
    }
}

#[tokio::test]
async fn a_settled_payment_is_told_as_the_specification_says() {
    let expected = r#"{"tx_id_display":"TX-0123456789","session_id":"5f0c7a3e-6f0b-4b52-9a53-0d7c9a1f2b3c","amount":25.50,"currency":"GHS","method":"MOBILE_MONEY","status":"SETTLED","failure_reason":null,"session_status":"COMPLETED"}"#;
    check_body(
        EventType::PaymentSuccess,
        "payment.success",
        Data::Payment(settled()),
        expected,
    )
    .await;
}

#[tokio::test]
async fn an_expired_session_is_told_without_transaction_and_method() {
    let payment = Payment {
        tx_id_display: None,
        method: None,
        status: "FAILED".to_owned(),
        failure_reason: Some("SESSION_EXPIRED".to_owned()),
        failure_message: Some("Nobody paid \"in time\".".to_owned()),
        session_status: "EXPIRED".to_owned(),
        ..settled()
    };
    let expected = r#"{"tx_id_display":null,"session_id":"5f0c7a3e-6f0b-4b52-9a53-0d7c9a1f2b3c","amount":25.50,"currency":"GHS","method":null,"status":"FAILED","failure_reason":"SESSION_EXPIRED","failure_message":"Nobody paid \"in time\".","session_status":"EXPIRED"}"#;
    check_body(
        EventType::PaymentFailed,
        "payment.failed",
        Data::Payment(payment),
        expected,
    )
    .await;
}

#[tokio::test]
async fn a_payment_in_another_currency_also_tells_what_was_debited() {
    let payment = Payment {
        amount: Some(money(1000, "USD")),
        settled: Some(money(12345, "GHS")),
        rate: Some("12.3450".to_owned()),
        ..settled()
    };
    let expected = r#"{"tx_id_display":"TX-0123456789","session_id":"5f0c7a3e-6f0b-4b52-9a53-0d7c9a1f2b3c","amount":10.00,"currency":"USD","method":"MOBILE_MONEY","status":"SETTLED","failure_reason":null,"session_status":"COMPLETED","settled_amount":123.45,"settled_currency":"GHS","rate":12.3450}"#;
    check_body(
        EventType::PaymentSuccess,
        "payment.success",
        Data::Payment(payment),
        expected,
    )
    .await;
}

#[tokio::test]
async fn a_payout_is_told_with_its_destination() {
    let payout = Payout {
        payout_id: "PO-0123456789".to_owned(),
        amount: Some(money(100_000, "GHS")),
        method: "MOBILE_MONEY".to_owned(),
        status: "COMPLETED".to_owned(),
        destination_type: "MOBILE_MONEY".to_owned(),
        destination_provider: "MTN".to_owned(),
        destination_account: "024 ••• 3456".to_owned(),
        failure_reason: None,
        created_at: "2026-01-31T08:00:00.000Z".to_owned(),
        completed_at: Some("2026-01-31T08:59:00.000Z".to_owned()),
    };
    let expected = r#"{"payout_id":"PO-0123456789","amount":1000.00,"currency":"GHS","method":"MOBILE_MONEY","status":"COMPLETED","destination":{"type":"MOBILE_MONEY","provider":"MTN","account":"024 ••• 3456"},"failure_reason":null,"created_at":"2026-01-31T08:00:00.000Z","completed_at":"2026-01-31T08:59:00.000Z"}"#;
    check_body(
        EventType::PayoutSuccess,
        "payout.success",
        Data::Payout(payout),
        expected,
    )
    .await;
}

#[tokio::test]
async fn a_refund_is_told_with_its_charge() {
    let refund = Refund {
        refund_id: "RF-0123456789".to_owned(),
        reference: "TX-0123456789-ABCDEF".to_owned(),
        tx_id_display: "TX-0123456789".to_owned(),
        session_id: "5f0c7a3e-6f0b-4b52-9a53-0d7c9a1f2b3c".to_owned(),
        amount: Some(money(1_050, "GHS")),
        method: "MOBILE_MONEY".to_owned(),
        status: "FAILED".to_owned(),
        failure_reason: Some("PAYEE_NOT_FOUND".to_owned()),
        failure_message: Some("There is no such account.".to_owned()),
        created_at: "2026-01-31T08:00:00.000Z".to_owned(),
        completed_at: None,
        from_suspense: true,
    };
    let expected = r#"{"refund_id":"RF-0123456789","reference":"TX-0123456789-ABCDEF","tx_id_display":"TX-0123456789","session_id":"5f0c7a3e-6f0b-4b52-9a53-0d7c9a1f2b3c","amount":10.50,"currency":"GHS","method":"MOBILE_MONEY","status":"FAILED","failure_reason":"PAYEE_NOT_FOUND","failure_message":"There is no such account.","created_at":"2026-01-31T08:00:00.000Z","completed_at":null,"from_balance":false}"#;
    check_body(
        EventType::RefundFailed,
        "refund.failed",
        Data::Refund(refund),
        expected,
    )
    .await;
}

proptest! {
    #[test]
    fn amounts_are_written_digit_for_digit(minor in 0_i64..=i64::MAX, code in "GHS|JPY|BHD") {
        let decimals = match &*code { "JPY" => 0, "BHD" => 3, _ => 2 };
        let digits = format!("{minor:0>width$}", width = decimals + 1);
        let (major, fraction) = digits.split_at(digits.len() - decimals);
        let expected = if decimals == 0 { digits.clone() } else { format!("{major}.{fraction}") };
        let money = chassis::money::Money::new(minor, code.parse().unwrap());
        prop_assert_eq!(serde_json::to_string(&Number::from(money)).unwrap(), expected);
    }
}

#[tokio::test]
async fn fifty_parallel_publications_of_one_event_are_one_delivery() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let event = payment(&merchant_id);
    let mut publishing = JoinSet::new();
    for _ in 0..50 {
        let (mut client, event) = (world.client.clone(), event.clone());
        publishing.spawn(async move { client.publish(event).await.map(drop) });
    }
    for answer in publishing.join_all().await {
        answer.unwrap();
    }
    let deliveries = world.deliveries(&merchant_id).await;
    assert_eq!(deliveries.len(), 1);
    let id = &deliveries[0].delivery_id;
    world.in_state(id, DeliveryStatus::Delivered).await;
    world.publish(event).await;
    world.advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(world.deliveries(&merchant_id).await.len(), 1);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn of_two_events_with_one_id_the_first_counts() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let first = payment(&merchant_id);
    let second = PublishRequest {
        created_at: "2026-02-01T00:00:00.000Z".to_owned(),
        ..first.clone()
    };
    world.publish(first).await;
    world.publish(second).await;
    let id = world.deliveries(&merchant_id).await[0].delivery_id.clone();
    world.in_state(&id, DeliveryStatus::Delivered).await;
    let seen = receiver.received();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].text().contains("2026-01-31T09:00:00.000Z"));
}

#[tokio::test]
async fn an_endpoint_without_a_list_gets_the_four_of_the_specification() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let amount = Some(money(1_050, "GHS"));
    let refund = PublishRequest {
        r#type: EventType::RefundSuccess.into(),
        data: Some(Data::Refund(Refund {
            amount: amount.clone(),
            ..Refund::default()
        })),
        ..payment(&merchant_id)
    };
    world.publish(refund).await;
    let payout = PublishRequest {
        r#type: EventType::PayoutFailed.into(),
        data: Some(Data::Payout(Payout {
            amount,
            ..Payout::default()
        })),
        ..payment(&merchant_id)
    };
    world.publish(payout.clone()).await;
    until("the payout's arrives", async || {
        !receiver.received().is_empty()
    })
    .await;
    let request = ListDeliveriesRequest {
        merchant_id,
        ..ListDeliveriesRequest::default()
    };
    let listed = world.operations.list_deliveries(request).await.unwrap();
    let listed: Vec<_> = listed.into_inner().deliveries;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].event_id, payout.event_id);
}

#[tokio::test]
async fn only_what_was_subscribed_when_it_happened_is_delivered() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = MerchantId::new().to_string();
    world.publish(payment(&merchant_id)).await;
    let mut subscribe = SetEndpointRequest {
        merchant_id: merchant_id.clone(),
        url: receiver.url(),
        events: vec![
            EventType::PaymentFailed.into(),
            EventType::PaymentFailed.into(),
        ],
    };
    let endpoint = world
        .operations
        .set_endpoint(subscribe.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(endpoint.events, [i32::from(EventType::PaymentFailed)]);
    world.publish(payment(&merchant_id)).await;
    let failed = PublishRequest {
        r#type: EventType::PaymentFailed.into(),
        ..payment(&merchant_id)
    };
    world.publish(failed.clone()).await;
    subscribe.events.clear();
    world.operations.set_endpoint(subscribe).await.unwrap();
    let success = payment(&merchant_id);
    world.publish(success.clone()).await;
    let deliveries = world.deliveries(&merchant_id).await;
    let told: Vec<_> = deliveries
        .iter()
        .map(|delivery| &*delivery.event_id)
        .collect();
    assert_eq!(
        told,
        [&*success.event_id, &*failed.event_id],
        "newest first"
    );
    assert_eq!(deliveries[1].event_type(), EventType::PaymentFailed);
}

#[tokio::test]
async fn an_event_that_makes_no_sense_is_refused_by_its_field() {
    let mut world = World::start().await;
    let good = payment(&MerchantId::new().to_string());
    let with_payment = |change: &dyn Fn(&mut Payment)| {
        let mut payment = settled();
        change(&mut payment);
        Some(Data::Payment(payment))
    };
    let with = |change: &dyn Fn(&mut PublishRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let cases = [
        ("event_id", with(&|r| r.event_id = "evt_1".to_owned())),
        ("merchant_id", with(&|r| r.merchant_id = "me".to_owned())),
        ("type", with(&|r| r.r#type = 0)),
        ("type", with(&|r| r.r#type = 99)),
        (
            "created_at",
            with(&|r| r.created_at = "yesterday".to_owned()),
        ),
        ("data", with(&|r| r.data = None)),
        ("data", with(&|r| r.r#type = EventType::PayoutFailed.into())),
        (
            "payment.amount",
            with(&|r| r.data = with_payment(&|p| p.amount = None)),
        ),
        (
            "payment.amount",
            with(&|r| r.data = with_payment(&|p| p.amount = Some(money(1, "XXX")))),
        ),
        (
            "payment.rate",
            with(&|r| r.data = with_payment(&|p| p.rate = Some("1e5".to_owned()))),
        ),
        (
            "payment.rate",
            with(&|r| r.data = with_payment(&|p| p.rate = Some(String::new()))),
        ),
    ];
    for (field, request) in cases {
        check_invalid(world.try_publish(request).await, field);
    }
    world.publish(good).await;
}

#[tokio::test]
async fn deliveries_are_listed_page_by_page_and_for_their_merchant_alone() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let other = world.endpoint(&receiver.url()).await.merchant_id;
    let mut published = Vec::new();
    for _ in 0..25 {
        let event = PublishRequest {
            event_id: EventId::new().to_string(),
            ..payment(&merchant_id)
        };
        published.push(event.event_id.clone());
        world.publish(event).await;
    }
    world.deliver(&other).await;
    let mut listed = Vec::new();
    let mut sizes = Vec::new();
    let mut page = ListDeliveriesRequest {
        merchant_id,
        page_size: 10,
        page_token: String::new(),
    };
    loop {
        let answer = world
            .operations
            .list_deliveries(page.clone())
            .await
            .unwrap()
            .into_inner();
        sizes.push(answer.deliveries.len());
        listed.extend(
            answer
                .deliveries
                .into_iter()
                .map(|delivery| delivery.event_id),
        );
        if answer.next_page_token.is_empty() {
            break;
        }
        page.page_token = answer.next_page_token;
    }
    published.reverse();
    assert_eq!(listed, published);
    assert_eq!(sizes, [10, 10, 5]);
    page.page_size = 0;
    page.page_token = String::new();
    let answer = world
        .operations
        .list_deliveries(page.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.deliveries.len(), 20);
    for (page_size, page_token, field) in [(0, "nonsense", "page_token"), (101, "", "page_size")] {
        page.page_size = page_size;
        page.page_token = page_token.to_owned();
        check_invalid(world.operations.list_deliveries(page.clone()).await, field);
    }
}
