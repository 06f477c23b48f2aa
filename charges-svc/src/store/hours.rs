//! Merchants' charges, counted by the hour in which they were created (`crate::hours`).

use chassis::{
    clock::Timestamp,
    ids::MerchantId,
    money::{Currency, Money},
    provider::Provider,
};
use db::{Conn, Result, Tx};
use sqlx::FromRow;
use uuid::Uuid;

use crate::charge::State;

/// Charges of a merchant that are alike.
#[derive(Clone, Debug, FromRow)]
pub struct Count {
    pub provider: Provider,
    currency: Currency,
    pub state: State,
    /// Empty if there is none.
    pub failure_reason: String,
    pub charges: i64,
    amount_minor: i64,
}

impl Count {
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }
}

/// The same of an hour, as they were when the hour was counted.
#[derive(Clone, Debug, FromRow)]
pub struct HourCount {
    pub hour: Timestamp,
    pub ends_at: Timestamp,
    #[sqlx(flatten)]
    pub count: Count,
}

/// How far all hours are counted.
#[derive(Clone, Debug, FromRow)]
pub struct Done {
    pub until: Timestamp,
    /// Of the hour that begins then: the last merchant that is counted.
    pub after_merchant: Option<MerchantId>,
}

/// An hour of a merchant.
#[derive(Clone, Debug, FromRow)]
pub struct Hour {
    pub merchant_id: MerchantId,
    pub hour: Timestamp,
    pub ends_at: Timestamp,
}

const COUNT: &str =
    "select provider, currency, state, coalesce(failure_reason, '') as failure_reason,
         count(*) as charges, cast(sum(amount_minor) as bigint) as amount_minor
     from charges
     where merchant_id = $1 and created_at >= $2 and created_at < $3 and state <> 'VOID'
     group by provider, currency, state, coalesce(failure_reason, '')";

/// Counts a merchant's charges that were created in this time.
pub async fn count(
    conn: &mut Conn,
    merchant_id: MerchantId,
    (from, to): (Timestamp, Timestamp),
) -> Result<Vec<Count>> {
    let counted = conn.sql(COUNT).bind(merchant_id).bind(from).bind(to);
    Ok(counted.known().await?.rows)
}

const COUNTED: &str = "select hour, ends_at, provider, currency, state, failure_reason, charges,
         amount_minor
     from charge_hours
     where merchant_id = $1 and hour >= $2 and hour < $3";

/// What was counted of a merchant's hours in this time.
pub async fn counted(
    conn: &mut Conn,
    merchant_id: MerchantId,
    (from, to): (Timestamp, Timestamp),
) -> Result<Vec<HourCount>> {
    let counted = conn.sql(COUNTED).bind(merchant_id).bind(from).bind(to);
    Ok(counted.known().await?.rows)
}

/// How far all hours are counted.
pub async fn done(conn: &mut Conn) -> Result<Done> {
    conn.sql("select until, after_merchant from charge_hours_done")
        .one()
        .await
}

/// The same, locked until the transaction ends. `None` if another replica has it.
pub async fn lock_done(tx: &mut Tx) -> Result<Option<Done>> {
    tx.sql("select until, after_merchant from charge_hours_done for update skip locked")
        .optional()
        .await
}

pub async fn note_done(tx: &mut Tx, done: &Done) -> Result<()> {
    tx.sql("update charge_hours_done set until = $1, after_merchant = $2")
        .bind(done.until)
        .bind(done.after_merchant)
        .run()
        .await
}

/// Goes from merchant to merchant by the index, which has no other way to those of one hour.
const MERCHANTS: &str = "with recursive visited (merchant_id, place) as (
         select (select merchant_id from charges where state <> 'VOID' and merchant_id > $1
                 order by merchant_id limit 1), 1
         union all
         select (select charges.merchant_id from charges
                 where charges.state <> 'VOID' and charges.merchant_id > visited.merchant_id
                 order by charges.merchant_id limit 1), place + 1
         from visited where visited.merchant_id is not null and place < $2
     )
     select merchant_id, exists (
         select 1 from charges
         where charges.merchant_id = visited.merchant_id and charges.created_at >= $3
             and charges.created_at < $4 and charges.state <> 'VOID'
     ) as has_charges
     from visited where merchant_id is not null order by merchant_id";

