//! What other services had to tell merchants.

use chassis::clock::Timestamp;
use db::{Insert, Result, Tx};

use crate::notice::Notice;

/// Notes that a notice is told. [`Insert::AlreadyThere`]: it was told before.
pub async fn insert(tx: &mut Tx, notice: &Notice, now: Timestamp) -> Result<Insert> {
    tx.sql(
        "insert into told_notices (notice_id, merchant_id, kind, told_at) values ($1, $2, $3, $4)
         on conflict (notice_id) do nothing",
    )
    .bind(notice.notice_id)
    .bind(notice.merchant_id)
    .bind(notice.kind)
    .bind(now)
    .insert()
    .await
}
