//! Who is admitted: keys and verification (spec §5, §7).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{api_key::ApiKey, clock::Clock, testing::until};
use futures::{StreamExt as _, stream::FuturesUnordered};
use proto::{
    charges::{ChargeAnswer, ChargeStatus},
    merchants::{KycStatus, Merchant},
};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};
use tonic::{Code, Status};

use crate::{
    gateway::{ALIAS, CHARGE, Gateway, INITIATE, NOBODY, PRODUCTION, SUBMIT_OTP},
    http::{Answer, exchange},
    services::{REFERENCE, SESSION_ID, charge, merchant, money, refusal},
};

fn unknown_key() -> Status {
    refusal(Code::Unauthenticated, "INVALID_API_KEY")
}

#[tokio::test]
async fn a_missing_or_malformed_key_is_refused_without_asking_anyone() {
    let gateway = Gateway::start().await;
    let key = gateway.key.expose();
    let headers = [
        String::new(),
        format!("authorization: {key}\r\n"),
        format!("authorization: Basic {key}\r\n"),
        format!("authorization: Bearer {key}x\r\n"),
        format!("authorization: Bearer {}\r\n", &key[..56]),
        format!("authorization: Bearer {}\r\n", key.replacen("sk", "pk", 1)),
        "authorization: Bearer\r\n".to_owned(),
        "authorization: Bearer \u{e9}\r\n".to_owned(),
        format!("authorization: Bearer {key}\r\nauthorization: Bearer {key}\r\n"),
        format!("x-api-key: {key}\r\n"),
    ];
    for header in headers {
        let request = format!(
            "GET /api/v1/payments/{SESSION_ID}/status?api_key={key} HTTP/1.1\r\nhost: gateway\r\n\
             connection: close\r\n{header}\r\n"
        );
        let answer = exchange(gateway.address, request.as_bytes()).await;
        answer.assert_error(401, "INVALID_API_KEY");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.names(), ["code", "error", "request_id"]);
    }
    assert!(gateway.services.authenticate.asked().is_empty());
}

#[tokio::test]
async fn a_bad_key_comes_before_everything_that_is_wrong_with_the_request() {
    let gateway = Gateway::start().await;
    let answer = gateway
        .request("POST", INITIATE)
        .header("content-type", "text/plain")
        .body(vec![b'x'; 100_000])
        .send()
        .await;
    answer.assert_error(401, "INVALID_API_KEY");
}

#[tokio::test]
async fn an_unknown_key_looks_like_a_malformed_one() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .authenticate
        .answers(|_| Err(unknown_key()));
    let unknown = gateway.initiate("{}").await;
    let malformed = gateway
        .request("POST", INITIATE)
        .key("service_sk_x")
        .json("{}")
        .send()
        .await;
    let without_id = |mut body: Value| {
        body["request_id"] = Value::Null;
        body
    };
    unknown.assert_error(401, "INVALID_API_KEY");
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
    assert_eq!(without_id(unknown.json()), without_id(malformed.json()));
}

