//! The checkout's pages where a service behind them fails. How they look where all is well is tested
//! with the whole set.

use tonic::{Code, Status};

use crate::{
    gateway::Gateway,
    http::{Answer, Request},
    services::{SESSION_ID, refusal},
};

async fn get(gateway: &Gateway, path: &str) -> Answer {
    let path = format!("/pay/{SESSION_ID}{path}");
    Request::new(gateway.checkout, "GET", &path).send().await
}

#[tokio::test]
async fn without_a_service_the_page_blames_nobody_and_offers_another_look() {
    let gateway = Gateway::start().await;
    for (code, status) in [(Code::Unavailable, 503), (Code::Internal, 500)] {
        gateway.services.get_session.answers(move |_| match code {
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
        // The script backs off and asks again; it needs no page.
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
