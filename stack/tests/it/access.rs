//! Access: keys, verification, and the order in which a request is checked (spec §5, §7).

use std::time::Duration;

use chassis::api_key::ApiKey;
use proto::merchants::{KycStatus, RevokeKeyRequest, UpdateMerchantRequest};
use serde_json::{Value, json};

use crate::{
    shop::{NO_LIMITS, Shop},
    wire::{ALIAS, CHARGE, INITIATE, Reply, Request, SUBMIT_OTP, Wire},
};

const SESSION: &str = "/api/v1/payments/7c0e4d3e-5a0b-4a4f-9d53-0a1b2c3d4e5f/status";
const READ_CHARGE: &str = "/api/v1/payments/charge/TX-0000000000-000000";

const POSTS: [&str; 4] = [INITIATE, ALIAS, CHARGE, SUBMIT_OTP];
const GETS: [&str; 2] = [SESSION, READ_CHARGE];

/// A change to a merchant or a key takes effect everywhere within a second, the longest that the
/// gateway caches an answer. A busy machine gets much longer, since the failure to catch is a
/// change that never takes effect.
const HOLDS_WITHIN: Duration = Duration::from_secs(30);

const ASK_AGAIN: Duration = Duration::from_millis(20);

/// One request to every endpoint.
fn to_every_endpoint(request: impl Fn(&str, &str) -> Request) -> Vec<Request> {
    let posts = POSTS.iter().map(|path| request("POST", path).json("{}"));
    let gets = GETS.iter().map(|path| request("GET", path));
    posts.chain(gets).collect()
}

/// Adds a merchant, changed as given. Returns its id, and a client with its key.
async fn merchant(shop: &Shop, change: UpdateMerchantRequest) -> (String, Wire) {
    let merchant_id = shop.add_merchant("Kente House").await;
    update(shop, &merchant_id, change).await;
    let key = shop.add_key(&merchant_id).await;
    (merchant_id, Wire::with_key(shop, &key.api_key))
}

async fn update(shop: &Shop, merchant_id: &str, change: UpdateMerchantRequest) {
    let change = UpdateMerchantRequest {
        merchant_id: merchant_id.to_owned(),
        ..change
    };
    shop.merchants().update_merchant(change).await.unwrap();
}

fn kyc(status: KycStatus) -> UpdateMerchantRequest {
    UpdateMerchantRequest {
        kyc_status: Some(status.into()),
        ..UpdateMerchantRequest::default()
    }
}

fn email_verified(is_verified: bool) -> UpdateMerchantRequest {
    UpdateMerchantRequest {
        email_verified: Some(is_verified),
        ..UpdateMerchantRequest::default()
    }
}

fn accepting(is_accepting: bool) -> UpdateMerchantRequest {
    UpdateMerchantRequest {
        accepting_payments: Some(is_accepting),
        ..UpdateMerchantRequest::default()
    }
}

async fn revoke(shop: &Shop, key_id: &str) {
    let request = RevokeKeyRequest {
        key_id: key_id.to_owned(),
    };
    shop.merchants().revoke_key(request).await.unwrap();
}

