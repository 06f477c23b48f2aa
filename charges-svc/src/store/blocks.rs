//! The ledger's blocks, what waits for one, and who is to seal and to check.

use chassis::clock::Timestamp;
use db::{Conn, Result, Tx};
use sqlx::FromRow;
use uuid::Uuid;

use crate::seal::{Block, SealedLine};

/// What one replica does for all.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    Seal,
    Check,
}

impl Work {
    /// As it stands in SQL.
    fn name(self) -> &'static str {
        match self {
            Self::Seal => "SEAL",
            Self::Check => "CHECK",
        }
    }
}

/// Takes a work that was due before `due` until then. False: another replica has it, or it is done.
pub async fn claim(tx: &mut Tx, work: Work, due: Timestamp, until: Timestamp) -> Result<bool> {
    let claimed = tx
        .sql("update ledger_works set next_at = $3 where name = $1 and next_at <= $2")
        .bind(work.name())
        .bind(due)
        .bind(until)
        .run()
        .await?;
    Ok(claimed == 1)
}

/// How far the check has come.
#[derive(Clone, Debug, FromRow)]
pub struct Checked {
    pub next_at: Timestamp,
    /// The last block that was looked at.
    pub block: i64,
    /// When a check last ended.
    pub ended_at: Option<Timestamp>,
    /// When one last ended that had looked at everything.
    pub whole_at: Option<Timestamp>,
}

pub async fn checked(conn: &mut Conn) -> Result<Checked> {
    conn.sql("select next_at, block, ended_at, whole_at from ledger_works where name = 'CHECK'")
        .one()
        .await
}

/// A check has ended.
pub async fn end_check(tx: &mut Tx, checked: &Checked) -> Result<()> {
    tx.sql(
        "update ledger_works set next_at = $1, block = $2, ended_at = $3, whole_at = $4
         where name = 'CHECK'",
    )
    .bind(checked.next_at)
    .bind(checked.block)
    .bind(checked.ended_at)
    .bind(checked.whole_at)
    .run()
    .await?;
    Ok(())
}

/// The last block.
pub async fn last(conn: &mut Conn) -> Result<Option<Block>> {
    conn.sql("select number, hash, sealed_at from blocks order by number desc limit 1")
        .optional()
        .await
}

pub async fn find(conn: &mut Conn, number: i64) -> Result<Option<Block>> {
    conn.sql("select number, hash, sealed_at from blocks where number = $1")
        .bind(number)
        .optional()
        .await
}

pub async fn insert(tx: &mut Tx, block: &Block) -> Result<()> {
    tx.sql("insert into blocks (number, hash, sealed_at) values ($1, $2, $3)")
        .bind(block.number)
        .bind(&block.hash)
        .bind(block.sealed_at)
        .run()
        .await?;
    Ok(())
}

/// How many postings wait to be sealed.
pub async fn count_unsealed(conn: &mut Conn) -> Result<i64> {
    let (waiting,) = conn
        .sql("select count(*) from unsealed_postings")
        .one::<(i64,)>()
        .await?;
    Ok(waiting)
}

/// Whether any does.
pub async fn has_unsealed(conn: &mut Conn) -> Result<bool> {
    let found: Option<(String,)> = conn
        .sql("select kind from unsealed_postings limit 1")
        .optional()
        .await?;
    Ok(found.is_some())
}

/// What was taken from the queue.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    pub taken: usize,
    /// Those of them that were in no block, and are now.
    pub sealed: u64,
}

/// Takes up to `limit` postings that wait, and puts them into the block that will have this number.
/// One that is in a block already, because it was queued twice, only stops waiting.
pub async fn fill(tx: &mut Tx, number: i64, limit: i64) -> Result<Filled> {
    let taken: Vec<(String, Uuid)> = tx
        .sql(
            "delete from unsealed_postings where (kind, subject) in (
                 select kind, subject from unsealed_postings order by kind, subject limit $1
             )
             returning kind, subject",
        )
        .bind(limit)
        .all()
        .await?;
    let mut sealed = 0;
    // One by one, each by its primary key: a join with all that is sealed takes longer with every
    // block.
    for (kind, subject) in &taken {
        sealed += tx
            .sql(
                "insert into sealed_postings (kind, subject, block) values ($1, $2, $3)
                 on conflict (kind, subject) do nothing",
            )
            .bind(kind)
            .bind(subject)
            .bind(number)
            .run()
            .await?;
    }
    let taken = taken.len();
    Ok(Filled { taken, sealed })
}

/// What stands in a block, in no order.
pub async fn lines(conn: &mut Conn, number: i64) -> Result<Vec<SealedLine>> {
    conn.sql(
        "select sealed_postings.kind, sealed_postings.subject, postings.line, postings.account,
             postings.amount_minor, postings.currency, postings.posted_at
         from sealed_postings
         left join postings on postings.kind = sealed_postings.kind
             and postings.subject = sealed_postings.subject
         where sealed_postings.block = $1",
    )
    .bind(number)
    .all()
    .await
}

/// A posting waits for its block.
pub async fn queue(tx: &mut Tx, kind: &str, subject: Uuid) -> Result<()> {
    tx.sql(
        "insert into unsealed_postings (kind, subject) values ($1, $2)
         on conflict (kind, subject) do nothing",
    )
    .bind(kind)
    .bind(subject)
    .run()
    .await?;
    Ok(())
}

/// Postings that are in no block and wait for none: nothing of ours wrote them. Always none.
pub async fn strays(conn: &mut Conn, limit: i64) -> Result<Vec<(String, Uuid)>> {
    conn.sql(
        "select distinct kind, subject from postings
         where not exists (
             select 1 from sealed_postings
             where sealed_postings.kind = postings.kind
                 and sealed_postings.subject = postings.subject
         ) and not exists (
             select 1 from unsealed_postings
             where unsealed_postings.kind = postings.kind
                 and unsealed_postings.subject = postings.subject
         )
         limit $1",
    )
    .bind(limit)
    .all()
    .await
}
