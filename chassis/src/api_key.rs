//! A merchant's API key (spec §5): `service_sk_`, 40 random base-62 characters, and their CRC-32
//! in 6 more. A test key has `service_sk_test_` before the same characters: development makes such
//! keys, and production knows them by their prefix and refuses them.
//!
//! The two cannot be confused: base 62 has no underscore, so nothing that follows `service_sk_` in
//! a live key begins with `test_`.
//!
//! The checksum reveals a mistyped or invented key without a lookup; it is not a secret. The key
//! itself never prints: [`ApiKey::expose`] is the only way to read it.

use std::{fmt, str::FromStr};

use rand::RngExt as _;
use sha2::{Digest as _, Sha256};

/// What every key begins with (spec §5.2).
const PREFIX: &str = "service_sk_";

/// What the keys of the local stack and of development begin with.
const TEST_PREFIX: &str = "service_sk_test_";

/// 40 characters of 62 are 238 bits.
const RANDOM_CHARACTERS: usize = 40;

/// 62 to the power of 6 is more than 2 to the power of 32.
const CHECKSUM_CHARACTERS: usize = 6;

/// The digits of base 62, from 0 to 61.
const BASE_62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A well-formed API key. Only merchants-svc knows whether it was ever issued.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

/// The text cannot be an API key: prefix, length, alphabet or checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an API key")]
pub struct ApiKeyError;

impl ApiKey {
    /// A new live key from the system's secure random number generator.
    pub fn generate() -> Self {
        Self::after(PREFIX)
    }

    /// A new key that production refuses, from the same generator.
    pub fn generate_test() -> Self {
        Self::after(TEST_PREFIX)
    }

    fn after(prefix: &str) -> Self {
        let mut random = rand::rng();
        let character = |_| char::from(BASE_62[random.random_range(0..BASE_62.len())]);
        let secret: String = (0..RANDOM_CHARACTERS).map(character).collect();
        let checksum = checksum(&secret);
        Self(format!("{prefix}{secret}{checksum}"))
    }

    /// Whether it is for trying things out only.
    pub fn is_test(&self) -> bool {
        self.0.starts_with(TEST_PREFIX)
    }

    fn prefix(&self) -> &'static str {
        if self.is_test() { TEST_PREFIX } else { PREFIX }
    }

    /// The whole key: to show it once, or to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is stored and looked up in place of the key.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The last four characters, so that people can tell keys apart.
    pub fn hint(&self) -> &str {
        self.0.get(self.0.len() - 4..).expect("a key is ASCII")
    }
}

impl FromStr for ApiKey {
    type Err = ApiKeyError;

    fn from_str(text: &str) -> Result<Self, ApiKeyError> {
        let rest = text
            .strip_prefix(TEST_PREFIX)
            .or_else(|| text.strip_prefix(PREFIX))
            .ok_or(ApiKeyError)?;
        let is_key = rest.len() == RANDOM_CHARACTERS + CHECKSUM_CHARACTERS
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_key {
            return Err(ApiKeyError);
        }
        let (secret, check) = rest.split_at(RANDOM_CHARACTERS);
        if checksum(secret) != check {
            return Err(ApiKeyError);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…{}", self.prefix(), self.hint())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({self})")
    }
}

/// CRC-32 of the random characters as six base-62 digits, padded with zeros on the left.
fn checksum(secret: &str) -> String {
    let mut rest = crc32fast::hash(secret.as_bytes());
    let mut digits = [b'0'; CHECKSUM_CHARACTERS];
    for digit in digits.iter_mut().rev() {
        *digit = BASE_62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum was computed by another program (Python's zlib.crc32).
    const KNOWN: &str = "service_sk_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcd0omAup";

    #[test]
    fn a_generated_key_parses_and_is_unlike_the_next() {
        let key = ApiKey::generate();
        assert_eq!(key.expose().len(), 57);
        assert_eq!(key.expose().parse(), Ok(key.clone()));
        assert_ne!(key, ApiKey::generate());
        assert!(key.expose().ends_with(key.hint()));
    }

    #[test]
    fn a_known_key_parses_and_so_do_its_characters_as_a_test_key() {
        let live: ApiKey = KNOWN.parse().unwrap();
        assert!(!live.is_test());
        let text = KNOWN.replace(PREFIX, TEST_PREFIX);
        let test: ApiKey = text.parse().unwrap();
        assert!(test.is_test());
        assert_eq!(test.expose(), text);
        assert_ne!(test.sha256(), live.sha256(), "they are different keys");
    }

    #[test]
    fn a_generated_test_key_parses_as_one() {
        let key = ApiKey::generate_test();
        assert_eq!(key.expose().len(), 62);
        let parsed: ApiKey = key.expose().parse().unwrap();
        assert!(parsed.is_test());
        assert_eq!(parsed, key);
    }

    #[test]
    fn one_wrong_character_anywhere_is_no_key() {
        for key in [ApiKey::generate(), ApiKey::generate_test()] {
            for place in 0..key.expose().len() {
                let mut text = key.expose().as_bytes().to_vec();
                text[place] = if text[place] == b'x' { b'y' } else { b'x' };
                let text = String::from_utf8(text).unwrap();
                assert_eq!(text.parse::<ApiKey>(), Err(ApiKeyError), "{place}");
            }
        }
    }

    #[test]
    fn other_texts_are_no_keys() {
        let key = ApiKey::generate();
        let texts = [
            String::new(),
            PREFIX.to_owned(),
            format!("{} ", key.expose()),
            format!(" {}", key.expose()),
            key.expose().replace(PREFIX, "service_pk_"),
            format!("{PREFIX}{}", "é".repeat(23)),
            format!("{}0", key.expose()),
            TEST_PREFIX.to_owned(),
            key.expose().replace(PREFIX, "service_sk_test"),
            key.expose().replace(PREFIX, "service_sk_live_"),
            key.expose().replace(PREFIX, "service_sk_test_test_"),
        ];
        for text in texts {
            assert_eq!(text.parse::<ApiKey>(), Err(ApiKeyError), "{text:?}");
        }
    }

    #[test]
    fn printing_shows_the_hint_only() {
        let key = ApiKey::generate();
        assert_eq!(key.to_string(), format!("service_sk_…{}", key.hint()));
        assert_eq!(format!("{key:?}"), format!("ApiKey({key})"));
        let key = ApiKey::generate_test();
        assert_eq!(key.to_string(), format!("service_sk_test_…{}", key.hint()));
    }
}
