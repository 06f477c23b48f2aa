//! Keeps the books: seals postings in blocks, and checks that the ledger is still as it was
//! written. One replica at a time does each duty for all.
//!
//! Promise: a changed byte of a sealed posting, a missing posting and one that somebody else added
//! are found and reported. Nothing waits for this: a settlement only queues its posting to be
//! sealed.

use std::{collections::BTreeMap, fmt, time::Duration};

use chassis::{
    clock::{Clock, Timestamp},
    error_chain::chain,
    money::Money,
    shutdown::Shutdown,
};
use db::{
    Db, Tx, Update,
    work::{Claimed, TaskSet, Work},
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    days,
    error::Result,
    seal::{self, Block, SealedLine},
    store::{
        self,
        blocks::{BlockLine, Duty},
        works::Checkpoint,
    },
};

/// How often each replica checks whether there is something to seal, or a day to close.
const LOOK_OFTEN: Duration = Duration::from_secs(5);

/// How often each replica asks whether a check is due, which reads one row by its key while none
/// is.
const LOOK_TO_CHECK: Duration = Duration::from_secs(15);

/// A block that is not full is sealed once its oldest posting has waited this long, so that quiet
/// hours make few blocks.
const SEAL_AFTER: Duration = Duration::from_secs(60);

/// Most postings in one block, which keeps its transaction to milliseconds.
const BLOCK_MAX: i64 = 500;

/// How many postings from before the queue existed one transaction queues.
const QUEUED_MAX: i64 = 2_000;

/// How often new blocks are checked.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// How often the whole ledger is checked.
const WHOLE_CHECK_EVERY: Duration = Duration::from_secs(6 * 60 * 60);

/// A check whose process died is taken over after this, from where it stopped. Longer than its
/// longest step, which is a survey.
const CHECK_LEASE: Duration = Duration::from_secs(15 * 60);

/// How many blocks a check reads at once.
const RANGE: i64 = 20;

/// How many findings one check reports. The first is reason enough to act.
const FINDINGS_MAX: usize = 1_000;

/// How many postings without a block one check queues for one.
const UNQUEUED_MAX: i64 = 1_000;

/// Something wrong with the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The block, its postings or the block before it are not as they were sealed.
    Changed { block: i64 },
    /// The block is gone.
    NoBlock { block: i64 },
    /// A sealed posting is gone.
    Gone { kind: String, subject: Uuid },
    /// The posting does not sum to zero in each currency.
    Unbalanced { kind: String, subject: Uuid },
    /// The posting is in no block and was not queued for one.
    Unqueued { kind: String, subject: Uuid },
    /// A currency of the ledger does not sum to zero.
    Sum(Money),
    /// The account's balance is missing or is not the sum of its postings.
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
            Self::Unqueued { kind, subject } => {
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

/// Does one duty whenever it is due, which each replica checks every few seconds. Each duty is a
/// work of its own, so none waits for another.
#[derive(Debug)]
pub struct Bookkeeper {
    db: Db,
    clock: Clock,
    shutdown: Shutdown,
    duty: Duty,
    looked_at: Instant,
}

impl Bookkeeper {
    pub fn new(duty: Duty, db: &Db, clock: &Clock, shutdown: &Shutdown) -> Self {
        Self {
            db: db.clone(),
            clock: clock.clone(),
            shutdown: shutdown.clone(),
            duty,
            looked_at: Instant::now(),
        }
    }

    fn look_every(&self) -> Duration {
        match self.duty {
            Duty::Seal | Duty::CloseDays => LOOK_OFTEN,
            Duty::CheckNew | Duty::CheckWhole => LOOK_TO_CHECK,
        }
    }
}

/// The name of a duty's work.
pub fn name(duty: Duty) -> &'static str {
    match duty {
        Duty::Seal => "charges: seal",
        Duty::CheckNew => "charges: check new blocks",
        Duty::CheckWhole => "charges: check the whole ledger",
        Duty::CloseDays => "charges: close days",
    }
}

impl Work for Bookkeeper {
    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        // It runs by real time, so time travel need not wait for it.
        let is_due = self.looked_at.elapsed() >= self.look_every();
        Ok(is_due.then(|| self.clock.now()))
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        self.looked_at = Instant::now();
        let (duty, db, clock) = (self.duty, self.db.clone(), self.clock.clone());
        let shutdown = self.shutdown.clone();
        tasks.start(async move {
            tokio::select! {
                // A check of the whole ledger would delay the shutdown. Another process continues
                // it from where it stopped.
                () = shutdown.wait() => {}
                () = turn(duty, &db, &clock) => {}
            }
        });
        Ok(Claimed::All)
    }
}

