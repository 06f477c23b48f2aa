//! What is sent to MTN.

use serde::Serialize;

use crate::{
    answer::PaymentRequest,
    transfer::{Destination, TransferRequest},
};

/// Most characters of MTN's texts for people. MTN answers texts that it does not allow with a 400.
const TEXT_CHARS_MAX: usize = 100;

/// `POST …/requesttopay`. Every value is a string.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestToPay {
    amount: String,
    currency: &'static str,
    external_id: String,
    payer: Party,
    payer_message: String,
    payee_note: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Party {
    party_id_type: &'static str,
    party_id: String,
}

impl RequestToPay {
    pub fn new(request: &PaymentRequest) -> Self {
        let reference = request.reference.as_str();
        let description = request.description.as_deref().unwrap_or_default();
        let payer_message = text(&[description, &request.merchant_name, reference]);
        Self {
            amount: request.amount.to_major().to_string(),
            currency: request.amount.currency().code(),
            external_id: request.rail_reference.to_string(),
            payer: Party {
                party_id_type: "MSISDN",
                party_id: request.phone.without_plus().to_owned(),
            },
            payer_message,
            payee_note: text(&[reference]),
        }
    }
}

/// `POST …/transfer`. Every value is a string.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transfer {
    amount: String,
    currency: &'static str,
    external_id: String,
    payee: Party,
    payer_message: String,
    payee_note: String,
}

impl Transfer {
    /// `None` if it does not go to a wallet.
    pub fn new(request: &TransferRequest) -> Option<Self> {
        let Destination::Wallet { phone, .. } = &request.destination else {
            return None;
        };
        let note = text(&[&request.shown_id]);
        Some(Self {
            amount: request.amount.to_major().to_string(),
            currency: request.amount.currency().code(),
            external_id: request.rail_reference.to_string(),
            payee: Party {
                party_id_type: "MSISDN",
                party_id: phone.without_plus().to_owned(),
            },
            payer_message: note.clone(),
            payee_note: note,
        })
    }
}

/// The first candidate that still says something without what MTN might refuse, or else `Payment`.
fn text(candidates: &[&str]) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '-');
    let clean = |candidate: &&str| {
        let spaced = candidate.replace(|c| !allowed(c), " ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let cut: String = words.join(" ").chars().take(TEXT_CHARS_MAX).collect();
        cut.trim_end().to_owned()
    };
    let says_something = |text: &String| text.contains(|c: char| c.is_ascii_alphanumeric());
    let said = candidates.iter().map(clean).find(says_something);
    said.unwrap_or_else(|| "Payment".to_owned())
}

#[cfg(test)]
mod tests {
    use chassis::{
        ids::{RailReference, Reference, TxIdDisplay},
        money::{Currency, Money},
        phone::Phone,
        provider::Provider,
    };

    use super::*;

    #[test]
    fn texts_hold_only_what_mtn_takes_and_are_never_empty() {
        let long = "ab ".repeat(60);
        for (candidates, expected) in [
            (["Order 17", "Shop"], "Order 17"),
            (
                ["Kofi's \"best\" order №17!", "Shop"],
                "Kofi s best order 17",
            ),
            (["", "Ama & Co."], "Ama Co."),
            (["ご注文", "Shop"], "Shop"),
            (["- . -", "Shop"], "Shop"),
            (["", "★"], "Payment"),
            ([" \t a \n b ", ""], "a b"),
            ([long.as_str(), ""], &long[..100]),
        ] {
            let text = text(&candidates);
            assert_eq!(text, expected, "{candidates:?}");
            assert!(
                !text.is_empty() && text.len() <= TEXT_CHARS_MAX,
                "{candidates:?}"
            );
        }
    }

    #[test]
    fn a_request_is_all_strings_as_the_wire_wants_them() {
        let rail_reference = RailReference::new();
        let reference = Reference::new(&TxIdDisplay::new());
        let body = RequestToPay::new(&PaymentRequest {
            rail_reference,
            reference: reference.clone(),
            amount: Money::new(2550, Currency::GHS),
            phone: Phone::parse_ghana_mobile("0241234567").unwrap(),
            provider: Provider::Mtn,
            payer_email: None,
            merchant_name: "Shop".to_owned(),
            description: None,
            callback_token: "token".to_owned(),
        });
        let expected = serde_json::json!({
            "amount": "25.50",
            "currency": "GHS",
            "externalId": rail_reference.to_string(),
            "payer": {"partyIdType": "MSISDN", "partyId": "233241234567"},
            "payerMessage": "Shop",
            "payeeNote": reference.as_str(),
        });
        assert_eq!(serde_json::to_value(&body).unwrap(), expected);
    }
}
