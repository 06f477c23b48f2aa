//! Lists of payments, charges, customers, payouts and refunds.

use proto::{
    charges::{
        Charge, ChargeStatus, ListChargesResponse, ListPayoutsResponse, ListRefundsResponse,
        ListedCharge, Payout, Refund,
    },
    sessions::{
        CreateSessionRequest, Customer, ListCustomersResponse, ListSessionsResponse, Session,
        SessionStatus, Transaction, TransactionStatus, Wallet,
    },
};
use serde_json::{Value, json};

use crate::{
    gateway::{Gateway, PAYOUTS},
    services::{
        PAYOUT_ID, REFERENCE, REFUND_ID, SESSION_ID, TRANSACTION_ID, charge, merchant, money,
        payout, refund, session,
    },
};

const PAYMENTS: &str = "/api/v1/payments";
const CHARGES: &str = "/api/v1/charges";
const CUSTOMERS: &str = "/api/v1/customers";
const REFUNDS: &str = "/api/v1/refunds";
const CUSTOMER_ID: &str = "CUS-0123456789";

fn next(id: &str) -> String {
    format!("1769850000000.{id}")
}

fn customer() -> Customer {
    Customer {
        customer_id: CUSTOMER_ID.to_owned(),
        phone: Some("+233241234567".to_owned()),
        email: None,
        name: Some("Ama Mensah".to_owned()),
        created_at: "2026-01-31T09:00:00.000Z".to_owned(),
        last_payment_at: None,
        payments_count: 0,
    }
}

