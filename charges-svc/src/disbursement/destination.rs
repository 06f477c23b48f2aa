//! Where money goes.

use chassis::phone::Phone;
use sqlx::FromRow;

use crate::charge::Facts;

chassis::closed_list! {
    /// What kind of account it is. It is also the method that merchants see.
    pub enum DestinationType: "a type of destination" {
        MobileMoney = "MOBILE_MONEY",
        Bank = "BANK",
    }
}

chassis::text_column!(DestinationType);

/// An account outside.
#[derive(Clone, PartialEq, Eq, FromRow)]
pub struct Destination {
    pub destination_type: DestinationType,
    /// The network of a wallet, or the bank's code at Paystack.
    pub provider: String,
    /// E.164 for a wallet, otherwise the bank's account number.
    pub account: String,
    pub holder_name: Option<String>,
}

impl Destination {
    /// The wallet that paid.
    pub fn wallet_of(charge: &Facts) -> Self {
        Self {
            destination_type: DestinationType::MobileMoney,
            provider: charge.provider.code().to_owned(),
            account: charge.phone.as_e164().to_owned(),
            holder_name: charge.payer_name.clone(),
        }
    }

    /// As a rail is told it. `None` if this version does not know it.
    pub fn at_rail(&self) -> Option<rails::Destination> {
        Some(match self.destination_type {
            DestinationType::MobileMoney => rails::Destination::Wallet {
                provider: self.provider.parse().ok()?,
                phone: Phone::parse_ghana_mobile(&self.account).ok()?,
                holder_name: self.holder_name.clone(),
            },
            DestinationType::Bank => rails::Destination::Bank {
                bank_code: self.provider.clone(),
                account_number: self.account.clone(),
                holder_name: self.holder_name.clone().unwrap_or_default(),
            },
        })
    }

    /// Enough for its owner to recognise it: `024 ••• 4567`, or a bank account's last four digits.
    pub fn masked(&self) -> String {
        let phone = match self.destination_type {
            DestinationType::MobileMoney => Phone::parse_ghana_mobile(&self.account).ok(),
            DestinationType::Bank => None,
        };
        phone.map_or_else(
            || {
                let shown = self.account.chars().count().saturating_sub(4);
                let last: String = self.account.chars().skip(shown.max(4)).collect();
                format!("••• {last}")
            },
            |phone| phone.masked(),
        )
    }
}

impl Default for Destination {
    fn default() -> Self {
        Self {
            destination_type: DestinationType::MobileMoney,
            provider: String::new(),
            account: String::new(),
            holder_name: None,
        }
    }
}

/// Neither account nor name reaches a log.
impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.provider, self.masked())
    }
}
