//! All SQL of this service.
//!
//! Functions that read take a connection, functions that write a transaction; what belongs
//! together is written in one.

pub mod blocks;
pub mod cases;
pub mod charges;
pub mod evidence;
pub mod hints;
pub mod idempotency;
pub mod postings;

use chassis::clock::Timestamp;
use db::{Conn, Result};
use uuid::Uuid;

/// Whether an outbox row is still to be relayed.
pub async fn is_in_outbox(conn: &mut Conn, row: Uuid) -> Result<bool> {
    let found: Option<(i64,)> = conn
        .sql("select attempts from outbox where id = $1")
        .bind(row)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// When the oldest row of the outbox was written.
pub async fn oldest_in_outbox(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let (oldest,): (Option<Timestamp>,) =
        conn.sql("select min(created_at) from outbox").one().await?;
    Ok(oldest)
}
