//! What MTN's answers about disbursements mean.
//!
//! Promise: as for collection, only a documented refusal is a refusal.

use chassis::{failure::FailureReason, ids::RailReference};
use serde::Deserialize;

use super::answers::Problem;
use crate::{
    answer::RailAnswer,
    client::Reply,
    name::RailName,
    telemetry::{misconfigured, unmapped},
    transfer::{FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome},
    words::Member,
};

/// The code that says that either our float or the payee's account is at fault.
const AMBIGUOUS: &str = "LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED";

/// What a code says about the payee. Any other code of a failure is [`FailureReason::RailError`] and
/// is counted.
const PAYEE: &[(&str, FailureReason)] = &[
    ("PAYEE_NOT_FOUND", FailureReason::PayeeNotFound),
    (
        "PAYEE_NOT_ALLOWED_TO_RECEIVE",
        FailureReason::PayeeAccountBlocked,
    ),
    ("PAYEE_LIMIT_REACHED", FailureReason::PayeeLimitReached),
    (AMBIGUOUS, FailureReason::PayeeLimitReached),
];

/// Codes of a failure that say that our float is too low.
const FLOAT: &[&str] = &["NOT_ENOUGH_FUNDS", "PAYER_LIMIT_REACHED"];

/// Codes of a failure whose reason is known to be none of ours and none of the payee's.
const PLAIN: &[&str] = &[
    "EXPIRED",
    "COULD_NOT_PERFORM_TRANSACTION",
    "INTERNAL_PROCESSING_ERROR",
];

/// Codes of a 500 with which MTN refuses our configuration.
const CONFIGURATION: &[&str] = &[
    "NOT_ALLOWED",
    "NOT_ALLOWED_TARGET_ENVIRONMENT",
    "INVALID_CALLBACK_URL_HOST",
    "INVALID_CURRENCY",
];

/// A transfer, as a query shows it.
#[derive(Deserialize)]
struct Transfer {
    #[serde(default)]
    status: Member,
    #[serde(default)]
    amount: Member,
    #[serde(default)]
    currency: Member,
    #[serde(default, rename = "externalId")]
    external_id: Member,
    #[serde(default)]
    reason: Member,
}

#[derive(Deserialize)]
struct Balance {
    #[serde(default, rename = "availableBalance")]
    available: Member,
    #[serde(default)]
    currency: Member,
}

#[derive(Deserialize)]
struct Active {
    result: bool,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    name: Member,
    #[serde(default)]
    given_name: Member,
    #[serde(default)]
    family_name: Member,
}

/// The answer to a transfer.
pub fn sent(reply: &Reply) -> RailAnswer<SendOutcome> {
    let problem: Option<Problem> = reply.object();
    let code = problem.as_ref().map(Problem::code).unwrap_or_default();
    let not_sent = SendOutcome::NotSent;
    let outcome = match (reply.status.as_u16(), code.as_str()) {
        (202, _) if reply.is_trusted() => SendOutcome::Accepted,
        (401 | 403, _) if reply.is_trusted() => not_sent(FailureReason::RailConfiguration),
        (400 | 409, "RESOURCE_ALREADY_EXIST") => SendOutcome::AlreadyKnown,
        (400, "INTERNAL_PROCESSING_ERROR") => SendOutcome::Unknown,
        (400, code) if FLOAT.contains(&code) => SendOutcome::FloatEmpty,
        (400, code) if reply.is_trusted() => match about_payee(code) {
            Some(reason) => SendOutcome::Refused(reason),
            None if CONFIGURATION.contains(&code) => not_sent(FailureReason::RailConfiguration),
            // What is refused now is refused again: a person must look.
            None => SendOutcome::Refused(unmapped(RailName::Momo)),
        },
        (500, code) if CONFIGURATION.contains(&code) => not_sent(FailureReason::RailConfiguration),
        (503, "SERVICE_UNAVAILABLE") => not_sent(FailureReason::RailUnavailable),
        // A 429 too: that it keeps a transfer from being paid is documented nowhere.
        _ => SendOutcome::Unknown,
    };
    let words = problem.unwrap_or_default().words();
    let rail_text = reply.describe(&words);
    RailAnswer { outcome, rail_text }
}

