//! MTN MoMo over the wire.

use std::sync::atomic::{AtomicUsize, Ordering};

use chassis::{
    failure::FailureReason,
    ids::RailReference,
    money::{Currency, Money},
    provider::Provider,
    testing::fake_server::{
        FakeServer, Reaction, ReceivedRequest, answer, closed_port, empty, html, json, redirect,
    },
};
use futures::future::join;
use rails::{
    OtpOutcome, QueryOutcome, Rail, RequestOutcome,
    testing::{token, with_tokens},
};

use super::{ACCEPTED, API_KEY, Logged, SUBSCRIPTION_KEY, payment, query, rail, rails, refused};

pub const TOKEN: &str = "POST /collection/token/";
pub const REQUEST_TO_PAY: &str = "POST /collection/v1_0/requesttopay";
const BASIC: &str = "Basic NmY5YTFjNTQtMWQ2Yy00YTM4LTlhNTYtMGI4YTZjMWY3YTExOmFwaS1rZXktOWM4Yjdh";

/// Short enough to wait for, long enough for a loopback reply.
pub const SHORT: [(&str, &str); 2] = [("momo-request-timeout", "2s"), ("momo-query-timeout", "2s")];

pub fn momo(network: &FakeServer) -> Rail {
    rail(network, Provider::Mtn, &[])
}

pub async fn request(network: &FakeServer) -> RequestOutcome {
    momo(network)
        .request_payment(&payment(Provider::Mtn))
        .await
        .outcome
}

/// The outcome of a payment request to a network with this reaction.
async fn requested(reaction: Reaction) -> RequestOutcome {
    request(&with_tokens(move |_| reaction.clone()).await).await
}

/// The outcome of a query to a network with this reaction.
async fn found(reaction: Reaction) -> QueryOutcome {
    let network = with_tokens(move |_| reaction.clone()).await;
    momo(&network)
        .query(&query(RailReference::new()))
        .await
        .outcome
}

pub fn bearer(seen: &ReceivedRequest) -> &str {
    seen.header("authorization").unwrap_or_default()
}

#[tokio::test]
async fn a_payment_goes_out_as_mtn_wants_it() {
    let network = with_tokens(|_| empty(202)).await;
    let payment = payment(Provider::Mtn);
    let gateway = [("callback-base-url", "https://api.example.com/")];
    let rail = rail(&network, Provider::Mtn, &gateway);
    assert_eq!(rail.request_payment(&payment).await.outcome, ACCEPTED);

    let [token, sent] = network.seen().try_into().unwrap();
    assert_eq!(token.call, TOKEN);
    assert_eq!(bearer(&token), BASIC);
    assert_eq!(
        token.header("ocp-apim-subscription-key"),
        Some(SUBSCRIPTION_KEY)
    );
    assert_eq!(token.header("content-type"), Some("application/json"));
    assert_eq!(token.body, r#"{"grant_type":"client_credentials"}"#);

    assert_eq!(sent.call, REQUEST_TO_PAY);
    assert_eq!(bearer(&sent), "Bearer token-1");
    assert_eq!(
        sent.header("ocp-apim-subscription-key"),
        Some(SUBSCRIPTION_KEY)
    );
    assert_eq!(sent.header("x-target-environment"), Some("mtnghana"));
    assert_eq!(sent.header("content-type"), Some("application/json"));
    let rail_reference = payment.rail_reference.to_string();
    assert_eq!(sent.header("x-reference-id"), Some(rail_reference.as_str()));
    assert_eq!(
        sent.header("x-callback-url"),
        Some("https://api.example.com/rails/momo/callback-token-of-this-charge")
    );
    let expected = serde_json::json!({
        "amount": "25.50",
        "currency": "GHS",
        "externalId": rail_reference,
        "payer": {"partyIdType": "MSISDN", "partyId": "233241234567"},
        "payerMessage": "Order 17",
        "payeeNote": payment.reference.as_str(),
    });
    assert_eq!(sent.json(), expected);
}

#[tokio::test]
async fn a_query_goes_out_as_mtn_wants_it() {
    let rail_reference = RailReference::new();
    let network = with_tokens(move |_| {
        json(
            200,
            format!(
                r#"{{"amount":"25.50","currency":"GHS","financialTransactionId":"23503452",
                "externalId":"{rail_reference}","payer":{{"partyIdType":"MSISDN","partyId":"233241234567"}},
                "status":"SUCCESSFUL"}}"#
            ),
        )
    })
    .await;
    let found = momo(&network).query(&query(rail_reference)).await.outcome;
    let expected = QueryOutcome::Succeeded {
        rail_reference: rail_reference.to_string(),
        amount: Some(Money::new(2550, Currency::GHS)),
        fee: None,
    };
    assert_eq!(found, expected);

    let [_, sent] = network.seen().try_into().unwrap();
    assert_eq!(
        sent.call,
        format!("GET /collection/v1_0/requesttopay/{rail_reference}")
    );
    assert_eq!(bearer(&sent), "Bearer token-1");
    assert_eq!(
        sent.header("ocp-apim-subscription-key"),
        Some(SUBSCRIPTION_KEY)
    );
    assert_eq!(sent.header("x-target-environment"), Some("mtnghana"));
    assert_eq!(sent.body, "");
}

