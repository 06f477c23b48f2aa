//! Reads statements: what the blocks of a proven day did to a merchant's balance, or to the house.
//!
//! Promise: a statement is signed only if its own lines lead from its opening balances to its
//! closing ones, which is a third way to the same sums ([`crate::days`] has the other two), and if
//! its blocks have the hashes with which they were sealed.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use chassis::{
    clock::Day,
    ids::MerchantId,
    money::{Currency, Money},
};
use db::{Conn, Db};
use futures::{Stream, stream};
use uuid::Uuid;

use crate::{
    days::{self, Wrong},
    error::{Error, Result},
    ledger::Account,
    seal::{Block, SealedLine},
    service::Service,
    statement::{Format, Head, Line, Owner, Writer},
    statement_key::StatementKeys,
    store::{
        self,
        days::{ClosedDay, DayBalance, Position},
    },
};

/// How many lines or accounts are read at once.
const PAGE: i64 = 1_000;

/// How many blocks are read at once, with up to 500 postings each.
const BLOCKS_PAGE: i64 = 4;

impl Service {
    /// A merchant's statement, in pieces.
    pub async fn read_statement(
        &self,
        merchant_id: MerchantId,
        day: Day,
        format: Format,
    ) -> Result<impl Stream<Item = Result<Vec<u8>>> + Send + use<>> {
        let keys = self.statement_keys()?;
        let mut conn = self.db.read().await?;
        let day = proven(&mut conn, day).await?;
        let accounts = accounts(&mut conn, merchant_id, day.day).await?;
        let head = head(&mut conn, Owner::Merchant(merchant_id), &day).await?;
        let statement = MerchantStatement {
            db: self.db.clone(),
            keys,
            day,
            writer: Some(Writer::new(format, &head)),
            accounts,
            reading: None,
        };
        let pieces = stream::try_unfold(statement, async |mut statement| {
            let piece = statement.next().await.inspect_err(count)?;
            Ok(piece.map(|piece| (piece, statement)))
        });
        Ok(pieces)
    }

    /// The whole house's statement, in pieces.
    pub async fn read_house_statement(
        &self,
        day: Day,
        format: Format,
    ) -> Result<impl Stream<Item = Result<Vec<u8>>> + Send + use<>> {
        let keys = self.statement_keys()?;
        let mut conn = self.db.read().await?;
        let day = proven(&mut conn, day).await?;
        let head = head(&mut conn, Owner::House, &day).await?;
        let statement = HouseStatement {
            db: self.db.clone(),
            keys,
            writer: Some(Writer::new(format, &head)),
            stage: Stage::Accounts(String::new(), String::new()),
            left: BTreeMap::new(),
            previous: head.after_hash,
            day,
        };
        let pieces = stream::try_unfold(statement, async |mut statement| {
            let piece = statement.next().await.inspect_err(count)?;
            Ok(piece.map(|piece| (piece, statement)))
        });
        Ok(pieces)
    }

    pub fn statement_keys(&self) -> Result<Arc<StatementKeys>> {
        self.statement_keys
            .clone()
            .ok_or(Error::StatementKeyMissing)
    }
}

/// Counts what is wrong with a statement that is not given.
fn count(error: &Error) {
    match error {
        Error::StatementDiffers(_) => days::count_error(Wrong::Difference, 1),
        Error::BlocksChanged => days::count_error(Wrong::ChangedBlock, 1),
        _ => {}
    }
}

/// The day, if it is proven.
async fn proven(conn: &mut Conn, day: Day) -> Result<ClosedDay> {
    if let Some(proven) = store::days::find_proven(conn, day).await? {
        return Ok(proven);
    }
    match store::days::first_closed(conn).await? {
        Some(first) if day < first => Err(Error::StatementNotFound),
        _ => Err(Error::StatementNotReady),
    }
}

async fn head(conn: &mut Conn, owner: Owner, day: &ClosedDay) -> Result<Head> {
    Ok(Head {
        owner,
        day: day.day,
        after_block: day.after_block,
        after_hash: store::blocks::hash(conn, day.after_block).await?,
        last_block: day.last_block,
        last_hash: store::blocks::hash(conn, day.last_block).await?,
    })
}

