//! Secrets that are encrypted at rest.
//!
//! A secret is bound to what it belongs to: copied to another row it cannot be decrypted.

use std::{collections::HashSet, fmt, str::FromStr};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::config::Refusals;

/// Bytes of an encryption key.
const KEY_BYTES: usize = 32;

const NONCE_BYTES: usize = 24;

/// Hex digits of an encryption key's id, which reveals nothing about the key.
const KEY_ID_DIGITS: usize = 8;

/// An encrypted secret: the id of the key that opens it, a dot, and nonce and ciphertext in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecret {
    pub key_id: String,
    nonce: [u8; NONCE_BYTES],
    ciphertext: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("not an encrypted secret")]
    Malformed,
    #[error("the key that encrypted the secret is not one of those configured")]
    UnknownKey,
    #[error("the secret was encrypted with another key or belongs to something else")]
    NotAuthentic,
}

impl fmt::Display for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.nonce, self.ciphertext.as_slice()].concat();
        write!(f, "{}.{}", self.key_id, STANDARD.encode(bytes))
    }
}

impl FromStr for SealedSecret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let (key_id, bytes) = text.split_once('.').ok_or(SecretError::Malformed)?;
        let bytes = STANDARD.decode(bytes).map_err(|_| SecretError::Malformed)?;
        let (nonce, ciphertext) = bytes.split_first_chunk().ok_or(SecretError::Malformed)?;
        Ok(Self {
            key_id: key_id.to_owned(),
            nonce: *nonce,
            ciphertext: ciphertext.to_owned(),
        })
    }
}

#[cfg(feature = "sql")]
crate::text_column!(SealedSecret, |sealed| sealed.to_string());

/// The keys that encrypt secrets: the first one encrypts, all decrypt.
#[derive(Clone)]
pub struct Keyring(Vec<(String, XChaCha20Poly1305)>);

impl Keyring {
    /// Parses the value of this setting: keys of 32 bytes in base64, separated by commas.
    pub fn new(variable: &'static str, keys: &SecretString) -> anyhow::Result<Self> {
        let keys = keys.expose_secret().split(',').map(|key| {
            let bytes = STANDARD.decode(key.trim()).ok();
            let bytes = bytes.with_context(|| format!("{variable} is not base64"))?;
            ensure!(bytes.len() == KEY_BYTES, "{variable} is not 32 bytes long");
            let mut key_id = hex::encode(Sha256::digest(&bytes));
            key_id.truncate(KEY_ID_DIGITS);
            let cipher = XChaCha20Poly1305::new_from_slice(&bytes)?;
            Ok((key_id, cipher))
        });
        Ok(Self(keys.collect::<anyhow::Result<_>>()?))
    }

    /// Whether it has the key with this id.
    pub fn has(&self, key_id: &str) -> bool {
        self.0.iter().any(|(known, _)| known == key_id)
    }

    /// The key that encrypts.
    fn first(&self) -> &(String, XChaCha20Poly1305) {
        self.0
            .first()
            .expect("splitting a text gives at least one part")
    }

    /// Encrypts a secret. `owner` is what it is bound to.
    pub fn seal(&self, secret: &SecretString, owner: &str) -> SealedSecret {
        let (key_id, cipher) = self.first();
        let mut nonce = [0_u8; NONCE_BYTES];
        rand::fill(&mut nonce);
        let message = Payload {
            msg: secret.expose_secret().as_bytes(),
            aad: &binding(owner, key_id),
        };
        let ciphertext = cipher.encrypt(&XNonce::from(nonce), message);
        SealedSecret {
            key_id: key_id.clone(),
            nonce,
            ciphertext: ciphertext.expect("a short text can be encrypted"),
        }
    }

    /// Decrypts a secret that is bound to this owner.
    pub fn open(&self, sealed: &SealedSecret, owner: &str) -> Result<SecretString, SecretError> {
        let key = self.0.iter().find(|(key_id, _)| *key_id == sealed.key_id);
        let (key_id, cipher) = key.ok_or(SecretError::UnknownKey)?;
        let message = Payload {
            msg: &sealed.ciphertext,
            aad: &binding(owner, key_id),
        };
        let bytes = cipher.decrypt(&XNonce::from(sealed.nonce), message);
        let bytes = bytes.map_err(|_| SecretError::NotAuthentic)?;
        let text = String::from_utf8(bytes).map_err(|_| SecretError::NotAuthentic)?;
        Ok(text.into())
    }
}

/// Refuses keys that cannot be read, and in production one that is not random.
pub fn check(refusals: &mut Refusals, variable: &'static str, keys: &SecretString) {
    let is_readable = Keyring::new(variable, keys).is_ok();
    let wants = "32 bytes in base64, or several of that with commas between them";
    refusals.unless(is_readable, variable, wants);
    let wants = "a key of your own, as `openssl rand -base64 32` makes it,";
    refusals.in_production(is_readable && is_random(keys), variable, wants);
}

/// Whether the key that encrypts looks random: not ASCII text, and with more distinct bytes than
/// half its length.
fn is_random(keys: &SecretString) -> bool {
    let first = keys.expose_secret().split(',').next().unwrap_or_default();
    let bytes = STANDARD.decode(first.trim()).unwrap_or_default();
    let different: HashSet<u8> = bytes.iter().copied().collect();
    different.len() > KEY_BYTES / 2 && !bytes.is_ascii()
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(key_id, _)| key_id))
            .finish()
    }
}

/// What a ciphertext is bound to: its owner and its key.
fn binding(owner: &str, key_id: &str) -> Vec<u8> {
    format!("{owner}/{key_id}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by another implementation, in the form that the first version stored.
    const STORED: &str =
        "4bb06f8e.AAECAwQFBgcICQoLDA0ODxAREhMUFRYX33/Y4JlDKNFKteQj4AfHMOjxCtIdTJWFq8dZxw==";

    fn keyring(keys: &str) -> Keyring {
        Keyring::new("KEY", &keys.to_owned().into()).unwrap()
    }

    fn key(byte: u8) -> String {
        STANDARD.encode([byte; KEY_BYTES])
    }

    #[test]
    fn a_secret_opens_only_for_its_owner_and_with_its_key() {
        let (old, new) = (key(1), key(2));
        let sealed = keyring(&old).seal(&"whsec_1".into(), "shop/1");
        let read: SealedSecret = sealed.to_string().parse().unwrap();
        assert_eq!(read, sealed);
        let both = keyring(&format!("{new}, {old}"));
        assert_eq!(
            both.open(&read, "shop/1").unwrap().expose_secret(),
            "whsec_1"
        );
        assert_eq!(
            both.open(&read, "shop/2").unwrap_err(),
            SecretError::NotAuthentic
        );
        let other = keyring(&new).open(&read, "shop/1");
        assert_eq!(other.unwrap_err(), SecretError::UnknownKey);
    }

    #[test]
    fn what_was_stored_before_still_opens() {
        let opened = keyring(&key(7)).open(&STORED.parse().unwrap(), "shop/1");
        assert_eq!(opened.unwrap().expose_secret(), "whsec_stored");
    }
}
