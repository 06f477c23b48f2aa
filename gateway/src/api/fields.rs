//! The fields of a JSON body. Each is read from its own token, and all errors are reported at once.

use chassis::{
    config::Mode,
    limits::{EMAIL_CHARACTERS_MAX, OTP_CHARACTERS_MAX, URL_CHARACTERS_MAX, is_visible_ascii},
    money::Currency,
    phone::Phone,
    provider::MUST_BE_PROVIDER,
};
use proto::charges::Provider;
use serde_json::value::RawValue;

use super::body::Object;
use crate::{
    error::Error,
    field_error::{Fault, FieldCode, FieldError, UNKNOWN_FIELDS_MAX},
};

/// Most octets before the @ (RFC 5321, 4.5.3.1.1).
const EMAIL_LOCAL_PART_BYTES_MAX: usize = 64;

/// A body's fields as they are read, with the errors found so far.
#[derive(Debug)]
pub struct Fields {
    given: Object,
    errors: Vec<FieldError>,
}

impl Fields {
    pub fn new(given: Object) -> Self {
        Self {
            given,
            errors: Vec::new(),
        }
    }

    /// Reads a field that may be absent or null.
    pub fn optional<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&RawValue) -> Result<T, Fault>,
    ) -> Option<T> {
        let read = parse(self.given.get(field)?);
        self.checked(field, read)
    }

    /// Reads a field that must be present.
    pub fn required<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&RawValue) -> Result<T, Fault>,
    ) -> Option<T> {
        let read = match self.given.get(field) {
            Some(value) => parse(value),
            None => Err(Fault::new(FieldCode::Required, "is required")),
        };
        self.checked(field, read)
    }

    /// Refuses every other field, where a misspelt one would do harm. Elsewhere they are ignored.
    pub fn only(&mut self, known: &[&str]) {
        let unknown = self.given.names().filter(|name| !known.contains(name));
        let unknown: Vec<FieldError> = unknown
            .map(|name| FieldError::unknown(name, "is not a field of this request"))
            .take(UNKNOWN_FIELDS_MAX)
            .collect();
        self.errors.extend(unknown);
    }

    /// Whether a field is present and not null.
    pub fn is_given(&self, field: &str) -> bool {
        self.given.get(field).is_some()
    }

    /// Takes a value that was read elsewhere on behalf of a field or a header, and records its
    /// fault.
    pub fn checked<T>(&mut self, field: &'static str, read: Result<T, Fault>) -> Option<T> {
        let fault = match read {
            Ok(read) => return Some(read),
            Err(fault) => fault,
        };
        self.errors.push(FieldError {
            field: field.into(),
            code: fault.code,
            message: fault.message.into(),
        });
        None
    }

    /// Returns `read` if no field had a fault. `read` is `None` only if some field had one.
    pub fn finish<T>(self, read: Option<T>) -> Result<T, Error> {
        match read {
            Some(read) if self.errors.is_empty() => Ok(read),
            _ => Err(Error::Validation(self.errors)),
        }
    }
}

/// A trimmed string without control characters.
fn string(value: &RawValue) -> Result<String, Fault> {
    let token = value.get();
    if !token.starts_with('"') {
        return Err(Fault::new(FieldCode::InvalidType, "must be a string"));
    }
    let text: String = serde_json::from_str(token).map_err(|_| {
        Fault::new(
            FieldCode::InvalidFormat,
            "contains an escape that is no character",
        )
    })?;
    let text = text.trim();
    if text.chars().any(is_control) {
        return Err(Fault::new(
            FieldCode::ControlCharacter,
            "must not contain control characters or line breaks",
        ));
    }
    Ok(text.to_owned())
}

