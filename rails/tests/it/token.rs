//! MTN's token: minted once, kept, replaced once, and nothing is sent without it.

use std::sync::atomic::{AtomicUsize, Ordering};

use chassis::{
    failure::FailureReason,
    ids::RailReference,
    provider::Provider,
    testing::fake_server::{FakeServer, Reaction, answer, empty, html, json, redirect},
};
use futures::future::join_all;
use rails::{
    QueryOutcome, RequestOutcome,
    testing::{token, with_tokens},
};

use super::{
    ACCEPTED,
    momo::{REQUEST_TO_PAY, SHORT, TOKEN, bearer, momo, request},
    payment, query, rail, refused,
};

#[tokio::test]
async fn a_token_is_minted_once_for_many_calls_at_once() {
    let network = with_tokens(|_| empty(202)).await;
    let rail = momo(&network);
    let payments: Vec<_> = (0..30).map(|_| payment(Provider::Mtn)).collect();
    let calls = payments.iter().map(|payment| rail.request_payment(payment));
    for answer in join_all(calls).await {
        assert_eq!(answer.outcome, ACCEPTED);
    }
    let calls = network.calls();
    assert_eq!(calls.iter().filter(|call| *call == TOKEN).count(), 1);
    assert_eq!(
        calls.iter().filter(|call| *call == REQUEST_TO_PAY).count(),
        30
    );
}

#[tokio::test]
async fn a_token_that_is_about_to_end_is_used_once() {
    let network = FakeServer::start(|seen| match seen.call.as_str() {
        TOKEN => token("t", 60),
        _ => empty(202),
    })
    .await;
    let rail = momo(&network);
    for _ in 0..2 {
        assert_eq!(
            rail.request_payment(&payment(Provider::Mtn)).await.outcome,
            ACCEPTED
        );
    }
    assert_eq!(
        network.calls(),
        [TOKEN, REQUEST_TO_PAY, TOKEN, REQUEST_TO_PAY]
    );
}

#[tokio::test]
async fn a_dead_token_is_replaced_and_the_same_payment_sent_again() {
    let network = with_tokens(|seen| match bearer(seen) {
        "Bearer token-1" => json(401, r#"{"message":"Unauthorized"}"#),
        _ => empty(202),
    })
    .await;
    assert_eq!(request(&network).await, ACCEPTED);
    let [_, first, token, second] = network.seen().try_into().unwrap();
    assert_eq!(token.call, TOKEN);
    assert_eq!(
        first.header("x-reference-id"),
        second.header("x-reference-id")
    );
    assert_eq!(first.body, second.body);
}

#[tokio::test]
async fn a_token_that_dies_under_many_calls_is_replaced_once() {
    let network = with_tokens(|seen| match bearer(seen) {
        "Bearer token-2" => empty(202),
        _ => empty(401),
    })
    .await;
    let rail = momo(&network);
    let payments: Vec<_> = (0..20).map(|_| payment(Provider::Mtn)).collect();
    let calls = payments.iter().map(|payment| rail.request_payment(payment));
    for answer in join_all(calls).await {
        assert_eq!(answer.outcome, ACCEPTED);
    }
    assert_eq!(
        network.calls().iter().filter(|call| *call == TOKEN).count(),
        2
    );
}

#[tokio::test]
async fn a_second_401_is_our_configuration() {
    let network = with_tokens(|_| json(401, r#"{"message":"Access denied"}"#)).await;
    assert_eq!(
        request(&network).await,
        refused(FailureReason::RailConfiguration)
    );
    assert_eq!(
        network.calls(),
        [TOKEN, REQUEST_TO_PAY, TOKEN, REQUEST_TO_PAY]
    );
}

#[tokio::test]
async fn a_query_mints_again_once_and_then_knows_nothing() {
    let network = with_tokens(|_| empty(401)).await;
    let found = momo(&network)
        .query(&query(RailReference::new()))
        .await
        .outcome;
    assert_eq!(found, QueryOutcome::Unknown);
    assert_eq!(network.calls().len(), 4);
}

#[tokio::test]
async fn a_firewalls_401_is_no_dead_token() {
    let network = with_tokens(|_| html(401)).await;
    assert_eq!(request(&network).await, RequestOutcome::Unknown);
    assert_eq!(network.calls(), [TOKEN, REQUEST_TO_PAY]);
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_nothing_is_debited() {
    for (reaction, reason) in [
        (html(200), FailureReason::RailUnavailable),
        (empty(411), FailureReason::RailUnavailable),
        (json(500, r#"{"code":"x"}"#), FailureReason::RailUnavailable),
        (
            answer(
                200,
                "text/plain",
                r#"{"access_token":"t","expires_in":3600}"#,
            ),
            FailureReason::RailUnavailable,
        ),
        (
            redirect("https://example.com/"),
            FailureReason::RailUnavailable,
        ),
        (Reaction::Cut, FailureReason::RailUnavailable),
        (
            Reaction::CutInBody { status: 200 },
            FailureReason::RailUnavailable,
        ),
        (
            json(401, r#"{"statusCode":401}"#),
            FailureReason::RailConfiguration,
        ),
    ] {
        let shown = format!("{reaction:?}");
        let network = FakeServer::start(move |_| reaction.clone()).await;
        assert_eq!(request(&network).await, refused(reason), "{shown}");
        assert_eq!(network.calls(), [TOKEN], "{shown}");
    }
}

#[tokio::test]
async fn a_token_that_does_not_come_leaves_the_payment_unsent() {
    let network = FakeServer::start(|_| Reaction::Silence).await;
    let rail = rail(&network, Provider::Mtn, &SHORT);
    let outcome = rail.request_payment(&payment(Provider::Mtn)).await.outcome;
    assert_eq!(outcome, refused(FailureReason::RailUnavailable));
    assert_eq!(network.calls(), [TOKEN]);
}

#[tokio::test]
async fn a_failed_token_is_tried_again_by_the_next_call() {
    let asked = AtomicUsize::new(0);
    let network = FakeServer::start(move |seen| match seen.call.as_str() {
        TOKEN if asked.fetch_add(1, Ordering::SeqCst) == 0 => html(200),
        TOKEN => token("t", 3600),
        _ => empty(202),
    })
    .await;
    let rail = momo(&network);
    let first = rail.request_payment(&payment(Provider::Mtn)).await.outcome;
    assert_eq!(first, refused(FailureReason::RailUnavailable));
    let second = rail.request_payment(&payment(Provider::Mtn)).await.outcome;
    assert_eq!(second, ACCEPTED);
}

#[tokio::test]
async fn clones_share_the_token() {
    let network = with_tokens(|_| empty(202)).await;
    let rail = momo(&network);
    let clone = rail.clone();
    rail.request_payment(&payment(Provider::Mtn)).await;
    clone.request_payment(&payment(Provider::Mtn)).await;
    assert_eq!(network.calls(), [TOKEN, REQUEST_TO_PAY, REQUEST_TO_PAY]);
}