async fn turn(duty: Duty, db: &Db, clock: &Clock) {
    let (done, otherwise) = match duty {
        // This can also fail because another replica sealed at the same moment.
        Duty::Seal => (
            seal(db, clock).await.map(drop),
            "postings wait to be sealed",
        ),
        Duty::CheckNew => (
            check_new(db, clock).await.map(drop),
            "the ledger's new blocks are not checked",
        ),
        Duty::CheckWhole => (
            check_whole(db, clock).await.map(drop),
            "the whole ledger is not checked",
        ),
        Duty::CloseDays => (
            days::close(db, clock).await.map(drop),
            "a day that is over is not closed",
        ),
    };
    if let Err(error) = done {
        tracing::warn!(error = %chain(&error), "{otherwise}");
    }
}

/// Seals the waiting postings: full blocks at once, a partial one once its oldest posting has
/// waited long enough. Stops if another replica is sealing. Returns the number of blocks sealed.
pub async fn seal(db: &Db, clock: &Clock) -> Result<u64> {
    let (mut due, mut blocks) = (clock.real_now(), 0);
    loop {
        let waiting = store::blocks::waiting(&mut db.read().await?, BLOCK_MAX).await?;
        let is_full = waiting.count >= BLOCK_MAX;
        if !is_full && waiting.all_queued_at.is_none() {
            let mut tx = db.begin().await?;
            store::blocks::queue_old(&mut tx, QUEUED_MAX, clock.now()).await?;
            tx.commit().await?;
            continue;
        }
        let has_waited = |oldest| clock.now().since(oldest) >= SEAL_AFTER;
        if !is_full && !waiting.oldest.is_some_and(has_waited) {
            return Ok(blocks);
        }
        let until = clock.real_now() + LOOK_OFTEN;
        let mut tx = db.begin().await?;
        if store::works::claim(&mut tx, Duty::Seal.code(), due, until).await? == Update::NotThere {
            return Ok(blocks);
        }
        due = until;
        let last = store::blocks::last(&mut tx).await?;
        let sealed_at = sealing_time(&mut tx, last.as_ref(), clock.now()).await?;
        let (number, previous) =
            last.map_or((1, String::new()), |last| (last.number + 1, last.hash));
        let filled = store::blocks::fill(&mut tx, number, BLOCK_MAX).await?;
        if filled == 0 {
            // All of them were already in a block.
            tx.commit().await?;
            continue;
        }
        let placed = store::blocks::lines(&mut tx, number - 1, number).await?;
        let lines: Vec<SealedLine> = placed.into_iter().map(|placed| placed.line).collect();
        let hash = seal::hash(&previous, number, sealed_at, &lines);
        let block = Block {
            number,
            hash,
            sealed_at,
        };
        store::blocks::insert(&mut tx, &block).await?;
        tx.commit().await?;
        // A copy of this hash kept elsewhere exposes even somebody who rewrites every block.
        tracing::info!(
            block.number,
            block.hash,
            postings = filled,
            "postings are sealed"
        );
        blocks += 1;
    }
}

/// When a block is sealed: not before the last one, and not in a day that is closed, whatever this
/// replica's clock says.
async fn sealing_time(tx: &mut Tx, last: Option<&Block>, now: Timestamp) -> Result<Timestamp> {
    let closed = store::days::last_closed(tx).await?;
    let earliest = last.map(|last| last.sealed_at);
    let earliest = earliest.max(closed.map(|closed| closed.day.end()));
    Ok(earliest.map_or(now, |earliest| earliest.max(now)))
}

/// Checks the blocks since the last check. `None` if it is not due or another replica is doing it.
pub async fn check_new(db: &Db, clock: &Clock) -> Result<Option<Vec<Finding>>> {
    let Some(mut check) = Check::begin(db, clock, Duty::CheckNew).await? else {
        return Ok(None);
    };
    let seen = check.block;
    if check.blocks(seen).await? == CheckClaim::Lost {
        return Ok(None);
    }
    let block = check.block;
    check.end(block).await
}

