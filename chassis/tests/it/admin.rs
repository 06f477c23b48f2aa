//! The admin address.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use chassis::{
    admin::{self, Readiness},
    http::client,
    shutdown::{Shutdown, Tasks},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::{PATIENCE, service, soon};

/// Starts it beside something that drains for ever.
async fn start(readiness: Readiness, shutdown: Shutdown) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = admin::beside(pending(), Some(listener), readiness, shutdown);
    Tasks::new().spawn(async { served.await.unwrap() });
    url
}

async fn get(url: &str, path: &str) -> (u16, String) {
    let answer = client(PATIENCE).unwrap().get(format!("{url}{path}"));
    let answer = soon(answer.send()).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn ready(url: &str) -> (u16, Value) {
    let (status, body) = get(url, "/readyz").await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn a_process_is_ready_while_everything_that_it_needs_answers() {
    let database = Arc::new(AtomicBool::new(true));
    let asked = database.clone();
    let readiness = Readiness::new()
        .check("rail", async || true)
        .check("database", move || {
            let database = asked.clone();
            async move { database.load(Ordering::SeqCst) }
        });
    let url = start(readiness, Shutdown::new()).await;
    let (status, checks) = ready(&url).await;
    assert_eq!(status, 200);
    assert_eq!(
        checks,
        json!({ "rail": true, "database": true, "not stopping": true })
    );

    database.store(false, Ordering::SeqCst);
    let (status, checks) = ready(&url).await;
    assert_eq!(status, 503);
    assert_eq!(
        checks,
        json!({ "rail": true, "database": false, "not stopping": true })
    );
    assert_eq!(get(&url, "/healthz").await.0, 200, "it lives nevertheless");

    database.store(true, Ordering::SeqCst);
    assert_eq!(ready(&url).await.0, 200);
}

#[tokio::test]
async fn a_check_without_an_answer_has_failed() {
    let url = start(Readiness::new().check("database", pending), Shutdown::new()).await;
    let (status, checks) = ready(&url).await;
    assert_eq!((status, &checks["database"]), (503, &json!(false)));
}

#[tokio::test]
async fn a_process_that_stops_is_not_ready_and_says_so_while_it_drains() {
    let shutdown = Shutdown::new();
    let url = start(Readiness::new(), shutdown.clone()).await;
    assert_eq!(ready(&url).await, (200, json!({ "not stopping": true })));
    shutdown.begin();
    assert_eq!(ready(&url).await, (503, json!({ "not stopping": false })));
    assert_eq!(get(&url, "/healthz").await.0, 200, "it lives nevertheless");
}

#[tokio::test]
async fn the_address_is_gone_once_the_process_has_drained() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let drained = Ok(());
    let served = admin::beside(
        async { drained },
        Some(listener),
        Readiness::new(),
        shutdown,
    );
    soon(served).await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn calls_are_counted_by_method_and_code_but_not_by_names_that_callers_make_up() {
    let url = start(Readiness::new(), Shutdown::new()).await;
    assert_eq!(get(&url, "/metrics").await.0, 200);
    let service = service::start().await;
    let channel = service.channel();
    soon(service::ask(&channel, "nothing")).await.unwrap();
    soon(service::ask(&channel, "refuse")).await.unwrap_err();
    let made_up = http::Request::post("http://any/made.up/Name");
    let made_up = made_up.body(tonic::body::Body::empty()).unwrap();
    soon(channel.oneshot(made_up)).await.unwrap();

    let (_, metrics) = get(&url, "/metrics").await;
    let method = "payments.ratelimit.v1.RateLimits/CheckAll";
    for code in ["Ok", "FailedPrecondition"] {
        let counted = format!("grpc_calls_total{{method=\"{method}\",code=\"{code}\"}}");
        assert!(metrics.contains(&counted), "{counted} in {metrics}");
    }
    assert!(metrics.contains("grpc_call_seconds_bucket"), "{metrics}");
    assert!(
        metrics.contains("method=\"unknown\",code=\"Unimplemented\""),
        "{metrics}"
    );
    assert!(!metrics.contains("made.up"), "{metrics}");
}
