//! A statement as it is read from its file, in either form.

use std::fmt;

use anyhow::{Context as _, bail, ensure};
use chassis::{
    clock::{Day, Timestamp},
    money::{Currency, Money},
};
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::services::Failure;

/// Names the form, and what is signed.
pub const FORMAT: &str = "payments statement 1";

const COLUMNS: usize = 12;

#[derive(Debug)]
pub struct Statement {
    pub owner: Owner,
    pub day: Day,
    pub after_block: i64,
    pub after_hash: String,
    pub last_block: i64,
    pub last_hash: String,
    pub accounts: Vec<Account>,
    pub blocks: Vec<Block>,
    pub key_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Merchant(String),
    House,
}

#[derive(Debug)]
pub struct Account {
    pub account: String,
    pub currency: Currency,
    pub opening: Money,
    pub closing: Money,
    pub lines: Vec<Line>,
}

#[derive(Debug)]
pub struct Block {
    pub block: i64,
    pub sealed_at: Timestamp,
    pub hash: String,
    pub lines: Vec<Line>,
}

#[derive(Debug)]
pub struct Line {
    pub block: i64,
    pub at: Timestamp,
    pub kind: String,
    pub subject: Uuid,
    pub line: i64,
    pub account: String,
    pub amount: Money,
    pub balance: Option<Money>,
}

impl Statement {
    /// All lines, of accounts or of blocks.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        let of_accounts = self.accounts.iter().flat_map(|account| &account.lines);
        of_accounts.chain(self.blocks.iter().flat_map(|block| &block.lines))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merchant(merchant_id) => f.write_str(merchant_id),
            Self::House => f.write_str("house"),
        }
    }
}

fn owner(statement_of: &str, merchant_id: Option<String>) -> Result<Owner, Failure> {
    match (statement_of, merchant_id) {
        ("merchant", Some(merchant_id)) => Ok(Owner::Merchant(merchant_id)),
        ("house", None) => Ok(Owner::House),
        _ => bail!("it is neither a merchant's nor the house's"),
    }
}

fn known(format: &str) -> Result<(), Failure> {
    ensure!(
        format == FORMAT,
        "this version does not know the form {format}"
    );
    Ok(())
}

fn money(text: &str, currency: Currency) -> Result<Money, Failure> {
    let major: Decimal = text
        .parse()
        .with_context(|| format!("{text} is no amount"))?;
    let money = Money::from_major(major, currency);
    money.with_context(|| format!("{text} is no amount of {currency}"))
}

#[derive(Deserialize)]
struct JsonStatement {
    format: String,
    statement_of: String,
    merchant_id: Option<String>,
    #[serde(deserialize_with = "parsed")]
    day: Day,
    after_block: i64,
    after_hash: String,
    last_block: i64,
    last_hash: String,
    accounts: Vec<JsonAccount>,
    #[serde(default)]
    blocks: Vec<JsonBlock>,
    key_id: String,
}

#[derive(Deserialize)]
struct JsonAccount {
    account: String,
    #[serde(deserialize_with = "parsed")]
    currency: Currency,
    opening: Box<RawValue>,
    closing: Box<RawValue>,
    #[serde(default)]
    lines: Vec<JsonLine>,
}

#[derive(Deserialize)]
struct JsonBlock {
    block: i64,
    #[serde(deserialize_with = "parsed")]
    sealed_at: Timestamp,
    hash: String,
    lines: Vec<JsonLine>,
}

#[derive(Deserialize)]
struct JsonLine {
    block: i64,
    #[serde(deserialize_with = "parsed")]
    at: Timestamp,
    kind: String,
    #[serde(deserialize_with = "parsed")]
    subject: Uuid,
    line: i64,
    account: String,
    #[serde(deserialize_with = "parsed")]
    currency: Currency,
    amount: Box<RawValue>,
    balance: Option<Box<RawValue>>,
}

fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr<Err: fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// Reads a statement in JSON.
pub fn json(text: &str) -> Result<Statement, Failure> {
    let read: JsonStatement = serde_json::from_str(text).context("it is no statement")?;
    known(&read.format)?;
    let account = |account: JsonAccount| {
        Ok(Account {
            opening: money(account.opening.get(), account.currency)?,
            closing: money(account.closing.get(), account.currency)?,
            account: account.account,
            currency: account.currency,
            lines: lines(account.lines)?,
        })
    };
    let block = |block: JsonBlock| {
        Ok(Block {
            block: block.block,
            sealed_at: block.sealed_at,
            hash: block.hash,
            lines: lines(block.lines)?,
        })
    };
    let accounts: Result<_, Failure> = read.accounts.into_iter().map(account).collect();
    let blocks: Result<_, Failure> = read.blocks.into_iter().map(block).collect();
    Ok(Statement {
        owner: owner(&read.statement_of, read.merchant_id)?,
        day: read.day,
        after_block: read.after_block,
        after_hash: read.after_hash,
        last_block: read.last_block,
        last_hash: read.last_hash,
        accounts: accounts?,
        blocks: blocks?,
        key_id: read.key_id,
    })
}

