//! What Paystack is sent, and what its answers mean, about transfers.
//!
//! Promise: only a documented refusal is a refusal, and no first reply says what became of a
//! transfer.

use chassis::{
    failure::FailureReason,
    ids::RailReference,
    money::{Currency, Money},
    provider::Provider,
};
use serde::{Deserialize, Serialize};

use super::answers::Envelope;
use crate::{
    answer::RailAnswer,
    client::Reply,
    name::RailName,
    telemetry::{misconfigured, unmapped},
    transfer::{
        Destination, FloatOutcome, HolderOutcome, SendOutcome, TransferOutcome, TransferRequest,
    },
    words::{Member, reason_in},
};

/// What a failure's text, in lower case, says about the payee: the first entry that it contains
/// decides.
const PAYEE: &[(&str, FailureReason)] = &[
    ("wallet limit", FailureReason::PayeeLimitReached),
    ("not found", FailureReason::PayeeNotFound),
    ("invalid account", FailureReason::PayeeNotFound),
    ("account number is invalid", FailureReason::PayeeNotFound),
    ("cannot resolve", FailureReason::PayeeNotFound),
    ("could not resolve", FailureReason::PayeeNotFound),
    ("blocked", FailureReason::PayeeAccountBlocked),
    ("inactive", FailureReason::PayeeAccountBlocked),
];

/// `POST /transferrecipient`
#[derive(Serialize)]
pub struct Recipient<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    account_number: String,
    bank_code: &'a str,
    currency: &'static str,
}

/// `POST /transfer`
#[derive(Serialize)]
pub struct Transfer<'a> {
    source: &'static str,
    /// Pesewas.
    amount: i64,
    currency: &'static str,
    recipient: &'a str,
    reference: String,
    reason: &'a str,
}

impl<'a> Recipient<'a> {
    pub fn new(request: &'a TransferRequest) -> Self {
        let currency = request.amount.currency().code();
        match &request.destination {
            Destination::Wallet {
                provider,
                phone,
                holder_name,
            } => Self {
                kind: "mobile_money",
                // A recipient without a name is refused.
                name: holder_name.as_deref().unwrap_or(&request.shown_id),
                account_number: phone.local(),
                bank_code: wallet_code(*provider),
                currency,
            },
            Destination::Bank {
                bank_code,
                account_number,
                holder_name,
            } => Self {
                kind: "ghipss",
                name: holder_name,
                account_number: account_number.clone(),
                bank_code,
                currency,
            },
        }
    }
}

impl<'a> Transfer<'a> {
    pub fn new(request: &'a TransferRequest, recipient: &'a str) -> Self {
        Self {
            source: "balance",
            amount: request.amount.minor_units(),
            // Without it, Paystack takes it for naira.
            currency: request.amount.currency().code(),
            recipient,
            reference: request.rail_reference.to_string(),
            reason: &request.shown_id,
        }
    }
}

/// Where Paystack tells the name of an account's holder.
pub fn resolve_path(destination: &Destination) -> String {
    let (account_number, bank_code) = match destination {
        Destination::Wallet {
            provider, phone, ..
        } => (phone.local(), wallet_code(*provider)),
        Destination::Bank {
            bank_code,
            account_number,
            ..
        } => (account_number.clone(), bank_code.as_str()),
    };
    // Neither has other characters, except by mistake.
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let (account_number, bank_code) = (plain(&account_number), plain(bank_code));
    format!("/bank/resolve?account_number={account_number}&bank_code={bank_code}")
}

fn wallet_code(provider: Provider) -> &'static str {
    match provider {
        Provider::Mtn => "MTN",
        Provider::Telecel => "VOD",
        Provider::At => "ATL",
    }
}

#[derive(Default, Deserialize)]
struct SentTransfer {
    #[serde(default)]
    status: Member,
    #[serde(default)]
    reference: Member,
    #[serde(default)]
    amount: Member,
    #[serde(default)]
    currency: Member,
    #[serde(default)]
    fee_charged: Member,
    #[serde(default)]
    gateway_response: Member,
    #[serde(default)]
    failures: Member,
    #[serde(default)]
    recipient_code: Member,
    #[serde(default)]
    account_name: Member,
}

#[derive(Deserialize)]
struct Balances {
    data: Vec<Balance>,
}

