//! Keeps the books: seals postings in blocks, and looks whether the ledger is still as it was
//! written. One replica does it for all, beside serving.
//!
//! Promise: a byte of a sealed posting that is changed, and a posting that is missing or was put
//! beside, is found and told. Nothing waits for it: a settlement only notes that its posting is to
//! be sealed.

use std::{fmt, sync::Arc, time::Duration};

use chassis::{clock::Clock, money::Money, shutdown::Shutdown};
use db::{Conn, Db};
use uuid::Uuid;

use crate::{
    error::Result,
    seal::{self, Block},
    service::Service,
    store::{
        self,
        blocks::{Checked, Work},
    },
};

/// How long a posting waits for its block, about.
const SEAL_EVERY: Duration = Duration::from_secs(5);

/// Postings of one block: a transaction of milliseconds.
const BLOCK_MAX: i64 = 500;

/// How soon new blocks are looked at.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// How often everything is.
const WHOLE_EVERY: Duration = Duration::from_secs(6 * 60 * 60);

/// A check whose process died is begun again after this. Longer than looking at everything takes.
const CHECK_LEASE: Duration = Duration::from_secs(60 * 60);

/// Findings that one check tells; there is something to do after the first.
const FINDINGS_MAX: usize = 1_000;

/// Postings without a block that one check gives to one.
const STRAYS_MAX: i64 = 1_000;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The block's postings are not those that it was sealed over.
    Changed { block: i64 },
    /// The block is gone.
    NoBlock { block: i64 },
    /// A sealed posting is gone.
    Gone { kind: String, subject: Uuid },
    /// The posting does not sum to zero in each currency.
    Unbalanced { kind: String, subject: Uuid },
    /// The posting is in no block and waited for none.
    Stray { kind: String, subject: Uuid },
    /// A currency of the ledger does not sum to zero.
    Sum(Money),
    /// The account's balance is missing, or is not what was posted.
    Balance { account: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { block } => {
                write!(
                    f,
                    "block {block} is not as it was sealed, or the one before it"
                )
            }
            Self::NoBlock { block } => write!(f, "block {block} is gone"),
            Self::Gone { kind, subject } => {
                write!(f, "the sealed posting {kind} {subject} is gone")
            }
            Self::Unbalanced { kind, subject } => {
                write!(f, "the posting {kind} {subject} does not sum to zero")
            }
            Self::Stray { kind, subject } => {
                write!(f, "the posting {kind} {subject} did not wait to be sealed")
            }
            Self::Sum(sum) => write!(f, "the ledger does not sum to zero but to {sum}"),
            Self::Balance { account } => {
                write!(
                    f,
                    "the balance of {account} is missing or not what was posted"
                )
            }
        }
    }
}

/// Seals and checks until the process stops.
pub async fn keep(service: Arc<Service>, shutdown: Shutdown) {
    let (db, clock) = (&service.db, &service.clock);
    let turn = async || {
        if let Err(error) = seal(db, clock).await {
            // Also where another replica sealed at the same moment.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "postings wait to be sealed"
            );
        }
        if let Err(error) = check(db, clock).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the ledger is not checked"
            );
        }
    };
    while !shutdown.has_begun() {
        tokio::select! {
            () = shutdown.wait() => break,
            () = async { tokio::time::sleep(SEAL_EVERY).await; turn().await } => {}
        }
    }
}

/// Seals what waits, unless another replica does. Returns the number of blocks.
pub async fn seal(db: &Db, clock: &Clock) -> Result<u64> {
    if !store::blocks::has_unsealed(&mut db.read().await?).await? {
        return Ok(0);
    }
    let (mut due, mut blocks) = (clock.real_now(), 0);
    loop {
        let until = clock.real_now() + SEAL_EVERY;
        let mut tx = db.begin().await?;
        if !store::blocks::claim(&mut tx, Work::Seal, due, until).await? {
            return Ok(blocks);
        }
        let last = store::blocks::last(&mut tx).await?;
        let (number, previous) =
            last.map_or((1, String::new()), |last| (last.number + 1, last.hash));
        let filled = store::blocks::fill(&mut tx, number, BLOCK_MAX).await?;
        if filled.taken == 0 {
            return Ok(blocks);
        }
        if filled.sealed > 0 {
            let lines = store::blocks::lines(&mut tx, number).await?;
            let sealed_at = clock.now();
            let hash = seal::hash(&previous, number, sealed_at, &lines);
            let block = Block {
                number,
                hash,
                sealed_at,
            };
            store::blocks::insert(&mut tx, &block).await?;
            tx.commit().await?;
            // Kept elsewhere, a hash also witnesses against who could write all blocks anew.
            tracing::info!(
                block.number,
                block.hash,
                postings = filled.sealed,
                "postings are sealed"
            );
            blocks += 1;
        } else {
            tx.commit().await?;
        }
        due = until;
        if i64::try_from(filled.taken).is_ok_and(|taken| taken < BLOCK_MAX) {
            return Ok(blocks);
        }
    }
}