/// Checks the whole ledger, every few hours. `None` as for [`check_new`], or if too many postings
/// wait to be sealed.
pub async fn check_whole(db: &Db, clock: &Clock) -> Result<Option<Vec<Finding>>> {
    let mut conn = db.read().await?;
    let checkpoint = store::works::checkpoint(&mut conn, Duty::CheckWhole.code()).await?;
    let has_rested = |ended_at| clock.now().since(ended_at) >= WHOLE_CHECK_EVERY;
    if checkpoint.next_at > clock.real_now() || !checkpoint.ended_at.is_none_or(has_rested) {
        return Ok(None);
    }
    let waiting = store::blocks::waiting(&mut conn, BLOCK_MAX).await?;
    drop(conn);
    if waiting.all_queued_at.is_none() || waiting.count >= BLOCK_MAX {
        return Ok(None);
    }
    let Some(mut check) = Check::begin(db, clock, Duty::CheckWhole).await? else {
        return Ok(None);
    };
    let seen = store::works::checkpoint(&mut db.read().await?, Duty::CheckNew.code()).await?;
    if check.blocks(seen.block).await? == CheckClaim::Lost
        || check.sums().await? == CheckClaim::Lost
        || check.unqueued().await? == CheckClaim::Lost
    {
        return Ok(None);
    }
    // The next check starts from the first block.
    check.end(0).await
}

/// `None` if a stored value does not even decode as its column's type.
fn readable<T>(read: std::result::Result<T, db::Error>) -> Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(db::Error::ColumnDecode { .. } | db::Error::Decode(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Counts this many findings.
pub fn count_errors(found: u64) {
    metrics::counter!("ledger_errors_total").increment(found);
}

/// Whether a check is still this process's, after a step of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckClaim {
    Held,
    /// Another process has taken the check over.
    Lost,
}

/// A check that this process has claimed.
struct Check<'a> {
    db: &'a Db,
    clock: &'a Clock,
    duty: Duty,
    /// As it is stored. `next_at`, when the claim ends, also identifies the claim.
    noted: Checkpoint,
    /// The last block that was checked.
    block: i64,
    findings: Vec<Finding>,
}

impl<'a> Check<'a> {
    async fn begin(db: &'a Db, clock: &'a Clock, duty: Duty) -> Result<Option<Self>> {
        let real_now = clock.real_now();
        let checkpoint = store::works::checkpoint(&mut db.read().await?, duty.code()).await?;
        if checkpoint.next_at > real_now {
            return Ok(None);
        }
        let mut tx = db.begin().await?;
        let until = real_now + CHECK_LEASE;
        if store::works::claim(&mut tx, duty.code(), real_now, until).await? == Update::NotThere {
            return Ok(None);
        }
        let noted = store::works::checkpoint(&mut tx, duty.code()).await?;
        tx.commit().await?;
        Ok(Some(Self {
            db,
            clock,
            duty,
            block: noted.block,
            noted,
            findings: Vec::new(),
        }))
    }

    /// Renews the claim and stores the checkpoint, from which anybody who takes over continues.
    async fn renew(&mut self) -> Result<CheckClaim> {
        let next = Checkpoint {
            next_at: self.clock.real_now() + CHECK_LEASE,
            block: self.block,
            ..self.noted
        };
        self.note(next).await
    }

    /// `None` if another process has taken the check over.
    async fn end(mut self, block: i64) -> Result<Option<Vec<Finding>>> {
        let next = Checkpoint {
            next_at: self.clock.real_now() + CHECK_EVERY,
            block,
            ended_at: Some(self.clock.now()),
        };
        if self.note(next).await? == CheckClaim::Lost {
            return Ok(None);
        }
        let (block, findings) = (self.block, self.findings.len());
        match self.duty {
            Duty::CheckWhole => tracing::info!(block, findings, "the whole ledger was checked"),
            _ => tracing::debug!(block, findings, "the ledger's new blocks were checked"),
        }
        Ok(Some(self.findings))
    }

    async fn note(&mut self, next: Checkpoint) -> Result<CheckClaim> {
        let mut tx = self.db.begin().await?;
        let held = self.noted.next_at;
        if store::works::note(&mut tx, self.duty.code(), held, &next).await? == Update::NotThere {
            return Ok(CheckClaim::Lost);
        }
        tx.commit().await?;
        self.noted = next;
        Ok(CheckClaim::Held)
    }

