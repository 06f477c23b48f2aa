//! What must be true of a statement whose signature is good.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use chassis::money::Money;
use uuid::Uuid;

use super::{
    chain,
    file::{Account, Block, Line, Owner, Statement},
};
use crate::services::Failure;

/// What can be seen from the statement alone.
pub fn alone(statement: &Statement) -> Result<(), Failure> {
    ensure!(
        statement.after_block >= 0 && statement.last_block >= statement.after_block,
        "its blocks end before they begin"
    );
    ensure!(
        statement.last_block > statement.after_block || statement.last_hash == statement.after_hash,
        "it has no blocks, but the last hash is another than before the day"
    );
    let mut seen = BTreeSet::new();
    for line in statement.lines() {
        let key = (line.kind.as_str(), line.subject, line.line);
        ensure!(seen.insert(key), "{} is in it twice", shown(line));
        let is_of_day = line.block > statement.after_block && line.block <= statement.last_block;
        ensure!(is_of_day, "{} is in no block of the day", shown(line));
    }
    match &statement.owner {
        Owner::Merchant(_) => sums_of_merchant(statement),
        Owner::House => {
            blocks(statement)?;
            sums_of_house(statement)
        }
    }
}

/// Each account's lines lead from its opening to its closing balance.
fn sums_of_merchant(statement: &Statement) -> Result<(), Failure> {
    ensure!(
        statement.blocks.is_empty(),
        "it has blocks like the house's"
    );
    let mut seen = BTreeSet::new();
    for account in &statement.accounts {
        let is_new = seen.insert((account.account.as_str(), account.currency.code()));
        ensure!(is_new, "{} is in it twice", account.account);
        let mut balance = account.opening.minor_units();
        for line in &account.lines {
            ensure!(
                line.account == account.account && line.amount.currency() == account.currency,
                "{} is of another account",
                shown(line)
            );
            balance = balance
                .checked_add(line.amount.minor_units())
                .context("no balance can hold the sum of its lines")?;
            let told = line.balance.map(Money::minor_units);
            ensure!(
                told == Some(balance),
                "the balance after {} is not the sum of the lines up to there",
                shown(line)
            );
        }
        ensure!(
            balance == account.closing.minor_units(),
            "the lines of {} lead to {} and not to its closing balance {}",
            account.account,
            Money::new(balance, account.currency).to_major(),
            account.closing.to_major()
        );
    }
    Ok(())
}

/// The blocks follow one another from the hash before the day to the last hash, and every posting
/// in them sums to zero.
fn blocks(statement: &Statement) -> Result<(), Failure> {
    let (mut number, mut hash) = (statement.after_block, statement.after_hash.clone());
    for block in &statement.blocks {
        number += 1;
        ensure!(block.block == number, "block {number} is missing");
        ensure!(
            block.sealed_at < statement.day.end(),
            "block {number} was sealed after the day"
        );
        let is_placed = block.lines.iter().all(|line| line.block == number);
        ensure!(is_placed, "a line of block {number} names another block");
        hash = chain::hash(&hash, block);
        ensure!(
            hash == block.hash,
            "block {number} is not as it was sealed, or does not follow the one before it"
        );
        balanced(block)?;
    }
    ensure!(
        number == statement.last_block && hash == statement.last_hash,
        "its blocks do not lead to the last hash"
    );
    Ok(())
}

fn balanced(block: &Block) -> Result<(), Failure> {
    let mut sums: BTreeMap<(&str, Uuid, &str), i128> = BTreeMap::new();
    for line in &block.lines {
        let posting = (
            line.kind.as_str(),
            line.subject,
            line.amount.currency().code(),
        );
        *sums.entry(posting).or_default() += i128::from(line.amount.minor_units());
    }
    match sums.iter().find(|(_, sum)| **sum != 0) {
        Some(((kind, subject, _), _)) => bail!("the posting {kind} {subject} does not sum to zero"),
        None => Ok(()),
    }
}

/// The blocks' lines lead from every opening to every closing balance.
fn sums_of_house(statement: &Statement) -> Result<(), Failure> {
    let mut balances = BTreeMap::new();
    for account in &statement.accounts {
        ensure!(
            account.lines.is_empty(),
            "it has accounts like a merchant's"
        );
        let key = (account.account.as_str(), account.currency.code());
        let opening = i128::from(account.opening.minor_units());
        let is_new = balances.insert(key, opening).is_none();
        ensure!(is_new, "{} is in it twice", account.account);
    }
    for line in statement.lines() {
        let key = (line.account.as_str(), line.amount.currency().code());
        let balance = balances
            .get_mut(&key)
            .with_context(|| format!("{} is of an account without balances", shown(line)))?;
        *balance += i128::from(line.amount.minor_units());
    }
    for account in &statement.accounts {
        let balance = balances.get(&(account.account.as_str(), account.currency.code()));
        ensure!(
            balance == Some(&i128::from(account.closing.minor_units())),
            "the lines of {} do not lead to its closing balance {}",
            account.account,
            account.closing.to_major()
        );
    }
    Ok(())
}

