//! Merchants are isolated: what belongs to one does not exist for another (spec §1.4, §4.2).

use proto::charges::GetChargeRequest;
use serde_json::{Value, json};
use stack::demo::{Api, ApiResponse, Receiver};

use crate::{
    shop::{NO_LIMITS, Shop, WAIT_MAX},
    wire::{CHARGE, INITIATE, Reply, SUBMIT_OTP, Wire},
};

/// A second merchant beside the shop's own.
struct Neighbour {
    merchant_id: String,
    api: Api,
    wire: Wire,
}

impl Neighbour {
    async fn of(shop: &Shop) -> Self {
        let merchant_id = shop.add_merchant("The house next door").await;
        let key = shop.add_key(&merchant_id).await.api_key;
        Self {
            merchant_id,
            api: Api::new(&shop.ready.api, &key).unwrap(),
            wire: Wire::with_key(shop, &key),
        }
    }

    async fn charge(&self, number: &str, provider: &str) -> ApiResponse {
        let body = json!({ "amount": 7, "mobile_number": number, "provider": provider });
        self.api.post(CHARGE, &body).await.unwrap()
    }
}

fn status_of(session_id: &str) -> String {
    format!("/api/v1/payments/{session_id}/status")
}

fn charge_of(reference: &str) -> String {
    format!("{CHARGE}/{reference}")
}

async fn submit(wire: &Wire, reference: &str) -> Reply {
    let body = json!({ "reference": reference, "otp": "000000" });
    wire.post(SUBMIT_OTP, body.to_string()).await
}

/// Checks that two answers are the same, except for what differs between any two.
fn assert_same(left: &Reply, right: &Reply) {
    left.assert_error(404, "NOT_FOUND");
    assert_eq!(left.without_its_moment(), right.without_its_moment());
}

#[tokio::test]
async fn what_is_anothers_is_answered_like_what_does_not_exist() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let stranger = Neighbour::of(&shop).await.wire;
    let session = json!({ "amount": 5, "currency": "GHS" });
    let session = shop.api.post(INITIATE, &session).await.unwrap();
    let waiting = shop.charge("0200000002", "TELECEL").await;
    let settled = shop.charge("0240000001", "MTN").await;
    let reference = settled.text("reference").unwrap();
    shop.wait_for_end(reference).await;
    let event = shop.wait_for_event(reference).await;

    let mut ids = vec![session.text("session_id").unwrap().to_owned()];
    for answer in [&waiting, &settled] {
        for name in ["reference", "transaction_id", "session_id"] {
            ids.push(answer.text(name).unwrap().to_owned());
        }
    }
    ids.push(event["id"].as_str().unwrap().to_owned());
    ids.push(event["data"]["tx_id_display"].as_str().unwrap().to_owned());
    ids.push(shop.ready.demo.merchant_id.clone());
    let upper = ids.iter().map(|id| id.to_uppercase());
    let ids: Vec<String> = upper.chain(ids.iter().cloned()).collect();

    let nobodys = "5f0c3c5e-6b0e-4b5e-8e55-3f6f0c1d2e3f";
    let no_session = stranger.get(&status_of(nobodys)).await;
    let no_charge = stranger.get(&charge_of("TX-0000000000-000000")).await;
    let no_otp = submit(&stranger, "TX-0000000000-000000").await;
    for id in ids {
        assert_same(&stranger.get(&status_of(&id)).await, &no_session);
        assert_same(&stranger.get(&charge_of(&id)).await, &no_charge);
        assert_same(&submit(&stranger, &id).await, &no_otp);
    }
    shop.close().await;
}

/// The values of a field in the list at a path.
async fn listed(wire: &Wire, path: &str, field: &str) -> Vec<String> {
    let page: Value = wire.get(path).await.assert_done(200).json();
    assert_eq!(page["next_cursor"], Value::Null, "{path}");
    let entries = page["data"].as_array().unwrap().iter();
    entries
        .map(|entry| entry[field].as_str().unwrap().to_owned())
        .collect()
}

async fn assert_the_payer_is_masked(own: &Wire) {
    let charges: Value = own.get("/api/v1/charges").await.json();
    assert_eq!(charges["data"][0]["payer"], "024 ••• 0001");
    let payments: Value = own.get("/api/v1/payments").await.json();
    let transaction = &payments["data"][0]["transaction"];
    assert_eq!(transaction["provider"], "MTN");
    assert_eq!(transaction["payer_last_four"], "0001");
}

