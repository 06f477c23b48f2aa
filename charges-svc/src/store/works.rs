//! Works on the ledger that one replica does for all: who has each, and how far it has come.

use chassis::clock::Timestamp;
use db::{Conn, Result, Tx, Update};
use sqlx::FromRow;

/// How far a work has come.
#[derive(Clone, Debug, FromRow)]
pub struct Checkpoint {
    /// When the work is next due, or until when it is claimed (real time).
    pub next_at: Timestamp,
    /// Of a check: the last block that was checked.
    pub block: i64,
    /// When the work last came to its end.
    pub ended_at: Option<Timestamp>,
}

pub async fn checkpoint(conn: &mut Conn, work: &str) -> Result<Checkpoint> {
    conn.sql("select next_at, block, ended_at from ledger_works where name = $1")
        .bind(work)
        .one()
        .await
}

/// Claims a work that is due by `due`, until `until`; whoever has it until `due` renews it so.
/// Returns [`Update::NotThere`] if another replica has it or has done it.
pub async fn claim(tx: &mut Tx, work: &str, due: Timestamp, until: Timestamp) -> Result<Update> {
    tx.sql("update ledger_works set next_at = $3 where name = $1 and next_at <= $2")
        .bind(work)
        .bind(due)
        .bind(until)
        .update()
        .await
}

/// Stores the checkpoint of a work whose claim ends at `held`. Returns [`Update::NotThere`] if
/// another replica has taken it over.
pub async fn note(
    tx: &mut Tx,
    work: &str,
    held: Timestamp,
    checkpoint: &Checkpoint,
) -> Result<Update> {
    tx.sql(
        "update ledger_works set next_at = $3, block = $4, ended_at = $5
         where name = $1 and next_at = $2",
    )
    .bind(work)
    .bind(held)
    .bind(checkpoint.next_at)
    .bind(checkpoint.block)
    .bind(checkpoint.ended_at)
    .update()
    .await
}

/// Releases every work ([`db::Schema::release_leases`]). One that only pauses is due as well, which
/// does no harm: only what was not done before is done.
pub const RELEASE_LEASES: &str = "update ledger_works set next_at = '1970-01-01T00:00:00.000Z'";
