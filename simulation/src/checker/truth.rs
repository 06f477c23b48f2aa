//! Promises 1 to 4: what callers were told is true and stays true.

use std::collections::HashMap;

use super::{Findings, Promise};
use crate::{
    history::{Order, Read, ReadSubject, RequestEnd, Try},
    rails::{Asker, Payment, Rail, RailMessage, Word},
    records::Charge,
    time::Millis,
};

pub fn check(found: &mut Findings<'_>) {
    let history = &found.evidence.history;
    for order in &history.orders {
        check_order(found, order);
    }
    check_codes(found);
    check_links(found);
    for session in &history.sessions {
        let sessions = &found.evidence.records.sessions;
        if !sessions
            .iter()
            .any(|kept| kept.session_id.to_string() == session.session_id)
        {
            found.broken(
                Promise::Kept,
                format!("session {} is gone", session.session_id),
            );
        }
    }
    check_reads(found);
    for charge in &found.evidence.records.charges {
        match charge.state.as_str() {
            "FAILED" => check_failed(found, charge),
            "VOID" => check_void(found, charge),
            _ => {}
        }
    }
    for payment in &found.evidence.book {
        check_asked(found, payment);
    }
}

/// Every payment is recorded, at the rail that its charge began with. One that may be debited twice
/// was asked for once.
fn check_asked(found: &mut Findings<'_>, payment: &Payment) {
    let mut charges = found.evidence.records.charges.iter();
    let charge = charges.find(|charge| charge.rail_reference.to_string() == payment.reference);
    let Some(charge) = charge else {
        let what = format!(
            "the rail has a payment {} that nobody recorded",
            payment.reference
        );
        return found.broken(Promise::Kept, what);
    };
    if charge.rail != payment.rail.name() {
        let what = format!(
            "{} is at {}, and another rail heard of it: {payment:?}",
            charge.reference, charge.rail
        );
        found.broken(Promise::Once, what);
    }
    if payment.rail == Rail::Hubtel && payment.asked_at.len() > 1 {
        let what = format!(
            "{} was asked for twice at a rail that may debit twice: {payment:?}",
            charge.reference
        );
        found.broken(Promise::Once, what);
    }
}

fn check_order(found: &mut Findings<'_>, order: &Order) {
    let charges = found
        .by_phone
        .get(&order.phone)
        .cloned()
        .unwrap_or_default();
    for Try { told, .. } in &order.tries {
        check_told(found, order, told);
    }
    let nothing = order
        .tries
        .iter()
        .filter(|made| made.told.says_nothing_started())
        .count();
    let may_have_begun = order.tries.len() - nothing;
    let most = if order.keyed {
        may_have_begun.min(1)
    } else {
        may_have_begun
    };
    let live = charges.len();
    if live > most {
        let promise = if may_have_begun == 0 || !order.keyed {
            Promise::Nothing
        } else {
            Promise::Once
        };
        let what = format!(
            "order {} has {live} charges, {most} at the most may be: {:?}",
            order.phone,
            order
                .tries
                .iter()
                .map(|made| &made.told)
                .collect::<Vec<_>>()
        );
        found.broken(promise, what);
    }
    let payments = charges.iter().filter_map(|charge| found.payment(charge));
    let debits: usize = payments.map(|payment| payment.debits.len()).sum();
    if debits > most {
        let what = format!(
            "order {} was debited {debits} times, {most} at the most",
            order.phone
        );
        found.broken(Promise::Once, what);
    }
}

fn check_told(found: &mut Findings<'_>, order: &Order, told: &RequestEnd) {
    let (Some(202 | 422), Some(reference)) = (told.status(), told.field("reference")) else {
        return;
    };
    let Some(charge) = found.by_reference.get(reference) else {
        found.broken(
            Promise::Kept,
            format!("charge {reference} was told and is not there"),
        );
        return;
    };
    let charge = *charge;
    let merchant = found.evidence.merchants.get(order.merchant);
    let is_theirs =
        merchant.is_some_and(|account| account.merchant_id == charge.merchant_id.to_string());
    let is_amount = order
        .amount_minor
        .is_none_or(|asked| asked == charge.amount_minor);
    if !is_theirs || !is_amount {
        let what = format!(
            "order {} of {:?} became another charge: {charge:?}",
            order.phone, order.amount_minor
        );
        found.broken(Promise::Kept, what);
    }
    let (state, status) = (
        charge.state.clone(),
        told.field("status").unwrap_or_default(),
    );
    if state == "VOID" {
        found.broken(
            Promise::Kept,
            format!("charge {reference} was told {status} and is void"),
        );
    }
    if told.status() == Some(422) && state != "FAILED" {
        found.broken(
            Promise::Failed,
            format!("charge {reference} was told FAILED and is {state}"),
        );
    }
    if order.keyed {
        let others = order
            .tries
            .iter()
            .filter_map(|made| made.told.field("reference"));
        let others: Vec<&str> = others.filter(|other| *other != reference).collect();
        if !others.is_empty() {
            let what = format!("one key was told {reference} and {others:?}");
            found.broken(Promise::Once, what);
        }
    }
}

