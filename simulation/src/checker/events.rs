//! Promises 7 and 10: one event for one end, and an end to everything.

use std::collections::{HashMap, HashSet};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use super::{Found, Promise};

pub fn check(found: &mut Found<'_>) {
    check_received(found);
    check_events(found);
    check_charges_end(found);
    check_deliveries_end(found);
    check_sessions_end(found);
}

fn check_received(found: &mut Found<'_>) {
    let mut bodies: HashMap<&str, &[u8]> = HashMap::new();
    for received in &found.evidence.received {
        let known = bodies.entry(&received.event_id).or_insert(&received.body);
        if *known != received.body.as_ref() {
            let what = format!("event {} changed its body", received.event_id);
            found.violations.push(super::Violation {
                promise: Promise::Event,
                what,
            });
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
            found.violations.push(super::Violation {
                promise: Promise::Event,
                what,
            });
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

fn check_events(found: &mut Found<'_>) {
    let mut told: HashMap<String, Vec<(&str, Value)>> = HashMap::new();
    let mut expiries = HashSet::new();
    for event in &found.evidence.records.events {
        let body: Value = serde_json::from_str(&event.body).unwrap_or_default();
        let data = body.get("data").cloned().unwrap_or_default();
        match data.get("tx_id_display").and_then(Value::as_str) {
            Some(display) => {
                told.entry(display.to_owned())
                    .or_default()
                    .push((&event.event_type, data.clone()));
            }
            None => {
                if !expiries.insert(
                    data.get("session_id")
                        .cloned()
                        .unwrap_or_default()
                        .to_string(),
                ) {
                    let what = format!("a session expired twice: {data}");
                    found.violations.push(super::Violation {
                        promise: Promise::Event,
                        what,
                    });
                }
            }
        }
    }
    for charge in &found.evidence.records.charges {
        let events = told.remove(&charge.tx_id_display).unwrap_or_default();
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
    }
    for (display, _) in told {
        found.broken(
            Promise::Event,
            format!("an event tells of {display}, which is not there"),
        );
    }
}

fn check_charges_end(found: &mut Found<'_>) {
    let records = &found.evidence.records;
    for charge in &records.charges {
        let is_open = !matches!(charge.state.as_str(), "SETTLED" | "FAILED" | "VOID");
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

fn check_deliveries_end(found: &mut Found<'_>) {
    let records = &found.evidence.records;
    for (owner, rows) in ["sessions", "charges"].iter().zip(records.outboxes) {
        if rows != 0 {
            found.broken(
                Promise::Live,
                format!("{rows} rows are left in the outbox of {owner}"),
            );
        }
    }
    let is = |status: &'static str| {
        move |delivery: &&crate::records::Delivery| delivery.status == status
    };
    for delivery in records.deliveries.iter().filter(is("DELIVERED")) {
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

fn check_sessions_end(found: &mut Found<'_>) {
    let records = &found.evidence.records;
    let now = found.evidence.time.timestamp();
    for session in &records.sessions {
        let open = records.charges.iter().any(|charge| {
            charge.session_id == session.session_id
                && !matches!(charge.state.as_str(), "SETTLED" | "FAILED" | "VOID")
        });
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
