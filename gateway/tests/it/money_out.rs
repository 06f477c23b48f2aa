//! Balance, payouts and refunds.

use proto::charges::{
    DisbursementStatus, GetBalanceResponse, ListPayoutsResponse, ListRefundsResponse, Payout,
    PayoutAnswer,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    gateway::{Gateway, PAYOUTS, REFUNDS},
    services::{
        PAYOUT_ID, REFERENCE, REFUND_ID, SESSION_ID, merchant, money, payout, refund, refusal,
        refusal_with,
    },
};

fn refunds() -> String {
    REFUNDS.replace("{reference}", REFERENCE)
}

/// Where a list goes on.
const NEXT: &str = "1769850000000.0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e";

#[tokio::test]
async fn the_balance_always_has_cedis_and_two_decimals() {
    let gateway = Gateway::start().await;
    let answer = gateway.get("/api/v1/balance").send().await;
    let none =
        r#"{"balances":[{"currency":"GHS","available":0.00,"reserved":0.00}],"payout_fee":null}"#;
    assert_eq!((answer.status, answer.text()), (200, none));
    gateway.services.get_balance.answers(|_| {
        Ok(GetBalanceResponse {
            available: vec![money(-550, "GHS").unwrap()],
            reserved: vec![money(100, "GHS").unwrap()],
            payout_fee: money(0, "GHS"),
            suspense: Vec::new(),
        })
    });
    let answer = gateway.get("/api/v1/balance").send().await;
    let taken_back =
        r#"{"balances":[{"currency":"GHS","available":-5.50,"reserved":1.00}],"payout_fee":0.00}"#;
    assert_eq!(answer.text(), taken_back);
    let asked = gateway.services.get_balance.asked();
    assert_eq!(asked[0].merchant_id, merchant().merchant_id);
}

