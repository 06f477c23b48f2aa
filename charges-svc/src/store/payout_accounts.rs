//! Where merchants' payouts go, and what the daily settlement has done.

use chassis::{
    clock::Timestamp,
    ids::{DisbursementId, MerchantId},
    page::PageRequest,
};
use db::{Conn, Insert, Page, Result, Sql, Tx, Update};
use uuid::Uuid;

use crate::payout_account::{AccountChange, PayoutAccount};

macro_rules! columns {
    () => {
        "merchant_id, destination_type, provider, account, holder_name, rail_holder_name,
         payouts_on_request, daily_settlement, held_until, updated_at"
    };
}

fn finding(conn: &mut Conn, merchant_id: MerchantId) -> Sql<'_> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from payout_accounts where merchant_id = $1"
    ))
    .bind(merchant_id)
}

pub async fn find(conn: &mut Conn, merchant_id: MerchantId) -> Result<Option<PayoutAccount>> {
    finding(conn, merchant_id).optional().await
}

/// The same, but `None` as well for one whose destination only a newer version knows.
pub async fn find_known(conn: &mut Conn, merchant_id: MerchantId) -> Result<Option<PayoutAccount>> {
    let mut found = finding(conn, merchant_id).known().await?.rows;
    Ok(found.pop())
}

/// Like [`find`], and locks it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, merchant_id: MerchantId) -> Result<Option<PayoutAccount>> {
    tx.sql(concat!(
        "select ",
        columns!(),
        " from payout_accounts where merchant_id = $1 for update"
    ))
    .bind(merchant_id)
    .optional()
    .await
}

/// Like [`find`], and keeps it as it is until the transaction ends, so that no payout goes to an
/// account that was replaced before it was recorded.
pub async fn find_shared(tx: &mut Tx, merchant_id: MerchantId) -> Result<Option<PayoutAccount>> {
    tx.sql(concat!(
        "select ",
        columns!(),
        " from payout_accounts where merchant_id = $1 for share"
    ))
    .bind(merchant_id)
    .optional()
    .await
}

/// Until when a merchant's payouts wait, or waited. In a transaction it stays so until the end.
pub async fn held_until(conn: &mut Conn, merchant_id: MerchantId) -> Result<Option<Timestamp>> {
    let found: Option<(Timestamp,)> = conn
        .sql("select held_until from payout_accounts where merchant_id = $1 for share")
        .bind(merchant_id)
        .optional()
        .await?;
    Ok(found.map(|(until,)| until))
}

/// Writes a merchant's first account, unless there is one.
pub async fn insert(tx: &mut Tx, account: &PayoutAccount) -> Result<Insert> {
    let to = &account.destination;
    tx.sql(concat!(
        "insert into payout_accounts (",
        columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         on conflict (merchant_id) do nothing"
    ))
    .bind(account.merchant_id)
    .bind(to.destination_type)
    .bind(&to.provider)
    .bind(&to.account)
    .bind(to.holder_name.as_deref().unwrap_or_default())
    .bind(account.rail_holder_name.as_deref())
    .bind(account.payouts_on_request)
    .bind(account.daily_settlement)
    .bind(account.held_until)
    .bind(account.updated_at)
    .insert()
    .await
}

/// Writes where payouts go from now on. The switches stay.
pub async fn update(tx: &mut Tx, account: &PayoutAccount) -> Result<()> {
    let to = &account.destination;
    tx.sql(
        "update payout_accounts set
             destination_type = $2, provider = $3, account = $4, holder_name = $5,
             rail_holder_name = $6, held_until = $7, updated_at = $8
         where merchant_id = $1",
    )
    .bind(account.merchant_id)
    .bind(to.destination_type)
    .bind(&to.provider)
    .bind(&to.account)
    .bind(to.holder_name.as_deref().unwrap_or_default())
    .bind(account.rail_holder_name.as_deref())
    .bind(account.held_until)
    .bind(account.updated_at)
    .run()
    .await
}

/// Sets the switches that are given.
pub async fn switch(
    tx: &mut Tx,
    merchant_id: MerchantId,
    payouts_on_request: Option<bool>,
    daily_settlement: Option<bool>,
) -> Result<Update> {
    tx.sql(
        "update payout_accounts set
             payouts_on_request = coalesce($2, payouts_on_request),
             daily_settlement = coalesce($3, daily_settlement)
         where merchant_id = $1",
    )
    .bind(merchant_id)
    .bind(payouts_on_request)
    .bind(daily_settlement)
    .update()
    .await
}