/// The answer to a query.
pub fn found(reply: &Reply, reference: RailReference) -> RailAnswer<TransferOutcome> {
    if let (200, Some(transfer)) = (reply.status.as_u16(), reply.object()) {
        return found_transfer(reply, transfer, reference);
    }
    let problem: Problem = reply.object().unwrap_or_default();
    let outcome = match (reply.status.as_u16(), problem.code().as_str()) {
        (404, "RESOURCE_NOT_FOUND" | "TRANSACTION_NOT_FOUND") => TransferOutcome::ReferenceUnknown,
        (401 | 403, _) if reply.is_trusted() => {
            misconfigured(RailName::Momo, "query_transfer");
            TransferOutcome::Unknown
        }
        _ => TransferOutcome::Unknown,
    };
    let rail_text = reply.describe(&problem.words());
    RailAnswer { outcome, rail_text }
}

fn found_transfer(
    reply: &Reply,
    transfer: Transfer,
    reference: RailReference,
) -> RailAnswer<TransferOutcome> {
    let status = transfer.status.code();
    let external_id = transfer.external_id.text();
    let is_anothers = external_id.is_some_and(|id| id != reference.to_string());
    let reason = Problem::from_reason(transfer.reason);
    let code = reason.code();
    let outcome = match status.as_str() {
        "PENDING" => TransferOutcome::Pending,
        "SUCCESSFUL" => TransferOutcome::Succeeded {
            rail_reference: transfer.external_id.text().unwrap_or_default(),
            amount: transfer.amount.major_units(&transfer.currency),
            // MTN bills its fees separately.
            fee: None,
        },
        "FAILED" if is_anothers => {
            tracing::error!(%reference, "MTN tells the end of another transfer");
            TransferOutcome::Unknown
        }
        "FAILED" if FLOAT.contains(&code.as_str()) => TransferOutcome::FloatEmpty,
        "FAILED" if PLAIN.contains(&code.as_str()) => {
            TransferOutcome::Failed(FailureReason::RailError)
        }
        "FAILED" => {
            TransferOutcome::Failed(about_payee(&code).unwrap_or_else(|| unmapped(RailName::Momo)))
        }
        _ => TransferOutcome::Unknown,
    };
    let words = format!("{status} {}", reason.words());
    let rail_text = reply.describe(words.trim());
    RailAnswer { outcome, rail_text }
}

/// Whether a transfer was refused, or has failed, for a reason that may be our float or the payee.
pub fn is_ambiguous(reply: &Reply) -> bool {
    let refused = || Some(reply.object::<Problem>()?.code());
    let failed = || Some(Problem::from_reason(reply.object::<Transfer>()?.reason).code());
    let code = match reply.status.as_u16() {
        200 => failed(),
        _ => refused(),
    };
    code.as_deref() == Some(AMBIGUOUS)
}

/// The answer to a question for our balance.
pub fn float(reply: &Reply) -> RailAnswer<FloatOutcome> {
    let balance: Option<Balance> = reply.object().filter(|_| reply.status.is_success());
    let held = balance.and_then(|balance| balance.available.major_units(&balance.currency));
    RailAnswer {
        outcome: held.map_or(FloatOutcome::Unknown, FloatOutcome::Held),
        rail_text: reply.describe(""),
    }
}

/// Whether a wallet is there. An empty answer says nothing.
pub fn active(reply: &Reply) -> RailAnswer<HolderOutcome> {
    let outcome = match (reply.status.as_u16(), reply.object::<Active>()) {
        (200, Some(Active { result: true })) => HolderOutcome::Active,
        (200, Some(Active { result: false })) | (404, _) if reply.is_trusted() => {
            HolderOutcome::NotThere
        }
        _ => HolderOutcome::Unknown,
    };
    RailAnswer {
        outcome,
        rail_text: reply.describe(""),
    }
}

/// The name of a wallet's holder, which is there. Nothing else of the answer is kept.
pub fn named(reply: &Reply) -> RailAnswer<HolderOutcome> {
    let info: Option<UserInfo> = reply.object().filter(|_| reply.status.is_success());
    let name = info.and_then(|info| {
        let parts = [info.given_name.text(), info.family_name.text()];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let whole = info.name.text().filter(|name| !name.trim().is_empty());
        whole.or_else(|| (!parts.is_empty()).then(|| parts.join(" ")))
    });
    RailAnswer {
        outcome: name.map_or(HolderOutcome::Active, HolderOutcome::Named),
        rail_text: reply.describe(""),
    }
}

fn about_payee(code: &str) -> Option<FailureReason> {
    let known = PAYEE.iter().find(|(known, _)| *known == code);
    known.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests;
