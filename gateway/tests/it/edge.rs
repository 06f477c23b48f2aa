//! What holds for every request, whatever its address.

use std::sync::Arc;

use chassis::testing::until;
use tokio::sync::Notify;

use crate::{
    gateway::{ALIAS, CHARGE, Gateway, INITIATE, NOBODY, SUBMIT_OTP},
    services::{REFERENCE, SESSION_ID, merchant},
};

#[tokio::test]
async fn an_unknown_address_is_404_before_any_key_is_asked_for() {
    let gateway = Gateway::start().await;
    for path in [
        "/",
        "/api",
        "/api/v1",
        "/api/v1/payments/",
        "/api/v1/payments/initiate/",
        "/api/v1//payments/initiate",
        "/api/v2/payments/initiate",
        "/API/v1/payments/initiate",
        "/api/payments/charge",
        "/api/v1/payments/x/status/",
        "/rails",
        "/rails/momo",
        "/rails/momo/a/b",
        "/healthz",
        "/metrics",
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            let answer = gateway.request(method, path).send().await;
            answer.assert_error(404, "NOT_FOUND");
        }
    }
    assert!(gateway.services.authenticate.asked().is_empty());
}

#[tokio::test]
async fn a_wrong_method_is_405_with_allow_before_any_key_is_asked_for() {
    let gateway = Gateway::start().await;
    let status = format!("/api/v1/payments/{SESSION_ID}/status");
    let charge = format!("{CHARGE}/{REFERENCE}");
    for (path, allow) in [
        (INITIATE, "POST"),
        (ALIAS, "POST"),
        (CHARGE, "POST"),
        (SUBMIT_OTP, "POST"),
        (&status, "GET,HEAD"),
        (&charge, "GET,HEAD"),
        ("/rails/momo/token", "POST,PUT"),
    ] {
        for method in [
            "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW",
        ] {
            if allow.split(',').any(|allowed| allowed == method) {
                continue;
            }
            let answer = gateway.request(method, path).send().await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
            assert!(answer.header("x-request-id").is_some());
            if method != "HEAD" {
                answer.assert_error(405, "METHOD_NOT_ALLOWED");
            }
        }
    }
    assert!(gateway.services.authenticate.asked().is_empty());
}

#[tokio::test]
async fn a_harmless_request_id_comes_back_and_any_other_is_replaced() {
    let gateway = Gateway::start().await;
    let with = async |id: &str| {
        gateway
            .request("GET", "/")
            .header("x-request-id", id)
            .send()
            .await
    };
    assert_eq!(
        with("Order-17").await.header("x-request-id"),
        Some("Order-17")
    );
    for id in ["a b", "a\"b", "<b>", &"a".repeat(65)] {
        let answer = with(id).await;
        assert_ne!(answer.header("x-request-id"), Some(id));
        answer.assert_error(404, "NOT_FOUND");
    }
    let given = gateway.initiate(r#"{"amount":1}"#).await;
    assert!(given.header("x-request-id").is_some(), "on success too");
}

#[tokio::test]
async fn no_other_site_is_let_in_by_cors() {
    let gateway = Gateway::start().await;
    let answer = gateway
        .request("OPTIONS", INITIATE)
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST")
        .send()
        .await;
    answer.assert_error(405, "METHOD_NOT_ALLOWED");
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn a_head_request_is_answered_like_a_get_without_its_body() {
    let gateway = Gateway::start().await;
    let path = format!("/api/v1/payments/{SESSION_ID}/status");
    let answer = gateway
        .request("HEAD", &path)
        .key(gateway.key.expose())
        .send()
        .await;
    assert_eq!((answer.status, answer.body.len()), (404, 0));
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_are_refused_at_once() {
    let gateway = Gateway::start_with(&["--requests-max", "1"]).await;
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (arrived.clone(), release.clone());
    gateway.services.authenticate.answers_late(move |_| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok(merchant())
        }
    });
    let second = async {
        arrived.notified().await;
        let answer = gateway.initiate(r#"{"amount":1}"#).await;
        release.notify_one();
        answer
    };
    let (first, second) = tokio::join!(gateway.initiate(r#"{"amount":1}"#), second);
    assert_eq!(first.status, 201);
    second.assert_error(503, "UNAVAILABLE");
    assert_eq!(second.header("retry-after"), Some("1"));
    assert_eq!(gateway.services.authenticate.asked().len(), 1);
}

#[tokio::test]
async fn without_services_the_process_lives_but_is_not_ready() {
    let flags = [
        "--merchants-url",
        NOBODY,
        "--sessions-url",
        NOBODY,
        "--charges-url",
        NOBODY,
    ];
    let gateway = Gateway::start_with(&flags).await;
    let admin = async |path| {
        crate::http::Request::new(gateway.admin, "GET", path)
            .send()
            .await
    };
    assert_eq!(admin("/healthz").await.status, 200);
    assert_eq!(admin("/readyz").await.status, 503);
    let answer = gateway.initiate(r#"{"amount":1}"#).await;
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn with_its_services_the_process_is_ready_and_counts_its_requests() {
    let gateway = Gateway::start().await;
    let admin = async |path| {
        crate::http::Request::new(gateway.admin, "GET", path)
            .send()
            .await
    };
    // The first scrape starts the count here; a real process starts it at startup.
    assert_eq!(admin("/metrics").await.status, 200);
    until("ready", async || admin("/readyz").await.status == 200).await;
    assert_eq!(gateway.initiate(r#"{"amount":1}"#).await.status, 201);
    let metrics = admin("/metrics").await;
    let counted =
        "http_requests_total{method=\"POST\",route=\"/api/v1/payments/initiate\",status=\"201\"}";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}
