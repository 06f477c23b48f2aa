//! The SQL that fills tables: without their indexes, which are built afterwards, because that is
//! many times faster.

use anyhow::ensure;
use serde::Serialize;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

/// What is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// Sessions, nine of ten of them paid, with their transactions and keys.
    Sessions,
    /// Charges that have settled.
    Charges,
}

/// One of PostgreSQL's settings that matter here.
#[derive(Debug, Serialize, sqlx::FromRow)]
pub struct Setting {
    pub name: String,
    pub setting: String,
}

/// For this connection alone: nobody needs what is filled in to survive a crash.
const HURRY: &str = "set synchronous_commit = off; set maintenance_work_mem = '512MB'";

/// As large as those that are measured, or these would fill the gaps that they leave in old pages.
const SESSIONS: &str = "insert into sessions
    (session_id, merchant_id, origin, amount_minor, currency, description, status, created_at,
     expires_at)
    select gen_random_uuid(), ($1::uuid[])[1 + n % cardinality($1)], 'HOSTED', 2550, 'GHS',
           'Load test',
           case when n % 10 = 0 then 'EXPIRED' else 'COMPLETED' end,
           now() - interval '2 days' - n * interval '1 second',
           now() - interval '1 day' - n * interval '1 second'
    from generate_series(1, $2) n";

const TRANSACTIONS: &str = "insert into transactions
    (session_id, charge_number, version, status, transaction_id, tx_id_display, method, created_at,
     updated_at)
    select session_id, 1, 3, 'SETTLED', overlay(session_id::text placing '7' from 15)::uuid,
           'TX-' || lpad(abs(hashtext(session_id::text)::bigint)::text, 10, '0'), 'MOBILE_MONEY',
           created_at, created_at
    from sessions where status = 'COMPLETED' and merchant_id = any($1) limit $2";

/// They are kept until long after the measurement.
const KEYS: &str = "insert into idempotency_keys
    (merchant_id, key, fingerprint, session_id, keep_until)
    select merchant_id, 'g:' || session_id, md5(session_id::text) || md5(session_id::text),
           session_id, now() + interval '1 day'
    from sessions where merchant_id = any($1) limit $2";

const CHARGES: &str = "insert into charges
    (transaction_id, merchant_id, session_id, hosted, charge_number, tx_id_display, reference, rail,
     rail_reference, callback_token, amount_minor, currency, session_amount_minor,
     session_currency, provider, phone, state, version, otp_tries, seen_at_rail, mismatched,
     submitted_at, hints, created_at, updated_at)
    select (lpad(to_hex(1700000000000 + n), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid,
           ($1::uuid[])[1 + n % cardinality($1)], gen_random_uuid(), false, 1,
           'TX-' || lpad(n::text, 10, '0'), 'TX-' || lpad(n::text, 10, '0') || '-000000', 'MOMO',
           gen_random_uuid(), gen_random_uuid()::text, 2550, 'GHS', 2550, 'GHS', 'MTN',
           '+233240000001', 'SETTLED', 3, 0, true, false, at, 0, at, at
    from generate_series(1, $2) n,
         lateral (select now() - interval '2 days' - n * interval '1 second') times (at)";

impl Filling {
    /// Tables, with what fills them.
    fn tables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Sessions => &[
                ("sessions", SESSIONS),
                ("transactions", TRANSACTIONS),
                ("idempotency_keys", KEYS),
            ],
            Self::Charges => &[("charges", CHARGES)],
        }
    }
}

/// Fills tables with so many rows of these merchants.
pub async fn fill(
    database: &mut PgConnection,
    filling: Filling,
    merchants: &[String],
    rows: u64,
) -> anyhow::Result<()> {
    database.execute(HURRY).await?;
    for (table, statement) in filling.tables() {
        let indexes = indexes(database, table).await?;
        for (drop, _) in &indexes {
            database.execute(AssertSqlSafe(drop.clone())).await?;
        }
        sqlx::query(*statement)
            .bind(uuids(merchants)?)
            .bind(i64::try_from(rows)?)
            .execute(&mut *database)
            .await?;
        for (_, create) in &indexes {
            database.execute(AssertSqlSafe(create.clone())).await?;
        }
        let analyze = format!("vacuum (analyze) {table}");
        database.execute(AssertSqlSafe(analyze)).await?;
    }
    // What was filled in is not written out while others are measured.
    database.execute("checkpoint").await?;
    Ok(())
}

/// The statements that drop a table's indexes, each with the one that builds it again.
async fn indexes(
    database: &mut PgConnection,
    table: &str,
) -> anyhow::Result<Vec<(String, String)>> {
    let indexes = sqlx::query_as(
        "select format('alter table %s drop constraint %I', conrelid::regclass, conname),
                format('alter table %s add constraint %I %s', conrelid::regclass, conname,
                       pg_get_constraintdef(oid))
         from pg_constraint where conrelid = $1::regclass and contype in ('p', 'u')
         union all
         select format('drop index %s', indexrelid::regclass), pg_get_indexdef(indexrelid)
         from pg_index
         where indrelid = $1::regclass
           and not exists (select from pg_constraint where conindid = indexrelid)",
    );
    Ok(indexes.bind(table).fetch_all(database).await?)
}

/// The paths of some sessions. The nth is the nth merchant's, in turn.
pub async fn sample(
    database: &mut PgConnection,
    merchants: &[String],
    sessions: i64,
) -> anyhow::Result<Vec<String>> {
    let each = sessions / i64::try_from(merchants.len())?;
    let paths: Vec<(String,)> = sqlx::query_as(
        "select '/api/v1/payments/' || session_id || '/status'
         from (select session_id, place, row_number() over (partition by place) as turn
               from sessions join unnest($1) with ordinality merchants (merchant_id, place)
                   using (merchant_id)) placed
         where turn <= $2 order by turn, place",
    )
    .bind(uuids(merchants)?)
    .bind(each)
    .fetch_all(database)
    .await?;
    let wanted = usize::try_from(each)? * merchants.len();
    ensure!(paths.len() == wanted, "there are too few sessions to read");
    Ok(paths.into_iter().map(|(path,)| path).collect())
}

pub async fn settings(database: &mut PgConnection) -> anyhow::Result<Vec<Setting>> {
    let settings = sqlx::query_as(
        "select name, current_setting(name) as setting from pg_settings
         where name in ('fsync', 'synchronous_commit', 'shared_buffers', 'effective_cache_size',
                        'work_mem', 'max_wal_size', 'wal_compression', 'checkpoint_timeout',
                        'max_connections', 'server_version')
         order by name",
    );
    Ok(settings.fetch_all(database).await?)
}

fn uuids(ids: &[String]) -> Result<Vec<uuid::Uuid>, uuid::Error> {
    ids.iter().map(|id| id.parse()).collect()
}
