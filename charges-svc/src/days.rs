//! Closes the ledger's days, and proves what each account had at their ends.
//!
//! Promises: what a closed day consists of never changes, because it is closed under the lock under
//! which blocks are sealed, and no block is sealed in it afterwards. A day is proven only if two
//! independent ways agree for every account: the balance of the day before plus the day's lines,
//! read block by block against their hashes and added here; and the store's own sum of everything
//! ever sealed. Otherwise it stays unproven, without statements, and somebody must look.

use std::{collections::BTreeMap, time::Duration};

use chassis::clock::{Clock, Day, Timestamp};
use db::{Conn, Db, Insert, Update};

use crate::{
    error::Result,
    seal::{self, SealedLine},
    store::{
        self,
        blocks::Duty,
        days::{ClosedDay, Movement, Movements},
    },
};

/// A day whose closing process died is taken over after this. Longer than proving takes, which is
/// a survey.
const LEASE: Duration = Duration::from_secs(15 * 60);

/// After a day that could not be proven.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// How many blocks are read at once.
const RANGE: i64 = 20;

/// Closes and proves every day that is over, one after the other. Stops if another replica is at
/// it, or if a day cannot be proven. Returns the number of days proven.
pub async fn close(db: &Db, clock: &Clock) -> Result<u64> {
    let mut days = 0;
    while is_due(&mut db.read().await?, clock).await? {
        let held = clock.real_now() + LEASE;
        if claim(db, clock.real_now(), held).await? == Update::NotThere {
            return Ok(days);
        }
        let proven = close_next(db, clock).await;
        let rest = match proven {
            Ok(true) => Duration::ZERO,
            Ok(false) | Err(_) => LOOK_AGAIN,
        };
        // If another process has taken over, the claim stays with that one.
        let (Update::Updated | Update::NotThere) = claim(db, held, clock.real_now() + rest).await?;
        if !proven? {
            return Ok(days);
        }
        days += 1;
    }
    Ok(days)
}

/// Claims what is due by `due`, until `until`.
async fn claim(db: &Db, due: Timestamp, until: Timestamp) -> Result<Update> {
    let mut tx = db.begin().await?;
    let claimed = store::blocks::claim(&mut tx, Duty::CloseDays, due, until).await?;
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

/// Returns whether a day was proven.
async fn close_next(db: &Db, clock: &Clock) -> Result<bool> {
    let unproven = store::days::first_unproven(&mut db.read().await?).await?;
    let day = match unproven {
        Some(day) => day,
        None => match bound(db, clock).await? {
            Some(day) => day,
            None => return Ok(false),
        },
    };
    prove(db, clock, &day).await
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

/// Writes the day's balances, and compares them with everything that was ever sealed. Returns
/// whether the day is proven.
async fn prove(db: &Db, clock: &Clock, day: &ClosedDay) -> Result<bool> {
    let Some(movements) = movements(db, day).await? else {
        tracing::error!(
            day = %day.day,
            "the day's blocks are not as they were sealed, so it has no statements"
        );
        return Ok(false);
    };
    let mut tx = db.begin().await?;
    store::days::write_balances(&mut tx, day.day, &movements).await?;
    tx.commit().await?;
    let differences = store::days::differences(&mut *db.survey().await?, day).await?;
    let mut total = 0_u64;
    for found in &differences {
        total = total.saturating_add(found.difference_minor.unsigned_abs());
        tracing::error!(
            day = %day.day,
            account = found.account,
            currency = found.currency,
            difference_minor = found.difference_minor,
            "the account's balance is not the sum of its postings, so the day has no statements"
        );
    }
    show_difference(total);
    if !differences.is_empty() {
        return Ok(false);
    }
    let mut tx = db.begin().await?;
    store::days::prove(&mut tx, day.day, clock.now()).await?;
    tx.commit().await?;
    tracing::info!(
        day = %day.day,
        blocks = day.last_block - day.after_block,
        accounts = movements.len(),
        "the day is closed and proven"
    );
    Ok(true)
}

/// What the last comparison of balances with sums found, over all accounts, in minor units. It
/// should be 0 for ever.
pub fn show_difference(minor: u64) {
    // A gauge is an `f64`, which converts from a `u32` but not from a `u64`.
    let shown = u32::try_from(minor).unwrap_or(u32::MAX);
    metrics::gauge!("statement_difference_minor").set(shown);
}

/// What the day's lines did to each account. `None` if a block is not as it was sealed.
async fn movements(db: &Db, day: &ClosedDay) -> Result<Option<Movements>> {
    let mut movements = Movements::new();
    let mut from = day.after_block;
    let mut previous = store::blocks::hash(&mut db.read().await?, from).await?;
    while from < day.last_block {
        let to = (from + RANGE).min(day.last_block);
        let Some(read) = read_blocks(&mut db.read().await?, from, to, &previous).await? else {
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
    }
    Ok(Some(movements))
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