/// Whoever was told that nothing was started with a code has used up no attempt.
fn check_codes(found: &mut Findings<'_>) {
    let evidence = found.evidence;
    for charge in &evidence.records.charges {
        let codes = evidence.history.codes.iter();
        let codes = codes.filter(|code| code.reference == charge.reference);
        let may_count = codes.filter(|code| !code.told.says_nothing_started());
        let most = may_count.count();
        if usize::try_from(charge.otp_tries).is_ok_and(|tries| tries > most) {
            let what = format!(
                "{} counts {} codes, {most} at the most may be",
                charge.reference, charge.otp_tries
            );
            found.broken(Promise::Nothing, what);
        }
    }
}

/// One key creates one session, and whoever was told that nothing was started has created none.
fn check_links(found: &mut Findings<'_>) {
    let evidence = found.evidence;
    for link in &evidence.history.links {
        let sessions = evidence.records.sessions.iter();
        let made = sessions
            .filter(|session| session.description.as_deref() == Some(link.description.as_str()))
            .count();
        let may_have = link.told.iter().filter(|told| !told.says_nothing_started());
        let may_have = may_have.count();
        let most = if link.keyed {
            may_have.min(1)
        } else {
            may_have
        };
        if made > most {
            let what = format!(
                "{} has {made} sessions, {most} at the most may be: {:?}",
                link.description, link.told
            );
            found.broken(
                if may_have == 0 {
                    Promise::Nothing
                } else {
                    Promise::Once
                },
                what,
            );
        }
    }
}

/// What has ended for one reader has ended for every later reader.
fn check_reads(found: &mut Findings<'_>) {
    let mut reads: HashMap<&ReadSubject, Vec<&Read>> = HashMap::new();
    for read in &found.evidence.history.reads {
        reads.entry(&read.of).or_default().push(read);
    }
    for (thing, mut reads) in reads {
        reads.sort_by_key(|read| read.at);
        for (number, read) in reads.iter().enumerate() {
            let has_ended = match thing {
                ReadSubject::Charge(_) => matches!(read.status.as_str(), "SETTLED" | "FAILED"),
                ReadSubject::Session(_) => read.status == "COMPLETED",
                ReadSubject::Disbursement(_) => {
                    matches!(read.status.as_str(), "COMPLETED" | "FAILED")
                }
            };
            let later = reads.iter().skip(number + 1).find(|later| {
                has_ended && later.asked_at >= read.at && !is_same_end(&read.status, &later.status)
            });
            if let Some(later) = later {
                let what = format!("{thing:?} was {} and later {}", read.status, later.status);
                found.broken(Promise::Kept, what);
            }
        }
        let last = reads
            .iter()
            .rev()
            .find(|read| matches!(read.status.as_str(), "SETTLED" | "FAILED"));
        if let (ReadSubject::Charge(reference), Some(read)) = (thing, last) {
            let kept = found
                .by_reference
                .get(reference.as_str())
                .map(|charge| charge.state.clone());
            if kept.as_deref() != Some(&read.status) {
                let what = format!("{reference} was read as {} and is {kept:?}", read.status);
                found.broken(Promise::Failed, what);
            }
        }
    }
}

fn is_same_end(ended: &str, later: &str) -> bool {
    // A code submitted to a settled charge is answered with 202 INITIATED.
    ended == later || (ended == "SETTLED" && later == "INITIATED")
}

