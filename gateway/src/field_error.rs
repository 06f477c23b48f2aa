//! What can be wrong with a field of a request.

use std::{borrow::Cow, fmt::Display};

use serde::{Serialize, Serializer};

/// Most unknown fields that are named in an answer, and how much of a name.
pub const UNKNOWN_FIELDS_MAX: usize = 10;
const NAME_CHARACTERS_MAX: usize = 64;

chassis::closed_list! {
    /// What is wrong with a field, for programs.
    pub enum FieldCode: "a field's code" {
        Required = "REQUIRED",
        InvalidType = "INVALID_TYPE",
        NotPositive = "NOT_POSITIVE",
        TooManyDecimals = "TOO_MANY_DECIMALS",
        OutOfRange = "OUT_OF_RANGE",
        TooLong = "TOO_LONG",
        ControlCharacter = "CONTROL_CHARACTER",
        UnknownCurrency = "UNKNOWN_CURRENCY",
        UnsupportedCurrency = "UNSUPPORTED_CURRENCY",
        UnknownProvider = "UNKNOWN_PROVIDER",
        InvalidEmail = "INVALID_EMAIL",
        InvalidUrl = "INVALID_URL",
        InvalidPhone = "INVALID_PHONE",
        InvalidFormat = "INVALID_FORMAT",
    }
}

/// Writes a code of a closed list as JSON.
pub fn as_code<S: Serializer>(code: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(code)
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: FieldCode,
    /// For people: continues the field's name, and repeats nothing that was sent.
    pub message: &'static str,
}

impl Fault {
    pub const fn new(code: FieldCode, message: &'static str) -> Self {
        Self { code, message }
    }
}

/// One entry of `fields` in the answer to a refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The name of the field or header.
    pub field: Cow<'static, str>,
    #[serde(serialize_with = "as_code")]
    pub code: FieldCode,
    /// For people: continues the field's name.
    pub message: Cow<'static, str>,
}

impl FieldError {
    /// For a field that the request does not have, of which the name alone is known.
    pub fn unknown(name: &str, message: impl Into<Cow<'static, str>>) -> Self {
        let name: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
        Self {
            field: Cow::Owned(name),
            code: FieldCode::InvalidFormat,
            message: message.into(),
        }
    }
}
