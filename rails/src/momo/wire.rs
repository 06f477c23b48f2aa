//! What is sent to MTN.

use serde::Serialize;

use crate::{
    answer::PaymentRequest,
    transfer::{Destination, TransferRequest},
    words::plain_text,
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
        let payer_message = plain_text(
            &[description, &request.merchant_name, reference],
            TEXT_CHARS_MAX,
        );
        Self {
            amount: request.amount.to_major().to_string(),
            currency: request.amount.currency().code(),
            external_id: request.rail_reference.to_string(),
            payer: Party {
                party_id_type: "MSISDN",
                party_id: request.phone.without_plus().to_owned(),
            },
            payer_message,
            payee_note: plain_text(&[reference], TEXT_CHARS_MAX),
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
        let note = plain_text(&[&request.shown_id], TEXT_CHARS_MAX);
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
