//! Values of single fields: amounts, texts, numbers, addresses and names.

use serde_json::json;

use super::{TEXT_FIELDS, close_untouched, with};
use crate::{
    shop::{NO_LIMITS, Shop},
    wire::{CHARGE, INITIATE, SUBMIT_OTP, Wire},
};

#[tokio::test]
async fn an_amount_that_is_no_amount_is_refused() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let thirty_digits = "123456789012345678901234567890";
    for (token, code) in [
        ("0", "NOT_POSITIVE"),
        ("-0", "NOT_POSITIVE"),
        ("0.00", "NOT_POSITIVE"),
        ("-0.0", "NOT_POSITIVE"),
        ("0e2", "NOT_POSITIVE"),
        ("-1", "NOT_POSITIVE"),
        ("-0.01", "NOT_POSITIVE"),
        ("-1e2", "NOT_POSITIVE"),
        ("25.505", "TOO_MANY_DECIMALS"),
        ("0.001", "TOO_MANY_DECIMALS"),
        ("1e-3", "TOO_MANY_DECIMALS"),
        ("1e-28", "TOO_MANY_DECIMALS"),
        ("9999999999.985", "TOO_MANY_DECIMALS"),
        ("1e-29", "OUT_OF_RANGE"),
        ("1e-400", "OUT_OF_RANGE"),
        ("1e400", "OUT_OF_RANGE"),
        ("-1e400", "OUT_OF_RANGE"),
        ("1e99999999999999999999", "OUT_OF_RANGE"),
        ("1e-99999999999999999999", "OUT_OF_RANGE"),
        ("1e2147483647", "OUT_OF_RANGE"),
        ("1e-2147483648", "OUT_OF_RANGE"),
        (thirty_digits, "OUT_OF_RANGE"),
        ("0.123456789012345678901234567890", "OUT_OF_RANGE"),
        ("9999999999.991", "OUT_OF_RANGE"),
        ("10000000000", "OUT_OF_RANGE"),
        ("1e10", "OUT_OF_RANGE"),
        ("92233720368547758.08", "OUT_OF_RANGE"),
        ("18446744073709551616", "OUT_OF_RANGE"),
        ("79228162514264337593543950335", "OUT_OF_RANGE"),
        ("79228162514264337593543950336", "OUT_OF_RANGE"),
    ] {
        for path in [INITIATE, CHARGE] {
            let reply = wire.post(path, with(path, "amount", token)).await;
            reply.assert_refused("amount", code);
        }
    }
    let malformed = [
        "01", "+1", ".5", "1.", "1e", "0x10", "1_000", "1,5", "NaN", "Infinity", "-", "--1", "２５",
    ];
    for token in malformed {
        let reply = wire.post(INITIATE, with(INITIATE, "amount", token)).await;
        reply.assert_error(400, "MALFORMED_JSON");
    }
    for (currency, token) in [("JPY", "100.5"), ("XOF", "0.1"), ("KWD", "1.2345")] {
        let body = format!(r#"{{"amount":{token},"currency":"{currency}"}}"#);
        let reply = wire.post(INITIATE, body).await;
        reply.assert_refused("amount", "TOO_MANY_DECIMALS");
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn amounts_that_are_unusual_and_right_come_back_exactly() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    for (currency, token, shown) in [
        ("GHS", "1e2", "100.00"),
        ("GHS", "1E+2", "100.00"),
        ("GHS", "2550e-2", "25.50"),
        ("GHS", "25.5", "25.50"),
        ("GHS", "25.50", "25.50"),
        ("GHS", "25.5000000000000000000", "25.50"),
        ("GHS", "0.01", "0.01"),
        ("GHS", "0.1", "0.10"),
        ("USD", "9999999999.99", "9999999999.99"),
        ("JPY", "100", "100"),
        ("JPY", "100.00", "100"),
        ("KWD", "1.234", "1.234"),
    ] {
        let body = format!(r#"{{"amount":{token},"currency":"{currency}"}}"#);
        let created = wire.post(INITIATE, body).await;
        let session_id = created.assert_done(201).field("session_id");
        let read = wire
            .get(&format!("/api/v1/payments/{session_id}/status"))
            .await;
        let amount = format!("\"amount\":{shown},\"currency\":\"{currency}\"");
        for reply in [&created, read.assert_done(200)] {
            assert!(reply.text().contains(&amount), "{token}: {}", reply.text());
        }
    }
    let body = with(CHARGE, "amount", "9999999999.99").replace("0240000006", "0240000001");
    let charged = wire.post(CHARGE, body).await;
    let reference = charged.assert_done(202).field("reference");
    assert!(charged.text().contains("\"amount\":9999999999.99,"));
    shop.wait_for_event(&reference).await;
    assert_eq!(shop.balance().await, 999_999_999_999);
    shop.close().await;
}

#[tokio::test]
async fn control_characters_are_refused_in_every_text() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let reference = (SUBMIT_OTP, "reference");
    for (path, field) in TEXT_FIELDS.into_iter().chain([reference]) {
        for escape in [
            "\\u0000", "\\n", "\\r", "\\t", "\\u001b", "\\u007f", "\\u0085", "\\u2028", "\\u2029",
        ] {
            let value = format!("\"a{escape}b\"");
            let reply = wire.post(path, with(path, field, &value)).await;
            reply.assert_refused(field, "CONTROL_CHARACTER");
        }
        for escape in ["\\ud800", "\\udc00\\ud800", "\\ud83d"] {
            let value = format!("\"a{escape}b\"");
            let reply = wire.post(path, with(path, field, &value)).await;
            reply.assert_refused(field, "INVALID_FORMAT");
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn texts_may_be_as_long_as_they_may_and_no_longer() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let domain = ".example.com";
    for (path, field, longest, code) in [
        (INITIATE, "description", "€".repeat(500), "TOO_LONG"),
        (CHARGE, "description", "😀".repeat(500), "TOO_LONG"),
        (INITIATE, "customer_name", "é".repeat(200), "TOO_LONG"),
        (CHARGE, "payer_name", "é".repeat(200), "TOO_LONG"),
        (
            INITIATE,
            "redirect_url",
            format!("https://a.io/{}", "b".repeat(2035)),
            "TOO_LONG",
        ),
        (SUBMIT_OTP, "otp", "1".repeat(32), "INVALID_FORMAT"),
    ] {
        let reply = wire
            .post(path, with(path, field, &json!(longest).to_string()))
            .await;
        // The good charge is rejected by its rail, and the good OTP is for an unknown charge.
        let done = [(INITIATE, 201), (CHARGE, 422), (SUBMIT_OTP, 404)];
        assert!(done.contains(&(path, reply.status)), "{}", reply.text());
        let longer = format!("{longest}b");
        let reply = wire
            .post(path, with(path, field, &json!(longer).to_string()))
            .await;
        reply.assert_refused(field, code);
    }
    let endless = "9".repeat(60_000);
    for (path, field) in TEXT_FIELDS {
        let reply = wire
            .post(path, with(path, field, &json!(endless).to_string()))
            .await;
        assert_eq!(reply.refused_fields()[0].0, field);
    }
    let email = format!("{}@{}{domain}", "a".repeat(64), "b.".repeat(100));
    let email = with(CHARGE, "payer_email", &json!(email).to_string());
    let reply = wire.post(CHARGE, email).await;
    reply.assert_refused("payer_email", "TOO_LONG");
    let reference = with(SUBMIT_OTP, "reference", &json!(endless).to_string());
    let reply = wire.post(SUBMIT_OTP, reference).await;
    reply.assert_error(404, "NOT_FOUND");
    shop.close().await;
}

/// Checks that each value is refused in that field with that code.
async fn check_refused(wire: &Wire, field: (&str, &str), code: &str, values: &[&str]) {
    let (path, field) = field;
    for value in values {
        let body = with(path, field, &json!(value).to_string());
        wire.post(path, body).await.assert_refused(field, code);
    }
}

const NO_PHONES: [&str; 17] = [
    "",
    " ",
    "+",
    "0",
    "024123456",
    "02412345678",
    "0244123456;drop",
    "0244123456 ext 5",
    "0244123456x5",
    "tel:0244123456",
    "++233244123456",
    "024O123456",
    "٠٢٤٤١٢٣٤٥٦",
    "０２４４１２３４５６",
    "0244123456,0244123457",
    "0244123456' or '1'='1",
    "024\u{200b}4123456",
];

#[tokio::test]
async fn what_is_no_phone_number_is_refused() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let (payer, customer) = ((CHARGE, "mobile_number"), (INITIATE, "customer_phone"));
    check_refused(&wire, payer, "INVALID_PHONE", &NO_PHONES).await;
    check_refused(&wire, customer, "INVALID_PHONE", &NO_PHONES).await;
    let no_wallets = [
        "0302123456",
        "+233302123456",
        "+442079460958",
        "+0244123456",
        "244123456",
    ];
    check_refused(&wire, payer, "INVALID_PHONE", &no_wallets).await;
    close_untouched(shop).await;
}

const NO_URLS: [&str; 25] = [
    "",
    "example.com",
    "/thanks",
    "//example.com",
    "https://",
    "https:///example.com",
    "https:example.com",
    "https:/example.com",
    "https:\\\\example.com",
    "https://ama@example.com",
    "https://ama:secret@example.com",
    "https://@example.com",
    "https://example.com\\@evil.example",
    "https://exa mple.com",
    "https://example.com/a b",
    "https://exam\u{a0}ple.com",
    "https://example.com:99999",
    "https://[::1",
    "https://%zz.com",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "javascript://example.com/%0aalert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "ftp://example.com",
];

const NO_EMAILS: [&str; 13] = [
    "",
    "ama",
    "ama@",
    "@example.com",
    "ama@example",
    "ama@@example.com",
    "a b@example.com",
    "ama@example.com,kofi@example.com",
    "<ama@example.com>",
    "ama@-example.com",
    "ama@example..com",
    ".ama@example.com",
    "mailto:ama@example.com",
];

#[tokio::test]
async fn what_is_no_address_is_refused() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    check_refused(&wire, (INITIATE, "redirect_url"), "INVALID_URL", &NO_URLS).await;
    for field in [(INITIATE, "customer_email"), (CHARGE, "payer_email")] {
        check_refused(&wire, field, "INVALID_EMAIL", &NO_EMAILS).await;
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn what_names_no_currency_network_or_code_is_refused() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let none = [
        "", "ghs", "GH", "GHSS", "ZZZ", "XXX", "XTS", "XAU", "₵", "936", "GHS,USD",
    ];
    check_refused(&wire, (INITIATE, "currency"), "UNKNOWN_CURRENCY", &none).await;
    let not_ghs = ["", "USD", "EUR", "JPY", "ghs", "ZZZ"];
    let currency = (CHARGE, "currency");
    check_refused(&wire, currency, "UNSUPPORTED_CURRENCY", &not_ghs).await;
    let none = [
        "",
        "mtn",
        "Mtn",
        "at",
        "VODAFONE",
        "AIRTELTIGO",
        "MTN,AT",
        "ＭＴＮ",
        "0",
    ];
    check_refused(&wire, (CHARGE, "provider"), "UNKNOWN_PROVIDER", &none).await;
    let none = ["", " ", "12 34", "１２３４５６", "12\u{200b}34"];
    check_refused(&wire, (SUBMIT_OTP, "otp"), "INVALID_FORMAT", &none).await;
    close_untouched(shop).await;
}

#[tokio::test]
async fn what_looks_odd_and_is_right_is_taken() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    for number in [
        "0240000006",
        " 024 000 0006 ",
        "233240000006",
        "+233 24 000-0006",
        "00233240000006",
        "(024) 000.0006",
        "+233(24)0000006",
    ] {
        let body = with(CHARGE, "mobile_number", &json!(number).to_string());
        wire.post(CHARGE, body).await.assert_done(422);
    }
    assert_eq!(
        shop.book("0240000006").await.len(),
        7,
        "one number, however it is written"
    );
    let nulls = json!({
        "amount": 1, "mobile_number": "0240000006", "provider": " MTN ", "currency": null,
        "description": null, "payer_email": null, "payer_name": null,
    });
    wire.post(CHARGE, nulls.to_string()).await.assert_done(422);
    let nulls = json!({
        "amount": 1, "currency": null, "description": null, "redirect_url": null,
        "customer_email": null, "customer_name": null, "customer_phone": null,
    });
    let created = wire.post(INITIATE, nulls.to_string()).await;
    created.assert_done(201);
    let (body, currency) = (created.json(), created.field("currency"));
    assert_eq!(
        (
            currency.as_str(),
            body["warnings"].as_array().unwrap().len()
        ),
        ("USD", 2)
    );
    let more = json!({
        "amount": 1, "currency": " GHS ", "description": "  Order 17\n", "customer_name": " ",
        "redirect_url": " https://example.com/a?b=c#d ", "customer_email": " ama@example.com ",
        "customer_phone": "+44 20 7946 0958", "amount_minor": "x", "": [], "status": "COMPLETED",
        "__proto__": { "a": 1 }, "Amount": -1, "session_id": "1",
    });
    let created = wire.post(INITIATE, more.to_string()).await;
    created.assert_done(201);
    assert_eq!(created.json().get("warnings"), None);
    let session = shop.read_session(&created.field("session_id")).await;
    assert_eq!(session["description"], "Order 17");
    assert_eq!(session["status"], "PENDING");
    assert_eq!(session["currency"], "GHS");
    shop.close().await;
}
