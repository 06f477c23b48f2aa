//! Paystack's transfers: what is their own.

use http::Method;
use serde_json::{Value, json};

use crate::{
    credits::pay,
    world::{MARKUP, World, reference},
};

fn events(world: &World) -> Vec<String> {
    let calls = world.calls();
    let event = |call: &crate::world::Call| call.json()["event"].as_str().unwrap().to_owned();
    calls.iter().map(event).collect()
}

#[tokio::test]
async fn a_transfer_is_queued_and_told_by_a_signed_webhook() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), reference(0));
    assert_eq!(wires.stands("paystack", &reference).await, "404");
    let answer = wires.paystack_transfer(&reference, "0271234201").await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    assert_eq!(answer["message"], "Transfer has been queued");
    assert_eq!(answer["data"]["status"], "pending");
    assert!(answer["data"]["recipient"].is_number());
    assert_eq!(answer["data"]["reference"], reference.as_str());
    world.advance(2).await;
    let answer = wires.paystack_transfer_status(&reference).await;
    let verified: Value = answer.json().await.unwrap();
    assert_eq!(verified["data"]["status"], "success");
    assert_eq!(verified["data"]["fee_charged"], 100);
    let details = &verified["data"]["recipient"]["details"];
    assert_eq!(details["account_number"], "0271234201");
    assert_eq!(events(&world), ["transfer.success"]);
    let call = world.calls().remove(0);
    assert_eq!(call.json()["data"], verified["data"]);
    assert_eq!(call.signature.unwrap().len(), 128);
}

#[tokio::test]
async fn what_a_query_was_told_was_paid_is_taken_back_five_seconds_later() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), reference(0));
    pay(&world, "paystack", &reference, "211").await;
    world.advance(600).await;
    assert_eq!(wires.stands("paystack", &reference).await, "success");
    world.advance(6).await;
    assert_eq!(wires.stands("paystack", &reference).await, "reversed");
    assert_eq!(events(&world), ["transfer.success", "transfer.reversed"]);
    let line = wires.credit(&reference).await;
    assert_eq!(
        (&line["credits"], &line["credited_minor"]),
        (&json!(1), &json!(0))
    );
    // The amount is back, and the fee is not.
    assert_eq!(wires.float("paystack").await, 100_000_000 - 100);
}

#[tokio::test]
async fn a_webhook_is_repeated_until_it_is_answered() {
    let world = World::start().await;
    world.refuse_calls(2);
    pay(&world, "paystack", &reference(0), "203").await;
    world.advance(3_600).await;
    assert_eq!(events(&world), ["transfer.failed"; 3]);
}

#[tokio::test]
async fn the_first_reply_may_say_success_of_what_then_fails() {
    let world = World::start().await;
    let (wires, odd) = (world.wires(), reference(1));
    let answer = wires.paystack_transfer(&odd, "0271234203").await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["data"]["status"], "success");
    world.advance(2).await;
    assert_eq!(wires.stands("paystack", &odd).await, "failed");
    let again = wires.paystack_transfer(&odd, "0271234203").await.unwrap();
    assert_eq!(again.status(), 404);
    let again: Value = again.json().await.unwrap();
    assert_eq!(again["code"], "duplicate_transfer_reference");
}

#[tokio::test]
async fn a_number_has_one_recipient_and_every_bank_its_code() {
    let world = World::start().await;
    let wires = world.wires();
    let first = wires.recipient("0271234201", "ATL").await;
    assert_eq!(wires.recipient("0271234201", "ATL").await, first);
    assert_ne!(wires.recipient("0271234202", "ATL").await, first);
    let path = "/bank?currency=GHS&type=mobile_money";
    let list = wires.paystack(Method::GET, path).send().await.unwrap();
    let list: Value = list.json().await.unwrap();
    let banks = list["data"].as_array().unwrap().iter();
    let codes: Vec<_> = banks.map(|bank| bank["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["MTN", "VOD", "ATL"]);
    for (digits, name) in [
        ("201", "Ama Mensah"),
        ("212", "Kofi Boateng"),
        ("217", MARKUP),
    ] {
        let path = format!("/bank/resolve?account_number=0271234{digits}&bank_code=ATL");
        let answer = wires.paystack(Method::GET, &path).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["data"]["account_name"], name);
    }
    let path = "/bank/resolve?account_number=0271234204&bank_code=ATL";
    let answer = wires.paystack(Method::GET, path).send().await.unwrap();
    assert_eq!(answer.status(), 422);
}

#[tokio::test]
async fn a_transfer_that_is_not_right_is_refused() {
    let world = World::start().await;
    let wires = world.wires();
    let recipient = wires.recipient("0271234201", "ATL").await;
    let right = json!({
        "source": "balance", "amount": 2550, "currency": "GHS", "recipient": recipient,
        "reference": reference(0), "reason": "PO-1",
    });
    for (member, value) in [
        ("source", json!("card")),
        ("amount", json!(0)),
        ("currency", Value::Null),
        ("currency", json!("NGN")),
        ("recipient", json!("RCP_unknown")),
        ("reference", json!("too-short")),
        ("reference", json!(reference(0).to_uppercase())),
    ] {
        let mut body = right.clone();
        body[member] = value;
        let call = wires.paystack(Method::POST, "/transfer").json(&body);
        assert_eq!(call.send().await.unwrap().status(), 400, "{body}");
    }
    assert_eq!(wires.float("paystack").await, 100_000_000);
}
