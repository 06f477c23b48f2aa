//! Promises 7 and 10: one event for each end, and everything ends.

use std::collections::HashMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use super::{Findings, Promise};
use crate::{
    history::hundredths,
    records::{Charge, Disbursement},
};

pub fn check(found: &mut Findings<'_>) {
    check_received(found);
    check_events(found);
    check_charges_end(found);
    check_deliveries_end(found);
    check_sessions_end(found);
}

fn check_received(found: &mut Findings<'_>) {
    let mut bodies: HashMap<&str, &[u8]> = HashMap::new();
    for received in &found.evidence.received {
        let mut events = found.evidence.records.events.iter();
        if !events.any(|event| event.event_id == received.event_id) {
            let what = format!("event {} came, which is not there", received.event_id);
            found.broken(Promise::Event, what);
        }
        let known = bodies.entry(&received.event_id).or_insert(&received.body);
        if *known != received.body.as_ref() {
            let what = format!("event {} changed its body", received.event_id);
            found.broken(Promise::Event, what);
        }
        let secret = found.evidence.merchants.get(received.merchant);
        let secret = secret
            .map(|account| account.signing_secret.as_str())
            .unwrap_or_default();
        if !is_signed(secret, &received.signature, &received.body) {
            let what = format!(
                "event {} is not signed: {}",
                received.event_id, received.signature
            );
            found.broken(Promise::Event, what);
        }
    }
}

/// Spec §6.3.
fn is_signed(secret: &str, header: &str, body: &[u8]) -> bool {
    let Some((time, given)) = header
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(",v1="))
    else {
        return false;
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length is a key");
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body);
    hex::encode(mac.finalize().into_bytes()) == given
}

fn check_events(found: &mut Findings<'_>) {
    let records = &found.evidence.records;
    let mut told: HashMap<String, Vec<(&str, Value)>> = HashMap::new();
    let mut expired: HashMap<String, u32> = HashMap::new();
    for event in &records.events {
        let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
        let data = body.get("data").cloned().unwrap_or_default();
        let id = ["payout_id", "refund_id"].iter();
        let disbursement = id.filter_map(|name| text(&data, name)).next();
        match disbursement.or(text(&data, "tx_id_display")) {
            Some(display) => {
                let events = told.entry(display.to_owned()).or_default();
                events.push((&event.event_type, data.clone()));
            }
            None => {
                let session = text(&data, "session_id").unwrap_or_default();
                *expired.entry(session.to_owned()).or_default() += 1;
            }
        }
        let mut deliveries = records.deliveries.iter();
        if !deliveries.any(|delivery| delivery.event_id == event.event_id) {
            let what = format!("{} is delivered to nobody", event.event_id);
            found.broken(Promise::Event, what);
        }
    }
    for session in &records.sessions {
        let events = expired.remove(&session.session_id.to_string());
        let wanted = (session.status == "EXPIRED").then_some(1);
        if events != wanted {
            let what = format!(
                "session {} is {} and has {events:?} events of its expiry",
                session.session_id, session.status
            );
            found.broken(Promise::Event, what);
        }
    }
    for session in expired.into_keys() {
        let what = format!("an event tells of session {session:?}, which is not there");
        found.broken(Promise::Event, what);
    }
    for charge in &records.charges {
        let events = told.remove(&charge.tx_id_display).unwrap_or_default();
        check_charges_event(found, charge, &events);
    }
    for disbursement in &records.disbursements {
        let events = told.remove(&disbursement.shown_id).unwrap_or_default();
        check_disbursements_event(found, disbursement, &events);
    }
    for (display, _) in told {
        found.broken(
            Promise::Event,
            format!("an event tells of {display}, which is not there"),
        );
    }
}

fn check_charges_event(found: &mut Findings<'_>, charge: &Charge, events: &[(&str, Value)]) {
    let expected = match charge.state.as_str() {
        "SETTLED" => vec!["payment.success"],
        "FAILED" => vec!["payment.failed"],
        _ => Vec::new(),
    };
    let types: Vec<&str> = events.iter().map(|(kind, _)| *kind).collect();
    if types != expected {
        let what = format!(
            "{} is {} and its events are {types:?}",
            charge.reference, charge.state
        );
        found.broken(Promise::Event, what);
    }
    let mut sessions = found.evidence.records.sessions.iter();
    let session = sessions.find(|session| session.session_id == charge.session_id);
    let asked = session.map(|session| session.amount_minor);
    for (_, data) in events {
        let is_true = text(data, "status") == Some(&charge.state)
            && text(data, "failure_reason") == charge.failure_reason.as_deref()
            && text(data, "session_id") == Some(&charge.session_id.to_string())
            && minor(data) == asked;
        if !is_true {
            let what = format!("an event does not tell of {charge:?}: {data}");
            found.broken(Promise::Event, what);
        }
    }
}