#[tokio::test]
async fn a_payout_is_asked_for_once_under_its_key_and_shown_as_it_stands() {
    let gateway = Gateway::start().await;
    let body = r#"{"amount": 12.50, "currency": "GHS"}"#;
    let request = gateway.post(PAYOUTS, body).header("idempotency-key", "p-1");
    let answer = request.send().await;
    assert_eq!(answer.status, 202);
    assert!(answer.text().contains(r#""amount":12.50,"#));
    assert_eq!(answer.header("idempotent-replayed"), None);
    let expected = json!({
        "payout_id": PAYOUT_ID,
        "status": "PENDING",
        "amount": 12.50,
        "fee": 1.00,
        "currency": "GHS",
        "method": "MOBILE_MONEY",
        "destination": { "type": "MOBILE_MONEY", "provider": "MTN", "account": "024 ••• 4567" },
        "scheduled": false,
        "failure_reason": null,
        "created_at": "2026-01-31T09:00:00.000Z",
        "updated_at": "2026-01-31T09:00:00.000Z",
        "completed_at": null,
        "reversed_at": null,
    });
    assert_eq!(answer.json(), expected);
    let asked = gateway.services.create_payout.asked_once();
    assert_eq!(asked.idempotency_key, "c:p-1");
    assert_eq!(asked.amount, money(1250, "GHS"));
    gateway.services.create_payout.answers(|request| {
        Ok(PayoutAnswer {
            payout: Some(payout(request.amount)),
            replayed: true,
        })
    });
    let request = gateway.post(PAYOUTS, body).header("idempotency-key", "p-1");
    let again = request.send().await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    gateway.services.get_payout.answers(|_| {
        Ok(Payout {
            status: DisbursementStatus::Failed.into(),
            failure_reason: Some("PAYEE_NOT_FOUND".to_owned()),
            failure_message: Some("There is no such account.".to_owned()),
            ..payout(money(1250, "GHS"))
        })
    });
    let failed = gateway.get(&format!("{PAYOUTS}/{PAYOUT_ID}")).send().await;
    let failed = failed.json();
    assert_eq!(failed["failure_reason"], "PAYEE_NOT_FOUND");
    assert_eq!(failed["failure_message"], "There is no such account.");
}

#[tokio::test]
async fn a_refund_is_of_a_part_or_of_all_that_is_left() {
    let gateway = Gateway::start().await;
    for (body, amount) in [
        (r#"{"amount": 5.5}"#, money(550, "GHS")),
        ("{}", None),
        (r#"{"amount": null, "currency": null}"#, None),
    ] {
        let answer = gateway.post(&refunds(), body).send().await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let asked = gateway.services.create_refund.asked().pop().unwrap();
        assert_eq!(
            (asked.amount, asked.reference.as_str()),
            (amount, REFERENCE)
        );
        assert!(asked.idempotency_key.starts_with("g:"));
    }
    gateway
        .services
        .get_refund
        .answers(|_| Ok(refund(money(550, "GHS"))));
    let read = gateway.get(&format!("/api/v1/refunds/{REFUND_ID}"));
    let read = read.send().await.json();
    assert_eq!(
        (&read["reference"], &read["refund_id"]),
        (&json!(REFERENCE), &json!(REFUND_ID))
    );
}

/// An amount under another name would be ignored, and everything refunded.
#[tokio::test]
async fn a_misspelt_amount_refunds_nothing() {
    let gateway = Gateway::start().await;
    for (body, field) in [
        (r#"{"amout": 5.5}"#, "amout"),
        (r#"{"amount": 5.5, "Amount": 1}"#, "Amount"),
    ] {
        let answer = gateway.post(&refunds(), body).send().await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["fields"][0]["field"], field);
    }
    assert!(gateway.services.create_refund.asked().is_empty());
}

#[tokio::test]
async fn why_money_cannot_go_out_is_told_with_what_there_is() {
    let gateway = Gateway::start().await;
    let refused = Code::FailedPrecondition;
    for (status, code, told, shown) in [
        (
            Code::PermissionDenied,
            "PAYOUTS_NOT_ENABLED",
            vec![],
            json!({}),
        ),
        (
            refused,
            "PAYOUT_ACCOUNT_ON_HOLD",
            vec![("held_until", "2026-02-01T09:00:00.000Z")],
            json!({ "held_until": "2026-02-01T09:00:00.000Z" }),
        ),
        (
            refused,
            "INSUFFICIENT_BALANCE",
            vec![("available_minor", "-325"), ("currency", "GHS")],
            json!({ "available": -3.25, "currency": "GHS" }),
        ),
        (refused, "CHARGE_NOT_SETTLED", vec![], json!({})),
        (
            refused,
            "REFUND_EXCEEDS_CHARGE",
            vec![("refundable_minor", "1549"), ("currency", "GHS")],
            json!({ "refundable": 15.49, "currency": "GHS" }),
        ),
    ] {
        let refusing = told.clone();
        gateway
            .services
            .create_refund
            .answers(move |_| Err(refusal_with(status, code, &refusing)));
        let answer = gateway.post(&refunds(), "{}").send().await;
        let http = if code == "PAYOUTS_NOT_ENABLED" {
            403
        } else {
            422
        };
        answer.assert_error(http, code);
        for (name, value) in shown.as_object().unwrap() {
            assert_eq!(answer.json()[name], *value, "{code}");
        }
        if !told.is_empty() {
            // Without what there is, the refusal is a fault of ours.
            gateway
                .services
                .create_refund
                .answers(move |_| Err(refusal(status, code)));
            let answer = gateway.post(&refunds(), "{}").send().await;
            answer.assert_error(500, "INTERNAL_ERROR");
        }
    }
}

/// What it tells is as old as the first answer.
#[tokio::test]
async fn a_refusal_that_is_told_again_says_so_to_whoever_sent_the_key() {
    let gateway = Gateway::start().await;
    for (replayed, key, header) in [
        (true, Some("k-1"), Some("true")),
        (false, Some("k-1"), None),
        // The gateway's own repeats are none of the caller's.
        (true, None, None),
    ] {
        let mut told = vec![("available_minor", "550"), ("currency", "GHS")];
        told.extend(replayed.then_some(("replayed", "true")));
        let refused = refusal_with(Code::FailedPrecondition, "INSUFFICIENT_BALANCE", &told);
        let again = refused.clone();
        let services = &gateway.services;
        services
            .create_payout
            .answers(move |_| Err(refused.clone()));
        services.create_refund.answers(move |_| Err(again.clone()));
        for (path, body) in [(PAYOUTS, r#"{"amount": 12.5}"#), (&refunds(), "{}")] {
            let mut request = gateway.post(path, body);
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            let answer = request.send().await;
            answer.assert_error(422, "INSUFFICIENT_BALANCE");
            assert_eq!(answer.header("idempotent-replayed"), header, "{key:?}");
        }
    }
}

#[tokio::test]
async fn bad_amounts_are_named_and_nothing_is_asked() {
    let gateway = Gateway::start().await;
    for (body, field, code) in [
        (r#"{"amount": 0}"#, "amount", "NOT_POSITIVE"),
        (r#"{"amount": -1}"#, "amount", "NOT_POSITIVE"),
        (r#"{"amount": 1.005}"#, "amount", "TOO_MANY_DECIMALS"),
        (r#"{"amount": "5"}"#, "amount", "INVALID_TYPE"),
        (r#"{"amount": 1e30}"#, "amount", "OUT_OF_RANGE"),
        (
            r#"{"amount": 1, "currency": "USD"}"#,
            "currency",
            "UNSUPPORTED_CURRENCY",
        ),
    ] {
        for path in [PAYOUTS, &refunds()] {
            let answer = gateway.post(path, body).send().await;
            let refused = answer.refused_fields();
            assert_eq!(refused, [(field.to_owned(), code.to_owned())], "{body}");
        }
    }
    let answer = gateway.post(PAYOUTS, "{}").send().await;
    let missing = ("amount".to_owned(), "REQUIRED".to_owned());
    assert_eq!(answer.refused_fields(), [missing]);
    assert!(gateway.services.create_payout.asked().is_empty());
    assert!(gateway.services.create_refund.asked().is_empty());
}

#[tokio::test]
async fn what_is_nobodys_or_anothers_is_not_found() {
    let gateway = Gateway::start().await;
    for path in [
        "/api/v1/payouts/PO-0123456789",
        "/api/v1/payouts/po-1",
        "/api/v1/refunds/RF-0123456789",
        "/api/v1/refunds/x",
        "/api/v1/refunds/%ff",
    ] {
        let answer = gateway.get(path).send().await;
        answer.assert_error(404, "NOT_FOUND");
    }
    for reference in ["x", "%ff", "TX-0123456789"] {
        let path = REFUNDS.replace("{reference}", reference);
        let answer = gateway.post(&path, "{}").send().await;
        answer.assert_error(404, "NOT_FOUND");
    }
    assert!(gateway.services.create_refund.asked().is_empty());
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let gateway = Gateway::start().await;
    gateway.services.list_payouts.answers(|_| {
        Ok(ListPayoutsResponse {
            payouts: vec![payout(money(1250, "GHS"))],
            next_page_token: NEXT.to_owned(),
        })
    });
    let first = gateway.get(PAYOUTS).send().await.json();
    assert_eq!(first["data"][0]["payout_id"], PAYOUT_ID);
    assert_eq!(first["next_cursor"], NEXT);
    let path = format!("{PAYOUTS}?limit=100&cursor={NEXT}");
    assert_eq!(gateway.get(&path).send().await.status, 200);
    let path = format!("/api/v1/refunds?reference={REFERENCE}&session_id={SESSION_ID}");
    let last = gateway.get(&path).send().await.json();
    assert_eq!(last, json!({ "data": [], "next_cursor": Value::Null }));
    let asked = gateway.services.list_payouts.asked();
    let asked: Vec<_> = asked
        .iter()
        .map(|one| (one.page_size, one.page_token.as_str()))
        .collect();
    assert_eq!(asked, [(20, ""), (100, NEXT)]);
    let asked = gateway.services.list_refunds.asked_once();
    assert_eq!(asked.reference, REFERENCE);
    assert_eq!(asked.session_id.as_deref(), Some(SESSION_ID));
}

/// An older charges-svc does not know the filter, and a merchant may give back what it finds.
#[tokio::test]
async fn refunds_of_other_sessions_are_left_out() {
    let gateway = Gateway::start().await;
    gateway.services.list_refunds.answers(|_| {
        Ok(ListRefundsResponse {
            refunds: vec![refund(money(500, "GHS"))],
            next_page_token: NEXT.to_owned(),
        })
    });
    for (session_id, found) in [(SESSION_ID, 1), (&SESSION_ID.replace('7', "8"), 0)] {
        let path = format!("/api/v1/refunds?session_id={session_id}");
        let page = gateway.get(&path).send().await.json();
        assert_eq!(page["data"].as_array().map(Vec::len), Some(found));
        assert_eq!(page["next_cursor"], NEXT);
    }
}

#[tokio::test]
async fn bad_parameters_are_all_named() {
    let gateway = Gateway::start().await;
    for (query, refused) in [
        ("limit=0", vec![("limit", "OUT_OF_RANGE")]),
        ("limit=101", vec![("limit", "OUT_OF_RANGE")]),
        ("limit=", vec![("limit", "OUT_OF_RANGE")]),
        (
            "limit=-1&cursor=x",
            vec![("limit", "OUT_OF_RANGE"), ("cursor", "INVALID_FORMAT")],
        ),
        ("limit=5&limit=5", vec![("limit", "INVALID_FORMAT")]),
        ("cursor=%00", vec![("cursor", "INVALID_FORMAT")]),
    ] {
        for path in [PAYOUTS, "/api/v1/refunds"] {
            let answer = gateway.get(&format!("{path}?{query}")).send().await;
            let named = answer.refused_fields();
            let named: Vec<_> = named
                .iter()
                .map(|(a, b)| (a.as_str(), b.as_str()))
                .collect();
            assert_eq!(named, refused, "{query}");
        }
    }
    let answer = gateway.get("/api/v1/refunds?reference=TX-1").send().await;
    let named = ("reference".to_owned(), "INVALID_FORMAT".to_owned());
    assert_eq!(answer.refused_fields(), [named]);
    assert!(gateway.services.list_payouts.asked().is_empty());
}
