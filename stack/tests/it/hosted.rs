//! Charges as the hosted checkout's page makes them: the claim of the session, its release, and
//! sessions in a currency other than the debited one.

use std::time::Duration;

use chassis::grpc;
use futures::future::join_all;
use proto::{
    charges::{ChargeAnswer, ChargeStatus, CreateChargeRequest, HostedSession, Provider},
    money::Money,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::shop::Shop;

/// GHS for one USD.
const RATE: &str = "12.345";

/// Creates a session of 10.00 in this currency. Returns its id.
async fn session(shop: &Shop, currency: &str) -> String {
    let body = json!({ "amount": 10, "currency": currency });
    let created = shop
        .api
        .post("/api/v1/payments/initiate", &body)
        .await
        .unwrap();
    created.expect(201).unwrap();
    created.text("session_id").unwrap().to_owned()
}

fn request(shop: &Shop, session_id: &str, currency: &str, number: &str) -> CreateChargeRequest {
    let (debited, rate) = match currency {
        "GHS" => (1_000, None),
        _ => (12_345, Some(RATE.to_owned())),
    };
    CreateChargeRequest {
        merchant_id: shop.ready.demo.merchant_id.clone(),
        merchant_name: "Demo Shop".to_owned(),
        amount: Some(money(debited, "GHS")),
        mobile_number: number.to_owned(),
        provider: Provider::Mtn.into(),
        description: None,
        payer_email: Some("ama@example.com".to_owned()),
        payer_name: None,
        idempotency_key: format!("g:{}", uuid::Uuid::new_v4()),
        hosted: Some(HostedSession {
            session_id: session_id.to_owned(),
            amount: Some(money(1_000, currency)),
            rate,
        }),
        asked_by: None,
    }
}

fn money(minor_units: i64, currency: &str) -> Money {
    Money {
        minor_units,
        currency: currency.to_owned(),
    }
}

async fn pay(shop: &Shop, request: CreateChargeRequest) -> Result<ChargeAnswer, Status> {
    Ok(shop.charges().create_charge(request).await?.into_inner())
}

fn reference(answer: ChargeAnswer) -> String {
    let charge = answer.charge.unwrap();
    assert_eq!(charge.status(), ChargeStatus::Initiated);
    charge.reference
}

fn check_not_payable(answer: Result<ChargeAnswer, Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert_eq!(
        grpc::reason(&status).as_deref(),
        Some("SESSION_NOT_PAYABLE")
    );
}

#[tokio::test]
async fn a_session_in_another_currency_keeps_it_and_the_ledger_holds_what_was_debited() {
    let shop = Shop::open().await;
    let session_id = session(&shop, "USD").await;
    let request = request(&shop, &session_id, "USD", "+233241234001");
    let reference = reference(pay(&shop, request).await.unwrap());
    assert_eq!(shop.read_session(&session_id).await["status"], "PROCESSING");
    shop.wait_for_end(&reference).await;
    let event = shop.wait_for_event(&reference).await;
    let data = &event["data"];
    assert_eq!(event["type"], "payment.success");
    assert_eq!(
        (&data["amount"], &data["currency"]),
        (&json!(10.0), &json!("USD"))
    );
    assert_eq!(
        (
            &data["settled_amount"],
            &data["settled_currency"],
            &data["rate"]
        ),
        (&json!(123.45), &json!("GHS"), &json!(12.345))
    );
    let session = shop.read_session(&session_id).await;
    assert_eq!(session["status"], "COMPLETED");
    assert_eq!(session["transaction"]["currency"], "USD");
    assert_eq!(shop.balance().await, 12_345);
    shop.close().await;
}

#[tokio::test]
async fn a_declined_payer_may_try_again_and_a_paid_session_is_paid() {
    let shop = Shop::open().await;
    let session_id = session(&shop, "GHS").await;
    let declined = request(&shop, &session_id, "GHS", "+233241234004");
    let first = reference(pay(&shop, declined).await.unwrap());
    let charge = shop.wait_for_end(&first).await;
    assert_eq!(charge["failure_reason"], "PAYER_DECLINED");
    let event = shop.wait_for_event(&first).await;
    assert_eq!(event["type"], "payment.failed");
    assert_eq!(event["data"]["session_status"], "PENDING");
    assert_eq!(shop.read_session(&session_id).await["status"], "PENDING");
    let good = request(&shop, &session_id, "GHS", "+233241234001");
    let second = reference(pay(&shop, good).await.unwrap());
    shop.wait_for_event(&second).await;
    let session = shop.read_session(&session_id).await;
    assert_eq!(session["status"], "COMPLETED");
    assert_eq!(session["transaction"]["failure_reason"], Value::Null);
    let again = request(&shop, &session_id, "GHS", "+233241234008");
    check_not_payable(pay(&shop, again).await);
    assert!(
        shop.book("+233241234008").await.is_empty(),
        "nothing was sent"
    );
    assert_eq!(shop.balance().await, 1_000);
    shop.close().await;
}

#[tokio::test]
async fn however_many_tabs_pay_at_once_one_prompt_goes_out() {
    let shop = Shop::open().await;
    let session_id = session(&shop, "GHS").await;
    let tabs = (0..20).map(|_| {
        let request = request(&shop, &session_id, "GHS", "+233241234001");
        pay(&shop, request)
    });
    let (paid, refused): (Vec<_>, Vec<_>) =
        join_all(tabs).await.into_iter().partition(Result::is_ok);
    assert_eq!(paid.len(), 1);
    refused.into_iter().for_each(check_not_payable);
    let reference = reference(paid.into_iter().next().unwrap().unwrap());
    shop.wait_for_event(&reference).await;
    let book = shop.book("+233241234001").await;
    assert_eq!(
        (book.len(), &book[0]["requests"]),
        (1, &json!(1)),
        "{book:?}"
    );
    shop.close().await;
}

#[tokio::test]
async fn an_expired_session_is_not_payable_and_a_charge_in_flight_does_not_expire() {
    let shop = Shop::open().await;
    let expired = session(&shop, "GHS").await;
    let waiting = session(&shop, "GHS").await;
    // Waits until a person approves it.
    let request_waiting = request(&shop, &waiting, "GHS", "+233241234100");
    let reference = reference(pay(&shop, request_waiting).await.unwrap());
    shop.advance(Duration::from_secs(25 * 60 * 60)).await;
    let late = request(&shop, &expired, "GHS", "+233241234001");
    check_not_payable(pay(&shop, late).await);
    assert_eq!(shop.read_session(&expired).await["status"], "EXPIRED");
    assert!(
        shop.book("+233241234001").await.is_empty(),
        "nothing was sent"
    );
    assert_eq!(shop.read_session(&waiting).await["status"], "PROCESSING");
    assert_eq!(shop.read_charge(&reference).await["status"], "INITIATED");
    let case = shop.wait_for_case(&reference).await;
    assert_eq!(case.kind(), proto::charges::CaseKind::UnknownOutcome);
    shop.close().await;
}
