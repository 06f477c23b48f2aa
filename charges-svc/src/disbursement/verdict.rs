//! What a rail's answer to a query means for a disbursement.

use std::time::Duration;

use chassis::{clock::Timestamp, failure::FailureReason, money::Money};
use rails::TransferOutcome;

use super::{Disbursement, State};
use crate::{
    case::CaseKind,
    schedule::{DAY, FORGOTTEN_AFTER},
};

/// What follows from a rail's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing but the next query.
    Wait,
    /// It was paid. `fee`: what the rail took for it from the float.
    Complete {
        fee: Option<Money>,
    },
    Fail(FailureReason),
    /// It failed because our float is empty, which a person must fill.
    FailOfEmptyFloat,
    /// It was paid and taken back before anybody had heard of it: the money is in the float, without
    /// the `fee`.
    FailOfReversal {
        fee: Option<Money>,
    },
    /// It goes out once more, under the same reference.
    SendAgain,
    /// It is COMPLETED, as we knew. `fee`: as for Complete; what an operator completed has none yet.
    Confirm {
        fee: Option<Money>,
    },
    /// The rail took it back after it was COMPLETED. `fee`: as for Confirm.
    TakeBack {
        fee: Option<Money>,
    },
    /// The rail paid it after it had FAILED. `fee`: as for Complete.
    PaidLate {
        fee: Option<Money>,
    },
    /// The rail says of what FAILED that it failed: a contradiction if it had said that it paid late.
    FailAgain,
    /// The rail took back what it had paid late, if it had. `fee`: as for Complete.
    TakeBackLate {
        fee: Option<Money>,
    },
    /// A person must decide.
    Open(CaseKind, String),
}

/// What an answer that was asked for at `asked_at` means. A rail that still knows nothing of a
/// disbursement `resend_after` it was sent gets it once more, under the same reference;
/// `None` if the rail does not promise to refuse a reference's second use.
pub fn judge(
    disbursement: &Disbursement,
    found: &TransferOutcome,
    asked_at: Timestamp,
    resend_after: Option<Duration>,
) -> Verdict {
    let state = disbursement.progress.state;
    let is_reversed = disbursement.progress.reversed_at.is_some();
    match (state, found) {
        // Nothing was sent, so the rail cannot know it.
        (State::Pending, _) => Verdict::Wait,
        (_, TransferOutcome::Succeeded { .. }) => succeeded(disbursement, found),
        (State::Processing, TransferOutcome::Failed(reason)) => Verdict::Fail(*reason),
        (State::Processing, TransferOutcome::FloatEmpty) => Verdict::FailOfEmptyFloat,
        (State::Processing, TransferOutcome::Reversed { .. }) => Verdict::FailOfReversal {
            fee: fee_of(disbursement, found),
        },
        (State::Processing, TransferOutcome::ReferenceUnknown) => {
            let waited = asked_at.since(disbursement.first_sent_at());
            let is_over = resend_after.is_some_and(|after| waited >= after);
            if is_over && disbursement.resent_at.is_none() {
                Verdict::SendAgain
            } else {
                unknown(disbursement, asked_at)
            }
        }
        (State::Processing, TransferOutcome::Pending | TransferOutcome::Unknown) => {
            unknown(disbursement, asked_at)
        }
        // Rails repeat themselves.
        (State::Completed, TransferOutcome::Reversed { .. }) if is_reversed => Verdict::Wait,
        (State::Completed, TransferOutcome::Reversed { .. }) => Verdict::TakeBack {
            fee: fee_of(disbursement, found),
        },
        (State::Completed, TransferOutcome::Failed(_) | TransferOutcome::FloatEmpty) => {
            let detail = "the rail reports a failure of what was completed";
            Verdict::Open(CaseKind::Mismatch, detail.to_owned())
        }
        (State::Failed, TransferOutcome::Reversed { .. }) => Verdict::TakeBackLate {
            fee: fee_of(disbursement, found),
        },
        (State::Failed, TransferOutcome::Failed(_) | TransferOutcome::FloatEmpty) => {
            Verdict::FailAgain
        }
        (State::Completed | State::Failed, _) => Verdict::Wait,
    }
}

/// What a success means: nothing but a case if it is not what we sent.
fn succeeded(disbursement: &Disbursement, found: &TransferOutcome) -> Verdict {
    if let Some(detail) = mismatch(disbursement, found) {
        return Verdict::Open(CaseKind::Mismatch, detail);
    }
    let fee = fee_of(disbursement, found);
    match disbursement.progress.state {
        State::Pending => Verdict::Wait,
        State::Processing => Verdict::Complete { fee },
        State::Completed if disbursement.progress.reversed_at.is_some() => {
            let detail = "the rail reports success after it had taken it back";
            Verdict::Open(CaseKind::Mismatch, detail.to_owned())
        }
        State::Completed => Verdict::Confirm { fee },
        State::Failed => Verdict::PaidLate { fee },
    }
}

/// What the rail took from the float for a success, which it keeps if it takes that back, in the
/// currency of what it paid.
fn fee_of(disbursement: &Disbursement, found: &TransferOutcome) -> Option<Money> {
    let (TransferOutcome::Succeeded { fee, .. } | TransferOutcome::Reversed { fee }) = found else {
        return None;
    };
    let currency = disbursement.amount().currency();
    fee.filter(|fee| fee.is_positive() && fee.currency() == currency)
}

/// Whether an answer counts as one of the looks after the end, as `crate::verdict::heard` has it for
/// charges: a rail that has forgotten what it had been sent has said nothing, until a week is over.
pub fn is_answer(
    disbursement: &Disbursement,
    found: &TransferOutcome,
    asked_at: Timestamp,
) -> bool {
    match found {
        TransferOutcome::Unknown => false,
        TransferOutcome::ReferenceUnknown => {
            let forgotten_at = disbursement.progress.updated_at + FORGOTTEN_AFTER;
            disbursement.sent_at.is_none() || asked_at >= forgotten_at
        }
        _ => true,
    }
}

/// Nobody knows the outcome. After a day, a person must ask the rail.
fn unknown(disbursement: &Disbursement, asked_at: Timestamp) -> Verdict {
    if asked_at.since(disbursement.first_sent_at()) < DAY {
        return Verdict::Wait;
    }
    let detail = "the rail has given no outcome of a disbursement for a day";
    Verdict::Open(CaseKind::UnknownOutcome, detail.to_owned())
}

/// How a success differs from what we sent.
fn mismatch(disbursement: &Disbursement, found: &TransferOutcome) -> Option<String> {
    let TransferOutcome::Succeeded {
        rail_reference,
        amount,
        ..
    } = found
    else {
        return None;
    };
    let ours = disbursement.rail_reference.to_string();
    if *rail_reference != ours {
        return Some("the rail reports success for another reference".to_owned());
    }
    match amount {
        Some(amount) if *amount == disbursement.amount() => None,
        Some(amount) => Some(format!("the rail reports that it paid {}", shown(*amount))),
        None => Some("the rail reports success without an amount".to_owned()),
    }
}

fn shown(amount: Money) -> String {
    format!("{} {}", amount.to_major(), amount.currency().code())
}
