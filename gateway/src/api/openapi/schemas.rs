//! The values that bodies are made of, as the document describes them. Limits come from where they
//! are enforced.

use serde_json::{Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr, Schema,
        schema::{SchemaFormat, Type},
    },
};

use crate::api::fields;

/// A schema with a name, for fields that hold their values as something else.
macro_rules! named {
    ($($name:ident = $build:expr;)+) => {
        $(
            pub struct $name;

            impl ToSchema for $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    let build: fn() -> ObjectBuilder = $build;
                    build().build().into()
                }
            }
        )+
    };
}

named! {
    Amount = || {
        ObjectBuilder::new()
            .schema_type(Type::Number)
            .exclusive_minimum(Some(0))
            .maximum(Some(9_999_999_999.99))
            .description(Some(
                "Major units of the currency, greater than zero, with no more decimals than the \
                 currency has: two for GHS and USD, none for JPY. A number, never a string.",
            ))
            .examples([json!(25.5)])
    };
    CediAmount = || {
        ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0.01))
            .maximum(Some(9_999_999_999.99))
            .description(Some(
                "Cedis, at least 0.01, with two decimals at most. A number, never a string.",
            ))
            .examples([json!(25.5)])
    };
    Rate = || {
        ObjectBuilder::new()
            .schema_type(Type::Number)
            .exclusive_minimum(Some(0))
            .description(Some("Units of one currency for one unit of another."))
            .examples([json!(12.5)])
    };
    Currency = || {
        string("ISO 4217 alphabetic code, upper case.")
            .enum_values(Some(fields::currencies()))
            .examples([json!("GHS")])
    };
    Description = || free_text("No control characters or line breaks.", fields::DESCRIPTION_CHARACTERS_MAX)
        .examples([json!("Order 17")]);
    PersonName = || free_text("No control characters or line breaks.", fields::NAME_CHARACTERS_MAX)
        .examples([json!("Ama Mensah")]);
    Email = || {
        string("An e-mail address: one @, and a domain of at least two labels.")
            .format(Some(SchemaFormat::Custom("email".to_owned())))
            .max_length(Some(fields::EMAIL_CHARACTERS_MAX))
            .examples([json!("ama@example.com")])
    };
    WebAddress = || {
        string("An absolute https address without a user name; the local stack also takes http.")
            .format(Some(SchemaFormat::Custom("uri".to_owned())))
            .max_length(Some(fields::URL_CHARACTERS_MAX))
            .examples([json!("https://shop.example.com/thanks")])
    };
    GhanaMobileNumber = || {
        string(
            "A Ghana mobile number: 0241234567, 233241234567, +233241234567 or 00233241234567. \
             Spaces, dots, dashes and parentheses may stand in it.",
        )
        .format(Some(SchemaFormat::Custom("ghana-mobile-number".to_owned())))
        .examples([json!("0241234567")])
    };
    PhoneNumber = || {
        string(
            "A Ghana mobile number in any of its forms, or a number of any country that starts \
             with + and its country code.",
        )
        .format(Some(SchemaFormat::Custom("phone-number".to_owned())))
        .examples([json!("+233241234567")])
    };
    Otp = || {
        string("Letters, digits or signs without spaces.")
            .pattern(Some("^[!-~]*$"))
            .min_length(Some(1))
            .max_length(Some(fields::OTP_CHARACTERS_MAX))
            .examples([json!("123456")])
    };
    Timestamp = || {
        string("ISO 8601, UTC, with milliseconds.")
            .format(Some(SchemaFormat::Custom("date-time".to_owned())))
            .pattern(Some(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"))
            .examples([json!("2026-11-21T09:30:00.000Z")])
    };
    SessionId = || {
        string("Names a session. Whoever knows it can open the session's page.")
            .format(Some(SchemaFormat::Custom("uuid".to_owned())))
            .examples([json!("3f0d6c1e-6a0b-4a52-9a2b-7d1c1a5a8e10")])
    };
    TransactionId = || {
        string("Names a transaction inside the service.")
            .format(Some(SchemaFormat::Custom("uuid".to_owned())))
            .examples([json!("019aa5c2-7c1e-7b60-8f4e-2b8f1c1d9a77")])
    };
    TxIdDisplay = || {
        string("Names a transaction for people.")
            .pattern(Some("^TX-[0-9A-HJKMNP-TV-Z]{10}$"))
            .examples([json!("TX-7K3M9Q2R4T")])
    };
    Reference = || {
        string("Names a charge: the transaction's display identifier and a suffix.")
            .pattern(Some("^TX-[0-9A-HJKMNP-TV-Z]{10}-[0-9A-HJKMNP-TV-Z]{6}$"))
            .examples([json!("TX-7K3M9Q2R4T-5V8W1X")])
    };
    Method = || {
        string("How it is paid. MOBILE_MONEY; others may follow.").examples([json!("MOBILE_MONEY")])
    };
    FailureReason = || {
        string("Why it failed, for programs.")
            .enum_values(Some(FAILURE_REASONS))
            .examples([json!("PAYER_DECLINED")])
    };
    KycStatus = || {
        ObjectBuilder::new()
            .schema_type([Type::String, Type::Null].into_iter().collect::<utoipa::openapi::schema::SchemaType>())
            .enum_values(Some([
                json!("PENDING"),
                json!("IN_REVIEW"),
                json!("APPROVED"),
                json!("REJECTED"),
                json!("EXPIRED"),
                Value::Null,
            ]))
            .description(Some("State of the merchant's KYC record; null: none was submitted."))
    };
}

/// The closed list (design "failure_reason"); charges-svc has the same, which a test of the whole
/// set holds together with this one.
const FAILURE_REASONS: [&str; 16] = [
    "INSUFFICIENT_FUNDS",
    "PAYER_DECLINED",
    "PAYER_TIMEOUT",
    "INVALID_PIN",
    "PAYER_NOT_FOUND",
    "PAYER_LIMIT_REACHED",
    "PAYER_ACCOUNT_BLOCKED",
    "PAYEE_ACCOUNT_BLOCKED",
    "PAYMENT_IN_PROGRESS",
    "NUMBER_NETWORK_MISMATCH",
    "OTP_EXPIRED",
    "OTP_ATTEMPTS_EXCEEDED",
    "SESSION_EXPIRED",
    "RAIL_UNAVAILABLE",
    "RAIL_CONFIGURATION",
    "RAIL_ERROR",
];

/// White space at both ends is not counted and may be anything; between, there is no control
/// character and no line break.
const TRIMMED_TEXT: &str = r"^[\u0009-\u000D \u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]*[^\u0000-\u001F\u007F-\u009F\u2028\u2029]*[\u0009-\u000D \u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]*$";

fn string(description: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
}

fn free_text(description: &str, characters_max: usize) -> ObjectBuilder {
    string(description)
        .pattern(Some(TRIMMED_TEXT))
        .max_length(Some(characters_max))
}
