//! The keys of statements: an Ed25519 pair that signs, and the public keys of all that ever did.

use std::{collections::HashSet, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// Bytes of a private key (an Ed25519 seed) and of a public one.
const KEY_BYTES: usize = 32;

/// A key that is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("not 32 bytes in base64")]
    NotASeed,
    #[error("not 32 bytes in hex")]
    NotAPublicKey,
}

/// A key that verifies statements. Written in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// SHA-256 of the key, in hex.
    pub fn id(&self) -> String {
        hex::encode(Sha256::digest(self.0))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = hex::decode(text.trim()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(KeyError::NotAPublicKey)
    }
}

/// What signs statements.
#[derive(Debug)]
pub struct StatementKeys {
    pair: Ed25519KeyPair,
    /// The key that signs first.
    public: Vec<PublicKey>,
}

impl StatementKeys {
    /// `seed`: 32 bytes in base64. `old`: the public keys that signed before.
    pub fn new(seed: &SecretString, old: &[PublicKey]) -> Result<Self, KeyError> {
        let bytes = STANDARD.decode(seed.expose_secret().trim());
        let bytes = bytes.map_err(|_| KeyError::NotASeed)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&bytes).map_err(|_| KeyError::NotASeed)?;
        let signs = pair.public_key().as_ref().try_into();
        let signs = PublicKey(signs.map_err(|_| KeyError::NotASeed)?);
        let others = old.iter().copied().filter(|key| *key != signs);
        Ok(Self {
            pair,
            public: std::iter::once(signs).chain(others).collect(),
        })
    }

    /// The key that signs, and then the others.
    pub fn public(&self) -> &[PublicKey] {
        &self.public
    }

    /// The id of the key that signs.
    pub fn id(&self) -> String {
        self.public.first().map(PublicKey::id).unwrap_or_default()
    }

    /// The signature of a message, in base64. The same message always has the same.
    pub fn sign(&self, message: &str) -> String {
        STANDARD.encode(self.pair.sign(message.as_bytes()))
    }
}

/// Whether the seed looks random: not ASCII text, and with more distinct bytes than half its length.
pub fn is_random(seed: &SecretString) -> bool {
    let bytes = STANDARD.decode(seed.expose_secret().trim());
    let bytes = bytes.unwrap_or_default();
    let different: HashSet<u8> = bytes.iter().copied().collect();
    different.len() > KEY_BYTES / 2 && !bytes.is_ascii()
}
