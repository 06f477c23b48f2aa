//! Money that Hubtel sends: what is its own.

use http::Method;
use reqwest::Response;
use serde_json::{Value, json};

use crate::{
    credits::pay,
    world::{PREPAID, Wires, World, plain_reference, reference},
};

const PAYEE: &str = "233241234201";

impl Wires {
    /// Asks Hubtel to pay 25.50.
    pub async fn send(
        &self,
        reference: &str,
        phone: &str,
        callback: &str,
    ) -> reqwest::Result<Response> {
        let body = send_body(reference, phone, callback);
        self.hubtel(Method::POST, &send_path())
            .json(&body)
            .send()
            .await
    }

    pub async fn send_status(&self, reference: &str) -> Response {
        let path =
            format!("/api/merchants/{PREPAID}/transactions/status?clientReference={reference}");
        self.hubtel(Method::GET, &path).send().await.unwrap()
    }

    async fn send_json(&self, reference: &str) -> Value {
        let answer = self.send_status(reference).await;
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }
}

fn send_path() -> String {
    format!("/api/merchants/{PREPAID}/send/mobilemoney")
}

fn send_body(reference: &str, phone: &str, callback: &str) -> Value {
    json!({
        "RecipientName": "Ama Mensah",
        "RecipientMsisdn": phone,
        "Channel": "mtn-gh",
        "Amount": 25.50,
        "PrimaryCallbackURL": callback,
        "Description": "Payout PO-1",
        "ClientReference": reference,
    })
}

#[tokio::test]
async fn a_credit_is_accepted_then_pending_then_paid() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(1));
    assert_eq!(wires.send_status(&reference).await.status(), 404);
    let answer = wires.send(&reference, PAYEE, &world.callback).await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    let transaction = &answer["Data"]["TransactionId"];
    let expected = json!({
        "ResponseCode": "0001",
        "Data": {
            "AmountDebited": 0.0,
            "TransactionId": transaction,
            "Description": "Payout PO-1",
            "ClientReference": reference,
            "ExternalTransactionId": "",
            "Amount": 25.5,
            "Charges": 0.0,
            "Meta": null,
            "RecipientName": null,
        },
    });
    assert_eq!(answer, expected);
    let pending = wires.send_json(&reference).await;
    assert_eq!(pending["Data"]["transactionStatus"], "pending");
    world.advance(2).await;
    let paid = wires.send_json(&reference).await;
    let created = paid["Data"]["CreatedAt"].as_str().unwrap();
    assert_eq!(created.len(), "2021-08-23 11:31:06".len());
    let expected = json!({
        "ResponseCode": "success",
        "Data": {
            "TransactionId": transaction,
            "networkTransactionId": "7000000000",
            "Amount": 25.5,
            "Fees": 0.0,
            "ClientReference": reference,
            "Channel": "mtn-gh",
            "CustomerNumber": PAYEE,
            "transactionStatus": "success",
            "CreatedAt": created,
        },
    });
    assert_eq!(paid, expected);
    let call = world.calls().remove(0).json();
    assert_eq!(
        (&call["ResponseCode"], &call["Data"]["Amount"]),
        (&json!("0000"), &json!(25.5))
    );
    let line = wires.credit(&reference).await;
    assert_eq!(
        (&line["rail"], &line["credits"]),
        (&json!("hubtel"), &json!(1))
    );
}

#[tokio::test]
async fn a_failure_has_its_code_in_the_callback_and_in_the_status() {
    let world = World::start().await;
    let wires = world.wires();
    for (story, code, word) in [
        ("203", "2001", "not found"),
        ("205", "2001", "limit"),
        ("206", "4075", "too little"),
    ] {
        let (reference, before) = (plain_reference(0), world.calls().len());
        assert_eq!(pay(&world, "hubtel", &reference, story).await, Some(200));
        world.advance(2).await;
        let call = world.calls().remove(before).json();
        assert_eq!(call["ResponseCode"], code);
        assert_eq!(call["Data"]["AmountDebited"], 25.5);
        assert!(call["Data"]["Description"].as_str().unwrap().contains(word));
        let status = wires.send_json(&reference).await;
        assert_eq!(status["ResponseCode"], code);
        assert_eq!(status["Data"]["transactionStatus"], "failed");
        assert!(status["Message"].as_str().unwrap().contains(word));
    }
    assert_eq!(wires.float("hubtel").await, 100_000_000);
}

