//! All of this service's SQL.
//!
//! Functions that read take a connection, functions that write take a transaction. What belongs
//! together is written in one transaction.

pub mod balance_lines;
pub mod blocks;
pub mod cases;
pub mod charges;
pub mod days;
pub mod disbursements;
pub mod evidence;
pub mod float_moves;
pub mod float_turns;
pub mod hints;
pub mod hours;
pub mod idempotency;
pub mod payout_accounts;
pub mod postings;
pub mod rail_reports;
pub mod samples;
pub mod steps;
pub mod works;

use chassis::clock::Timestamp;
use db::{Conn, Result};
use sqlx::FromRow;
use uuid::Uuid;

/// Whether an outbox row has not been relayed yet.
pub async fn is_in_outbox(conn: &mut Conn, row: Uuid) -> Result<bool> {
    let found: Option<(i64,)> = conn
        .sql("select attempts from outbox where id = $1")
        .bind(row)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// How many rows are waiting, as far as they were counted, and since when the oldest of them.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Backlog {
    pub count: i64,
    pub oldest: Option<Timestamp>,
}

/// Rows of the outbox, counted up to `limit`.
pub async fn count_outbox(conn: &mut Conn, limit: i64) -> Result<i64> {
    let (rows,) = conn
        .sql("select count(*) from (select 1 from outbox order by due_at limit $1) as counted")
        .bind(limit)
        .one()
        .await?;
    Ok(rows)
}
