//! Which bytes of a statement are signed, and by which key.

use std::str::FromStr;

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::file::{self, FORMAT, Statement};
use crate::services::Failure;

const KEY_BYTES: usize = 32;

/// What the last record of a statement consists of, around the signature in base64.
const JSON_END: (&str, &str) = ("\"signature\":\"", "\"}\n");
const CSV_END: (&str, &str) = ("signature,,,,,,,,,,,", "\n");

/// Characters of an Ed25519 signature in base64.
const SIGNATURE_CHARACTERS: usize = 88;

/// A key that is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    pub fn id(&self) -> String {
        hex::encode(Sha256::digest(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let bytes = hex::decode(text.trim()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).context("a public key has 64 hex digits")
    }
}

/// The published keys, as `payctl proof keys` and the API show them.
#[derive(Deserialize)]
struct Published {
    keys: Vec<PublishedKey>,
}

#[derive(Deserialize)]
struct PublishedKey {
    public_key: String,
}

/// The keys that are given as hex digits or as a file.
pub fn keys(given: &str) -> Result<Vec<PublicKey>, Failure> {
    if let Ok(key) = given.parse() {
        return Ok(vec![key]);
    }
    let text = std::fs::read_to_string(given)
        .with_context(|| format!("--key {given} is neither 64 hex digits nor a file"))?;
    if let Ok(key) = text.parse() {
        return Ok(vec![key]);
    }
    let published: Published = serde_json::from_str(&text)
        .with_context(|| format!("--key {given} has no public key in it"))?;
    let keys = published.keys.iter().map(|key| key.public_key.parse());
    keys.collect()
}

/// A statement and its signature.
pub struct Signed<'a> {
    bytes: &'a [u8],
    /// What is signed: everything before the last record.
    length: usize,
    signature: Vec<u8>,
    parse: fn(&str) -> Result<Statement, Failure>,
}

/// Finds the signature, which is the last record, in its only form.
pub fn split(bytes: &[u8]) -> Result<Signed<'_>, Failure> {
    let ends: [(_, fn(&str) -> _); 2] = [(JSON_END, file::json), (CSV_END, file::csv)];
    for ((before, after), parse) in ends {
        let length = before.len() + SIGNATURE_CHARACTERS + after.len();
        let Some((signed, end)) = bytes
            .len()
            .checked_sub(length)
            .and_then(|at| bytes.split_at_checked(at))
        else {
            continue;
        };
        let signature = end
            .strip_prefix(before.as_bytes())
            .and_then(|end| end.strip_suffix(after.as_bytes()));
        if let Some(signature) = signature {
            return Ok(Signed {
                bytes,
                length: signed.len(),
                signature: STANDARD
                    .decode(signature)
                    .context("its signature is not base64")?,
                parse,
            });
        }
    }
    bail!("it does not end with a signature: it is cut off, or not as it was given out");
}

impl Signed<'_> {
    /// Returns the id of the key that signed it.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<String, Failure> {
        let signed = self.bytes.get(..self.length).unwrap_or_default();
        let message = format!("{FORMAT} {}", hex::encode(Sha256::digest(signed)));
        let signer = keys.iter().find(|key| {
            let key = UnparsedPublicKey::new(&ED25519, key.0);
            key.verify(message.as_bytes(), &self.signature).is_ok()
        });
        let signer = signer.context(
            "its signature is not by this key: it was changed, or another key signed it",
        )?;
        Ok(signer.id())
    }

    pub fn statement(&self) -> Result<Statement, Failure> {
        let text = std::str::from_utf8(self.bytes).context("it is not UTF-8")?;
        (self.parse)(text)
    }
}
