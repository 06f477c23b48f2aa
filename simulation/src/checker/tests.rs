//! Hand-made histories that separate what a promise leaves open from what breaks it.

use std::time::Duration;

use chassis::clock::Timestamp;

use super::*;
use crate::{
    rails::{Asker, Credit, Debit, Rail, RailMessage, Transfer, Word},
    records::{Case, Disbursement, Posting, RailEvidence},
    time::{HOUR, Millis, START_UNIX_MS},
};

const DEBITED_AT: Millis = 37_000;
const FAILED_AT: Millis = 368_000;
const LOOKS: [Millis; 3] = [HOUR, 24 * HOUR, 72 * HOUR];

const TRANSACTION: Uuid = Uuid::from_u128(1);

fn at(millis: Millis) -> Timestamp {
    let start = Timestamp::from_unix_millis(START_UNIX_MS).expect("a timestamp");
    start + Duration::from_millis(millis)
}

fn said(at: Millis, to: Asker, what: Word) -> RailMessage {
    RailMessage {
        at,
        to,
        what,
        delivered: true,
    }
}

fn heard(outcome: &str, first_at: Millis) -> RailEvidence {
    RailEvidence {
        transaction_id: TRANSACTION,
        outcome: outcome.to_owned(),
        first_at: at(first_at),
    }
}