/// Unicode's control characters, and its two line breaks that are not among them.
fn is_control(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

fn no_longer_than(text: String, characters_max: usize) -> Result<String, Fault> {
    if text.chars().count() > characters_max {
        return Err(Fault::new(FieldCode::TooLong, "is too long"));
    }
    Ok(text)
}

/// Free text of at most `characters_max` characters, or `None` if it is blank.
pub fn text(characters_max: usize) -> impl Fn(&RawValue) -> Result<Option<String>, Fault> {
    move |value| {
        let text = no_longer_than(string(value)?, characters_max)?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }
}

/// A string that names a record. The caller checks its form.
pub fn name_of_record(value: &RawValue) -> Result<String, Fault> {
    string(value)
}

/// An ISO 4217 code in upper case.
pub fn currency(value: &RawValue) -> Result<Currency, Fault> {
    string(value)?.parse().map_err(|_| {
        Fault::new(
            FieldCode::UnknownCurrency,
            "must be an ISO 4217 currency code, such as GHS",
        )
    })
}

/// GHS, the only currency of a direct charge (spec §4.3).
pub fn charge_currency(value: &RawValue) -> Result<Currency, Fault> {
    cedis(value, "must be GHS, the only currency of a direct charge")
}

/// GHS, the only currency in which money goes out.
pub fn cedis_only(value: &RawValue) -> Result<Currency, Fault> {
    cedis(
        value,
        "must be GHS, the only currency of payouts and refunds",
    )
}

fn cedis(value: &RawValue, otherwise: &'static str) -> Result<Currency, Fault> {
    match string(value)? == Currency::GHS.code() {
        true => Ok(Currency::GHS),
        false => Err(Fault::new(FieldCode::UnsupportedCurrency, otherwise)),
    }
}

/// The payer's network, as the merchant names it (spec §4.3).
pub fn provider(value: &RawValue) -> Result<Provider, Fault> {
    const FAULT: Fault = Fault::new(FieldCode::UnknownProvider, MUST_BE_PROVIDER);
    Provider::from_code(&string(value)?).ok_or(FAULT)
}

/// The number of a wallet in Ghana.
pub fn ghana_mobile(value: &RawValue) -> Result<Phone, Fault> {
    Phone::parse_ghana_mobile(&string(value)?).map_err(|_| {
        Fault::new(
            FieldCode::InvalidPhone,
            "must be a Ghana mobile number, such as 0241234567 or +233241234567",
        )
    })
}

/// A customer's number from any country.
pub fn phone(value: &RawValue) -> Result<Phone, Fault> {
    Phone::parse_any(&string(value)?).map_err(|_| {
        Fault::new(
            FieldCode::InvalidPhone,
            "must be a Ghana number or an international number that starts with +",
        )
    })
}

/// The code that a payer was given. A string, because it may begin with a zero.
pub fn otp(value: &RawValue) -> Result<String, Fault> {
    let otp = string(value)?;
    if !is_visible_ascii(otp.as_bytes(), OTP_CHARACTERS_MAX) {
        return Err(Fault::new(
            FieldCode::InvalidFormat,
            "must be 1 to 32 letters, digits or signs without spaces",
        ));
    }
    Ok(otp)
}

/// A plausible e-mail address: one `@`, a local part, and a domain of at least two labels.
pub fn email(value: &RawValue) -> Result<String, Fault> {
    email_address(string(value)?)
}

/// The same, wherever it was written.
pub fn email_address(text: String) -> Result<String, Fault> {
    let email = no_longer_than(text, EMAIL_CHARACTERS_MAX)?;
    let plausible = email
        .split_once('@')
        .is_some_and(|(local, domain)| is_local_part(local) && is_domain(domain));
    if !plausible {
        return Err(Fault::new(
            FieldCode::InvalidEmail,
            "must be an e-mail address, such as ama@example.com",
        ));
    }
    Ok(email)
}

fn is_local_part(local: &str) -> bool {
    let is_atom_character = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    local.len() <= EMAIL_LOCAL_PART_BYTES_MAX
        && local
            .split('.')
            .all(|atom| !atom.is_empty() && atom.chars().all(is_atom_character))
}

fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    domain.contains('.') && domain.split('.').all(is_label)
}

/// An absolute http(s) address without user information, normalised.
pub fn url(value: &RawValue) -> Result<String, Fault> {
    const FAULT: Fault = Fault::new(
        FieldCode::InvalidUrl,
        "must be an absolute http or https address without a user name",
    );
    let text = no_longer_than(string(value)?, URL_CHARACTERS_MAX)?;
    let (scheme, rest) = text.split_once("://").ok_or(FAULT)?;
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    // The parser would silently repair these, but a browser may read them differently.
    let is_plain = !text.contains(|c: char| c == '\\' || c.is_whitespace());
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !is_web || !is_plain || authority.is_empty() || authority.contains('@') {
        return Err(FAULT);
    }
    let url = url::Url::parse(&text).map_err(|_| FAULT)?;
    // Escaping may have made it longer.
    no_longer_than(url.into(), URL_CHARACTERS_MAX)
}

