//! Events, pulled, and the endpoint to which they are sent.

use std::sync::Arc;

use chassis::testing::until;
use proto::webhooks::{
    EventType, FeedEvent, ListEventsResponse, MerchantEndpoint, RedeliverEventResponse,
    TestEndpointResponse,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tonic::Code;

use crate::{
    gateway::{Gateway, INITIATE},
    services::{EVENT_ID, merchant, refusal},
};

const EVENTS: &str = "/api/v1/events";
const ENDPOINT: &str = "/api/v1/webhook-endpoint";

/// As nobody who parses and writes it again would write it.
const BODY: &str = r#"{"type":"payment.success","id":"evt_1","data":{"amount":25.50,"b":1e2}}"#;

fn one_event() -> ListEventsResponse {
    ListEventsResponse {
        events: vec![FeedEvent {
            sequence: 18,
            event_id: "evt_1".to_owned(),
            body: BODY.to_owned(),
        }],
        last_sequence: 20,
    }
}

fn redeliver() -> String {
    format!("{EVENTS}/{EVENT_ID}/redeliver")
}

#[tokio::test]
async fn events_are_listed_byte_for_byte_with_their_numbers() {
    let gateway = Gateway::start().await;
    gateway.services.list_events.answers(|_| Ok(one_event()));
    let answer = gateway.get(&format!("{EVENTS}?after=17&limit=1"));
    let answer = answer.send().await;
    let listed = format!(r#"{{"data":[{{"sequence":18,"event":{BODY}}}],"last_sequence":20}}"#);
    assert_eq!((answer.status, answer.text()), (200, listed.as_str()));
    let asked = gateway.services.list_events.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
    assert_eq!(
        (asked.after, asked.page_size, asked.wait_seconds),
        (17, 1, 0)
    );
}

#[tokio::test]
async fn a_list_begins_at_the_first_event_and_does_not_wait_unless_asked() {
    let gateway = Gateway::start().await;
    let answer = gateway.get(EVENTS).send().await;
    assert_eq!(answer.text(), r#"{"data":[],"last_sequence":0}"#);
    let asked = gateway.services.list_events.asked_once();
    assert_eq!(
        (asked.after, asked.page_size, asked.wait_seconds),
        (0, 20, 0)
    );
}

#[tokio::test]
async fn bad_parameters_are_named_and_nothing_is_asked() {
    let gateway = Gateway::start().await;
    for (query, field) in [
        ("after=-1", "after"),
        ("after=x", "after"),
        ("after=", "after"),
        ("after=01", "after"),
        ("after=1.0", "after"),
        ("after=9223372036854775808", "after"),
        ("after=18446744073709551616", "after"),
        ("after=evt_01JD7Z5W8RK2M4N6P8Q0S2T4V6", "after"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("wait=0", "wait"),
        ("wait=31", "wait"),
        ("wait=-1", "wait"),
        ("wait=20s", "wait"),
        ("wait=%2B1", "wait"),
    ] {
        let answer = gateway.get(&format!("{EVENTS}?{query}")).send().await;
        let named = (field.to_owned(), "OUT_OF_RANGE".to_owned());
        assert_eq!(answer.refused_fields(), [named], "{query}");
    }
    let twice = gateway
        .get(&format!("{EVENTS}?after=1&after=2"))
        .send()
        .await;
    let named = ("after".to_owned(), "INVALID_FORMAT".to_owned());
    assert_eq!(twice.refused_fields(), [named]);
    assert!(gateway.services.list_events.asked().is_empty());
}

/// A gateway with room for one request, whose event happens when the test says so.
async fn waiting_gateway(flags: &[&str]) -> (Gateway, Arc<Notify>) {
    let gateway = Gateway::start_with(&[&["--requests-max=1"], flags].concat()).await;
    let happen = Arc::new(Notify::new());
    let happening = happen.clone();
    gateway.services.list_events.answers_late(move |request| {
        let happening = happening.clone();
        async move {
            if request.wait_seconds > 0 {
                happening.notified().await;
                return Ok(one_event());
            }
            Ok(ListEventsResponse::default())
        }
    });
    (gateway, happen)
}

/// For how long webhooks-svc was asked to wait, each time.
fn waits(gateway: &Gateway) -> Vec<u32> {
    let asked = gateway.services.list_events.asked();
    asked.iter().map(|one| one.wait_seconds).collect()
}

#[tokio::test]
async fn a_wait_takes_no_request_s_place_and_is_answered_once_something_happens() {
    let (gateway, happen) = waiting_gateway(&[]).await;
    let waiting = gateway.get(&format!("{EVENTS}?wait=30")).send();
    let others = async {
        until("it waits", async || {
            gateway.services.list_events.asked().len() == 2
        })
        .await;
        let other = gateway.post(INITIATE, r#"{"amount":1}"#).send().await;
        assert_eq!(other.status, 201);
        happen.notify_one();
    };
    let (answer, ()) = tokio::join!(waiting, others);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["data"][0]["sequence"], 18);
    assert_eq!(waits(&gateway), [0, 30]);
}

#[tokio::test]
async fn a_wait_too_many_is_answered_at_once() {
    let (gateway, _happen) = waiting_gateway(&["--waits-max=0"]).await;
    let answer = gateway.get(&format!("{EVENTS}?wait=30")).send().await;
    assert_eq!(answer.json(), json!({ "data": [], "last_sequence": 0 }));
    assert_eq!(waits(&gateway), [0]);
}

#[tokio::test]
async fn a_process_that_stops_answers_who_waits() {
    let (gateway, _happen) = waiting_gateway(&[]).await;
    let waiting = gateway.get(&format!("{EVENTS}?after=7&wait=30")).send();
    let stopping = async {
        until("it waits", async || {
            gateway.services.list_events.asked().len() == 2
        })
        .await;
        gateway.stop();
    };
    let (answer, ()) = tokio::join!(waiting, stopping);
    let nothing = json!({ "data": [], "last_sequence": 0 });
    assert_eq!((answer.status, answer.json()), (200, nothing));
    assert_eq!(waits(&gateway), [0, 30]);
}

#[tokio::test]
async fn an_event_is_sent_again_once_for_each_time_that_it_is_asked_for() {
    let gateway = Gateway::start().await;
    gateway.services.redeliver_event.answers(|_| {
        Ok(RedeliverEventResponse {
            delivery_id: "dlv_1".to_owned(),
        })
    });
    let answer = gateway
        .request("POST", &redeliver())
        .key(gateway.key.expose());
    let answer = answer.send().await;
    let told = json!({ "delivery_id": "dlv_1" });
    assert_eq!((answer.status, answer.json()), (202, told));
    let asked = gateway.services.redeliver_event.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
    assert_eq!(asked.event_id, EVENT_ID);
}

#[tokio::test]
async fn what_is_no_event_of_the_merchant_s_is_not_found() {
    let gateway = Gateway::start().await;
    for id in [EVENT_ID, "evt_1", "x", "%ff"] {
        let answer = gateway.post(&format!("{EVENTS}/{id}/redeliver"), "").send();
        answer.await.assert_error(404, "NOT_FOUND");
    }
    let asked = gateway.services.redeliver_event.asked_once();
    assert_eq!(
        asked.event_id, EVENT_ID,
        "what cannot be one is not asked for"
    );
}

#[tokio::test]
async fn without_an_endpoint_the_merchant_is_told_so() {
    let gateway = Gateway::start().await;
    let missing = |_| Err(refusal(Code::NotFound, "ENDPOINT_NOT_FOUND"));
    gateway.services.redeliver_event.answers(missing);
    for (method, path) in [
        ("POST", redeliver().as_str()),
        ("GET", ENDPOINT),
        ("POST", "/api/v1/webhook-endpoint/test"),
    ] {
        let request = gateway.request(method, path).key(gateway.key.expose());
        request
            .send()
            .await
            .assert_error(404, "NO_WEBHOOK_ENDPOINT");
    }
}

#[tokio::test]
async fn the_endpoint_shows_what_it_gets_and_is_tested() {
    let gateway = Gateway::start().await;
    let since = "2026-11-21T09:30:00.000Z";
    let endpoint = move |events: &[EventType]| MerchantEndpoint {
        url: "https://shop.example.com/webhooks".to_owned(),
        events: events.iter().map(|of| i32::from(*of)).collect(),
        enabled: true,
        exhausted_since: None,
        created_at: since.to_owned(),
        updated_at: since.to_owned(),
    };
    let four = [
        "payment.success",
        "payment.failed",
        "payout.success",
        "payout.failed",
    ];
    for (chosen, shown) in [
        (&[][..], &four[..]),
        (&[EventType::RefundFailed], &["refund.failed"]),
        // A type that only a newer version of webhooks-svc knows has no name here.
        (
            &[EventType::Unspecified, EventType::PaymentFailed],
            &["payment.failed"],
        ),
    ] {
        let answered = endpoint(chosen);
        let answering = move |_| Ok(answered.clone());
        gateway.services.get_merchant_endpoint.answers(answering);
        let answer = gateway.get(ENDPOINT).send().await;
        let expected = json!({
            "url": "https://shop.example.com/webhooks",
            "events": shown,
            "enabled": true,
            "exhausted_since": Value::Null,
            "created_at": since,
            "updated_at": since,
        });
        assert_eq!((answer.status, answer.json()), (200, expected));
    }
    gateway.services.test_endpoint.answers(|_| {
        Ok(TestEndpointResponse {
            event_id: EVENT_ID.to_owned(),
        })
    });
    let answer = gateway.post(&format!("{ENDPOINT}/test"), "").send().await;
    let made = json!({ "event_id": EVENT_ID });
    assert_eq!((answer.status, answer.json()), (202, made));
    let asked = gateway.services.test_endpoint.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
}
