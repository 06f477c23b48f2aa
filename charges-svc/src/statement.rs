//! What a statement looks like as a file, in JSON and in CSV, and which of its bytes are signed
//! (docs/merchants/statements.md). Pure.
//!
//! Its bytes are signed as they are, so that whoever verifies them needs no canonical form, and
//! nobody but the signer writes them: the gateway passes them on.

use chassis::{
    clock::{Day, Timestamp},
    ids::MerchantId,
    money::Money,
};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{seal::Block, statement_key::StatementKeys};

/// Names the form, and what is signed. A different form gets a different name.
const FORMAT: &str = "payments statement 1";

/// The columns of a statement in CSV.
const COLUMNS: &str =
    "record,account,currency,amount,balance,at,kind,reference,subject,line,block,value\n";

/// How a statement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Csv,
}

/// Whose statement it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Merchant(MerchantId),
    House,
}

/// What a statement is about.
#[derive(Clone, Debug)]
pub struct Head {
    pub owner: Owner,
    pub day: Day,
    /// The last block before the day and its hash: 0 and nothing before the first block.
    pub after_block: i64,
    pub after_hash: String,
    /// The day's last block and its hash: the same as before the day if it has none.
    pub last_block: i64,
    pub last_hash: String,
}

/// A line of a posting.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    pub block: i64,
    pub kind: &'a str,
    pub subject: Uuid,
    /// Its number in the posting.
    pub line: i64,
    pub account: &'a str,
    pub amount: Money,
    pub at: Timestamp,
    /// For merchants: the charge, payout or refund that it is about, if any.
    pub reference: Option<&'a str>,
    /// For merchants: what the account has after it.
    pub balance: Option<Money>,
}

/// Writes a statement piece by piece: the head; accounts, a merchant's with their lines; for the
/// house, blocks with their lines; the signature.
#[derive(Debug)]
pub struct Writer {
    format: Format,
    text: String,
    /// Of everything that was taken.
    digest: Sha256,
    /// Whether the next element is its list's first.
    is_first: bool,
}

#[derive(Serialize)]
struct HeadShown<'a> {
    format: &'a str,
    statement_of: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    merchant_id: Option<String>,
    day: String,
    after_block: i64,
    after_hash: &'a str,
    last_block: i64,
    last_hash: &'a str,
}

#[derive(Serialize)]
struct AccountShown<'a> {
    account: &'a str,
    currency: &'a str,
    opening: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closing: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct BlockShown<'a> {
    block: i64,
    sealed_at: String,
    hash: &'a str,
}

#[derive(Serialize)]
struct LineShown<'a> {
    block: i64,
    at: String,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<&'a str>,
    subject: String,
    line: i64,
    account: &'a str,
    currency: &'a str,
    amount: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    balance: Option<Box<RawValue>>,
}

/// A row in CSV. What is empty does not apply.
#[derive(Default)]
struct Row<'a> {
    record: &'a str,
    account: &'a str,
    currency: &'a str,
    amount: String,
    balance: String,
    at: String,
    kind: &'a str,
    reference: &'a str,
    subject: String,
    line: String,
    block: String,
    value: &'a str,
}

impl Writer {
    pub fn new(format: Format, head: &Head) -> Self {
        let mut writer = Self {
            format,
            text: String::new(),
            digest: Sha256::new(),
            is_first: true,
        };
        let (statement_of, merchant_id) = match head.owner {
            Owner::Merchant(merchant_id) => ("merchant", Some(merchant_id.to_string())),
            Owner::House => ("house", None),
        };
        let shown = HeadShown {
            format: FORMAT,
            statement_of,
            merchant_id,
            day: head.day.to_string(),
            after_block: head.after_block,
            after_hash: &head.after_hash,
            last_block: head.last_block,
            last_hash: &head.last_hash,
        };
        match format {
            Format::Json => {
                writer.open(&shown);
                writer.text.push_str(",\n\"accounts\":[\n");
            }
            Format::Csv => writer.head_rows(&shown),
        }
        writer
    }

    fn head_rows(&mut self, head: &HeadShown<'_>) {
        self.text.push_str(COLUMNS);
        let (after_block, last_block) = (head.after_block.to_string(), head.last_block.to_string());
        for (record, value) in [
            ("format", head.format),
            ("statement_of", head.statement_of),
            (
                "merchant_id",
                head.merchant_id.as_deref().unwrap_or_default(),
            ),
            ("day", &head.day),
            ("after_block", &after_block),
            ("after_hash", head.after_hash),
            ("last_block", &last_block),
            ("last_hash", head.last_hash),
        ] {
            // The house has no merchant_id.
            if !(record == "merchant_id" && value.is_empty()) {
                self.fact(record, value);
            }
        }
    }

    /// Begins an account of a merchant. Its lines follow.
    pub fn open_account(&mut self, account: &str, opening: Money) {
        match self.format {
            Format::Json => {
                self.next();
                self.open(&AccountShown {
                    account,
                    currency: opening.currency().code(),
                    opening: number(opening),
                    closing: None,
                });
                self.open_lines();
            }
            Format::Csv => self.balance_row("opening", account, opening),
        }
    }

    pub fn close_account(&mut self, account: &str, closing: Money) {
        match self.format {
            Format::Json => {
                self.close_list();
                self.text.push_str(",\"closing\":");
                self.text.push_str(number(closing).get());
                self.text.push('}');
            }
            Format::Csv => self.balance_row("closing", account, closing),
        }
    }

