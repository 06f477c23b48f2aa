//! A request to pay, as a client's rail took it.

use chassis::money::Currency;
use serde::{Deserialize, Serialize};

/// What a client asked its rail for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PaymentRequest {
    pub rail: Rail,
    /// The client's: X-Reference-Id, or Paystack's `reference`.
    pub reference: String,
    pub network: Network,
    /// E.164.
    pub phone: String,
    pub amount_minor: i64,
    #[serde(with = "crate::as_text")]
    pub currency: Currency,
    /// What the handset shows beside the amount.
    pub text: String,
    pub details: Details,
    pub callback_url: Option<String>,
}

/// Whose wire a payment came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rail {
    Momo,
    Paystack,
}

/// Whose handset the prompt is shown on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Network {
    Mtn,
    Telecel,
    At,
}

impl Network {
    /// The name that its customers know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mtn => "MTN",
            Self::Telecel => "Telecel",
            Self::At => "AT",
        }
    }
}

/// What each wire says back as it heard it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Details {
    Momo {
        external_id: String,
        payer_message: String,
        payee_note: String,
    },
    Paystack {
        email: String,
        metadata: serde_json::Value,
    },
}
