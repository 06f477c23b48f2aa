//! What merchants pay for payouts.

use chassis::money::Money;
use rails::RailName;

use crate::disbursement::{Destination, DestinationType};

/// What merchants pay for each payout beside its amount, in GHS: nothing, unless the operator
/// passes on what a rail takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayoutFees {
    pub momo: Money,
    pub paystack_wallet: Money,
    pub paystack_bank: Money,
    pub hubtel: Money,
}

impl PayoutFees {
    /// What a payout to this destination costs over this rail.
    pub fn of(&self, rail: RailName, destination: &Destination) -> Money {
        match (rail, destination.destination_type) {
            (RailName::Momo, _) => self.momo,
            (RailName::Paystack, DestinationType::MobileMoney) => self.paystack_wallet,
            (RailName::Paystack, DestinationType::Bank) => self.paystack_bank,
            (RailName::Hubtel, _) => self.hubtel,
        }
    }
}
