//! Callbacks that wait for their rail's answer to a query.
//!
//! Promise: only an answer to a query that began after a callback ends it. Whoever writes a charge
//! without having queried its rail leaves these columns alone. During a query the callback is not
//! due; if the process dies then, it is due again when the lease ends.

use chassis::{clock::Timestamp, ids::ChargeId};
use db::{Result, Tx, Update};

/// Makes the rail's query of the charge due at once. Returns [`Update::NotThere`] if the charge is
/// void.
pub async fn put(tx: &mut Tx, id: ChargeId, now: Timestamp) -> Result<Update> {
    tx.sql(
        "update charges set hints = hints + 1, hinted_at = $2, hint_due_at = $2
         where transaction_id = $1 and state <> 'VOID'",
    )
    .bind(id)
    .bind(now)
    .update()
    .await
}

/// When the latest waiting callback came. `None` if none waits, or if one came after the `seen`
/// ones.
pub async fn waiting_since(tx: &mut Tx, id: ChargeId, seen: i64) -> Result<Option<Timestamp>> {
    let found: Option<(Timestamp,)> = tx
        .sql(
            "select hinted_at from charges
             where transaction_id = $1 and hints = $2 and hinted_at is not null",
        )
        .bind(id)
        .bind(seen)
        .optional()
        .await?;
    Ok(found.map(|(hinted_at,)| hinted_at))
}

/// The rail gave no usable answer. It is queried again at `until`, if a callback still waits.
pub async fn put_off(tx: &mut Tx, id: ChargeId, until: Timestamp) -> Result<()> {
    tx.sql(
        "update charges set hint_due_at = $2
         where transaction_id = $1 and hinted_at is not null",
    )
    .bind(id)
    .bind(until)
    .run()
    .await
}

/// The rail has answered, which ends the waiting callback, unless one came after those `seen` when
/// the query began.
pub async fn end(tx: &mut Tx, id: ChargeId, seen: i64) -> Result<()> {
    tx.sql(
        "update charges set hinted_at = null, hint_due_at = null
         where transaction_id = $1 and hints = $2 and hinted_at is not null",
    )
    .bind(id)
    .bind(seen)
    .run()
    .await
}
