//! What Paystack's answers mean.
//!
//! Promise: only a documented refusal is a refusal. Everything else is unknown until a query
//! tells.

use chassis::{failure::FailureReason, ids::RailReference};
use serde::Deserialize;

use crate::{
    answer::{OtpOutcome, Query, QueryOutcome, RailAnswer, RequestOutcome},
    client::Reply,
    name::RailName,
    telemetry::{misconfigured, unmapped},
    words::{Member, reason_in},
};

/// What a failure's text, in lower case, means: the first entry that it contains decides. A text
/// that contains none is [`FailureReason::RailError`] and is counted.
const REASONS: &[(&str, FailureReason)] = &[
    // Before "limit", which its text contains too.
    ("low_balance_or_", FailureReason::InsufficientFunds),
    ("insufficient", FailureReason::InsufficientFunds),
    ("declined", FailureReason::PayerDeclined),
    ("timed out", FailureReason::PayerTimeout),
    ("not found", FailureReason::PayerNotFound),
    ("limit", FailureReason::PayerLimitReached),
];

/// What every answer has around the transaction, or the transfer.
#[derive(Default, Deserialize)]
pub struct Envelope {
    /// Whether the call itself went well.
    #[serde(default)]
    pub status: Member,
    #[serde(default)]
    pub message: Member,
    #[serde(default, rename = "type")]
    pub kind: Member,
    #[serde(default)]
    pub code: Member,
    #[serde(default)]
    pub data: Member,
}

#[derive(Default, Deserialize)]
struct Transaction {
    #[serde(default)]
    status: Member,
    #[serde(default)]
    reference: Member,
    #[serde(default)]
    amount: Member,
    #[serde(default)]
    currency: Member,
    #[serde(default)]
    message: Member,
    /// What Paystack keeps of the amount.
    #[serde(default)]
    fees: Member,
    #[serde(default)]
    gateway_response: Member,
    #[serde(default)]
    display_text: Member,
}

/// Where a transaction stands, by its `data.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The payer has the prompt, or the network is at work.
    UnderWay,
    OtpWanted,
    /// A step of another channel, which this service cannot take.
    OtherStep,
    Succeeded,
    Failed,
    /// The payer has not paid so far. Final only once the payer's time is over.
    Abandoned,
    Reversed,
    /// A status that is not understood.
    Unclear,
    /// There is none: the answer is not about a transaction.
    Missing,
}

/// A parsed answer.
struct PaystackAnswer {
    envelope: Envelope,
    transaction: Transaction,
    is_json: bool,
}

impl PaystackAnswer {
    fn read(reply: &Reply) -> Self {
        let envelope: Option<Envelope> = reply.object();
        let is_json = envelope.is_some();
        let envelope = envelope.unwrap_or_default();
        let transaction = envelope.data.object().unwrap_or_default();
        Self {
            envelope,
            transaction,
            is_json,
        }
    }

    /// Whether it names a payment, and not this one.
    fn is_about_another(&self, reference: RailReference) -> bool {
        let named = self.transaction.reference.text();
        named.is_some_and(|named| named != reference.to_string())
    }

    fn stage(&self) -> Stage {
        let status = &self.transaction.status;
        if status.is_missing() {
            return Stage::Missing;
        }
        match status.code().as_str() {
            "PAY_OFFLINE" | "PENDING" | "ONGOING" => Stage::UnderWay,
            "SEND_OTP" => Stage::OtpWanted,
            "SEND_PIN" | "SEND_PHONE" | "SEND_BIRTHDAY" | "SEND_ADDRESS" | "OPEN_URL" => {
                Stage::OtherStep
            }
            "SUCCESS" => Stage::Succeeded,
            "FAILED" => Stage::Failed,
            "ABANDONED" => Stage::Abandoned,
            "REVERSED" => Stage::Reversed,
            _ => Stage::Unclear,
        }
    }

    /// What the rail tells the payer to do.
    fn instruction(&self) -> Option<String> {
        self.transaction.display_text.text()
    }

    /// The words about the outcome. The envelope's message is used only if there are no others:
    /// otherwise it says only that the call itself went well.
    fn words(&self) -> String {
        let message = self.transaction.message.text().unwrap_or_default();
        let response = self.transaction.gateway_response.text();
        let response = response
            .filter(|response| *response != message)
            .unwrap_or_default();
        let about_outcome = format!("{message} {response}").trim().to_owned();
        if about_outcome.is_empty() {
            return self.envelope.message.text().unwrap_or_default();
        }
        about_outcome
    }

    fn reason(&self) -> FailureReason {
        reason_in(REASONS, &self.words()).unwrap_or_else(|| unmapped(RailName::Paystack))
    }

    /// Whether the payer's code has expired, and with it the payment.
    fn is_code_expired(&self) -> bool {
        self.stage() == Stage::Failed && self.words().to_lowercase().contains("expired")
    }

    fn is_duplicate_reference(&self) -> bool {
        let words = self.envelope.message.text().unwrap_or_default();
        words.to_lowercase().contains("duplicate")
            || self.envelope.code.code().contains("DUPLICATE")
    }

    /// The outcome, with the rail's words for operators.
    fn answer<T>(&self, reply: &Reply, outcome: T) -> RailAnswer<T> {
        let status = self.transaction.status.text().unwrap_or_default();
        let kind = self.envelope.kind.text().unwrap_or_default();
        let code = self.envelope.code.text().unwrap_or_default();
        let parts = [status, kind, code, self.words()];
        let said: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let rail_text = reply.describe(&said.join(" "));
        RailAnswer { outcome, rail_text }
    }
}

