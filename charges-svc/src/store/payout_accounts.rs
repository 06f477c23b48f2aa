//! Where merchants' payouts go, and what the daily settlement has done.

use chassis::{
    clock::Timestamp,
    ids::{DisbursementId, MerchantId},
};
use db::{Conn, Insert, Result, Sql, Tx, Update};
use uuid::Uuid;

use crate::payout_account::PayoutAccount;

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

/// Until when a merchant's payouts wait, or waited. In a transaction it stays so until the end.
pub async fn held_until(conn: &mut Conn, merchant_id: MerchantId) -> Result<Option<Timestamp>> {
    let found: Option<(Timestamp,)> = conn
        .sql("select held_until from payout_accounts where merchant_id = $1 for share")
        .bind(merchant_id)
        .optional()
        .await?;
    Ok(found.map(|(until,)| until))
}

/// Writes where payouts go. The switches of an account that is there stay.
pub async fn put(tx: &mut Tx, account: &PayoutAccount) -> Result<()> {
    let to = &account.destination;
    tx.sql(concat!(
        "insert into payout_accounts (",
        columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         on conflict (merchant_id) do update set
             destination_type = excluded.destination_type, provider = excluded.provider,
             account = excluded.account, holder_name = excluded.holder_name,
             rail_holder_name = excluded.rail_holder_name, held_until = excluded.held_until,
             updated_at = excluded.updated_at"
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

/// Queues a notice of what was set, in place of what was there, that mail is to take to the
/// merchant.
pub async fn notify(
    tx: &mut Tx,
    before: Option<&PayoutAccount>,
    after: &PayoutAccount,
) -> Result<()> {
    tx.sql(
        "insert into notices
             (notice_id, merchant_id, kind, created_at, account_before, account_after, held_until)
         values ($1, $2, 'PAYOUT_ACCOUNT_SET', $3, $4, $5, $6)",
    )
    .bind(Uuid::now_v7())
    .bind(after.merchant_id)
    .bind(after.updated_at)
    .bind(before.map(PayoutAccount::masked))
    .bind(after.masked())
    .bind(after.held_until)
    .run()
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