/// The next merchants after this one that ever charged, and whether they did in this time.
pub async fn merchants(
    conn: &mut Conn,
    after: Option<MerchantId>,
    limit: i64,
    (from, to): (Timestamp, Timestamp),
) -> Result<Vec<(MerchantId, bool)>> {
    conn.sql(MERCHANTS)
        .bind(after.map_or(Uuid::nil(), MerchantId::uuid))
        .bind(limit)
        .bind(from)
        .bind(to)
        .all()
        .await
}

const WRITE: &str = "insert into charge_hours
         (merchant_id, hour, ends_at, provider, currency, state, failure_reason, charges,
          amount_minor)
     select merchant_id, $2, $3, provider, currency, state, coalesce(failure_reason, ''), count(*),
         cast(sum(amount_minor) as bigint)
     from charges
     where merchant_id = $1 and created_at >= $2 and created_at < $3 and state <> 'VOID'
     group by merchant_id, provider, currency, state, coalesce(failure_reason, '')";

/// Counts an hour of a merchant, in place of what was counted of it.
pub async fn write(tx: &mut Tx, hour: &Hour) -> Result<()> {
    tx.sql("delete from charge_hours where merchant_id = $1 and hour = $2")
        .bind(hour.merchant_id)
        .bind(hour.hour)
        .run()
        .await?;
    tx.sql(WRITE)
        .bind(hour.merchant_id)
        .bind(hour.hour)
        .bind(hour.ends_at)
        .run()
        .await
}

/// Forgets a merchant's hours before this one.
pub async fn forget(tx: &mut Tx, merchant_id: MerchantId, before: Timestamp) -> Result<()> {
    tx.sql("delete from charge_hours where merchant_id = $1 and hour < $2")
        .bind(merchant_id)
        .bind(before)
        .run()
        .await
}

const ENDED: &str = "select distinct merchant_id, hour, ends_at from charge_hours
     where charge_hours.state not in ('SETTLED', 'FAILED') and not exists (
         select 1 from charges
         where charges.merchant_id = charge_hours.merchant_id
             and charges.created_at >= charge_hours.hour
             and charges.created_at < charge_hours.ends_at
             and charges.state not in ('SETTLED', 'FAILED', 'VOID')
     )
     order by merchant_id, hour limit $1";

/// Hours that had open charges when they were counted, and have none now.
pub async fn ended(conn: &mut Conn, limit: i64) -> Result<Vec<Hour>> {
    conn.sql(ENDED).bind(limit).all().await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, plan};

    use super::*;

    /// PostgreSQL takes any index of a table that it believes to be empty.
    const FILL: &str = "insert into charges
             (transaction_id, merchant_id, session_id, hosted, charge_number, tx_id_display,
              reference, rail, rail_reference, callback_token, amount_minor, currency,
              session_amount_minor, session_currency, provider, phone, state, version, otp_tries,
              seen_at_rail, mismatched, submitted_at, hints, created_at, updated_at)
         select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), false, 1, 'TX-' || number,
             'TX-' || number, 'momo', gen_random_uuid(), number::text, 100, 'GHS', 100, 'GHS',
             'MTN', '+23324' || number, 'SETTLED', 3, 0, true, false, at, 0, at, at
         from (select number, now() - number * interval '1 minute' as at
               from generate_series(1, 3000) as number) as numbers";

    #[tokio::test]
    async fn charges_are_counted_by_index() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        if db.is_postgres() {
            let mut tx = db.begin().await.unwrap();
            tx.sql(FILL).run().await.unwrap();
            tx.sql("analyze charges").run().await.unwrap();
            tx.commit().await.unwrap();
        }
        for (text, index) in [
            (COUNT, "charges_newest"),
            (WRITE, "charges_newest"),
            (MERCHANTS, "charges_newest"),
            (ENDED, "charge_hours_open"),
        ] {
            let plan = plan(&db, text).await;
            assert!(plan.contains(index), "{index} is not used:\n{plan}");
            for costly in ["SCAN charges", "Seq Scan on charges"] {
                assert!(!plan.contains(costly), "{costly}:\n{plan}");
            }
        }
        let counted = plan(&db, COUNTED).await;
        let is_by_key = counted.contains("charge_hours_pkey")
            || counted.contains("sqlite_autoindex_charge_hours_1 (merchant_id=? AND hour>?");
        assert!(is_by_key, "{counted}");
        db.close().await;
    }
}
