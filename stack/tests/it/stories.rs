//! Every story that the simulated networks tell, to its end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::shop::{Shop, WAIT_MAX};

/// Charges the number and checks the first answer. Returns the reference.
async fn begin(shop: &Shop, number: &str, provider: &str, code: u16, status: &str) -> String {
    let answer = shop.charge(number, provider).await;
    answer.expect(code).unwrap();
    answer.expect_fields(&[("status", json!(status))]).unwrap();
    answer.text("reference").unwrap().to_owned()
}

/// Checks that the charge settles once, everywhere: charge, session, event, balance, the network's
/// book.
async fn check_settles(shop: &Shop, reference: &str, number: &str) {
    let charge = shop.wait_for_end(reference).await;
    assert_eq!(charge["status"], "SETTLED", "{charge}");
    assert_eq!(charge["failure_reason"], Value::Null);
    let event = shop.wait_for_event(reference).await;
    assert_eq!(event["type"], "payment.success");
    assert_eq!(event["data"]["status"], "SETTLED");
    assert_eq!(event["data"]["amount"], json!(25.5));
    let session = shop
        .read_session(charge["session_id"].as_str().unwrap())
        .await;
    assert_eq!(session["status"], "COMPLETED");
    assert_eq!(session["transaction"]["status"], "SETTLED");
    assert_eq!(shop.balance().await, 2_550);
    let book = shop.book(number).await;
    assert_eq!(book.len(), 1, "{book:?}");
    assert_eq!(book[0]["debits"], 1);
    assert_eq!(book[0]["requests"], 1);
    assert_eq!(shop.events(reference).len(), 1);
}

/// Checks that the charge fails once, everywhere, and that nothing was debited.
async fn check_fails(shop: &Shop, reference: &str, number: &str, reason: &str) {
    let charge = shop.wait_for_end(reference).await;
    assert_eq!(charge["status"], "FAILED", "{charge}");
    assert_eq!(charge["failure_reason"], reason);
    assert!(charge["failure_message"].is_string());
    let event = shop.wait_for_event(reference).await;
    assert_eq!(event["type"], "payment.failed");
    assert_eq!(event["data"]["status"], "FAILED");
    assert_eq!(event["data"]["failure_reason"], reason);
    let session = shop
        .read_session(charge["session_id"].as_str().unwrap())
        .await;
    assert_eq!(session["status"], "FAILED");
    assert_eq!(session["transaction"]["failure_reason"], reason);
    assert_eq!(shop.balance().await, 0);
    for entry in shop.book(number).await {
        assert_eq!(entry["debits"], 0, "{entry}");
    }
    assert_eq!(shop.events(reference).len(), 1);
}

async fn check_story_settles(number: &str, provider: &str) {
    let shop = Shop::open().await;
    let reference = begin(&shop, number, provider, 202, "INITIATED").await;
    check_settles(&shop, &reference, number).await;
    shop.close().await;
}

async fn check_story_fails(number: &str, provider: &str, first: (u16, &str), reason: &str) {
    let shop = Shop::open().await;
    let reference = begin(&shop, number, provider, first.0, first.1).await;
    check_fails(&shop, &reference, number, reason).await;
    shop.close().await;
}

const PROMPTED: (u16, &str) = (202, "INITIATED");
const REJECTED: (u16, &str) = (422, "FAILED");

#[tokio::test]
async fn story_001_an_mtn_payer_approves() {
    check_story_settles("0240000001", "MTN").await;
}

#[tokio::test]
async fn story_001_an_at_payer_approves() {
    check_story_settles("0270000001", "AT").await;
}

#[tokio::test]
async fn story_002_a_telecel_payer_gives_the_right_code() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0200000002", "TELECEL", 202, "OTP_REQUIRED").await;
    let answer = shop.submit_otp(&reference, "123456").await;
    answer.expect(202).unwrap();
    answer
        .expect_fields(&[("status", json!("INITIATED"))])
        .unwrap();
    check_settles(&shop, &reference, "0200000002").await;
    shop.close().await;
}

#[tokio::test]
async fn story_003_insufficient_funds_on_mtn() {
    check_story_fails("0240000003", "MTN", PROMPTED, "INSUFFICIENT_FUNDS").await;
}

#[tokio::test]
async fn story_003_insufficient_funds_on_at() {
    check_story_fails("0270000003", "AT", PROMPTED, "INSUFFICIENT_FUNDS").await;
}

#[tokio::test]
async fn story_004_a_payer_declines() {
    check_story_fails("0240000004", "MTN", PROMPTED, "PAYER_DECLINED").await;
}

#[tokio::test]
async fn story_005_a_payer_never_answers() {
    check_story_fails("0240000005", "MTN", PROMPTED, "PAYER_TIMEOUT").await;
}

#[tokio::test]
async fn story_006_an_mtn_number_without_a_wallet() {
    check_story_fails("0240000006", "MTN", REJECTED, "PAYER_NOT_FOUND").await;
}

#[tokio::test]
async fn story_006_an_at_number_without_a_wallet() {
    check_story_fails("0270000006", "AT", REJECTED, "PAYER_NOT_FOUND").await;
}

#[tokio::test]
async fn story_007_mtn_refuses_work() {
    check_story_fails("0240000007", "MTN", REJECTED, "RAIL_UNAVAILABLE").await;
}

