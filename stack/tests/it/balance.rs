//! A merchant's balance, refunds and payouts as it sees them: JSON over HTTP, and no other
//! merchant's.

use proto::charges::{
    DestinationType, Provider, SetPayoutAccountRequest, SetPayoutSwitchesRequest,
    disbursement_operations_client::DisbursementOperationsClient,
};
use serde_json::{Value, json};

use crate::{
    shop::{NO_LIMITS, Shop, WAIT_MAX},
    wire::{CHARGE, Wire},
};

const BALANCE: &str = "/api/v1/balance";
const PAYOUTS: &str = "/api/v1/payouts";
const REFUNDS: &str = "/api/v1/refunds";

async fn available(shop: &Shop) -> Value {
    let answer = shop.api.get(BALANCE).await.unwrap();
    answer.expect(200).unwrap();
    answer.body["balances"][0]["available"].clone()
}

fn is_completed(disbursement: &Value) -> bool {
    disbursement["status"] == "COMPLETED"
}

/// A charge of 25.50 that has settled. Returns its reference.
async fn settled(shop: &Shop) -> String {
    let charge = shop.charge("0240000001", "MTN").await;
    let reference = charge.text("reference").unwrap().to_owned();
    shop.wait_for_end(&reference).await;
    reference
}

/// Refunds 1.00 of a charge three times. Returns the refunds, oldest first.
async fn refunded_thrice(shop: &Shop, reference: &str) -> Vec<String> {
    let refunds = format!("{CHARGE}/{reference}/refunds");
    let mut ids = Vec::new();
    for key in ["r-1", "r-2", "r-3"] {
        let part = json!({ "amount": 1 });
        let made = shop.api.post_with_key(&refunds, &part, key).await.unwrap();
        made.expect(202).unwrap();
        ids.push(made.text("refund_id").unwrap().to_owned());
    }
    ids
}