/// Writes what was set in place of what: the merchant is told of it, and finds it in its history.
pub async fn note_change(tx: &mut Tx, change: &AccountChange) -> Result<()> {
    tx.sql(
        "insert into notices
             (notice_id, merchant_id, kind, created_at, account_before, account_after, held_until,
              person_id)
         values ($1, $2, 'PAYOUT_ACCOUNT_SET', $3, $4, $5, $6, $7)",
    )
    .bind(change.notice_id)
    .bind(change.merchant_id)
    .bind(change.created_at)
    .bind(change.account_before.as_deref())
    .bind(change.account_after.as_deref())
    .bind(change.held_until)
    .bind(change.person_id)
    .run()
    .await
}

const UNTOLD: &str =
    "select notice_id, merchant_id, created_at, account_before, account_after, held_until, person_id
     from notices where told_at is null order by created_at, notice_id limit 1";

/// What was set first of all that its merchant has not been told.
pub async fn find_untold(conn: &mut Conn) -> Result<Option<AccountChange>> {
    conn.sql(UNTOLD).optional().await
}

/// Notes that the merchant was told.
pub async fn told(conn: &mut Conn, notice_id: Uuid, now: Timestamp) -> Result<()> {
    conn.sql("update notices set told_at = $2 where notice_id = $1")
        .bind(notice_id)
        .bind(now)
        .run()
        .await
}

/// Newest first; the place that the page begins after comes last.
const CHANGES: &str =
    "select notice_id, merchant_id, created_at, account_before, account_after, held_until,
            person_id, created_at as place_at, notice_id as place_id
     from notices
     where merchant_id = $1 and (created_at, notice_id) < ($2, $3) and account_after is not null
     order by created_at desc, notice_id desc limit $4";

/// A page of what was set for a merchant, newest first.
pub async fn list_changes(
    conn: &mut Conn,
    merchant_id: MerchantId,
    page: PageRequest<Uuid>,
) -> Result<Page<AccountChange, Uuid>> {
    conn.sql(CHANGES)
        .bind(merchant_id)
        .bind(page.span.before.at)
        .bind(page.span.before.id)
        .bind(i64::from(page.size) + 1)
        .page(page.size)
        .await
}

/// Merchants whose day has not been settled, in a certain order: up to `limit` of those that come
/// `after` one.
pub async fn list_unsettled(
    conn: &mut Conn,
    day: &str,
    now: Timestamp,
    after: Option<MerchantId>,
    limit: usize,
) -> Result<Vec<MerchantId>> {
    let found: Vec<(MerchantId,)> = conn
        .sql(
            "select merchant_id from payout_accounts
             where merchant_id > $3 and daily_settlement and held_until <= $2 and not exists (
                 select 1 from daily_settlements
                 where daily_settlements.merchant_id = payout_accounts.merchant_id and day = $1
             )
             order by merchant_id limit $4",
        )
        .bind(day)
        .bind(now)
        .bind(after.map_or(Uuid::nil(), MerchantId::uuid))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .all()
        .await?;
    Ok(found
        .into_iter()
        .map(|(merchant_id,)| merchant_id)
        .collect())
}

/// Marks a merchant's day as settled, with its payout if there is one. Returns
/// [`Insert::AlreadyThere`] if somebody else has settled it.
pub async fn settle_day(
    tx: &mut Tx,
    merchant_id: MerchantId,
    day: &str,
    payout: Option<DisbursementId>,
    now: Timestamp,
) -> Result<Insert> {
    tx.sql(
        "insert into daily_settlements (merchant_id, day, disbursement_id, settled_at)
         values ($1, $2, $3, $4) on conflict (merchant_id, day) do nothing",
    )
    .bind(merchant_id)
    .bind(day)
    .bind(payout)
    .bind(now)
    .insert()
    .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index};

    use super::*;

    #[tokio::test]
    async fn changes_are_listed_by_an_index_that_is_in_their_order() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, CHANGES, "notices_of_merchant").await;
        db.close().await;
    }
}