    /// An account of the house, whose lines are in the blocks.
    pub fn account(&mut self, account: &str, opening: Money, closing: Money) {
        match self.format {
            Format::Json => self.element(&AccountShown {
                account,
                currency: opening.currency().code(),
                opening: number(opening),
                closing: Some(number(closing)),
            }),
            Format::Csv => {
                self.balance_row("opening", account, opening);
                self.balance_row("closing", account, closing);
            }
        }
    }

    /// Ends the accounts of the house. Its blocks follow.
    pub fn open_blocks(&mut self) {
        if self.format == Format::Json {
            self.close_list();
            self.text.push_str(",\n\"blocks\":[\n");
            self.is_first = true;
        }
    }

    pub fn open_block(&mut self, block: &Block) {
        let sealed_at = block.sealed_at.to_string();
        match self.format {
            Format::Json => {
                self.next();
                self.open(&BlockShown {
                    block: block.number,
                    sealed_at,
                    hash: &block.hash,
                });
                self.open_lines();
            }
            Format::Csv => self.row(&Row {
                record: "block",
                at: sealed_at,
                block: block.number.to_string(),
                value: &block.hash,
                ..Row::default()
            }),
        }
    }

    pub fn close_block(&mut self) {
        if self.format == Format::Json {
            self.close_list();
            self.text.push('}');
        }
    }

    pub fn line(&mut self, line: &Line<'_>) {
        let currency = line.amount.currency().code();
        match self.format {
            Format::Json => self.element(&LineShown {
                block: line.block,
                at: line.at.to_string(),
                kind: line.kind,
                reference: line.reference,
                subject: line.subject.to_string(),
                line: line.line,
                account: line.account,
                currency,
                amount: number(line.amount),
                balance: line.balance.map(number),
            }),
            Format::Csv => self.row(&Row {
                record: "line",
                account: line.account,
                currency,
                amount: decimal(line.amount),
                balance: line.balance.map(decimal).unwrap_or_default(),
                at: line.at.to_string(),
                kind: line.kind,
                reference: line.reference.unwrap_or_default(),
                subject: line.subject.to_string(),
                line: line.line.to_string(),
                block: line.block.to_string(),
                value: "",
            }),
        }
    }

    /// What was written since it was last taken.
    pub fn take(&mut self) -> Vec<u8> {
        let taken = std::mem::take(&mut self.text).into_bytes();
        self.digest.update(&taken);
        taken
    }

    /// The last piece. Everything before its last record is signed.
    pub fn finish(mut self, keys: &StatementKeys) -> Vec<u8> {
        match self.format {
            Format::Json => {
                self.close_list();
                self.text.push_str(",\n\"key_id\":\"");
                self.text.push_str(&keys.id());
                self.text.push_str("\",\n");
            }
            Format::Csv => self.fact("key_id", &keys.id()),
        }
        let mut piece = self.take();
        let digest = hex::encode(self.digest.finalize_reset());
        let signature = keys.sign(&format!("{FORMAT} {digest}"));
        match self.format {
            Format::Json => {
                self.text.push_str("\"signature\":\"");
                self.text.push_str(&signature);
                self.text.push_str("\"}\n");
            }
            Format::Csv => self.fact("signature", &signature),
        }
        piece.extend(self.text.into_bytes());
        piece
    }

    /// Begins an object, which the caller ends.
    fn open(&mut self, shown: &impl Serialize) {
        let text = serde_json::to_string(shown).expect("texts and numbers are JSON");
        self.text.push_str(text.strip_suffix('}').unwrap_or(&text));
    }

    fn open_lines(&mut self) {
        self.text.push_str(",\"lines\":[\n");
        self.is_first = true;
    }

    fn element(&mut self, shown: &impl Serialize) {
        self.next();
        self.open(shown);
        self.text.push('}');
    }

    /// Before each element of a list.
    fn next(&mut self) {
        if !self.is_first {
            self.text.push_str(",\n");
        }
        self.is_first = false;
    }

    /// The list around has this one's object in it, so what follows there is not its first.
    fn close_list(&mut self) {
        self.text.push_str("\n]");
        self.is_first = false;
    }

    fn balance_row(&mut self, record: &str, account: &str, balance: Money) {
        self.row(&Row {
            record,
            account,
            currency: balance.currency().code(),
            balance: decimal(balance),
            ..Row::default()
        });
    }

    fn fact(&mut self, record: &str, value: &str) {
        self.row(&Row {
            record,
            value,
            ..Row::default()
        });
    }

    fn row(&mut self, row: &Row<'_>) {
        let cells = [
            row.record,
            row.account,
            row.currency,
            &row.amount,
            &row.balance,
            &row.at,
            row.kind,
            row.reference,
            &row.subject,
            &row.line,
            &row.block,
            row.value,
        ];
        for (index, cell) in cells.into_iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.cell(cell);
        }
        self.text.push('\n');
    }

    fn cell(&mut self, cell: &str) {
        if !cell.contains(['"', ',', '\n', '\r']) {
            self.text.push_str(cell);
            return;
        }
        self.text.push('"');
        self.text.push_str(&cell.replace('"', "\"\""));
        self.text.push('"');
    }
}

/// Major units, with the currency's decimals: 25.50.
fn decimal(amount: Money) -> String {
    amount.to_major().to_string()
}

fn number(amount: Money) -> Box<RawValue> {
    RawValue::from_string(decimal(amount)).expect("a decimal is JSON")
}

#[cfg(test)]
mod tests;