/// Waits until the payer has all of these refunds.
async fn arrived(shop: &Shop, ids: &[String]) {
    for id in ids {
        shop.api
            .poll(&format!("{REFUNDS}/{id}"), WAIT_MAX, is_completed)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn refunds_end_at_what_was_collected() {
    let shop = Shop::open_with(NO_LIMITS).await;
    assert_eq!(available(&shop).await, json!(0.0));
    let reference = settled(&shop).await;
    assert_eq!(available(&shop).await, json!(25.5));

    let refunds = format!("{CHARGE}/{reference}/refunds");
    let part = json!({ "amount": 5.5 });
    let first = shop
        .api
        .post_with_key(&refunds, &part, "r-1")
        .await
        .unwrap();
    first.expect(202).unwrap();
    let again = shop
        .api
        .post_with_key(&refunds, &part, "r-1")
        .await
        .unwrap();
    assert_eq!((again.code, &again.body), (202, &first.body));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let other = json!({ "amount": 5 });
    let reused = shop
        .api
        .post_with_key(&refunds, &other, "r-1")
        .await
        .unwrap();
    assert_eq!(
        (reused.code, &reused.body["code"]),
        (409, &json!("IDEMPOTENCY_KEY_REUSED"))
    );
    let above = json!({ "amount": 20.01 });
    let above = shop
        .api
        .post_with_key(&refunds, &above, "r-2")
        .await
        .unwrap();
    above.expect(422).unwrap();
    let told = [
        ("code", json!("REFUND_EXCEEDS_CHARGE")),
        ("refundable", json!(20.0)),
        ("currency", json!("GHS")),
    ];
    above.expect_fields(&told).unwrap();
    let id = first.text("refund_id").unwrap();
    let paid = shop
        .api
        .poll(&format!("{REFUNDS}/{id}"), WAIT_MAX, is_completed)
        .await
        .unwrap();
    assert!(paid.body["completed_at"].is_string());
    assert_eq!(available(&shop).await, json!(20.0));
    shop.close().await;
}

#[tokio::test]
async fn payouts_end_at_the_balance() {
    let flags = ["--payout-account-hold=0s", "--payout-fee-momo=0.50"];
    let shop = Shop::open_with(&flags.map(|flag| ("charges-svc", flag))).await;
    settled(&shop).await;
    let ask = json!({ "amount": 25.01 });
    let refused = shop.api.post_with_key(PAYOUTS, &ask, "p-1").await.unwrap();
    assert_eq!(
        (refused.code, &refused.body["code"]),
        (403, &json!("PAYOUTS_NOT_ENABLED"))
    );
    let mut treasury = DisbursementOperationsClient::new(shop.charges_operators());
    let merchant_id = shop.ready.demo.merchant_id.clone();
    let account = SetPayoutAccountRequest {
        merchant_id: merchant_id.clone(),
        r#type: DestinationType::MobileMoney.into(),
        provider: Provider::Mtn.into(),
        account: "0240000201".to_owned(),
        holder_name: "Ama Mensah".to_owned(),
        ..SetPayoutAccountRequest::default()
    };
    treasury.set_payout_account(account).await.unwrap();
    let refused = shop.api.post_with_key(PAYOUTS, &ask, "p-2").await.unwrap();
    assert_eq!(
        (refused.code, &refused.body["code"]),
        (403, &json!("PAYOUTS_NOT_ENABLED"))
    );
    let switches = SetPayoutSwitchesRequest {
        merchant_id,
        payouts_on_request: Some(true),
        daily_settlement: None,
    };
    treasury.set_payout_switches(switches).await.unwrap();
    // Whoever was refused stays refused under that key.
    let again = shop.api.post_with_key(PAYOUTS, &ask, "p-2").await.unwrap();
    assert_eq!(
        (again.code, &again.body["code"]),
        (403, &json!("PAYOUTS_NOT_ENABLED"))
    );
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let little = json!({ "amount": 0.99 });
    let refused = shop.api.post_with_key(PAYOUTS, &little, "p-3").await;
    let refused = refused.unwrap();
    refused.expect(400).unwrap();
    let fields = json!([
        {"field": "amount", "code": "INVALID_FORMAT", "message": "must be at least 1.00"}
    ]);
    assert_eq!(refused.body["fields"], fields);
    // What was invalid leaves the key to be used again.
    let refused = shop.api.post_with_key(PAYOUTS, &ask, "p-3").await.unwrap();
    refused.expect(422).unwrap();
    let told = [
        ("code", json!("INSUFFICIENT_BALANCE")),
        ("available", json!(25.5)),
        ("currency", json!("GHS")),
    ];
    refused.expect_fields(&told).unwrap();
    let before = shop.api.get(BALANCE).await.unwrap();
    assert_eq!(before.body["payout_fee"], json!(0.5));
    let rest = json!({ "amount": 25, "currency": "GHS" });
    let payout = shop.api.post_with_key(PAYOUTS, &rest, "p-4").await.unwrap();
    payout.expect(202).unwrap();
    assert_eq!(payout.body["fee"], json!(0.5));
    let path = format!("{PAYOUTS}/{}", payout.text("payout_id").unwrap());
    shop.api.poll(&path, WAIT_MAX, is_completed).await.unwrap();
    let stranger = shop.add_merchant("The house next door").await;
    let stranger = Wire::with_key(&shop, &shop.add_key(&stranger).await.api_key);
    stranger.get(&path).await.assert_error(404, "NOT_FOUND");
    let listed: Value = stranger.get(PAYOUTS).await.assert_done(200).json();
    assert_eq!(listed["data"], json!([]));
    let paid_out = shop.api.get(BALANCE).await.unwrap();
    let nothing = json!([{"currency": "GHS", "available": 0.0, "reserved": 0.0}]);
    assert_eq!(paid_out.body["balances"], nothing);
    shop.close().await;
}

#[tokio::test]
async fn refunds_are_listed_newest_first_and_each_once() {
    let shop = Shop::open().await;
    let reference = settled(&shop).await;
    let ids = refunded_thrice(&shop, &reference).await;
    let path = format!("{REFUNDS}?limit=2&reference={reference}");
    let first = shop.api.get(&path).await.unwrap().body;
    let cursor = first["next_cursor"].as_str().unwrap();
    let path = format!("{REFUNDS}?limit=2&reference={reference}&cursor={cursor}");
    let second = shop.api.get(&path).await.unwrap().body;
    let pages = [&first, &second].map(|page| page["data"].as_array().unwrap().clone());
    let listed = pages
        .iter()
        .flatten()
        .map(|refund| refund["refund_id"].as_str().unwrap());
    assert!(
        listed.eq(ids.iter().rev().map(String::as_str)),
        "newest first, each once"
    );
    assert_eq!(second["next_cursor"], Value::Null);
    arrived(&shop, &ids).await;
    shop.close().await;
}

#[tokio::test]
async fn money_that_is_anothers_does_not_exist() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let merchant_id = shop.add_merchant("The house next door").await;
    let stranger = Wire::with_key(&shop, &shop.add_key(&merchant_id).await.api_key);
    let reference = settled(&shop).await;
    let ids = refunded_thrice(&shop, &reference).await;
    let refunds = format!("{CHARGE}/{reference}/refunds");
    let first = shop.api.get(&format!("{REFUNDS}?limit=2")).await.unwrap();
    let cursor = first.text("next_cursor").unwrap();
    let nobodys = stranger.get("/api/v1/refunds/RF-0123456789").await;
    for id in &ids {
        let read = stranger.get(&format!("{REFUNDS}/{id}")).await;
        read.assert_error(404, "NOT_FOUND");
        assert_eq!(read.without_its_moment(), nobodys.without_its_moment());
    }
    let body = json!({ "amount": 1 }).to_string();
    stranger
        .post(&refunds, body)
        .await
        .assert_error(404, "NOT_FOUND");
    // Nor is anything of it behind a cursor or a reference that was overheard.
    let newest = "99999999999999.ffffffff-ffff-7fff-bfff-ffffffffffff";
    for query in [
        format!("reference={reference}"),
        format!("cursor={cursor}"),
        format!("cursor={newest}"),
        format!("cursor={newest}&reference={reference}"),
    ] {
        let shop_sees = shop.api.get(&format!("{REFUNDS}?{query}")).await.unwrap();
        assert_ne!(shop_sees.body["data"], json!([]), "{query}");
        let listed = stranger.get(&format!("{REFUNDS}?{query}")).await;
        let listed: Value = listed.assert_done(200).json();
        assert_eq!(
            listed,
            json!({ "data": [], "next_cursor": null }),
            "{query}"
        );
    }
    let balance: Value = stranger.get(BALANCE).await.assert_done(200).json();
    assert_eq!(balance["balances"][0]["available"], json!(0.0));
    arrived(&shop, &ids).await;
    shop.close().await;
}
