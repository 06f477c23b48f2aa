//! Every bad request gets a clear refusal, never a 5xx, and leaves nothing half-written.
//!
//! Here: bodies as a whole, and Idempotency-Key. `fields`: the values of each field. `transport`:
//! how a request may be sent. `fuzz`: what nobody thought of.

mod fields;
mod fuzz;
mod transport;

use serde_json::{Value, json};

use crate::{
    shop::{NO_LIMITS, Shop},
    wire::{ALIAS, CHARGE, INITIATE, Reply, SUBMIT_OTP, Wire},
};

const POSTS: [&str; 4] = [INITIATE, ALIAS, CHARGE, SUBMIT_OTP];

/// A good body for each POST, for a test to spoil. The number has no wallet: a charge that gets
/// through is rejected at once.
fn good_body(path: &str) -> Value {
    match path {
        CHARGE => json!({ "amount": 25.5, "mobile_number": "0240000006", "provider": "MTN" }),
        SUBMIT_OTP => json!({ "reference": "TX-0000000000-000000", "otp": "123456" }),
        _ => json!({ "amount": 25.5, "currency": "GHS" }),
    }
}

/// The good body with one field changed, given as JSON text.
fn with(path: &str, field: &str, value: &str) -> String {
    let mut body = good_body(path);
    body[field] = json!("\u{1}");
    let (place, value) = (r#""\u0001""#, value);
    body.to_string().replacen(place, value, 1)
}

/// Every text field of each POST.
const TEXT_FIELDS: [(&str, &str); 13] = [
    (INITIATE, "currency"),
    (INITIATE, "description"),
    (INITIATE, "redirect_url"),
    (INITIATE, "customer_email"),
    (INITIATE, "customer_name"),
    (INITIATE, "customer_phone"),
    (CHARGE, "mobile_number"),
    (CHARGE, "provider"),
    (CHARGE, "currency"),
    (CHARGE, "description"),
    (CHARGE, "payer_email"),
    (CHARGE, "payer_name"),
    (SUBMIT_OTP, "otp"),
];

/// Row counts of everything that a request could leave behind.
async fn rows(shop: &Shop) -> Vec<i64> {
    let charges = shop.database("charges-svc").await;
    let sessions = shop.database("sessions-svc").await;
    let mut counts = Vec::new();
    let mut conn = charges.read().await.unwrap();
    for text in [
        "select count(*) from charges",
        "select count(*) from idempotency_keys",
        "select count(*) from outbox",
        "select count(*) from postings",
    ] {
        let (count,): (i64,) = conn.sql(text).one().await.unwrap();
        counts.push(count);
    }
    conn = sessions.read().await.unwrap();
    for text in [
        "select count(*) from sessions",
        "select count(*) from transactions",
        "select count(*) from idempotency_keys",
        "select count(*) from customers",
        "select count(*) from outbox",
    ] {
        let (count,): (i64,) = conn.sql(text).one().await.unwrap();
        counts.push(count);
    }
    drop(conn);
    charges.close().await;
    sessions.close().await;
    counts
}

/// Ends a test in which everything was refused, so that no trace of it may exist.
async fn close_untouched(shop: Shop) {
    assert_eq!(rows(&shop).await, [0; 9]);
    assert!(crate::shop::book(&shop.ready.handset).await.is_empty());
    assert!(shop.receiver.deliveries().is_empty());
    shop.close().await;
}

#[tokio::test]
async fn a_body_that_is_not_one_json_object_is_malformed() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let bodies: [&[u8]; 28] = [
        b"",
        b" ",
        b"{",
        b"}",
        b"[]",
        b"[{\"amount\":1}]",
        b"null",
        b"25.50",
        b"\"amount\"",
        b"amount=1",
        b"<amount>1</amount>",
        b"{\"amount\":1}{\"amount\":1}",
        b"{\"amount\":1} trailing",
        b"{\"amount\":1,}",
        b"{\"amount\" 1}",
        b"{'amount':1}",
        b"{amount:1}",
        b"{\"amount\":1 /* one */}",
        b"{\"amount\":1,\"amount\":2}",
        b"{\"amount\":1,\"\\u0061mount\":1}",
        b"{\"otp\":\"1\",\"otp\":\"1\"}",
        b"{\"description\":\"\xff\xfe\"}",
        b"{\"description\":\"\xed\xa0\x80\"}",
        b"{\"description\":\"\xc0\x80\"}",
        b"{\"description\":\"a\nb\"}",
        b"{\"description\":\"a\x00b\"}",
        b"\xef\xbb\xbf{\"amount\":1}",
        b"\xff\xfe{\x00}\x00",
    ];
    for path in POSTS {
        for body in bodies {
            let reply = wire.post(path, body).await;
            reply.assert_error(400, "MALFORMED_JSON");
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn nesting_of_a_hundred_thousand_levels_does_no_harm() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    // One hundred thousand levels do not fit into a body, whatever they are made of.
    for path in POSTS {
        let deepest = "[".repeat(100_000);
        let reply = wire.post(path, deepest).await;
        reply.assert_error(413, "PAYLOAD_TOO_LARGE");
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let levels = 60_000 / (open.len() + close.len());
            let nested = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            let reply = wire.post(path, open.repeat(levels)).await;
            reply.assert_error(400, "MALFORMED_JSON");
            let field = if path == SUBMIT_OTP { "otp" } else { "amount" };
            let reply = wire.post(path, with(path, field, &nested)).await;
            reply.assert_refused(field, "INVALID_TYPE");
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn a_value_of_another_type_is_refused_by_its_fields_name() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let reference = (SUBMIT_OTP, "reference");
    for (path, field) in TEXT_FIELDS.into_iter().chain([reference]) {
        for value in [
            "1",
            "25.5",
            "true",
            "[]",
            "[\"GHS\"]",
            "{}",
            "{\"a\":\"b\"}",
        ] {
            let reply = wire.post(path, with(path, field, value)).await;
            reply.assert_refused(field, "INVALID_TYPE");
        }
    }
    for path in [INITIATE, ALIAS, CHARGE] {
        for value in ["\"25.50\"", "\"\"", "true", "[25.5]", "{}", "{\"major\":1}"] {
            let reply = wire.post(path, with(path, "amount", value)).await;
            reply.assert_refused("amount", "INVALID_TYPE");
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn all_that_is_wrong_with_a_body_is_told_at_once() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    for (path, required) in [
        (INITIATE, &["amount"][..]),
        (ALIAS, &["amount"]),
        (CHARGE, &["amount", "mobile_number", "provider"]),
        (SUBMIT_OTP, &["reference", "otp"]),
    ] {
        let nulls: Vec<String> = required
            .iter()
            .map(|name| format!("\"{name}\":null"))
            .collect();
        for body in ["{}".to_owned(), format!("{{{}}}", nulls.join(","))] {
            let refused = wire.post(path, body).await.refused_fields();
            let wanted = required
                .iter()
                .map(|name| ((*name).to_owned(), "REQUIRED".to_owned()));
            assert_eq!(refused, wanted.collect::<Vec<_>>());
        }
    }
    let wrong = json!({
        "amount": 25.505, "mobile_number": "12", "provider": "mtn", "currency": "USD",
        "description": "a\u{0}b", "payer_email": "ama", "payer_name": 7,
    });
    let refused = wire.post(CHARGE, wrong.to_string()).await.refused_fields();
    let refused: Vec<(&str, &str)> = refused.iter().map(|(f, c)| (&**f, &**c)).collect();
    assert_eq!(
        refused,
        [
            ("amount", "TOO_MANY_DECIMALS"),
            ("mobile_number", "INVALID_PHONE"),
            ("provider", "UNKNOWN_PROVIDER"),
            ("currency", "UNSUPPORTED_CURRENCY"),
            ("description", "CONTROL_CHARACTER"),
            ("payer_email", "INVALID_EMAIL"),
            ("payer_name", "INVALID_TYPE"),
        ]
    );
    close_untouched(shop).await;
}

/// Checks the answer to a good request: a session is created, and the charge is rejected because
/// its payer has no wallet.
fn assert_carried_out(path: &str, reply: &Reply) {
    reply.assert_done(if path == CHARGE { 422 } else { 201 });
}

#[tokio::test]
async fn a_refused_request_does_not_use_up_its_idempotency_key() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    for path in [INITIATE, ALIAS, CHARGE] {
        let keyed = |key: &str| wire.request("POST", path).header("Idempotency-Key", key);
        let key = format!("order-of-{}", path.len());
        let good = good_body(path).to_string();
        let long = format!("{good}{}", " ".repeat(70_000));
        keyed(&key)
            .json("{")
            .send()
            .await
            .assert_error(400, "MALFORMED_JSON");
        for amount in ["0", "25.505", "\"25.50\"", "1e400"] {
            let refused = keyed(&key).json(with(path, "amount", amount)).send().await;
            assert_eq!(refused.refused_fields()[0].0, "amount");
        }
        let refused = keyed(&key).body(&good).send().await;
        refused.assert_error(415, "UNSUPPORTED_MEDIA_TYPE");
        let refused = keyed(&key).json(long).send().await;
        refused.assert_error(413, "PAYLOAD_TOO_LARGE");
        let first = keyed(&key).json(&good).send().await;
        assert_carried_out(path, &first);
        assert_eq!(first.header("idempotent-replayed"), None);
        let second = keyed(&key).json(&good).send().await;
        assert_eq!(second.header("idempotent-replayed"), Some("true"));
        assert_eq!(second.body, first.body);
        // Nor does a refusal affect a key that was already used.
        keyed(&key)
            .json("{")
            .send()
            .await
            .assert_error(400, "MALFORMED_JSON");
        let third = keyed(&key).json(&good).send().await;
        assert_eq!(third.body, first.body);
    }
    assert_eq!(shop.book("0240000006").await.len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn an_idempotency_key_that_is_none_is_refused() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let longer = "k".repeat(256);
    let keys: [&[u8]; 8] = [
        b"",
        b" ",
        b"a b",
        b"a\tb",
        b"cl\xe9",
        "clé".as_bytes(),
        b"\x80",
        longer.as_bytes(),
    ];
    for path in [INITIATE, ALIAS, CHARGE] {
        let good = good_body(path).to_string();
        for key in keys {
            let request = wire.request("POST", path).header("Idempotency-Key", key);
            let reply = request.json(&good).send().await;
            reply.assert_refused("Idempotency-Key", "INVALID_FORMAT");
        }
        let request = wire.request("POST", path).header("idempotency-key", "a");
        let twice = request.header("Idempotency-Key", "a").json(&good);
        let reply = twice.send().await;
        reply.assert_refused("Idempotency-Key", "INVALID_FORMAT");
    }
    close_untouched(shop).await;
}
