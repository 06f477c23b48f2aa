//! Why money does not go out, although the request for it is valid.
//!
//! A merchant's payout or refund that was refused so stays refused under its key (`reserve.rs`).

use std::str::FromStr;

use chassis::{clock::Timestamp, grpc::Reason, money::Money};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisbursementRefusal {
    #[error("the charge is not settled")]
    ChargeNotSettled,
    #[error("{} is left to refund", shown(*.0))]
    RefundExceedsCharge(Money),
    #[error("{} is available", shown(*.0))]
    InsufficientBalance(Money),
    #[error("payouts on request are not enabled for this merchant")]
    PayoutsNotEnabled,
    #[error("the payout account was changed: payouts wait until {0}")]
    PayoutAccountOnHold(Timestamp),
    /// Of somebody who has seen other terms.
    #[error("the payout account or the fee has changed meanwhile")]
    PayoutTermsChanged,
}

/// What is stored is not a refusal, or one of a newer version.
#[derive(Debug, thiserror::Error)]
#[error("not a refusal")]
pub struct NotARefusal;

impl DisbursementRefusal {
    pub fn reason(self) -> Reason {
        match self {
            Self::ChargeNotSettled => Reason::ChargeNotSettled,
            Self::RefundExceedsCharge(_) => Reason::RefundExceedsCharge,
            Self::InsufficientBalance(_) => Reason::InsufficientBalance,
            Self::PayoutsNotEnabled => Reason::PayoutsNotEnabled,
            Self::PayoutAccountOnHold(_) => Reason::PayoutAccountOnHold,
            Self::PayoutTermsChanged => Reason::PayoutTermsChanged,
        }
    }

    /// As it is stored: the reason, and what it carries.
    pub fn to_text(self) -> String {
        let reason = self.reason().code();
        match self {
            Self::RefundExceedsCharge(amount) | Self::InsufficientBalance(amount) => {
                format!("{reason} {} {}", amount.minor_units(), amount.currency())
            }
            Self::PayoutAccountOnHold(until) => format!("{reason} {until}"),
            Self::ChargeNotSettled | Self::PayoutsNotEnabled | Self::PayoutTermsChanged => {
                reason.to_owned()
            }
        }
    }
}

impl FromStr for DisbursementRefusal {
    type Err = NotARefusal;

    fn from_str(text: &str) -> Result<Self, NotARefusal> {
        let (reason, told) = text.split_once(' ').unwrap_or((text, ""));
        let amount = || {
            let (minor, currency) = told.split_once(' ')?;
            Some(Money::new(minor.parse().ok()?, currency.parse().ok()?))
        };
        let refusal = match reason.parse() {
            Ok(Reason::ChargeNotSettled) => Some(Self::ChargeNotSettled),
            Ok(Reason::RefundExceedsCharge) => amount().map(Self::RefundExceedsCharge),
            Ok(Reason::InsufficientBalance) => amount().map(Self::InsufficientBalance),
            Ok(Reason::PayoutsNotEnabled) => Some(Self::PayoutsNotEnabled),
            Ok(Reason::PayoutAccountOnHold) => told.parse().ok().map(Self::PayoutAccountOnHold),
            Ok(Reason::PayoutTermsChanged) => Some(Self::PayoutTermsChanged),
            _ => None,
        };
        refusal.ok_or(NotARefusal)
    }
}

fn shown(amount: Money) -> String {
    format!("{} {}", amount.currency().code(), amount.to_major())
}

#[cfg(test)]
mod tests {
    use chassis::money::Currency;

    use super::*;

    #[test]
    fn what_is_stored_is_read_as_it_was() {
        let amount = Money::new(-1_550, Currency::GHS);
        let until = "2026-02-01T09:00:00.001Z".parse().unwrap();
        for (refusal, text) in [
            (DisbursementRefusal::ChargeNotSettled, "CHARGE_NOT_SETTLED"),
            (
                DisbursementRefusal::RefundExceedsCharge(amount),
                "REFUND_EXCEEDS_CHARGE -1550 GHS",
            ),
            (
                DisbursementRefusal::InsufficientBalance(amount),
                "INSUFFICIENT_BALANCE -1550 GHS",
            ),
            (
                DisbursementRefusal::PayoutsNotEnabled,
                "PAYOUTS_NOT_ENABLED",
            ),
            (
                DisbursementRefusal::PayoutAccountOnHold(until),
                "PAYOUT_ACCOUNT_ON_HOLD 2026-02-01T09:00:00.001Z",
            ),
            (
                DisbursementRefusal::PayoutTermsChanged,
                "PAYOUT_TERMS_CHANGED",
            ),
        ] {
            assert_eq!(refusal.to_text(), text);
            assert_eq!(text.parse::<DisbursementRefusal>().unwrap(), refusal);
        }
        for other in [
            "",
            "NEWER",
            "INSUFFICIENT_BALANCE",
            "INSUFFICIENT_BALANCE x GHS",
        ] {
            assert!(other.parse::<DisbursementRefusal>().is_err(), "{other}");
        }
    }
}
