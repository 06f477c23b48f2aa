//! Closes the ledger's days, and proves what each account had at their ends.
//!
//! Promises: what a closed day consists of never changes, because it is closed under the lock under
//! which blocks are sealed, and no block is sealed in it afterwards. A day is proven only if two
//! independent ways agree for every account: the balance of the day before plus the day's lines,
//! read block by block against their hashes and added here; and the store's own sums of everything
//! ever sealed. Otherwise it stays unproven, without statements, and somebody must look.
//!
//! However many days wait to be proven, the second way goes through the ledger once, in ranges of
//! blocks, and stops at the end of each of them to compare.

use std::{collections::BTreeMap, time::Duration};

use chassis::clock::{Clock, Day, Timestamp};
use db::{Conn, Db, Insert, Update};

use crate::{
    error::{Error, Result},
    seal::{self, SealedLine},
    store::{
        self,
        blocks::Duty,
        days::{ClosedDay, Movement, Movements},
    },
};

/// A claim whose process died is taken over after this. It is renewed while days are proven, and is
/// longer than the longest step, which is a survey.
const LEASE: Duration = Duration::from_secs(15 * 60);

/// A claim that ends within this is renewed.
const RENEW_WITHIN: Duration = Duration::from_secs(14 * 60);

/// After an error, such as a store that is away.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// After a day that could not be proven: each try goes through the whole ledger, and until somebody
/// has restored what was changed it finds the same.
const TRY_AGAIN: Duration = Duration::from_secs(60 * 60);

/// How many blocks are read at once.
const RANGE: i64 = 20;

/// How many blocks one statement sums, of up to 500 postings each: a second's work.
const SUMMED_RANGE: i64 = 100;

/// How many balances are compared at once.
const COMPARED_RANGE: i64 = 1_000;

/// How many differences of one day are logged. The first is reason enough to look.
const DIFFERENCES_LOGGED_MAX: usize = 100;

/// Closes and proves every day that is over, one after the other. Stops if another replica is at
/// it, or if a day cannot be proven. Returns the number of days proven.
pub async fn close(db: &Db, clock: &Clock) -> Result<u64> {
    if !is_due(&mut db.read().await?, clock).await? {
        return Ok(0);
    }
    let Some(mut closing) = DayClosing::begin(db, clock).await? else {
        return Ok(0);
    };
    let mut days = 0;
    let outcome = loop {
        match closing.close_next().await {
            Ok(Outcome::Proven) => days += 1,
            outcome => break outcome,
        }
    };
    let rest = match outcome {
        Ok(Outcome::Proven | Outcome::NothingLeft) => Duration::ZERO,
        Ok(Outcome::Unproven) => TRY_AGAIN,
        Err(_) => LOOK_AGAIN,
    };
    closing.end(rest).await?;
    outcome?;
    Ok(days)
}

/// What became of the next day.
enum Outcome {
    Proven,
    /// No other day is over.
    NothingLeft,
    /// Somebody must look.
    Unproven,
}

/// The closing of days, which this process has claimed.
struct DayClosing<'a> {
    db: &'a Db,
    clock: &'a Clock,
    /// When the claim ends, which also identifies it.
    held: Timestamp,
    /// The store's own sums of all blocks up to `summed`.
    sums: Sums,
    summed: i64,
}

/// What was done to each account, in minor units, by account and currency. No ledger's sum is too
/// large for it.
type Sums = BTreeMap<(String, String), i128>;

/// Claims what is due by `due`, until `until`.
async fn claim(db: &Db, due: Timestamp, until: Timestamp) -> Result<Update> {
    let mut tx = db.begin().await?;
    let claimed = store::works::claim(&mut tx, Duty::CloseDays.code(), due, until).await?;
    tx.commit().await?;
    Ok(claimed)
}

async fn is_due(conn: &mut Conn, clock: &Clock) -> Result<bool> {
    if store::days::first_unproven(conn).await?.is_some() {
        return Ok(true);
    }
    let open = open_day(conn).await?;
    Ok(open.is_some_and(|open| open.day.end() <= clock.now()))
}

/// The day that is closed next, without its last block. `None` if nothing was ever sealed.
async fn open_day(conn: &mut Conn) -> Result<Option<ClosedDay>> {
    let (day, after_block) = match store::days::last_closed(conn).await? {
        Some(closed) => (closed.day.next(), closed.last_block),
        None => match store::days::first_sealed_at(conn).await? {
            Some(first) => (Day::of(first), 0),
            None => return Ok(None),
        },
    };
    Ok(Some(ClosedDay {
        day,
        after_block,
        last_block: after_block,
    }))
}

