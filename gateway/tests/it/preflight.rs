//! What can be known of a charge before it is asked for.

use proto::{
    charges::{CheckWalletResponse, Provider, WalletState},
    ratelimit::{Bucket, CheckResponse},
};
use serde_json::{Value, json};
use tonic::Status;

use crate::gateway::{Gateway, PREFLIGHT};

fn body(number: &str) -> String {
    json!({ "mobile_number": number, "provider": "TELECEL" }).to_string()
}

#[tokio::test]
async fn a_preflight_tells_what_is_known_and_starts_nothing() {
    let gateway = Gateway::start().await;
    let body = r#"{"mobile_number": "024 123 4567", "provider": "MTN", "amount": 25.50}"#;
    let answer = gateway.post(PREFLIGHT, body).send().await;
    let expected = concat!(
        r#"{"mobile_number":"+233241234567","provider":"MTN","likely_network":"MTN","#,
        r#""wallet":"ACTIVE","limits":{"least":0.01,"most":9999999999.99,"currency":"GHS"}}"#
    );
    assert_eq!((answer.status, answer.text()), (200, expected));
    let asked = gateway.services.check_wallet.asked_once();
    assert_eq!(asked.mobile_number, "+233241234567");
    assert_eq!(asked.provider(), Provider::Mtn);
    assert!(gateway.services.create_charge.asked().is_empty());
}

#[tokio::test]
async fn a_likely_network_is_a_hint_and_never_an_error() {
    let gateway = Gateway::start().await;
    for (prefixes, network) in [
        (
            &["024", "025", "053", "054", "055", "059"][..],
            json!("MTN"),
        ),
        (&["020", "050"], json!("TELECEL")),
        (&["026", "027", "056", "057"], json!("AT")),
        (&["023", "028", "051", "058", "060"], Value::Null),
    ] {
        for prefix in prefixes {
            let answer = gateway.post(PREFLIGHT, body(&format!("{prefix}1234567")));
            let answer = answer.send().await;
            assert_eq!(answer.status, 200, "{prefix}");
            assert_eq!(answer.json()["likely_network"], network, "{prefix}");
            assert_eq!(answer.json()["provider"], "TELECEL", "{prefix}");
        }
    }
}

#[tokio::test]
async fn every_fault_of_an_intended_charge_is_named() {
    let gateway = Gateway::start().await;
    let body = r#"{"mobile_number": "0302123456", "amount": 0, "currency": "USD"}"#;
    let answer = gateway.post(PREFLIGHT, body).send().await;
    answer.assert_error(400, "VALIDATION_ERROR");
    let told = answer.json();
    let fields = told["fields"].as_array().unwrap().iter();
    let fields: Vec<_> = fields
        .map(|fault| {
            (
                fault["field"].as_str().unwrap(),
                fault["code"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("mobile_number", "INVALID_PHONE"),
        ("provider", "REQUIRED"),
        ("amount", "NOT_POSITIVE"),
        ("currency", "UNSUPPORTED_CURRENCY"),
    ];
    assert_eq!(fields, expected);
    assert!(gateway.services.check_wallet.asked().is_empty());
}

#[tokio::test]
async fn a_number_is_counted_whoever_asks_and_however_it_is_written() {
    let gateway = Gateway::start().await;
    for number in ["0241234567", "+233 24 123 4567", "0241234568"] {
        gateway.post(PREFLIGHT, body(number)).send().await;
    }
    let counted = gateway.services.check.asked().into_iter();
    let counted: Vec<String> = counted
        .filter(|check| check.bucket() == Bucket::Number)
        .map(|check| check.subject)
        .collect();
    let [one, same, other] = &counted[..] else {
        panic!("counted {counted:?}");
    };
    assert_eq!(one, same);
    assert_ne!(one, other);
    let shown = counted.concat();
    assert!(!shown.contains("241234567"), "no number is told");
}

#[tokio::test]
async fn a_number_that_was_looked_up_too_often_is_left_alone() {
    let gateway = Gateway::start().await;
    gateway.services.check.answers(|check| {
        Ok(CheckResponse {
            allowed: check.bucket() != Bucket::Number,
            limit: 60,
            remaining: 12,
            reset_seconds: 17,
            window_seconds: 60,
        })
    });
    let answer = gateway.post(PREFLIGHT, body("0241234567")).send().await;
    answer.assert_error(429, "RATE_LIMITED");
    assert_eq!(answer.header("retry-after"), Some("17"));
    let merchants = answer.header("ratelimit");
    assert_eq!(merchants, Some("\"v1/write\";r=12;t=17"));
    assert!(gateway.services.check_wallet.asked().is_empty());
}

#[tokio::test]
async fn a_wallet_is_as_the_network_says_and_nothing_is_guessed() {
    let gateway = Gateway::start().await;
    for (wallet, code) in [
        (WalletState::NotActive, "NOT_ACTIVE"),
        (WalletState::Unknown, "UNKNOWN"),
    ] {
        gateway.services.check_wallet.answers(move |_| {
            Ok(CheckWalletResponse {
                wallet: wallet.into(),
            })
        });
        let answer = gateway.post(PREFLIGHT, body("0201234567")).send().await;
        assert_eq!(answer.json()["wallet"], code);
    }
    gateway
        .services
        .check_wallet
        .answers(|_| Err(Status::unavailable("gone")));
    let answer = gateway.post(PREFLIGHT, body("0201234567")).send().await;
    answer.assert_error(503, "UNAVAILABLE");
}
