//! What both rails pay out, over the wire: whatever is no documented answer leaves it open what
//! became of a transfer, and nothing is ever sent twice.

use chassis::{
    failure::FailureReason,
    ids::RailReference,
    money::{Currency, Money},
    phone::Phone,
    provider::Provider,
    testing::fake_server::{
        FakeServer, Reaction, ReceivedRequest, answer, closed_port, empty, html, json, redirect,
    },
};
use futures::future::join;
use rails::{
    Destination, Rail, SendOutcome, TransferOutcome, TransferRequest, testing::with_tokens,
};

use super::{momo::SHORT as SHORT_MOMO, paystack::SHORT as SHORT_PAYSTACK, rail, rails};

const MTN_TOKEN: &str = "POST /disbursement/token/";
const MTN_TRANSFER: &str = "POST /disbursement/v1_0/transfer";
const RECIPIENT: &str = "POST /transferrecipient";
const PAYSTACK_TRANSFER: &str = "POST /transfer";

/// What MTN's disbursement product is called with.
const DISBURSEMENT: [(&str, &str); 3] = [
    ("momo-disbursement-subscription-key", "disbursement-key"),
    (
        "momo-disbursement-api-user",
        "0b6a6b3c-7a0e-4f43-8f4d-5d3f6f0f1b77",
    ),
    ("momo-disbursement-api-key", "disbursement-api-key"),
];

fn transfer(provider: Provider) -> TransferRequest {
    TransferRequest {
        rail_reference: RailReference::new(),
        shown_id: "PO-ABCDEFGHJK".to_owned(),
        amount: Money::new(2550, Currency::GHS),
        destination: Destination::Wallet {
            provider,
            phone: Phone::parse_ghana_mobile("0241234567").unwrap(),
            holder_name: Some("Ama Mensah".to_owned()),
        },
        may_be_known: false,
        callback_token: "callback-token-of-this-transfer".to_owned(),
    }
}

fn momo(network: &FakeServer, flags: &[(&str, &str)]) -> Rail {
    rail(network, Provider::Mtn, &[&DISBURSEMENT[..], flags].concat())
}

fn paystack(network: &FakeServer, flags: &[(&str, &str)]) -> Rail {
    rail(network, Provider::At, flags)
}

async fn sent(rail: &Rail, provider: Provider) -> SendOutcome {
    rail.send(&transfer(provider)).await.outcome
}

async fn found(rail: &Rail) -> TransferOutcome {
    let amount = Money::new(2550, Currency::GHS);
    let found = rail.query_transfer(RailReference::new(), amount).await;
    found.outcome
}

/// A Paystack that knows every payee, and does the rest by `script`.
async fn with_recipients(
    script: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static,
) -> FakeServer {
    FakeServer::start(move |seen| match seen.call.as_str() {
        RECIPIENT => json(
            201,
            r#"{"status":true,"message":"x","data":{"recipient_code":"RCP_1"}}"#,
        ),
        _ => script(seen),
    })
    .await
}

