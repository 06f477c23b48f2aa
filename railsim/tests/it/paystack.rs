//! The Paystack API: key, strictness, the voucher, webhooks.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::{Value, json};
use sha2::Sha512;

use crate::world::{Call, SECRET, World, paystack_body};

const PAYER: &str = "0201234001";

fn check_signature(call: &Call) {
    let mut mac = Hmac::<Sha512>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(&call.body);
    let given = hex::decode(call.signature.as_deref().unwrap()).unwrap();
    mac.verify_slice(&given).unwrap();
}

#[tokio::test]
async fn a_charge_is_prompted_then_succeeds_with_one_signed_webhook() {
    let world = World::start().await;
    let wires = world.wires();
    let answer = wires.charge("order-17", PAYER, "vod").await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["status"], true);
    assert_eq!(answer["data"]["status"], "pay_offline");
    assert!(answer["data"]["display_text"].is_string());
    assert_eq!(wires.verify("order-17").await["status"], "ongoing");
    assert_eq!(wires.check("order-17").await["status"], "pending");

    world.advance(2).await;
    let verified = wires.verify("order-17").await;
    assert_eq!(verified["status"], "success");
    assert_eq!(verified["amount"], 2550);
    assert_eq!(verified["currency"], "GHS");
    assert_eq!(verified["reference"], "order-17");
    assert_eq!(verified["gateway_response"], "Approved");
    assert_eq!(verified["channel"], "mobile_money");
    assert_eq!(verified["metadata"], json!({"order": 17}));
    assert_eq!(wires.check("order-17").await, verified);

    let calls = world.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].method, Method::POST);
    check_signature(&calls[0]);
    assert_eq!(
        calls[0].json(),
        json!({"event": "charge.success", "data": verified})
    );
    let entry = world.entry("order-17").await;
    let expected = json!({
        "rail": "paystack", "reference": "order-17", "phone": "+233201234001",
        "amount_minor": 2550, "currency": "GHS", "status": "succeeded", "debits": 1,
        "debited_minor": 2550, "requests": 1,
    });
    assert_eq!(entry, expected);
}

#[tokio::test]
async fn the_voucher_opens_the_prompt_and_a_wrong_one_asks_again() {
    let world = World::start().await;
    let wires = world.wires();
    let answer = wires.charge("order-2", "0201234002", "vod").await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["data"]["status"], "send_otp");
    assert!(
        answer["data"]["display_text"]
            .as_str()
            .unwrap()
            .contains("*110#")
    );
    assert_eq!(world.entry("order-2").await["status"], "otp");

    world.advance(7 * 24 * 3_600).await;
    assert_eq!(wires.check("order-2").await["status"], "send_otp");
    assert_eq!(wires.verify("order-2").await["status"], "pending");

    let wrong = wires.submit_otp("order-2", "654321").await.unwrap();
    assert_eq!(wrong.status(), 200);
    assert_eq!(
        wrong.json::<Value>().await.unwrap()["data"]["status"],
        "send_otp"
    );
    let right = wires.submit_otp("order-2", "123456").await.unwrap();
    assert_eq!(
        right.json::<Value>().await.unwrap()["data"]["status"],
        "pending"
    );
    let again = wires.submit_otp("order-2", "123456").await.unwrap();
    assert_eq!(again.status(), 400);
    world.advance(2).await;
    assert_eq!(wires.verify("order-2").await["status"], "success");
    assert_eq!(world.entry("order-2").await["debits"], 1);
}

#[tokio::test]
async fn eight_right_codes_at_once_open_one_prompt() {
    let world = World::start().await;
    let wires = world.wires();
    wires.charge("order-8", "0201234002", "vod").await.unwrap();
    let submits = (0..8).map(|_| wires.submit_otp("order-8", "123456"));
    let answers = futures::future::join_all(submits).await;
    let accepted = answers
        .iter()
        .filter(|answer| answer.as_ref().unwrap().status() == 200);
    assert_eq!(accepted.count(), 1);
    world.advance(5).await;
    assert_eq!(world.entry("order-8").await["debits"], 1);
}

#[tokio::test]
async fn a_code_for_an_unknown_reference_is_400() {
    let world = World::start().await;
    let answer = world.wires().submit_otp("nothing", "123456").await.unwrap();
    assert_eq!(answer.status(), 400);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["status"], false);
    assert_eq!(body["message"], "Transaction reference is invalid");
}

#[tokio::test]
async fn the_test_number_succeeds_within_the_first_reply() {
    let world = World::start().await;
    let answer = world
        .wires()
        .charge("instant", "0551234987", "mtn")
        .await
        .unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["data"]["status"], "success");
    assert_eq!(answer["data"]["authorization"]["bank"], "MTN Mobile Money");
    assert_eq!(world.entry("instant").await["debits"], 1);
    world.advance(1).await;
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn a_second_charge_with_a_reference_is_refused_and_debits_nothing() {
    let world = World::start().await;
    let wires = world.wires();
    wires.charge("order-1", PAYER, "vod").await.unwrap();
    let again = wires.charge("order-1", PAYER, "vod").await.unwrap();
    assert_eq!(again.status(), 400);
    let body: Value = again.json().await.unwrap();
    assert_eq!(body["message"], "Duplicate Transaction Reference");
    world.advance(60).await;
    let entry = world.entry("order-1").await;
    assert_eq!(
        (&entry["debits"], &entry["requests"]),
        (&json!(1), &json!(2))
    );
}