/// An account of a merchant on a day.
struct MerchantAccount {
    /// As the balance names it: `available` or `reserved`.
    name: &'static str,
    opening: Money,
    closing: Money,
    /// Where its lines are, if it has any on this day.
    moved: Option<DayBalance>,
}

/// What a merchant has available and reserved, in every currency that it ever had.
async fn accounts(
    conn: &mut Conn,
    merchant_id: MerchantId,
    day: Day,
) -> Result<VecDeque<MerchantAccount>> {
    let mut accounts = VecDeque::new();
    for (name, account) in [
        ("available", Account::Merchant(merchant_id)),
        ("reserved", Account::Reserved(merchant_id)),
    ] {
        let balances = store::days::balances_of(conn, &account.to_string(), day).await?;
        accounts.extend(balances.into_iter().map(|balance| {
            let has_moved = balance.day == day;
            MerchantAccount {
                name,
                opening: match has_moved {
                    true => balance.opening(),
                    false => balance.closing(),
                },
                closing: balance.closing(),
                moved: has_moved.then_some(balance),
            }
        }));
    }
    match accounts.is_empty() {
        true => Err(Error::StatementNotFound),
        false => Ok(accounts),
    }
}

struct MerchantStatement {
    db: Db,
    keys: Arc<StatementKeys>,
    day: ClosedDay,
    /// `None` once the statement is written.
    writer: Option<Writer>,
    /// Those that are not begun.
    accounts: VecDeque<MerchantAccount>,
    reading: Option<Reading>,
}

/// An account whose lines are being read.
struct Reading {
    account: MerchantAccount,
    moved: DayBalance,
    /// After the last line that was read.
    balance: Money,
    after: Position,
}

impl MerchantStatement {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(None);
        };
        if let Some(reading) = self.reading.take() {
            self.reading = self.read(&mut writer, reading).await?;
        } else if let Some(account) = self.accounts.pop_front() {
            writer.open_account(account.name, account.opening);
            match account.moved.clone() {
                None => writer.close_account(account.name, account.closing),
                Some(moved) => self.reading = Some(Reading::new(account, moved)),
            }
        } else {
            return Ok(Some(writer.finish(&self.keys)));
        }
        let piece = writer.take();
        self.writer = Some(writer);
        Ok(Some(piece))
    }

    /// Writes the next lines of an account, and its end once there are no more.
    async fn read(&self, writer: &mut Writer, mut reading: Reading) -> Result<Option<Reading>> {
        let mut conn = self.db.read().await?;
        let (moved, after) = (&reading.moved, &reading.after);
        let lines = store::days::account_lines(&mut conn, &self.day, moved, after, PAGE).await?;
        let is_last = i64::try_from(lines.len()) != Ok(PAGE);
        for line in &lines {
            let amount = Money::new(line.amount_minor, reading.balance.currency());
            reading.balance = sum(reading.balance, amount)?;
            writer.line(&Line {
                block: line.block,
                kind: &line.kind,
                subject: line.subject,
                line: line.line,
                account: reading.account.name,
                amount,
                at: line.posted_at,
                reference: line.reference.as_deref(),
                balance: Some(reading.balance),
            });
        }
        if let Some(last) = lines.into_iter().next_back() {
            reading.after = Position {
                posted_at: last.posted_at,
                subject: last.subject,
                line: last.line,
                kind: last.kind,
            };
        }
        if !is_last {
            return Ok(Some(reading));
        }
        let closing = reading.account.closing;
        if reading.balance != closing {
            return Err(Error::StatementDiffers(reading.moved.account));
        }
        writer.close_account(reading.account.name, closing);
        Ok(None)
    }
}

impl Reading {
    fn new(account: MerchantAccount, moved: DayBalance) -> Self {
        // Lines are numbered from 1, so this is before all of them.
        let after = Position {
            posted_at: moved.first_posted_at,
            subject: Uuid::nil(),
            line: 0,
            kind: String::new(),
        };
        Self {
            balance: account.opening,
            account,
            moved,
            after,
        }
    }
}

