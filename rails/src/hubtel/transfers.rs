//! What Hubtel's answers about transfers mean.
//!
//! Promise: as for payments, only a documented refusal is a refusal, and no first reply says what
//! became of a transfer.

use chassis::{failure::FailureReason, ids::RailReference};

use super::answers::{HubtelAnswer, is_stranger};
use crate::{
    answer::RailAnswer,
    client::Reply,
    name::RailName,
    telemetry::{misconfigured, unmapped},
    transfer::{FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest},
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

/// The answer to a transfer.
pub fn sent(reply: &Reply, request: &TransferRequest) -> RailAnswer<SendOutcome> {
    let said = HubtelAnswer::read(reply);
    let unconfigured = SendOutcome::NotSent(FailureReason::RailConfiguration);
    let outcome = match (reply.status.as_u16(), said.code.as_str()) {
        _ if is_stranger(reply) => unconfigured,
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
    said.answer(reply, "", outcome)
}

/// The answer to a query. Integrators have seen its words; no document lists them.
pub fn found(reply: &Reply, reference: RailReference) -> RailAnswer<TransferOutcome> {
    let said = HubtelAnswer::read(reply);
    let status = said.data.code("transactionstatus");
    let outcome = match (reply.status.as_u16(), said.code.as_str()) {
        _ if is_stranger(reply) => {
            misconfigured(RailName::Hubtel, "query_transfer");
            TransferOutcome::Unknown
        }
        // How a reference that is not known is answered is documented nowhere.
        (404, code) if !code.is_empty() => TransferOutcome::ReferenceUnknown,
        // The state is not known there.
        (200, "0005" | "5000") => TransferOutcome::Unknown,
        (200, _) => found_transfer(&said, &status, reference),
        _ => TransferOutcome::Unknown,
    };
    said.answer(reply, &status, outcome)
}

fn found_transfer(said: &HubtelAnswer, status: &str, reference: RailReference) -> TransferOutcome {
    let transfer = &said.data;
    match status {
        "PENDING" => TransferOutcome::Pending,
        "SUCCESS" => TransferOutcome::Succeeded {
            rail_reference: transfer.client_reference().unwrap_or_default(),
            amount: transfer.money("amount"),
            fee: transfer.money("fees"),
        },
        "FAILED" if transfer.is_about_another(reference) => {
            tracing::error!(%reference, "Hubtel tells the end of another transfer");
            TransferOutcome::Unknown
        }
        "FAILED" if said.code == FLOAT_EMPTY || said.words().contains(FLOAT_EMPTY) => {
            TransferOutcome::FloatEmpty
        }
        "FAILED" => TransferOutcome::Failed(about_payee(said)),
        _ => TransferOutcome::Unknown,
    }
}

fn about_payee(said: &HubtelAnswer) -> FailureReason {
    let words = said.words().to_lowercase();
    let known = PAYEE.iter().find(|(known, _)| words.contains(known));
    known.map_or_else(|| unmapped(RailName::Hubtel), |(_, reason)| *reason)
}

/// The answer to a question for the balance of the account that pays.
pub fn float(reply: &Reply) -> RailAnswer<FloatOutcome> {
    let said = HubtelAnswer::read(reply);
    let held = said.data.money("amount");
    let held = held.filter(|_| reply.status.is_success() && said.code == "0000");
    RailAnswer {
        outcome: held.map_or(FloatOutcome::Unknown, FloatOutcome::Held),
        rail_text: reply.describe(""),
    }
}

/// The name of a wallet's holder. An account for which Hubtel has not enabled this says nothing.
pub fn named(reply: &Reply) -> RailAnswer<HolderOutcome> {
    let said = HubtelAnswer::read(reply);
    let is_registered = said.data.truth("isregistered");
    let name = said.data.text("name");
    let name = name.filter(|name| !name.trim().is_empty());
    let outcome = match is_registered.filter(|_| reply.status.is_success()) {
        Some(true) => name.map_or(HolderOutcome::Active, HolderOutcome::Named),
        Some(false) => HolderOutcome::NotThere,
        None => HolderOutcome::Unknown,
    };
    RailAnswer {
        outcome,
        rail_text: reply.describe(""),
    }
}
