//! Callbacks that wait for an answer of their rail.
//!
//! Promise: nothing ends a callback but an answer to a query that began after it. Whoever writes a
//! charge without having asked its rail leaves these columns alone. While the rail is being asked the
//! callback is not due; if the process dies then, it is due again when the lease ends.

use chassis::{clock::Timestamp, ids::ChargeId};
use db::{Result, Tx};

/// Makes the rail be asked at once about the charge. False: it is void.
pub async fn put(tx: &mut Tx, id: ChargeId, now: Timestamp) -> Result<bool> {
    let hinted = tx
        .sql(
            "update charges set hints = hints + 1, hinted_at = $2, hint_due_at = $2
             where transaction_id = $1 and state <> 'VOID'",
        )
        .bind(id)
        .bind(now)
        .run()
        .await?;
    Ok(hinted == 1)
}

/// When the latest callback came that waits, unless one came after those that were `seen`.
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

/// The rail gave no answer that was of use: it is asked again for the same callback, if one waits.
pub async fn put_off(tx: &mut Tx, id: ChargeId, until: Timestamp) -> Result<()> {
    tx.sql(
        "update charges set hint_due_at = $2
         where transaction_id = $1 and hinted_at is not null",
    )
    .bind(id)
    .bind(until)
    .run()
    .await?;
    Ok(())
}

/// The rail has answered: whatever it called about before is done, unless a callback came after
/// those that were `seen` when it was asked.
pub async fn end(tx: &mut Tx, id: ChargeId, seen: i64) -> Result<()> {
    tx.sql(
        "update charges set hinted_at = null, hint_due_at = null
         where transaction_id = $1 and hints = $2 and hinted_at is not null",
    )
    .bind(id)
    .bind(seen)
    .run()
    .await?;
    Ok(())
}