/// Determines once and for all which blocks are the next day's.
async fn bound(db: &Db, clock: &Clock) -> Result<Option<ClosedDay>> {
    let mut tx = db.begin().await?;
    store::days::lock_sealing(&mut tx).await?;
    let Some(open) = open_day(&mut tx).await? else {
        return Ok(None);
    };
    let now = clock.now();
    if open.day.end() > now {
        return Ok(None);
    }
    let later = store::days::block_since(&mut tx, open.after_block, open.day.end()).await?;
    let last_block = match later {
        Some(later) => later - 1,
        None => store::blocks::last_number(&mut tx).await?,
    };
    let day = ClosedDay { last_block, ..open };
    if store::days::close(&mut tx, &day, now).await? == Insert::AlreadyThere {
        return Ok(None);
    }
    tx.commit().await?;
    Ok(Some(day))
}

impl<'a> DayClosing<'a> {
    /// `None` if another replica has the duty, or it rests.
    async fn begin(db: &'a Db, clock: &'a Clock) -> Result<Option<Self>> {
        let now = clock.real_now();
        let held = now + LEASE;
        let claimed = claim(db, now, held).await?;
        Ok((claimed == Update::Updated).then(|| Self {
            db,
            clock,
            held,
            sums: Sums::new(),
            summed: 0,
        }))
    }

    /// Renews the claim if it ends soon. Fails if another process has taken over.
    async fn renew(&mut self) -> Result<()> {
        let now = self.clock.real_now();
        if self.held.since(now) >= RENEW_WITHIN {
            return Ok(());
        }
        let until = now + LEASE;
        if claim(self.db, self.held, until).await? == Update::NotThere {
            return Err(Error::TakenOver);
        }
        self.held = until;
        Ok(())
    }

    async fn end(self, rest: Duration) -> Result<()> {
        let due = self.clock.real_now() + rest;
        // If another process has taken over, the claim stays with that one.
        let (Update::Updated | Update::NotThere) = claim(self.db, self.held, due).await?;
        Ok(())
    }

    /// Proves the first day that is not proven, after closing one if all are.
    async fn close_next(&mut self) -> Result<Outcome> {
        let unproven = store::days::first_unproven(&mut self.db.read().await?).await?;
        let day = match unproven {
            Some(day) => Some(day),
            None => bound(self.db, self.clock).await?,
        };
        match day {
            Some(day) => self.prove(&day).await,
            None => Ok(Outcome::NothingLeft),
        }
    }

    /// Writes the day's balances, and compares them with everything that was ever sealed.
    async fn prove(&mut self, day: &ClosedDay) -> Result<Outcome> {
        let Some(movements) = self.movements(day).await? else {
            count_error(Wrong::ChangedBlock, 1);
            tracing::error!(
                day = %day.day,
                "the day's blocks are not as they were sealed, so it has no statements"
            );
            return Ok(Outcome::Unproven);
        };
        let mut tx = self.db.begin().await?;
        store::days::write_balances(&mut tx, day.day, &movements).await?;
        tx.commit().await?;
        self.sum(day.last_block).await?;
        let differences = self.differences(day.day).await?;
        if !differences.is_empty() {
            show_difference(&differences);
            log_differences(day.day, &differences);
            return Ok(Outcome::Unproven);
        }
        let mut tx = self.db.begin().await?;
        store::days::prove(&mut tx, day.day, self.clock.now()).await?;
        tx.commit().await?;
        show_no_difference();
        tracing::info!(
            day = %day.day,
            blocks = day.last_block - day.after_block,
            accounts = movements.len(),
            "the day is closed and proven"
        );
        Ok(Outcome::Proven)
    }

    /// What the day's lines did to each account. `None` if a block is not as it was sealed.
    async fn movements(&mut self, day: &ClosedDay) -> Result<Option<Movements>> {
        let mut movements = Movements::new();
        let mut from = day.after_block;
        let mut previous = store::blocks::hash(&mut self.db.read().await?, from).await?;
        while from < day.last_block {
            let to = (from + RANGE).min(day.last_block);
            let read = read_blocks(&mut self.db.read().await?, from, to, &previous).await?;
            let Some(read) = read else {
                return Ok(None);
            };
            for (block, lines) in read {
                previous = block.hash;
                for line in &lines {
                    if add(&mut movements, line).is_none() {
                        return Ok(None);
                    }
                }
            }
            from = to;
            self.renew().await?;
        }
        Ok(Some(movements))
    }