#[derive(Deserialize)]
struct Balance {
    #[serde(default)]
    currency: Member,
    #[serde(default)]
    balance: Member,
}

/// A parsed answer.
struct Said {
    envelope: Envelope,
    transfer: SentTransfer,
}

impl Said {
    fn read(reply: &Reply) -> Self {
        let envelope: Option<Envelope> = reply.object();
        let envelope = envelope.unwrap_or_default();
        let transfer = envelope.data.object().unwrap_or_default();
        Self { envelope, transfer }
    }

    /// Whether Paystack itself refuses: a proxy's error may be JSON too, and tells nothing of what
    /// became of the request.
    fn is_refusal(&self) -> bool {
        self.envelope.status.is_false()
    }

    fn message(&self) -> String {
        self.envelope.message.text().unwrap_or_default()
    }

    fn is_duplicate(&self) -> bool {
        self.envelope.code.code() == "DUPLICATE_TRANSFER_REFERENCE"
            || self
                .message()
                .to_lowercase()
                .contains("reference already exists")
    }

    /// Why a transfer failed, in the rail's words.
    fn words(&self) -> String {
        let of_transfer = [&self.transfer.gateway_response, &self.transfer.failures];
        let said: Vec<String> = of_transfer.into_iter().filter_map(Member::text).collect();
        match said.is_empty() {
            true => self.message(),
            false => said.join(" "),
        }
    }

    fn about_payee(&self) -> Option<FailureReason> {
        reason_in(PAYEE, &self.words())
    }

    fn answer<T>(&self, reply: &Reply, outcome: T) -> RailAnswer<T> {
        let status = self.transfer.status.text().unwrap_or_default();
        let code = self.envelope.code.text().unwrap_or_default();
        let parts = [status, code, self.words()];
        let said: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let rail_text = reply.describe(&said.join(" "));
        RailAnswer { outcome, rail_text }
    }
}

/// The code of a recipient, or why nothing can be sent to it. Nothing was paid yet, so even a reply
/// that makes no sense is no doubt.
pub fn recipient(reply: &Reply) -> Result<String, RailAnswer<SendOutcome>> {
    let said = Said::read(reply);
    let outcome = match reply.status.as_u16() {
        200 | 201 => match said.transfer.recipient_code.text() {
            Some(code) if !code.is_empty() => return Ok(code),
            _ => SendOutcome::NotSent(FailureReason::RailUnavailable),
        },
        401 => SendOutcome::NotSent(FailureReason::RailConfiguration),
        429 => SendOutcome::NotSent(FailureReason::RailUnavailable),
        // What is not about the payee is about us: a person mends it, and the transfer waits.
        400..=499 if said.is_refusal() => match said.about_payee() {
            Some(reason) => SendOutcome::Refused(reason),
            None => SendOutcome::NotSent(FailureReason::RailConfiguration),
        },
        _ => SendOutcome::NotSent(FailureReason::RailUnavailable),
    };
    Err(said.answer(reply, outcome))
}

/// The answer to a transfer.
pub fn sent(reply: &Reply, request: &TransferRequest) -> RailAnswer<SendOutcome> {
    let said = Said::read(reply);
    let outcome = match reply.status.as_u16() {
        _ if said.is_duplicate() => SendOutcome::AlreadyKnown,
        200 | 201 if is_ours(&said.transfer, request) => SendOutcome::Accepted,
        401 if reply.is_unauthorized() => SendOutcome::NotSent(FailureReason::RailConfiguration),
        // That it keeps a transfer from being paid is documented nowhere.
        429 => SendOutcome::Unknown,
        400..=499 if said.is_refusal() => refused(&said),
        _ => SendOutcome::Unknown,
    };
    said.answer(reply, outcome)
}

/// Whether Paystack took what we sent, whatever became of it.
fn is_ours(transfer: &SentTransfer, request: &TransferRequest) -> bool {
    let is_known = matches!(
        transfer.status.code().as_str(),
        "SUCCESS"
            | "PENDING"
            | "OTP"
            | "RECEIVED"
            | "FAILED"
            | "REVERSED"
            | "ABANDONED"
            | "BLOCKED"
            | "REJECTED"
    );
    is_known && is_about(transfer, request.rail_reference, request.amount)
}

