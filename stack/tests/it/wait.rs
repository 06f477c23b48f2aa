//! Charges that a merchant waits for, instead of asking again and again.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use stack::demo::Api;
use tokio::task::JoinSet;

use crate::shop::Shop;

/// Begins to wait for a charge.
fn begin_wait(api: &Arc<Api>, reference: &str) -> JoinSet<Value> {
    let path = format!("/api/v1/payments/charge/{reference}?wait=30");
    let api = api.clone();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let answer = api.get(&path).await.unwrap();
        answer.expect(200).unwrap();
        answer.body
    });
    waiting
}

#[tokio::test]
async fn a_wait_is_answered_when_the_payer_has_paid() {
    let shop = Shop::open().await;
    let answer = shop.charge("0240000001", "MTN").await;
    let mut waiting = begin_wait(&shop.api, answer.text("reference").unwrap());
    let charge = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(charge["status"], "SETTLED");
    shop.close().await;
}

#[tokio::test]
async fn a_wait_is_answered_at_each_change_and_does_not_hold_up_time() {
    let shop = Shop::open().await;
    let answer = shop.charge("0200000002", "TELECEL").await;
    answer.expect(202).unwrap();
    let reference = answer.text("reference").unwrap();
    let mut waiting = begin_wait(&shop.api, reference);
    // Nobody submits the code, so nothing happens before its time is up.
    shop.advance(Duration::from_secs(3_600)).await;
    let charge = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(charge["status"], "FAILED");
    assert_eq!(charge["failure_reason"], "OTP_EXPIRED");
    shop.close().await;
}
