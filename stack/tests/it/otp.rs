//! One-time codes: three tries, one winner, ten minutes.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::shop::Shop;

const NUMBER: &str = "0200000002";

async fn charge(shop: &Shop) -> String {
    let answer = shop.charge(NUMBER, "TELECEL").await;
    answer.expect(202).unwrap();
    answer
        .expect_fields(&[("status", json!("OTP_REQUIRED"))])
        .unwrap();
    answer.text("reference").unwrap().to_owned()
}

#[tokio::test]
async fn of_eight_parallel_right_codes_one_is_accepted() {
    let shop = Shop::open().await;
    let reference = charge(&shop).await;
    let answers = join_all((0..8).map(|_| shop.submit_otp(&reference, "123456"))).await;
    let mut codes: Vec<_> = answers.iter().map(|answer| answer.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [202, 409, 409, 409, 409, 409, 409, 409]);
    for refused in answers.iter().filter(|answer| answer.code == 409) {
        refused
            .expect_fields(&[("code", json!("CHARGE_NOT_AWAITING_OTP"))])
            .unwrap();
    }
    assert_eq!(shop.wait_for_end(&reference).await["status"], "SETTLED");
    shop.wait_for_event(&reference).await;
    assert_eq!(shop.book(NUMBER).await[0]["debits"], 1);
    shop.close().await;
}

#[tokio::test]
async fn the_third_wrong_code_ends_the_charge() {
    let shop = Shop::open().await;
    let reference = charge(&shop).await;
    for left in ["2", "1"] {
        let answer = shop.submit_otp(&reference, "000000").await;
        answer.expect(202).unwrap();
        answer
            .expect_fields(&[("status", json!("OTP_REQUIRED"))])
            .unwrap();
        let message = answer.text("message").unwrap();
        assert!(
            message.contains(left),
            "tells how many tries are left: {message}"
        );
    }
    let answer = shop.submit_otp(&reference, "000000").await;
    answer.expect(422).unwrap();
    answer
        .expect_fields(&[("status", json!("FAILED"))])
        .unwrap();
    let charge = shop.wait_for_end(&reference).await;
    assert_eq!(charge["failure_reason"], "OTP_ATTEMPTS_EXCEEDED");
    shop.submit_otp(&reference, "123456")
        .await
        .expect(409)
        .unwrap();
    let event = shop.wait_for_event(&reference).await;
    assert_eq!(event["data"]["failure_reason"], "OTP_ATTEMPTS_EXCEEDED");
    shop.close().await;
}

#[tokio::test]
async fn a_code_that_nobody_enters_expires_after_ten_minutes() {
    let shop = Shop::open().await;
    let reference = charge(&shop).await;
    shop.advance(Duration::from_secs(595)).await;
    assert_eq!(shop.read_charge(&reference).await["status"], "OTP_REQUIRED");
    shop.advance(Duration::from_secs(10)).await;
    let charge = shop.wait_for_end(&reference).await;
    assert_eq!(charge["failure_reason"], "OTP_EXPIRED");
    let event = shop.wait_for_event(&reference).await;
    assert_eq!(event["type"], "payment.failed");
    shop.submit_otp(&reference, "123456")
        .await
        .expect(409)
        .unwrap();
    shop.close().await;
}

#[tokio::test]
async fn a_code_for_a_charge_that_wants_none_is_409_and_for_none_at_all_404() {
    let shop = Shop::open().await;
    let answer = shop.charge("0240000100", "MTN").await;
    let reference = answer.text("reference").unwrap();
    let refused = shop.submit_otp(reference, "123456").await;
    refused.expect(409).unwrap();
    for unknown in ["TX-0000000000-000000", "nonsense", ""] {
        let answer = shop.submit_otp(unknown, "123456").await;
        assert!(matches!(answer.code, 404 | 400), "{}", answer.body);
    }
    shop.submit_otp("TX-0000000000-000000", "123456")
        .await
        .expect(404)
        .unwrap();
    shop.close().await;
}
