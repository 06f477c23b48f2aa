//! What has happened to a charge, from two services at once.

use proto::{
    charges::{
        AskedBy, BalanceChange, ChargeStatus, ChargeTimeline, TimelineEntry, TimelineKind,
        TimelineOutcome,
    },
    webhooks::{
        Attempt, Delivery, DeliveryStatus, EventDelivery, EventType, GetEventDeliveriesResponse,
    },
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    gateway::{CHARGE, Gateway},
    http::Answer,
    services::{EVENT_ID, REFERENCE, REFUND_ID, merchant, money, refusal},
};

async fn read(gateway: &Gateway) -> Answer {
    let path = format!("{CHARGE}/{REFERENCE}/timeline");
    gateway.get(&path).send().await
}

fn at(second: u32) -> String {
    format!("2026-01-31T09:00:{second:02}.000Z")
}

fn entry(second: u32, kind: TimelineKind) -> TimelineEntry {
    TimelineEntry {
        at: at(second),
        kind: kind.into(),
        ..TimelineEntry::default()
    }
}

/// A settled charge, of which a refund has failed.
fn charge() -> ChargeTimeline {
    let said = |second, kind, outcome: TimelineOutcome| TimelineEntry {
        outcome: outcome.into(),
        times: Some(3),
        last_at: Some(at(second + 1)),
        ..entry(second, kind)
    };
    let change = |minor, is_reserved| {
        Some(BalanceChange {
            posting: "RESERVE".to_owned(),
            is_reserved,
            amount: money(minor, "GHS"),
        })
    };
    let entries = vec![
        TimelineEntry {
            amount: money(2550, "GHS"),
            asked_by: Some(AskedBy {
                request_id: Some("order-17".to_owned()),
                key_name: Some("Till 1".to_owned()),
            }),
            ..entry(0, TimelineKind::Request)
        },
        TimelineEntry {
            network_reference: Some("7f3e".to_owned()),
            ..said(0, TimelineKind::NetworkRequest, TimelineOutcome::Accepted)
        },
        said(1, TimelineKind::Query, TimelineOutcome::Pending),
        TimelineEntry {
            status: Some("SETTLED".to_owned()),
            ..entry(5, TimelineKind::Status)
        },
        TimelineEntry {
            event_id: Some(EVENT_ID.to_owned()),
            ..entry(5, TimelineKind::Event)
        },
        TimelineEntry {
            refund_id: Some(REFUND_ID.to_owned()),
            balance_change: change(-550, false),
            ..entry(9, TimelineKind::Ledger)
        },
        // What only a newer version knows.
        entry(9, TimelineKind::Unspecified),
    ];
    ChargeTimeline {
        status: ChargeStatus::Settled.into(),
        entries,
        ..ChargeTimeline::default()
    }
}

/// Its event, delivered at the second attempt.
fn delivered() -> EventDelivery {
    let attempt = |number, second, http_status| Attempt {
        number,
        started_at: at(second),
        finished_at: Some(at(second + 1)),
        succeeded: http_status == 200,
        http_status: Some(http_status),
        error: (http_status != 200).then(|| format!("answered {http_status}")),
        duration_ms: 1_000,
        response_excerpt: Some("<p>".to_owned()),
        ..Attempt::default()
    };
    EventDelivery {
        event_id: EVENT_ID.to_owned(),
        r#type: EventType::PaymentSuccess.into(),
        created_at: at(5),
        delivery: Some(Delivery {
            delivery_id: "dlv_01JD7Z5W8RK2M4N6P8Q0S2T4V6".to_owned(),
            status: DeliveryStatus::Delivered.into(),
            attempts_count: 2,
            attempts: vec![attempt(1, 5, 500), attempt(2, 7, 200)],
            ..Delivery::default()
        }),
    }
}

async fn gateway() -> Gateway {
    let gateway = Gateway::start().await;
    let services = &gateway.services;
    services.get_charge_timeline.answers(|_| Ok(charge()));
    services.get_event_deliveries.answers(|_| {
        Ok(GetEventDeliveriesResponse {
            events: vec![delivered()],
        })
    });
    gateway
}

