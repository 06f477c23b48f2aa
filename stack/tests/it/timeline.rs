//! What can be known of a charge before it is asked for, and what has happened to it afterwards.

use proto::charges::ShowChargeRequest;
use serde_json::{Value, json};
use stack::demo::Api;

use crate::{
    shop::{NO_LIMITS, Shop, WAIT_MAX},
    wire::CHARGE,
};

const PREFLIGHT: &str = "/api/v1/payments/charge/preflight";

fn kinds(timeline: &Value) -> Vec<&str> {
    let entries = timeline["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["kind"].as_str().unwrap())
        .collect()
}

/// The timeline once its event has been delivered.
async fn told(api: &Api, reference: &str) -> Value {
    let is_delivered = |timeline: &Value| {
        let mut entries = timeline["entries"].as_array().unwrap().iter();
        entries.any(|entry| entry["delivery_status"] == "DELIVERED")
    };
    let path = format!("{CHARGE}/{reference}/timeline");
    api.poll(&path, WAIT_MAX, is_delivered).await.unwrap().body
}

#[tokio::test]
async fn a_timeline_tells_the_whole_way_of_a_charge_and_no_more_than_its_merchant_may_see() {
    let shop = Shop::open().await;
    let charge = shop.charge("0240000001", "MTN").await;
    let reference = charge.text("reference").unwrap();
    let event = shop.wait_for_event(reference).await;
    let timeline = told(&shop.api, reference).await;
    let mut kinds = kinds(&timeline);
    // The network's callback comes before or after the schedule's first query.
    kinds.retain(|kind| !matches!(*kind, "CALLBACK" | "QUERY"));
    let expected = [
        "REQUEST",
        "NETWORK_REQUEST",
        "PROMPT",
        "STATUS",
        "LEDGER",
        "EVENT",
        "DELIVERY_ATTEMPT",
    ];
    assert_eq!(kinds, expected, "{timeline}");
    let entries = timeline["entries"].as_array().unwrap();
    assert!(entries.is_sorted_by_key(|entry| entry["at"].as_str().unwrap()));
    let shown = entries
        .iter()
        .find(|entry| entry["kind"] == "EVENT")
        .unwrap();
    assert_eq!(shown["event_id"], event["id"]);
    assert_eq!(shown["at"], event["created_at"]);
    let asked = &entries[0];
    assert_eq!(asked["request_id"].as_str(), charge.header("x-request-id"));
    assert_eq!(asked["key_name"], "demo");
    assert_eq!(asked["at_checkout"], Value::Null);
    let text = timeline.to_string();
    let request = ShowChargeRequest {
        reference: reference.to_owned(),
    };
    let file = shop.operations().show_charge(request).await;
    let file = file.unwrap().into_inner();
    let said = file
        .evidence
        .iter()
        .filter_map(|said| said.rail_text.as_deref());
    for secret in said.chain(["clearing"]) {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert_eq!(entries[1]["network_reference"], file.rail_reference);

    let stranger = shop.add_merchant("The house next door").await;
    let key = shop.add_key(&stranger).await.api_key;
    let stranger = Api::new(&shop.ready.api, &key).unwrap();
    let path = format!("{CHARGE}/{reference}/timeline");
    let anothers = stranger.get(&path).await.unwrap();
    let unknown = format!("{CHARGE}/TX-0000000000-000000/timeline");
    let unknown = stranger.get(&unknown).await.unwrap();
    for answer in [&anothers, &unknown] {
        assert_eq!(
            (answer.code, &answer.body["code"]),
            (404, &json!("NOT_FOUND"))
        );
    }
    shop.close().await;
}

#[tokio::test]
async fn a_preflight_tells_what_the_network_tells_and_starts_nothing() {
    let shop = Shop::open_with(NO_LIMITS).await;
    for (number, provider, network, wallet) in [
        ("0241234001", "MTN", "MTN", "ACTIVE"),
        ("0241234006", "MTN", "MTN", "NOT_ACTIVE"),
        ("0241234007", "MTN", "MTN", "UNKNOWN"),
        // A ported number.
        ("0201234001", "MTN", "TELECEL", "ACTIVE"),
        ("0201234006", "TELECEL", "TELECEL", "UNKNOWN"),
    ] {
        let body = json!({ "mobile_number": number, "provider": provider, "amount": 25.5 });
        let answer = shop.api.post(PREFLIGHT, &body).await.unwrap();
        answer.expect(200).unwrap();
        assert_eq!(answer.body["likely_network"], network, "{number}");
        assert_eq!(answer.body["wallet"], wallet, "{number}");
        assert_eq!(shop.book(number).await, [] as [Value; 0], "no prompt");
    }
    shop.close().await;
}

#[tokio::test]
async fn a_merchant_looks_one_number_up_a_few_times_a_minute_and_uses_up_nobody_elses() {
    let shop = Shop::open_with(&[("ratelimit-svc", "--limit-number=2")]).await;
    let stranger = shop.add_merchant("The house next door").await;
    let key = shop.add_key(&stranger).await.api_key;
    let stranger = Api::new(&shop.ready.api, &key).unwrap();
    let body = json!({ "mobile_number": "0241234001", "provider": "MTN" });
    let other = json!({ "mobile_number": "0241234002", "provider": "MTN" });
    // A minute may end in between, after which two more pass.
    let mut refused = None;
    for _ in 0..6 {
        let answer = shop.api.post(PREFLIGHT, &body).await.unwrap();
        if answer.code == 429 {
            refused = Some(answer);
            break;
        }
        answer.expect(200).unwrap();
    }
    let refused = refused.expect("a look-up too many");
    let wait: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait));
    let limit = refused.header("ratelimit").unwrap();
    assert_eq!(limit, format!("\"number\";r=0;t={wait}"));
    for (api, number) in [(&stranger, &body), (&*shop.api, &other)] {
        let answer = api.post(PREFLIGHT, number).await.unwrap();
        answer.expect(200).unwrap();
    }
    shop.close().await;
}
