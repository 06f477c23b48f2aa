//! What a rail knows about a transfer: money that it pays out for us.

use super::payment::{Rail, RailMessage};
use crate::time::Millis;

/// What one rail knows about one reference of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub rail: Rail,
    /// As our records spell it.
    pub reference: String,
    /// A wallet's number in E.164, or a bank account's. Empty if the rail was only asked about the
    /// reference.
    pub account: String,
    pub amount_minor: i64,
    pub currency: String,
    /// When requests for it came in, whatever became of them.
    pub asked_at: Vec<Millis>,
    /// When requests for it were accepted.
    pub taken_at: Vec<Millis>,
    pub credits: Vec<Credit>,
    /// What the rail has taken from the float on top.
    pub fee_minor: i64,
    pub reversed_at: Option<Millis>,
    pub said: Vec<RailMessage>,
}

/// Money that has reached an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    pub at: Millis,
    pub amount_minor: i64,
}

impl Transfer {
    /// What reached the account and was not taken back.
    pub fn paid_minor(&self) -> i64 {
        match self.reversed_at {
            Some(_) => 0,
            None => self.credits.iter().map(|credit| credit.amount_minor).sum(),
        }
    }
}

/// What a rail holds for transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Float {
    pub filled_minor: i64,
    pub held_minor: i64,
}

/// Why a transfer failed, or was refused, for want of float.
const MOMO_FLOAT_EMPTY: &str = "NOT_ENOUGH_FUNDS";
const PAYSTACK_FLOAT_EMPTY: &str = "Your balance is not enough to fulfil this request";
const HUBTEL_FLOAT_EMPTY: &str = "4075 Insufficient prepaid balance";

impl Rail {
    pub fn float_empty(self) -> &'static str {
        match self {
            Self::Momo => MOMO_FLOAT_EMPTY,
            Self::Paystack => PAYSTACK_FLOAT_EMPTY,
            Self::Hubtel => HUBTEL_FLOAT_EMPTY,
        }
    }

    /// Whether it takes a transfer from the float when it accepts it, and not when it pays.
    pub fn takes_first(self) -> bool {
        self == Self::Paystack
    }
}
