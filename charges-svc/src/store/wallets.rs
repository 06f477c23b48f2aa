//! Which replica adds wallets to the transactions that lack them.

use chassis::clock::Timestamp;
use db::{Conn, Result, Tx, Update};

/// When one last came to the end of what lacks them.
pub async fn ended_at(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let (ended_at,) = conn
        .sql("select ended_at from ledger_works where name = 'WALLETS'")
        .one()
        .await?;
    Ok(ended_at)
}

/// Claims the work until `until` (real time), also for who has it until `held`. Returns
/// [`Update::NotThere`] if another replica has it.
pub async fn claim(
    tx: &mut Tx,
    held: Option<Timestamp>,
    now: Timestamp,
    until: Timestamp,
) -> Result<Update> {
    tx.sql(
        "update ledger_works set next_at = $3
         where name = 'WALLETS' and (next_at <= $1 or next_at = $2)",
    )
    .bind(now)
    .bind(held)
    .bind(until)
    .update()
    .await
}

/// Gives back a claim until `held`, at the end. Another replica that has taken it over goes on.
pub async fn end(
    tx: &mut Tx,
    held: Timestamp,
    now: Timestamp,
    ended_at: Timestamp,
) -> Result<Update> {
    tx.sql(
        "update ledger_works set next_at = $2, ended_at = $3
         where name = 'WALLETS' and next_at = $1",
    )
    .bind(held)
    .bind(now)
    .bind(ended_at)
    .update()
    .await
}