#[tokio::test]
async fn without_a_callback_address_none_is_told() {
    let network = with_tokens(|_| empty(202)).await;
    assert_eq!(request(&network).await, ACCEPTED);
    assert_eq!(network.seen()[1].header("x-callback-url"), None);
}

#[tokio::test]
async fn an_address_with_a_path_is_kept_whole() {
    let network = FakeServer::start(|seen| match seen.call.as_str() {
        "POST /mtn/collection/token/" => token("t", 3600),
        _ => empty(202),
    })
    .await;
    let at = format!("{}/mtn/", network.address());
    let rails = rails(&[("momo-base-url", &at)]).unwrap();
    let rail = rails.for_provider(Provider::Mtn);
    assert_eq!(
        rail.request_payment(&payment(Provider::Mtn)).await.outcome,
        ACCEPTED
    );
    assert_eq!(network.calls()[1], "POST /mtn/collection/v1_0/requesttopay");
}

#[tokio::test]
async fn no_connection_is_a_refusal() {
    let (_socket, address) = closed_port();
    let rails = rails(&[("momo-base-url", &address)]).unwrap();
    let rail = rails.for_provider(Provider::Mtn);
    let outcome = rail.request_payment(&payment(Provider::Mtn)).await.outcome;
    assert_eq!(outcome, refused(FailureReason::RailUnavailable));
    assert_eq!(
        rail.query(&query(RailReference::new())).await.outcome,
        QueryOutcome::Unknown
    );
}

