//! The checkout's pages when a service behind them fails. How they look when all is well is tested
//! with all services together.

use std::time::Duration;

use futures::{StreamExt as _, stream::FuturesUnordered};
use proto::sessions::CreateSessionRequest;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::{
    gateway::Gateway,
    http::{Answer, Request},
    services::{SESSION_ID, money, refusal, session},
};

async fn get(gateway: &Gateway, path: &str) -> Answer {
    open(gateway, &format!("{SESSION_ID}{path}")).await
}

async fn open(gateway: &Gateway, page: &str) -> Answer {
    let path = format!("/pay/{page}");
    Request::new(gateway.checkout, "GET", &path).send().await
}

/// Opens the page of a payment that does not exist.
async fn guess(gateway: &Gateway) -> Answer {
    open(gateway, &Uuid::new_v4().to_string()).await
}

/// A gateway where one address may open three payments that do not exist, in a window that does not
/// end during a test. Only [`SESSION_ID`] exists.
async fn guarded() -> Gateway {
    let limits = [
        ["--checkout-unknown-per-address", "3"],
        ["--checkout-limit-window", "8760h"],
    ];
    let gateway = Gateway::start_with(&limits.concat()).await;
    gateway.services.read_session.answers(|request| {
        let is_there = request.session_id == SESSION_ID;
        let found = is_there.then(there);
        found.ok_or_else(|| refusal(Code::NotFound, "SESSION_NOT_FOUND"))
    });
    gateway
}

fn there() -> proto::sessions::Session {
    session(CreateSessionRequest {
        amount: money(2_550, "GHS"),
        ..Default::default()
    })
}

#[tokio::test]
async fn a_payer_is_served_whatever_others_at_the_same_address_guessed() {
    let gateway = guarded().await;
    for _ in 0..3 {
        assert_eq!(guess(&gateway).await.status, 404);
    }
    let told = guess(&gateway).await;
    assert_eq!(told.status, 429);
    assert!(told.header("retry-after").is_some());
    assert!(told.text().contains("Too many tries"), "{}", told.text());
    let state = get(&gateway, "/state").await;
    assert_eq!(state.status, 200, "nobody has asked about it before");
    assert_eq!(get(&gateway, "/state").await.status, 200);
}

#[tokio::test]
async fn an_address_that_can_name_no_payment_does_not_count() {
    let gateway = guarded().await;
    for _ in 0..5 {
        assert_eq!(open(&gateway, "none").await.status, 404);
    }
    for _ in 0..3 {
        assert_eq!(guess(&gateway).await.status, 404);
    }
    assert_eq!(guess(&gateway).await.status, 429);
    assert_eq!(open(&gateway, "none").await.status, 404, "it is free");
}

#[tokio::test]
async fn a_flood_of_guessed_payments_waits_in_a_short_line_and_open_pages_do_not() {
    let gateway = guarded().await;
    assert_eq!(get(&gateway, "/state").await.status, 200);
    for _ in 0..3 {
        guess(&gateway).await;
    }
    gateway
        .services
        .read_session
        .answers_late(|request| async move {
            if request.session_id != SESSION_ID {
                std::future::pending::<()>().await;
            }
            Ok(there())
        });
    let mut flood: FuturesUnordered<_> = (0..64).map(|_| guess(&gateway)).collect();
    let told = async {
        for _ in 0..32 {
            assert_eq!(flood.next().await.map(|page| page.status), Some(429));
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(10), told).await;
    told.expect("at once");
    assert_eq!(get(&gateway, "/state").await.status, 200);
}

#[tokio::test]
async fn without_a_service_the_page_blames_nobody_and_offers_another_look() {
    let gateway = Gateway::start().await;
    for (code, status) in [(Code::Unavailable, 503), (Code::Internal, 500)] {
        gateway.services.read_session.answers(move |_| match code {
            Code::Unavailable => Err(refusal(code, "NOTHING_STARTED")),
            _ => Err(Status::new(code, "sessions: pool timed out")),
        });
        let page = get(&gateway, "?lang=tw").await;
        assert_eq!(page.status, status, "{}", page.text());
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(page.header("cache-control"), Some("no-store"));
        let again = format!("href=\"/pay/{SESSION_ID}?lang=tw\">Hwɛ seesei");
        assert!(page.text().contains(&again), "{}", page.text());
        assert!(!page.text().contains("pool"), "{}", page.text());
        // The script backs off and polls again; it needs no page.
        let state = get(&gateway, "/state").await;
        assert_eq!((state.status, state.body.len()), (status, 0));
    }
}

#[tokio::test]
async fn where_nothing_is_there_no_other_look_is_offered() {
    let gateway = Gateway::start().await;
    let page = get(&gateway, "").await;
    assert_eq!(page.status, 404);
    assert!(!page.text().contains("href=\"/pay/"), "{}", page.text());
    assert_eq!(get(&gateway, "/state").await.status, 404);
}

#[tokio::test]
async fn a_payer_is_served_beside_a_sessions_svc_of_the_version_before() {
    let gateway = Gateway::start().await;
    let before = |_| Err(Status::unimplemented("the version before"));
    gateway.services.read_session.answers(before);
    gateway.services.get_session.answers(|_| Ok(there()));
    assert_eq!(get(&gateway, "/state").await.status, 200);
    let asked = gateway.services.get_session.asked_once();
    assert_eq!(asked.session_id, SESSION_ID);
    assert_eq!(asked.merchant_id, "");
}
