//! Creating a payment session, at both addresses (spec §4.1, §4.6, §9).

use proto::sessions::{CreateSessionResponse, Payer};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    gateway::{ALIAS, Gateway, INITIATE, PRODUCTION},
    services::{SESSION_ID, merchant, money, refusal, session},
};

/// Every field that a merchant can send, and one that is unknown.
const WHOLE: &str = r#"{
    "amount": 25.50, "currency": "GHS", "description": " Order 17 ",
    "redirect_url": "https://shop.example.com/thanks?order=17",
    "customer_email": "ama@example.com", "customer_name": "Ama Mensah",
    "customer_phone": "024 123 4567", "metadata": {"unknown": [1, 2]}
}"#;

#[tokio::test]
async fn a_session_is_created_from_what_the_merchant_says() {
    let gateway = Gateway::start().await;
    let answer = gateway.initiate(WHOLE).await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        answer.names(),
        [
            "amount",
            "currency",
            "expires_at",
            "payment_url",
            "session_id"
        ],
        "no warnings when nothing was omitted"
    );
    assert_eq!(
        answer.json(),
        json!({
            "session_id": SESSION_ID,
            "payment_url": format!("https://pay.example.com/pay/{SESSION_ID}"),
            "amount": 25.50,
            "currency": "GHS",
            "expires_at": "2026-02-01T09:00:00.000Z",
        })
    );
    assert!(
        answer.text().contains(r#""amount":25.50,"#),
        "with the currency's decimals"
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("idempotent-replayed"), None);
    assert_eq!(answer.header("deprecation"), None);
    let asked = gateway.services.create_session.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
    assert_eq!(asked.amount, money(2550, "GHS"));
    assert_eq!(asked.description.as_deref(), Some("Order 17"));
    let url = "https://shop.example.com/thanks?order=17";
    assert_eq!(asked.redirect_url.as_deref(), Some(url));
    let payer = Payer {
        phone: Some("+233241234567".to_owned()),
        email: Some("ama@example.com".to_owned()),
        name: Some("Ama Mensah".to_owned()),
    };
    assert_eq!(asked.payer, Some(payer));
}

