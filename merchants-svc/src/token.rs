//! Secrets that we hand out once and then know only by their SHA-256.

use std::fmt;

use sha2::{Digest as _, Sha256};

const TOKEN_BYTES: usize = 32;

/// 256 random bits, as 64 hex digits. Does not print.
pub struct Token(String);

impl Token {
    pub fn new() -> Self {
        let mut bytes = [0_u8; TOKEN_BYTES];
        rand::fill(&mut bytes);
        Self(hex::encode(bytes))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn sha256(&self) -> TokenSha256 {
        TokenSha256(sha256(&self.0))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The SHA-256 of a token's digits, in hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSha256(String);

impl TokenSha256 {
    /// `None` if it is not as long as a SHA-256: it is no token's.
    pub fn parse(digest: &[u8]) -> Option<Self> {
        (digest.len() == TOKEN_BYTES).then(|| Self(hex::encode(digest)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// In hex.
pub fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
