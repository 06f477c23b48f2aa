//! Amounts and numbers as people read them.

use chassis::money::Money;

/// An amount for people: `GHS 1,250.00`.
pub fn shown(money: Money) -> String {
    let major = money.to_major().to_string();
    let (whole, fraction) = match major.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (major.as_str(), String::new()),
    };
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{}\u{a0}{grouped}{fraction}", money.currency())
}

/// A masked number that does not break across lines.
pub fn unbroken(masked: &str) -> String {
    masked.replace(' ', "\u{a0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_grouped_and_keep_their_decimals() {
        let check = |minor, code: &str, text: &str| {
            let money = Money::new(minor, code.parse().expect("a currency"));
            assert_eq!(shown(money).replace('\u{a0}', " "), text);
        };
        check(2_550, "GHS", "GHS 25.50");
        check(100_000, "GHS", "GHS 1,000.00");
        check(999_999_999_999, "GHS", "GHS 9,999,999,999.99");
        check(123, "JPY", "JPY 123");
        check(5, "BHD", "BHD 0.005");
    }
}
