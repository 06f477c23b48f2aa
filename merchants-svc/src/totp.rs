//! One-time codes: those of an authenticator (RFC 6238), and the recovery codes for when it is
//! lost.

use std::{fmt, fmt::Write as _};

use chassis::{clock::Timestamp, ids::PersonId};
use rand::RngExt as _;
use ring::hmac;
use secrecy::SecretString;

use crate::token::sha256;

/// As long as the output of the HMAC, as RFC 4226 recommends.
const SECRET_BYTES: usize = 20;

const STEP_SECONDS: i64 = 30;

/// How many steps an authenticator's clock may be off, either way.
const DRIFT_STEPS: i64 = 1;

const DIGITS: usize = 6;
const MODULUS: u32 = 1_000_000;

const BASE_32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// How many recovery codes a person gets.
pub const RECOVERY_CODES: usize = 10;

/// Crockford's base 32, in lower case. Four groups of four have 80 bits.
const RECOVERY_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const RECOVERY_GROUPS: usize = 4;
const RECOVERY_GROUP: usize = 4;

/// The secret that an authenticator shares with us. Does not print.
pub struct TotpSecret([u8; SECRET_BYTES]);

impl TotpSecret {
    pub fn new() -> Self {
        let mut bytes = [0_u8; SECRET_BYTES];
        rand::fill(&mut bytes);
        Self(bytes)
    }

    /// As people type it, and as it is encrypted.
    pub fn base_32(&self) -> String {
        let mut text = String::new();
        // 20 bytes are 32 characters without a rest.
        for chunk in self.0.chunks(5) {
            let bits = chunk
                .iter()
                .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
            for place in (0..8).rev() {
                let index = (bits >> (5 * place) & 31) as usize;
                text.push(char::from(BASE_32[index]));
            }
        }
        text
    }

    pub fn parse_base_32(text: &str) -> Option<Self> {
        let mut bytes = Vec::new();
        for chunk in text.as_bytes().chunks(8) {
            let mut bits = 0_u64;
            for character in chunk {
                let value = BASE_32.iter().position(|known| known == character)?;
                bits = bits << 5 | value as u64;
            }
            bytes.extend_from_slice(bits.to_be_bytes().get(3..)?);
        }
        bytes.try_into().ok().map(Self)
    }

    /// For a QR code. `issuer` is the name that the authenticator shows.
    pub fn uri(&self, issuer: &str, email: &str) -> String {
        let (issuer, email) = (percent_encoded(issuer), percent_encoded(email));
        let secret = self.base_32();
        format!("otpauth://totp/{issuer}:{email}?secret={secret}&issuer={issuer}")
    }

    /// The step whose code this is: one of those around now, and after the last that was taken.
    pub fn find_step(&self, code: &str, now: Timestamp, last: Option<i64>) -> Option<i64> {
        let current = now.unix_seconds() / STEP_SECONDS;
        let steps = current - DRIFT_STEPS..=current + DRIFT_STEPS;
        steps
            .filter(|step| last.is_none_or(|last| *step > last))
            .find(|step| self.code(*step) == code)
    }

    /// HOTP (RFC 4226) of this step.
    fn code(&self, step: i64) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let offset = usize::from(tag.last().copied().unwrap_or_default() & 15);
        let taken = tag.iter().skip(offset).take(4);
        let number = taken.fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        format!("{:0DIGITS$}", (number & 0x7fff_ffff) % MODULUS)
    }
}

impl fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotpSecret")
    }
}

/// What a person's encrypted secret is bound to.
pub fn owner(person_id: PersonId) -> String {
    format!("{person_id}/totp")
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => encoded.push(char::from(byte)),
            false => write!(encoded, "%{byte:02X}").expect("a text can be written to"),
        }
    }
    encoded
}

/// A code as somebody typed it.
#[derive(Clone)]
pub enum TypedCode {
    /// Six digits, of an authenticator.
    Totp(String),
    /// Anything else can only be a recovery code. Its SHA-256.
    Recovery(String),
}

impl TypedCode {
    pub fn parse(text: &str) -> Self {
        let text: String = text
            .chars()
            .filter(|c| !c.is_whitespace() && *c != '-')
            .collect();
        if text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::Totp(text);
        }
        Self::Recovery(sha256(&text.to_lowercase()))
    }
}

impl fmt::Debug for TypedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Totp(_) => "Totp",
            Self::Recovery(_) => "Recovery",
        })
    }
}

/// A new recovery code, to show once.
pub fn recovery_code() -> SecretString {
    let mut random = rand::rng();
    let mut group = || -> String {
        let character =
            |_| char::from(RECOVERY_ALPHABET[random.random_range(0..RECOVERY_ALPHABET.len())]);
        (0..RECOVERY_GROUP).map(character).collect()
    };
    let groups: Vec<String> = (0..RECOVERY_GROUPS).map(|_| group()).collect();
    groups.join("-").into()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_millis(seconds * 1_000).unwrap()
    }

    /// RFC 6238, appendix B, SHA-1: the last six of its eight digits.
    #[test]
    fn codes_are_those_of_the_standard() {
        let secret = TotpSecret(*b"12345678901234567890");
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(secret.code(seconds / STEP_SECONDS), code);
            assert!(secret.find_step(code, at(seconds), None).is_some());
        }
    }

    #[test]
    fn a_code_is_taken_for_one_step_around_its_own_and_only_once() {
        let secret = TotpSecret::new();
        let code = secret.code(100);
        let found = |seconds, last| secret.find_step(&code, at(seconds), last);
        assert_eq!(found(100 * 30, None), Some(100));
        assert_eq!(found(99 * 30, None), Some(100));
        assert_eq!(found(101 * 30 + 29, None), Some(100));
        assert_eq!(found(98 * 30, None), None);
        assert_eq!(found(102 * 30, None), None);
        assert_eq!(found(100 * 30, Some(99)), Some(100));
        assert_eq!(found(100 * 30, Some(100)), None);
    }

    #[test]
    fn secrets_are_typed_in_base_32() {
        let secret = TotpSecret(*b"12345678901234567890");
        let text = secret.base_32();
        assert_eq!(text, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(TotpSecret::parse_base_32(&text).unwrap().0, secret.0);
        for wrong in ["", "GEZDGNBV", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJ1", "é"] {
            assert!(TotpSecret::parse_base_32(wrong).is_none(), "{wrong}");
        }
        assert_eq!(
            secret.uri("pay.example.com", "a+b@example.com"),
            "otpauth://totp/pay.example.com:a%2Bb%40example.com\
             ?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=pay.example.com"
        );
    }

    #[test]
    fn codes_are_read_as_people_type_them() {
        assert!(matches!(TypedCode::parse(" 123 456 "), TypedCode::Totp(code) if code == "123456"));
        let code = recovery_code();
        let shown = code.expose_secret();
        let read = |text: &str| match TypedCode::parse(text) {
            TypedCode::Recovery(hash) => hash,
            TypedCode::Totp(_) => panic!("not six digits"),
        };
        assert_eq!(shown.len(), 19);
        assert_eq!(read(shown), read(&shown.to_uppercase()));
        assert_eq!(read(shown), read(&shown.replace('-', "")));
        assert_ne!(read(shown), read(recovery_code().expose_secret()));
    }
}
