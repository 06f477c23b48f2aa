//! MTN's disbursement product: what is its own.

use http::Method;
use serde_json::json;

use crate::{
    credits::pay,
    world::{MARKUP, World, reference},
};

const PAYEE: &str = "233241234201";

#[tokio::test]
async fn a_transfer_is_accepted_empty_then_pending_then_successful() {
    let world = World::start().await;
    let (wires, reference) = (world.wires(), reference(0));
    let answer = wires
        .momo_transfer(&reference, PAYEE, &world.callback)
        .await
        .unwrap();
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.text().await.unwrap(), "");
    let path = format!("/transfer/{reference}");
    let pending = wires.payout_json(&path).await;
    let expected = json!({
        "amount": "25.50",
        "currency": "GHS",
        "externalId": reference,
        "payee": {"partyIdType": "MSISDN", "partyId": PAYEE},
        "payerMessage": "Payout PO-1",
        "payeeNote": "Payout PO-1",
        "status": "PENDING",
    });
    assert_eq!(pending, expected);
    world.advance(2).await;
    let successful = wires.payout_json(&path).await;
    assert_eq!(successful["status"], "SUCCESSFUL");
    assert!(successful["financialTransactionId"].is_string());
    let calls = world.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].json(), successful);
    let expected = json!({
        "rail": "momo", "reference": reference, "account": "+233241234201",
        "amount_minor": 2550, "currency": "GHS", "status": "succeeded", "credits": 1,
        "credited_minor": 2550, "requests": 1, "may_change": false,
    });
    assert_eq!(wires.credit(&reference).await, expected);
}

#[tokio::test]
async fn it_calls_back_once_by_put_or_post_and_in_two_stories_never_or_thrice() {
    let world = World::start().await;
    for (last, method) in [(0, Method::POST), (1, Method::PUT)] {
        let before = world.calls().len();
        pay(&world, "momo", &reference(last), "203").await;
        world.advance(2).await;
        let calls = world.calls();
        assert_eq!(calls.len(), before + 1);
        assert_eq!(calls[before].method, method);
        assert_eq!(calls[before].json()["status"], "FAILED");
    }
    for (story, count) in [("208", 0), ("209", 3)] {
        let before = world.calls().len();
        pay(&world, "momo", &reference(0), story).await;
        world.advance(60).await;
        assert_eq!(world.calls().len() - before, count, "{story}");
    }
}

#[tokio::test]
async fn the_reason_of_a_limit_has_two_codes() {
    let world = World::start().await;
    for (last, code) in [
        (0, "PAYEE_LIMIT_REACHED"),
        (8, "LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED"),
    ] {
        let reference = reference(last);
        pay(&world, "momo", &reference, "205").await;
        world.advance(2).await;
        let path = format!("/transfer/{reference}");
        assert_eq!(world.wires().payout_json(&path).await["reason"], code);
    }
}

#[tokio::test]
async fn it_knows_whose_wallet_it_is() {
    let world = World::start().await;
    let wires = world.wires();
    let account = "/accountholder/msisdn/233241234";
    for (digits, is_active, name) in [
        ("201", true, "Ama Mensah"),
        ("212", true, "Kofi Boateng"),
        ("217", true, MARKUP),
    ] {
        let active = wires
            .payout_json(&format!("{account}{digits}/active"))
            .await;
        assert_eq!(active, json!({"result": is_active}));
        let info = wires
            .payout_json(&format!("{account}{digits}/basicuserinfo"))
            .await;
        assert_eq!(info["name"], name);
    }
    let active = wires.payout_json(&format!("{account}204/active")).await;
    assert_eq!(active, json!({"result": false}));
    let unknown = format!("{account}204/basicuserinfo");
    let call = wires.payout_call(Method::GET, &unknown);
    assert_eq!(call.await.send().await.unwrap().status(), 404);
    let upper = wires.payout_call(Method::GET, "/accountholder/MSISDN/233241234201/active");
    let answer = upper.await.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), "");
    let balance = wires.payout_json("/account/balance").await;
    let expected = json!({"availableBalance": "1000000.00", "currency": "GHS"});
    assert_eq!(balance, expected);
}

#[tokio::test]
async fn a_token_is_of_one_product() {
    let world = World::start().await;
    let wires = world.wires();
    let collection = wires.token().await;
    let call = wires.payout_call(Method::GET, "/account/balance").await;
    let mut request = call.build().unwrap();
    let bearer = format!("Bearer {collection}").parse().unwrap();
    request.headers_mut().insert("Authorization", bearer);
    assert_eq!(world.client.execute(request).await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_transfer_that_is_not_right_is_refused() {
    let world = World::start().await;
    let wires = world.wires();
    let right = json!({
        "amount": "25.50", "currency": "GHS", "externalId": "1", "payerMessage": "a",
        "payee": {"partyIdType": "MSISDN", "partyId": PAYEE}, "payeeNote": "b",
    });
    for (member, value, status) in [
        ("amount", json!("0"), 400),
        ("amount", json!(25.5), 400),
        ("currency", json!("EUR"), 500),
        ("payeeNote", json!(""), 500),
        ("payeeNote", json!("a/b"), 400),
        (
            "payee",
            json!({"partyIdType": "MSISDN", "partyId": "0241234201"}),
            400,
        ),
    ] {
        let mut body = right.clone();
        body[member] = value;
        let call = wires.payout_call(Method::POST, "/transfer").await;
        let call = call.header("X-Reference-Id", reference(0)).json(&body);
        assert_eq!(call.send().await.unwrap().status(), status, "{body}");
    }
}
