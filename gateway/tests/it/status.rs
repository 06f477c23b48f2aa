//! Reading a session (spec §4.2).

use proto::sessions::{
    CreateSessionRequest, Session, SessionStatus, Settlement, Transaction, TransactionStatus,
};
use serde_json::json;

use crate::{
    gateway::Gateway,
    http::Answer,
    services::{SESSION_ID, TRANSACTION_ID, merchant, money, session},
};

fn transaction(status: TransactionStatus) -> Transaction {
    Transaction {
        transaction_id: TRANSACTION_ID.to_owned(),
        tx_id_display: "TX-0123456789".to_owned(),
        status: status.into(),
        method: "MOBILE_MONEY".to_owned(),
        amount: money(1000, "USD"),
        failure_reason: None,
        failure_message: None,
        settlement: None,
        created_at: "2026-01-31T09:05:00.000Z".to_owned(),
        updated_at: "2026-01-31T09:05:01.000Z".to_owned(),
        wallet: None,
    }
}

async fn read(gateway: &Gateway, status: SessionStatus, latest: Option<Transaction>) -> Answer {
    gateway.services.get_session.answers(move |_| {
        Ok(Session {
            status: status.into(),
            transaction: latest.clone(),
            ..session(CreateSessionRequest {
                amount: money(1000, "USD"),
                ..CreateSessionRequest::default()
            })
        })
    });
    gateway
        .get(&format!("/api/v1/payments/{SESSION_ID}/status"))
        .send()
        .await
}

#[tokio::test]
async fn an_unpaid_session_has_no_transaction() {
    let gateway = Gateway::start().await;
    let answer = read(&gateway, SessionStatus::Pending, None).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains(r#""amount":10.00,"#));
    let expected = json!({
        "session_id": SESSION_ID,
        "status": "PENDING",
        "amount": 10.00,
        "currency": "USD",
        "description": null,
        "expires_at": "2026-02-01T09:00:00.000Z",
        "created_at": "2026-01-31T09:00:00.000Z",
    });
    assert_eq!(answer.json(), expected);
    let asked = gateway.services.get_session.asked_once();
    assert_eq!(
        (asked.session_id.as_str(), asked.merchant_id),
        (SESSION_ID, merchant().merchant_id)
    );
}

#[tokio::test]
async fn every_status_is_shown_by_its_name() {
    let gateway = Gateway::start().await;
    for (status, shown) in [
        (SessionStatus::Pending, "PENDING"),
        (SessionStatus::Processing, "PROCESSING"),
        (SessionStatus::Completed, "COMPLETED"),
        (SessionStatus::Failed, "FAILED"),
        (SessionStatus::Expired, "EXPIRED"),
    ] {
        assert_eq!(read(&gateway, status, None).await.json()["status"], shown);
    }
    for (status, shown) in [
        (TransactionStatus::Initiated, "INITIATED"),
        (TransactionStatus::OtpRequired, "OTP_REQUIRED"),
        (TransactionStatus::Settled, "SETTLED"),
        (TransactionStatus::Failed, "FAILED"),
    ] {
        let latest = Some(transaction(status));
        let answer = read(&gateway, SessionStatus::Processing, latest).await;
        assert_eq!(answer.json()["transaction"]["status"], shown);
    }
}

#[tokio::test]
async fn the_latest_transaction_is_shown_with_why_it_failed() {
    let gateway = Gateway::start().await;
    let failed = Transaction {
        failure_reason: Some("PAYER_DECLINED".to_owned()),
        failure_message: Some("The payer declined.".to_owned()),
        ..transaction(TransactionStatus::Failed)
    };
    let answer = read(&gateway, SessionStatus::Pending, Some(failed)).await;
    let expected = json!({
        "transaction_id": TRANSACTION_ID,
        "tx_id_display": "TX-0123456789",
        "status": "FAILED",
        "method": "MOBILE_MONEY",
        "amount": 10.00,
        "currency": "USD",
        "failure_reason": "PAYER_DECLINED",
        "failure_message": "The payer declined.",
    });
    assert_eq!(answer.json()["transaction"], expected);
}

#[tokio::test]
async fn a_debit_in_another_currency_is_shown_beside_the_sessions_own() {
    let gateway = Gateway::start().await;
    let settled = Transaction {
        settlement: Some(Settlement {
            amount: money(12_345, "GHS"),
            rate: "12.3450".to_owned(),
        }),
        ..transaction(TransactionStatus::Settled)
    };
    let answer = read(&gateway, SessionStatus::Completed, Some(settled)).await;
    let shown = &answer.json()["transaction"];
    assert_eq!(
        (&shown["amount"], &shown["currency"]),
        (&json!(10.00), &json!("USD"))
    );
    let settlement = r#""settled_amount":123.45,"settled_currency":"GHS","rate":12.3450"#;
    assert!(answer.text().contains(settlement), "{}", answer.text());
    assert_eq!(shown["failure_reason"], json!(null));
}

#[tokio::test]
async fn an_unknown_and_a_malformed_session_look_the_same() {
    let gateway = Gateway::start().await;
    let braced = format!("{{{SESSION_ID}}}");
    let plain = SESSION_ID.replace('-', "");
    for session_id in [
        SESSION_ID, &braced, &plain, "initiate", "charge1", "%ff", "a%2Fb", "1",
    ] {
        let path = format!("/api/v1/payments/{session_id}/status");
        let answer = gateway.get(&path).send().await;
        answer.assert_error(404, "NOT_FOUND");
        assert_eq!(answer.names(), ["code", "error", "request_id"]);
        assert_eq!(
            answer.json()["error"],
            "There is nothing here by that name."
        );
    }
    assert_eq!(gateway.services.get_session.asked().len(), 1);
}
