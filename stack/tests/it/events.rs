//! A merchant pulls its events, waits for the next, and has them sent again.

use std::{process::Stdio, time::Duration};

use proto::charges::Provider;
use serde_json::{Value, json};
use stack::demo::{Api, Receiver};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::{
    money_out::Till,
    processes::binary,
    shop::{NO_LIMITS, Shop, WAIT_MAX},
    wire::Wire,
};

const EVENTS: &str = "/api/v1/events";
const ENDPOINT: &str = "/api/v1/webhook-endpoint";

fn redelivery_of(event_id: &str) -> String {
    format!("{EVENTS}/{event_id}/redeliver")
}

async fn read(api: &Api, path: &str) -> Value {
    let answer = api.get(path).await.unwrap();
    answer.expect(200).unwrap();
    answer.body
}

/// Reads on from `after`, and waits, until there are this many events, each with the next number.
async fn pull(api: &Api, after: u64, count: u64) -> Vec<Value> {
    let pulling = async {
        let mut events = Vec::new();
        while (events.len() as u64) < count {
            let place = after + events.len() as u64;
            let page = read(api, &format!("{EVENTS}?after={place}&wait=10")).await;
            for numbered in page["data"].as_array().unwrap() {
                let next = after + events.len() as u64 + 1;
                assert_eq!(numbered["sequence"], next, "none is skipped");
                events.push(numbered["event"].clone());
            }
        }
        events
    };
    let pulled = tokio::time::timeout(WAIT_MAX, pulling).await;
    pulled.expect("the events happen")
}

#[tokio::test]
async fn the_feed_has_every_event_in_order_exactly_as_its_webhook_had_it() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut references = Vec::new();
    for number in ["0240000001", "0240000003", "0240000006"] {
        let charge = shop.charge(number, "MTN").await;
        references.push(charge.text("reference").unwrap().to_owned());
    }
    let events = pull(&shop.api, 0, 3).await;
    for reference in &references {
        shop.wait_for_event(reference).await;
    }
    let feed = Wire::of(&shop).get(EVENTS).await;
    let feed = feed.assert_done(200).text();
    for reference in &references {
        let delivery = shop.events(reference).remove(0);
        let body = str::from_utf8(&delivery.body).unwrap();
        assert!(feed.contains(body), "{body}\n{feed}");
    }
    assert!(feed.ends_with(r#"],"last_sequence":3}"#), "{feed}");
    let later = read(&shop.api, &format!("{EVENTS}?after=2&limit=1")).await;
    assert_eq!(later["data"][0]["event"], events[2]);
    shop.close().await;
}

#[tokio::test]
async fn a_wait_holds_up_neither_the_clock_nor_the_end() {
    let shop = Shop::open().await;
    let happening = async {
        // Every advance ends, wherever the wait has got to.
        for _ in 0..3 {
            shop.advance(Duration::from_secs(60)).await;
        }
        shop.charge("0240000006", "MTN").await
    };
    let (events, charge) = tokio::join!(pull(&shop.api, 0, 1), happening);
    assert_eq!(events[0]["data"]["failure_reason"], "PAYER_NOT_FOUND");
    shop.wait_for_event(charge.text("reference").unwrap()).await;
    let last = format!("{EVENTS}?after=1&wait=30");
    let wire = Wire::of(&shop);
    let (reply, ()) = tokio::join!(wire.get(&last), shop.close());
    // Answered when the process stops.
    let nothing = r#"{"data":[],"last_sequence":1}"#;
    assert_eq!(reply.assert_done(200).text(), nothing);
}

#[tokio::test]
async fn anothers_event_is_answered_like_what_does_not_exist() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let neighbour = shop.add_merchant("The house next door").await;
    let key = shop.add_key(&neighbour).await.api_key;
    let stranger = Wire::with_key(&shop, &key);
    shop.charge("0240000006", "MTN").await;
    let event = pull(&shop.api, 0, 1).await.remove(0);
    let id = event["id"].as_str().unwrap();
    let theirs = stranger.post(&redelivery_of(id), "").await;
    let unknown = redelivery_of("evt_00000000000000000000000000");
    let unknown = stranger.post(&unknown, "").await;
    unknown.assert_error(404, "NOT_FOUND");
    assert_eq!(theirs.without_its_moment(), unknown.without_its_moment());
    let feed = stranger.get(EVENTS).await;
    assert_eq!(
        feed.assert_done(200).text(),
        r#"{"data":[],"last_sequence":0}"#
    );
    shop.close().await;
}

#[tokio::test]
async fn an_event_without_an_endpoint_is_kept_and_sent_once_there_is_one() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let merchant_id = shop.add_merchant("No endpoint").await;
    let key = shop.add_key(&merchant_id).await.api_key;
    let api = Api::new(&shop.ready.api, &key).unwrap();
    let wire = Wire::with_key(&shop, &key);
    let body = json!({ "amount": 7, "mobile_number": "0240000006", "provider": "MTN" });
    let charge = api.post("/api/v1/payments/charge", &body).await.unwrap();
    charge.expect(422).unwrap();
    let event = pull(&api, 0, 1).await.remove(0);
    let again = redelivery_of(event["id"].as_str().unwrap());
    for reply in [
        wire.post(&again, "").await,
        wire.get(ENDPOINT).await,
        wire.post(&format!("{ENDPOINT}/test"), "").await,
    ] {
        reply.assert_error(404, "NO_WEBHOOK_ENDPOINT");
    }
    let receiver = Receiver::start().await.unwrap();
    let secret = shop.set_endpoint_of(&merchant_id, &receiver.url).await;
    let sent = wire.post(&again, "").await;
    assert!(
        sent.assert_done(202)
            .field("delivery_id")
            .starts_with("dlv_")
    );
    let display = event["data"]["tx_id_display"].as_str().unwrap();
    let delivery = receiver.wait_for(display, WAIT_MAX).await.unwrap();
    delivery.verify(&secret).unwrap();
    assert_eq!(delivery.json().unwrap(), event);
    shop.close().await;
}

