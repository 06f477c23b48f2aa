//! A merchant's sessions, newest first.

use chassis::{
    clock::Timestamp,
    ids::MerchantId,
    limits::LOOKED_AT_MAX,
    page::{PageRequest, Place, Span},
};
use db::{Conn, Page, Result};
use uuid::Uuid;

use super::ShownSessionRow;
use crate::session::{SessionStatus, ShownSession};

/// Which sessions to list: those that have everything that is given.
#[derive(Clone, Debug)]
pub struct WantedSessions {
    pub merchant_id: MerchantId,
    /// As it is shown.
    pub status: Option<SessionStatus>,
    /// Of the latest transaction.
    pub provider: Option<String>,
}

impl WantedSessions {
    /// Whether there is something that no index finds among what may be many.
    pub fn is_searched(&self) -> bool {
        self.status.is_some() || self.provider.is_some()
    }

    /// Whether a session of the merchant's is wanted.
    pub fn has(&self, shown: &ShownSession) -> bool {
        let transaction = shown.transaction.as_ref();
        let wallet = transaction.and_then(|transaction| transaction.wallet.as_ref());
        let provider = wallet.map(|wallet| &wallet.provider);
        self.status.is_none_or(|status| status == shown.status)
            && (self.provider.is_none() || self.provider.as_ref() == provider)
    }
}

const LIST: &str = concat!(
    "select s.created_at as place_at, s.session_id as place_id, ",
    shown_columns!(),
    " from sessions s ",
    join_latest!(),
    " where s.merchant_id = $1 and (s.created_at, s.session_id) < ($2, $3)
         and (s.created_at, s.session_id) >= ($4, $5)
         and (cast($7 as text) is null
              or case when s.status = 'PENDING' and s.expires_at <= $8 then 'EXPIRED'
                      else s.status end = $7)
         and (cast($9 as text) is null or t.provider = $9)
     order by s.created_at desc, s.session_id desc limit $6"
);

/// A page of what is wanted, as it is at a time.
pub async fn list(
    conn: &mut Conn,
    wanted: &WantedSessions,
    page: &PageRequest<Uuid>,
    now: Timestamp,
) -> Result<Page<ShownSession, Uuid>> {
    let Span { from, before } = page.span;
    let found: Page<ShownSessionRow, Uuid> = conn
        .sql(LIST)
        .bind(wanted.merchant_id)
        .bind(before.at)
        .bind(before.id)
        .bind(from.at)
        .bind(from.id)
        .bind(i64::from(page.size) + 1)
        .bind(wanted.status)
        .bind(now)
        .bind(wanted.provider.as_deref())
        .page(page.size)
        .await?;
    let shown = found.rows.into_iter().map(|row| row.shown_at(now));
    Ok(Page {
        rows: shown.collect(),
        next: found.next,
    })
}

const STOP: &str = "select created_at, session_id from sessions
    where merchant_id = $1 and (created_at, session_id) < ($2, $3)
        and (created_at, session_id) >= ($4, $5)
    order by created_at desc, session_id desc limit 1 offset $6";

/// Where a page that looks at [`LOOKED_AT_MAX`] sessions has to stop; `None` if there are fewer, or
/// an index finds what is wanted.
pub async fn stop(
    conn: &mut Conn,
    wanted: &WantedSessions,
    span: Span<Uuid>,
) -> Result<Option<Place<Uuid>>> {
    if !wanted.is_searched() {
        return Ok(None);
    }
    let found: Option<(Timestamp, Uuid)> = conn
        .sql(STOP)
        .bind(wanted.merchant_id)
        .bind(span.before.at)
        .bind(span.before.id)
        .bind(span.from.at)
        .bind(span.from.id)
        .bind(LOOKED_AT_MAX - 1)
        .optional()
        .await?;
    Ok(found.map(|(at, id)| Place { at, id }))
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index};

    use super::*;

    #[tokio::test]
    async fn sessions_are_listed_by_an_index_that_is_in_their_order() {
        let database = TestDb::new("sessions-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, LIST, "sessions_newest").await;
        check_ordered_by_index(&db, STOP, "sessions_newest").await;
        db.close().await;
    }
}
