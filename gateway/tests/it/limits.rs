//! Rate limits (spec §8).

use proto::ratelimit::{Bucket, CheckResponse};

use crate::{
    gateway::{ALIAS, CHARGE, Gateway, INITIATE, NOBODY, PAYOUTS, PREFLIGHT, REFUNDS, SUBMIT_OTP},
    services::{EVENT_ID, REFERENCE, SESSION_ID, merchant},
};

#[tokio::test]
async fn every_endpoint_counts_in_its_bucket_and_tells_how_it_stands() {
    let gateway = Gateway::start().await;
    let status = format!("/api/v1/payments/{SESSION_ID}/status");
    let charge = format!("{CHARGE}/{REFERENCE}");
    let payments = (Bucket::Payments, "v1/payments");
    let charging = (Bucket::Charge, "v1/payments/charge");
    let reading = (Bucket::ChargeStatus, "v1/payments/charge:status");
    let other_reading = (Bucket::Read, "v1/read");
    let writing = (Bucket::Write, "v1/write");
    let timeline = format!("{charge}/timeline");
    let refunds = REFUNDS.replace("{reference}", REFERENCE);
    let redeliver = format!("/api/v1/events/{EVENT_ID}/redeliver");
    for (method, path, (bucket, name)) in [
        ("POST", INITIATE, payments),
        ("POST", ALIAS, payments),
        ("GET", &status, payments),
        ("POST", CHARGE, charging),
        ("POST", SUBMIT_OTP, charging),
        ("GET", &charge, reading),
        ("GET", &timeline, other_reading),
        ("GET", "/api/v1/balance", other_reading),
        ("GET", PAYOUTS, other_reading),
        ("POST", PAYOUTS, writing),
        ("GET", "/api/v1/payouts/PO-0123456789", other_reading),
        ("GET", "/api/v1/refunds", other_reading),
        ("GET", "/api/v1/refunds/RF-0123456789", other_reading),
        ("POST", &refunds, writing),
        ("GET", "/api/v1/events", other_reading),
        ("POST", &redeliver, writing),
        ("GET", "/api/v1/webhook-endpoint", other_reading),
        ("POST", "/api/v1/webhook-endpoint/test", writing),
        ("POST", PREFLIGHT, writing),
    ] {
        let key = gateway.key.expose();
        let answer = gateway.request(method, path).key(key).send().await;
        let asked = gateway.services.check.asked().pop().expect("a check");
        assert_eq!(asked.bucket(), bucket, "{path}");
        assert_eq!(asked.subject, merchant().merchant_id);
        let policy = format!("\"{name}\";q=60;w=60");
        assert_eq!(answer.header("ratelimit-policy"), Some(policy.as_str()));
        let limit = format!("\"{name}\";r=59;t=42");
        assert_eq!(answer.header("ratelimit"), Some(limit.as_str()));
    }
}

#[tokio::test]
async fn over_the_limit_nothing_else_is_looked_at() {
    let gateway = Gateway::start().await;
    gateway.services.check.answers(|_| {
        Ok(CheckResponse {
            allowed: false,
            limit: 60,
            remaining: 0,
            reset_seconds: 17,
            window_seconds: 60,
        })
    });
    gateway.services.authenticate.answers(|_| {
        Ok(proto::merchants::Merchant {
            email_verified: false,
            ..merchant()
        })
    });
    let answer = gateway.initiate("not read").await;
    answer.assert_error(429, "RATE_LIMITED");
    assert_eq!(answer.header("retry-after"), Some("17"));
    assert_eq!(answer.header("ratelimit"), Some("\"v1/payments\";r=0;t=17"));
    assert!(gateway.services.create_session.asked().is_empty());
}

#[tokio::test]
async fn a_bad_key_is_not_counted() {
    let gateway = Gateway::start().await;
    let answer = gateway
        .request("POST", INITIATE)
        .key("service_sk_x")
        .json("{}")
        .send()
        .await;
    answer.assert_error(401, "INVALID_API_KEY");
    assert_eq!(answer.header("ratelimit-policy"), None);
    assert!(gateway.services.check.asked().is_empty());
}

#[tokio::test]
async fn without_ratelimit_svc_requests_pass() {
    let gateway = Gateway::start_with(&["--ratelimit-url", NOBODY]).await;
    let answer = gateway.initiate(r#"{"amount":1}"#).await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some("\"v1/payments\";q=60;w=60")
    );
    assert_eq!(answer.header("ratelimit"), None, "nobody counted");
}

#[tokio::test]
async fn a_ratelimit_svc_that_hangs_is_not_waited_for() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .check
        .answers_late(|_| std::future::pending());
    let answer = gateway.initiate(r#"{"amount":1}"#).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("ratelimit"), None, "nobody counted");
}
