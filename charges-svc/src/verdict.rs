//! What a rail's answer to a query means for a charge. Pure.
//!
//! Promise: money settles a charge only if the rail's reference, amount and currency are ours, and
//! no outcome is made up that the rail did not give. What a rail leaves open is final only once
//! the payer's time is over by the rail's own clock.

use chassis::{clock::Timestamp, failure::FailureReason, money::Money};
use rails::QueryOutcome;

use crate::{
    case::CaseKind,
    charge::{Charge, Event, State},
    schedule::{DAY, FORGOTTEN_AFTER, Timing},
};

/// What to do after a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is certain yet, or nothing is left to decide.
    AskAgain,
    Change(Event),
    /// The rail has no such payment, and the request may go out once more.
    Resend,
    /// An operator must decide, and the charge stays as it is. `suspense` is money that has
    /// arrived but cannot be credited to anyone yet.
    Open {
        kind: CaseKind,
        detail: String,
        suspense: Option<Money>,
    },
}

/// Judges what a query made at `now` found.
pub fn judge(charge: &Charge, found: &QueryOutcome, now: Timestamp, timing: Timing<'_>) -> Verdict {
    let found = heard(charge, found, now);
    match charge.progress.state {
        State::Submitting | State::Initiated | State::OtpRequired | State::OtpSubmitting => {
            match judge_open(charge, found, now, timing) {
                // The rail, or the way to it, may be back in time for a resend.
                Verdict::AskAgain if charge.may_be_resent(now, timing) => Verdict::AskAgain,
                // The charge is being queried, so its submitter is gone, and the reply with it.
                Verdict::AskAgain if charge.progress.state == State::Submitting => {
                    Verdict::Change(Event::Unanswered)
                }
                Verdict::AskAgain => judge_age(charge, now),
                verdict => verdict,
            }
        }
        State::Settled => match found {
            QueryOutcome::Reversed => reversed(),
            QueryOutcome::Pending
            | QueryOutcome::OtpRequired
            | QueryOutcome::Abandoned { .. }
            | QueryOutcome::Succeeded { .. }
            | QueryOutcome::Failed(_)
            | QueryOutcome::ReferenceUnknown
            | QueryOutcome::Unknown => Verdict::AskAgain,
        },
        State::Failed => match found {
            QueryOutcome::Succeeded {
                rail_reference,
                amount,
                fee: _,
            } => late_money(charge, rail_reference, *amount),
            QueryOutcome::Reversed => reversed(),
            QueryOutcome::Pending
            | QueryOutcome::OtpRequired
            | QueryOutcome::Abandoned { .. }
            | QueryOutcome::Failed(_)
            | QueryOutcome::ReferenceUnknown
            | QueryOutcome::Unknown => Verdict::AskAgain,
        },
        State::Void => Verdict::AskAgain,
    }
}

/// What a query found, if it is an answer at all. A rail that has shown a reference, or called
/// back about it, and does not know it `now` has said nothing, unless the charge ended so long ago
/// that the rail may have forgotten it.
pub fn heard<'f>(charge: &Charge, found: &'f QueryOutcome, now: Timestamp) -> &'f QueryOutcome {
    let is_known = charge.progress.seen_at_rail || charge.timer.hints > 0;
    let may_be_forgotten =
        charge.progress.state.is_terminal() && now >= charge.progress.updated_at + FORGOTTEN_AFTER;
    match found {
        QueryOutcome::ReferenceUnknown if is_known && !may_be_forgotten => &QueryOutcome::Unknown,
        found => found,
    }
}

/// Whether the answer shows that the rail knows our reference.
pub fn shows_reference(found: &QueryOutcome) -> bool {
    match found {
        QueryOutcome::Pending
        | QueryOutcome::OtpRequired
        | QueryOutcome::Abandoned { .. }
        | QueryOutcome::Succeeded { .. }
        | QueryOutcome::Failed(_)
        | QueryOutcome::Reversed => true,
        QueryOutcome::ReferenceUnknown | QueryOutcome::Unknown => false,
    }
}