#[tokio::test]
async fn lists_and_look_ups_find_ones_own_alone() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let neighbour = Neighbour::of(&shop).await;
    let own = Wire::of(&shop);
    // Both merchants charge the same payer.
    let (ours, theirs) = tokio::join!(
        shop.charge("0240000001", "MTN"),
        neighbour.charge("0240000001", "MTN")
    );
    let reference = ours.text("reference").unwrap();
    let session = ours.text("session_id").unwrap();
    shop.wait_for_end(reference).await;
    shop.wait_for_event(reference).await;
    let one = vec![reference.to_owned()];
    let paid = vec![session.to_owned()];
    for (path, field, found) in [
        ("/api/v1/charges".to_owned(), "reference", &one),
        (
            "/api/v1/charges?phone=024-000-0001".to_owned(),
            "reference",
            &one,
        ),
        (
            format!("/api/v1/charges?reference={reference}"),
            "reference",
            &one,
        ),
        (
            format!("/api/v1/charges?session_id={session}&provider=MTN"),
            "reference",
            &one,
        ),
        (
            "/api/v1/payments?status=COMPLETED".to_owned(),
            "session_id",
            &paid,
        ),
        (
            format!("/api/v1/payments?reference={reference}"),
            "session_id",
            &paid,
        ),
    ] {
        assert_eq!(&listed(&own, &path, field).await, found, "{path}");
        let of_neighbour = listed(&neighbour.wire, &path, field).await;
        assert!(!of_neighbour.contains(&found[0]), "{path}");
        let is_by_id = path.contains(reference) || path.contains(session);
        assert!(!is_by_id || of_neighbour.is_empty(), "{path}");
    }
    assert_the_payer_is_masked(&own).await;

    let customers = listed(&own, "/api/v1/customers?phone=0240000001", "customer_id").await;
    let customer = format!("/api/v1/customers/{}", customers[0]);
    own.get(&customer).await.assert_done(200);
    let nobodys = neighbour.wire.get("/api/v1/customers/CUS-0000000000").await;
    assert_same(&neighbour.wire.get(&customer).await, &nobodys);

    // Nor does a place in one's list lead into another's.
    let first: Value = own.get("/api/v1/payments?limit=1").await.json();
    let their_session = theirs.text("session_id").unwrap();
    let cursor = format!("99999999999999.{session}");
    let path = format!("/api/v1/payments?cursor={cursor}");
    assert_eq!(first["data"][0]["session_id"], session);
    assert_eq!(
        listed(&neighbour.wire, &path, "session_id").await,
        [their_session]
    );
    let theirs = theirs.text("reference").unwrap();
    let is_told = |charge: &Value| charge["status"] == "SETTLED";
    neighbour
        .api
        .poll(&charge_of(theirs), WAIT_MAX, is_told)
        .await
        .unwrap();
    shop.close().await;
}

#[tokio::test]
async fn a_stranger_uses_up_no_try_of_an_otp() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let stranger = Neighbour::of(&shop).await.wire;
    let waiting = shop.charge("0200000002", "TELECEL").await;
    let reference = waiting.text("reference").unwrap();
    for _ in 0..5 {
        let reply = submit(&stranger, reference).await;
        reply.assert_error(404, "NOT_FOUND");
    }
    let wrong = shop.submit_otp(reference, "000000").await;
    wrong.expect(202).unwrap();
    let message = wrong.text("message").unwrap();
    assert!(message.contains('2'), "two tries are left: {message}");
    let right = shop.submit_otp(reference, "123456").await;
    right.expect(202).unwrap();
    let charge = shop.wait_for_end(reference).await;
    assert_eq!(charge["status"], "SETTLED");
    shop.wait_for_event(reference).await;
    shop.close().await;
}

#[tokio::test]
async fn one_idempotency_key_of_two_merchants_is_two_keys() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let neighbour = Neighbour::of(&shop).await;
    let session = json!({ "amount": 5, "currency": "GHS" });
    let charge = json!({ "amount": 5, "mobile_number": "0240000006", "provider": "MTN" });
    for (path, body, code, id) in [
        (INITIATE, &session, 201, "session_id"),
        (CHARGE, &charge, 422, "reference"),
    ] {
        let mut made = Vec::new();
        for api in [&shop.api, &neighbour.api] {
            let first = api.post_with_key(path, body, "order-1").await.unwrap();
            first.expect(code).unwrap();
            assert_eq!(first.header("idempotent-replayed"), None);
            let second = api.post_with_key(path, body, "order-1").await.unwrap();
            assert_eq!(second.header("idempotent-replayed"), Some("true"));
            assert_eq!(second.body, first.body);
            made.push(first.text(id).unwrap().to_owned());
        }
        assert_ne!(made[0], made[1]);
    }
    // Nor does it count as a key reused with another body.
    let other = json!({ "amount": 6, "currency": "GHS" });
    let first = shop.api.post_with_key(INITIATE, &other, "order-2").await;
    first.unwrap().expect(201).unwrap();
    let second = neighbour
        .api
        .post_with_key(INITIATE, &session, "order-2")
        .await;
    second.unwrap().expect(201).unwrap();
    assert_eq!(shop.book("0240000006").await.len(), 2);
    shop.close().await;
}