#[tokio::test]
async fn charges_are_listed_with_provider_and_masked_payer() {
    let gateway = Gateway::start().await;
    gateway.services.list_charges.answers(|_| {
        Ok(ListChargesResponse {
            charges: vec![ListedCharge {
                charge: Some(charge(ChargeStatus::Settled, money(2550, "GHS"))),
                payer_masked: "024 ••• 4567".to_owned(),
            }],
            next_page_token: next(TRANSACTION_ID),
        })
    });
    let answer = gateway.get(CHARGES).send().await;
    assert!(
        answer.text().contains(r#""amount":25.50,"#),
        "{}",
        answer.text()
    );
    let expected = json!({
        "data": [{
            "reference": REFERENCE,
            "transaction_id": TRANSACTION_ID,
            "tx_id_display": "TX-0123456789",
            "session_id": SESSION_ID,
            "status": "SETTLED",
            "amount": 25.5,
            "currency": "GHS",
            "method": "MOBILE_MONEY",
            "provider": "MTN",
            "payer": "024 ••• 4567",
            "failure_reason": null,
            "created_at": "2026-01-31T09:00:00.000Z",
            "updated_at": "2026-01-31T09:00:01.250Z",
        }],
        "next_cursor": next(TRANSACTION_ID),
    });
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn every_parameter_of_charges_reaches_the_service_in_its_own_form() {
    let gateway = Gateway::start().await;
    let path = format!(
        "{CHARGES}?limit=5&cursor={}&from=2026-01-31T10:00:00%2B01:00&to=2026-02-01T00:00:00Z\
         &reference={REFERENCE}&session_id={SESSION_ID}&phone=024%20123%204567&status=OTP_REQUIRED\
         &provider=AT",
        next(TRANSACTION_ID)
    );
    let answer = gateway.get(&path).send().await;
    assert_eq!(
        answer.json(),
        json!({ "data": [], "next_cursor": Value::Null })
    );
    let asked = gateway.services.list_charges.asked_once();
    assert_eq!(asked.merchant_id, merchant().merchant_id);
    assert_eq!(
        (asked.page_size, &asked.page_token),
        (5, &next(TRANSACTION_ID))
    );
    assert_eq!(asked.from, "2026-01-31T09:00:00.000Z");
    assert_eq!(asked.to, "2026-02-01T00:00:00.000Z");
    assert_eq!(asked.reference.as_deref(), Some(REFERENCE));
    assert_eq!(asked.session_id.as_deref(), Some(SESSION_ID));
    assert_eq!(asked.phone.as_deref(), Some("+233241234567"));
    assert_eq!(asked.status(), ChargeStatus::OtpRequired);
    assert_eq!(asked.provider(), proto::charges::Provider::At);
}

#[tokio::test]
async fn payments_are_listed_with_their_latest_transaction() {
    let gateway = Gateway::start().await;
    gateway.services.list_sessions.answers(|_| {
        let mut shown = session(CreateSessionRequest {
            amount: money(2550, "GHS"),
            ..CreateSessionRequest::default()
        });
        shown.status = SessionStatus::Completed.into();
        shown.transaction = Some(Transaction {
            transaction_id: TRANSACTION_ID.to_owned(),
            tx_id_display: "TX-0123456789".to_owned(),
            status: TransactionStatus::Settled.into(),
            method: "MOBILE_MONEY".to_owned(),
            amount: money(2550, "GHS"),
            wallet: Some(Wallet {
                provider: "MTN".to_owned(),
                last_four: "4567".to_owned(),
            }),
            ..Transaction::default()
        });
        Ok(ListSessionsResponse {
            sessions: vec![shown],
            next_page_token: String::new(),
        })
    });
    let path = format!("{PAYMENTS}?status=COMPLETED&provider=MTN&session_id={SESSION_ID}");
    let page = gateway.get(&path).send().await.json();
    assert_eq!(page["next_cursor"], Value::Null);
    let shown = &page["data"][0];
    assert_eq!(
        (&shown["session_id"], &shown["status"]),
        (&json!(SESSION_ID), &json!("COMPLETED"))
    );
    let expected = json!({
        "transaction_id": TRANSACTION_ID,
        "tx_id_display": "TX-0123456789",
        "status": "SETTLED",
        "method": "MOBILE_MONEY",
        "amount": 25.5,
        "currency": "GHS",
        "failure_reason": null,
        "provider": "MTN",
        "payer_last_four": "4567",
    });
    assert_eq!(shown["transaction"], expected);
    let asked = gateway.services.list_sessions.asked_once();
    assert_eq!(asked.status(), SessionStatus::Completed);
    assert_eq!(asked.provider.as_deref(), Some("MTN"));
    assert_eq!(asked.session_id.as_deref(), Some(SESSION_ID));
}

#[tokio::test]
async fn a_payment_is_found_by_the_reference_of_its_charge() {
    let gateway = Gateway::start().await;
    let path = format!("{PAYMENTS}?reference={REFERENCE}");
    let none = json!({ "data": [], "next_cursor": Value::Null });
    assert_eq!(gateway.get(&path).send().await.json(), none);
    assert!(gateway.services.list_sessions.asked().is_empty());
    gateway
        .services
        .get_charge
        .answers(|_| Ok(charge(ChargeStatus::Settled, money(2550, "GHS"))));
    let other = format!("{path}&session_id={}", SESSION_ID.replace('7', "8"));
    assert_eq!(gateway.get(&other).send().await.json(), none);
    assert!(gateway.services.list_sessions.asked().is_empty());
    assert_eq!(gateway.get(&path).send().await.status, 200);
    let asked = gateway.services.list_sessions.asked_once();
    assert_eq!(asked.session_id.as_deref(), Some(SESSION_ID));
    let asked = gateway.services.get_charge.asked();
    assert!(
        asked
            .iter()
            .all(|one| one.merchant_id == merchant().merchant_id)
    );
}

#[tokio::test]
async fn customers_are_listed_and_read() {
    let gateway = Gateway::start().await;
    gateway.services.list_customers.answers(|_| {
        Ok(ListCustomersResponse {
            customers: vec![customer()],
            next_page_token: next(CUSTOMER_ID),
        })
    });
    let shown = json!({
        "customer_id": CUSTOMER_ID,
        "phone": "+233241234567",
        "email": null,
        "name": "Ama Mensah",
        "created_at": "2026-01-31T09:00:00.000Z",
        "last_payment_at": null,
        "payments_count": 0,
    });
    let path = format!(
        "{CUSTOMERS}?phone=0241234567&email=Ama@example.com&cursor={}",
        next(CUSTOMER_ID)
    );
    let page = gateway.get(&path).send().await.json();
    assert_eq!(
        page,
        json!({ "data": [shown], "next_cursor": next(CUSTOMER_ID) })
    );
    let asked = gateway.services.list_customers.asked_once();
    assert_eq!(asked.phone.as_deref(), Some("+233241234567"));
    assert_eq!(asked.email.as_deref(), Some("Ama@example.com"));
    assert_eq!(asked.page_token, next(CUSTOMER_ID));

    let path = format!("{CUSTOMERS}/{CUSTOMER_ID}");
    gateway
        .get(&path)
        .send()
        .await
        .assert_error(404, "NOT_FOUND");
    for bad in ["CUS-1", "x", "%ff"] {
        let answer = gateway.get(&format!("{CUSTOMERS}/{bad}")).send().await;
        answer.assert_error(404, "NOT_FOUND");
    }
    gateway.services.get_customer.answers(|_| Ok(customer()));
    assert_eq!(gateway.get(&path).send().await.json(), shown);
    let asked = gateway.services.get_customer.asked();
    assert_eq!(asked.len(), 2, "what is no id is not asked for");
    assert!(
        asked
            .iter()
            .all(|one| one.merchant_id == merchant().merchant_id)
    );
}

/// Where a query is refused, the query, and the fields and codes of the refusal.
type BadParameters = (
    &'static [&'static str],
    &'static str,
    &'static [(&'static str, &'static str)],
);

#[tokio::test]
async fn bad_parameters_are_all_named_and_nothing_is_asked() {
    let gateway = Gateway::start().await;
    const EVERY: &[&str] = &[PAYMENTS, CHARGES, CUSTOMERS, PAYOUTS, REFUNDS];
    const WITH_STATUS: &[&str] = &[PAYMENTS, CHARGES, PAYOUTS, REFUNDS];
    const OF_PAYER: &[&str] = &[CHARGES, CUSTOMERS];
    const OF_CHARGE: &[&str] = &[PAYMENTS, CHARGES, REFUNDS];
    const OF_NETWORK: &[&str] = &[PAYMENTS, CHARGES];
    let cases: [BadParameters; 13] = [
        (EVERY, "cursor=x", &[("cursor", "INVALID_FORMAT")]),
        (
            EVERY,
            "cursor=7f8e3a52-30d1-4c0a-9d7e-0a1b2c3d4e5f",
            &[("cursor", "INVALID_FORMAT")],
        ),
        (
            EVERY,
            "cursor=-1.x&limit=0",
            &[("cursor", "INVALID_FORMAT"), ("limit", "OUT_OF_RANGE")],
        ),
        (EVERY, "from=yesterday", &[("from", "INVALID_FORMAT")]),
        (EVERY, "to=2026-01-31", &[("to", "INVALID_FORMAT")]),
        (
            WITH_STATUS,
            "status=settled",
            &[("status", "INVALID_FORMAT")],
        ),
        (
            WITH_STATUS,
            "status=UNSPECIFIED",
            &[("status", "INVALID_FORMAT")],
        ),
        (OF_PAYER, "phone=024", &[("phone", "INVALID_PHONE")]),
        (
            OF_NETWORK,
            "provider=VODAFONE",
            &[("provider", "UNKNOWN_PROVIDER")],
        ),
        (
            OF_CHARGE,
            "reference=TX-1",
            &[("reference", "INVALID_FORMAT")],
        ),
        (
            OF_CHARGE,
            "session_id=1",
            &[("session_id", "INVALID_FORMAT")],
        ),
        (&[CUSTOMERS], "email=ama", &[("email", "INVALID_EMAIL")]),
        (
            &[CHARGES],
            "status=FAILED&status=FAILED",
            &[("status", "INVALID_FORMAT")],
        ),
    ];
    for (paths, query, expected) in cases {
        for path in paths {
            let answer = gateway.get(&format!("{path}?{query}")).send().await;
            let mut refused = answer.refused_fields();
            refused.sort();
            let refused: Vec<(&str, &str)> = refused
                .iter()
                .map(|(field, code)| (field.as_str(), code.as_str()))
                .collect();
            assert_eq!(refused, expected, "{path}?{query}");
        }
    }
    let services = &gateway.services;
    assert!(services.list_charges.asked().is_empty());
    assert!(services.list_sessions.asked().is_empty());
    assert!(services.list_customers.asked().is_empty());
}

#[tokio::test]
async fn a_time_that_ends_before_it_begins_is_refused() {
    let gateway = Gateway::start().await;
    for path in [PAYMENTS, CHARGES, CUSTOMERS, PAYOUTS, REFUNDS] {
        let path = format!("{path}?from=2026-01-31T09:00:00Z&to=2026-01-31T10:00:00%2B01:00");
        assert_eq!(gateway.get(&path).send().await.status, 200, "{path}");
        let path = path.replace("T10:00:00", "T09:59:59");
        let named = ("to".to_owned(), "OUT_OF_RANGE".to_owned());
        let refused = gateway.get(&path).send().await.refused_fields();
        assert_eq!(refused, [named], "{path}");
    }
}

#[tokio::test]
async fn a_filter_that_a_list_does_not_have_is_refused_instead_of_left_out() {
    let gateway = Gateway::start().await;
    for (path, others) in [
        (PAYMENTS, &["phone", "email", "Reference"][..]),
        (CHARGES, &["email", "customer_id", "refrence"]),
        (
            CUSTOMERS,
            &["reference", "session_id", "status", "provider"],
        ),
        (PAYOUTS, &["reference", "session_id", "phone", "provider"]),
        (REFUNDS, &["phone", "email", "provider"]),
        ("/api/v1/events", &["type", "from", "cursor"]),
        ("/api/v1/statements/2026-01-30", &["currency"]),
    ] {
        for other in others {
            // Nor is it read.
            let answer = gateway
                .get(&format!("{path}?{other}=1&{other}=2"))
                .send()
                .await;
            let named = ((*other).to_owned(), "INVALID_FORMAT".to_owned());
            assert_eq!(answer.refused_fields(), [named], "{path}?{other}");
        }
    }
    let answer = gateway
        .get(&format!("{REFUNDS}?phone=0241234567"))
        .send()
        .await;
    assert_eq!(
        answer.json()["fields"][0]["message"],
        "is none of from, to, reference, session_id, status, limit, cursor"
    );
    // As many as an answer can have, and as much of each.
    let many: Vec<String> = (0..99).map(|n| format!("{n}{}", "x".repeat(99))).collect();
    let answer = gateway
        .get(&format!("{CHARGES}?{}", many.join("&")))
        .send()
        .await;
    let named = answer.refused_fields();
    assert_eq!(named.len(), 10);
    assert!(named.iter().all(|(name, _)| name.len() == 64));
    let services = &gateway.services;
    assert!(services.list_charges.asked().is_empty());
    assert!(services.list_refunds.asked().is_empty());
}

#[tokio::test]
async fn an_address_of_the_specification_takes_parameters_that_it_does_not_have() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .get_charge
        .answers(|_| Ok(charge(ChargeStatus::Settled, money(2550, "GHS"))));
    let path = format!("{PAYMENTS}/charge/{REFERENCE}?_=1769850000000");
    assert_eq!(gateway.get(&path).send().await.status, 200);
}

