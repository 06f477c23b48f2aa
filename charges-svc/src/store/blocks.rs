//! The ledger's blocks, the postings that wait for one, and who seals and checks them.

use chassis::clock::Timestamp;
use db::{Conn, Result, Tx};
use sqlx::FromRow;
use uuid::Uuid;

use crate::seal::{Block, SealedLine};

chassis::closed_list! {
    /// What keeping the books consists of. One replica does each for all.
    pub enum Duty: "a duty of the books" {
        /// Seals the waiting postings.
        Seal = "SEAL",
        /// Checks new blocks.
        CheckNew = "CHECK",
        /// Checks the whole ledger.
        CheckWhole = "WHOLE",
        /// Closes and proves days that are over.
        CloseDays = "DAYS",
    }
}

/// The last block.
pub async fn last(conn: &mut Conn) -> Result<Option<Block>> {
    conn.sql("select number, hash, sealed_at from blocks order by number desc limit 1")
        .optional()
        .await
}

/// The number of the last block, or 0 if there is none.
pub async fn last_number(conn: &mut Conn) -> Result<i64> {
    let last: Option<(i64,)> = conn
        .sql("select number from blocks order by number desc limit 1")
        .optional()
        .await?;
    Ok(last.map_or(0, |(number,)| number))
}

/// The hash of a block, or an empty string if there is none.
pub async fn hash(conn: &mut Conn, number: i64) -> Result<String> {
    let found: Option<(String,)> = conn
        .sql("select hash from blocks where number = $1")
        .bind(number)
        .optional()
        .await?;
    Ok(found.map_or_else(String::new, |(hash,)| hash))
}

/// The blocks after `from`, up to `to`.
pub async fn list(conn: &mut Conn, from: i64, to: i64) -> Result<Vec<Block>> {
    conn.sql("select number, hash, sealed_at from blocks where number > $1 and number <= $2")
        .bind(from)
        .bind(to)
        .all()
        .await
}

pub async fn insert(tx: &mut Tx, block: &Block) -> Result<()> {
    tx.sql("insert into blocks (number, hash, sealed_at) values ($1, $2, $3)")
        .bind(block.number)
        .bind(&block.hash)
        .bind(block.sealed_at)
        .run()
        .await
}

/// The postings that wait to be sealed.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct SealQueue {
    /// How many there are, as far as they were counted.
    pub count: i64,
    /// Since when the oldest of those has waited.
    pub oldest: Option<Timestamp>,
    /// When everything posted before the queue existed had been queued.
    pub all_queued_at: Option<Timestamp>,
}

/// The postings that wait to be sealed, counted up to `limit`.
pub async fn waiting(conn: &mut Conn, limit: i64) -> Result<SealQueue> {
    conn.sql(
        "select count(*) as count, min(since) as oldest,
             (select ended_at from ledger_works where name = 'QUEUE') as all_queued_at
         from (select since from unsealed_postings limit $1) as counted",
    )
    .bind(limit)
    .one()
    .await
}

/// Queues the next postings from before the queue existed, up to `limit`, from where it last
/// stopped. Queueing one that is already sealed does no harm.
pub async fn queue_old(tx: &mut Tx, limit: i64, now: Timestamp) -> Result<()> {
    // Other replicas wait here.
    let (kind, subject): (Option<String>, Option<Uuid>) = tx
        .sql("select kind, subject from ledger_works where name = 'QUEUE' for update")
        .one()
        .await?;
    let after = (kind.unwrap_or_default(), subject.unwrap_or_default());
    let found: Vec<(String, Uuid)> = tx
        .sql(
            "select distinct kind, subject from postings where (kind, subject) > ($1, $2)
             order by kind, subject limit $3",
        )
        .bind(&after.0)
        .bind(after.1)
        .bind(limit)
        .all()
        .await?;
    let Some(last) = found.last() else {
        tx.sql("update ledger_works set ended_at = $1 where name = 'QUEUE'")
            .bind(now)
            .run()
            .await?;
        return Ok(());
    };
    tx.sql(
        "insert into unsealed_postings (kind, subject, since)
         select kind, subject, min(posted_at) from postings
         where (kind, subject) > ($1, $2) and (kind, subject) <= ($3, $4)
         group by kind, subject
         on conflict (kind, subject) do nothing",
    )
    .bind(&after.0)
    .bind(after.1)
    .bind(&last.0)
    .bind(last.1)
    .run()
    .await?;
    tx.sql("update ledger_works set kind = $1, subject = $2 where name = 'QUEUE'")
        .bind(&last.0)
        .bind(last.1)
        .run()
        .await
}

/// By a range, because the queue is mostly empty, and a join planned then would compare each that waits
/// with each that is taken.
const TAKE: &str = "delete from unsealed_postings where (kind, subject) <= (
        select kind, subject from (
            select kind, subject from unsealed_postings order by kind, subject limit $1
        ) first order by kind desc, subject desc limit 1
    )
    returning kind, subject";

/// Moves up to `limit` waiting postings into the block that will have this number. One that is
/// already in a block, because it was queued twice, is only removed from the queue. Returns how
/// many postings the block has.
pub async fn fill(tx: &mut Tx, number: i64, limit: i64) -> Result<u64> {
    let taken: Vec<(String, Uuid)> = tx.sql(TAKE).bind(limit).all().await?;
    // By their primary keys: a join with all sealed postings would take longer with every block.
    tx.sql_set(
        "given (of_kind text, about uuid)
         insert into sealed_postings (kind, subject, block)
         select of_kind, about, $1 from given where true
         on conflict (kind, subject) do nothing",
        taken.len(),
    )
    .bind(number)
    .column(taken.iter().map(|(kind, _)| kind.as_str()))
    .column(taken.iter().map(|(_, subject)| *subject))
    .rows_affected()
    .await
}

/// A line and the block that it is in.
#[derive(Clone, Debug, FromRow)]
pub struct BlockLine {
    pub block: i64,
    #[sqlx(flatten)]
    pub line: SealedLine,
}

/// The lines of the blocks after `from`, up to `to`, in no particular order.
pub async fn lines(conn: &mut Conn, from: i64, to: i64) -> Result<Vec<BlockLine>> {
    conn.sql(
        "select sealed_postings.block, sealed_postings.kind, sealed_postings.subject,
             postings.line, postings.account, postings.amount_minor, postings.currency,
             postings.posted_at
         from sealed_postings
         left join postings on postings.kind = sealed_postings.kind
             and postings.subject = sealed_postings.subject
         where sealed_postings.block > $1 and sealed_postings.block <= $2",
    )
    .bind(from)
    .bind(to)
    .all()
    .await
}

/// Queues a posting to be sealed.
pub async fn queue(tx: &mut Tx, kind: &str, subject: Uuid, since: Timestamp) -> Result<()> {
    tx.sql(
        "insert into unsealed_postings (kind, subject, since) values ($1, $2, $3)
         on conflict (kind, subject) do nothing",
    )
    .bind(kind)
    .bind(subject)
    .bind(since)
    .run()
    .await
}

/// Postings that are in no block and not queued for one, so not written by us. There should be
/// none.
pub async fn unqueued(conn: &mut Conn, limit: i64) -> Result<Vec<(String, Uuid)>> {
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

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, plan};

    use super::*;

    #[tokio::test]
    async fn what_waits_is_taken_by_a_range_of_its_index() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        let plan = plan(&db, TAKE).await;
        let is_range = plan.contains("Index Cond: (ROW(kind, subject) <= ROW(")
            || plan.contains("SEARCH unsealed_postings");
        assert!(is_range && !plan.contains("Loop"), "{plan}");
        db.close().await;
    }
}
