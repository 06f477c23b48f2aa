//! Which exchanges commit something: a `commit`, or a statement that writes and belongs to no
//! transaction.

use std::{collections::HashSet, mem};

use super::{QUERY, SYNC};

const PARSE: u8 = b'P';
const BIND: u8 = b'B';

/// A word of each statement that writes, and of no other.
const WRITES: [&str; 3] = ["insert", "delete", "set"];

/// The transactions of one connection.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// The prepared statements that write.
    writing: HashSet<Vec<u8>>,
    /// A transaction has begun and not ended.
    is_open: bool,
    /// The exchange so far runs a statement that writes.
    writes: bool,
}

impl Transactions {
    /// Takes in what the caller sends. Returns whether it ends an exchange that commits.
    pub(super) fn take_in(&mut self, kind: u8, message: &[u8]) -> bool {
        let content = message.get(5..).unwrap_or_default();
        let mut texts = content.split(|byte| *byte == 0);
        let mut next = || texts.next().unwrap_or_default();
        match kind {
            PARSE => {
                let (name, text) = (next().to_vec(), next());
                match writes(text) {
                    true => self.writing.insert(name),
                    false => self.writing.remove(&name),
                };
                false
            }
            BIND => {
                let (_portal, statement) = (next(), next());
                self.writes |= self.writing.contains(statement);
                false
            }
            QUERY => self.query(next()),
            SYNC => mem::take(&mut self.writes) && !self.is_open,
            _ => false,
        }
    }

    fn query(&mut self, text: &[u8]) -> bool {
        let text = String::from_utf8_lossy(text).to_ascii_lowercase();
        match text.split([' ', ';']).next() {
            Some("begin") => self.is_open = true,
            Some("rollback") => self.is_open = false,
            Some("commit") => {
                self.is_open = false;
                return true;
            }
            _ => {}
        }
        false
    }
}

fn writes(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.split_whitespace().any(|word| WRITES.contains(&word))
}
