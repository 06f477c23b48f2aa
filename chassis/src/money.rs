//! Exact money: integer minor units of one currency. Decimals exist only at the edge.

use std::{fmt, str::FromStr};

use rust_decimal::{Decimal, RoundingStrategy};

/// An ISO 4217 currency that has minor units (so no metals and no test codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Currency(iso_currency::Currency);

impl Currency {
    pub const GHS: Self = Self(iso_currency::Currency::GHS);
    pub const USD: Self = Self(iso_currency::Currency::USD);

    /// The alphabetic code, upper case.
    pub fn code(self) -> &'static str {
        self.0.code()
    }

    /// Decimals of the major unit: 2 for GHS, 0 for JPY, 3 for BHD.
    pub fn exponent(self) -> u32 {
        u32::from(self.0.exponent().unwrap_or_default())
    }
}

impl FromStr for Currency {
    type Err = MoneyError;

    fn from_str(code: &str) -> Result<Self, MoneyError> {
        iso_currency::Currency::from_code(code)
            .filter(|currency| currency.exponent().is_some() && currency.code() == code)
            .map(Self)
            .ok_or(MoneyError::UnknownCurrency)
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// An exact amount of one currency, in minor units. May be negative (a posting's debit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Money {
    minor_units: i64,
    currency: Currency,
}

/// Why an amount cannot be represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    #[error("unknown currency")]
    UnknownCurrency,
    #[error("more decimals than the currency has")]
    TooManyDecimals,
    #[error("amount out of range")]
    OutOfRange,
}

impl Money {
    pub const fn new(minor_units: i64, currency: Currency) -> Self {
        Self {
            minor_units,
            currency,
        }
    }

    /// Converts a decimal amount of major units. Refuses what is not a whole number of minor
    /// units.
    pub fn from_major(major: Decimal, currency: Currency) -> Result<Self, MoneyError> {
        let scale = Decimal::from(10_u32.pow(currency.exponent()));
        let minor = major.checked_mul(scale).ok_or(MoneyError::OutOfRange)?;
        if !minor.fract().is_zero() {
            return Err(MoneyError::TooManyDecimals);
        }
        let minor_units = i64::try_from(minor).map_err(|_| MoneyError::OutOfRange)?;
        Ok(Self::new(minor_units, currency))
    }

    /// Major units with exactly the currency's decimals: 25.50, never 25.5.
    pub fn to_major(self) -> Decimal {
        Decimal::new(self.minor_units, self.currency.exponent())
    }

    pub const fn minor_units(self) -> i64 {
        self.minor_units
    }

    pub const fn currency(self) -> Currency {
        self.currency
    }

    pub const fn is_positive(self) -> bool {
        self.minor_units > 0
    }

    pub fn checked_neg(self) -> Result<Self, MoneyError> {
        self.minor_units
            .checked_neg()
            .map(|minor_units| Self::new(minor_units, self.currency))
            .ok_or(MoneyError::OutOfRange)
    }

    /// The value in another currency, at `rate` units of it for one unit of this one: rounded half
    /// up to its minor unit, and at least one minor unit.
    pub fn convert(self, rate: Decimal, to: Currency) -> Result<Self, MoneyError> {
        let converted = self
            .to_major()
            .checked_mul(rate)
            .ok_or(MoneyError::OutOfRange)?
            .round_dp_with_strategy(to.exponent(), RoundingStrategy::MidpointAwayFromZero);
        let converted = Self::from_major(converted, to)?;
        Ok(Self::new(converted.minor_units.max(1), to))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.currency, self.to_major())
    }
}

impl From<Money> for proto::money::Money {
    fn from(money: Money) -> Self {
        Self {
            minor_units: money.minor_units,
            currency: money.currency.code().to_owned(),
        }
    }
}

impl TryFrom<&proto::money::Money> for Money {
    type Error = MoneyError;

    fn try_from(money: &proto::money::Money) -> Result<Self, MoneyError> {
        Ok(Self::new(money.minor_units, money.currency.parse()?))
    }
}

#[cfg(feature = "sql")]
crate::ids::text_column!(Currency, |currency| currency.code().to_owned());

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().expect("a decimal")
    }

    #[test]
    fn majors_print_with_the_decimals_of_their_currency() {
        let print = |minor, code: &str| Money::new(minor, code.parse().unwrap()).to_string();
        assert_eq!(print(2550, "GHS"), "GHS 25.50");
        assert_eq!(print(2550, "JPY"), "JPY 2550");
        assert_eq!(print(2550, "BHD"), "BHD 2.550");
    }

    #[test]
    fn a_fraction_of_a_minor_unit_is_refused() {
        let parse = |text, code: &str| Money::from_major(decimal(text), code.parse().unwrap());
        assert_eq!(parse("1.001", "GHS"), Err(MoneyError::TooManyDecimals));
        assert_eq!(parse("1.5", "JPY"), Err(MoneyError::TooManyDecimals));
        assert_eq!(
            parse("1.500", "GHS"),
            Ok(Money::new(150, Currency::GHS)),
            "zeros after the last decimal change nothing"
        );
    }

    #[test]
    fn codes_without_minor_units_and_lower_case_codes_are_no_currencies() {
        for code in ["XAU", "XXX", "ghs", "GH", "", "GHSS"] {
            assert_eq!(code.parse::<Currency>(), Err(MoneyError::UnknownCurrency));
        }
    }

    #[test]
    fn conversion_rounds_half_up_and_never_to_nothing() {
        let usd = |minor| Money::new(minor, Currency::USD);
        let convert = |minor, rate| usd(minor).convert(decimal(rate), Currency::GHS).unwrap();
        assert_eq!(convert(100, "12.345").minor_units(), 1235);
        assert_eq!(convert(1, "0.001").minor_units(), 1);
    }

    proptest! {
        #[test]
        fn minor_to_major_and_back_is_exact(minor in any::<i64>(), code in "GHS|JPY|BHD|USD") {
            let money = Money::new(minor, code.parse().unwrap());
            prop_assert_eq!(Money::from_major(money.to_major(), money.currency()), Ok(money));
        }
    }
}
