//! Identifiers as types, fixed before anyone outside hears of them.
//!
//! A text that is not an identifier of its kind does not parse, so callers can answer "not found"
//! without asking a database.

use std::fmt;

use rand::RngExt as _;
use uuid::Uuid;

/// Crockford's base 32 lacks I, L, O and U, so that people can read it out.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Longest segment of an address.
const SEGMENT_CHARACTERS_MAX: usize = 128;

/// What [`is_segment`] accepts, in words.
pub const SEGMENT_FORM: &str =
    "at most 128 letters, digits, dots, dashes, underscores and tildes: it is part of an address";

/// Whether it can be part of an address that we gave to a rail or that an operator configured: a
/// URL carries it unescaped.
pub fn is_segment(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (1..=SEGMENT_CHARACTERS_MAX).contains(&text.len()) && text.bytes().all(is_good)
}

/// The text is not an identifier of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier of this kind")]
pub struct IdError;

/// An identifier that is a UUID.
macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $make:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "sql", derive(sqlx::Type), sqlx(transparent))]
        pub struct $name(Uuid);

        impl $name {
            #[expect(clippy::new_without_default, reason = "each one is another")]
            pub fn new() -> Self {
                Self($make)
            }

            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                // Only the form that we write ourselves.
                if text.len() != 36 {
                    return Err(IdError);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| IdError)
            }
        }
    };
}

/// An identifier that is a prefix and Crockford characters.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, [$($length:literal),+]) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                is_text_id(text, $prefix, &[$($length),+])
                    .then(|| Self(text.to_owned()))
                    .ok_or(IdError)
            }
        }

        #[cfg(feature = "sql")]
        text_column!($name, |id| id.as_str().to_owned());
    };
}

/// Makes a type a text column in both databases: written by the expression or as its `code()`, and
/// read by its `FromStr`.
#[cfg(feature = "sql")]
#[macro_export]
macro_rules! text_column {
    ($name:ty) => {
        $crate::text_column!($name, |value| value.code().to_owned());
    };
    ($name:ty, |$value:ident| $text:expr) => {
        impl ::sqlx::Type<::sqlx::Postgres> for $name {
            fn type_info() -> ::sqlx::postgres::PgTypeInfo {
                <String as ::sqlx::Type<::sqlx::Postgres>>::type_info()
            }
            fn compatible(info: &::sqlx::postgres::PgTypeInfo) -> bool {
                <String as ::sqlx::Type<::sqlx::Postgres>>::compatible(info)
            }
        }
        impl ::sqlx::postgres::PgHasArrayType for $name {
            fn array_type_info() -> ::sqlx::postgres::PgTypeInfo {
                <String as ::sqlx::postgres::PgHasArrayType>::array_type_info()
            }
            fn array_compatible(info: &::sqlx::postgres::PgTypeInfo) -> bool {
                <String as ::sqlx::postgres::PgHasArrayType>::array_compatible(info)
            }
        }
        impl ::sqlx::Type<::sqlx::Sqlite> for $name {
            fn type_info() -> ::sqlx::sqlite::SqliteTypeInfo {
                <String as ::sqlx::Type<::sqlx::Sqlite>>::type_info()
            }
        }
        impl<'q, D: ::sqlx::Database> ::sqlx::Encode<'q, D> for $name
        where
            String: ::sqlx::Encode<'q, D>,
        {
            fn encode_by_ref(
                &self,
                buffer: &mut D::ArgumentBuffer,
            ) -> Result<::sqlx::encode::IsNull, ::sqlx::error::BoxDynError> {
                let $value = self;
                ::sqlx::Encode::<D>::encode($text, buffer)
            }
        }
        impl<'r, D: ::sqlx::Database> ::sqlx::Decode<'r, D> for $name
        where
            &'r str: ::sqlx::Decode<'r, D>,
        {
            fn decode(value: D::ValueRef<'r>) -> Result<Self, ::sqlx::error::BoxDynError> {
                Ok(<&str as ::sqlx::Decode<D>>::decode(value)?.parse()?)
            }
        }
    };
}
#[cfg(feature = "sql")]
pub use text_column;

uuid_id!(
    /// A merchant.
    MerchantId,
    Uuid::now_v7()
);
uuid_id!(
    /// An API key's record, not its secret.
    KeyId,
    Uuid::now_v7()
);
uuid_id!(
    /// A person who uses the dashboard.
    PersonId,
    Uuid::now_v7()
);
uuid_id!(
    /// A person's login in one browser, not its secret.
    LoginId,
    Uuid::now_v7()
);
uuid_id!(
    /// Something that a person did.
    ActivityId,
    Uuid::now_v7()
);
uuid_id!(
    /// An operator's decision on a merchant's business.
    DecisionId,
    Uuid::now_v7()
);
uuid_id!(
    /// A payment session. Fully random, because it appears in a public address and whoever has it
    /// may pay.
    SessionId,
    Uuid::new_v4()
);
uuid_id!(
    /// A charge; merchants know it as `transaction_id`.
    ChargeId,
    Uuid::now_v7()
);
uuid_id!(
    /// A disbursement: a payout or a refund.
    DisbursementId,
    Uuid::now_v7()
);
uuid_id!(
    /// Our reference for a debit or a credit at a rail, fixed before the rail is called. Rails want version 4.
    RailReference,
    Uuid::new_v4()
);
uuid_id!(
    /// A merchant's webhook endpoint.
    EndpointId,
    Uuid::now_v7()
);
uuid_id!(
    /// An operator's case.
    CaseId,
    Uuid::now_v7()
);

