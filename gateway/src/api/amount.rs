//! Amounts of money as JSON numbers, read and written exactly: a number token becomes a decimal
//! without ever being a float (spec §1.3).

use chassis::{
    limits::AMOUNT_HUNDREDTHS_MAX,
    money::{Money, MoneyError},
};
use rust_decimal::Decimal;
use serde_json::value::RawValue;

use crate::field_error::{Fault, FieldCode};

/// Most decimal places that a `Decimal` can hold.
const SCALE_MAX: i64 = 28;

/// Reads a positive amount in major units. [`Money::from_major`] checks whether its decimals suit
/// its currency.
pub fn parse(value: &RawValue) -> Result<Decimal, Fault> {
    let token = value.get();
    if !token.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return Err(Fault::new(
            FieldCode::InvalidType,
            "must be a number, such as 25.50",
        ));
    }
    let amount = exact(token).ok_or(OUT_OF_RANGE)?;
    if amount <= Decimal::ZERO {
        return Err(Fault::new(
            FieldCode::NotPositive,
            "must be greater than zero",
        ));
    }
    if amount > Decimal::new(AMOUNT_HUNDREDTHS_MAX, 2) {
        return Err(OUT_OF_RANGE);
    }
    Ok(amount)
}

const OUT_OF_RANGE: Fault = Fault::new(
    FieldCode::OutOfRange,
    "must be an amount of at most 9999999999.99, written with at most 28 digits",
);

/// The fault of an amount that its currency cannot express.
pub fn fault(error: MoneyError) -> Fault {
    match error {
        MoneyError::TooManyDecimals => Fault::new(
            FieldCode::TooManyDecimals,
            "has more decimals than its currency",
        ),
        MoneyError::UnknownCurrency | MoneyError::OutOfRange => OUT_OF_RANGE,
    }
}

/// The value of a JSON number token, or `None` if a decimal of 28 digits cannot hold it exactly.
fn exact(token: &str) -> Option<Decimal> {
    let (digits, exponent) = match token.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (token, 0),
    };
    let decimal = Decimal::from_str_exact(digits).ok()?;
    let scale = i64::from(decimal.scale()) - i64::from(exponent);
    match scale {
        0..=SCALE_MAX => {
            let scale = u32::try_from(scale).ok()?;
            Decimal::try_from_i128_with_scale(decimal.mantissa(), scale).ok()
        }
        scale if (-SCALE_MAX..0).contains(&scale) => {
            let power = 10_i128.checked_pow(u32::try_from(-scale).ok()?)?;
            let whole = decimal.mantissa().checked_mul(power)?;
            Decimal::try_from_i128_with_scale(whole, 0).ok()
        }
        _ => None,
    }
}

/// A JSON number with exactly as many decimals as its currency has: `25.50`.
pub fn to_json(money: Money) -> Box<RawValue> {
    number(money.to_major())
}

/// A JSON number with as many decimals as the value carries.
pub fn number(value: Decimal) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).expect("a decimal prints as a JSON number")
}

#[cfg(test)]
mod tests {
    use chassis::money::Currency;
    use proptest::prelude::*;

    use super::*;

    fn read(token: &str, currency: &str) -> Result<i64, FieldCode> {
        let raw = RawValue::from_string(token.to_owned()).expect("JSON");
        let currency: Currency = currency.parse().expect("a currency");
        let amount = parse(&raw).map_err(|fault| fault.code)?;
        Money::from_major(amount, currency)
            .map(Money::minor_units)
            .map_err(|error| fault(error).code)
    }

    #[test]
    fn number_tokens_are_read_exactly() {
        for (token, minor_units) in [
            ("25.50", 2550),
            ("25.5", 2550),
            ("25", 2500),
            ("0.01", 1),
            ("1e2", 10_000),
            ("1E+2", 10_000),
            ("2550e-2", 2550),
            ("0.000001e6", 100),
            ("1.500", 150),
            ("9999999999.99", 999_999_999_999),
            ("0.10", 10),
            ("4503599627.37", 450_359_962_737),
        ] {
            assert_eq!(read(token, "GHS"), Ok(minor_units), "{token}");
        }
        assert_eq!(read("2550", "JPY"), Ok(2550));
        assert_eq!(read("2.550", "BHD"), Ok(2550));
    }