/// Looks at the blocks since the last check and, every few hours, at everything. `None`: it is not
/// due, or another replica is at it.
pub async fn check(db: &Db, clock: &Clock) -> Result<Option<Vec<Finding>>> {
    let real_now = clock.real_now();
    let mut checked = store::blocks::checked(&mut db.read().await?).await?;
    if checked.next_at > real_now {
        return Ok(None);
    }
    let mut tx = db.begin().await?;
    let until = real_now + CHECK_LEASE;
    if !store::blocks::claim(&mut tx, Work::Check, real_now, until).await? {
        return Ok(None);
    }
    tx.commit().await?;
    let is_whole = checked
        .whole_at
        .is_none_or(|at| clock.now().since(at) >= WHOLE_EVERY);
    let mut findings = Vec::new();
    let from = if is_whole { 0 } else { checked.block };
    let last = check_blocks(db, from, checked.block, &mut findings).await?;
    if is_whole {
        check_whole(db, &mut findings).await?;
    }
    tell(&findings, last, is_whole);
    checked = Checked {
        next_at: clock.real_now() + CHECK_EVERY,
        block: last,
        ended_at: Some(clock.now()),
        whole_at: if is_whole {
            Some(clock.now())
        } else {
            checked.whole_at
        },
    };
    let mut tx = db.begin().await?;
    store::blocks::end_check(&mut tx, &checked).await?;
    tx.commit().await?;
    Ok(Some(findings))
}

/// The blocks after `from`, and whether all are there that were there before. Returns the last.
async fn check_blocks(db: &Db, from: i64, seen: i64, findings: &mut Vec<Finding>) -> Result<i64> {
    let mut conn = db.read().await?;
    let last = store::blocks::last(&mut conn)
        .await?
        .map_or(0, |last| last.number);
    let before = store::blocks::find(&mut conn, from).await?;
    drop(conn);
    findings.extend(
        (last + 1..=seen)
            .take(1)
            .map(|block| Finding::NoBlock { block }),
    );
    let mut previous = before.map(|block| block.hash).unwrap_or_default();
    for number in from + 1..=last {
        // A connection for each: others wait for one, too.
        let mut conn = db.read().await?;
        match store::blocks::find(&mut conn, number).await? {
            Some(block) => {
                check_block(&mut conn, &previous, &block, findings).await?;
                previous = block.hash;
            }
            None => findings.push(Finding::NoBlock { block: number }),
        }
        if findings.len() >= FINDINGS_MAX {
            findings.truncate(FINDINGS_MAX);
            break;
        }
    }
    Ok(last)
}

async fn check_block(
    conn: &mut Conn,
    previous: &str,
    block: &Block,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let number = block.number;
    let lines = match store::blocks::lines(conn, number).await {
        Ok(lines) => lines,
        // What was put there is not even of its column's kind.
        Err(db::Error::ColumnDecode { .. } | db::Error::Decode(_)) => {
            findings.push(Finding::Changed { block: number });
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if seal::hash(previous, number, block.sealed_at, &lines) != block.hash {
        findings.push(Finding::Changed { block: number });
    }
    let gone = lines.iter().filter(|line| line.line.is_none());
    findings.extend(gone.map(|line| Finding::Gone {
        kind: line.kind.clone(),
        subject: line.subject,
    }));
    let unbalanced = seal::unbalanced(&lines).into_iter();
    findings.extend(unbalanced.map(|(kind, subject)| Finding::Unbalanced { kind, subject }));
    Ok(())
}

/// What no single block shows: sums, balances, and postings that are in none.
async fn check_whole(db: &Db, findings: &mut Vec<Finding>) -> Result<()> {
    let mut survey = db.survey().await?;
    let sums = store::postings::imbalances(&mut survey).await?;
    let balances = store::postings::false_balances(&mut survey).await?;
    let strays = store::blocks::strays(&mut survey, STRAYS_MAX).await?;
    drop(survey);
    findings.extend(sums.into_iter().map(Finding::Sum));
    findings.extend(
        balances
            .into_iter()
            .map(|account| Finding::Balance { account }),
    );
    if strays.is_empty() {
        return Ok(());
    }
    let mut tx = db.begin().await?;
    for (kind, subject) in &strays {
        store::blocks::queue(&mut tx, kind, *subject).await?;
    }
    tx.commit().await?;
    let strays = strays.into_iter();
    findings.extend(strays.map(|(kind, subject)| Finding::Stray { kind, subject }));
    Ok(())
}

fn tell(findings: &[Finding], last: i64, is_whole: bool) {
    for finding in findings {
        tracing::error!(%finding, "the ledger is wrong");
        metrics::counter!("ledger_errors_total").increment(1);
    }
    let findings = findings.len();
    if is_whole {
        tracing::info!(block = last, findings, "the whole ledger was checked");
    } else {
        tracing::debug!(
            block = last,
            findings,
            "the ledger's new blocks were checked"
        );
    }
}
