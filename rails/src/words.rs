//! Reading what rails write: values that are sometimes strings and sometimes numbers, codes,
//! amounts and free texts.
//!
//! Promise: an amount is read exactly or not at all, and what [`clean`] returns holds none of the
//! given secrets and no whole phone number.

use chassis::{
    failure::FailureReason,
    money::{Currency, Money},
};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longer texts are cut: they are for people.
const TEXT_CHARS_MAX: usize = 300;

/// Longer words are not words but keys and tokens.
const WORD_CHARS_MAX: usize = 64;

/// A run of at least this many digits may be somebody's phone number.
const DIGITS_MASKED_FROM: usize = 7;

const MASK: &str = "•••";

/// A member of a JSON object, of any type, absent or null.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Member(Option<Box<RawValue>>);

impl Member {
    /// Whether it is absent or null.
    pub fn is_missing(&self) -> bool {
        self.0.is_none()
    }

    /// The text of a string, or the digits of a number as they were written.
    pub fn text(&self) -> Option<String> {
        let raw = self.0.as_ref()?.get();
        match raw.bytes().next() {
            Some(b'"') => serde_json::from_str(raw).ok(),
            Some(b'-' | b'0'..=b'9') => Some(raw.to_owned()),
            _ => None,
        }
    }

    /// The text as a code: `Not allowed` becomes `NOT_ALLOWED`. Empty if there is no text.
    pub fn code(&self) -> String {
        let text = self.text().unwrap_or_default();
        text.trim().to_ascii_uppercase().replace([' ', '-'], "_")
    }

    /// Whether it is the word `false`, and not merely absent.
    pub fn is_false(&self) -> bool {
        self.0.as_ref().is_some_and(|raw| raw.get() == "false")
    }

    /// Whether it is the word `true` or the word `false`; `None` if it is neither.
    pub fn truth(&self) -> Option<bool> {
        match self.0.as_ref()?.get() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The member as an object; `None` if it is not an object of this kind.
    pub fn object<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        let raw = self.0.as_ref()?.get();
        raw.starts_with('{')
            .then(|| serde_json::from_str(raw).ok())
            .flatten()
    }

    /// An amount in major units, such as `25.50`.
    pub fn major_units(&self, currency: &Self) -> Option<Money> {
        self.major_units_in(currency.code().parse().ok()?)
    }

    /// The same where the currency is known otherwise.
    pub fn major_units_in(&self, currency: Currency) -> Option<Money> {
        Money::from_major(self.decimal()?, currency).ok()
    }

    /// An amount in hundredths, such as `2550` pesewas.
    pub fn hundredths(&self, currency: &Self) -> Option<Money> {
        let currency: Currency = currency.code().parse().ok()?;
        let major = self.decimal()?.checked_mul(Decimal::new(1, 2))?;
        Money::from_major(major, currency).ok()
    }

    /// Plain digits with at most one dot. A text with an exponent, a sign or anything else is not
    /// an amount.
    fn decimal(&self) -> Option<Decimal> {
        let text = self.text()?;
        let is_plain = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_plain
            .then(|| Decimal::from_str_exact(&text).ok())
            .flatten()
    }
}

/// A text of ours that every rail takes: the first candidate that still says something with only
/// letters, digits, dots, dashes and single spaces, cut to `chars_max`, or else `Payment`.
pub fn plain_text(candidates: &[&str], chars_max: usize) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '-');
    let clean = |candidate: &&str| {
        let spaced = candidate.replace(|c| !allowed(c), " ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let cut: String = words.join(" ").chars().take(chars_max).collect();
        cut.trim_end().to_owned()
    };
    let says_something = |text: &String| text.contains(|c: char| c.is_ascii_alphanumeric());
    let said = candidates.iter().map(clean).find(says_something);
    said.unwrap_or_else(|| "Payment".to_owned())
}

/// The reason of the first entry whose words, in lower case, the text has.
pub fn reason_in(table: &[(&str, FailureReason)], text: &str) -> Option<FailureReason> {
    let text = text.to_lowercase();
    let known = table.iter().find(|(words, _)| text.contains(words));
    known.map(|(_, reason)| *reason)
}

/// A rail's text on one line, cut to a readable length, without control characters, the given
/// secrets, and anything that may be a key or a phone number.
pub fn clean(text: &str, secrets: &[&str]) -> String {
    let mut line = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        line = line.replace(secret, MASK);
    }
    let spaced = line.replace(|c: char| c.is_control() || c.is_whitespace(), " ");
    let words: Vec<&str> = spaced
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| {
            if word.chars().count() > WORD_CHARS_MAX {
                MASK
            } else {
                word
            }
        })
        .collect();
    let masked = mask_digits(&words.join(" "));
    masked.chars().take(TEXT_CHARS_MAX).collect()
}

/// Masks long runs of digits, with the punctuation that people write within one number.
fn mask_digits(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, run) = rest.split_at(start);
        masked.push_str(before);
        let run = leading_number(run);
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        masked.push_str(if digits < DIGITS_MASKED_FROM {
            run
        } else {
            MASK
        });
        rest = &rest[before.len() + run.len()..];
    }
    masked.push_str(rest);
    masked
}

