//! How postings are sealed: a hash chain over blocks of postings. Pure.
//!
//! Promise: two different histories of the ledger never have the same last hash. A block's hash
//! covers everything in the block, each field preceded by its length, and the hash of the block
//! before it.

use std::collections::BTreeMap;

use chassis::clock::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;
use uuid::Uuid;

/// Names what is hashed, and how. A different way gets a different name.
const FORMAT: &[u8] = b"payments ledger block 1";

/// A sealed block.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Block {
    /// Starts at 1, without gaps.
    pub number: i64,
    /// SHA-256, in hex.
    pub hash: String,
    pub sealed_at: Timestamp,
}

/// A line of a posting in a block, as it is in the store.
#[derive(Clone, Debug, FromRow)]
pub struct SealedLine {
    pub kind: String,
    pub subject: Uuid,
    /// `None`, like the fields below, if the posting is gone.
    pub line: Option<i64>,
    pub account: Option<String>,
    pub amount_minor: Option<i64>,
    pub currency: Option<String>,
    pub posted_at: Option<Timestamp>,
}

/// The hash of block `number`, after the block with the hash `previous`, which is empty for the
/// first block. The lines may come in any order, so that the store's collation does not matter.
pub fn hash(previous: &str, number: i64, sealed_at: Timestamp, lines: &[SealedLine]) -> String {
    let mut lines: Vec<&SealedLine> = lines.iter().collect();
    lines.sort_by(|one, other| order(one).cmp(&order(other)));
    let mut hash = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hash.update(length(bytes.len()));
        hash.update(bytes);
    };
    field(FORMAT);
    field(previous.as_bytes());
    field(&number.to_be_bytes());
    field(&nanoseconds(sealed_at));
    field(&length(lines.len()));
    for line in lines {
        field(line.kind.as_bytes());
        field(line.subject.as_bytes());
        field(bytes(&line.line.map(i64::to_be_bytes)));
        field(line.account.as_deref().unwrap_or_default().as_bytes());
        field(bytes(&line.amount_minor.map(i64::to_be_bytes)));
        field(line.currency.as_deref().unwrap_or_default().as_bytes());
        field(bytes(&line.posted_at.map(nanoseconds)));
    }
    hex::encode(hash.finalize())
}

/// Puts lines in the order in which they are hashed.
pub fn sort(lines: &mut [SealedLine]) {
    lines.sort_by(|one, other| order(one).cmp(&order(other)));
}

fn order(line: &SealedLine) -> (&[u8], Uuid, Option<i64>) {
    (line.kind.as_bytes(), line.subject, line.line)
}

/// A missing value has no bytes, unlike any number, time or name.
fn bytes<const N: usize>(value: &Option<[u8; N]>) -> &[u8] {
    value.as_slice().as_flattened()
}

/// A length that is encoded the same on every machine.
fn length(count: usize) -> [u8; 8] {
    u64::try_from(count).unwrap_or(u64::MAX).to_be_bytes()
}

/// The time with every digit that a store keeps.
fn nanoseconds(at: Timestamp) -> [u8; 16] {
    at.datetime().unix_timestamp_nanos().to_be_bytes()
}

/// Postings that do not sum to zero in each currency. There should be none.
pub fn unbalanced(lines: &[SealedLine]) -> Vec<(String, Uuid)> {
    let mut sums: BTreeMap<(&str, Uuid, &str), i128> = BTreeMap::new();
    for line in lines {
        if let (Some(amount), Some(currency)) = (line.amount_minor, &line.currency) {
            *sums
                .entry((&line.kind, line.subject, currency))
                .or_default() += i128::from(amount);
        }
    }
    let mut found: Vec<_> = sums
        .into_iter()
        .filter(|(_, sum)| *sum != 0)
        .map(|((kind, subject, _), _)| (kind.to_owned(), subject))
        .collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests;