#[tokio::test]
async fn a_webhook_is_repeated_until_it_is_answered_200() {
    let world = World::start().await;
    world.refuse_calls(6);
    world.wires().charge("order-1", PAYER, "vod").await.unwrap();
    world.advance(2).await;
    assert_eq!(world.calls().len(), 1);
    for sent in 2..=5 {
        world.advance(178).await;
        assert_eq!(
            world.calls().len(),
            sent - 1,
            "three minutes have not passed"
        );
        world.advance(2).await;
        assert_eq!(world.calls().len(), sent);
    }
    world.advance(3_590).await;
    assert_eq!(world.calls().len(), 5);
    world.advance(2 * 3_600).await;
    assert_eq!(world.calls().len(), 7);
    world.advance(80 * 3_600).await;
    assert_eq!(world.calls().len(), 7, "it was answered");
    for call in world.calls() {
        check_signature(&call);
        assert_eq!(call.body, world.calls()[0].body);
    }
}

#[tokio::test]
async fn a_webhook_that_nobody_answers_ends_after_72_hours() {
    let world = World::start().await;
    world.refuse_calls(1_000);
    world.wires().charge("order-1", PAYER, "vod").await.unwrap();
    world.advance(71 * 3_600).await;
    let sent = world.calls().len();
    assert_eq!(sent, 1 + 4 + 70);
    world.advance(10 * 3_600).await;
    assert!(world.calls().len() <= sent + 2);
}

#[tokio::test]
async fn a_wrong_key_is_401() {
    let world = World::start().await;
    for request in [
        world
            .post("/charge")
            .json(&paystack_body("order-1", PAYER, "vod")),
        world
            .post("/charge/submit_otp")
            .json(&json!({"otp": "1", "reference": "x"})),
        world.get("/charge/x"),
        world.get("/transaction/verify/x"),
    ] {
        let missing = request.try_clone().unwrap().send().await.unwrap();
        assert_eq!(missing.status(), 401);
        let wrong = request
            .header("Authorization", "Bearer sk_test_other")
            .send()
            .await
            .unwrap();
        assert_eq!(wrong.status(), 401);
        let body: Value = wrong.json().await.unwrap();
        assert_eq!(body["status"], false);
        assert!(body["message"].is_string() && body["code"].is_string());
    }
}

#[tokio::test]
async fn an_unknown_reference_is_not_found() {
    let world = World::start().await;
    for path in ["/transaction/verify/nothing", "/charge/nothing"] {
        let answer = world
            .wires()
            .paystack(Method::GET, path)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 400);
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["code"], "transaction_not_found");
        assert!(body["meta"]["nextStep"].is_string() && body["type"].is_string());
    }
}

#[tokio::test]
async fn a_wrong_body_is_refused_in_the_documented_way() {
    let world = World::start().await;
    let table = [
        ("/email", json!("")),
        ("/email", json!("ama")),
        ("/email", json!("ama@example")),
        ("/email", Value::Null),
        ("/amount", json!("2550")),
        ("/amount", json!(25.5)),
        ("/amount", json!(0)),
        ("/amount", json!(-1)),
        ("/amount", Value::Null),
        ("/currency", json!("USD")),
        ("/currency", Value::Null),
        ("/reference", json!("under_score")),
        ("/reference", json!("")),
        ("/reference", json!("a b")),
        ("/reference", json!(17)),
        ("/mobile_money", Value::Null),
        ("/mobile_money/phone", json!("+233201234001")),
        ("/mobile_money/phone", json!("233201234001")),
        ("/mobile_money/phone", json!(201_234_001)),
        ("/mobile_money/phone", json!("020123400x")),
        ("/mobile_money/provider", json!("telecel")),
        ("/mobile_money/provider", json!("MTN")),
    ];
    for (pointer, value) in table {
        let shown = format!("{pointer}: {value}");
        let mut body = paystack_body("order-1", PAYER, "vod");
        *body.pointer_mut(pointer).unwrap() = value;
        let request = world.wires().paystack(Method::POST, "/charge").json(&body);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{shown}");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(
            (&body["status"], &body["type"]),
            (&json!(false), &json!("validation_error"))
        );
    }
    let body = paystack_body("order-1", PAYER, "vod").to_string();
    let request = world.wires().paystack(Method::POST, "/charge").body(body);
    assert_eq!(
        request.send().await.unwrap().status(),
        400,
        "no content type"
    );
    assert_eq!(world.wires().book().await.len(), 0);
}
