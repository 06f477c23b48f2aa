//! What Hubtel's answers about payments mean.
//!
//! Promise: only a documented refusal in the first reply is a refusal. A query knows no failures:
//! whatever is not paid is `Unpaid`, also while the payer still thinks. That it stays so once the
//! payer's time is over is to be confirmed with Hubtel.

use chassis::{failure::FailureReason, ids::RailReference, money::Money};

use super::fields::Fields;
use crate::{
    answer::{QueryOutcome, RailAnswer, RequestOutcome, WalletOutcome},
    client::Reply,
    name::RailName,
    telemetry::{misconfigured, unmapped},
    words::reason_in,
};

/// What a code of the first reply means, whatever its HTTP status. All of them say that nothing was
/// or will be debited.
const REFUSALS: &[(&str, Refusal)] = &[
    // Any failure of the payer's.
    ("2001", Refusal::InWords),
    ("4000", Refusal::InWords),
    ("4070", Refusal::For(FailureReason::RailConfiguration)),
    ("4101", Refusal::For(FailureReason::RailConfiguration)),
    ("4105", Refusal::For(FailureReason::RailConfiguration)),
    // The account may not receive over this channel.
    ("4103", Refusal::For(FailureReason::PayeeAccountBlocked)),
    // Older codes, which may still appear.
    ("2050", Refusal::For(FailureReason::InsufficientFunds)),
    ("2051", Refusal::For(FailureReason::PayerNotFound)),
    ("2100", Refusal::For(FailureReason::PayerTimeout)),
    ("2101", Refusal::For(FailureReason::InvalidPin)),
    ("2152", Refusal::For(FailureReason::PayerNotFound)),
    ("2153", Refusal::InWords),
    ("2154", Refusal::For(FailureReason::PayerLimitReached)),
    ("2200", Refusal::For(FailureReason::PayerNotFound)),
    ("2201", Refusal::For(FailureReason::PayerNotFound)),
];

/// What a refusal's text, in lower case, means: the first entry that it contains decides. Hubtel
/// publishes no list of texts; one that contains none is [`FailureReason::RailError`] and is counted.
const REASONS: &[(&str, FailureReason)] = &[
    ("insufficient", FailureReason::InsufficientFunds),
    ("wrong pin", FailureReason::InvalidPin),
    ("invalid pin", FailureReason::InvalidPin),
    ("incorrect pin", FailureReason::InvalidPin),
    ("matches the channel", FailureReason::NumberNetworkMismatch),
    ("match the channel", FailureReason::NumberNetworkMismatch),
    ("timeout", FailureReason::PayerTimeout),
    ("timed out", FailureReason::PayerTimeout),
    ("declined", FailureReason::PayerDeclined),
    ("rejected", FailureReason::PayerDeclined),
    ("not found", FailureReason::PayerNotFound),
    ("not registered", FailureReason::PayerNotFound),
    ("limit", FailureReason::PayerLimitReached),
    ("blocked", FailureReason::PayerAccountBlocked),
    ("not active", FailureReason::PayerAccountBlocked),
];

#[derive(Clone, Copy)]
enum Refusal {
    For(FailureReason),
    /// The text says why.
    InWords,
}

/// A parsed answer.
pub struct Answer {
    /// `0001` and the like, or a word. Empty if it has none.
    pub code: String,
    pub data: Fields,
    message: String,
}

impl Answer {
    /// An answer that is no object of Hubtel's has neither code nor data.
    pub fn read(reply: &Reply) -> Self {
        Self::of(&reply.object().unwrap_or_default())
    }

    fn of(envelope: &Fields) -> Self {
        Self {
            code: envelope.code("responsecode"),
            data: envelope.object("data").unwrap_or_default(),
            message: envelope.text("message").unwrap_or_default(),
        }
    }

    /// The words about the outcome.
    pub fn words(&self) -> String {
        let description = self.data.text("description").unwrap_or_default();
        format!("{} {description}", self.message).trim().to_owned()
    }

    /// The outcome, with the rail's words for operators.
    pub fn with_outcome<T>(&self, reply: &Reply, status: &str, outcome: T) -> RailAnswer<T> {
        let rail_text = reply.describe(&self.rail_text(status));
        RailAnswer { outcome, rail_text }
    }

    /// Whether a number has a wallet. An account for which Hubtel has not enabled the question gets no
    /// answer.
    pub fn registered(&self, reply: &Reply, call: &'static str) -> Option<bool> {
        if is_access_denied(reply) {
            misconfigured(RailName::Hubtel, call);
        }
        let is_answer = reply.status.is_success() && matches!(self.code.as_str(), "" | "0000");
        self.data.truth("isregistered").filter(|_| is_answer)
    }

    /// For operators.
    fn rail_text(&self, status: &str) -> String {
        let code = match self.code.as_str() {
            "" => String::new(),
            // Without the letters and the colon, its digits and those beside it would be masked like
            // a number's.
            code => format!("code {code}:"),
        };
        let parts = [code, status.to_owned(), self.words()];
        let said: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        said.join(" ").trim_end_matches(':').to_owned()
    }

