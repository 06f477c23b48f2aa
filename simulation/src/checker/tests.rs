//! Histories made by hand that tell what a promise leaves open from what breaks it.

use super::*;
use crate::{
    actors::HOUR,
    rails::{Asker, Debit, Rail, Said, Word},
    records::RailEvidence,
    time::Millis,
};

const DEBITED_AT: Millis = 37_000;
const FAILED_AT: Millis = 368_000;
const LOOKS: [Millis; 3] = [HOUR, 24 * HOUR, 72 * HOUR];

/// A charge that failed since the rail knew no such payment, whose payer was debited. `last`: what
/// the rail answered at the last look, and what the services wrote down of it.
fn debited_and_denied(last: Word, heard_last: &str) -> Evidence {
    let time = Time::starting_at("2026-03-01T09:00:00.000Z".parse().expect("a timestamp"));
    let at = |millis| time.start() + std::time::Duration::from_millis(millis);
    let charge = Charge {
        transaction_id: Uuid::from_u128(1),
        merchant_id: Uuid::from_u128(2),
        session_id: Uuid::from_u128(3),
        tx_id_display: "TX-1".to_owned(),
        reference: "TX-1".to_owned(),
        rail_reference: Uuid::from_u128(4),
        phone: "+233240000800".to_owned(),
        amount_minor: 1_366,
        state: "FAILED".to_owned(),
        failure_reason: Some("RAIL_UNAVAILABLE".to_owned()),
        otp_tries: 0,
        updated_at: at(FAILED_AT),
    };
    let said = |at, what| Said {
        at,
        to: Asker::Query,
        what,
        delivered: true,
    };
    let [first, second, third] = LOOKS.map(|look| FAILED_AT + look);
    let payment = Payment {
        rail: Rail::Momo,
        reference: charge.rail_reference.to_string(),
        phone: charge.phone.clone(),
        amount_minor: charge.amount_minor,
        currency: "GHS".to_owned(),
        asked_at: vec![12_968],
        taken_at: vec![13_259],
        debits: vec![Debit {
            at: DEBITED_AT,
            amount_minor: charge.amount_minor,
        }],
        decided_at: Some(DEBITED_AT),
        reversed_at: None,
        said: vec![
            said(FAILED_AT, Word::Unknown404),
            said(first, Word::Unknown404),
            said(second, Word::Unknown404),
            said(third, last),
        ],
    };
    let heard = |outcome: &str, first_at| RailEvidence {
        transaction_id: charge.transaction_id,
        outcome: outcome.to_owned(),
        first_at: at(first_at),
    };
    let evidence = vec![
        heard("unknown", 22_000),
        heard("reference_unknown", FAILED_AT),
        heard(heard_last, third),
    ];
    Evidence {
        time: time.clone(),
        history: Record::default(),
        book: vec![payment],
        received: Vec::new(),
        records: Records {
            charges: vec![charge],
            postings: Vec::new(),
            balances: Vec::new(),
            cases: Vec::new(),
            evidence,
            sessions: Vec::new(),
            transactions: Vec::new(),
            events: Vec::new(),
            deliveries: Vec::new(),
            outboxes: [0, 0],
        },
        merchants: Vec::new(),
    }
}

fn is_owned(evidence: &Evidence) -> bool {
    !check(evidence)
        .iter()
        .any(|violation| violation.promise == Promise::Owned)
}

fn is_failed_by_the_rail(evidence: &Evidence) -> bool {
    !check(evidence)
        .iter()
        .any(|violation| violation.promise == Promise::Failed)
}

#[test]
fn a_debit_that_the_rail_denies_whenever_it_is_heard_is_nobodys_fault() {
    assert!(is_owned(&debited_and_denied(
        Word::Unknown404,
        "reference_unknown"
    )));
}

#[test]
fn a_debit_that_the_rail_told_of_once_must_be_owned() {
    let told = debited_and_denied(Word::Success, "succeeded");
    assert!(!is_owned(&told));
    // Told, and not written down by the services.
    let unheard = debited_and_denied(Word::Success, "unknown");
    assert!(!is_owned(&unheard));
    // Heard, in whatever answer, and then denied.
    for heard in ["accepted", "pending", "failed", "received"] {
        let denied_later = debited_and_denied(Word::Unknown404, heard);
        assert!(!is_owned(&denied_later), "after {heard}");
    }
}

#[test]
fn a_debit_is_not_denied_before_the_last_look() {
    let mut evidence = debited_and_denied(Word::Unknown404, "reference_unknown");
    for payment in &mut evidence.book {
        payment.said.pop();
    }
    assert!(!is_owned(&evidence));
}

/// A charge that failed for the want of a code, of which the rail said this before, if anything.
fn expired_code(said: Option<Word>) -> Evidence {
    let mut evidence = debited_and_denied(Word::Unknown404, "reference_unknown");
    for charge in &mut evidence.records.charges {
        charge.failure_reason = Some("OTP_EXPIRED".to_owned());
    }
    for payment in &mut evidence.book {
        payment.debits.clear();
        payment.said.clear();
        payment.said.extend(said.map(|what| Said {
            at: FAILED_AT,
            to: Asker::Query,
            what,
            delivered: true,
        }));
    }
    evidence
}

#[test]
fn a_code_expires_by_our_clock_while_the_rail_waits_for_it_or_by_the_rails_word() {
    let by_our_clock = expired_code(Some(Word::CodeWanted));
    assert!(is_failed_by_the_rail(&by_our_clock));
    let by_its_word = expired_code(Some(Word::Failed("The voucher code has expired")));
    assert!(is_failed_by_the_rail(&by_its_word));
    for silence in [None, Some(Word::Nothing)] {
        assert!(!is_failed_by_the_rail(&expired_code(silence)));
    }
}
