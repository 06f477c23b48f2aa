//! Promises 5, 6, 8 and 9: every pesewa belongs to somebody, once.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{Findings, Promise, suspense};
use crate::{
    history::CaseDecision,
    rails::{Asker, Payment, RailMessage, Word},
    records::Charge,
    time::{HOUR, Millis, SECOND},
};

/// After a link has lost an answer, the rail is asked again within this time.
pub(super) const HEARD_WITHIN: Millis = 3 * HOUR;

/// A debit is shown to those who ask within this time.
const SHOWN_WITHIN: Millis = HOUR;

/// How long after its failure a charge is looked at again.
pub(super) const LOOKS: [Millis; 3] = [HOUR, 24 * HOUR, LAST_LOOK];
const LAST_LOOK: Millis = 72 * HOUR;

/// After a long step of time, a replica's clock may be off by this much until it reads the
/// store's.
pub(super) const LOOK_SLACK: Millis = 10 * SECOND;

pub fn check(found: &mut Findings<'_>) {
    for charge in &found.evidence.records.charges {
        check_settled(found, charge);
        check_debits(found, charge);
        check_looks(found, charge);
    }
    check_sessions(found);
    check_ledger(found);
}

fn check_settled(found: &mut Findings<'_>, charge: &Charge) {
    let is_settled = charge.state == "SETTLED";
    let credits = posted(found, "SETTLEMENT", charge.transaction_id, "merchant:");
    if !is_settled {
        if credits != 0 {
            let what = format!("{} is {} and was credited", charge.reference, charge.state);
            found.broken(Promise::Failed, what);
        }
        return;
    }
    if credits != charge.amount_minor {
        let what = format!("{} is SETTLED and {credits} was credited", charge.reference);
        found.broken(Promise::Settled, what);
    }
    let debits = found
        .payment(charge)
        .map(|payment| payment.debits.as_slice())
        .unwrap_or_default();
    let is_one = debits.len() == 1
        && debits
            .iter()
            .all(|debit| debit.amount_minor == charge.amount_minor);
    if !is_one {
        let what = format!(
            "{} is SETTLED over {}, debits: {debits:?}",
            charge.reference, charge.amount_minor
        );
        found.broken(Promise::Settled, what);
    }
}

/// The sum of a subject's postings of one kind to accounts with this prefix.
pub(super) fn posted(found: &Findings<'_>, kind: &str, subject: Uuid, account: &str) -> i64 {
    let postings = found.evidence.records.postings.iter();
    postings
        .filter(|line| {
            line.kind == kind && line.subject == subject && line.account.starts_with(account)
        })
        .map(|line| line.amount_minor)
        .sum()
}

/// A debit that the rail reported, or would have reported when it was due to be asked, belongs to
/// the merchant or is in suspense with a case.
fn check_debits(found: &mut Findings<'_>, charge: &Charge) {
    let Some(payment) = found.payment(charge) else {
        return;
    };
    let Some(debit) = payment.debits.first() else {
        return;
    };
    let credited = posted(found, "SETTLEMENT", charge.transaction_id, "merchant:");
    let suspended = posted(found, "SUSPENSE", charge.transaction_id, "suspense");
    let is_owned = credited != 0 || suspended == payment.debited_minor();
    let told_at = payment.said.iter().find_map(|said| {
        let is_told = said.what == Word::Success && said.delivered && said.to == Asker::Query;
        (is_told && said.at >= debit.at).then_some(said.at)
    });
    let last_look = found.ended_at(charge) + LAST_LOOK;
    // No answer reported it before it was reversed, or it came after the last look.
    let is_untold = match (told_at, payment.reversed_at) {
        (Some(told), Some(reversed)) => reversed < told + HEARD_WITHIN,
        (None, Some(_)) => true,
        (Some(_), None) => false,
        (None, None) => debit.at + SHOWN_WITHIN > last_look,
    };
    let may_be_unknown = is_untold || (told_at.is_none() && is_denied(found, charge, payment));
    if !is_owned && !may_be_unknown {
        let what = format!(
            "{} ({}) was debited, {suspended} is in suspense, and it is nobody's: {payment:?}",
            charge.reference, charge.state
        );
        found.broken(Promise::Owned, what);
    }
    if credited != 0 && suspended != 0 {
        found.broken(
            Promise::Owned,
            format!("{} is owned twice", charge.reference),
        );
    }
    if suspended != 0 {
        check_suspended(found, charge, suspended);
    }
}