#[tokio::test]
async fn a_timeline_is_merged_by_time_and_each_entry_has_what_its_kind_has() {
    let gateway = gateway().await;
    let answer = read(&gateway).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let attempt = |number: u32, second, http_status: u32, error: Value| {
        json!({
            "at": at(second), "kind": "DELIVERY_ATTEMPT", "event_id": EVENT_ID,
            "number": number, "manual": false, "succeeded": http_status == 200,
            "http_status": http_status, "error": error, "duration_ms": 1000,
            "finished_at": at(second + 1), "response_excerpt": "<p>",
        })
    };
    let expected = json!({
        "reference": REFERENCE,
        "status": "SETTLED",
        "entries": [
            {
                "at": at(0), "kind": "REQUEST", "amount": 25.50, "currency": "GHS",
                "request_id": "order-17", "key_name": "Till 1",
            },
            {
                "at": at(0), "kind": "NETWORK_REQUEST", "outcome": "ACCEPTED", "times": 3,
                "last_at": at(1), "network_reference": "7f3e",
            },
            { "at": at(1), "kind": "QUERY", "outcome": "PENDING", "times": 3, "last_at": at(2) },
            { "at": at(5), "kind": "STATUS", "status": "SETTLED", "failure_reason": null },
            {
                "at": at(5), "kind": "EVENT", "event_id": EVENT_ID,
                "event_type": "payment.success", "delivery_status": "DELIVERED",
                "attempts_count": 2, "next_attempt_at": null,
            },
            attempt(1, 5, 500, json!("answered 500")),
            attempt(2, 7, 200, Value::Null),
            {
                "at": at(9), "kind": "LEDGER", "refund_id": REFUND_ID, "posting": "RESERVE",
                "account": "AVAILABLE", "amount": -5.50, "currency": "GHS",
            },
        ],
        "has_more_refunds": false,
    });
    assert_eq!(answer.json(), expected);
    assert!(answer.text().contains(r#""amount":25.50,"#));
    let asked = gateway.services.get_event_deliveries.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
    assert_eq!(asked.event_ids, [EVENT_ID]);
    let asked = gateway.services.get_charge_timeline.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
}

#[tokio::test]
async fn an_event_that_was_not_accepted_yet_is_not_shown_and_one_without_endpoint_is() {
    let gateway = gateway().await;
    let events = |answer: &Answer| {
        let told = answer.json();
        let entries = told["entries"].as_array().unwrap().iter();
        let events = entries.filter(|entry| entry["kind"] == "EVENT");
        events.cloned().collect::<Vec<_>>()
    };
    let services = &gateway.services;
    let none = |_| Ok(GetEventDeliveriesResponse::default());
    services.get_event_deliveries.answers(none);
    assert_eq!(events(&read(&gateway).await), [] as [Value; 0]);
    services.get_event_deliveries.answers(|_| {
        let event = EventDelivery {
            delivery: None,
            ..delivered()
        };
        Ok(GetEventDeliveriesResponse {
            events: vec![event],
        })
    });
    let event = events(&read(&gateway).await).remove(0);
    assert_eq!(event["delivery_status"], Value::Null);
    assert_eq!(event["attempts_count"], 0);
}

#[tokio::test]
async fn without_one_of_the_services_there_is_no_half_of_a_timeline() {
    let gateway = gateway().await;
    let gone = |_| Err(Status::unavailable("gone"));
    gateway.services.get_event_deliveries.answers(gone);
    read(&gateway).await.assert_error(503, "UNAVAILABLE");
    // A charge that has not ended has no event to ask about.
    gateway.services.get_charge_timeline.answers(|_| {
        Ok(ChargeTimeline {
            status: ChargeStatus::Initiated.into(),
            entries: vec![entry(2, TimelineKind::Prompt)],
            has_more_refunds: true,
            ..ChargeTimeline::default()
        })
    });
    let answer = read(&gateway).await;
    let expected = json!({
        "reference": REFERENCE,
        "status": "INITIATED",
        "entries": [{ "at": at(2), "kind": "PROMPT" }],
        "has_more_refunds": true,
    });
    assert_eq!(answer.json(), expected);
    gateway
        .services
        .get_charge_timeline
        .answers(|_| Err(Status::unavailable("gone")));
    read(&gateway).await.assert_error(503, "UNAVAILABLE");
}

#[tokio::test]
async fn a_timeline_of_nothing_is_not_found() {
    let gateway = gateway().await;
    let not_found = |_| Err(refusal(Code::NotFound, "CHARGE_NOT_FOUND"));
    gateway.services.get_charge_timeline.answers(not_found);
    read(&gateway).await.assert_error(404, "NOT_FOUND");
    let malformed = gateway.get(&format!("{CHARGE}/TX-1/timeline")).send().await;
    malformed.assert_error(404, "NOT_FOUND");
    assert!(gateway.services.get_event_deliveries.asked().is_empty());
}
