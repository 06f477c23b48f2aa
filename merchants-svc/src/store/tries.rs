//! Counts of tries.

use std::cmp::Ordering;

use chassis::clock::Timestamp;
use db::{Conn, Result};

use crate::tries::{Tried, Try};

/// Counts a try before it is made, so that many at once are counted too.
pub async fn take(conn: &mut Conn, tried: &Tried, now: Timestamp) -> Result<Try> {
    let (taken, ends_at): (i64, Timestamp) = conn
        .sql(
            "insert into tries (purpose, subject, taken, ends_at) values ($1, $2, 1, $3)
             on conflict (purpose, subject) do update set
                 taken = case when tries.ends_at <= $4 then 1 else tries.taken + 1 end,
                 ends_at = case when tries.ends_at <= $4 or tries.taken < $5
                           then excluded.ends_at else tries.ends_at end
             returning taken, ends_at",
        )
        .bind(tried.purpose)
        .bind(tried.subject.clone())
        .bind(now + tried.purpose.pause())
        .bind(now)
        .bind(tried.purpose.most())
        .one()
        .await?;
    Ok(match taken.cmp(&tried.purpose.most()) {
        Ordering::Less => Try::Allowed,
        Ordering::Equal => Try::LastBeforePause,
        Ordering::Greater => Try::Paused(ends_at),
    })
}

/// Forgets the tries: one was right.
pub async fn clear(conn: &mut Conn, tried: &Tried) -> Result<()> {
    conn.sql("delete from tries where purpose = $1 and subject = $2")
        .bind(tried.purpose)
        .bind(tried.subject.clone())
        .run()
        .await
}