/// The statement begins where the one before it ends.
pub fn continues(statement: &Statement, before: &Statement) -> Result<(), Failure> {
    ensure!(
        statement.owner == before.owner,
        "the statement before is not of the same owner"
    );
    ensure!(
        before.day.next() == statement.day,
        "the statement before is of {}, which is not the day before",
        before.day
    );
    ensure!(
        statement.after_block == before.last_block && statement.after_hash == before.last_hash,
        "its blocks do not follow those of the statement before"
    );
    for account in &statement.accounts {
        let earlier = account_of(before, account);
        // The house lists only accounts that moved.
        let closing = match (earlier, &statement.owner) {
            (Some(earlier), _) => earlier.closing.minor_units(),
            (None, Owner::Merchant(_)) => 0,
            (None, Owner::House) => continue,
        };
        ensure!(
            account.opening.minor_units() == closing,
            "{} does not open with what it closed with the day before",
            account.account
        );
    }
    let is_there = |earlier: &Account| account_of(statement, earlier).is_some();
    match before.accounts.iter().find(|earlier| !is_there(earlier)) {
        // The house lists only accounts that moved.
        Some(missing) if matches!(statement.owner, Owner::Merchant(_)) => {
            bail!("it lacks {}, which the day before has", missing.account)
        }
        _ => Ok(()),
    }
}

/// The account of the same name and currency.
fn account_of<'a>(statement: &'a Statement, wanted: &Account) -> Option<&'a Account> {
    let mut accounts = statement.accounts.iter();
    accounts
        .find(|account| account.account == wanted.account && account.currency == wanted.currency)
}

/// The merchant's lines and balances are exactly those of its accounts in the house's statement.
pub fn is_part_of(statement: &Statement, house: &Statement) -> Result<(), Failure> {
    let Owner::Merchant(merchant_id) = &statement.owner else {
        bail!("only a merchant's statement can be a part of the house's");
    };
    ensure!(
        house.owner == Owner::House,
        "--house is not the house's statement"
    );
    ensure!(
        statement.day == house.day
            && statement.after_hash == house.after_hash
            && statement.last_hash == house.last_hash
            && statement.after_block == house.after_block
            && statement.last_block == house.last_block,
        "its day's blocks are not those of the house"
    );
    let accounts = [
        ("available", format!("merchant:{merchant_id}")),
        ("reserved", format!("merchant:{merchant_id}:reserved")),
    ];
    for (name, account) in &accounts {
        let mut of_house: BTreeSet<_> = house
            .lines()
            .filter(|line| line.account == *account)
            .map(identity)
            .collect();
        for line in statement.lines().filter(|line| line.account == *name) {
            let is_there = of_house.remove(&identity(line));
            ensure!(is_there, "{} is not in the house's statement", shown(line));
        }
        if let Some((kind, subject, ..)) = of_house.first() {
            bail!("it lacks {kind} {subject}, which the house's statement has of {name}");
        }
        for own in statement.accounts.iter().filter(|own| own.account == *name) {
            let mut known = house.accounts.iter();
            let known = known
                .find(|of_house| of_house.account == *account && of_house.currency == own.currency);
            // The house leaves out what did not move.
            let is_same = match known {
                Some(known) => known.opening == own.opening && known.closing == own.closing,
                None => own.opening == own.closing,
            };
            ensure!(
                is_same,
                "the balances of {name} are not those of the house's statement"
            );
        }
    }
    let is_known = |line: &Line| accounts.iter().any(|(name, _)| line.account == *name);
    match statement.lines().find(|line| !is_known(line)) {
        Some(line) => bail!("{} is of no account of a merchant", shown(line)),
        None => Ok(()),
    }
}

type Identity<'a> = (&'a str, Uuid, i64, i64, i64, &'static str, i64);

fn identity(line: &Line) -> Identity<'_> {
    let amount = line.amount;
    (
        &line.kind,
        line.subject,
        line.line,
        line.block,
        amount.minor_units(),
        amount.currency().code(),
        line.at.unix_millis(),
    )
}

fn shown(line: &Line) -> String {
    format!("line {} of {} {}", line.line, line.kind, line.subject)
}