struct HouseStatement {
    db: Db,
    keys: Arc<StatementKeys>,
    day: ClosedDay,
    /// `None` once the statement is written.
    writer: Option<Writer>,
    stage: Stage,
    /// What the lines that are not read yet must add to each account, by account and currency.
    left: BTreeMap<(String, &'static str), i64>,
    /// The hash of the last block that was read.
    previous: String,
}

/// How far it was read.
enum Stage {
    /// Up to this account in this currency.
    Accounts(String, String),
    /// Up to this block.
    Blocks(i64),
}

impl HouseStatement {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(None);
        };
        match &self.stage {
            Stage::Accounts(account, currency) => {
                let after = (account.clone(), currency.clone());
                self.stage = self.read_accounts(&mut writer, after).await?;
            }
            Stage::Blocks(last) if *last == self.day.last_block => {
                if let Some((account, _)) = self.left.iter().find(|(_, left)| **left != 0) {
                    return Err(Error::StatementDiffers(account.0.clone()));
                }
                return Ok(Some(writer.finish(&self.keys)));
            }
            Stage::Blocks(after) => {
                let after = *after;
                self.stage = self.read_blocks(&mut writer, after).await?;
            }
        }
        let piece = writer.take();
        self.writer = Some(writer);
        Ok(Some(piece))
    }

    async fn read_accounts(
        &mut self,
        writer: &mut Writer,
        (account, currency): (String, String),
    ) -> Result<Stage> {
        let mut conn = self.db.read().await?;
        let after = (account.as_str(), currency.as_str());
        let moved = store::days::moved(&mut conn, self.day.day, after, PAGE).await?;
        for balance in &moved {
            let (opening, closing) = (balance.opening(), balance.closing());
            writer.account(&balance.account, opening, closing);
            let moved = closing.minor_units().checked_sub(opening.minor_units());
            let moved = moved.ok_or_else(|| Error::StatementDiffers(balance.account.clone()))?;
            let key = (balance.account.clone(), balance.currency.code());
            self.left.insert(key, moved);
        }
        Ok(match moved.into_iter().next_back() {
            Some(last) => Stage::Accounts(last.account, last.currency.code().to_owned()),
            None => {
                writer.open_blocks();
                Stage::Blocks(self.day.after_block)
            }
        })
    }

    async fn read_blocks(&mut self, writer: &mut Writer, after: i64) -> Result<Stage> {
        let to = (after + BLOCKS_PAGE).min(self.day.last_block);
        let mut conn = self.db.read().await?;
        let read = days::read_blocks(&mut conn, after, to, &self.previous).await?;
        for (block, lines) in read.ok_or(Error::BlocksChanged)? {
            writer.open_block(&block);
            for line in &lines {
                self.write(writer, &block, line)?;
            }
            writer.close_block();
            self.previous = block.hash;
        }
        Ok(Stage::Blocks(to))
    }

    fn write(&mut self, writer: &mut Writer, block: &Block, line: &SealedLine) -> Result<()> {
        let whole = line_of(block, line).ok_or(Error::BlocksChanged)?;
        let differs = || Error::StatementDiffers(whole.account.to_owned());
        let key = (whole.account.to_owned(), whole.amount.currency().code());
        let left = self.left.get_mut(&key).ok_or_else(differs)?;
        let after = left.checked_sub(whole.amount.minor_units());
        *left = after.ok_or_else(differs)?;
        writer.line(&whole);
        Ok(())
    }
}

/// `None` if the line's posting is gone.
fn line_of<'a>(block: &Block, line: &'a SealedLine) -> Option<Line<'a>> {
    let currency: Currency = line.currency.as_deref()?.parse().ok()?;
    Some(Line {
        block: block.number,
        kind: &line.kind,
        subject: line.subject,
        line: line.line?,
        account: line.account.as_deref()?,
        amount: Money::new(line.amount_minor?, currency),
        at: line.posted_at?,
        reference: None,
        balance: None,
    })
}

fn sum(one: Money, other: Money) -> Result<Money> {
    let minor = one.minor_units().checked_add(other.minor_units());
    let minor = minor.ok_or(chassis::money::MoneyError::OutOfRange)?;
    Ok(Money::new(minor, one.currency()))
}
