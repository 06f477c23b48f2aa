//! Paystack over the wire.

use std::sync::atomic::{AtomicUsize, Ordering};

use chassis::{
    failure::FailureReason,
    ids::RailReference,
    money::{Currency, Money},
    provider::Provider,
    testing::fake_server::{
        FakeServer, Reaction, answer, closed_port, empty, full_port, html, json, redirect,
    },
};
use futures::future::{join, join_all, join3};
use rails::{OtpOutcome, Query, QueryOutcome, Rail, RequestOutcome};
use secrecy::SecretString;

use super::{ACCEPTED, CALLBACK_TOKEN, Logged, SECRET_KEY, payment, query, rail, rails, refused};

const CHARGE: &str = "POST /charge";
pub const SHORT: [(&str, &str); 2] = [
    ("paystack-request-timeout", "1s"),
    ("paystack-query-timeout", "1s"),
];

fn paystack(network: &FakeServer) -> Rail {
    rail(network, Provider::Telecel, &[])
}

/// A 200 with this `data`.
fn data(data: &str) -> Reaction {
    json(
        200,
        format!(r#"{{"status":true,"message":"Charge attempted","data":{data}}}"#),
    )
}

fn otp() -> SecretString {
    "739184".into()
}

async fn request(network: &FakeServer) -> RequestOutcome {
    paystack(network)
        .request_payment(&payment(Provider::Telecel))
        .await
        .outcome
}

async fn requested(reaction: Reaction) -> RequestOutcome {
    request(&FakeServer::start(move |_| reaction.clone()).await).await
}

async fn submitted(reaction: Reaction) -> OtpOutcome {
    let network = FakeServer::start(move |_| reaction.clone()).await;
    paystack(&network)
        .submit_otp(RailReference::new(), &otp())
        .await
        .outcome
}

#[tokio::test]
async fn a_charge_goes_out_as_paystack_wants_it() {
    for (provider, code) in [
        (Provider::Telecel, "vod"),
        (Provider::At, "atl"),
        (Provider::Mtn, "mtn"),
    ] {
        let network = FakeServer::start(|_| data(r#"{"status":"pay_offline"}"#)).await;
        let rail = rail(&network, provider, &[("rail-mtn", "paystack")]);
        let payment = payment(provider);
        assert_eq!(rail.request_payment(&payment).await.outcome, ACCEPTED);

        let [sent] = network.seen().try_into().unwrap();
        assert_eq!(sent.call, CHARGE);
        let bearer = format!("Bearer {SECRET_KEY}");
        assert_eq!(sent.header("authorization"), Some(bearer.as_str()));
        assert_eq!(sent.header("content-type"), Some("application/json"));
        let rail_reference = payment.rail_reference.to_string();
        let expected = serde_json::json!({
            "email": format!("{rail_reference}@payers.example.com"),
            "amount": 2550,
            "currency": "GHS",
            "reference": rail_reference,
            "mobile_money": {"phone": "0241234567", "provider": code},
            "metadata": {"reference": payment.reference.as_str()},
        });
        assert_eq!(sent.json(), expected);
    }
}

#[tokio::test]
async fn a_payers_own_address_is_used() {
    let network = FakeServer::start(|_| data(r#"{"status":"pay_offline"}"#)).await;
    let mut payment = payment(Provider::At);
    payment.payer_email = Some("ama@example.com".to_owned());
    paystack(&network).request_payment(&payment).await;
    assert_eq!(network.seen()[0].json()["email"], "ama@example.com");
}

#[tokio::test]
async fn a_charge_is_what_its_status_says_not_its_200() {
    let voucher = || Some("Please dial *110# to generate a voucher code".to_owned());
    let wants_otp =
        r#"{"status":"send_otp","display_text":"Please dial *110# to generate a voucher code"}"#;
    for (reaction, expected) in [
        (
            data(wants_otp),
            RequestOutcome::OtpRequired {
                instruction: voucher(),
            },
        ),
        (data(r#"{"status":"pending"}"#), ACCEPTED),
        (
            data(r#"{"status":"success","gateway_response":"Approved"}"#),
            RequestOutcome::Succeeded,
        ),
        (
            data(r#"{"status":"failed","message":"Declined"}"#),
            refused(FailureReason::PayerDeclined),
        ),
        (
            data(r#"{"status":"open_url","url":"https://x"}"#),
            refused(FailureReason::RailError),
        ),
        (
            json(
                400,
                r#"{"status":false,"message":"down","type":"processor_error","code":"x"}"#,
            ),
            refused(FailureReason::RailUnavailable),
        ),
        (
            json(401, r#"{"status":false,"message":"Invalid key"}"#),
            refused(FailureReason::RailConfiguration),
        ),
    ] {
        let shown = format!("{reaction:?}");
        assert_eq!(requested(reaction).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_reference_that_was_used_before_is_known() {
    let used = r#"{"status":false,"message":"Duplicate Transaction Reference"}"#;
    assert_eq!(
        requested(json(400, used)).await,
        RequestOutcome::AlreadyKnown
    );
}

#[tokio::test]
async fn everything_else_is_unknown_and_sent_once() {
    let failed = r#"{"status":true,"message":"x","data":{"status":"failed","message":"declined"}}"#;
    for reaction in [
        answer(200, "text/html; charset=utf-8", failed),
        answer(400, "text/plain", failed),
        json(
            200,
            format!(r#"{{"pad":"{}",{}"#, "x".repeat(256 * 1024), &failed[1..]),
        ),
        json(500, failed),
        json(503, failed),
        html(200),
        html(401),
        html(502),
        empty(200),
        redirect("https://example.com/"),
        Reaction::Cut,
        Reaction::CutInBody { status: 200 },
        Reaction::CutInBody { status: 400 },
    ] {
        let shown = format!("{reaction:.200?}");
        let network = FakeServer::start(move |_| reaction.clone()).await;
        assert_eq!(request(&network).await, RequestOutcome::Unknown, "{shown}");
        assert_eq!(network.calls(), [CHARGE], "{shown}");
    }
}

#[tokio::test]
async fn where_no_connection_is_had_nothing_was_sent() {
    let (_socket, closed) = closed_port();
    let (_listener, full) = full_port().await;
    let plain = FakeServer::start(|_| data(r#"{"status":"pending"}"#)).await;
    let tls_against_plain = plain.address().replace("http://", "https://");
    // Longer than a label may be, so that every resolver refuses it at once.
    let unresolved = format!("http://{}.invalid", "x".repeat(64));
    join_all([closed, full, tls_against_plain, unresolved].map(nothing_was_sent)).await;
    assert!(plain.calls().is_empty());
}

async fn nothing_was_sent(address: String) {
    let rails = rails(&[("paystack-base-url", &address)]).unwrap();
    let rail = rails.for_provider(Provider::Telecel);
    let (payment, otp) = (payment(Provider::Telecel), otp());
    let (requested, submitted) = join(
        rail.request_payment(&payment),
        rail.submit_otp(RailReference::new(), &otp),
    )
    .await;
    let unavailable = refused(FailureReason::RailUnavailable);
    assert_eq!(requested.outcome, unavailable, "{address}");
    assert_eq!(submitted.outcome, OtpOutcome::NotSent, "{address}");
}

#[tokio::test]
async fn silence_after_a_call_was_sent_is_unknown() {
    let network = FakeServer::start(|_| Reaction::Silence).await;
    let rail = rail(&network, Provider::At, &SHORT);
    let (payment, otp, query) = (payment(Provider::At), otp(), query(RailReference::new()));
    let (requested, submitted, found) = join3(
        rail.request_payment(&payment),
        rail.submit_otp(RailReference::new(), &otp),
        rail.query(&query),
    )
    .await;
    assert_eq!(requested.outcome, RequestOutcome::Unknown);
    assert_eq!(submitted.outcome, OtpOutcome::Unknown);
    assert_eq!(found.outcome, QueryOutcome::Unknown);
}

#[tokio::test]
async fn a_cut_on_a_kept_connection_is_unknown_and_not_sent_again() {
    let charged = AtomicUsize::new(0);
    let network = FakeServer::start(move |_| match charged.fetch_add(1, Ordering::SeqCst) {
        0 => data(r#"{"status":"pending"}"#),
        _ => Reaction::Cut,
    })
    .await;
    let rail = paystack(&network);
    assert_eq!(
        rail.request_payment(&payment(Provider::At)).await.outcome,
        ACCEPTED
    );
    let outcome = rail.request_payment(&payment(Provider::At)).await.outcome;
    assert_eq!(outcome, RequestOutcome::Unknown);
    assert_eq!(network.calls(), [CHARGE, CHARGE]);
}

#[tokio::test]
async fn a_code_goes_out_as_paystack_wants_it() {
    let network = FakeServer::start(|_| data(r#"{"status":"pending"}"#)).await;
    let rail_reference = RailReference::new();
    let outcome = paystack(&network)
        .submit_otp(rail_reference, &otp())
        .await
        .outcome;
    assert_eq!(outcome, OtpOutcome::Accepted { instruction: None });
    let [sent] = network.seen().try_into().unwrap();
    assert_eq!(sent.call, "POST /charge/submit_otp");
    let expected = serde_json::json!({"otp": "739184", "reference": rail_reference.to_string()});
    assert_eq!(sent.json(), expected);
}

#[tokio::test]
async fn a_submitted_code_is_what_the_answer_says() {
    let wrong = r#"{"status":"send_otp","display_text":"739184 is wrong"}"#;
    for (reaction, expected) in [
        (data(r#"{"status":"success"}"#), OtpOutcome::Succeeded),
        (
            data(wrong),
            OtpOutcome::WrongCode {
                instruction: Some("••• is wrong".to_owned()),
            },
        ),
        (
            data(r#"{"status":"failed","message":"OTP expired"}"#),
            OtpOutcome::Expired,
        ),
        (
            data(r#"{"status":"failed","message":"Insufficient funds"}"#),
            OtpOutcome::Failed(FailureReason::InsufficientFunds),
        ),
        (
            json(
                400,
                r#"{"status":false,"message":"Transaction reference is invalid"}"#,
            ),
            OtpOutcome::Unknown,
        ),
        (
            json(401, r#"{"status":false,"message":"Invalid key"}"#),
            OtpOutcome::NotSent,
        ),
        (html(200), OtpOutcome::Unknown),
        (html(401), OtpOutcome::Unknown),
        (json(500, "{}"), OtpOutcome::Unknown),
        (Reaction::Cut, OtpOutcome::Unknown),
        (Reaction::CutInBody { status: 200 }, OtpOutcome::Unknown),
    ] {
        let shown = format!("{reaction:?}");
        assert_eq!(submitted(reaction).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_query_asks_verify() {
    let rail_reference = RailReference::new();
    let network = FakeServer::start(move |_| {
        data(&format!(
            r#"{{"status":"success","reference":"{rail_reference}","amount":2550,"currency":"GHS","fees":49}}"#
        ))
    })
    .await;
    let found = paystack(&network)
        .query(&query(rail_reference))
        .await
        .outcome;
    let expected = QueryOutcome::Succeeded {
        rail_reference: rail_reference.to_string(),
        amount: Some(Money::new(2550, Currency::GHS)),
        fee: Some(Money::new(49, Currency::GHS)),
    };
    assert_eq!(found, expected);
    assert_eq!(
        network.calls(),
        [format!("GET /transaction/verify/{rail_reference}")]
    );
}

/// The outcome of a query after an OTP, with these answers from verify and from the check of the
/// charge, and how many calls it took.
async fn found_after_otp(verify: Reaction, charge: Reaction) -> (QueryOutcome, usize) {
    let network = FakeServer::start(move |seen| {
        let is_verify = seen.call.starts_with("GET /transaction/verify/");
        if is_verify {
            verify.clone()
        } else {
            charge.clone()
        }
    })
    .await;
    let query = Query {
        may_want_code: true,
        ..query(RailReference::new())
    };
    let found = paystack(&network).query(&query).await.outcome;
    let calls = network.calls();
    if let [_, second] = calls.as_slice() {
        assert_eq!(*second, format!("GET /charge/{}", query.rail_reference));
    }
    (found, calls.len())
}

#[tokio::test]
async fn after_an_otp_the_pending_charge_is_checked_too() {
    let pending = || data(r#"{"status":"pending"}"#);
    let wants_otp = || data(r#"{"status":"send_otp"}"#);
    for (verify, charge, expected) in [
        (pending(), wants_otp(), (QueryOutcome::OtpRequired, 2)),
        (
            data(r#"{"status":"ongoing"}"#),
            wants_otp(),
            (QueryOutcome::OtpRequired, 2),
        ),
        (
            data(r#"{"status":"abandoned"}"#),
            wants_otp(),
            (QueryOutcome::Abandoned { code_wanted: true }, 2),
        ),
        (
            data(r#"{"status":"abandoned"}"#),
            pending(),
            (QueryOutcome::Abandoned { code_wanted: false }, 2),
        ),
        (
            data(r#"{"status":"abandoned"}"#),
            html(200),
            (QueryOutcome::Abandoned { code_wanted: false }, 2),
        ),
        (
            pending(),
            data(r#"{"status":"failed","message":"declined"}"#),
            (QueryOutcome::Failed(FailureReason::PayerDeclined), 2),
        ),
        (pending(), pending(), (QueryOutcome::Pending, 2)),
        (pending(), html(200), (QueryOutcome::Pending, 2)),
        (pending(), Reaction::Cut, (QueryOutcome::Pending, 2)),
        (
            pending(),
            json(400, r#"{"code":"transaction_not_found","message":"x"}"#),
            (QueryOutcome::Pending, 2),
        ),
        (wants_otp(), pending(), (QueryOutcome::OtpRequired, 1)),
        (
            data(r#"{"status":"reversed"}"#),
            pending(),
            (QueryOutcome::Reversed, 1),
        ),
        (html(200), wants_otp(), (QueryOutcome::Unknown, 1)),
    ] {
        let shown = format!("{verify:?} {charge:?}");
        assert_eq!(found_after_otp(verify, charge).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_reference_that_paystack_does_not_know_is_unknown_to_it() {
    let body = r#"{"status":false,"message":"Transaction reference not found.","meta":{"nextStep":"x"},
        "type":"validation_error","code":"transaction_not_found"}"#;
    let network = FakeServer::start(move |_| json(400, body)).await;
    let found = paystack(&network)
        .query(&query(RailReference::new()))
        .await
        .outcome;
    assert_eq!(found, QueryOutcome::ReferenceUnknown);
}

#[tokio::test]
async fn no_text_and_no_log_shows_a_secret_a_code_or_a_number() {
    let (logged, _guard) = Logged::from_now_on();
    let network = FakeServer::start(|_| {
        data(&format!(
            r#"{{"status":"failed","message":"0241234567 declined 739184 with {SECRET_KEY} at {CALLBACK_TOKEN}"}}"#
        ))
    })
    .await;
    let rail = paystack(&network);
    let requested = rail.request_payment(&payment(Provider::At)).await;
    let submitted = rail.submit_otp(RailReference::new(), &otp()).await;
    rail.query(&query(RailReference::new())).await;
    let texts = format!("{:?} {:?}", requested.rail_text, submitted.rail_text);
    assert!(
        submitted
            .rail_text
            .unwrap()
            .contains("••• declined ••• with ••• at •••"),
        "{texts}"
    );
    let logged = logged.text();
    assert!(logged.contains("rail.submit_otp"), "{logged}");
    for hidden in ["0241234567", SECRET_KEY, CALLBACK_TOKEN] {
        assert!(!texts.contains(hidden), "{hidden} in {texts}");
        assert!(!logged.contains(hidden), "{hidden} in {logged}");
    }
    assert!(!logged.contains("739184"), "{logged}");
}