/// Reads a charge that does not exist until the answer is as given, which must happen within
/// `HOLDS_WITHIN`.
async fn holds_soon(wire: &Wire, status: u16, code: &str) {
    let asking = async {
        loop {
            let reply = wire.get(READ_CHARGE).await;
            if reply.status == status && reply.json()["code"] == code {
                return;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    };
    tokio::time::timeout(HOLDS_WITHIN, asking)
        .await
        .unwrap_or_else(|_| panic!("not {status} {code} in time"));
}

/// The answer without the alias's own headers and what differs between any two answers.
fn same_for_every_address(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let (status, mut headers, body) = reply.without_its_moment();
    headers.retain(|name, _| !matches!(name.as_str(), "deprecation" | "link" | "sunset"));
    (status, headers.into_iter().collect(), body)
}

/// Authorization values that contain no valid key.
fn no_keys(good: &str, revoked: &str) -> Vec<Vec<u8>> {
    let texts = [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer null".to_owned(),
        good.to_owned(),
        format!("Basic {good}"),
        format!("Bearer{good}"),
        format!("Bearer {good} {good}"),
        format!("Bearer \"{good}\""),
        format!("Bearer {good}A"),
        format!("Bearer {}", &good[..good.len() - 1]),
        format!("Bearer {}", good.to_uppercase()),
        format!("Bearer {}", good.replacen("_sk_", "_pk_", 1)),
        format!("Bearer {}", good.replacen("service_sk_", "", 1)),
        format!("Bearer {}", good.replacen("_test_", "_", 1)),
        format!("Bearer service_sk_{}", "a".repeat(20_000)),
        format!("Bearer {}", ApiKey::generate().expose()),
        format!("Bearer {revoked}"),
    ];
    let mut values: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    values.push(b"Bearer \xff\xfe".to_vec());
    values
}

#[tokio::test]
async fn missing_malformed_unknown_and_revoked_keys_are_refused_in_one_text() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let revoked = shop.add_key(&shop.ready.demo.merchant_id).await;
    revoke(&shop, &revoked.key.unwrap().key_id).await;
    // A key anywhere else does not count.
    let keyless = |method: &str, path: &str| {
        let path = format!("{path}?api_key={}", wire.key);
        wire.keyless(method, &path).header("x-api-key", &wire.key)
    };
    let mut requests = to_every_endpoint(keyless);
    for value in no_keys(&wire.key, &revoked.api_key) {
        requests.extend(to_every_endpoint(|method, path| {
            keyless(method, path).header("authorization", &value)
        }));
    }
    let good = format!("Bearer {}", wire.key);
    requests.extend(to_every_endpoint(|method, path| {
        let once = keyless(method, path).header("authorization", &good);
        once.header("authorization", &good)
    }));
    let mut first = None;
    for request in requests {
        let reply = request.send().await;
        reply.assert_error(401, "INVALID_API_KEY");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        assert_eq!(reply.header("ratelimit"), None);
        let told = same_for_every_address(&reply);
        assert_eq!(&told, first.get_or_insert_with(|| told.clone()));
    }
    shop.close().await;
}

#[tokio::test]
async fn the_email_comes_before_kyc_on_every_endpoint() {
    let shop = Shop::open_with(NO_LIMITS).await;
    for status in [
        KycStatus::Unspecified,
        KycStatus::Rejected,
        KycStatus::Approved,
    ] {
        let unverified = UpdateMerchantRequest {
            kyc_status: Some(status.into()),
            accepting_payments: Some(false),
            ..email_verified(false)
        };
        let (_, wire) = merchant(&shop, unverified).await;
        for request in to_every_endpoint(|method, path| wire.request(method, path)) {
            let reply = request.send().await;
            reply.assert_error(403, "EMAIL_NOT_VERIFIED");
            assert_eq!(reply.json().get("kyc_status"), None);
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn every_state_of_kyc_but_approved_is_told_on_every_endpoint() {
    let shop = Shop::open_with(NO_LIMITS).await;
    for (status, told) in [
        (KycStatus::Unspecified, Value::Null),
        (KycStatus::Pending, json!("PENDING")),
        (KycStatus::InReview, json!("IN_REVIEW")),
        (KycStatus::Rejected, json!("REJECTED")),
        (KycStatus::Expired, json!("EXPIRED")),
    ] {
        let (_, wire) = merchant(&shop, kyc(status)).await;
        for request in to_every_endpoint(|method, path| wire.request(method, path)) {
            let reply = request.send().await;
            reply.assert_error(403, "KYC_NOT_APPROVED");
            assert_eq!(reply.json().get("kyc_status"), Some(&told));
            assert!(reply.header("ratelimit").is_some(), "it was counted");
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn a_merchant_that_accepts_no_payments_may_read_and_end_what_was_begun_before() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let (merchant_id, wire) = merchant(&shop, accepting(true)).await;
    let charge = r#"{"amount":1,"mobile_number":"0200000002","provider":"TELECEL"}"#;
    let charged = wire.post(CHARGE, charge).await;
    charged.assert_done(202);
    update(&shop, &merchant_id, accepting(false)).await;
    // A key that is in no cache sees the change at once.
    let wire = Wire {
        key: shop.add_key(&merchant_id).await.api_key,
        ..wire
    };
    for path in [INITIATE, ALIAS, CHARGE] {
        let reply = wire.post(path, "{}").await;
        reply.assert_error(403, "MERCHANT_NOT_ACCEPTING_PAYMENTS");
        assert_eq!(reply.json().get("kyc_status"), None);
    }
    let reference = charged.field("reference");
    let session_id = charged.field("session_id");
    let read = wire.get(&format!("{CHARGE}/{reference}")).await;
    assert_eq!(read.assert_done(200).field("status"), "OTP_REQUIRED");
    let read = wire
        .get(&format!("/api/v1/payments/{session_id}/status"))
        .await;
    assert_eq!(read.assert_done(200).field("status"), "PROCESSING");
    let code = json!({ "reference": reference, "otp": "123456" });
    let submitted = wire.post(SUBMIT_OTP, code.to_string()).await;
    assert_eq!(submitted.assert_done(202).field("status"), "INITIATED");
    let path = format!("{CHARGE}/{reference}");
    let is_settled = async || wire.get(&path).await.field("status") == "SETTLED";
    let settled = tokio::time::timeout(HOLDS_WITHIN, async {
        while !is_settled().await {
            tokio::time::sleep(ASK_AGAIN).await;
        }
    });
    settled.await.expect("the charge settles");
    shop.close().await;
}

#[tokio::test]
async fn the_address_and_the_method_come_before_the_key() {
    let shop = Shop::open().await;
    let wire = Wire::of(&shop);
    let unknown = wire.keyless("GET", "/api/v1/payment").send().await;
    unknown.assert_error(404, "NOT_FOUND");
    let wrong = wire.keyless("GET", CHARGE).send().await;
    wrong.assert_error(405, "METHOD_NOT_ALLOWED");
    shop.close().await;
}

/// Uses up a bucket of two, starting early enough in a window to finish in it.
async fn use_up(wire: &Wire, path: &str) {
    loop {
        let reply = wire.get(READ_CHARGE).await;
        let limit = reply.header("ratelimit").unwrap().to_owned();
        let left: u32 = limit.rsplit_once("t=").unwrap().1.parse().unwrap();
        if left >= 10 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    for _ in 0..2 {
        assert_ne!(wire.post(path, "{").await.status, 429);
    }
}

#[tokio::test]
async fn the_key_comes_before_the_rate_and_the_rate_before_verification() {
    let flags = [
        ("ratelimit-svc", "--limit-payments=2"),
        ("ratelimit-svc", "--limit-charge=2"),
        ("ratelimit-svc", "--limit-charge-status=1000000"),
    ];
    let shop = Shop::open_with(&flags).await;
    let (_, unverified) = merchant(&shop, email_verified(false)).await;
    for paths in [[INITIATE, ALIAS], [CHARGE, SUBMIT_OTP]] {
        use_up(&unverified, paths[0]).await;
        for path in paths {
            let reply = unverified.post(path, "{").await;
            reply.assert_error(429, "RATE_LIMITED");
            let wait: u32 = reply.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=60).contains(&wait));
            let keyless = unverified.keyless("POST", path).json("{}").send().await;
            keyless.assert_error(401, "INVALID_API_KEY");
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn verification_comes_before_the_body_and_the_body_before_the_record() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let (_, unverified) = merchant(&shop, kyc(KycStatus::Pending)).await;
    for path in POSTS {
        for body in ["{", "{}", &" ".repeat(70_000)] {
            let reply = unverified.post(path, body).await;
            reply.assert_error(403, "KYC_NOT_APPROVED");
        }
        let request = unverified.request("POST", path).body("amount=1");
        request.send().await.assert_error(403, "KYC_NOT_APPROVED");
    }
    let wire = Wire::of(&shop);
    let submit = |reference: &str, otp: Value| {
        let body = json!({ "reference": reference, "otp": otp }).to_string();
        let request = wire.request("POST", SUBMIT_OTP).json(body);
        request.send()
    };
    let unknown = "TX-0000000000-000000";
    let reply = submit(unknown, json!(123456)).await;
    reply.assert_refused("otp", "INVALID_TYPE");
    let reply = submit(unknown, json!("123456")).await;
    reply.assert_error(404, "NOT_FOUND");
    let rejected = r#"{"amount":1,"mobile_number":"0240000006","provider":"MTN"}"#;
    let rejected = wire.post(CHARGE, rejected).await;
    let reference = rejected.assert_done(422).field("reference");
    let reply = submit(&reference, json!("12 34")).await;
    reply.assert_refused("otp", "INVALID_FORMAT");
    let reply = submit(&reference, json!("123456")).await;
    reply.assert_error(409, "CHARGE_NOT_AWAITING_OTP");
    shop.wait_for_event(&reference).await;
    shop.close().await;
}

#[tokio::test]
async fn a_revoked_key_is_soon_refused_and_never_works_again() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let merchant_id = &shop.ready.demo.merchant_id;
    let key = shop.add_key(merchant_id).await;
    let wire = Wire::with_key(&shop, &key.api_key);
    wire.get(READ_CHARGE).await.assert_error(404, "NOT_FOUND");
    let key_id = key.key.unwrap().key_id;
    revoke(&shop, &key_id).await;
    holds_soon(&wire, 401, "INVALID_API_KEY").await;
    let refused = async |times: u32| {
        for _ in 0..times {
            let reply = wire.get(READ_CHARGE).await;
            reply.assert_error(401, "INVALID_API_KEY");
        }
    };
    refused(100).await;
    // Nothing that happens to its merchant restores it.
    revoke(&shop, &key_id).await;
    shop.add_key(merchant_id).await;
    update(&shop, merchant_id, kyc(KycStatus::Rejected)).await;
    update(&shop, merchant_id, kyc(KycStatus::Approved)).await;
    refused(10).await;
    shop.advance(Duration::from_secs(48 * 3_600)).await;
    refused(10).await;
    shop.close().await;
}

#[tokio::test]
async fn revoking_one_key_leaves_the_merchants_others() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let key = shop.add_key(&shop.ready.demo.merchant_id).await;
    let wire = Wire::with_key(&shop, &key.api_key);
    wire.get(READ_CHARGE).await.assert_error(404, "NOT_FOUND");
    revoke(&shop, &key.key.unwrap().key_id).await;
    holds_soon(&wire, 401, "INVALID_API_KEY").await;
    let other = Wire::of(&shop).get(READ_CHARGE).await;
    other.assert_error(404, "NOT_FOUND");
    shop.close().await;
}

#[tokio::test]
async fn a_change_of_verification_soon_holds_in_both_directions() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let (merchant_id, wire) = merchant(&shop, kyc(KycStatus::Approved)).await;
    holds_soon(&wire, 404, "NOT_FOUND").await;
    for status in [KycStatus::Rejected, KycStatus::Unspecified] {
        update(&shop, &merchant_id, kyc(status)).await;
        holds_soon(&wire, 403, "KYC_NOT_APPROVED").await;
        update(&shop, &merchant_id, kyc(KycStatus::Approved)).await;
        holds_soon(&wire, 404, "NOT_FOUND").await;
    }
    update(&shop, &merchant_id, email_verified(false)).await;
    holds_soon(&wire, 403, "EMAIL_NOT_VERIFIED").await;
    update(&shop, &merchant_id, email_verified(true)).await;
    holds_soon(&wire, 404, "NOT_FOUND").await;
    shop.close().await;
}

#[tokio::test]
async fn the_alias_answers_as_version_1_and_says_that_it_is_deprecated() {
    let flags = [
        ("ratelimit-svc", "--limit-payments=1000000"),
        ("gateway", "--alias-sunset=2027-06-01T12:30:05.000Z"),
    ];
    let shop = Shop::open_with(&flags).await;
    let good = Wire::of(&shop);
    let bad = Wire::with_key(&shop, "service_sk_x");
    let (_, unverified) = merchant(&shop, kyc(KycStatus::Expired)).await;
    let (_, closed) = merchant(&shop, accepting(false)).await;
    let to = |path: &'static str| {
        let plain = good.request("POST", path).body("amount=1");
        let huge = good.request("POST", path).json(" ".repeat(70_000));
        [
            good.request("POST", path).json("{"),
            good.request("POST", path).json(r#"{"amount":0}"#),
            bad.request("POST", path).json("{}"),
            unverified.request("POST", path).json("{}"),
            closed.request("POST", path).json("{}"),
            plain,
            huge,
        ]
    };
    for (v1, alias) in to(INITIATE).into_iter().zip(to(ALIAS)) {
        let (v1, alias) = (v1.send().await, alias.send().await);
        v1.assert_form_of_error();
        assert_eq!(same_for_every_address(&v1), same_for_every_address(&alias));
        check_deprecation(&v1, &alias);
    }
    let body = r#"{"amount":12.5,"customer_email":"ama@example.com"}"#;
    let (v1, alias) = (
        good.post(INITIATE, body).await,
        good.post(ALIAS, body).await,
    );
    check_deprecation(v1.assert_done(201), alias.assert_done(201));
    let shape = |reply: &Reply| {
        let mut body = reply.json();
        for changing in ["session_id", "payment_url", "expires_at"] {
            assert!(body[changing].take().is_string(), "{changing}");
        }
        body
    };
    assert_eq!(shape(&v1), shape(&alias));
    shop.close().await;
}

fn check_deprecation(v1: &Reply, alias: &Reply) {
    for name in ["deprecation", "link", "sunset"] {
        assert_eq!(v1.header(name), None);
    }
    assert_eq!(alias.header("deprecation"), Some("@1793491200"));
    let successor = "</api/v1/payments/initiate>; rel=\"successor-version\"";
    assert_eq!(alias.header("link"), Some(successor));
    let sunset = Some("Tue, 01 Jun 2027 12:30:05 GMT");
    assert_eq!(alias.header("sunset"), sunset);
}
