//! A day, as it is written, shown and stored.

use std::{fmt, str::FromStr};

use time::{Date, format_description::BorrowedFormatItem, macros::format_description};

use super::Timestamp;

const RFC_3339_DATE: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");

/// A UTC day, which is also Ghana's. Prints as `2026-01-31`, so that sorting the texts sorts the
/// days.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(Date);

/// The text is not a day in the only form that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a day of the form 2026-01-31")]
pub struct DayError;

impl Day {
    /// The day of a moment.
    pub fn of(moment: Timestamp) -> Self {
        Self(moment.datetime().date())
    }

    /// The midnight at which it ends. The last day of all never ends.
    pub fn end(self) -> Timestamp {
        let end = self.0.next_day().unwrap_or(Date::MAX);
        Timestamp::from_datetime(end.midnight().assume_utc())
    }

    /// The day after it.
    pub fn next(self) -> Self {
        Self(self.0.next_day().unwrap_or(Date::MAX))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.format(RFC_3339_DATE).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Day {
    type Err = DayError;

    fn from_str(text: &str) -> Result<Self, DayError> {
        let day = Date::parse(text, RFC_3339_DATE).map(Self).ok();
        // A year may be written with a sign, but not by us.
        let is_ours = |day: &Self| day.0.year() >= 0 && day.to_string() == text;
        day.filter(is_ours).ok_or(DayError)
    }
}

#[cfg(feature = "sql")]
crate::text_column!(Day, |day| day.to_string());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_and_ends_at_midnight() {
        let day: Day = "2026-12-31".parse().unwrap();
        assert_eq!(day.end().to_string(), "2027-01-01T00:00:00.000Z");
        assert_eq!(day.next().to_string(), "2027-01-01");
        let last: Timestamp = "2026-12-31T23:59:59.999Z".parse().unwrap();
        assert_eq!(Day::of(last), day);
        assert_eq!(Day::of(day.end()), day.next());
    }

    #[test]
    fn only_days_that_exist_are_read_and_in_one_form_alone() {
        assert!("2028-02-29".parse::<Day>().is_ok());
        for text in [
            "",
            "2026-02-29",
            "2026-13-01",
            "2026-1-1",
            "26-01-01",
            "+2026-01-01",
            "-2026-01-01",
            "2026-01-01T00:00:00.000Z",
            " 2026-01-01",
            "20260101",
            "today",
        ] {
            assert_eq!(text.parse::<Day>(), Err(DayError), "{text}");
        }
    }
}