fn check_disbursements_event(
    found: &mut Findings<'_>,
    disbursement: &Disbursement,
    events: &[(&str, Value)],
) {
    let expected = match (disbursement.kind.as_str(), disbursement.state.as_str()) {
        ("PAYOUT", "COMPLETED") => vec!["payout.success"],
        ("PAYOUT", "FAILED") => vec!["payout.failed"],
        ("REFUND", "COMPLETED") => vec!["refund.success"],
        ("REFUND", "FAILED") => vec!["refund.failed"],
        _ => Vec::new(),
    };
    let types: Vec<&str> = events.iter().map(|(kind, _)| *kind).collect();
    let is_true = events.iter().all(|(_, data)| {
        text(data, "status") == Some(&disbursement.state)
            && text(data, "failure_reason") == disbursement.failure_reason.as_deref()
            && text(data, "reference") == disbursement.reference.as_deref()
            && minor(data) == Some(disbursement.amount_minor)
    });
    if types != expected || !is_true {
        let what = format!("events {events:?} tell of {disbursement:?}");
        found.broken(Promise::Event, what);
    }
}

fn text<'d>(data: &'d Value, name: &str) -> Option<&'d str> {
    data.get(name).and_then(Value::as_str)
}

/// An event's amount in hundredths, which both currencies of a run have.
fn minor(data: &Value) -> Option<i64> {
    hundredths(data.get("amount")?)
}

fn check_charges_end(found: &mut Findings<'_>) {
    let records = &found.evidence.records;
    for charge in &records.charges {
        let is_open = charge.is_open();
        let cases = records
            .cases
            .iter()
            .filter(|case| case.transaction_id == charge.transaction_id);
        if is_open && !cases.clone().any(|case| case.closed_at.is_none()) {
            let what = format!(
                "{} is {} for ever: {:?}",
                charge.reference,
                charge.state,
                found.payment(charge)
            );
            found.broken(Promise::Live, what);
        }
        let is_shown = records.transactions.iter().any(|shown| {
            let ends = match charge.state.as_str() {
                "SETTLED" | "FAILED" => shown.status == charge.state,
                "VOID" => shown.status == "WITHDRAWN",
                _ => true,
            };
            shown.transaction_id == Some(charge.transaction_id) && ends
        });
        if !is_shown && charge.state != "VOID" {
            let what = format!(
                "{} is {} and its session does not show it",
                charge.reference, charge.state
            );
            found.broken(Promise::Live, what);
        }
    }
}

fn check_deliveries_end(found: &mut Findings<'_>) {
    let records = &found.evidence.records;
    for (owner, rows) in ["sessions", "charges"].iter().zip(records.outboxes) {
        if rows != 0 {
            found.broken(
                Promise::Live,
                format!("{rows} rows are left in the outbox of {owner}"),
            );
        }
    }
    for delivery in records
        .deliveries
        .iter()
        .filter(|delivery| delivery.status == "DELIVERED")
    {
        let mut received = found.evidence.received.iter();
        if !received.any(|received| received.event_id == delivery.event_id && received.acknowledged)
        {
            let what = format!(
                "{} is DELIVERED and nobody acknowledged it",
                delivery.event_id
            );
            found.broken(Promise::Event, what);
        }
    }
    for delivery in records
        .deliveries
        .iter()
        .filter(|delivery| delivery.status == "PENDING")
    {
        found.broken(
            Promise::Live,
            format!("the delivery of {} never ended", delivery.event_id),
        );
    }
}

fn check_sessions_end(found: &mut Findings<'_>) {
    let records = &found.evidence.records;
    let now = found.evidence.time.timestamp();
    for session in &records.sessions {
        let open = records
            .charges
            .iter()
            .any(|charge| charge.session_id == session.session_id && charge.is_open());
        let is_stuck = match session.status.as_str() {
            "PROCESSING" => !open,
            "PENDING" => session.expires_at < now,
            _ => false,
        };
        if is_stuck {
            let what = format!(
                "session {} is {} for ever",
                session.session_id, session.status
            );
            found.broken(Promise::Live, what);
        }
    }
}
