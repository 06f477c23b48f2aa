//! Direct charges: debiting, submitting an OTP, reading (spec §4.3–§4.5).

use proto::charges::{AskedBy, Charge, ChargeAnswer, ChargeStatus, CreateChargeRequest, Provider};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    gateway::{CHARGE, Gateway, SUBMIT_OTP},
    services::{REFERENCE, SESSION_ID, TRANSACTION_ID, charge, merchant, money, refusal},
};

const WHOLE: &str = r#"{
    "amount": 25.50, "mobile_number": "024 123 4567", "provider": "TELECEL", "currency": "GHS",
    "description": " Order 17 ", "payer_email": "ama@example.com", "payer_name": "Ama Mensah"
}"#;

const LEAST: &str = r#"{"amount": 25.5, "mobile_number": "+233241234567", "provider": "MTN"}"#;

fn answer(status: ChargeStatus, message: &str) -> ChargeAnswer {
    ChargeAnswer {
        charge: Some(charge(status, money(2550, "GHS"))),
        message: message.to_owned(),
        replayed: false,
    }
}

/// The body with which both POSTs are answered.
fn shape(status: &str, message: &str) -> Value {
    json!({
        "reference": REFERENCE,
        "transaction_id": TRANSACTION_ID,
        "session_id": SESSION_ID,
        "status": status,
        "amount": 25.50,
        "currency": "GHS",
        "message": message,
    })
}

