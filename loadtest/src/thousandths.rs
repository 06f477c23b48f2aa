//! Figures with three digits after the point, kept as integers: milliseconds counted in
//! microseconds, requests per second, statements per request.

use std::fmt;

use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thousandths(pub u64);

impl Thousandths {
    /// `amount / per`, and 0 per nothing.
    pub fn of(amount: u64, per: u64) -> Self {
        let thousandths = u128::from(amount) * 1_000;
        let figure = thousandths.checked_div(u128::from(per)).unwrap_or(0);
        Self(u64::try_from(figure).unwrap_or(u64::MAX))
    }

    /// How many times `other` this is.
    pub fn ratio(self, other: Self) -> Self {
        Self::of(self.0, other.0)
    }
}

/// `12.345`, or with fewer digits after the point as in `{:.1}`.
impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        let text = match f.precision() {
            Some(0) => format!("{}", (self.0 + 500) / 1_000),
            Some(1) => {
                let tenths = (self.0 + 50) / 100;
                format!("{}.{}", tenths / 10, tenths % 10)
            }
            Some(2) => {
                let hundredths = (self.0 + 5) / 10;
                format!("{}.{:02}", hundredths / 100, hundredths % 100)
            }
            _ => format!("{whole}.{rest:03}"),
        };
        f.pad_integral(true, "", &text)
    }
}

/// A JSON number.
impl Serialize for Thousandths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = RawValue::from_string(format!("{self}")).map_err(S::Error::custom)?;
        number.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_and_aligned_when_shown() {
        let figure = Thousandths::of(12_345_678, 1_000);
        assert_eq!(figure, Thousandths(12_345_678));
        assert_eq!(format!("{figure}"), "12345.678");
        assert_eq!(format!("{figure:>9.1}"), "  12345.7");
        assert_eq!(format!("{:.2}", Thousandths(1_005)), "1.01");
        assert_eq!(format!("{:.0}", Thousandths(1_500)), "2");
    }

    #[test]
    fn a_figure_is_a_json_number() {
        let text = serde_json::to_string(&Thousandths(1_050)).unwrap();
        assert_eq!(text, "1.050");
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(Thousandths::of(5, 0), Thousandths(0));
        assert_eq!(
            Thousandths(3_000).ratio(Thousandths(2_000)),
            Thousandths(1_500)
        );
    }
}