#[tokio::test]
async fn two_keys_of_one_merchant_are_one_merchant() {
    let shop = Shop::open().await;
    let key = shop.add_key(&shop.ready.demo.merchant_id).await.api_key;
    let second = Api::new(&shop.ready.api, &key).unwrap();
    let body = json!({ "amount": 5, "currency": "GHS" });
    let created = shop.api.post_with_key(INITIATE, &body, "order-1").await;
    let created = created.unwrap();
    let replayed = second.post_with_key(INITIATE, &body, "order-1").await;
    let replayed = replayed.unwrap();
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
    assert_eq!(replayed.body, created.body);
    let path = status_of(created.text("session_id").unwrap());
    second.get(&path).await.unwrap().expect(200).unwrap();
    shop.close().await;
}

#[tokio::test]
async fn a_merchant_named_in_a_request_is_ignored() {
    let shop = Shop::open().await;
    let neighbour = Neighbour::of(&shop).await;
    let named = &shop.ready.demo.merchant_id;
    let body = json!({ "amount": 5, "merchant_id": named, "merchant": named });
    let path = format!("{INITIATE}?merchant_id={named}");
    let request = neighbour.wire.request("POST", &path);
    let request = request.header("x-merchant-id", named);
    let created = request.json(body.to_string()).send().await;
    let path = status_of(&created.assert_done(201).field("session_id"));
    let own = neighbour.wire.get(&path).await;
    own.assert_done(200);
    let named = shop.api.get(&path).await.unwrap();
    named.expect(404).unwrap();
    shop.close().await;
}

#[tokio::test]
async fn one_merchants_rate_is_not_anothers() {
    let flags = [
        ("ratelimit-svc", "--limit-payments=2"),
        ("ratelimit-svc", "--limit-charge=2"),
        ("ratelimit-svc", "--limit-charge-status=2"),
    ];
    let shop = Shop::open_with(&flags).await;
    let neighbour = Neighbour::of(&shop).await.wire;
    let wire = Wire::of(&shop);
    for (method, path) in [
        ("POST", INITIATE),
        ("POST", CHARGE),
        ("GET", "/api/v1/payments/charge/TX-0000000000-000000"),
    ] {
        let send = async |wire: &Wire| wire.request(method, path).json("{").send().await;
        // Even if a minute ends in between, more than two of seven requests fall into one window.
        let mut replies = Vec::new();
        for _ in 0..7 {
            replies.push(send(&wire).await.status);
        }
        assert!(replies.contains(&429), "{replies:?}");
        for left in ["r=1;", "r=0;"] {
            let reply = send(&neighbour).await;
            assert_ne!(reply.status, 429);
            let limit = reply.header("ratelimit").unwrap();
            assert!(limit.contains(left) || limit.contains("r=1;"), "{limit}");
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn events_and_money_go_to_their_own_merchant_only() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let neighbour = Neighbour::of(&shop).await;
    let receiver = Receiver::start().await.unwrap();
    let secret = shop
        .set_endpoint_of(&neighbour.merchant_id, &receiver.url)
        .await;
    assert_ne!(secret, shop.signing_secret);
    for (number, provider) in [("0240000001", "MTN"), ("0270000003", "AT")] {
        // Both merchants charge the same payer.
        let own = shop.charge(number, provider).await;
        let other = neighbour.charge(number, provider).await;
        own.expect(202).unwrap();
        other.expect(202).unwrap();
        shop.wait_for_event(own.text("reference").unwrap()).await;
        let reference = other.text("reference").unwrap();
        let display = reference.rsplit_once('-').unwrap().0;
        let event = receiver.wait_for(display, WAIT_MAX).await.unwrap();
        event.verify(&secret).unwrap();
        assert!(event.verify(&shop.signing_secret).is_err());
        let request = GetChargeRequest {
            merchant_id: neighbour.merchant_id.clone(),
            reference: reference.to_owned(),
        };
        shop.charges().get_charge(request).await.unwrap();
    }
    assert_eq!(shop.balance().await, 2_550);
    assert_eq!(shop.balance_of(&neighbour.merchant_id).await, 700);
    let amounts = |receiver: &Receiver| -> Vec<Value> {
        let deliveries = receiver.deliveries();
        let events = deliveries.iter().map(|delivery| delivery.json().unwrap());
        events
            .map(|event| event["data"]["amount"].clone())
            .collect()
    };
    assert_eq!(amounts(&shop.receiver), [json!(25.5), json!(25.5)]);
    assert_eq!(amounts(&receiver), [json!(7.0), json!(7.0)]);
    receiver.check_no_event_came_twice().unwrap();
    shop.close().await;
}
