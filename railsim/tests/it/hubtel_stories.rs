//! Hubtel's own stories, and how it tells those of all rails.

use http::Method;
use serde_json::{Value, json};

use crate::{
    hubtel::{RECEIVE, hubtel_body},
    world::{MARKUP, POS, World, plain_reference, reference},
};

#[tokio::test]
async fn an_unknown_payer_is_refused_at_once_and_unpaid_for_ever() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(0));
    let answer = wires.receive(&reference, "233241234006", &world.callback);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["ResponseCode"], "2001");
    let description = body["Data"]["Description"].as_str().unwrap();
    assert!(description.contains("account holder") && description.contains("not found"));
    world.advance(24 * 3_600).await;
    assert_eq!(wires.hubtel_data(&reference).await["status"], "Unpaid");
    assert_eq!(world.calls().len(), 0);
    assert_eq!(world.entry(&reference).await["debits"], 0);
}

#[tokio::test]
async fn keys_and_reference_may_come_back_in_another_spelling() {
    let world = World::start().await;
    let (wires, with_dashes) = (world.wires(), reference(0));
    let plain = with_dashes.replace('-', "");
    let answer = wires.receive(&plain, "233241234018", &world.callback).await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    world.advance(2).await;
    let status: Value = wires.hubtel_status(&plain).await.json().await.unwrap();
    let call = world.calls().remove(0).json();
    for body in [&answer, &status, &call] {
        assert!(body["rEsPoNsEcOdE"].is_string(), "{body}");
        assert_eq!(body["dAtA"]["cLiEnTrEfErEnCe"], with_dashes.to_uppercase());
    }
    assert_eq!(status["dAtA"]["sTaTuS"], "Paid");
}

#[tokio::test]
async fn an_http_error_may_have_a_code_in_its_body() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(0));
    let answer = wires.receive(&reference, "233241234019", &world.callback);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 400);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["ResponseCode"], "4070");
    world.advance(3_600).await;
    assert_eq!(wires.hubtel_status(&reference).await.status(), 404);
    assert_eq!(
        (
            world.entry(&reference).await["debits"].clone(),
            world.calls().len()
        ),
        (json!(0), 0)
    );
}

#[tokio::test]
async fn a_payment_with_an_unheard_code_goes_on() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(0));
    let answer = wires.receive(&reference, "233241234020", &world.callback);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status(), 200);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["ResponseCode"], "7099");
    assert_eq!(wires.hubtel_data(&reference).await["status"], "Unpaid");
    world.advance(2).await;
    assert_eq!(wires.hubtel_data(&reference).await["status"], "Paid");
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn late_money_follows_a_failure_by_callback_and_a_query_after_the_payers_time() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(0));
    let answer = wires.receive(&reference, "233241234010", &world.callback);
    answer.await.unwrap();
    world.advance(2).await;
    let call = world.calls().remove(0).json();
    assert_eq!(call["ResponseCode"], "2001");
    // Early, unpaid says nothing.
    assert_eq!(wires.hubtel_data(&reference).await["status"], "Unpaid");
    world.advance(298).await;
    assert_eq!(wires.hubtel_data(&reference).await["status"], "Unpaid");
    world.advance(4).await;
    assert_eq!(world.entry(&reference).await["debits"], 0);
    world.advance(2).await;
    assert_eq!(wires.hubtel_data(&reference).await["status"], "Paid");
    world.advance(3_600).await;
    assert_eq!(world.entry(&reference).await["debits"], 1);
    assert_eq!(world.calls().len(), 2);
    assert_eq!(world.calls()[1].json()["ResponseCode"], "0000");
}

#[tokio::test]
async fn telecel_and_at_have_channels_and_nobody_is_asked_for_a_code() {
    let world = World::start().await;
    let wires = world.wires();
    for (channel, phone) in [("vodafone-gh", "233201234002"), ("tigo-gh", "233271234014")] {
        let reference = plain_reference(0);
        let mut body = hubtel_body(&reference, phone, &world.callback);
        body["Channel"] = channel.into();
        let answer = wires.hubtel(Method::POST, RECEIVE).json(&body).send().await;
        let answer: Value = answer.unwrap().json().await.unwrap();
        assert_eq!(answer["ResponseCode"], "0001");
        world.advance(2).await;
        assert_eq!(wires.hubtel_data(&reference).await["status"], "Paid");
    }
}

#[tokio::test]
async fn a_handset_shows_its_prompt_until_somebody_declines() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), plain_reference(0));
    let answer = wires.receive(&reference, "233241234100", &world.callback);
    answer.await.unwrap();
    let prompt = wires.prompts().await.remove(0);
    assert_eq!(
        (&prompt["rail"], &prompt["network"]),
        (&json!("hubtel"), &json!("MTN"))
    );
    assert_eq!(prompt["text"], "Order 17");
    let page = world.get("/").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("+233241234100") && page.contains("Order 17"));
    let path = format!("/prompts/{}/decline", prompt["id"].as_str().unwrap());
    assert_eq!(world.post(&path).send().await.unwrap().status(), 200);
    world.advance(1).await;
    let told = world.calls().remove(0).json();
    let description = told["Data"]["Description"].as_str().unwrap();
    assert!(description.contains("declined"));
}

#[tokio::test]
async fn it_knows_whose_wallet_a_number_is() {
    let world = World::start().await;
    let wires = world.wires();
    let ask = async |digits: &str| -> Value {
        let path = format!(
            "/v2/merchantaccount/merchants/{POS}/mobilemoney/verify?channel=mtn-gh&customerMsisdn=233241234{digits}"
        );
        let answer = wires.hubtel(Method::GET, &path).send().await.unwrap();
        answer.json().await.unwrap()
    };
    for (digits, name) in [
        ("001", "Ama Mensah"),
        ("212", "Kofi Boateng"),
        ("217", MARKUP),
    ] {
        let data = &ask(digits).await["data"];
        assert_eq!(
            (&data["isRegistered"], &data["name"]),
            (&json!(true), &json!(name))
        );
    }
    for digits in ["006", "204"] {
        let data = &ask(digits).await["data"];
        assert_eq!(
            (&data["isRegistered"], &data["name"]),
            (&json!(false), &Value::Null)
        );
    }
    assert_eq!(ask("007").await["ResponseCode"], "4103");
}
