//! A request to pay, as the network received it.

use chassis::money::Currency;
use serde::{Deserialize, Serialize};

use crate::rail::{Details, Rail};

/// What a client asked its rail to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PaymentRequest {
    pub rail: Rail,
    /// Chosen by the client: `X-Reference-Id`, Paystack's `reference` or Hubtel's
    /// `ClientReference`.
    pub reference: String,
    pub network: Network,
    /// In E.164 form.
    pub phone: String,
    pub amount_minor: i64,
    #[serde(with = "crate::as_text")]
    pub currency: Currency,
    /// What the handset shows beside the amount.
    pub text: String,
    pub details: Details,
    pub callback_url: Option<String>,
}

/// The mobile network of the payer's handset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Network {
    Mtn,
    Telecel,
    At,
}

impl Network {
    /// The name that its customers know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mtn => "MTN",
            Self::Telecel => "Telecel",
            Self::At => "AT",
        }
    }
}