#[tokio::test]
async fn a_key_reads_the_endpoint_without_its_secret_and_tests_it() {
    let shop = Shop::open().await;
    let receiver = Receiver::start().await.unwrap();
    let secret = shop.set_endpoint(&receiver.url).await;
    let wire = Wire::of(&shop);
    let shown = wire.get(ENDPOINT).await;
    shown.assert_done(200);
    assert!(!shown.text().contains("whsec_"), "{}", shown.text());
    assert_eq!(shown.field("url"), receiver.url);
    let tested = wire.post(&format!("{ENDPOINT}/test"), "").await;
    let id = tested.assert_done(202).field("event_id");
    let event = pull(&shop.api, 0, 1).await.remove(0);
    assert_eq!(
        (&event["id"], &event["type"]),
        (&json!(id), &json!("endpoint.test"))
    );
    let arrived = async {
        while receiver.deliveries().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, arrived)
        .await
        .expect("the test arrives");
    let delivery = receiver.deliveries().remove(0);
    delivery.verify(&secret).unwrap();
    assert_eq!(delivery.json().unwrap(), event);
    shop.close().await;
}

/// `payctl` with the merchant's key.
fn payctl(shop: &Shop, words: &[&str]) -> Command {
    let mut command = Command::new(binary("payctl"));
    command
        .args(words)
        .env("API_URL", &shop.ready.api)
        .env("API_KEY", &shop.ready.demo.api_key)
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn payctl_triggers_what_becomes_of_money_that_goes_out() {
    let no_hold = ("charges-svc", "--payout-account-hold=0s");
    let shop = Shop::open_with(&[NO_LIMITS, &[no_hold]].concat()).await;
    let mut till = Till::of(&shop);
    for (event, status, account) in [
        ("payment.success", "SETTLED", None),
        ("refund.failed", "FAILED", None),
        ("payout.success", "COMPLETED", Some("0240000201")),
        ("payout.failed", "FAILED", Some("0240000203")),
    ] {
        if let Some(number) = account {
            till.pays_to(Provider::Mtn, number, "Ama Mensah").await;
        }
        let output = payctl(&shop, &["trigger", event]).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{event}: {said}");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(made["status"], status, "{event}");
    }
    let events = pull(&shop.api, 0, 5).await;
    let mut kinds: Vec<_> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    kinds.sort_unstable();
    let expected = [
        "payment.success",
        "payment.success",
        "payout.failed",
        "payout.success",
        "refund.failed",
    ];
    assert_eq!(kinds, expected);
    shop.close().await;
}

#[tokio::test]
async fn payctl_triggers_events_and_brings_them_to_a_machine_that_webhooks_cannot_reach() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let machine = Receiver::start().await.unwrap();
    let words = ["listen", "--forward-to", &machine.url];
    let mut listening = payctl(&shop, &words).spawn().unwrap();
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    assert!(first.starts_with("Events after 0 go to "), "{first}");
    let secret = lines.next_line().await.unwrap().unwrap();

    for (event, status) in [
        ("payment.failed", json!("FAILED")),
        ("refund.success", json!("COMPLETED")),
        ("endpoint.test", Value::Null),
    ] {
        let output = payctl(&shop, &["trigger", event]).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{event}: {said}");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(made["status"], status, "{event}");
    }
    let events = pull(&shop.api, 0, 4).await;
    for (sequence, event) in (1..).zip(&events) {
        let line = lines.next_line().await.unwrap().unwrap();
        let (kind, id) = (
            event["type"].as_str().unwrap(),
            event["id"].as_str().unwrap(),
        );
        let shown = format!("{sequence} {kind} {id} attempt 1: 200 in ");
        assert!(line.starts_with(&shown), "{line}");
    }
    let kinds: Vec<_> = events.iter().map(|event| event["type"].clone()).collect();
    let expected = [
        "payment.failed",
        "payment.success",
        "refund.success",
        "endpoint.test",
    ];
    assert_eq!(kinds, expected);
    let feed = Wire::of(&shop).get(EVENTS).await;
    for (delivery, event) in machine.deliveries().iter().zip(&events) {
        delivery.verify(&secret).unwrap();
        assert_eq!(delivery.json().unwrap(), *event);
        assert!(
            feed.text()
                .contains(str::from_utf8(&delivery.body).unwrap())
        );
    }

    let pid = listening.id().unwrap().to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(told.unwrap().success());
    let mut rest = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        rest += &line;
    }
    assert_eq!(rest.replace(' ', ""), r#"{"after":4}"#);
    assert!(listening.wait().await.unwrap().success());
    shop.close().await;
}