#[tokio::test]
async fn story_007_at_refuses_work() {
    check_story_fails("0270000007", "AT", REJECTED, "RAIL_UNAVAILABLE").await;
}

#[tokio::test]
async fn story_008_without_any_callback_the_reconciler_settles() {
    check_story_settles("0240000008", "MTN").await;
}

#[tokio::test]
async fn story_009_three_callbacks_settle_once() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0240000009", "MTN", 202, "INITIATED").await;
    check_settles(&shop, &reference, "0240000009").await;
    // Time for the other callbacks, and everything that they could cause.
    shop.advance(Duration::from_secs(3_600)).await;
    assert_eq!(shop.events(&reference).len(), 1);
    assert_eq!(shop.balance().await, 2_550);
    shop.close().await;
}

#[tokio::test]
async fn story_010_money_that_arrives_after_failed_goes_to_suspense() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0240000010", "MTN", 202, "INITIATED").await;
    let charge = shop.wait_for_end(&reference).await;
    assert_eq!(charge["status"], "FAILED");
    let case = shop.wait_for_case(&reference).await;
    assert_eq!(case.kind(), proto::charges::CaseKind::LateMoney);
    let suspense = case.suspense.unwrap();
    assert_eq!(
        (suspense.minor_units, suspense.currency.as_str()),
        (2_550, "GHS")
    );
    let charge = shop.read_charge(&reference).await;
    assert_eq!(
        charge["status"], "FAILED",
        "late money never flips a charge"
    );
    assert_eq!(shop.balance().await, 0);
    shop.advance(Duration::from_secs(80 * 3_600)).await;
    assert_eq!(
        shop.cases().await.len(),
        1,
        "one case, however often the rail is asked"
    );
    assert_eq!(shop.events(&reference).len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn story_011_a_code_that_has_expired() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0200000011", "TELECEL", 202, "OTP_REQUIRED").await;
    let answer = shop.submit_otp(&reference, "123456").await;
    answer.expect(422).unwrap();
    answer
        .expect_fields(&[("status", json!("FAILED"))])
        .unwrap();
    check_fails(&shop, &reference, "0200000011", "OTP_EXPIRED").await;
    shop.close().await;
}

#[tokio::test]
async fn story_012_a_limit_of_the_wallet() {
    check_story_fails("0240000012", "MTN", PROMPTED, "PAYER_LIMIT_REACHED").await;
}

#[tokio::test]
async fn story_013_an_mtn_answer_that_is_lost_is_found_by_query() {
    check_story_settles("0240000013", "MTN").await;
}

#[tokio::test]
async fn story_013_an_at_answer_that_is_lost_is_found_by_query() {
    check_story_settles("0270000013", "AT").await;
}

#[tokio::test]
async fn story_014_an_answer_to_a_code_that_is_lost_is_found_by_query() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0200000014", "TELECEL", 202, "OTP_REQUIRED").await;
    let answer = shop.submit_otp(&reference, "123456").await;
    answer.expect(202).unwrap();
    answer
        .expect_fields(&[("status", json!("INITIATED"))])
        .unwrap();
    check_settles(&shop, &reference, "0200000014").await;
    shop.close().await;
}

#[tokio::test]
async fn story_015_another_amount_is_never_settled() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0240000015", "MTN", 202, "INITIATED").await;
    let case = shop.wait_for_case(&reference).await;
    assert_eq!(case.kind(), proto::charges::CaseKind::Mismatch);
    shop.advance(Duration::from_secs(48 * 3_600)).await;
    let charge = shop.read_charge(&reference).await;
    assert_eq!(charge["status"], "INITIATED");
    assert_eq!(shop.balance().await, 0);
    assert!(shop.events(&reference).is_empty());
    shop.close().await;
}

#[tokio::test]
async fn story_100_waits_for_a_person_who_approves() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0240000100", "MTN", 202, "INITIATED").await;
    shop.advance(Duration::from_secs(2 * 3_600)).await;
    assert_eq!(shop.read_charge(&reference).await["status"], "INITIATED");
    press(&shop, "approve").await;
    check_settles(&shop, &reference, "0240000100").await;
    shop.close().await;
}

#[tokio::test]
async fn story_100_waits_for_a_person_who_declines() {
    let shop = Shop::open().await;
    let reference = begin(&shop, "0270000100", "AT", 202, "INITIATED").await;
    press(&shop, "decline").await;
    shop.advance(Duration::from_secs(600)).await;
    check_fails(&shop, &reference, "0270000100", "PAYER_DECLINED").await;
    shop.close().await;
}

/// Presses a button of the only prompt on the handsets.
async fn press(shop: &Shop, button: &str) {
    let client = chassis::http::client(WAIT_MAX).unwrap();
    let handset = &shop.ready.handset;
    let prompts = client
        .get(format!("{handset}/prompts"))
        .send()
        .await
        .unwrap();
    let prompts: Vec<Value> = prompts.json().await.unwrap();
    assert_eq!(prompts.len(), 1, "{prompts:?}");
    let id = prompts[0]["id"].as_str().unwrap();
    let url = format!("{handset}/prompts/{id}/{button}");
    let answer = client.post(url).send().await.unwrap();
    assert!(answer.status().is_success() || answer.status().is_redirection());
}
