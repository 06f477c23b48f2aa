//! Rate limits as a merchant sees them (spec §8).

use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde_json::json;

use crate::shop::Shop;

/// If a window is about to end, waits for the next one: a count that spans two proves nothing.
async fn in_one_window(shop: &Shop) {
    loop {
        // A different bucket from the one under test.
        let path = "/api/v1/payments/charge/TX-0000000000-000000";
        let answer = shop.api.get(path).await.unwrap();
        let limit = answer.header("ratelimit").unwrap();
        let reset: u32 = limit.rsplit_once("t=").unwrap().1.parse().unwrap();
        if reset >= 30 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test]
async fn of_a_thousand_parallel_requests_in_one_window_exactly_sixty_pass() {
    let shop = Shop::open().await;
    in_one_window(&shop).await;
    let body = json!({ "amount": 1, "currency": "GHS" });
    let session = "/api/v1/payments/5f0c7a3e-6f0b-4b52-9a53-0d7c9a1f2b3c/status";
    let calls = (0..1_000).map(async |n| match n % 25 {
        // Every path that counts towards the bucket.
        0 => shop.api.post("/api/v1/payments/initiate", &body).await,
        1 => shop.api.post("/api/payments/initiate", &body).await,
        _ => shop.api.get(session).await,
    });
    // As many at a time as a client may have running.
    let answers: Vec<_> = stream::iter(calls).buffer_unordered(500).collect().await;
    let mut passed = 0;
    for answer in answers {
        let answer = answer.unwrap();
        if answer.code != 429 {
            assert!(matches!(answer.code, 201 | 404), "{}", answer.body);
            passed += 1;
            continue;
        }
        answer
            .expect_fields(&[("code", json!("RATE_LIMITED"))])
            .unwrap();
        let retry_after: u32 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&retry_after));
    }
    assert_eq!(passed, 60);
    shop.close().await;
}

#[tokio::test]
async fn reading_charges_does_not_use_up_the_charge_bucket() {
    let shop = Shop::open().await;
    in_one_window(&shop).await;
    for _ in 0..61 {
        let answer = shop
            .api
            .get("/api/v1/payments/charge/TX-0000000000-000000")
            .await
            .unwrap();
        answer.expect(404).unwrap();
    }
    let answer = shop.charge("0240000001", "MTN").await;
    answer.expect(202).unwrap();
    let reference = answer.text("reference").unwrap();
    shop.wait_for_end(reference).await;
    shop.wait_for_event(reference).await;
    shop.close().await;
}