#[tokio::test]
async fn a_charge_is_made_from_what_the_merchant_says() {
    let gateway = Gateway::start().await;
    let answer = gateway.charge(WHOLE).await;
    assert_eq!(answer.status, 202);
    let told = "Approve the payment on your phone.";
    assert_eq!(answer.json(), shape("INITIATED", told));
    assert!(answer.text().contains(r#""amount":25.50,"#));
    let mut asked = gateway.services.create_charge.asked_once();
    assert!(asked.idempotency_key.starts_with("g:"));
    asked.idempotency_key.clear();
    let expected = CreateChargeRequest {
        merchant_id: merchant().merchant_id,
        merchant_name: "Kente Shop".to_owned(),
        amount: money(2550, "GHS"),
        mobile_number: "+233241234567".to_owned(),
        provider: Provider::Telecel.into(),
        description: Some("Order 17".to_owned()),
        payer_email: Some("ama@example.com".to_owned()),
        payer_name: Some("Ama Mensah".to_owned()),
        idempotency_key: String::new(),
        hosted: None,
        asked_by: Some(AskedBy {
            request_id: answer.header("x-request-id").map(ToOwned::to_owned),
            key_name: Some("Till 1".to_owned()),
        }),
    };
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn what_may_be_left_out_may_be_left_out() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.charge(LEAST).await.status, 202);
    let asked = gateway.services.create_charge.asked_once();
    assert_eq!(asked.amount, money(2550, "GHS"));
    assert_eq!(asked.provider(), Provider::Mtn);
    let rest = (asked.description, asked.payer_email, asked.payer_name);
    assert_eq!(rest, (None, None, None));
}

#[tokio::test]
async fn the_status_decides_between_202_and_422() {
    let gateway = Gateway::start().await;
    let otp = format!(r#"{{"reference":"{REFERENCE}","otp":"123456"}}"#);
    for (status, code, shown) in [
        (ChargeStatus::Initiated, 202, "INITIATED"),
        (ChargeStatus::OtpRequired, 202, "OTP_REQUIRED"),
        (ChargeStatus::Failed, 422, "FAILED"),
        (ChargeStatus::Settled, 202, "INITIATED"),
    ] {
        let told = move |_| Ok(answer(status, "why"));
        gateway.services.create_charge.answers(told);
        let told = move |_| Ok(answer(status, "why"));
        gateway.services.submit_otp.answers(told);
        for answer in [
            gateway.charge(LEAST).await,
            gateway.post(SUBMIT_OTP, &otp).send().await,
        ] {
            assert_eq!(answer.status, code);
            assert_eq!(answer.json(), shape(shown, "why"));
            assert!(answer.header("ratelimit").is_some());
        }
    }
}

#[tokio::test]
async fn all_that_is_wrong_with_a_charge_is_told_at_once() {
    let gateway = Gateway::start().await;
    let refused = async |body: &str| {
        let told = gateway.charge(body).await.refused_fields();
        told.into_iter()
            .map(|(field, code)| format!("{field} {code}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        refused("{}").await,
        [
            "amount REQUIRED",
            "mobile_number REQUIRED",
            "provider REQUIRED"
        ]
    );
    assert_eq!(
        refused(
            r#"{"amount":25.505,"mobile_number":241234567,"provider":"mtn","currency":"USD",
                "description":"a\u0000b","payer_email":"ama@","payer_name":{}}"#
        )
        .await,
        [
            "amount TOO_MANY_DECIMALS",
            "mobile_number INVALID_TYPE",
            "provider UNKNOWN_PROVIDER",
            "currency UNSUPPORTED_CURRENCY",
            "description CONTROL_CHARACTER",
            "payer_email INVALID_EMAIL",
            "payer_name INVALID_TYPE",
        ]
    );
    let long = "é".repeat(501);
    let body = format!(
        r#"{{"amount":1,"mobile_number":"+442079460958","provider":"AT","description":"{long}"}}"#
    );
    assert_eq!(
        refused(&body).await,
        ["mobile_number INVALID_PHONE", "description TOO_LONG"]
    );
    assert!(gateway.services.create_charge.asked().is_empty());
}

#[tokio::test]
async fn a_charge_under_the_callers_key_is_marked_and_a_repeat_is_told() {
    let gateway = Gateway::start().await;
    gateway.services.create_charge.answers(|_| {
        Ok(ChargeAnswer {
            replayed: true,
            ..answer(ChargeStatus::Failed, "no such wallet")
        })
    });
    let answer = gateway
        .post(CHARGE, LEAST)
        .header("idempotency-key", "order-17")
        .send()
        .await;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
    let asked = gateway.services.create_charge.asked_once();
    assert_eq!(asked.idempotency_key, "c:order-17");
}

#[tokio::test]
async fn charges_svc_says_when_nothing_was_started() {
    let gateway = Gateway::start().await;
    let refuse = |reason: &'static str| {
        gateway
            .services
            .create_charge
            .answers(move |_| Err(refusal(Code::Unavailable, reason)));
    };
    refuse("NOTHING_STARTED");
    let answer = gateway.charge(LEAST).await;
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(answer.header("retry-after"), Some("1"));
    refuse("STORE_UNAVAILABLE");
    let answer = gateway.charge(LEAST).await;
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(
        answer.header("retry-after"),
        None,
        "something may have been"
    );
    assert_eq!(
        gateway.services.create_charge.asked().len(),
        2,
        "an answer is not asked again"
    );
}

#[tokio::test]
async fn an_otp_is_passed_on_as_it_is() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .submit_otp
        .answers(|_| Ok(answer(ChargeStatus::Initiated, "thanks")));
    let body = format!(r#"{{"reference":" {REFERENCE} ","otp":" 012345 "}}"#);
    assert_eq!(gateway.post(SUBMIT_OTP, body).send().await.status, 202);
    let asked = gateway.services.submit_otp.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
    assert_eq!(
        (asked.reference.as_str(), asked.otp.as_str()),
        (REFERENCE, "012345")
    );
}

#[tokio::test]
async fn an_otp_that_is_not_awaited_is_409() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .submit_otp
        .answers(|_| Err(refusal(Code::FailedPrecondition, "CHARGE_NOT_AWAITING_OTP")));
    let body = format!(r#"{{"reference":"{REFERENCE}","otp":"123456"}}"#);
    let answer = gateway.post(SUBMIT_OTP, body).send().await;
    answer.assert_error(409, "CHARGE_NOT_AWAITING_OTP");
}

#[tokio::test]
async fn a_submit_without_sense_is_400_and_one_for_no_charge_is_404() {
    let gateway = Gateway::start().await;
    let submit = async |body: &str| gateway.post(SUBMIT_OTP, body).send().await;
    let told = submit("{}").await.refused_fields();
    assert_eq!(told[0], ("reference".to_owned(), "REQUIRED".to_owned()));
    assert_eq!(told[1], ("otp".to_owned(), "REQUIRED".to_owned()));
    let told = submit(r#"{"reference":"nonsense","otp":123456}"#)
        .await
        .refused_fields();
    assert_eq!(told, [("otp".to_owned(), "INVALID_TYPE".to_owned())]);
    let malformed = submit(r#"{"reference":"nonsense","otp":"123456"}"#).await;
    malformed.assert_error(404, "NOT_FOUND");
    assert!(gateway.services.submit_otp.asked().is_empty());
    let unknown = submit(&format!(r#"{{"reference":"{REFERENCE}","otp":"123456"}}"#)).await;
    unknown.assert_error(404, "NOT_FOUND");
    assert_eq!(unknown.json()["error"], malformed.json()["error"]);
    assert_eq!(gateway.services.submit_otp.asked().len(), 1);
}

#[tokio::test]
async fn a_charge_is_read_with_all_its_fields() {
    let gateway = Gateway::start().await;
    let read = async |status: ChargeStatus, reason: Option<&'static str>| {
        gateway.services.get_charge.answers(move |_| {
            Ok(Charge {
                failure_reason: reason.map(str::to_owned),
                failure_message: reason.map(|_| "The payer has too little money.".to_owned()),
                ..charge(status, money(2550, "GHS"))
            })
        });
        gateway.get(&format!("{CHARGE}/{REFERENCE}")).send().await
    };
    for (status, shown) in [
        (ChargeStatus::Initiated, "INITIATED"),
        (ChargeStatus::OtpRequired, "OTP_REQUIRED"),
        (ChargeStatus::Settled, "SETTLED"),
    ] {
        let answer = read(status, None).await;
        assert_eq!(answer.status, 200);
        let expected = json!({
            "reference": REFERENCE,
            "transaction_id": TRANSACTION_ID,
            "session_id": SESSION_ID,
            "status": shown,
            "amount": 25.50,
            "currency": "GHS",
            "method": "MOBILE_MONEY",
            "failure_reason": null,
            "created_at": "2026-01-31T09:00:00.000Z",
            "updated_at": "2026-01-31T09:00:01.250Z",
        });
        assert_eq!(answer.json(), expected);
    }
    let failed = read(ChargeStatus::Failed, Some("INSUFFICIENT_FUNDS"))
        .await
        .json();
    assert_eq!(failed["status"], "FAILED");
    assert_eq!(failed["failure_reason"], "INSUFFICIENT_FUNDS");
    assert_eq!(failed["failure_message"], "The payer has too little money.");
    let asked = gateway.services.get_charge.asked().pop().unwrap();
    assert_eq!(
        (asked.merchant_id, asked.reference),
        (merchant().merchant_id, REFERENCE.to_owned())
    );
}

#[tokio::test]
async fn an_unknown_and_a_malformed_reference_look_the_same() {
    let gateway = Gateway::start().await;
    let longest = "a".repeat(2000);
    for reference in [
        REFERENCE,
        "TX-0123456789",
        "tx-0123456789-abcdef",
        "x",
        "submit",
        "status",
        "%ff",
        "%00",
        "a%2Fb",
        "..%2f..",
        "'%20or%201=1",
        &longest,
    ] {
        let answer = gateway.get(&format!("{CHARGE}/{reference}")).send().await;
        answer.assert_error(404, "NOT_FOUND");
        assert_eq!(answer.names(), ["code", "error", "request_id"]);
        assert_eq!(
            answer.json()["error"],
            "There is nothing here by that name."
        );
    }
    assert_eq!(
        gateway.services.get_charge.asked().len(),
        1,
        "only what can be a reference"
    );
}