/// What the rail answered to queries.
fn answers(payment: &Payment) -> impl Iterator<Item = &RailMessage> {
    payment
        .said
        .iter()
        .filter(|said| said.to == Asker::Query && said.delivered && said.what != Word::Nothing)
}

/// Whether the rail denied the payment in every answer that was heard, including the last look's:
/// asking cannot reveal such a payment.
fn is_denied(found: &Findings<'_>, charge: &Charge, payment: &Payment) -> bool {
    let last_look = found.ended_at(charge) + LAST_LOOK;
    let last = answers(payment).max_by_key(|said| said.at);
    let is_last_denied = last.is_some_and(|answer| {
        answer.what == Word::Unknown404 && answer.at + LOOK_SLACK >= last_look
    });
    let mut said = payment.said.iter();
    // Whatever was acknowledged had been recorded.
    let was_called = said.any(|said| said.to == Asker::Callback && said.delivered);
    charge.state == "FAILED" && is_last_denied && !was_called && found.was_denied(charge)
}

/// The rail was asked, and answered, after every acknowledged callback and at every look at a
/// failure.
fn check_looks(found: &mut Findings<'_>, charge: &Charge) {
    let Some(payment) = found.payment(charge) else {
        return;
    };
    let was_shown = found.was_shown(charge);
    // A rail that has shown a payment and no longer knows it has said nothing.
    let heard = answers(payment).filter(|said| said.what != Word::Unknown404 || !was_shown);
    let answered_at: Vec<Millis> = heard.map(|said| said.at).collect();
    let calls = payment.said.iter();
    let calls = calls.filter(|said| said.to == Asker::Callback && said.delivered);
    let last_call = calls.map(|said| said.at).max();
    let last_answer = answered_at.iter().max().copied().unwrap_or_default();
    if charge.state != "VOID" && last_call.is_some_and(|call| last_answer < call) {
        let what = format!(
            "{} ({}) was called back about, and the rail was not heard since: {payment:?}",
            charge.reference, charge.state
        );
        found.broken(Promise::Owned, what);
    }
    if charge.state != "FAILED" {
        return;
    }
    let failed_at = found.ended_at(charge);
    let mut until = Millis::MAX;
    for look in LOOKS.into_iter().rev() {
        let from = failed_at + look - LOOK_SLACK;
        // A lost answer is asked for again every hour. A charge that an operator ended late has
        // its last look after the end of the run.
        let is_over = until.min(failed_at + look + HEARD_WITHIN) < found.evidence.time.now();
        let is_heard = answered_at.iter().any(|at| (from..until).contains(at));
        if is_over && !is_heard {
            let what = format!(
                "{} FAILED at {failed_at} ms, and the rail was not heard at the look after {look} ms: {payment:?}",
                charge.reference,
            );
            found.broken(Promise::Owned, what);
        }
        until = from;
    }
}

/// Money in suspense has an open case, or its case gave it to somebody.
fn check_suspended(found: &mut Findings<'_>, charge: &Charge, suspended: i64) {
    let cases = found.evidence.records.cases.iter();
    let cases = cases.filter(|case| case.transaction_id == charge.transaction_id);
    let mut cases = cases.filter(|case| case.suspense_minor == Some(suspended));
    let Some(case) = cases.next() else {
        let what = format!(
            "{} has {suspended} in suspense and no case",
            charge.reference
        );
        return found.broken(Promise::Owned, what);
    };
    let refunded = posted(found, "REFUND", case.case_id, "suspense");
    let released = posted(found, "RELEASE", case.case_id, "suspense");
    let refunds = found.evidence.records.disbursements.iter();
    let refunds = refunds.filter(|refund| refund.case_id == Some(case.case_id));
    let sent: i64 = refunds
        .clone()
        .map(|refund| suspense::in_suspense(found, refund))
        .sum();
    let undecided: i64 = refunds
        .map(|refund| suspense::undecided(found, refund))
        .sum();
    let left = suspended + refunded + released + sent;
    let should_be_left = match case.closed_at {
        Some(_) => -undecided,
        None => suspended - undecided,
    };
    if left != should_be_left {
        let what = format!(
            "{} has {left} left in suspense, closed at {:?}",
            charge.reference, case.closed_at
        );
        found.broken(Promise::Owned, what);
    }
}