#[tokio::test]
async fn an_amount_alone_is_in_dollars_and_warned_about() {
    let gateway = Gateway::start().await;
    for body in [
        r#"{"amount":10}"#,
        r#"{"amount":10,"currency":null,"description":null,"redirect_url":null,
            "customer_email":null,"customer_name":null,"customer_phone":null}"#,
    ] {
        let answer = gateway.initiate(body).await;
        assert_eq!(answer.status, 201);
        assert!(answer.text().contains(r#""amount":10.00,"currency":"USD""#));
        let warnings = &answer.json()["warnings"];
        let told = |index: usize, name: &str| warnings[index][name].as_str().unwrap().to_owned();
        assert_eq!(warnings.as_array().map(Vec::len), Some(2));
        assert_eq!(told(0, "code"), "CUSTOMER_EMAIL_OMITTED");
        assert_eq!(told(0, "field"), "customer_email");
        assert_eq!(told(1, "code"), "CUSTOMER_PHONE_OMITTED");
        assert_eq!(told(1, "field"), "customer_phone");
        assert!(!told(0, "message").is_empty() && !told(1, "message").is_empty());
        let asked = gateway.services.create_session.asked().pop().unwrap();
        assert_eq!(asked.amount, money(1000, "USD"));
        assert_eq!(asked.payer, Some(Payer::default()));
        assert_eq!((asked.description, asked.redirect_url), (None, None));
    }
}

#[tokio::test]
async fn only_what_was_omitted_is_warned_about() {
    let gateway = Gateway::start().await;
    for (given, omitted) in [
        (
            r#""customer_email":"a@example.com""#,
            "CUSTOMER_PHONE_OMITTED",
        ),
        (
            r#""customer_phone":"+442079460958""#,
            "CUSTOMER_EMAIL_OMITTED",
        ),
    ] {
        let answer = gateway
            .initiate(format!(r#"{{"amount":10,{given}}}"#))
            .await;
        let warnings = answer.json()["warnings"].clone();
        assert_eq!(warnings.as_array().map(Vec::len), Some(1));
        assert_eq!(warnings[0]["code"], omitted);
    }
}

#[tokio::test]
async fn a_session_that_nobody_can_pay_yet_is_created_and_warned_about() {
    let gateway = Gateway::start_with(&["--checkout-rates", "EUR=13.60"]).await;
    let codes = async |body: &str| {
        let answer = gateway.initiate(body).await;
        assert_eq!(answer.status, 201, "{body}");
        let warnings = answer.json()["warnings"].clone();
        let told = warnings.as_array().cloned().unwrap_or_default();
        for warning in &told {
            assert!(!warning["message"].as_str().unwrap().is_empty());
        }
        let part = |name: &str| told.iter().map(|told| told[name].clone()).collect();
        let (codes, fields): (Vec<Value>, Vec<Value>) = (part("code"), part("field"));
        (codes, fields)
    };
    let payer = r#""customer_email":"a@example.com","customer_phone":"0241234567""#;
    let rate = (
        vec![json!("CURRENCY_WITHOUT_RATE")],
        vec![json!("currency")],
    );
    assert_eq!(codes(&format!(r#"{{"amount":10,{payer}}}"#)).await, rate);
    let yen = format!(r#"{{"amount":10,"currency":"JPY",{payer}}}"#);
    assert_eq!(codes(&yen).await, rate);
    for currency in ["EUR", "GHS"] {
        let body = format!(r#"{{"amount":10,"currency":"{currency}",{payer}}}"#);
        assert_eq!(codes(&body).await, (vec![], vec![]), "{currency}");
    }
    let all = [
        ("CUSTOMER_EMAIL_OMITTED", "customer_email"),
        ("CUSTOMER_PHONE_OMITTED", "customer_phone"),
        ("CURRENCY_WITHOUT_RATE", "currency"),
    ];
    let all = all.map(|(code, field)| (json!(code), json!(field)));
    assert_eq!(codes(r#"{"amount":10}"#).await, all.into_iter().unzip());
}

#[tokio::test]
async fn all_that_is_wrong_is_told_at_once_and_nothing_is_created() {
    let gateway = Gateway::start().await;
    let answer = gateway
        .post(
            INITIATE,
            r#"{"amount":"25.50","currency":"ghs","description":7,"redirect_url":"javascript:1",
                "customer_email":"ama","customer_name":["Ama"],"customer_phone":"024 ext 5"}"#,
        )
        .header("idempotency-key", "two words")
        .send()
        .await;
    let told = [
        ("amount", "INVALID_TYPE"),
        ("currency", "UNKNOWN_CURRENCY"),
        ("description", "INVALID_TYPE"),
        ("redirect_url", "INVALID_URL"),
        ("customer_email", "INVALID_EMAIL"),
        ("customer_name", "INVALID_TYPE"),
        ("customer_phone", "INVALID_PHONE"),
        ("Idempotency-Key", "INVALID_FORMAT"),
    ];
    let told = told.map(|(field, code)| (field.to_owned(), code.to_owned()));
    assert_eq!(answer.refused_fields(), told);
    assert_eq!(answer.names(), ["code", "error", "fields", "request_id"]);
    assert!(gateway.services.create_session.asked().is_empty());
}

#[tokio::test]
async fn payers_are_sent_back_without_tls_only_where_payments_are_not_real() {
    let body = |url: &str| format!(r#"{{"amount":10,"redirect_url":"{url}"}}"#);
    let trial = Gateway::start().await;
    let answer = trial.initiate(body("http://127.0.0.1:3000/thanks")).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let real = Gateway::start_with(&PRODUCTION).await;
    for url in [
        "http://shop.example.com/thanks",
        "HTTP://shop.example.com",
        "http://127.0.0.1:3000/https://",
        "http://https:443/",
    ] {
        let refused = real.initiate(body(url)).await.refused_fields();
        let told = ("redirect_url".to_owned(), "INVALID_URL".to_owned());
        assert_eq!(refused, [told], "{url}");
    }
    assert!(real.services.create_session.asked().is_empty());
    let answer = real.initiate(body("HTTPS://shop.example.com/a?b=c")).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(real.initiate(r#"{"amount":10}"#).await.status, 201);
}

#[tokio::test]
async fn amounts_out_of_rule_are_refused() {
    let gateway = Gateway::start().await;
    for (amount, currency, code) in [
        ("null", "GHS", "REQUIRED"),
        ("\"1\"", "GHS", "INVALID_TYPE"),
        ("0", "GHS", "NOT_POSITIVE"),
        ("-1", "GHS", "NOT_POSITIVE"),
        ("0.001", "GHS", "TOO_MANY_DECIMALS"),
        ("0.5", "JPY", "TOO_MANY_DECIMALS"),
        ("1e-29", "GHS", "OUT_OF_RANGE"),
        ("1e400", "GHS", "OUT_OF_RANGE"),
        ("10000000000", "GHS", "OUT_OF_RANGE"),
        ("123456789012345678901234567890", "GHS", "OUT_OF_RANGE"),
    ] {
        let body = format!(r#"{{"amount":{amount},"currency":"{currency}"}}"#);
        let refused = gateway.initiate(body).await.refused_fields();
        assert_eq!(
            refused,
            [("amount".to_owned(), code.to_owned())],
            "{amount}"
        );
    }
    let refused = gateway.initiate("{}").await.refused_fields();
    assert_eq!(refused, [("amount".to_owned(), "REQUIRED".to_owned())]);
    let refused = gateway
        .initiate(r#"{"amount":0.001,"currency":"XXX"}"#)
        .await
        .refused_fields();
    let unknown = ("currency".to_owned(), "UNKNOWN_CURRENCY".to_owned());
    assert_eq!(refused, [unknown], "no word on decimals that nobody knows");
    assert!(gateway.services.create_session.asked().is_empty());
}

#[tokio::test]
async fn the_callers_key_is_marked_and_a_repeat_is_told() {
    let gateway = Gateway::start().await;
    gateway.services.create_session.answers(|request| {
        Ok(CreateSessionResponse {
            session: Some(session(request)),
            replayed: true,
        })
    });
    let answer = gateway
        .post(INITIATE, r#"{"amount":1}"#)
        .header("Idempotency-Key", "order-17");
    let answer = answer.send().await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
    let asked = gateway.services.create_session.asked_once();
    assert_eq!(asked.idempotency_key, "c:order-17");
}

#[tokio::test]
async fn without_a_key_each_request_has_one_of_the_gateways() {
    let gateway = Gateway::start().await;
    for _ in 0..2 {
        assert_eq!(gateway.initiate(r#"{"amount":1}"#).await.status, 201);
    }
    let asked = gateway.services.create_session.asked();
    assert!(asked[0].idempotency_key.starts_with("g:"));
    assert_ne!(asked[0].idempotency_key, asked[1].idempotency_key);
}

#[tokio::test]
async fn conflicts_of_keys_are_409() {
    let gateway = Gateway::start().await;
    for (code, reason, retry_after) in [
        (Code::Aborted, "IDEMPOTENCY_IN_PROGRESS", Some("1")),
        (Code::AlreadyExists, "IDEMPOTENCY_KEY_REUSED", None),
    ] {
        let answer = move |_| Err(refusal(code, reason));
        gateway.services.create_session.answers(answer);
        let answer = gateway.initiate(r#"{"amount":1}"#).await;
        answer.assert_error(409, reason);
        assert_eq!(answer.header("retry-after"), retry_after);
    }
    assert_eq!(
        gateway.services.create_session.asked().len(),
        2,
        "a refusal is not repeated"
    );
}

#[tokio::test]
async fn the_alias_does_the_same_and_says_that_it_is_deprecated() {
    let flags = [
        "--alias-deprecated-at",
        "2026-11-01T00:00:00.000Z",
        "--alias-sunset",
        "2027-06-01T12:30:05.000Z",
    ];
    let gateway = Gateway::start_with(&flags).await;
    let answer = gateway
        .post(ALIAS, WHOLE)
        .header("idempotency-key", "k")
        .send()
        .await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json(), gateway.initiate(WHOLE).await.json());
    let asked = gateway.services.create_session.asked();
    assert_eq!(asked[0].idempotency_key, "c:k", "one scope with v1");
    assert_eq!(asked[0].amount, asked[1].amount);
    let refused = gateway.post(ALIAS, "{}").send().await;
    let keyless = gateway.request("POST", ALIAS).json("{}").send().await;
    keyless.assert_error(401, "INVALID_API_KEY");
    refused.assert_error(400, "VALIDATION_ERROR");
    for answer in [answer, refused, keyless] {
        assert_eq!(answer.header("deprecation"), Some("@1793491200"));
        assert_eq!(
            answer.header("sunset"),
            Some("Tue, 01 Jun 2027 12:30:05 GMT")
        );
        let link = "</api/v1/payments/initiate>; rel=\"successor-version\"";
        assert_eq!(answer.header("link"), Some(link));
    }
}

#[tokio::test]
async fn what_a_service_refuses_beyond_the_edges_rules_is_400_with_its_reason() {
    let gateway = Gateway::start().await;
    gateway.services.create_session.answers(|_| {
        let violation = ("description", "must not begin with a dash");
        Err(chassis::grpc::invalid(&[violation]))
    });
    let answer = gateway.initiate(r#"{"amount":1}"#).await;
    let refused = answer.refused_fields();
    assert_eq!(
        refused,
        [("description".to_owned(), "INVALID_FORMAT".to_owned())]
    );
    let told = &answer.json()["fields"][0]["message"];
    assert_eq!(told, "must not begin with a dash");
}

#[tokio::test]
async fn a_fault_behind_the_edge_is_500_and_tells_nothing() {
    let gateway = Gateway::start().await;
    for code in [
        Code::Internal,
        Code::Unknown,
        Code::DataLoss,
        Code::Unimplemented,
    ] {
        let answer = move |_| Err(refusal(code, ""));
        gateway.services.create_session.answers(answer);
        let answer = gateway.initiate(r#"{"amount":1}"#).await;
        answer.assert_error(500, "INTERNAL_ERROR");
        assert_eq!(answer.names(), ["code", "error", "request_id"]);
        assert!(!answer.text().contains("operators"));
    }
    gateway
        .services
        .create_session
        .answers(|_| Ok(CreateSessionResponse::default()));
    let answer = gateway.initiate(r#"{"amount":1}"#).await;
    answer.assert_error(500, "INTERNAL_ERROR");
    assert_eq!(answer.json()["fields"], Value::Null);
}