/// A charge that failed because the rail knew no such payment, although its payer was debited.
/// `last` is what the rail answered at the last look, and what the services recorded of it.
fn debited_and_denied(last: Word, heard_last: &str) -> Evidence {
    let charge = Charge {
        transaction_id: TRANSACTION,
        merchant_id: Uuid::from_u128(2),
        session_id: Uuid::from_u128(3),
        tx_id_display: "TX-1".to_owned(),
        reference: "TX-1".to_owned(),
        rail: "momo".to_owned(),
        rail_reference: Uuid::from_u128(4),
        phone: "+233240000800".to_owned(),
        amount_minor: 1_366,
        state: "FAILED".to_owned(),
        failure_reason: Some("RAIL_UNAVAILABLE".to_owned()),
        otp_tries: 0,
        updated_at: at(FAILED_AT),
    };
    let said = |at, what| said(at, Asker::Query, what);
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
    let evidence = vec![
        heard("unknown", 22_000),
        heard("reference_unknown", FAILED_AT),
        heard(heard_last, third),
    ];
    Evidence {
        time: Time::starting_at(at(0)),
        history: HistoryRecord::default(),
        book: vec![payment],
        transfers: Vec::new(),
        received: Vec::new(),
        records: Records {
            charges: vec![charge],
            postings: Vec::new(),
            balances: Vec::new(),
            cases: Vec::new(),
            disbursements: Vec::new(),
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
fn a_debit_denied_in_every_answer_need_not_be_owned() {
    let mut denied = debited_and_denied(Word::Unknown404, "reference_unknown");
    assert!(is_owned(&denied));
    // Our own note that the request was sent again is not the rail's word.
    denied.records.evidence.push(heard("sent_again", 25_000));
    assert!(is_owned(&denied));
    denied.records.evidence.clear();
    assert!(!is_owned(&denied), "nothing was written down");
}

#[test]
fn a_debit_that_the_rail_told_of_once_must_be_owned() {
    let told = debited_and_denied(Word::Success, "succeeded");
    assert!(!is_owned(&told));
    let unwritten = debited_and_denied(Word::Success, "unknown");
    assert!(!is_owned(&unwritten));
    // Heard in any answer, and then denied.
    for outcome in ["accepted", "pending", "failed", "received"] {
        let denied_later = debited_and_denied(Word::Unknown404, outcome);
        assert!(!is_owned(&denied_later), "after {outcome}");
    }
    // Reported, not recorded, and then denied.
    for asker in [Asker::Query, Asker::Callback] {
        let mut denied_later = debited_and_denied(Word::Unknown404, "reference_unknown");
        for payment in &mut denied_later.book {
            let success = said(DEBITED_AT + 1_000, asker, Word::Success);
            payment.said.insert(0, success);
        }
        assert!(!is_owned(&denied_later), "told by {asker:?}");
    }
}

#[test]
fn a_denial_before_the_last_look_excuses_nothing() {
    let mut evidence = debited_and_denied(Word::Unknown404, "reference_unknown");
    for payment in &mut evidence.book {
        payment.said.pop();
    }
    assert!(!is_owned(&evidence));
}

#[test]
fn every_look_at_a_failure_is_heard() {
    for missed in 1..=LOOKS.len() {
        let mut evidence = debited_and_denied(Word::Unknown404, "reference_unknown");
        for payment in &mut evidence.book {
            payment.debits.clear();
        }
        evidence.time.step_to(FAILED_AT + 80 * HOUR);
        assert!(is_owned(&evidence));
        for payment in &mut evidence.book {
            payment.said.remove(missed);
        }
        assert!(!is_owned(&evidence), "look {missed}");
    }
}

/// A charge that failed for want of a code, and what the rail had said about it before, if
/// anything.
fn expired_code(word: Option<Word>) -> Evidence {
    let mut evidence = debited_and_denied(Word::Unknown404, "reference_unknown");
    for charge in &mut evidence.records.charges {
        charge.failure_reason = Some("OTP_EXPIRED".to_owned());
    }
    for payment in &mut evidence.book {
        payment.debits.clear();
        payment.said.clear();
        let said = word.map(|what| said(FAILED_AT, Asker::Query, what));
        payment.said.extend(said);
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
    // Once our clock has ended the code, the payer must not be debited, even if the rail still
    // waits.
    for waiting in [Word::CodeWanted, Word::Abandoned] {
        let mut debited = expired_code(Some(waiting));
        for payment in &mut debited.book {
            payment.debits.push(Debit {
                at: DEBITED_AT,
                amount_minor: payment.amount_minor,
            });
        }
        assert!(!is_failed_by_the_rail(&debited), "{waiting:?}");
    }
}

/// Only the rail's own reversal takes more than is there: what an operator takes back does not.
#[test]
fn a_balance_is_below_zero_only_by_what_the_rail_took_back() {
    let mut evidence = debited_and_denied(Word::Unknown404, "reference_unknown");
    let merchant_id = Uuid::from_u128(2);
    evidence.merchants.push(Account {
        merchant_id: merchant_id.to_string(),
        api_key: String::new(),
        signing_secret: String::new(),
    });
    let line = |account: String, amount_minor| Posting {
        kind: "REVERSAL".to_owned(),
        subject: TRANSACTION,
        account,
        amount_minor,
        currency: "GHS".to_owned(),
    };
    let merchant = line(format!("merchant:{merchant_id}"), -1_366);
    let clearing = line("rail:momo:clearing".to_owned(), 1_366);
    evidence.records.postings.extend([merchant, clearing]);
    for (kind, is_covered) in [("CREDITED_TWICE", false), ("REVERSED", true)] {
        evidence.records.cases = vec![Case {
            case_id: Uuid::from_u128(5),
            transaction_id: TRANSACTION,
            kind: kind.to_owned(),
            suspense_minor: None,
            closed_at: Some(at(FAILED_AT)),
        }];
        let broken = check(&evidence);
        let mut broken = broken.iter();
        let is_broken = broken.any(|violation| violation.promise == Promise::Covered);
        assert_eq!(is_broken, !is_covered, "{kind}");
    }
}

/// A failed payout whose payment was told at the last look, and taken back after it.
#[test]
fn what_left_a_float_is_what_was_told_and_not_what_was_taken_back_unheard() {
    let mut evidence = debited_and_denied(Word::Unknown404, "reference_unknown");
    let disbursement_id = Uuid::from_u128(6);
    let last = FAILED_AT + LOOKS[2];
    evidence.time.move_to(last + 40 * HOUR);
    let disbursement = Disbursement {
        disbursement_id,
        kind: "PAYOUT".to_owned(),
        shown_id: "PO-1".to_owned(),
        merchant_id: Uuid::from_u128(2),
        amount_minor: 500,
        fee_minor: 0,
        transaction_id: None,
        reference: None,
        case_id: None,
        scheduled: false,
        account: "+233240000801".to_owned(),
        rail: "momo".to_owned(),
        rail_reference: Uuid::from_u128(7),
        created_at: at(0),
        state: "FAILED".to_owned(),
        failure_reason: Some("PAYEE_LIMIT_REACHED".to_owned()),
        updated_at: at(FAILED_AT),
        completed_at: None,
        reversed_at: None,
    };
    evidence.transfers.push(Transfer {
        rail: Rail::Momo,
        reference: disbursement.rail_reference.to_string(),
        account: disbursement.account.clone(),
        amount_minor: 500,
        currency: "GHS".to_owned(),
        asked_at: vec![0],
        taken_at: vec![0],
        credits: vec![Credit {
            at: FAILED_AT + HOUR,
            amount_minor: 500,
        }],
        fee_minor: 0,
        reversed_at: Some(last + HOUR),
        said: vec![said(last, Asker::Query, Word::Success)],
    });
    evidence.records.disbursements.push(disbursement);
    let is_kept = |evidence: &Evidence| {
        let mut broken = check(evidence).into_iter();
        !broken.any(|one| one.promise == Promise::Ledger && one.what.contains("left the float"))
    };
    assert!(!is_kept(&evidence), "it is not in the ledger");
    for (account, amount_minor) in [("rail:momo:float", 500), ("suspense", -500)] {
        evidence.records.postings.push(Posting {
            kind: "LATE_DISBURSEMENT".to_owned(),
            subject: disbursement_id,
            account: account.to_owned(),
            amount_minor,
            currency: "GHS".to_owned(),
        });
    }
    assert!(is_kept(&evidence));
}