    /// Why the payment with this description was refused, if it was.
    fn refusal(&self, sent_description: &str) -> Option<FailureReason> {
        let (_, refusal) = REFUSALS.iter().find(|(code, _)| *code == self.code)?;
        match refusal {
            Refusal::For(reason) => Some(*reason),
            Refusal::InWords => {
                // Some answers repeat what they were sent, which may say anything.
                let description = self.data.text("description");
                let description = description.filter(|told| told != sent_description);
                let words = [Some(self.message.clone()), description];
                let words = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
                let reason = reason_in(REASONS, &words);
                Some(reason.unwrap_or_else(|| unmapped(RailName::Hubtel)))
            }
        }
    }
}

/// Whether Hubtel did nothing, because it does not know our credentials, or the address that we
/// call from, which must be on its list. Its firewall may say so in HTML.
pub fn is_access_denied(reply: &Reply) -> bool {
    matches!(reply.status.as_u16(), 401 | 403)
}

/// Whether a question was not answered because of our credentials, our address, our account or what
/// it may do. Pages an operator then.
pub fn report_refusal(reply: &Reply, said: &Answer, call: &'static str) -> bool {
    let is_refused =
        is_access_denied(reply) || matches!(said.code.as_str(), "4101" | "4103" | "4105");
    if is_refused {
        misconfigured(RailName::Hubtel, call);
    }
    is_refused
}

/// The answer to a payment request.
pub fn requested(
    reply: &Reply,
    reference: RailReference,
    sent_description: &str,
) -> RailAnswer<RequestOutcome> {
    let said = Answer::read(reply);
    let outcome = match (reply.status.as_u16(), said.code.as_str()) {
        _ if is_access_denied(reply) => RequestOutcome::Refused(FailureReason::RailConfiguration),
        // That nothing was done is documented nowhere.
        (429 | 500.., _) => RequestOutcome::Unknown,
        _ if said.data.is_about_another(reference) => {
            tracing::error!(%reference, "Hubtel answers about another payment");
            RequestOutcome::Unknown
        }
        (200..=299, "0001") => RequestOutcome::Accepted { instruction: None },
        (200..=299, "0000") => RequestOutcome::Succeeded,
        (200..=299 | 400..=499, code) => match said.refusal(sent_description) {
            Some(reason) => {
                if code == "4103" {
                    misconfigured(RailName::Hubtel, "request_payment");
                }
                RequestOutcome::Refused(reason)
            }
            None => RequestOutcome::Unknown,
        },
        _ => RequestOutcome::Unknown,
    };
    said.with_outcome(reply, "", outcome)
}

/// What a callback says, for operators.
pub fn callback_text(body: &[u8]) -> Option<String> {
    let envelope: Fields = serde_json::from_slice(body).ok()?;
    Some(Answer::of(&envelope).rail_text(""))
}

/// The answer to a query.
pub fn found(reply: &Reply, reference: RailReference) -> RailAnswer<QueryOutcome> {
    let said = Answer::read(reply);
    let status = said.data.code("status");
    let outcome = match (reply.status.as_u16(), said.code.as_str()) {
        _ if report_refusal(reply, &said, "query") => QueryOutcome::Unknown,
        // The state is not known there, which is not a reference that is not known.
        (_, "0005" | "5000") => QueryOutcome::Unknown,
        // How a reference that is not known is answered is documented nowhere.
        (404, code) if !code.is_empty() => QueryOutcome::ReferenceUnknown,
        (200, "0000" | "") => found_payment(&said.data, &status, reference),
        _ => QueryOutcome::Unknown,
    };
    said.with_outcome(reply, &status, outcome)
}

fn found_payment(payment: &Fields, status: &str, reference: RailReference) -> QueryOutcome {
    match status {
        "PAID" => QueryOutcome::Succeeded {
            rail_reference: payment.client_reference().unwrap_or_default(),
            amount: payment.money("amount"),
            fee: kept_by_hubtel(payment),
        },
        "UNPAID" | "REFUNDED" if !payment.is_about(reference) => {
            tracing::error!(%reference, "Hubtel does not say that this is the payment's state");
            QueryOutcome::Unknown
        }
        "UNPAID" => QueryOutcome::Abandoned { code_wanted: false },
        "REFUNDED" => QueryOutcome::Reversed,
        _ => QueryOutcome::Unknown,
    }
}

/// What Hubtel keeps of the amount, if `amountAfterCharges` is what is left of it: to be confirmed
/// with Hubtel. What it charges payers on top is none of ours.
fn kept_by_hubtel(payment: &Fields) -> Option<Money> {
    let (amount, left) = (
        payment.money("amount")?,
        payment.money("amountaftercharges")?,
    );
    let kept = amount.minor_units().checked_sub(left.minor_units())?;
    (kept >= 0).then(|| Money::new(kept, amount.currency()))
}

/// Whether a payer's wallet is there.
pub fn wallet(reply: &Reply) -> RailAnswer<WalletOutcome> {
    let said = Answer::read(reply);
    let outcome = match said.registered(reply, "wallet") {
        Some(true) => WalletOutcome::Active,
        Some(false) => WalletOutcome::NotActive,
        None => WalletOutcome::Unknown,
    };
    RailAnswer {
        outcome,
        rail_text: reply.describe(""),
    }
}