    /// Has the store sum the blocks up to this one that it has not summed in this closing.
    async fn sum(&mut self, last_block: i64) -> Result<()> {
        while self.summed < last_block {
            let to = (self.summed + SUMMED_RANGE).min(last_block);
            let mut survey = self.db.survey().await?;
            let sums = store::days::sums(&mut survey, self.summed, to).await?;
            drop(survey);
            for sum in sums {
                let of_account = self.sums.entry((sum.account, sum.currency)).or_default();
                *of_account += i128::from(sum.minor);
            }
            self.summed = to;
            self.renew().await?;
        }
        Ok(())
    }

    /// The accounts whose balance at the end of the day, up to which the blocks were summed, is not
    /// the sum of everything that was ever sealed, each with the sum less the balance.
    async fn differences(&mut self, day: Day) -> Result<Sums> {
        let mut differences = self.sums.clone();
        let (mut account, mut currency) = (String::new(), String::new());
        loop {
            let after = (account.as_str(), currency.as_str());
            let mut survey = self.db.survey().await?;
            let closings = store::days::closings(&mut survey, day, after, COMPARED_RANGE).await?;
            drop(survey);
            self.renew().await?;
            let Some(last) = closings.last() else {
                break;
            };
            (account, currency) = (last.account.clone(), last.currency.clone());
            for closing in closings {
                let left = differences
                    .entry((closing.account, closing.currency))
                    .or_default();
                *left -= i128::from(closing.minor);
            }
        }
        differences.retain(|_, left| *left != 0);
        Ok(differences)
    }
}

/// Shows by how much the accounts of the last day tried differ together. A gauge counts to 42
/// million cedis, which is reason enough to look.
fn show_difference(differences: &Sums) {
    let whole: u128 = differences.values().map(|left| left.unsigned_abs()).sum();
    let shown = u32::try_from(whole).unwrap_or(u32::MAX);
    metrics::gauge!("statement_difference_minor").set(shown);
}

pub fn show_no_difference() {
    show_difference(&Sums::new());
}

fn log_differences(day: Day, differences: &Sums) {
    count_error(Wrong::Difference, differences.len());
    for ((account, currency), difference_minor) in differences.iter().take(DIFFERENCES_LOGGED_MAX) {
        tracing::error!(
            %day,
            account,
            currency,
            difference_minor,
            "the account's balance is not the sum of its postings, so the day has no statements"
        );
    }
}

/// What can be wrong with a day.
#[derive(Clone, Copy, Debug)]
pub enum Wrong {
    /// Sums of an account that should be the same are not.
    Difference,
    /// A block is not as it was sealed.
    ChangedBlock,
}

/// Counts something that should never be.
pub fn count_error(wrong: Wrong, count: usize) {
    let reason = match wrong {
        Wrong::Difference => "difference",
        Wrong::ChangedBlock => "changed_block",
    };
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    metrics::counter!("statement_errors_total", "reason" => reason).increment(count);
}

/// The blocks after `from`, up to `to`, with their lines, if every hash is as it was sealed, and
/// the first follows the block with the hash `previous`.
pub async fn read_blocks(
    conn: &mut Conn,
    from: i64,
    to: i64,
    previous: &str,
) -> Result<Option<Vec<(seal::Block, Vec<SealedLine>)>>> {
    let mut blocks = store::blocks::list(conn, from, to).await?;
    blocks.sort_by_key(|block| block.number);
    let mut lines: BTreeMap<i64, Vec<SealedLine>> = BTreeMap::new();
    for placed in store::blocks::lines(conn, from, to).await? {
        lines.entry(placed.block).or_default().push(placed.line);
    }
    let mut read = Vec::new();
    let mut previous = previous.to_owned();
    for (number, block) in (from + 1..=to).zip(blocks) {
        let mut lines = lines.remove(&number).unwrap_or_default();
        let hash = seal::hash(&previous, number, block.sealed_at, &lines);
        if block.number != number || block.hash != hash || !seal::unbalanced(&lines).is_empty() {
            return Ok(None);
        }
        seal::sort(&mut lines);
        previous.clone_from(&block.hash);
        read.push((block, lines));
    }
    let is_whole = i64::try_from(read.len()) == Ok(to - from);
    Ok(is_whole.then_some(read))
}

/// `None` if the line's posting is gone, or no balance can hold the sum.
fn add(movements: &mut Movements, line: &SealedLine) -> Option<()> {
    let (account, currency) = (line.account.clone()?, line.currency.clone()?);
    let (amount_minor, posted_at) = (line.amount_minor?, line.posted_at?);
    let movement = movements.entry((account, currency)).or_insert(Movement {
        sum_minor: 0,
        first_posted_at: posted_at,
        last_posted_at: posted_at,
    });
    movement.sum_minor = movement.sum_minor.checked_add(amount_minor)?;
    movement.first_posted_at = movement.first_posted_at.min(posted_at);
    movement.last_posted_at = movement.last_posted_at.max(posted_at);
    Some(())
}