fn lines(read: Vec<JsonLine>) -> Result<Vec<Line>, Failure> {
    let line = |line: JsonLine| {
        let balance = line
            .balance
            .map(|balance| money(balance.get(), line.currency));
        Ok(Line {
            amount: money(line.amount.get(), line.currency)?,
            balance: balance.transpose()?,
            block: line.block,
            at: line.at,
            kind: line.kind,
            subject: line.subject,
            line: line.line,
            account: line.account,
        })
    };
    read.into_iter().map(line).collect()
}

/// Reads a statement in CSV.
pub fn csv(text: &str) -> Result<Statement, Failure> {
    let mut rows = text.lines().skip(1).map(cells);
    let mut fact = |name: &str| match rows.next() {
        Some(Ok(row)) if row.record() == name => Ok(row.value().to_owned()),
        Some(Err(error)) => Err(error),
        _ => bail!("its {name} is missing"),
    };
    known(&fact("format")?)?;
    let statement_of = fact("statement_of")?;
    let merchant_id = match statement_of.as_str() {
        "merchant" => Some(fact("merchant_id")?),
        _ => None,
    };
    let mut statement = Statement {
        owner: owner(&statement_of, merchant_id)?,
        day: fact("day")?.parse()?,
        after_block: fact("after_block")?.parse()?,
        after_hash: fact("after_hash")?,
        last_block: fact("last_block")?.parse()?,
        last_hash: fact("last_hash")?,
        accounts: Vec::new(),
        blocks: Vec::new(),
        key_id: String::new(),
    };
    for row in rows {
        statement.add(&row?)?;
    }
    Ok(statement)
}

impl Statement {
    /// Adds the next row.
    fn add(&mut self, row: &Row) -> Result<(), Failure> {
        match row.record() {
            "opening" => {
                let currency = row.currency()?;
                let opening = money(row.balance(), currency)?;
                self.accounts.push(Account {
                    account: row.account().to_owned(),
                    currency,
                    opening,
                    // The row `closing` says what it is.
                    closing: opening,
                    lines: Vec::new(),
                });
            }
            "closing" => {
                let account = self.accounts.last_mut();
                let account = account.filter(|account| account.account == row.account());
                let account = account.context("an account closes that did not open")?;
                account.closing = money(row.balance(), account.currency)?;
            }
            "block" => self.blocks.push(Block {
                block: row.block()?,
                sealed_at: row.at()?,
                hash: row.value().to_owned(),
                lines: Vec::new(),
            }),
            "line" => {
                let line = row.line()?;
                let lines = match &self.owner {
                    Owner::Merchant(_) => self.accounts.last_mut().map(|last| &mut last.lines),
                    Owner::House => self.blocks.last_mut().map(|last| &mut last.lines),
                };
                lines.context("a line belongs to nothing")?.push(line);
            }
            "key_id" => row.value().clone_into(&mut self.key_id),
            "signature" => {}
            other => bail!("this version does not know the record {other}"),
        }
        Ok(())
    }
}

/// The cells of a row, in the order of the columns.
struct Row([String; COLUMNS]);

impl Row {
    fn record(&self) -> &str {
        &self.0[0]
    }

    fn account(&self) -> &str {
        &self.0[1]
    }

    fn currency(&self) -> Result<Currency, Failure> {
        Ok(self.0[2].parse()?)
    }

    fn balance(&self) -> &str {
        &self.0[4]
    }

    fn at(&self) -> Result<Timestamp, Failure> {
        Ok(self.0[5].parse()?)
    }

    fn block(&self) -> Result<i64, Failure> {
        Ok(self.0[10].parse()?)
    }

    fn value(&self) -> &str {
        &self.0[11]
    }

    fn line(&self) -> Result<Line, Failure> {
        let currency = self.currency()?;
        let balance = Some(self.balance()).filter(|balance| !balance.is_empty());
        let balance = balance.map(|balance| money(balance, currency));
        Ok(Line {
            block: self.block()?,
            at: self.at()?,
            kind: self.0[6].clone(),
            subject: self.0[8].parse()?,
            line: self.0[9].parse()?,
            account: self.account().to_owned(),
            amount: money(&self.0[3], currency)?,
            balance: balance.transpose()?,
        })
    }
}

/// Splits a row at its commas, except within quotes.
fn cells(row: &str) -> Result<Row, Failure> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = row.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(cell) = cells.last_mut() else { break };
        match character {
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            other => cell.push(other),
        }
    }
    let cells = cells.try_into().ok();
    cells.map(Row).context("a row has not twelve cells")
}