#[tokio::test]
async fn documented_refusals_are_refusals() {
    for (status, code, reason) in [
        (400, "PAYER_NOT_FOUND", FailureReason::PayerNotFound),
        (400, "PAYER_LIMIT_REACHED", FailureReason::PayerLimitReached),
        (400, "SOMETHING_NEW", FailureReason::RailError),
        (500, "NOT_ALLOWED", FailureReason::RailConfiguration),
        (
            500,
            "NOT_ALLOWED_TARGET_ENVIRONMENT",
            FailureReason::RailConfiguration,
        ),
        (
            500,
            "INVALID_CALLBACK_URL_HOST",
            FailureReason::RailConfiguration,
        ),
        (500, "INVALID_CURRENCY", FailureReason::RailConfiguration),
        (503, "SERVICE_UNAVAILABLE", FailureReason::RailUnavailable),
    ] {
        let body = format!(r#"{{"code":"{code}","message":"no"}}"#);
        assert_eq!(
            requested(json(status, body)).await,
            refused(reason),
            "{status} {code}"
        );
    }
}

#[tokio::test]
async fn json_is_json_however_its_type_is_written() {
    for content_type in [
        "Application/JSON; charset=utf-8",
        "application/problem+json",
    ] {
        let reaction = answer(400, content_type, r#"{"code":"PAYER_NOT_FOUND"}"#);
        let expected = refused(FailureReason::PayerNotFound);
        assert_eq!(requested(reaction).await, expected, "{content_type}");
    }
}

#[tokio::test]
async fn a_reference_that_was_used_before_is_known() {
    let used = r#"{"code":"RESOURCE_ALREADY_EXIST","message":"duplicate"}"#;
    assert_eq!(
        requested(json(409, used)).await,
        RequestOutcome::AlreadyKnown
    );
}

#[tokio::test]
async fn everything_else_is_unknown_and_sent_once() {
    let not_found = r#"{"code":"PAYER_NOT_FOUND","message":"no"}"#;
    for reaction in [
        json(500, r#"{"code":"INTERNAL_PROCESSING_ERROR","message":"?"}"#),
        json(502, not_found),
        answer(400, "text/html", not_found),
        answer(400, "text/plain", not_found),
        answer(400, "application/jsonx", not_found),
        json(
            400,
            format!(
                r#"{{"code":"PAYER_NOT_FOUND","pad":"{}"}}"#,
                "x".repeat(256 * 1024)
            ),
        ),
        json(400, "[".repeat(10_000)),
        html(200),
        html(503),
        empty(204),
        redirect("https://example.com/"),
        Reaction::Cut,
        Reaction::CutInBody { status: 202 },
        Reaction::CutInBody { status: 400 },
    ] {
        let shown = format!("{reaction:.200?}");
        let network = with_tokens(move |_| reaction.clone()).await;
        assert_eq!(request(&network).await, RequestOutcome::Unknown, "{shown}");
        assert_eq!(network.calls(), [TOKEN, REQUEST_TO_PAY], "{shown}");
    }
}

#[tokio::test]
async fn silence_after_a_call_was_sent_is_unknown() {
    let network = with_tokens(|_| Reaction::Silence).await;
    let rail = rail(&network, Provider::Mtn, &SHORT);
    let payment = payment(Provider::Mtn);
    let query = query(RailReference::new());
    let (requested, found) = join(rail.request_payment(&payment), rail.query(&query)).await;
    assert_eq!(requested.outcome, RequestOutcome::Unknown);
    assert_eq!(found.outcome, QueryOutcome::Unknown);
}

#[tokio::test]
async fn a_cut_on_a_kept_connection_is_unknown_and_not_sent_again() {
    let paid = AtomicUsize::new(0);
    let network = with_tokens(move |_| match paid.fetch_add(1, Ordering::SeqCst) {
        0 => empty(202),
        _ => Reaction::Cut,
    })
    .await;
    let rail = momo(&network);
    assert_eq!(
        rail.request_payment(&payment(Provider::Mtn)).await.outcome,
        ACCEPTED
    );
    let second = payment(Provider::Mtn);
    assert_eq!(
        rail.request_payment(&second).await.outcome,
        RequestOutcome::Unknown
    );
    let reference = second.rail_reference.to_string();
    let sent = network.seen().into_iter();
    let sent = sent.filter(|seen| seen.header("x-reference-id") == Some(reference.as_str()));
    assert_eq!(sent.count(), 1);
}

#[tokio::test]
async fn no_redirect_is_followed_with_our_keys() {
    let elsewhere = FakeServer::start(|_| empty(202)).await;
    let to = format!("{}/x", elsewhere.address());
    let network = with_tokens(move |_| redirect(&to)).await;
    assert_eq!(request(&network).await, RequestOutcome::Unknown);
    assert!(elsewhere.calls().is_empty());
}

#[tokio::test]
async fn a_query_believes_json_alone() {
    let failed = r#"{"status":"FAILED","reason":"EXPIRED"}"#;
    let timeout = || QueryOutcome::Failed(FailureReason::PayerTimeout);
    let missing = r#"{"code":"RESOURCE_NOT_FOUND","message":"Requested resource was not found."}"#;
    let padded = |length: usize| {
        let pad = "x".repeat(length);
        json(
            200,
            format!(r#"{{"status":"FAILED","reason":"EXPIRED","pad":"{pad}"}}"#),
        )
    };
    for (reaction, expected) in [
        (json(200, failed), timeout()),
        (
            json(
                200,
                r#"{"status":"FAILED","reason":{"code":"expired","message":"x"}}"#,
            ),
            timeout(),
        ),
        (json(200, r#"{"status":"PENDING"}"#), QueryOutcome::Pending),
        (padded(200 * 1024), timeout()),
        (padded(256 * 1024), QueryOutcome::Unknown),
        (answer(200, "text/html", failed), QueryOutcome::Unknown),
        (
            answer(200, "text/plain; charset=utf-8", failed),
            QueryOutcome::Unknown,
        ),
        (html(200), QueryOutcome::Unknown),
        (json(404, missing), QueryOutcome::ReferenceUnknown),
        (html(404), QueryOutcome::Unknown),
        (
            json(500, r#"{"code":"INTERNAL_PROCESSING_ERROR"}"#),
            QueryOutcome::Unknown,
        ),
        (
            json(503, r#"{"code":"SERVICE_UNAVAILABLE"}"#),
            QueryOutcome::Unknown,
        ),
        (Reaction::Cut, QueryOutcome::Unknown),
        (Reaction::CutInBody { status: 200 }, QueryOutcome::Unknown),
    ] {
        let shown = format!("{reaction:.200?}");
        assert_eq!(found(reaction).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn this_rail_takes_no_otp() {
    let network = with_tokens(|_| empty(202)).await;
    let otp = "123456".into();
    let outcome = momo(&network)
        .submit_otp(RailReference::new(), &otp)
        .await
        .outcome;
    assert_eq!(outcome, OtpOutcome::NotSent);
    assert!(network.calls().is_empty());
}

#[tokio::test]
async fn no_text_and_no_log_shows_a_secret_or_a_number() {
    let (logged, _guard) = Logged::from_now_on();
    let leak = format!(
        r#"{{"code":"PAYER_NOT_FOUND","message":"no 233241234567 or 024 123 4567 with {SUBSCRIPTION_KEY} and
        {API_KEY} at callback-token-of-this-charge"}}"#
    )
    .replace('\n', " ");
    let network = with_tokens(move |_| json(400, leak.as_str())).await;
    let rail = momo(&network);
    let answer = rail.request_payment(&payment(Provider::Mtn)).await;
    rail.query(&query(RailReference::new())).await;
    let (_socket, address) = closed_port();
    let unreachable = rails(&[("momo-base-url", &address)]).unwrap();
    unreachable
        .for_provider(Provider::Mtn)
        .request_payment(&payment(Provider::Mtn))
        .await;

    let text = answer.rail_text.unwrap();
    assert!(
        text.starts_with("HTTP 400 PAYER_NOT_FOUND no ••• or ••• with ••• and"),
        "{text}"
    );
    let logged = logged.text();
    assert!(logged.contains("rail.request_payment"), "{logged}");
    assert!(logged.contains("no reply from the rail"), "{logged}");
    for hidden in [
        "233241234567",
        "0241234567",
        SUBSCRIPTION_KEY,
        API_KEY,
        "token-1",
        "callback-token-of-this-charge",
        "Order 17",
        BASIC.trim_start_matches("Basic "),
    ] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
        assert!(!logged.contains(hidden), "{hidden} in {logged}");
    }
}