    fn tell(&mut self, finding: Finding) {
        count_errors(1);
        if self.findings.len() < FINDINGS_MAX {
            tracing::error!(%finding, "the ledger is wrong");
            self.findings.push(finding);
        }
    }

    /// Checks the blocks after the last checked one, and that all blocks up to `seen` exist.
    async fn blocks(&mut self, seen: i64) -> Result<CheckClaim> {
        let mut conn = self.db.read().await?;
        let last = store::blocks::last_number(&mut conn).await?;
        self.block = self.block.min(last);
        let mut previous = store::blocks::hash(&mut conn, self.block).await?;
        drop(conn);
        if last < seen {
            self.tell(Finding::NoBlock { block: last + 1 });
        }
        let mut range = RANGE;
        while self.block < last {
            let to = last.min(self.block + range);
            // One connection per range, because others are waiting for connections, too.
            let mut conn = self.db.read().await?;
            let blocks = readable(store::blocks::list(&mut conn, self.block, to).await)?;
            let placed = readable(store::blocks::lines(&mut conn, self.block, to).await)?;
            if (blocks.is_none() || placed.is_none()) && to > self.block + 1 {
                // Find out which block it is.
                range = 1;
                continue;
            }
            range = RANGE;
            if let Some(blocks) = blocks {
                self.range(to, blocks, placed, &mut previous);
            } else {
                self.tell(Finding::Changed { block: to });
                previous = store::blocks::hash(&mut conn, to).await?;
                self.block = to;
            }
            drop(conn);
            if self.renew().await? == CheckClaim::Lost {
                return Ok(CheckClaim::Lost);
            }
        }
        Ok(CheckClaim::Held)
    }

    /// Checks the blocks up to `to`, which follow one with the hash `previous`. `placed` is `None`
    /// if their lines cannot be read.
    fn range(
        &mut self,
        to: i64,
        blocks: Vec<Block>,
        placed: Option<Vec<BlockLine>>,
        previous: &mut String,
    ) {
        let mut blocks: BTreeMap<i64, Block> = blocks
            .into_iter()
            .map(|block| (block.number, block))
            .collect();
        let mut lines: BTreeMap<i64, Vec<SealedLine>> = BTreeMap::new();
        let is_readable = placed.is_some();
        for placed in placed.into_iter().flatten() {
            lines.entry(placed.block).or_default().push(placed.line);
        }
        for number in self.block + 1..=to {
            let Some(block) = blocks.remove(&number) else {
                self.tell(Finding::NoBlock { block: number });
                continue;
            };
            let lines = lines.remove(&number).unwrap_or_default();
            if !is_readable || seal::hash(previous, number, block.sealed_at, &lines) != block.hash {
                self.tell(Finding::Changed { block: number });
            }
            *previous = block.hash;
            for line in lines.iter().filter(|line| line.line.is_none()) {
                self.tell(Finding::Gone {
                    kind: line.kind.clone(),
                    subject: line.subject,
                });
            }
            for (kind, subject) in seal::unbalanced(&lines) {
                self.tell(Finding::Unbalanced { kind, subject });
            }
        }
        self.block = to;
    }

    /// Checks what no single block shows: sums and balances.
    async fn sums(&mut self) -> Result<CheckClaim> {
        // A survey each, which may take long, so the claim is renewed in between.
        let sums = store::postings::imbalances(&mut *self.db.survey().await?).await?;
        for sum in sums {
            self.tell(Finding::Sum(sum));
        }
        if self.renew().await? == CheckClaim::Lost {
            return Ok(CheckClaim::Lost);
        }
        let balances = store::postings::false_balances(&mut *self.db.survey().await?).await?;
        for account in balances {
            self.tell(Finding::Balance { account });
        }
        self.renew().await
    }

    /// Reports postings that are in no block and not queued for one, and queues them.
    async fn unqueued(&mut self) -> Result<CheckClaim> {
        let unqueued = store::blocks::unqueued(&mut *self.db.survey().await?, UNQUEUED_MAX).await?;
        if !unqueued.is_empty() {
            let mut tx = self.db.begin().await?;
            for (kind, subject) in unqueued {
                store::blocks::queue(&mut tx, &kind, subject, self.clock.now()).await?;
                self.tell(Finding::Unqueued { kind, subject });
            }
            tx.commit().await?;
        }
        self.renew().await
    }
}