/// Whether the transfer that Paystack speaks of is ours.
fn is_about(transfer: &SentTransfer, reference: RailReference, amount: Money) -> bool {
    transfer.reference.text() == Some(reference.to_string())
        && transfer.amount.hundredths(&transfer.currency) == Some(amount)
}

fn refused(said: &Said) -> SendOutcome {
    let message = said.message().to_lowercase();
    if message.contains("balance is not enough") {
        return SendOutcome::FloatEmpty;
    }
    if message.contains("third party payouts") || message.contains("starter business") {
        return SendOutcome::NotSent(FailureReason::RailConfiguration);
    }
    if said.envelope.code.code() == "INVALID_TRANSFER_RECIPIENT" {
        return SendOutcome::Refused(FailureReason::PayeeNotFound);
    }
    let reason = said.about_payee();
    SendOutcome::Refused(reason.unwrap_or_else(|| unmapped(RailName::Paystack)))
}

/// The answer to a query.
pub fn found(
    reply: &Reply,
    reference: RailReference,
    amount: Money,
) -> RailAnswer<TransferOutcome> {
    let said = Said::read(reply);
    let outcome = match reply.status.as_u16() {
        200 => match found_transfer(&said, reference) {
            TransferOutcome::Failed(_) | TransferOutcome::Reversed { .. }
                if !is_about(&said.transfer, reference, amount) =>
            {
                tracing::error!(%reference, "Paystack tells the end of another transfer");
                TransferOutcome::Unknown
            }
            found => found,
        },
        404 if said.is_refusal() => TransferOutcome::ReferenceUnknown,
        401 if reply.is_unauthorized() => {
            misconfigured(RailName::Paystack, "query_transfer");
            TransferOutcome::Unknown
        }
        _ => TransferOutcome::Unknown,
    };
    said.answer(reply, outcome)
}

fn found_transfer(said: &Said, reference: RailReference) -> TransferOutcome {
    let transfer = &said.transfer;
    match transfer.status.code().as_str() {
        "PENDING" => TransferOutcome::Pending,
        // Somebody has switched the confirmation of transfers on, and must switch it off.
        status @ ("OTP" | "RECEIVED") => {
            tracing::error!(%reference, status, "the transfer waits for a person at Paystack");
            TransferOutcome::Pending
        }
        "SUCCESS" => TransferOutcome::Succeeded {
            rail_reference: transfer.reference.text().unwrap_or_default(),
            amount: transfer.amount.hundredths(&transfer.currency),
            fee: transfer.fee_charged.hundredths(&transfer.currency),
        },
        "FAILED" => {
            let reason = said.about_payee();
            TransferOutcome::Failed(reason.unwrap_or_else(|| unmapped(RailName::Paystack)))
        }
        "REVERSED" => TransferOutcome::Reversed {
            fee: transfer.fee_charged.hundredths(&transfer.currency),
        },
        "ABANDONED" | "BLOCKED" | "REJECTED" => {
            misconfigured(RailName::Paystack, "query_transfer");
            TransferOutcome::Failed(FailureReason::RailConfiguration)
        }
        _ => TransferOutcome::Unknown,
    }
}

/// The answer to a question for our balance.
pub fn float(reply: &Reply) -> RailAnswer<FloatOutcome> {
    let balances: Option<Balances> = reply.object().filter(|_| reply.status.is_success());
    let held = balances.and_then(|balances| {
        let amounts = balances.data.iter();
        let mut amounts = amounts.filter_map(|held| held.balance.hundredths(&held.currency));
        amounts.find(|held: &Money| held.currency() == Currency::GHS)
    });
    RailAnswer {
        outcome: held.map_or(FloatOutcome::Unknown, FloatOutcome::Held),
        rail_text: reply.describe(""),
    }
}

/// The name of an account's holder. Paystack's silence about it says nothing.
pub fn named(reply: &Reply) -> RailAnswer<HolderOutcome> {
    let said = Said::read(reply);
    let name = said.transfer.account_name.text();
    let name = name.filter(|name| reply.status.is_success() && !name.trim().is_empty());
    RailAnswer {
        outcome: name.map_or(HolderOutcome::Unknown, HolderOutcome::Named),
        rail_text: reply.describe(""),
    }
}

#[cfg(test)]
mod tests;