/// What neither rail documents, with a refusal of theirs in it.
fn undocumented(refusal: &str) -> Vec<Reaction> {
    let long = "x".repeat(256 * 1024);
    vec![
        json(500, r#"{"code":"INTERNAL_PROCESSING_ERROR","message":"?"}"#),
        json(502, refusal),
        answer(400, "text/html", refusal),
        answer(400, "text/plain", refusal),
        json(400, format!(r#"{{"pad":"{long}",{}"#, &refusal[1..])),
        json(400, "[".repeat(10_000)),
        html(200),
        html(401),
        html(503),
        empty(204),
        redirect("https://example.com/"),
        Reaction::Cut,
        Reaction::CutInBody { status: 200 },
        Reaction::CutInBody { status: 202 },
        Reaction::CutInBody { status: 400 },
    ]
}

#[tokio::test]
async fn at_mtn_everything_else_is_unknown_and_sent_once() {
    for reaction in undocumented(r#"{"code":"PAYEE_NOT_FOUND","message":"no"}"#) {
        let shown = format!("{reaction:.200?}");
        let network = with_tokens(move |_| reaction.clone()).await;
        let outcome = sent(&momo(&network, &[]), Provider::Mtn).await;
        assert_eq!(outcome, SendOutcome::Unknown, "{shown}");
        assert_eq!(network.calls(), [MTN_TOKEN, MTN_TRANSFER], "{shown}");
    }
}

#[tokio::test]
async fn at_paystack_everything_else_is_unknown_and_sent_once() {
    let refusal = r#"{"status":false,"message":"Account not found"}"#;
    for reaction in undocumented(refusal) {
        let shown = format!("{reaction:.200?}");
        let network = with_recipients(move |_| reaction.clone()).await;
        let outcome = sent(&paystack(&network, &[]), Provider::At).await;
        assert_eq!(outcome, SendOutcome::Unknown, "{shown}");
        assert_eq!(network.calls(), [RECIPIENT, PAYSTACK_TRANSFER], "{shown}");
    }
}

/// Otherwise the two above prove nothing.
#[tokio::test]
async fn what_they_document_is_a_refusal() {
    let refused = SendOutcome::Refused(FailureReason::PayeeNotFound);
    let not_found = r#"{"code":"PAYEE_NOT_FOUND","message":"no"}"#;
    let network = with_tokens(move |_| json(400, not_found)).await;
    assert_eq!(sent(&momo(&network, &[]), Provider::Mtn).await, refused);
    let not_found = r#"{"status":false,"message":"Account not found"}"#;
    let network = with_recipients(move |_| json(400, not_found)).await;
    assert_eq!(sent(&paystack(&network, &[]), Provider::At).await, refused);
}

#[tokio::test]
async fn silence_after_a_transfer_was_sent_is_unknown() {
    let mtn = with_tokens(|_| Reaction::Silence).await;
    let other = with_recipients(|_| Reaction::Silence).await;
    let (momo, paystack) = (momo(&mtn, &SHORT_MOMO), paystack(&other, &SHORT_PAYSTACK));
    let sent = join(sent(&momo, Provider::Mtn), sent(&paystack, Provider::At));
    let found = join(found(&momo), found(&paystack));
    let (sent, found) = join(sent, found).await;
    assert_eq!(sent, (SendOutcome::Unknown, SendOutcome::Unknown));
    assert_eq!(found, (TransferOutcome::Unknown, TransferOutcome::Unknown));
    let of = |network: &FakeServer, call: &str| {
        let calls = network.calls();
        calls.iter().filter(|seen| *seen == call).count()
    };
    assert_eq!(of(&mtn, MTN_TRANSFER), 1);
    assert_eq!(of(&other, PAYSTACK_TRANSFER), 1);
}

/// Paystack pays nothing to whom it does not know, so the transfer may be sent later.
#[tokio::test]
async fn where_the_payee_is_not_made_known_nothing_was_sent() {
    let unavailable = SendOutcome::NotSent(FailureReason::RailUnavailable);
    for reaction in [Reaction::Silence, Reaction::Cut, html(200), html(502)] {
        let shown = format!("{reaction:?}");
        let network = FakeServer::start(move |_| reaction.clone()).await;
        let outcome = sent(&paystack(&network, &SHORT_PAYSTACK), Provider::At).await;
        assert_eq!(outcome, unavailable, "{shown}");
        assert_eq!(network.calls(), [RECIPIENT], "{shown}");
    }
}

#[tokio::test]
async fn without_a_connection_nothing_was_sent() {
    let (_socket, address) = closed_port();
    let unavailable = SendOutcome::NotSent(FailureReason::RailUnavailable);
    let at = [
        ("momo-base-url", address.as_str()),
        ("paystack-base-url", address.as_str()),
    ];
    let rails = rails(&[&DISBURSEMENT[..], &at].concat()).unwrap();
    for provider in [Provider::Mtn, Provider::At] {
        let rail = rails.for_provider(provider);
        assert_eq!(sent(rail, provider).await, unavailable);
        assert_eq!(found(rail).await, TransferOutcome::Unknown);
    }
}

#[tokio::test]
async fn no_redirect_is_followed_with_our_keys() {
    let elsewhere = FakeServer::start(|_| empty(202)).await;
    let to = format!("{}/x", elsewhere.address());
    let there = to.clone();
    let mtn = with_tokens(move |_| redirect(&there)).await;
    let other = with_recipients(move |_| redirect(&to)).await;
    let (momo, paystack) = (momo(&mtn, &[]), paystack(&other, &[]));
    assert_eq!(sent(&momo, Provider::Mtn).await, SendOutcome::Unknown);
    assert_eq!(sent(&paystack, Provider::At).await, SendOutcome::Unknown);
    assert_eq!(found(&momo).await, TransferOutcome::Unknown);
    assert_eq!(found(&paystack).await, TransferOutcome::Unknown);
    assert!(elsewhere.calls().is_empty());
}
