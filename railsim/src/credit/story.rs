//! The stories of credits: what a payee's number makes its network do (docs: "Sandbox").
//!
//! Pure and total: every number has exactly one story.

use serde::{Deserialize, Serialize};

use crate::{rail::Rail, story::MARKUP};

/// Whose wallet or bank account every one is, by the networks' word …
const HOLDER: &str = "Ama Mensah";
/// … except in the stories 212 and 217.
const OTHER_HOLDER: &str = "Kofi Boateng";

/// What happens to one credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// 201 and any other number: paid after a moment.
    Pays,
    /// 203: fails after it was taken.
    PayeeUnknown,
    /// 204: refused at once.
    PayeeRefused,
    /// 205
    PayeeLimit,
    /// 206: as if the float were empty, until somebody has added to it.
    FloatEmpty,
    /// 207: taken, and the network loses its own reply.
    CutAfter,
    /// 208: paid, and the network never calls back.
    Silent,
    /// 209: paid, and the network calls back three times.
    CallsThrice,
    /// 210: reports failure, then pays after all.
    PaidLate,
    /// 211: paid, then taken back, on a rail that can say so.
    TakenBack,
    /// 212: paid, and the account has another holder.
    OtherHolder,
    /// 213: the first request is not executed.
    Unavailable,
    /// 214: pays and reports a different amount.
    OtherAmount,
    /// 215: the first request is lost.
    CutBefore,
    /// 216: as 210, and then taken back, on a rail that can say so.
    TakenBackLate,
    /// 217: paid, and the holder's name is [`MARKUP`].
    HolderInMarkup,
    /// 218: paid, and keys and reference come back in another spelling, on Hubtel.
    SpeltOtherwise,
}

impl Story {
    /// The story of a wallet's or a bank account's number.
    pub fn of(rail: Rail, account: &str) -> Self {
        match account
            .get(account.len().saturating_sub(3)..)
            .unwrap_or_default()
        {
            "203" => Self::PayeeUnknown,
            "204" => Self::PayeeRefused,
            "205" => Self::PayeeLimit,
            "206" => Self::FloatEmpty,
            "207" => Self::CutAfter,
            "208" => Self::Silent,
            "209" => Self::CallsThrice,
            "210" => Self::PaidLate,
            "211" if rail.pays().reverses => Self::TakenBack,
            "212" => Self::OtherHolder,
            "213" => Self::Unavailable,
            "214" => Self::OtherAmount,
            "215" => Self::CutBefore,
            "216" if rail.pays().reverses => Self::TakenBackLate,
            "216" => Self::PaidLate,
            "217" => Self::HolderInMarkup,
            "218" if rail == Rail::Hubtel => Self::SpeltOtherwise,
            _ => Self::Pays,
        }
    }

    /// How a credit that was taken ends by itself, after a moment.
    pub fn ending(self) -> Result<(), Failure> {
        match self {
            Self::PayeeUnknown => Err(Failure::PayeeNotFound),
            Self::PayeeLimit => Err(Failure::PayeeLimitReached),
            Self::FloatEmpty => Err(Failure::FloatEmpty),
            Self::PaidLate | Self::TakenBackLate => Err(Failure::GaveUp),
            Self::Pays
            | Self::PayeeRefused
            | Self::CutAfter
            | Self::Silent
            | Self::CallsThrice
            | Self::TakenBack
            | Self::OtherHolder
            | Self::Unavailable
            | Self::OtherAmount
            | Self::CutBefore
            | Self::HolderInMarkup
            | Self::SpeltOtherwise => Ok(()),
        }
    }

    /// The minor units that the network pays and reports for `asked`.
    pub fn pays(self, asked: i64) -> i64 {
        match self {
            Self::OtherAmount => asked.saturating_add(100),
            _ => asked,
        }
    }

    /// How many times the network calls back after it paid.
    pub fn callbacks(self) -> u32 {
        match self {
            Self::Silent => 0,
            Self::CallsThrice => 3,
            _ => 1,
        }
    }

    /// Whose account it is. `None` if there is no such account.
    pub fn holder(self) -> Option<&'static str> {
        match self {
            Self::PayeeRefused => None,
            Self::OtherHolder => Some(OTHER_HOLDER),
            Self::HolderInMarkup => Some(MARKUP),
            _ => Some(HOLDER),
        }
    }
}

/// Why a credit failed after it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    PayeeNotFound,
    PayeeLimitReached,
    FloatEmpty,
    /// The rail had no definite answer in time.
    GaveUp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rail_that_can_say_so_takes_back() {
        let story = |rail| Story::of(rail, "+233241234211");
        assert_eq!(story(Rail::Momo), Story::Pays);
        assert_eq!(story(Rail::Paystack), Story::TakenBack);
        let late = |rail| Story::of(rail, "+233241234216");
        assert_eq!(late(Rail::Momo), Story::PaidLate);
        assert_eq!(late(Rail::Paystack), Story::TakenBackLate);
    }

    #[test]
    fn any_other_account_is_paid() {
        for account in ["+233241234201", "+233241234567", "1234567890123", "12", ""] {
            assert_eq!(Story::of(Rail::Momo, account), Story::Pays);
        }
    }
}