#[tokio::test]
async fn an_empty_float_is_4075_at_once_and_a_wrong_number_3050() {
    let world = World::start_with(&["--float=30.00"]).await;
    let wires = world.wires();
    let (first, second) = (plain_reference(0), plain_reference(0));
    assert_eq!(pay(&world, "hubtel", &first, "201").await, Some(200));
    // Nothing has left the float yet, so this one is taken, and fails later.
    assert_eq!(pay(&world, "hubtel", &second, "201").await, Some(200));
    world.advance(2).await;
    assert_eq!(wires.stands("hubtel", &first).await, "success");
    assert_eq!(wires.send_json(&second).await["ResponseCode"], "4075");
    let third = plain_reference(0);
    for (story, code) in [("201", "4075"), ("204", "3050")] {
        let phone = format!("233241234{story}");
        let answer = wires.send(&third, &phone, &world.callback).await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["ResponseCode"], code);
        assert_eq!(wires.send_status(&third).await.status(), 404);
    }
    let path = format!("/api/inter-transfers/prepaid/{PREPAID}");
    let held = wires.hubtel(Method::GET, &path).send().await.unwrap();
    let held: Value = held.json().await.unwrap();
    assert_eq!(
        (&held["responseCode"], &held["data"]["amount"]),
        (&json!("0000"), &json!(4.5))
    );
}

#[tokio::test]
async fn nothing_is_taken_back() {
    let world = World::start().await;
    let wires = world.wires();
    let (paid, late) = (plain_reference(0), plain_reference(0));
    pay(&world, "hubtel", &paid, "211").await;
    pay(&world, "hubtel", &late, "216").await;
    world.advance(2).await;
    assert_eq!(wires.stands("hubtel", &late).await, "failed");
    world.advance(6).await;
    for reference in [&paid, &late] {
        assert_eq!(wires.stands("hubtel", reference).await, "success");
    }
    world.advance(30 * 24 * 3_600).await;
    for reference in [&paid, &late] {
        assert_eq!(wires.stands("hubtel", reference).await, "success");
        assert_eq!(wires.credit(reference).await["credited_minor"], 2550);
    }
}

#[tokio::test]
async fn keys_and_reference_may_come_back_in_another_spelling() {
    let world = World::start().await;
    let (wires, with_dashes) = (world.wires(), reference(0));
    let plain = with_dashes.replace('-', "");
    let answer = wires.send(&plain, "233241234218", &world.callback).await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    world.advance(2).await;
    let status = wires.send_json(&plain).await;
    let call = world.calls().remove(0).json();
    for body in [&answer, &status, &call] {
        assert!(body["rEsPoNsEcOdE"].is_string(), "{body}");
        assert_eq!(body["dAtA"]["cLiEnTrEfErEnCe"], with_dashes.to_uppercase());
    }
    assert_eq!(status["dAtA"]["tRaNsAcTiOnStAtUs"], "success");
}

#[tokio::test]
async fn a_request_that_is_not_right_is_4000() {
    let world = World::start().await;
    let wires = world.wires();
    for (member, value) in [
        ("RecipientName", json!(" ")),
        ("RecipientName", Value::Null),
        ("RecipientMsisdn", json!("0241234201")),
        ("Channel", json!("bank")),
        ("Amount", json!("25.50")),
        ("Amount", json!(25.505)),
        ("PrimaryCallbackURL", Value::Null),
        ("Description", json!("a & b")),
        ("ClientReference", json!(reference(0))),
    ] {
        let mut body = send_body(&plain_reference(0), PAYEE, &world.callback);
        body[member] = value;
        let call = wires.hubtel(Method::POST, &send_path()).json(&body);
        let answer = call.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{body}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["ResponseCode"], "4000", "{body}");
    }
    assert_eq!(wires.float("hubtel").await, 100_000_000);
}
