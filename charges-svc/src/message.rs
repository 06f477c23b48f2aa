//! Messages to people about a charge: the payer's next step, or why it failed.

use chassis::{charge_status::ChargeStatus, failure::FailureReason, provider::Provider};

use crate::charge::{Event, ShownCharge};

/// The message that follows from a charge's record. It is true whatever happened on the way.
pub fn of(charge: &ShownCharge) -> String {
    match charge.status {
        ChargeStatus::Initiated | ChargeStatus::Settled => {
            approve(charge.facts.provider).to_owned()
        }
        ChargeStatus::OtpRequired => wanted(charge, ask_for_code(charge.facts.provider)),
        ChargeStatus::Failed => {
            let reason = charge.failure_message();
            reason
                .unwrap_or(FailureReason::RailError.message())
                .to_owned()
        }
    }
}

/// The message in the answer to a POST, after the rail's reply. `instruction` is the rail's own
/// words to the payer.
pub fn after(charge: &ShownCharge, event: Event, instruction: Option<&str>) -> String {
    match (event, charge.status, instruction) {
        (Event::Accepted, _, Some(words)) => sentence(words),
        (Event::CodeWanted, ChargeStatus::OtpRequired, Some(words)) => {
            let words = sentence(words);
            format!("The network tells the payer: {words} Submit the code that the payer gets.")
        }
        (Event::CodeWrong, ChargeStatus::OtpRequired, _) => wanted(charge, "The code was wrong."),
        (Event::CodeNotSent, ChargeStatus::OtpRequired, _) => wanted(
            charge,
            "The code could not be sent to the network. Submit it again.",
        ),
        (Event::Approved, _, _) => approved(),
        (Event::Unanswered | Event::AlreadyKnown, _, _) => unanswered(),
        _ => of(charge),
    }
}

/// The rail says that the payer has paid, and is being queried.
fn approved() -> String {
    "The network reports the payment as made; it is being confirmed and the outcome follows by webhook."
        .to_owned()
}

/// Nobody knows yet whether the rail took the payment.
pub fn unanswered() -> String {
    "The network has not confirmed yet. The payer may get a prompt on the phone; the outcome follows by webhook.".to_owned()
}

/// Adds how many tries are left, once one was used.
fn wanted(charge: &ShownCharge, text: &str) -> String {
    match (charge.otp_tries, charge.otp_tries_left()) {
        (0, _) => text.to_owned(),
        (_, 1) => format!("{text} 1 try is left."),
        (_, left) => format!("{text} {left} tries are left."),
    }
}

/// Where the payer approves the payment.
fn approve(provider: Provider) -> &'static str {
    match provider {
        Provider::Mtn => {
            "The payer approves on the phone. If no prompt appears: dial *170#, choose My Wallet, then My Approvals."
        }
        Provider::Telecel => "The payer approves on the phone, with the Telecel Cash PIN.",
        Provider::At => "The payer approves on the phone, with the AT Money PIN.",
    }
}

/// Where the payer gets the code. Telecel does not text one; the payer generates a voucher.
fn ask_for_code(provider: Provider) -> &'static str {
    match provider {
        Provider::Telecel => {
            "The payer dials *110# on the phone to generate a voucher code. Then submit the code."
        }
        Provider::Mtn | Provider::At => {
            "The network wants a code that it gives to the payer. Submit the code."
        }
    }
}

/// The rail's words, with a capital letter and a full stop.
fn sentence(words: &str) -> String {
    let words = words.trim();
    let mut letters = words.chars();
    let first: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    let stop = if words.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    format!("{first}{}{stop}", letters.as_str())
}
