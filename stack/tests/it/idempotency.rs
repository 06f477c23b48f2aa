//! A request that is repeated with its key is carried out once, whoever repeats it and why.

use futures::future::join_all;
use serde_json::json;

use crate::shop::Shop;

const CHARGE: &str = "/api/v1/payments/charge";
const INITIATE: &str = "/api/v1/payments/initiate";

#[tokio::test]
async fn fifty_parallel_charges_with_one_key_are_one_rail_request() {
    let shop = Shop::open().await;
    let body = json!({ "amount": 25.5, "mobile_number": "0240000001", "provider": "MTN" });
    let calls = (0..50).map(|_| shop.api.post_with_key(CHARGE, &body, "order-1"));
    let mut references = Vec::new();
    for answer in join_all(calls).await {
        let answer = answer.unwrap();
        match answer.code {
            202 => references.push(answer.text("reference").unwrap().to_owned()),
            409 => {
                let running = ("code", json!("IDEMPOTENCY_IN_PROGRESS"));
                answer.expect_fields(&[running]).unwrap();
                assert_eq!(answer.header("retry-after"), Some("1"));
            }
            code => panic!("{code}: {}", answer.body),
        }
    }
    references.dedup();
    assert_eq!(references.len(), 1, "{references:?}");
    shop.wait_for_end(&references[0]).await;
    let replayed = shop
        .api
        .post_with_key(CHARGE, &body, "order-1")
        .await
        .unwrap();
    replayed.expect(202).unwrap();
    replayed
        .expect_fields(&[("status", json!("INITIATED"))])
        .unwrap();
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
    let book = shop.book("0240000001").await;
    assert_eq!(book.len(), 1, "{book:?}");
    assert_eq!(
        (&book[0]["requests"], &book[0]["debits"]),
        (&json!(1), &json!(1))
    );
    shop.wait_for_event(&references[0]).await;
    shop.close().await;
}

#[tokio::test]
async fn a_rejection_is_replayed_as_it_was() {
    let shop = Shop::open().await;
    let body = json!({ "amount": 5, "mobile_number": "0240000006", "provider": "MTN" });
    let first = shop
        .api
        .post_with_key(CHARGE, &body, "order-2")
        .await
        .unwrap();
    first.expect(422).unwrap();
    let second = shop
        .api
        .post_with_key(CHARGE, &body, "order-2")
        .await
        .unwrap();
    second.expect(422).unwrap();
    assert_eq!(second.body, first.body);
    assert_eq!(shop.book("0240000006").await.len(), 1);
    shop.wait_for_event(first.text("reference").unwrap()).await;
    shop.close().await;
}

#[tokio::test]
async fn another_body_under_a_used_key_is_refused_and_charges_nobody() {
    let shop = Shop::open().await;
    let body = json!({ "amount": 5, "mobile_number": "0240000001", "provider": "MTN" });
    let first = shop
        .api
        .post_with_key(CHARGE, &body, "order-3")
        .await
        .unwrap();
    first.expect(202).unwrap();
    let body = json!({ "amount": 6, "mobile_number": "0240000001", "provider": "MTN" });
    let other = shop
        .api
        .post_with_key(CHARGE, &body, "order-3")
        .await
        .unwrap();
    other.expect(409).unwrap();
    other
        .expect_fields(&[("code", json!("IDEMPOTENCY_KEY_REUSED"))])
        .unwrap();
    assert_eq!(shop.book("0240000001").await.len(), 1);
    shop.wait_for_end(first.text("reference").unwrap()).await;
    shop.wait_for_event(first.text("reference").unwrap()).await;
    shop.close().await;
}

#[tokio::test]
async fn fifty_parallel_sessions_with_one_key_are_one_session() {
    let shop = Shop::open().await;
    let body = json!({ "amount": 40, "currency": "GHS" });
    let calls = (0..50).map(|_| shop.api.post_with_key(INITIATE, &body, "order-4"));
    let mut sessions = Vec::new();
    for answer in join_all(calls).await {
        let answer = answer.unwrap();
        if answer.code == 201 {
            sessions.push(answer.text("session_id").unwrap().to_owned());
        } else {
            answer.expect(409).unwrap();
        }
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let alias = shop
        .api
        .post_with_key("/api/payments/initiate", &body, "order-4")
        .await
        .unwrap();
    alias.expect(201).unwrap();
    assert_eq!(
        alias.text("session_id").unwrap(),
        sessions[0],
        "alias and v1 are one"
    );
    shop.close().await;
}