fn judge_open(
    charge: &Charge,
    found: &QueryOutcome,
    now: Timestamp,
    timing: Timing<'_>,
) -> Verdict {
    match found {
        QueryOutcome::Succeeded {
            rail_reference,
            amount,
            fee: _,
        } => judge_money(charge, rail_reference, *amount),
        QueryOutcome::Failed(reason) => Verdict::Change(Event::Failed(*reason)),
        QueryOutcome::Reversed => reversed(),
        QueryOutcome::Abandoned { .. } if charge.timer.is_final(now, timing) => {
            Verdict::Change(Event::Failed(FailureReason::PayerTimeout))
        }
        QueryOutcome::OtpRequired | QueryOutcome::Abandoned { code_wanted: true } => {
            judge_code_wanted(charge, now, timing)
        }
        QueryOutcome::Pending | QueryOutcome::Abandoned { code_wanted: false } => {
            match charge.progress.state {
                State::Submitting | State::OtpSubmitting => Verdict::Change(Event::Accepted),
                // The rail no longer waits for the code, whose time is over.
                State::OtpRequired if is_code_late(charge, now) => Verdict::Change(Event::Accepted),
                _ => Verdict::AskAgain,
            }
        }
        QueryOutcome::ReferenceUnknown if charge.may_be_resent(now, timing) => Verdict::Resend,
        QueryOutcome::ReferenceUnknown => {
            let is_conclusive = match charge.progress.state {
                State::Submitting | State::Initiated => charge.timer.is_final(now, timing),
                // The rail asked for a code, so it knew the reference.
                _ => false,
            };
            if is_conclusive {
                return Verdict::Change(Event::Failed(FailureReason::RailUnavailable));
            }
            Verdict::AskAgain
        }
        QueryOutcome::Unknown => Verdict::AskAgain,
    }
}

/// The rail waits for a code.
fn judge_code_wanted(charge: &Charge, now: Timestamp, timing: Timing<'_>) -> Verdict {
    match charge.progress.state {
        // The network may still hold a code of ours whose reply was lost, until the network's own
        // time is over.
        State::OtpRequired if is_code_late(charge, now) && charge.timer.is_final(now, timing) => {
            Verdict::Change(Event::Failed(FailureReason::OtpExpired))
        }
        State::OtpRequired => Verdict::AskAgain,
        // The rail may not have checked the last code yet. Only its word about that code, or the
        // end of its time, is an outcome.
        _ if charge.progress.otp_tries_left() == 0 => Verdict::AskAgain,
        _ => Verdict::Change(Event::CodeWanted),
    }
}

fn is_code_late(charge: &Charge, now: Timestamp) -> bool {
    let expires_at = charge.timer.otp_expires_at;
    expires_at.is_some_and(|expires_at| expires_at <= now)
}

/// The rail reports a debit for an open charge.
fn judge_money(charge: &Charge, rail_reference: &str, amount: Option<Money>) -> Verdict {
    if charge.progress.mismatched {
        // Its money is in suspense, and an operator decides about it.
        return Verdict::AskAgain;
    }
    if is_ours(charge, rail_reference) && amount == Some(charge.facts.amount()) {
        return Verdict::Change(Event::Settled);
    }
    Verdict::Open {
        kind: CaseKind::Mismatch,
        detail: said(charge, rail_reference, amount),
        suspense: amount.filter(|amount| amount.is_positive()),
    }
}

fn late_money(charge: &Charge, rail_reference: &str, amount: Option<Money>) -> Verdict {
    if charge.progress.mismatched {
        // The same money has been in suspense since the rail first reported it.
        return Verdict::AskAgain;
    }
    Verdict::Open {
        kind: CaseKind::LateMoney,
        detail: format!("after it failed, {}", said(charge, rail_reference, amount)),
        suspense: amount.filter(|amount| amount.is_positive()),
    }
}

fn is_ours(charge: &Charge, rail_reference: &str) -> bool {
    rail_reference == charge.facts.rail_reference.to_string()
}

fn said(charge: &Charge, rail_reference: &str, amount: Option<Money>) -> String {
    let reported = amount.map_or_else(|| "no amount".to_owned(), |amount| amount.to_string());
    let whose = if is_ours(charge, rail_reference) {
        "our reference"
    } else {
        "another reference than ours"
    };
    let asked = charge.facts.amount();
    format!("the rail reports success, {reported}, for {whose}; we asked for {asked}")
}

fn reversed() -> Verdict {
    Verdict::Open {
        kind: CaseKind::Reversed,
        detail: "the rail took the payment back".to_owned(),
        suspense: None,
    }
}

fn judge_age(charge: &Charge, now: Timestamp) -> Verdict {
    if charge.progress.mismatched || now.since(charge.timer.submitted_at) < DAY {
        return Verdict::AskAgain;
    }
    Verdict::Open {
        kind: CaseKind::UnknownOutcome,
        detail: "a day after the submission the rail gives no outcome".to_owned(),
        suspense: None,
    }
}

#[cfg(test)]
mod tests;
