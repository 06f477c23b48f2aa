//! What Hubtel's answers about transfers mean.
//!
//! Promise: as for payments, only a documented refusal is a refusal, and no first reply says what
//! became of a transfer.

use chassis::{failure::FailureReason, ids::RailReference};

use super::answers::{Answer, is_access_denied, report_refusal};
use crate::{
    answer::RailAnswer,
    client::Reply,
    name::RailName,
    telemetry::unmapped,
    transfer::{FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest},
    words::reason_in,
};

/// The Prepaid Deposit account does not cover it.
const FLOAT_EMPTY: &str = "4075";

/// What a failure's text, in lower case, says about the payee: the first entry that it contains
/// decides.
const PAYEE: &[(&str, FailureReason)] = &[
    ("not registered", FailureReason::PayeeNotFound),
    ("not found", FailureReason::PayeeNotFound),
    ("limit", FailureReason::PayeeLimitReached),
    ("blocked", FailureReason::PayeeAccountBlocked),
    ("not active", FailureReason::PayeeAccountBlocked),
];

/// The answer to a transfer. Its codes are documented for payments; 3050 and 4075 alone are its own.
/// That the others mean the same here is likely, and to be confirmed with Hubtel.
pub fn sent(reply: &Reply, request: &TransferRequest) -> RailAnswer<SendOutcome> {
    let said = Answer::read(reply);
    let unconfigured = SendOutcome::NotSent(FailureReason::RailConfiguration);
    let outcome = match (reply.status.as_u16(), said.code.as_str()) {
        _ if is_access_denied(reply) => unconfigured,
        // That nothing was done is documented nowhere.
        (429 | 500.., _) => SendOutcome::Unknown,
        _ if said.data.is_about_another(request.rail_reference) => {
            let reference = request.rail_reference;
            tracing::error!(%reference, "Hubtel answers about another transfer");
            SendOutcome::Unknown
        }
        (200..=299, "0000" | "0001") => SendOutcome::Accepted,
        (200..=299 | 400..=499, code) => match code {
            "3050" => SendOutcome::Refused(FailureReason::PayeeNotFound),
            FLOAT_EMPTY => SendOutcome::FloatEmpty,
            "4101" | "4103" | "4105" => unconfigured,
            // It may also say that Hubtel has the reference already.
            "4000" if request.may_be_known => SendOutcome::Unknown,
            "4000" => SendOutcome::Refused(about_payee(&said)),
            _ => SendOutcome::Unknown,
        },
        _ => SendOutcome::Unknown,
    };
    said.with_outcome(reply, "", outcome)
}

/// The answer to a query. Integrators have seen its words; no document lists them.
pub fn found(reply: &Reply, reference: RailReference) -> RailAnswer<TransferOutcome> {
    let said = Answer::read(reply);
    let status = said.data.code("transactionstatus");
    let outcome = match (reply.status.as_u16(), said.code.as_str()) {
        _ if report_refusal(reply, &said, "query_transfer") => TransferOutcome::Unknown,
        // The state is not known there, which is not a reference that is not known.
        (_, "0005" | "5000") => TransferOutcome::Unknown,
        // How a reference that is not known is answered is documented nowhere.
        (404, code) if !code.is_empty() => TransferOutcome::ReferenceUnknown,
        (200, _) => found_transfer(&said, &status, reference),
        _ => TransferOutcome::Unknown,
    };
    said.with_outcome(reply, &status, outcome)
}

fn found_transfer(said: &Answer, status: &str, reference: RailReference) -> TransferOutcome {
    let transfer = &said.data;
    let is_found = matches!(said.code.as_str(), "" | "SUCCESS" | "0000" | "0001");
    // Beside `failed`, the code of the answer is the word again, or why.
    let is_failure =
        is_found || matches!(said.code.as_str(), "FAILED" | "2001" | "3050" | FLOAT_EMPTY);
    match status {
        "PENDING" => TransferOutcome::Pending,
        "SUCCESS" if is_found => TransferOutcome::Succeeded {
            rail_reference: transfer.client_reference().unwrap_or_default(),
            amount: transfer.money("amount"),
            // On top of the amount: to be confirmed with Hubtel.
            fee: transfer.money("fees"),
        },
        // Beside a code that nobody knows, no word is an outcome.
        "FAILED" if !is_failure => TransferOutcome::Unknown,
        "FAILED" if !transfer.is_about(reference) => {
            tracing::error!(%reference, "Hubtel does not say that this is the transfer's end");
            TransferOutcome::Unknown
        }
        "FAILED" if is_float_empty(said) => TransferOutcome::FloatEmpty,
        "FAILED" if said.code == "3050" => TransferOutcome::Failed(FailureReason::PayeeNotFound),
        "FAILED" => TransferOutcome::Failed(about_payee(said)),
        _ => TransferOutcome::Unknown,
    }
}

/// Where the status of a failed transfer has the code is documented nowhere.
fn is_float_empty(said: &Answer) -> bool {
    let words = said.words();
    let mut words = words.split(|c: char| !c.is_ascii_alphanumeric());
    said.code == FLOAT_EMPTY || words.any(|word| word == FLOAT_EMPTY)
}

fn about_payee(said: &Answer) -> FailureReason {
    match said.words().as_str() {
        // As the status is documented.
        "" => FailureReason::RailError,
        words => reason_in(PAYEE, words).unwrap_or_else(|| unmapped(RailName::Hubtel)),
    }
}

/// The answer to a question for the balance of the account that pays.
pub fn float(reply: &Reply) -> RailAnswer<FloatOutcome> {
    let said = Answer::read(reply);
    report_refusal(reply, &said, "float");
    let held = said.data.money("amount");
    let held = held.filter(|_| reply.status.is_success() && said.code == "0000");
    RailAnswer {
        outcome: held.map_or(FloatOutcome::Unknown, FloatOutcome::Held),
        rail_text: reply.describe(""),
    }
}

/// The name of a wallet's holder. An account for which Hubtel has not enabled this says nothing.
pub fn named(reply: &Reply) -> RailAnswer<HolderOutcome> {
    let said = Answer::read(reply);
    let is_registered = said.registered(reply, "holder");
    let name = said.data.text("name");
    let name = name.filter(|name| !name.trim().is_empty());
    let outcome = match is_registered {
        Some(true) => name.map_or(HolderOutcome::Active, HolderOutcome::Named),
        Some(false) => HolderOutcome::NotThere,
        None => HolderOutcome::Unknown,
    };
    RailAnswer {
        outcome,
        rail_text: reply.describe(""),
    }
}
