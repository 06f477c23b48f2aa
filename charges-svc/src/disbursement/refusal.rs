//! Why money does not go out, although the request for it is valid by itself.
//!
//! A merchant's payout or refund that was refused so stays refused under its key (`reserve.rs`).

use std::{borrow::Cow, str::FromStr};

use chassis::{clock::Timestamp, grpc::Reason, money::Money};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisbursementRefusal {
    #[error("the charge is not settled")]
    ChargeNotSettled,
    #[error("{} is left to refund", shown(*.0))]
    RefundExceedsCharge(Money),
    /// With what the amount of a part must be. What is left of the charge, and how many refunds it
    /// has had, decides.
    #[error("the part {0}")]
    PartOfCharge(Cow<'static, str>),
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

/// How a [`DisbursementRefusal::PartOfCharge`] is stored. Callers see it as an invalid field.
const PART_OF_CHARGE: &str = "PART_OF_CHARGE";

impl DisbursementRefusal {
    /// As it is stored: the reason, and what it carries.
    pub fn to_text(&self) -> String {
        let of_amount = |reason: Reason, amount: &Money| {
            let (minor, currency) = (amount.minor_units(), amount.currency());
            format!("{} {minor} {currency}", reason.code())
        };
        match self {
            Self::ChargeNotSettled => Reason::ChargeNotSettled.code().to_owned(),
            Self::RefundExceedsCharge(left) => of_amount(Reason::RefundExceedsCharge, left),
            Self::PartOfCharge(fault) => format!("{PART_OF_CHARGE} {fault}"),
            Self::InsufficientBalance(available) => {
                of_amount(Reason::InsufficientBalance, available)
            }
            Self::PayoutsNotEnabled => Reason::PayoutsNotEnabled.code().to_owned(),
            Self::PayoutAccountOnHold(until) => {
                format!("{} {until}", Reason::PayoutAccountOnHold.code())
            }
            Self::PayoutTermsChanged => Reason::PayoutTermsChanged.code().to_owned(),
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
        if reason == PART_OF_CHARGE {
            return Ok(Self::PartOfCharge(told.to_owned().into()));
        }
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

    use super::DisbursementRefusal::{self, *};
    use super::Money;

    #[test]
    fn what_is_stored_is_read_as_it_was() {
        let amount = Money::new(-1_550, Currency::GHS);
        let until = "2026-02-01T09:00:00.001Z";
        let on_hold = "PAYOUT_ACCOUNT_ON_HOLD 2026-02-01T09:00:00.001Z";
        for (refusal, text) in [
            (ChargeNotSettled, "CHARGE_NOT_SETTLED"),
            (
                RefundExceedsCharge(amount),
                "REFUND_EXCEEDS_CHARGE -1550 GHS",
            ),
            (PartOfCharge("must be 1".into()), "PART_OF_CHARGE must be 1"),
            (
                InsufficientBalance(amount),
                "INSUFFICIENT_BALANCE -1550 GHS",
            ),
            (PayoutsNotEnabled, "PAYOUTS_NOT_ENABLED"),
            (PayoutAccountOnHold(until.parse().unwrap()), on_hold),
            (PayoutTermsChanged, "PAYOUT_TERMS_CHANGED"),
        ] {
            assert_eq!(refusal.to_text(), text);
            assert_eq!(text.parse::<DisbursementRefusal>().unwrap(), refusal);
        }
        let amounts = ["INSUFFICIENT_BALANCE", "INSUFFICIENT_BALANCE x GHS"];
        for other in ["", "NEWER"].into_iter().chain(amounts) {
            assert!(other.parse::<DisbursementRefusal>().is_err(), "{other}");
        }
    }
}
