//! Turns in which disbursements count on a rail's float.

use db::{Conn, Result, Tx, Update};
use rails::RailName;

/// The last turn that was taken at a rail.
pub async fn last(conn: &mut Conn, rail: RailName) -> Result<i64> {
    let found: Option<(i64,)> = conn
        .sql("select turn from float_turns where rail = $1")
        .bind(rail)
        .optional()
        .await?;
    Ok(found.map_or(0, |(turn,)| turn))
}

/// Takes the turn after `last`, before anybody else can until the transaction ends. Returns
/// [`Update::NotThere`] if somebody has taken it.
pub async fn take(tx: &mut Tx, rail: RailName, last: i64) -> Result<Update> {
    tx.sql(
        "insert into float_turns (rail, turn) values ($1, $2 + 1)
         on conflict (rail) do update set turn = excluded.turn
             where float_turns.turn = $2",
    )
    .bind(rail)
    .bind(last)
    .update()
    .await
}