/// The digits that `text` starts with, across punctuation up to two characters wide.
fn leading_number(text: &str) -> &str {
    let mut end = 0;
    let mut between = 0;
    for (place, c) in text.char_indices() {
        if c.is_ascii_digit() {
            end = place + 1;
            between = 0;
        } else if !" -.()/_\u{2010}\u{2011}\u{2012}\u{2013}\u{2014}".contains(c) || between >= 2 {
            break;
        } else {
            between += 1;
        }
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(json: &str) -> Member {
        serde_json::from_str(json).unwrap()
    }

    fn major(amount: &str, currency: &str) -> Option<i64> {
        let money = member(amount).major_units(&member(currency))?;
        Some(money.minor_units())
    }

    fn hundredths(amount: &str) -> Option<i64> {
        let money = member(amount).hundredths(&member("\"GHS\""))?;
        Some(money.minor_units())
    }

    #[test]
    fn an_amount_is_read_exactly_from_a_string_or_a_number() {
        for (amount, expected) in [
            (r#""25.50""#, Some(2550)),
            ("25.50", Some(2550)),
            ("25.5", Some(2550)),
            ("25", Some(2500)),
            (r#""25.500""#, Some(2550)),
            ("0.1", Some(10)),
            ("90071992547409.93", Some(9_007_199_254_740_993)),
            ("25.501", None),
            ("1e2", None),
            ("-25.50", None),
            (r#""25,50""#, None),
            (r#""2_5.50""#, None),
            (r#""+25.50""#, None),
            (r#"" 25.50""#, None),
            (r#""""#, None),
            (r#"".""#, None),
            (r#""1.2.3""#, None),
            ("null", None),
            ("true", None),
            (r#"{"value":"25.50"}"#, None),
            ("0.00000000000000000000000000000001", None),
            ("99999999999999999999999999999999", None),
            ("92233720368547758.08", None),
        ] {
            assert_eq!(major(amount, "\"GHS\""), expected, "{amount}");
        }
    }

    #[test]
    fn an_amount_without_a_known_currency_is_none() {
        assert_eq!(major("25.50", "\"ghs\""), Some(2550));
        for currency in ["null", "\"\"", "\"GHX\"", "936"] {
            assert_eq!(major("25.50", currency), None, "{currency}");
        }
    }

    #[test]
    fn hundredths_are_minor_units_of_the_cedi() {
        for (amount, expected) in [
            ("2550", Some(2550)),
            (r#""2550""#, Some(2550)),
            ("2550.0", Some(2550)),
            ("2550.5", None),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("2.55e3", None),
            ("null", None),
        ] {
            assert_eq!(hundredths(amount), expected, "{amount}");
        }
    }

    #[test]
    fn codes_are_read_whatever_their_case_and_spacing() {
        for json in [
            r#""NOT_ALLOWED""#,
            r#""not_allowed""#,
            r#"" Not Allowed ""#,
            r#""not-allowed""#,
        ] {
            assert_eq!(member(json).code(), "NOT_ALLOWED", "{json}");
        }
        assert_eq!(member("null").code(), "");
    }

    #[test]
    fn texts_hold_only_what_rails_take_and_are_never_empty() {
        let long = "ab ".repeat(60);
        for (candidates, expected) in [
            (["Order 17", "Shop"], "Order 17"),
            (
                ["Kofi's \"best\" order №17!", "Shop"],
                "Kofi s best order 17",
            ),
            (["", "Ama & Co."], "Ama Co."),
            (["ご注文", "Shop"], "Shop"),
            (["- . -", "Shop"], "Shop"),
            (["", "★"], "Payment"),
            ([" \t a \n b ", ""], "a b"),
            ([long.as_str(), ""], &long[..100]),
        ] {
            let text = plain_text(&candidates, 100);
            assert_eq!(text, expected, "{candidates:?}");
            assert!(!text.is_empty() && text.len() <= 100, "{candidates:?}");
        }
    }

    #[test]
    fn a_cleaned_text_holds_no_phone_number_and_no_secret() {
        let long = format!("token {}", "ey".repeat(40));
        for (text, expected) in [
            ("Insufficient funds", "Insufficient funds"),
            ("payer 233241234567 not found", "payer ••• not found"),
            ("payer +233 24 123 4567 not found", "payer +••• not found"),
            ("payer (024) 123-4567.", "payer (•••."),
            ("dial *110# within 180 s", "dial *110# within 180 s"),
            ("GHS 25.50, 100 left", "GHS 25.50, 100 left"),
            ("123456", "123456"),
            ("1234567", "•••"),
            ("024_123_4567 or 024–123–4567", "••• or •••"),
            ("code s3cret is wrong", "code ••• is wrong"),
            ("a\r\n\tb\u{0}c", "a b c"),
            (long.as_str(), "token •••"),
            ("", ""),
        ] {
            assert_eq!(clean(text, &["s3cret", ""]), expected, "{text}");
        }
        assert_eq!(
            clean(&"word ".repeat(1_000), &[]).chars().count(),
            TEXT_CHARS_MAX
        );
    }

    #[test]
    fn texts_in_other_scripts_are_cleaned_too() {
        assert_eq!(clean("κωδικός 0241234567 λάθος", &[]), "κωδικός ••• λάθος");
    }
}