text_id!(
    /// `TX-` and ten characters (spec §2.2).
    TxIdDisplay, "TX-", [10]
);
text_id!(
    /// A [`TxIdDisplay`] and six characters more (spec §2.3).
    Reference, "TX-", [10, 6]
);
text_id!(
    /// `evt_` and 26 characters (spec §6.1).
    EventId, "evt_", [26]
);
text_id!(
    /// `dlv_` and 26 characters: one event's way to one endpoint.
    DeliveryId, "dlv_", [26]
);
text_id!(
    /// `PO-` and ten characters: a payout, as merchants know it.
    PayoutId, "PO-", [10]
);
text_id!(
    /// `RF-` and ten characters: a refund, as merchants know it.
    RefundId, "RF-", [10]
);
text_id!(
    /// `CUS-` and ten characters: an entry of a merchant's customer directory.
    CustomerId, "CUS-", [10]
);

impl TxIdDisplay {
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self(format!("TX-{}", random(10)))
    }
}

impl Reference {
    pub fn new(tx_id_display: &TxIdDisplay) -> Self {
        Self(format!("{tx_id_display}-{}", random(6)))
    }
}

impl EventId {
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self::of(Uuid::now_v7())
    }

    /// The one event of a subject that has only one: it can never be another.
    pub fn of(subject: Uuid) -> Self {
        Self(format!("evt_{}", in_crockford(subject)))
    }
}

impl DeliveryId {
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self(format!("dlv_{}", in_crockford(Uuid::now_v7())))
    }
}

impl PayoutId {
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self(format!("PO-{}", random(10)))
    }
}

impl RefundId {
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self(format!("RF-{}", random(10)))
    }
}

impl CustomerId {
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self(format!("CUS-{}", random(10)))
    }
}

fn random(length: usize) -> String {
    let mut random = rand::rng();
    let character = |_| char::from(CROCKFORD[random.random_range(0..CROCKFORD.len())]);
    (0..length).map(character).collect()
}

/// The 128 bits of a UUID in 26 characters, which sort by time if it is a UUIDv7.
fn in_crockford(id: Uuid) -> String {
    let bits = id.as_u128();
    let character = |place: u32| char::from(CROCKFORD[(bits >> (5 * place) & 31) as usize]);
    (0..26).rev().map(character).collect()
}

fn is_text_id(text: &str, prefix: &str, lengths: &[usize]) -> bool {
    let Some(rest) = text.strip_prefix(prefix) else {
        return false;
    };
    let is_part = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| CROCKFORD.contains(&byte))
    };
    let parts: Vec<&str> = rest.split('-').collect();
    parts.len() == lengths.len()
        && parts
            .iter()
            .zip(lengths)
            .all(|(part, length)| is_part(part, *length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_parses_again() {
        let display = TxIdDisplay::new();
        let reference = Reference::new(&display);
        assert!(reference.as_str().starts_with(display.as_str()));
        assert_eq!(reference.as_str().parse(), Ok(reference));
        assert_eq!(display.as_str().parse(), Ok(display));
        let event = EventId::new();
        assert_eq!(event.as_str().parse(), Ok(event));
        let session = SessionId::new();
        assert_eq!(session.to_string().parse(), Ok(session));
    }

    #[test]
    fn other_texts_do_not() {
        for text in [
            "",
            "TX-",
            "TX-0123456789",
            "TX-0123456789-01234",
            "TX-012345678I-012345",
            "evt_0123456789-012345",
        ] {
            assert_eq!(text.parse::<Reference>(), Err(IdError), "{text}");
        }
        for text in [
            "",
            "x",
            "0190b2c0f5a97c8e9b1d2f3a4b5c6d7e",
            "{0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7}",
        ] {
            assert_eq!(text.parse::<SessionId>(), Err(IdError), "{text}");
        }
    }

    #[test]
    fn a_subject_has_one_event_and_no_other_has_it() {
        let (one, other) = (ChargeId::new().uuid(), ChargeId::new().uuid());
        assert_eq!(EventId::of(one), EventId::of(one));
        assert_ne!(EventId::of(one), EventId::of(other));
        assert_eq!(EventId::of(one).as_str().parse(), Ok(EventId::of(one)));
    }

    #[test]
    fn later_events_sort_later() {
        let (first, second) = (EventId::new(), EventId::new());
        assert!(first < second);
    }
}