#[tokio::test]
async fn production_refuses_a_test_key_without_asking_about_it() {
    let key = ApiKey::generate_test();
    let initiate = async |gateway: &Gateway| {
        let request = gateway.request("POST", INITIATE).key(key.expose());
        request.json(r#"{"amount":1}"#).send().await
    };
    let real = Gateway::start_with(&PRODUCTION).await;
    let refused = initiate(&real).await;
    refused.assert_error(401, "INVALID_API_KEY");
    assert!(real.services.authenticate.asked().is_empty());
    let trial = Gateway::start().await;
    assert_eq!(initiate(&trial).await.status, 201);
}

#[tokio::test]
async fn live_keys_are_taken_in_either_mode() {
    for flags in [&[] as &[&str], &PRODUCTION] {
        let gateway = Gateway::start_with(flags).await;
        assert!(!gateway.key.is_test());
        assert_eq!(gateway.initiate(r#"{"amount":1}"#).await.status, 201);
    }
}

#[tokio::test]
async fn merchants_svc_is_told_the_keys_hash_and_never_the_key() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.initiate(r#"{"amount":1}"#).await.status, 201);
    let asked = gateway.services.authenticate.asked_once();
    assert_eq!(asked.key_sha256, gateway.key.sha256());
}

#[tokio::test]
async fn one_question_at_a_time_is_asked_about_a_key() {
    // One client may have half of the places.
    let gateway = Gateway::start_with(&["--requests-max", "32"]).await;
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let release = Arc::new(Notify::new());
    let (seen, wait) = (most.clone(), release.clone());
    gateway.services.authenticate.answers_late(move |_| {
        let (running, most, wait) = (running.clone(), most.clone(), wait.clone());
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            wait.notified().await;
            wait.notify_one();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(merchant())
        }
    });
    let requests = (0..17).map(|_| gateway.initiate(r#"{"amount":1}"#));
    let mut requests: FuturesUnordered<_> = requests.collect();
    let refused = requests.next().await.unwrap();
    assert_eq!(refused.status, 503, "all others are under way");
    release.notify_one();
    while let Some(answer) = requests.next().await {
        assert_eq!(answer.status, 201);
    }
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_that_was_asked_for_long_ago_serves_nobody_who_comes_now() {
    let gateway = Gateway::start().await;
    let (release, asked) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (wait, tell) = (release.clone(), asked.clone());
    gateway.services.authenticate.answers_late(move |_| {
        let (wait, tell) = (wait.clone(), tell.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok(merchant())
        }
    });
    let later = async {
        asked.notified().await;
        let asked_at = Instant::now();
        // The key is revoked just after the first call, whose answer takes its time.
        gateway
            .services
            .authenticate
            .answers(|_| Err(unknown_key()));
        let second = Duration::from_secs(1);
        until("a second later", async || asked_at.elapsed() > second).await;
        release.notify_one();
        gateway.initiate(r#"{"amount":1}"#).await
    };
    let (early, late) = tokio::join!(gateway.initiate(r#"{"amount":1}"#), later);
    assert_eq!(early.status, 201, "it came before the revocation");
    late.assert_error(401, "INVALID_API_KEY");
}

#[tokio::test]
async fn a_revoked_key_and_a_changed_merchant_are_noticed() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.initiate(r#"{"amount":1}"#).await.status, 201);
    gateway.services.authenticate.answers(|_| {
        Ok(Merchant {
            email_verified: false,
            ..merchant()
        })
    });
    let status = async || gateway.initiate(r#"{"amount":1}"#).await.status;
    until("a change is noticed", async || status().await == 403).await;
    gateway
        .services
        .authenticate
        .answers(|_| Err(unknown_key()));
    until("a revocation is noticed", async || status().await == 401).await;
}

#[tokio::test]
async fn without_merchants_svc_nobody_comes_in_and_nothing_is_started() {
    let gateway = Gateway::start_with(&["--merchants-url", NOBODY]).await;
    let answer = gateway.charge("{}").await;
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(gateway.services.check.asked().is_empty());
}

#[tokio::test]
async fn one_address_has_a_limited_number_of_bad_keys() {
    let gateway = Gateway::start_with(&["--auth-failures-per-minute", "3"]).await;
    assert_eq!(gateway.initiate(r#"{"amount":1}"#).await.status, 201);
    gateway
        .services
        .authenticate
        .answers(|_| Err(unknown_key()));
    let attempt = async || {
        let key = ApiKey::generate();
        gateway
            .request("POST", INITIATE)
            .key(key.expose())
            .json("{}")
            .send()
            .await
    };
    until("the address is told to wait", async || {
        attempt().await.status == 429
    })
    .await;
    // The minute may end at any moment, and then it takes three more bad keys.
    let mut last = attempt().await;
    for _ in 0..4 {
        if last.status == 429 {
            break;
        }
        last = attempt().await;
    }
    last.assert_error(429, "RATE_LIMITED");
    let wait: u32 = last.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait));
}

/// Makes only the gateway's own key valid. Returns once this address has used up its failures.
async fn used_up(gateway: &Gateway) {
    let good = gateway.key.sha256();
    gateway.services.authenticate.answers(move |request| {
        let is_good = request.key_sha256 == good;
        is_good.then(merchant).ok_or_else(unknown_key)
    });
    until("the address is told to wait", async || {
        invented(gateway).await.status == 429
    })
    .await;
}

async fn invented(gateway: &Gateway) -> Answer {
    let key = ApiKey::generate();
    let request = gateway.request("POST", INITIATE).key(key.expose());
    request.json("{}").send().await
}

#[tokio::test]
async fn a_good_key_passes_whatever_others_at_its_address_did() {
    let gateway = Gateway::start_with(&["--auth-failures-per-minute", "3"]).await;
    used_up(&gateway).await;
    let first = gateway.initiate(r#"{"amount":1}"#).await;
    assert_eq!(first.status, 201, "nobody has asked about it before");
    let flood = futures::future::join_all((0..64).map(|_| invented(&gateway)));
    let amid = async {
        let mut statuses = Vec::new();
        for _ in 0..16 {
            statuses.push(gateway.initiate(r#"{"amount":1}"#).await.status);
        }
        statuses
    };
    let (_, statuses) = tokio::join!(flood, amid);
    assert_eq!(statuses, [201; 16]);
    let malformed = gateway.request("POST", INITIATE).key("service_sk_x");
    let malformed = malformed.json("{}").send().await.status;
    assert!(matches!(malformed, 401 | 429), "{malformed}");
}

#[tokio::test]
async fn a_flood_of_invented_keys_is_looked_up_a_few_at_a_time() {
    let gateway = Gateway::start_with(&["--auth-failures-per-minute", "3"]).await;
    let clock = Clock::system();
    let minute = || clock.host_now().unix_seconds().div_euclid(60);
    loop {
        let begun_in = minute();
        used_up(&gateway).await;
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let seen = most.clone();
        gateway.services.authenticate.answers_late(move |_| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Slow enough for the other requests to arrive meanwhile.
                tokio::time::sleep(Duration::from_millis(20)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Err(unknown_key())
            }
        });
        let answers = futures::future::join_all((0..64).map(|_| invented(&gateway))).await;
        // If another minute has begun, nobody has failed in it yet: try again.
        if minute() == begun_in {
            assert!(answers.iter().all(|answer| answer.status == 429));
            assert!((1..=4).contains(&seen.load(Ordering::SeqCst)), "{seen:?}");
            return;
        }
    }
}

#[tokio::test]
async fn the_line_of_guesses_is_short_and_good_keys_pass_it_by() {
    let gateway = Gateway::start_with(&["--auth-failures-per-minute", "3"]).await;
    let clock = Clock::system();
    let minute = || clock.host_now().unix_seconds().div_euclid(60);
    let good = gateway.key.sha256();
    loop {
        let begun_in = minute();
        used_up(&gateway).await;
        assert_eq!(gateway.initiate(r#"{"amount":1}"#).await.status, 201);
        let known_at = Instant::now();
        gateway
            .services
            .authenticate
            .answers_late(move |request| async move {
                if request.key_sha256 != good {
                    std::future::pending::<()>().await;
                }
                Ok(merchant())
            });
        let mut flood: FuturesUnordered<_> = (0..64).map(|_| invented(&gateway)).collect();
        let told = async {
            let mut statuses = Vec::new();
            for _ in 0..32 {
                statuses.extend(flood.next().await.map(|answer| answer.status));
            }
            statuses
        };
        let told = tokio::time::timeout(Duration::from_secs(10), told).await;
        let second = Duration::from_secs(1);
        until("its answer is used no more", async || {
            known_at.elapsed() > second
        })
        .await;
        let amid = gateway.initiate(r#"{"amount":1}"#).await;
        // If another minute has begun, nobody has failed in it yet and everybody is looked up: try
        // again.
        if minute() == begun_in {
            assert_eq!(told.expect("at once"), [429; 32]);
            assert_eq!(amid.status, 201);
            return;
        }
    }
}

#[tokio::test]
async fn email_then_kyc_are_required_everywhere() {
    let gateway = Gateway::start().await;
    let status = format!("/api/v1/payments/{SESSION_ID}/status");
    let charge = format!("{CHARGE}/{REFERENCE}");
    let answers = async |merchant: Merchant| {
        // A new key for each merchant, so that no earlier answer is used.
        gateway
            .services
            .authenticate
            .answers(move |_| Ok(merchant.clone()));
        let key = ApiKey::generate();
        let mut answers = Vec::new();
        for path in [INITIATE, CHARGE, SUBMIT_OTP] {
            let request = gateway.request("POST", path).key(key.expose());
            answers.push(request.json("not read").send().await);
        }
        for path in [&status, &charge] {
            answers.push(gateway.request("GET", path).key(key.expose()).send().await);
        }
        answers
    };
    let unverified = Merchant {
        email_verified: false,
        kyc_status: KycStatus::Unspecified.into(),
        ..merchant()
    };
    for answer in answers(unverified).await {
        answer.assert_error(403, "EMAIL_NOT_VERIFIED");
        assert_eq!(answer.names(), ["code", "error", "request_id"]);
    }
    for (kyc, shown) in [
        (KycStatus::Unspecified, Value::Null),
        (KycStatus::Pending, json!("PENDING")),
        (KycStatus::InReview, json!("IN_REVIEW")),
        (KycStatus::Rejected, json!("REJECTED")),
        (KycStatus::Expired, json!("EXPIRED")),
    ] {
        let merchant = Merchant {
            kyc_status: kyc.into(),
            accepting_payments: false,
            ..merchant()
        };
        for answer in answers(merchant).await {
            answer.assert_error(403, "KYC_NOT_APPROVED");
            assert_eq!(
                answer.names(),
                ["code", "error", "kyc_status", "request_id"]
            );
            assert_eq!(answer.json()["kyc_status"], shown);
            assert!(answer.header("ratelimit").is_some(), "it was counted");
        }
    }
}

#[tokio::test]
async fn a_merchant_that_accepts_no_payments_begins_none_and_may_go_on_with_others() {
    let gateway = Gateway::start().await;
    gateway.services.authenticate.answers(|_| {
        Ok(Merchant {
            accepting_payments: false,
            ..merchant()
        })
    });
    for path in [INITIATE, ALIAS, CHARGE] {
        let answer = gateway.post(path, "not read").send().await;
        answer.assert_error(403, "MERCHANT_NOT_ACCEPTING_PAYMENTS");
        assert_eq!(answer.names(), ["code", "error", "request_id"]);
    }
    for path in [
        format!("/api/v1/payments/{SESSION_ID}/status"),
        format!("{CHARGE}/{REFERENCE}"),
    ] {
        gateway
            .get(&path)
            .send()
            .await
            .assert_error(404, "NOT_FOUND");
    }
    gateway.services.submit_otp.answers(|_| {
        Ok(ChargeAnswer {
            charge: Some(charge(ChargeStatus::Initiated, money(2550, "GHS"))),
            message: "Approve the payment on your phone.".to_owned(),
            replayed: false,
        })
    });
    let body = format!(r#"{{"reference":"{REFERENCE}","otp":"123456"}}"#);
    let answer = gateway.post(SUBMIT_OTP, body).send().await;
    assert_eq!(answer.status, 202);
    assert_eq!(gateway.services.submit_otp.asked_once().otp, "123456");
}
