//! The hash of a block of postings, written a second time from docs/merchants/statements.md: charges-svc
//! seals with its own.

use chassis::clock::Timestamp;
use sha2::{Digest as _, Sha256};

use super::file::{Block, Line};

/// Names what is hashed, and how.
const FORMAT: &str = "payments ledger block 1";

/// The hash of a block that follows one with the hash `previous`, which is empty for the first.
pub fn hash(previous: &str, block: &Block) -> String {
    let mut lines: Vec<&Line> = block.lines.iter().collect();
    lines.sort_by_key(|line| (line.kind.as_bytes(), line.subject, line.line));
    let mut hash = Hash(Sha256::new());
    hash.field(FORMAT.as_bytes());
    hash.field(previous.as_bytes());
    hash.field(&block.block.to_be_bytes());
    hash.field(&nanoseconds(block.sealed_at));
    hash.field(&count(lines.len()));
    for line in lines {
        hash.field(line.kind.as_bytes());
        hash.field(line.subject.as_bytes());
        hash.field(&line.line.to_be_bytes());
        hash.field(line.account.as_bytes());
        hash.field(&line.amount.minor_units().to_be_bytes());
        hash.field(line.amount.currency().code().as_bytes());
        hash.field(&nanoseconds(line.at));
    }
    hex::encode(hash.0.finalize())
}

struct Hash(Sha256);

impl Hash {
    /// Each field is preceded by its length.
    fn field(&mut self, bytes: &[u8]) {
        self.0.update(count(bytes.len()));
        self.0.update(bytes);
    }
}

fn count(count: usize) -> [u8; 8] {
    u64::try_from(count).unwrap_or(u64::MAX).to_be_bytes()
}

fn nanoseconds(at: Timestamp) -> [u8; 16] {
    at.datetime().unix_timestamp_nanos().to_be_bytes()
}
