//! Rate limits (spec §8).

use futures::future::join_all;
use proto::ratelimit::{Bucket, CheckResponse};
use serde_json::Value;

use crate::{
    gateway::{ALIAS, CHARGE, Gateway, INITIATE, NOBODY, SUBMIT_OTP},
    openapi::SOURCE,
    services::{REFERENCE, merchant},
};

/// Where an operation must count (spec §8): what the specification does not name counts in none of its
/// buckets.
fn bucket_of(method: &str, path: &str) -> (Bucket, &'static str) {
    match (method, path) {
        ("POST", INITIATE | ALIAS) | ("GET", "/api/v1/payments/{session_id}/status") => {
            (Bucket::Payments, "v1/payments")
        }
        ("POST", CHARGE | SUBMIT_OTP) => (Bucket::Charge, "v1/payments/charge"),
        ("GET", "/api/v1/payments/charge/{reference}") => {
            (Bucket::ChargeStatus, "v1/payments/charge:status")
        }
        ("GET", _) => (Bucket::Read, "v1/read"),
        _ => (Bucket::Write, "v1/write"),
    }
}

#[tokio::test]
async fn every_endpoint_counts_in_its_bucket_and_tells_how_it_stands() {
    let gateway = Gateway::start().await;
    // Exactly the operations that have handlers are documented.
    let document: Value = yaml_serde::from_str(SOURCE).expect("YAML");
    let mut seen = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            let method = method.to_uppercase();
            let (bucket, name) = bucket_of(&method, path);
            seen.push(bucket);
            let key = gateway.key.expose();
            let answer = gateway.request(&method, path).key(key).send().await;
            let asked = gateway.services.check.asked();
            assert_eq!(asked.len(), seen.len(), "{method} {path} counts once");
            let asked = asked.last().expect("a check");
            assert_eq!(asked.bucket(), bucket, "{method} {path}");
            assert_eq!(asked.subject, merchant().merchant_id);
            let policy = format!("\"{name}\";q=60;w=60");
            assert_eq!(answer.header("ratelimit-policy"), Some(policy.as_str()));
            let limit = format!("\"{name}\";r=59;t=42");
            assert_eq!(answer.header("ratelimit"), Some(limit.as_str()));
        }
    }
    let specified = seen
        .iter()
        .filter(|bucket| !matches!(bucket, Bucket::Read | Bucket::Write));
    assert_eq!(specified.count(), 6);
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

/// However many are checked by one call.
#[tokio::test]
async fn each_request_has_its_own_answer_however_many_wait() {
    let gateway = Gateway::start().await;
    gateway.services.check.answers(|check| {
        let allowed = check.bucket() == Bucket::ChargeStatus;
        Ok(CheckResponse {
            allowed,
            limit: 60,
            remaining: u32::from(allowed),
            reset_seconds: 17,
            window_seconds: 60,
        })
    });
    let charge = format!("{CHARGE}/{REFERENCE}");
    let refused = join_all((0..40).map(|_| gateway.initiate(r#"{"amount":1}"#)));
    let key = gateway.key.expose();
    let passed = join_all((0..40).map(|_| gateway.request("GET", &charge).key(key).send()));
    let (refused, passed) = tokio::join!(refused, passed);
    for answer in refused {
        answer.assert_error(429, "RATE_LIMITED");
        assert_eq!(answer.header("ratelimit"), Some("\"v1/payments\";r=0;t=17"));
    }
    for answer in passed {
        answer.assert_error(404, "NOT_FOUND");
        let limit = "\"v1/payments/charge:status\";r=1;t=17";
        assert_eq!(answer.header("ratelimit"), Some(limit));
    }
    assert_eq!(gateway.services.check.asked().len(), 80, "each counts once");
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
    let gateway = Gateway::start_with(&["--ratelimit-timeout", "250ms"]).await;
    gateway
        .services
        .check
        .answers_late(|_| std::future::pending());
    let answer = gateway.initiate(r#"{"amount":1}"#).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("ratelimit"), None, "nobody counted");
}