/// The answer to a charge.
pub fn requested(reply: &Reply) -> RailAnswer<RequestOutcome> {
    let said = PaystackAnswer::read(reply);
    let outcome = match reply.status.as_u16() {
        200 => requested_stage(&said),
        400 if said.is_json => requested_in_vain(&said),
        401 if reply.is_unauthorized() => RequestOutcome::Refused(FailureReason::RailConfiguration),
        _ => RequestOutcome::Unknown,
    };
    said.answer(reply, outcome)
}

fn requested_stage(said: &PaystackAnswer) -> RequestOutcome {
    match said.stage() {
        Stage::UnderWay => RequestOutcome::Accepted {
            instruction: said.instruction(),
        },
        Stage::Succeeded => RequestOutcome::Succeeded,
        Stage::OtpWanted => RequestOutcome::OtpRequired {
            instruction: said.instruction(),
        },
        Stage::Failed => RequestOutcome::Refused(said.reason()),
        Stage::OtherStep => RequestOutcome::Refused(FailureReason::RailError),
        Stage::Abandoned | Stage::Reversed | Stage::Unclear | Stage::Missing => {
            RequestOutcome::Unknown
        }
    }
}

/// A 400 is a refusal, unless the reference was used before, or the transaction is alive or may be.
fn requested_in_vain(said: &PaystackAnswer) -> RequestOutcome {
    if said.is_duplicate_reference() {
        return RequestOutcome::AlreadyKnown;
    }
    if !matches!(said.stage(), Stage::Failed | Stage::Missing) {
        return RequestOutcome::Unknown;
    }
    let reason = match said.envelope.kind.code().as_str() {
        "PROCESSOR_ERROR" => FailureReason::RailUnavailable,
        "API_ERROR" => FailureReason::RailConfiguration,
        _ => said.reason(),
    };
    RequestOutcome::Refused(reason)
}

/// The answer to a submitted OTP.
pub fn otp_submitted(reply: &Reply) -> RailAnswer<OtpOutcome> {
    let said = PaystackAnswer::read(reply);
    let outcome = match reply.status.as_u16() {
        200 => otp_stage(&said),
        // Our credentials were refused before the code was tried.
        401 if reply.is_unauthorized() => {
            misconfigured(RailName::Paystack, "submit_otp");
            OtpOutcome::NotSent
        }
        _ => OtpOutcome::Unknown,
    };
    said.answer(reply, outcome)
}

fn otp_stage(said: &PaystackAnswer) -> OtpOutcome {
    match said.stage() {
        Stage::UnderWay => OtpOutcome::Accepted {
            instruction: said.instruction(),
        },
        Stage::Succeeded => OtpOutcome::Succeeded,
        Stage::OtpWanted => OtpOutcome::WrongCode {
            instruction: said.instruction(),
        },
        Stage::Failed if said.is_code_expired() => OtpOutcome::Expired,
        Stage::Failed => OtpOutcome::Failed(said.reason()),
        Stage::OtherStep => OtpOutcome::Failed(FailureReason::RailError),
        Stage::Abandoned | Stage::Reversed | Stage::Unclear | Stage::Missing => OtpOutcome::Unknown,
    }
}

/// The answer to a query, from verify or from the check of a pending charge.
pub fn found(reply: &Reply, query: &Query) -> RailAnswer<QueryOutcome> {
    let said = PaystackAnswer::read(reply);
    let outcome = match (reply.status.as_u16(), said.envelope.code.code().as_str()) {
        (200, _) => match found_stage(&said, query) {
            QueryOutcome::Failed(_) | QueryOutcome::Reversed
                if said.is_about_another(query.rail_reference) =>
            {
                let reference = query.rail_reference;
                tracing::error!(%reference, "Paystack tells the end of another payment");
                QueryOutcome::Unknown
            }
            found => found,
        },
        (400 | 404, "TRANSACTION_NOT_FOUND") => QueryOutcome::ReferenceUnknown,
        (401, _) if reply.is_unauthorized() => {
            misconfigured(RailName::Paystack, "query");
            QueryOutcome::Unknown
        }
        _ => QueryOutcome::Unknown,
    };
    said.answer(reply, outcome)
}

fn found_stage(said: &PaystackAnswer, query: &Query) -> QueryOutcome {
    match said.stage() {
        Stage::UnderWay | Stage::OtherStep => QueryOutcome::Pending,
        Stage::OtpWanted => QueryOutcome::OtpRequired,
        Stage::Succeeded => QueryOutcome::Succeeded {
            rail_reference: said.transaction.reference.text().unwrap_or_default(),
            amount: said
                .transaction
                .amount
                .hundredths(&said.transaction.currency),
            fee: said.transaction.fees.hundredths(&said.transaction.currency),
        },
        Stage::Failed if query.may_want_code && said.is_code_expired() => {
            QueryOutcome::Failed(FailureReason::OtpExpired)
        }
        Stage::Failed => QueryOutcome::Failed(said.reason()),
        Stage::Abandoned => QueryOutcome::Abandoned { code_wanted: false },
        Stage::Reversed => QueryOutcome::Reversed,
        Stage::Unclear | Stage::Missing => QueryOutcome::Unknown,
    }
}

#[cfg(test)]
mod tests;
