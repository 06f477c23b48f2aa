//! What is sent to Hubtel.

use chassis::{ids::RailReference, money::Money, provider::Provider};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    answer::PaymentRequest,
    transfer::{Destination, TransferRequest},
    words::plain_text,
};

/// Most characters of Hubtel's texts for people. No limit is documented.
const TEXT_CHARS_MAX: usize = 100;

/// `POST …/receive/mobilemoney`
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReceiveMoney {
    customer_msisdn: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_email: Option<String>,
    channel: &'static str,
    amount: Box<RawValue>,
    primary_callback_url: String,
    /// As an answer may repeat it.
    pub description: String,
    client_reference: String,
}

/// `POST …/send/mobilemoney`
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMoney {
    recipient_name: String,
    recipient_msisdn: String,
    channel: &'static str,
    amount: Box<RawValue>,
    // Documents spell it otherwise than where money is received; either may take both.
    #[serde(rename = "PrimaryCallbackURL")]
    primary_callback_url: String,
    description: String,
    client_reference: String,
}

impl ReceiveMoney {
    pub fn new(request: &PaymentRequest, callback_address: String) -> Self {
        let reference = request.reference.as_str();
        let description = request.description.as_deref().unwrap_or_default();
        let texts = [description, &request.merchant_name, reference];
        Self {
            customer_msisdn: request.phone.without_plus().to_owned(),
            customer_email: request.payer_email.clone(),
            channel: channel(request.provider),
            amount: amount(request.amount),
            primary_callback_url: callback_address,
            description: plain_text(&texts, TEXT_CHARS_MAX),
            client_reference: client_reference(request.rail_reference),
        }
    }
}

impl SendMoney {
    /// `None` if it does not go to a wallet.
    pub fn new(request: &TransferRequest, callback_address: String) -> Option<Self> {
        let Destination::Wallet {
            provider,
            phone,
            holder_name,
        } = &request.destination
        else {
            return None;
        };
        let number = phone.without_plus();
        Some(Self {
            // Mandatory; the number, if nobody knows a name.
            recipient_name: holder_name.as_deref().unwrap_or(number).to_owned(),
            recipient_msisdn: number.to_owned(),
            channel: channel(*provider),
            amount: amount(request.amount),
            primary_callback_url: callback_address,
            description: plain_text(&[&request.shown_id], TEXT_CHARS_MAX),
            client_reference: client_reference(request.rail_reference),
        })
    }
}

/// A reference has letters and digits only: what Hubtel makes of dashes is not documented.
pub fn client_reference(reference: RailReference) -> String {
    reference.uuid().simple().to_string()
}

pub fn channel(provider: Provider) -> &'static str {
    match provider {
        Provider::Mtn => "mtn-gh",
        Provider::Telecel => "vodafone-gh",
        Provider::At => "tigo-gh",
    }
}

/// A number with both decimals, such as `25.50`, written without a float in between.
fn amount(amount: Money) -> Box<RawValue> {
    let digits = amount.to_major().to_string();
    RawValue::from_string(digits).expect("an amount's digits are a JSON number")
}