/// Like [`url`], but in production it must be https.
pub fn redirect_url(mode: Mode) -> impl Fn(&RawValue) -> Result<String, Fault> {
    move |value| {
        let url = url(value)?;
        if mode == Mode::Production && !url.starts_with("https://") {
            let message = "must be an https address";
            return Err(Fault::new(FieldCode::InvalidUrl, message));
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).expect("JSON")
    }

    /// The text as a JSON string.
    fn quoted(text: &str) -> Box<RawValue> {
        raw(&serde_json::to_string(text).expect("a string"))
    }

    fn check<T: std::fmt::Debug>(
        parse: impl Fn(&RawValue) -> Result<T, Fault>,
        good: &[&str],
        bad: &[(&str, FieldCode)],
    ) {
        for text in good {
            assert!(parse(&quoted(text)).is_ok(), "{text:?}");
        }
        for (text, code) in bad {
            let fault = parse(&quoted(text)).expect_err(text);
            assert_eq!(fault.code, *code, "{text:?}");
        }
        for token in ["1", "true", "[]", "{}", "[\"GHS\"]"] {
            let fault = parse(&raw(token)).expect_err(token);
            assert_eq!(fault.code, FieldCode::InvalidType, "{token}");
        }
    }

    #[test]
    fn texts_are_trimmed_and_hold_no_control_characters() {
        let parse = text(5);
        let read = |json: &str| parse(&raw(json)).map_err(|fault| fault.code);
        assert_eq!(read("\"  Akwaaba \""), Err(FieldCode::TooLong));
        assert_eq!(
            read("\" \\t€uro\\u00e9 \\n\""),
            Ok(Some("€uroé".to_owned()))
        );
        assert_eq!(read("\"   \""), Ok(None));
        assert_eq!(read("\"\""), Ok(None));
        for escape in ["\\u0000", "\\n", "\\u007f", "\\u0085", "\\u2028", "\\u2029"] {
            let json = format!("\"a{escape}b\"");
            assert_eq!(read(&json), Err(FieldCode::ControlCharacter), "{escape}");
        }
        assert_eq!(read("\"\\ud800\""), Err(FieldCode::InvalidFormat));
        assert_eq!(read("\"\\ud83d\\ude00\""), Ok(Some("😀".to_owned())));
        assert_eq!(read("7"), Err(FieldCode::InvalidType));
    }

    #[test]
    fn lengths_count_characters() {
        let name = text(chassis::limits::NAME_CHARACTERS_MAX);
        assert!(name(&quoted(&"é".repeat(200))).is_ok());
        assert!(name(&quoted(&"é".repeat(201))).is_err());
    }

    #[test]
    fn emails_are_plausible() {
        let long = format!("{}@{}.com", "a".repeat(64), "b".repeat(63));
        let longer = format!("{}@example.com", "a".repeat(65));
        let longest = format!("{}@{}.com", "a".repeat(64), "b.".repeat(120));
        check(
            email,
            &[
                "ama@example.com",
                " ama@example.com ",
                "ama.mensah+shop@mail.example.co",
                "o'neil@example.com",
                "kofi@exämple.com",
                &long,
            ],
            &[
                ("", FieldCode::InvalidEmail),
                ("ama", FieldCode::InvalidEmail),
                ("ama@", FieldCode::InvalidEmail),
                ("@example.com", FieldCode::InvalidEmail),
                ("ama@example", FieldCode::InvalidEmail),
                ("ama@@example.com", FieldCode::InvalidEmail),
                ("ama@kofi@example.com", FieldCode::InvalidEmail),
                ("ama mensah@example.com", FieldCode::InvalidEmail),
                ("ama@example..com", FieldCode::InvalidEmail),
                ("ama@.example.com", FieldCode::InvalidEmail),
                ("ama@example.com.", FieldCode::InvalidEmail),
                ("ama@-example.com", FieldCode::InvalidEmail),
                (".ama@example.com", FieldCode::InvalidEmail),
                ("a..b@example.com", FieldCode::InvalidEmail),
                ("<ama@example.com>", FieldCode::InvalidEmail),
                ("\"ama\"@example.com", FieldCode::InvalidEmail),
                ("ama@example.com,kofi@example.com", FieldCode::InvalidEmail),
                (
                    "ama@example.com\nBcc: x@example.com",
                    FieldCode::ControlCharacter,
                ),
                (&longer, FieldCode::InvalidEmail),
                (&longest, FieldCode::TooLong),
            ],
        );
    }

    #[test]
    fn urls_are_absolute_and_of_the_web() {
        let long = format!("https://example.com/{}", "a".repeat(2028));
        let longer = format!("https://example.com/{}", "a".repeat(2029));
        let grown = format!("https://example.com/{}", "é".repeat(1000));
        check(
            url,
            &[
                "https://example.com",
                "HTTP://EXAMPLE.COM/thanks?order=17#top",
                "http://localhost:3000/done",
                "https://example.com/a@b",
                "https://xn--bcher-kva.example/",
                "https://[2001:db8::1]/",
                &long,
            ],
            &[
                ("", FieldCode::InvalidUrl),
                ("example.com", FieldCode::InvalidUrl),
                ("/thanks", FieldCode::InvalidUrl),
                ("//example.com", FieldCode::InvalidUrl),
                ("https:example.com", FieldCode::InvalidUrl),
                ("https:/example.com", FieldCode::InvalidUrl),
                ("https://", FieldCode::InvalidUrl),
                ("https:///example.com", FieldCode::InvalidUrl),
                ("https://?a", FieldCode::InvalidUrl),
                ("https:\\\\example.com", FieldCode::InvalidUrl),
                ("https://example.com\\@evil.example", FieldCode::InvalidUrl),
                ("https://exa mple.com", FieldCode::InvalidUrl),
                ("https://example.com/a b", FieldCode::InvalidUrl),
                ("https://ama@example.com", FieldCode::InvalidUrl),
                ("https://ama:secret@example.com", FieldCode::InvalidUrl),
                ("https://@example.com", FieldCode::InvalidUrl),
                ("https://example.com:99999", FieldCode::InvalidUrl),
                ("javascript:alert(1)", FieldCode::InvalidUrl),
                (
                    "javascript://example.com/%0aalert(1)",
                    FieldCode::InvalidUrl,
                ),
                ("ftp://example.com", FieldCode::InvalidUrl),
                ("data://text/html,x", FieldCode::InvalidUrl),
                (
                    "https://example.com/\r\nSet-Cookie: a",
                    FieldCode::ControlCharacter,
                ),
                (&longer, FieldCode::TooLong),
                (&grown, FieldCode::TooLong),
            ],
        );
        assert_eq!(
            url(&quoted("HTTPS://Example.COM/é")).as_deref(),
            Ok("https://example.com/%C3%A9"),
            "what is kept can go into a header"
        );
    }

    #[test]
    fn providers_and_currencies_are_exact() {
        check(
            provider,
            &["MTN", "TELECEL", "AT"],
            &[
                ("mtn", FieldCode::UnknownProvider),
                ("", FieldCode::UnknownProvider),
                ("VODAFONE", FieldCode::UnknownProvider),
            ],
        );
        check(
            currency,
            &["GHS", "USD", " JPY "],
            &[
                ("usd", FieldCode::UnknownCurrency),
                ("XAU", FieldCode::UnknownCurrency),
                ("", FieldCode::UnknownCurrency),
            ],
        );
        check(
            charge_currency,
            &["GHS"],
            &[
                ("USD", FieldCode::UnsupportedCurrency),
                ("ghs", FieldCode::UnsupportedCurrency),
            ],
        );
    }

    #[test]
    fn a_charge_wants_a_ghana_number_and_a_customer_has_any() {
        let bad = [
            ("", FieldCode::InvalidPhone),
            ("0244123456;drop", FieldCode::InvalidPhone),
            ("0244123456 ext 5", FieldCode::InvalidPhone),
            ("０２４４１２３４５６", FieldCode::InvalidPhone),
        ];
        check(ghana_mobile, &["0241234567", "+233 24 123 4567"], &bad);
        check(phone, &["0241234567", "+44 20 7946 0958"], &bad);
        assert!(ghana_mobile(&quoted("+442079460958")).is_err());
    }

    #[test]
    fn an_otp_is_short_visible_ascii() {
        check(
            otp,
            &["123456", " 000000 ", "AB-12"],
            &[
                ("", FieldCode::InvalidFormat),
                ("   ", FieldCode::InvalidFormat),
                ("12 34", FieldCode::InvalidFormat),
                ("１２３４", FieldCode::InvalidFormat),
                (
                    "123456789012345678901234567890123",
                    FieldCode::InvalidFormat,
                ),
            ],
        );
        let most = format!("1 to {OTP_CHARACTERS_MAX} ");
        let fault = otp(&quoted("")).expect_err("no code");
        assert!(fault.message.contains(&most));
    }
}
