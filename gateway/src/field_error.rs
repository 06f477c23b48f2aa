//! What can be wrong with a field of a request.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::ToSchema;

/// What is wrong with a field, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FieldCode {
    Required,
    InvalidType,
    NotPositive,
    TooManyDecimals,
    OutOfRange,
    TooLong,
    ControlCharacter,
    UnknownCurrency,
    UnsupportedCurrency,
    UnknownProvider,
    InvalidEmail,
    InvalidUrl,
    InvalidPhone,
    InvalidFormat,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: FieldCode,
    /// For people; reads on from the field's name and repeats nothing that was sent.
    pub message: &'static str,
}

impl Fault {
    pub const fn new(code: FieldCode, message: &'static str) -> Self {
        Self { code, message }
    }
}

/// One entry of `fields` in the answer to a request that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// The field, or the header.
    #[schema(value_type = String)]
    pub field: Cow<'static, str>,
    pub code: FieldCode,
    /// For people; reads on from the field's name.
    pub message: &'static str,
}