/// Only the rail, an operator, or a code that never came ends a charge as FAILED.
fn check_failed(found: &mut Findings<'_>, charge: &Charge) {
    if found.was_decided(charge) {
        return;
    }
    let Some(payment) = found.payment(charge) else {
        return;
    };
    let is_proven = match charge.failure_reason.as_deref().unwrap_or_default() {
        // Our clock ends a charge for which the rail still wants a code; or the rail's does.
        "OTP_EXPIRED" => {
            let by_our_clock =
                payment.debits.is_empty() && was_said(payment, charge, found, is_waiting_for_code);
            by_our_clock || was_said(payment, charge, found, is_expired_code)
        }
        // The rail called the third code wrong, in whichever words.
        "OTP_ATTEMPTS_EXCEEDED"
            if third_code(found, charge).is_some_and(|sent_at| {
                was_said(payment, charge, found, |said| {
                    said.at >= sent_at && is_wrong_code(said)
                })
            }) =>
        {
            true
        }
        // The rail never received the request: it was not sent, or was lost.
        _ if payment.asked_at.is_empty() => true,
        reason => {
            was_said(payment, charge, found, |said| {
                is_failure(payment, said, found.was_shown(charge))
            }) && may_be_the_reason(found, charge, payment, reason)
        }
    };
    if !is_proven {
        let what = format!(
            "{} is FAILED {:?} at {} ms, and the rail had not said so: {payment:?}",
            charge.reference,
            charge.failure_reason,
            found.ended_at(charge)
        );
        found.broken(Promise::Failed, what);
    }
}

/// Hubtel's status never tells why a payment failed. Its first reply may, and no callback is believed.
fn may_be_the_reason(
    found: &Findings<'_>,
    charge: &Charge,
    payment: &Payment,
    reason: &str,
) -> bool {
    let is_open = matches!(reason, "PAYER_TIMEOUT" | "RAIL_UNAVAILABLE");
    let is_told = |said: &RailMessage| matches!(said.what, Word::Refused(_));
    payment.rail != Rail::Hubtel || is_open || was_said(payment, charge, found, is_told)
}

/// Whether the rail said so, and was heard, before the charge ended.
fn was_said(
    payment: &Payment,
    charge: &Charge,
    found: &Findings<'_>,
    is_such: impl Fn(&RailMessage) -> bool,
) -> bool {
    // Allows a second for an answer that was read while the store was asked for the time.
    let until = found.ended_at(charge) + 1_000;
    let mut said = payment.said.iter();
    said.any(|said| said.delivered && said.at <= until && is_such(said))
}

fn is_waiting_for_code(said: &RailMessage) -> bool {
    matches!(
        said.what,
        Word::CodeWanted | Word::Pending | Word::Abandoned
    )
}

fn is_expired_code(said: &RailMessage) -> bool {
    matches!(said.what, Word::Failed(words) if words.contains("expired"))
}

/// The earliest moment at which the third code can have been sent.
fn third_code(found: &Findings<'_>, charge: &Charge) -> Option<Millis> {
    let codes = found.evidence.history.codes.iter();
    let codes = codes.filter(|code| code.reference == charge.reference);
    let mut sent_at: Vec<Millis> = codes.map(|code| code.sent_at).collect();
    sent_at.sort_unstable();
    sent_at.get(2).copied()
}

fn is_wrong_code(said: &RailMessage) -> bool {
    said.to == Asker::Otp && matches!(said.what, Word::Failed(_) | Word::CodeWanted)
}

/// Whether this word of the rail ends a payment; `was_shown` says whether the rail had shown it
/// before.
fn is_failure(payment: &Payment, said: &RailMessage, was_shown: bool) -> bool {
    let asked = payment.asked_at.iter().max().copied().unwrap_or_default();
    let window_is_over = said.at >= asked + payment.rail.window();
    match said.what {
        // A callback is no more than a hint.
        Word::Failed(_) => said.to != Asker::Callback,
        Word::Refused(_) => true,
        // Until the network's own window has ended, its silence proves nothing.
        Word::Abandoned => window_is_over,
        Word::Unknown404 => window_is_over && !was_shown,
        _ => false,
    }
}

fn check_void(found: &mut Findings<'_>, charge: &Charge) {
    if let Some(payment) = found.payment(charge)
        && !payment.taken_at.is_empty()
    {
        let what = format!(
            "{} is void, and the rail has it: {payment:?}",
            charge.reference
        );
        found.broken(Promise::Nothing, what);
    }
}
