//! A moment, as it is written, shown and stored.

use std::{fmt, time::Duration};

use time::{
    OffsetDateTime, PrimitiveDateTime,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::{datetime, format_description},
};

/// Fixed width, so that sorting the texts sorts the times.
const RFC_3339_MILLISECONDS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// A moment, in UTC and whole milliseconds. Prints as `2026-01-31T09:00:00.000Z`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(OffsetDateTime);

/// The text is not a moment in the only form that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a timestamp of the form 2026-01-31T09:00:00.000Z")]
pub struct TimestampError;

impl Timestamp {
    /// The beginning of 1970.
    pub const EPOCH: Self = Self(OffsetDateTime::UNIX_EPOCH);

    /// The last moment that prints in our form.
    pub const END: Self = Self(datetime!(9999-12-31 23:59:59.999 UTC));

    /// Reads a time as people and programs write it: any offset, any number of decimals, of which
    /// those beyond milliseconds are cut off. What is outside 1970 to 9999 is read as the nearest
    /// time within.
    pub fn parse_rfc_3339(text: &str) -> Option<Self> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let moment = moment.clamp(Self::EPOCH.0, Self::END.0);
        Some(Self::from_datetime(moment))
    }

    /// Whether something may have been recorded then.
    pub fn is_recordable(self) -> bool {
        (Self::EPOCH..=Self::END).contains(&self)
    }

    /// Truncates to milliseconds.
    pub(super) fn from_datetime(moment: OffsetDateTime) -> Self {
        let whole = moment.to_offset(time::UtcOffset::UTC);
        let nanosecond = whole.nanosecond() / 1_000_000 * 1_000_000;
        Self(whole.replace_nanosecond(nanosecond).unwrap_or(whole))
    }

    pub fn from_unix_millis(millis: i64) -> Result<Self, TimestampError> {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000)
            .map(Self)
            .map_err(|_| TimestampError)
    }

    pub fn unix_millis(self) -> i64 {
        self.0.unix_timestamp() * 1_000 + i64::from(self.0.millisecond())
    }

    /// Whole seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.0.unix_timestamp()
    }

    pub fn datetime(self) -> OffsetDateTime {
        self.0
    }

    /// This many milliseconds later, or earlier if negative.
    pub(super) fn plus_millis(self, millis: i64) -> Self {
        Self::from_datetime(self.0.saturating_add(time::Duration::milliseconds(millis)))
    }

    /// Time from `earlier` to this moment, or zero if `earlier` is the later one.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::try_from(self.0 - earlier.0).unwrap_or_default()
    }
}

/// Saturates at the end of time.
impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let duration = time::Duration::try_from(duration).unwrap_or(time::Duration::MAX);
        Self::from_datetime(self.0.saturating_add(duration))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        let duration = time::Duration::try_from(duration).unwrap_or(time::Duration::MAX);
        Self::from_datetime(self.0.saturating_sub(duration))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .0
                .format(RFC_3339_MILLISECONDS)
                .map_err(|_| fmt::Error)?,
        )
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        PrimitiveDateTime::parse(text, RFC_3339_MILLISECONDS)
            .map(|moment| Self(moment.assume_utc()))
            .map_err(|_| TimestampError)
    }
}

#[cfg(feature = "sql")]
mod sql {
    use sqlx::{
        Decode, Encode, Postgres, Sqlite, Type,
        encode::IsNull,
        error::BoxDynError,
        postgres::{PgArgumentBuffer, PgHasArrayType},
        sqlite::SqliteArgumentsBuffer,
    };
    use time::OffsetDateTime;

    use super::Timestamp;

    /// `timestamptz` on PostgreSQL.
    impl Type<Postgres> for Timestamp {
        fn type_info() -> sqlx::postgres::PgTypeInfo {
            <OffsetDateTime as Type<Postgres>>::type_info()
        }
    }
    impl PgHasArrayType for Timestamp {
        fn array_type_info() -> sqlx::postgres::PgTypeInfo {
            <OffsetDateTime as PgHasArrayType>::array_type_info()
        }
    }
    impl<'q> Encode<'q, Postgres> for Timestamp {
        fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
            Encode::<Postgres>::encode_by_ref(&self.0, buffer)
        }
    }
    impl<'r> Decode<'r, Postgres> for Timestamp {
        fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, BoxDynError> {
            Ok(Self(Decode::<Postgres>::decode(value)?))
        }
    }

    /// Text of fixed width on SQLite.
    impl Type<Sqlite> for Timestamp {
        fn type_info() -> sqlx::sqlite::SqliteTypeInfo {
            <String as Type<Sqlite>>::type_info()
        }
    }
    impl<'q> Encode<'q, Sqlite> for Timestamp {
        fn encode_by_ref(&self, buffer: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
            Encode::<Sqlite>::encode(self.to_string(), buffer)
        }
    }
    impl<'r> Decode<'r, Sqlite> for Timestamp {
        fn decode(value: sqlx::sqlite::SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
            Ok(<&str as Decode<Sqlite>>::decode(value)?.parse()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_prints_and_parses_in_milliseconds() {
        let moment = Timestamp::from_unix_millis(1_700_000_000_007).unwrap();
        assert_eq!(moment.to_string(), "2023-11-14T22:13:20.007Z");
        assert_eq!(moment.to_string().parse(), Ok(moment));
        assert_eq!(moment.unix_millis(), 1_700_000_000_007);
        assert_eq!(
            "2023-11-14 22:13:20".parse::<Timestamp>(),
            Err(TimestampError)
        );
    }

    #[test]
    fn others_times_are_read_in_every_offset_and_within_our_years() {
        for (text, read) in [
            ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"),
            ("2026-01-31t12:00:00z", "2026-01-31T12:00:00.000Z"),
            ("2026-01-31T13:30:00.0004+01:30", "2026-01-31T12:00:00.000Z"),
            ("1970-01-01T00:00:00+00:01", "1970-01-01T00:00:00.000Z"),
            ("0000-01-01T00:00:00+01:00", "1970-01-01T00:00:00.000Z"),
            ("9999-12-31T23:59:59.9999-00:01", "9999-12-31T23:59:59.999Z"),
        ] {
            let at = Timestamp::parse_rfc_3339(text).unwrap();
            assert_eq!(at.to_string(), read, "{text}");
        }
        for text in [
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00 01:30",
        ] {
            assert_eq!(Timestamp::parse_rfc_3339(text), None, "{text}");
        }
    }
}