#[tokio::test]
async fn a_plus_that_nobody_encoded_is_still_an_offset() {
    let gateway = Gateway::start().await;
    let path = format!("{CHARGES}?from=2026-01-31T10:00:00+01:00");
    assert_eq!(gateway.get(&path).send().await.status, 200);
    let asked = gateway.services.list_charges.asked_once();
    assert_eq!(asked.from, "2026-01-31T09:00:00.000Z");
}

/// A code that only a newer version knows.
const NEWER: i32 = 99;

/// Answers the lists with an entry that is as usual between two of a newer version.
fn answer_beside_newer(gateway: &Gateway) {
    let services = &gateway.services;
    services.list_sessions.answers(|_| {
        let usual = session(CreateSessionRequest {
            amount: money(2550, "GHS"),
            ..CreateSessionRequest::default()
        });
        let status = Session {
            status: NEWER,
            ..usual.clone()
        };
        let of_transaction = Session {
            transaction: Some(Transaction {
                status: NEWER,
                amount: money(2550, "GHS"),
                ..Transaction::default()
            }),
            ..usual.clone()
        };
        Ok(ListSessionsResponse {
            sessions: vec![status, usual, of_transaction],
            next_page_token: next(SESSION_ID),
        })
    });
    services.list_charges.answers(|_| {
        let usual = charge(ChargeStatus::Settled, money(2550, "GHS"));
        let status = Charge {
            status: NEWER,
            ..usual.clone()
        };
        let provider = Charge {
            provider: NEWER,
            ..usual.clone()
        };
        let listed = [status, usual, provider].map(|charge| ListedCharge {
            charge: Some(charge),
            payer_masked: "024 ••• 4567".to_owned(),
        });
        Ok(ListChargesResponse {
            charges: listed.into(),
            next_page_token: next(TRANSACTION_ID),
        })
    });
    services.list_payouts.answers(|_| {
        let (usual, in_newer_currency) = (payout(money(100, "GHS")), payout(money(100, "XXX")));
        let status = Payout {
            status: NEWER,
            ..usual.clone()
        };
        Ok(ListPayoutsResponse {
            payouts: vec![status, usual, in_newer_currency],
            next_page_token: next(TRANSACTION_ID),
        })
    });
    services.list_refunds.answers(|_| {
        let usual = refund(money(100, "GHS"));
        let status = Refund {
            status: NEWER,
            ..usual.clone()
        };
        let mut destination = usual.clone();
        destination.destination.as_mut().expect("a wallet").r#type = NEWER;
        Ok(ListRefundsResponse {
            refunds: vec![status, usual, destination],
            next_page_token: next(TRANSACTION_ID),
        })
    });
}

#[tokio::test]
async fn an_entry_of_a_newer_version_is_left_out_and_the_list_goes_on() {
    chassis::metrics::render();
    let gateway = Gateway::start().await;
    answer_beside_newer(&gateway);
    for (path, id, shown, next_id) in [
        (PAYMENTS, "session_id", SESSION_ID, SESSION_ID),
        (CHARGES, "reference", REFERENCE, TRANSACTION_ID),
        (PAYOUTS, "payout_id", PAYOUT_ID, TRANSACTION_ID),
        (REFUNDS, "refund_id", REFUND_ID, TRANSACTION_ID),
    ] {
        let page = gateway.get(path).send().await.json();
        let entries = page["data"].as_array().expect("a page");
        assert_eq!(entries.len(), 1, "{path}: {page}");
        assert_eq!(entries[0][id], shown);
        assert_eq!(page["next_cursor"], next(next_id));
        let list = path.rsplit('/').next().expect("a list's name");
        let counted = format!(r#"unknown_values_total{{column="{list}"}} 2"#);
        let metrics = chassis::metrics::render();
        assert!(metrics.contains(&counted), "{metrics}");
    }
}
