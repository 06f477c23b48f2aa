//! What treasury moved by hand.

use chassis::money::Money;
use rails::RailName;
use uuid::Uuid;

chassis::closed_list! {
    /// Between which accounts treasury moved money.
    pub enum Direction: "a direction" {
        ClearingToFloat = "CLEARING_TO_FLOAT",
        HouseToFloat = "HOUSE_TO_FLOAT",
        FloatToHouse = "FLOAT_TO_HOUSE",
        ClearingToHouse = "CLEARING_TO_HOUSE",
    }
}

chassis::text_column!(Direction);

/// What treasury moved by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloatMove {
    pub move_id: Uuid,
    pub rail: RailName,
    pub direction: Direction,
    pub amount: Money,
    pub note: String,
}
