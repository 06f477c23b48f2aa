//! What can be known of a charge before it is asked for.

use chassis::api_key::ApiKey;
use proto::{
    charges::{CheckWalletResponse, Provider, WalletState},
    merchants::Merchant,
    ratelimit::{Bucket, CheckResponse},
};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    gateway::{Gateway, PREFLIGHT},
    services::merchant,
};

const OTHER_MERCHANT: &str = "0190b2c0-f5a9-7c8e-9b1d-000000000001";

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

/// What was counted in a bucket.
fn counted(gateway: &Gateway, bucket: Bucket) -> Vec<String> {
    let asked = gateway.services.check.asked().into_iter();
    asked
        .filter(|check| check.bucket() == bucket)
        .map(|check| check.subject)
        .collect()
}

#[tokio::test]
async fn a_number_is_counted_for_each_merchant_and_for_all_however_it_is_written() {
    let gateway = Gateway::start().await;
    for number in ["0241234567", "+233 24 123 4567", "0241234568"] {
        gateway.post(PREFLIGHT, body(number)).send().await;
    }
    let other_merchant = Merchant {
        merchant_id: OTHER_MERCHANT.to_owned(),
        ..merchant()
    };
    let authenticate = &gateway.services.authenticate;
    authenticate.answers(move |_| Ok(other_merchant.clone()));
    let by_other = gateway.request("POST", PREFLIGHT).json(body("0241234567"));
    let by_other = by_other.key(ApiKey::generate().expose());
    assert_eq!(by_other.send().await.status, 200);
    let overall = counted(&gateway, Bucket::NumberOverall);
    let [one, same, other, by_other] = &overall[..] else {
        panic!("counted {overall:?}");
    };
    assert_eq!((one, one), (same, by_other));
    assert_ne!(one, other);
    let of = |merchant: &str, number: &str| format!("{merchant}:{number}");
    let id = merchant().merchant_id;
    let expected = [
        of(&id, one),
        of(&id, one),
        of(&id, other),
        of(OTHER_MERCHANT, one),
    ];
    assert_eq!(counted(&gateway, Bucket::Number), expected);
    assert!(!overall.concat().contains("241234567"), "no number is told");
}

#[tokio::test]
async fn a_refused_look_up_is_told_of_by_the_limit_that_refused_it() {
    let gateway = Gateway::start().await;
    for (refusing, name, refused_before) in [
        (Bucket::Write, "v1/write", 0),
        (Bucket::Number, "number", 0),
        (Bucket::NumberOverall, "number:overall", 1),
    ] {
        gateway.services.check.answers(move |check| {
            let refuses = check.bucket() == refusing;
            Ok(CheckResponse {
                allowed: !refuses,
                limit: if refuses { 7 } else { 60 },
                remaining: if refuses { 0 } else { 12 },
                reset_seconds: if refuses { 17 } else { 18 },
                window_seconds: 60,
            })
        });
        let answer = gateway.post(PREFLIGHT, body("0241234567")).send().await;
        answer.assert_error(429, "RATE_LIMITED");
        assert_eq!(answer.header("retry-after"), Some("17"));
        let (policy, left) = (
            format!("\"{name}\";q=7;w=60"),
            format!("\"{name}\";r=0;t=17"),
        );
        assert_eq!(answer.header("ratelimit-policy"), Some(&*policy));
        assert_eq!(answer.header("ratelimit"), Some(&*left));
        let overall = counted(&gateway, Bucket::NumberOverall);
        assert_eq!(
            overall.len(),
            refused_before,
            "what is refused before does not count"
        );
    }
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
