//! What treasury moved by hand.

use chassis::clock::Timestamp;
use db::{Insert, Result, Tx};

use crate::float_move::FloatMove;

/// Records a move. Returns [`Insert::AlreadyThere`] if its id was used before.
pub async fn insert(tx: &mut Tx, moved: &FloatMove, now: Timestamp) -> Result<Insert> {
    tx.sql(
        "insert into float_moves (move_id, rail, direction, amount_minor, currency, note, moved_at)
         values ($1, $2, $3, $4, $5, $6, $7) on conflict (move_id) do nothing",
    )
    .bind(moved.move_id)
    .bind(moved.rail)
    .bind(moved.direction)
    .bind(moved.amount.minor_units())
    .bind(moved.amount.currency())
    .bind(&moved.note)
    .bind(now)
    .insert()
    .await
}

/// Whether the recorded move with this id is this one. Its note may be worded differently.
pub async fn is_same(tx: &mut Tx, moved: &FloatMove) -> Result<bool> {
    let found: Option<(i64,)> = tx
        .sql(
            "select amount_minor from float_moves
             where move_id = $1 and rail = $2 and direction = $3 and amount_minor = $4
                 and currency = $5",
        )
        .bind(moved.move_id)
        .bind(moved.rail)
        .bind(moved.direction)
        .bind(moved.amount.minor_units())
        .bind(moved.amount.currency())
        .optional()
        .await?;
    Ok(found.is_some())
}