fn check_sessions(found: &mut Findings<'_>) {
    let mut settled: HashSet<Uuid> = HashSet::new();
    let mut credits: HashMap<Uuid, u32> = HashMap::new();
    let records = &found.evidence.records;
    for charge in &records.charges {
        if charge.state == "SETTLED" && !settled.insert(charge.session_id) {
            let what = format!("session {} was settled twice", charge.session_id);
            found.broken(Promise::Session, what);
        }
        let cases = records
            .cases
            .iter()
            .filter(|case| case.transaction_id == charge.transaction_id);
        let released =
            cases.filter(|case| posted(found, "RELEASE", case.case_id, "merchant:") != 0);
        let times = u32::from(charge.state == "SETTLED")
            + u32::try_from(released.count()).unwrap_or(u32::MAX);
        *credits.entry(charge.session_id).or_default() += times;
    }
    for (session, times) in credits.into_iter().filter(|(_, times)| *times > 1) {
        let charges: Vec<&Charge> = records
            .charges
            .iter()
            .filter(|charge| charge.session_id == session)
            .collect();
        let is_charges = |id: Uuid| charges.iter().any(|charge| charge.transaction_id == id);
        let mut cases = records.cases.iter();
        let settled_after_release =
            cases.any(|case| case.kind == "CREDITED_TWICE" && is_charges(case.transaction_id));
        let mut acts = found.evidence.history.acts.iter();
        let is_overridden = acts.any(|act| {
            act.what == CaseDecision::Override
                && charges
                    .iter()
                    .any(|charge| charge.reference == act.reference)
        });
        if !settled_after_release && !is_overridden {
            found.broken(
                Promise::Session,
                format!("session {session} was credited {times} times"),
            );
        }
    }
    for charge in records
        .charges
        .iter()
        .filter(|charge| charge.state == "SETTLED")
    {
        let session = records
            .sessions
            .iter()
            .find(|session| session.session_id == charge.session_id);
        let status = session.map(|session| session.status.as_str());
        if status != Some("COMPLETED") {
            let what = format!(
                "{} is SETTLED and its session is {status:?}",
                charge.reference
            );
            found.broken(Promise::Session, what);
        }
    }
}

fn check_ledger(found: &mut Findings<'_>) {
    let records = &found.evidence.records;
    let mut sums: HashMap<(&str, Uuid, &str), i64> = HashMap::new();
    let mut accounts: HashMap<(&str, &str), i64> = HashMap::new();
    for line in &records.postings {
        *sums
            .entry((&line.kind, line.subject, &line.currency))
            .or_default() += line.amount_minor;
        *accounts.entry((&line.account, &line.currency)).or_default() += line.amount_minor;
    }
    for (posting, sum) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
        found.broken(Promise::Ledger, format!("{posting:?} sums to {sum}"));
    }
    for kept in &records.balances {
        let of = (kept.account.as_str(), kept.currency.as_str());
        if kept.amount_minor != accounts.get(&of).copied().unwrap_or_default() {
            found.broken(
                Promise::Ledger,
                format!("nothing that was posted makes {kept:?}"),
            );
        }
    }
    let merchants = accounts
        .iter()
        .filter(|((account, _), _)| account.starts_with("merchant:"));
    for ((account, currency), sum) in merchants {
        let mut balances = records.balances.iter();
        let kept = balances.find(|kept| kept.account == *account && kept.currency == *currency);
        let kept = kept.map(|kept| kept.amount_minor);
        if kept != Some(*sum) {
            found.broken(
                Promise::Ledger,
                format!("{account} holds {sum} and its balance is {kept:?}"),
            );
        }
    }
}
