//! What the forms and pages of payouts and refunds share.

use axum::response::Response;
use chassis::money::{Currency, Money};
use http::StatusCode;
use proto::charges::{Destination, DestinationType, DisbursementStatus, Provider};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    login::Login,
    networks,
    page::{Cell, Field, MessagePage, Section},
    text::{Phrase, Text, phrase},
};
use crate::{
    api::{amount, idempotency::IdempotencyKey},
    field_error::Fault,
    pages::{amount::unbroken, form::FormFields},
};

/// The choices of a list's filter.
pub const STATUSES: [(&str, &str); 5] = [
    ("", "Any"),
    ("PENDING", "Not sent yet"),
    ("PROCESSING", "With the network"),
    ("COMPLETED", "Arrived"),
    ("FAILED", "Failed"),
];

/// The hidden field that makes a form count once, however often it is sent.
pub const NONCE: &str = "nonce";

/// Of a form that is sent again after it was refused.
pub const REFUSED_BEFORE: &str = "This form was refused before. Look at it once more.";

/// The name and value of the hidden field.
pub type Nonce = (&'static str, String);

pub fn new_nonce() -> Nonce {
    (NONCE, Uuid::new_v4().to_string())
}

/// The nonce of a form that is shown again before anything was done.
pub fn same_nonce(fields: &FormFields) -> Nonce {
    let nonce: Option<Uuid> = fields.get(NONCE).parse().ok();
    nonce.map_or_else(new_nonce, |nonce| (NONCE, nonce.to_string()))
}

/// The nonce of the form that follows one that was refused, and that never pays. It is always the
/// same one: whoever goes back and sends the refused form again gets the form that followed it, which
/// may have paid meanwhile, and not another that could pay once more.
pub fn next_nonce(fields: &FormFields) -> Nonce {
    let refused: Option<Uuid> = fields.get(NONCE).parse().ok();
    // Nonces are random, so the one after is nobody else's.
    let next = refused.map(|nonce| Uuid::from_u128(nonce.as_u128().wrapping_add(1)));
    next.map_or_else(new_nonce, |nonce| (NONCE, nonce.to_string()))
}

/// The idempotency key of a form. `None` if it is not one of ours.
pub fn key(fields: &FormFields) -> Option<String> {
    let nonce = fields.get(NONCE).parse().ok()?;
    Some(IdempotencyKey::Gateways(nonce).marked())
}

/// Somebody else has sent this very form, or it is being done: with another form it could be done a
/// second time. Leads to the list that shows what became of it.
pub fn sent_before(login: &Login, section: Section, list: (&'static str, &str)) -> Response {
    let line = "This form was sent before. See what became of it before you send another.";
    let (label, address) = list;
    MessagePage::saying(login.shell(section, "Sent before"), line)
        .next(label, address)
        .respond(StatusCode::CONFLICT)
}

pub fn amount_field(typed: &str) -> Field {
    Field::text("amount", "Amount in GHS").value(typed)
}

/// Reads a positive amount of cedis, with or without commas between the thousands. A comma anywhere
/// else is refused: where it stands for the decimal point, dropping it would make the amount a
/// hundred times as large.
pub fn parse_amount(typed: &str) -> Result<Money, Phrase> {
    let example = || Phrase::from("Give an amount such as 25.50 or 1,250.00.");
    let plain = without_thousands(typed).ok_or_else(example)?;
    let raw = RawValue::from_string(plain);
    let raw = raw.map_err(|_| example())?;
    let read = || Money::from_major(amount::parse(&raw)?, Currency::GHS).map_err(amount::fault);
    read().map_err(|fault: Fault| phrase!("The amount {0}.", Phrase::from(fault.message)))
}

/// The number without the commas or blanks between its thousands. `None` if one stands elsewhere.
fn without_thousands(typed: &str) -> Option<String> {
    let (whole, fraction) = typed.split_once('.').unwrap_or((typed, ""));
    let groups: Vec<&str> = whole.split([',', ' ']).collect();
    let (first, others) = groups.split_first()?;
    let are_thousands = others.is_empty() || (1..=3).contains(&first.len());
    let are_thousands = are_thousands && others.iter().all(|group| group.len() == 3);
    let point = if typed.contains('.') { "." } else { "" };
    let is_good = are_thousands && !fraction.contains([',', ' ']);
    is_good.then(|| format!("{}{point}{fraction}", groups.concat()))
}

/// How money on its way out stands.
pub fn state(status: DisbursementStatus, reversed_at: Option<&str>) -> Cell {
    if reversed_at.is_some() {
        return Cell::state("Taken back by the network", "bad");
    }
    match status {
        DisbursementStatus::Unspecified => Cell::state("Not known here", "idle"),
        DisbursementStatus::Pending => Cell::state("Not sent yet", "wait"),
        DisbursementStatus::Processing => Cell::state("With the network", "wait"),
        DisbursementStatus::Completed => Cell::state("Arrived", "good"),
        DisbursementStatus::Failed => Cell::state("Failed", "bad"),
    }
}

/// What that means for the money.
pub fn meaning(status: DisbursementStatus, reversed_at: Option<&str>) -> &'static str {
    if reversed_at.is_some() {
        return "The network took it back after it had arrived. The money is yours again.";
    }
    match status {
        DisbursementStatus::Unspecified => "",
        DisbursementStatus::Pending => "It is reserved and will be sent in a moment.",
        DisbursementStatus::Processing => {
            "It is with the network: neither lost nor returned. This page tells once it has ended."
        }
        DisbursementStatus::Completed => "The network has paid it.",
        DisbursementStatus::Failed => {
            "It was not paid, and the money is back where it was taken from."
        }
    }
}

pub fn destination(destination: Option<&Destination>) -> Cell {
    let destination = destination.cloned().unwrap_or_default();
    Cell::text(&unbroken(&destination.account_masked)).detail(network(&destination))
}

/// Who keeps the account: a network, or a bank by its code.
pub fn network(destination: &Destination) -> Text {
    let name = &destination.provider;
    match destination.r#type() {
        DestinationType::Bank => phrase!("Bank {0}", name).into(),
        DestinationType::MobileMoney | DestinationType::Unspecified => {
            let network = Provider::from_code(name);
            network.map_or_else(|| name.into(), |network| networks::name(network).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (typed, minor) in [
            ("25.50", 2_550),
            ("25.5", 2_550),
            ("1,000", 100_000),
            ("1 000.01", 100_001),
        ] {
            let read = parse_amount(typed).expect(typed);
            assert_eq!(read.minor_units(), minor, "{typed}");
        }
        for typed in [
            "", "-1", "0", "0.001", "ten", "\"5\"", "1e99", "NaN", "25,50", "1,5", "1,0000",
            "1,000,00", ",500", "1.000,50", "1234,567", "5 0",
        ] {
            assert!(parse_amount(typed).is_err(), "{typed}");
        }
    }
}