    #[test]
    fn what_is_out_of_rule_is_refused_with_its_reason() {
        use FieldCode::*;
        for (token, currency, code) in [
            ("\"25.50\"", "GHS", InvalidType),
            ("true", "GHS", InvalidType),
            ("[25.50]", "GHS", InvalidType),
            ("{\"amount\":1}", "GHS", InvalidType),
            ("0", "GHS", NotPositive),
            ("0.00", "GHS", NotPositive),
            ("-0", "GHS", NotPositive),
            ("-25.50", "GHS", NotPositive),
            ("0e5", "GHS", NotPositive),
            ("1.001", "GHS", TooManyDecimals),
            ("1e-3", "GHS", TooManyDecimals),
            ("1e-28", "GHS", TooManyDecimals),
            ("1.5", "JPY", TooManyDecimals),
            ("1.0001", "BHD", TooManyDecimals),
            ("10000000000", "GHS", OutOfRange),
            ("9999999999.991", "GHS", OutOfRange),
            ("1e-29", "GHS", OutOfRange),
            ("1e400", "GHS", OutOfRange),
            ("1e-400", "GHS", OutOfRange),
            ("1e99999999999999999999", "GHS", OutOfRange),
            ("1e2147483647", "GHS", OutOfRange),
            ("1e-2147483648", "GHS", OutOfRange),
            ("123456789012345678901234567890", "GHS", OutOfRange),
            ("1.00000000000000000000000000001", "GHS", OutOfRange),
        ] {
            assert_eq!(read(token, currency), Err(code), "{token} {currency}");
        }
        let most = format!("at most {}, ", Decimal::new(AMOUNT_HUNDREDTHS_MAX, 2));
        assert!(OUT_OF_RANGE.message.contains(&most));
    }

    #[test]
    fn amounts_print_with_the_decimals_of_their_currency() {
        let print = |minor, code: &str| {
            to_json(Money::new(minor, code.parse().unwrap()))
                .get()
                .to_owned()
        };
        assert_eq!(print(2550, "GHS"), "25.50");
        assert_eq!(print(2550, "JPY"), "2550");
        assert_eq!(print(5, "BHD"), "0.005");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn what_is_printed_is_read_back_exactly(
            minor in 1..=999_999_999_999_i64,
            code in "GHS|USD|XOF",
        ) {
            let money = Money::new(minor.min(if code == "XOF" { 9_999_999_999 } else { i64::MAX }),
                code.parse().unwrap());
            let printed = to_json(money);
            prop_assert_eq!(read(printed.get(), &code), Ok(money.minor_units()));
        }

        #[test]
        fn an_exponent_changes_nothing(minor in 1..=999_999_999_999_i64, shift in 0..=10_u32) {
            let shifted = format!("{}e-{}", i128::from(minor) * 10_i128.pow(shift), shift + 2);
            prop_assert_eq!(read(&shifted, "GHS"), Ok(minor), "{}", shifted);
        }

        #[test]
        fn any_number_token_is_read_exactly_or_refused(
            token in "-?(0|[1-9][0-9]{0,9}|[0-9]{1,32})(\\.[0-9]{1,3}|\\.[0-9]{1,32})?([eE][+-]?[0-9]|[eE][+-]?[0-9]{1,4})?"
                .prop_filter("a JSON number", |token| RawValue::from_string(token.clone()).is_ok()),
        ) {
            // The value, computed with integers from the token's digits.
            let expected = hundredths(&token);
            prop_assert_eq!(read(&token, "GHS").ok().map(i128::from), expected, "{}", token);
        }
    }

    /// The token's value in hundredths if the rules allow it, computed in another way than by
    /// `exact`.
    fn hundredths(token: &str) -> Option<i128> {
        let (digits, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
        let exponent: i32 = exponent.parse().unwrap();
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = format!("{whole}{fraction}");
        // A `Decimal` holds 28 decimals and 96 bits, before and after the exponent is applied.
        let mantissa: i128 = all.parse().ok().filter(|m: &i128| m.abs() < 1 << 96)?;
        let scale = i32::try_from(fraction.len()).unwrap();
        if scale > 28 || !(-28..=28).contains(&(scale - exponent)) {
            return None;
        }
        let places = 2 - (scale - exponent);
        let power = 10_i128.checked_pow(places.unsigned_abs())?;
        let value = if places >= 0 {
            mantissa.checked_mul(power)?
        } else if mantissa % power == 0 {
            mantissa / power
        } else {
            return None;
        };
        (1..=999_999_999_999).contains(&value).then_some(value)
    }
}
