//! The transactional outbox: one row per change, written in the transaction that makes it true.
//!
//! A row says *whose* state changed, not what it became: the relay reads the latest state and
//! sends that, and receivers are idempotent and ignore older states. So rows need no order among
//! themselves.
//!
//! Due rows are claimed under a lease, and only the claim that holds a row may complete it
//! ([`Row::claim`], a fencing token). Due times are moved time, leases are real time.
//!
//! Each service's migrations create the table, as in [`DDL`].

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    telemetry,
};
use uuid::Uuid;

use crate::{Conn, Db, Grouped, Result, Tx, Update};

/// The table, for a service's migrations.
pub const DDL: &str = include_str!("outbox.sql");

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// A claimed row.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Row {
    pub id: Uuid,
    /// What changed, such as a charge's id.
    pub subject: String,
    /// The event that announces this change, if one does.
    pub event_id: Option<String>,
    /// The trace of the request that made the change.
    pub traceparent: Option<String>,
    pub created_at: Timestamp,
    /// Claims so far, this one included.
    pub attempts: i64,
    /// Fencing token: only its holder may complete the row.
    pub claim: Uuid,
}

/// Writes a row that is due at once, with the caller's trace. Returns its id.
pub async fn put(
    tx: &mut Tx,
    subject: &str,
    event_id: Option<&str>,
    now: Timestamp,
) -> Result<Uuid> {
    let id = Uuid::now_v7();
    tx.sql(
        "insert into outbox (id, subject, event_id, traceparent, created_at, due_at, attempts)
         values ($1, $2, $3, $4, $5, $5, 0)",
    )
    .bind(id)
    .bind(subject)
    .bind(event_id)
    .bind(telemetry::current_traceparent())
    .bind(now)
    .run()
    .await?;
    Ok(id)
}

/// Claims up to `limit` due rows that nobody holds, oldest first.
pub async fn claim(db: &Db, clock: &Clock, limit: i64, lease: Duration) -> Result<Vec<Row>> {
    let real_now = clock.real_now();
    let mut rows: Vec<Row> = db
        .write()
        .await?
        .sql(
            "with due as materialized (
                 select id from outbox
                 where due_at <= $1 and (lease_until is null or lease_until <= $2)
                 order by due_at limit $3
                 for update skip locked
             )
             update outbox set claim = $4, lease_until = $5, attempts = attempts + 1
             where id in (select id from due)
             returning id, subject, event_id, traceparent, created_at, attempts, claim",
        )
        .bind(clock.now())
        .bind(real_now)
        .bind(limit)
        .bind(Uuid::new_v4())
        .bind(real_now + lease)
        .all()
        .await?;
    rows.sort_by_key(|row| (row.created_at, row.id));
    Ok(rows)
}

/// Claims one row, due or not, unless it is held or completed.
pub async fn claim_one(db: &Db, clock: &Clock, id: Uuid, lease: Duration) -> Result<Option<Row>> {
    let real_now = clock.real_now();
    db.write()
        .await?
        .sql(
            "update outbox set claim = $3, lease_until = $4, attempts = attempts + 1
             where id = $1 and (lease_until is null or lease_until <= $2)
             returning id, subject, event_id, traceparent, created_at, attempts, claim",
        )
        .bind(id)
        .bind(real_now)
        .bind(Uuid::new_v4())
        .bind(real_now + lease)
        .optional()
        .await
}

/// How a row's handler ended.
#[derive(Clone, Debug)]
pub struct RowEnd {
    pub row: Row,
    /// When to try again; `None` if the row was relayed and leaves the outbox.
    pub due: Option<Timestamp>,
}

impl Grouped for RowEnd {
    /// [`Update::NotThere`] means that the claim was lost to another.
    type Outcome = Update;

    async fn write(db: &Db, set: &[Self]) -> Result<Vec<Update>> {
        if let [end] = set {
            // One statement commits by itself.
            return Ok(vec![end.write_on(&mut db.write().await?).await?]);
        }
        let mut tx = db.begin().await?;
        let mut written = Vec::new();
        for end in set {
            written.push(end.write_on(&mut tx).await?);
        }
        tx.commit().await?;
        Ok(written)
    }
}

impl RowEnd {
    async fn write_on(&self, conn: &mut Conn) -> Result<Update> {
        let statement = match self.due {
            None => conn.sql("delete from outbox where id = $1 and claim = $2"),
            Some(_) => conn.sql(
                "update outbox set claim = null, lease_until = null, due_at = $3
                 where id = $1 and claim = $2",
            ),
        };
        let statement = statement.bind(self.row.id).bind(self.row.claim);
        match self.due {
            None => statement.update().await,
            Some(due) => statement.bind(due).update().await,
        }
    }
}

/// How long to wait after this many attempts: 0.2 s, doubling up to 30 s.
pub fn backoff(attempts: i64) -> Duration {
    let doublings = u32::try_from(attempts.max(1) - 1).unwrap_or(u32::MAX);
    let factor = 2_u32.saturating_pow(doublings);
    FIRST_RETRY.saturating_mul(factor).min(LAST_RETRY)
}

/// When the next row that nobody holds is due.
pub async fn next_due(db: &Db, clock: &Clock) -> Result<Option<Timestamp>> {
    let (due,): (Option<Timestamp>,) = db
        .read()
        .await?
        .sql(
            "select min(due_at) from outbox
             where lease_until is null or lease_until <= $1",
        )
        .bind(clock.real_now())
        .one()
        .await?;
    Ok(due)
}

/// Releases every row ([`crate::Schema::release_leases`]).
pub const RELEASE_LEASES: &str =
    "update outbox set claim = null, lease_until = null where claim is not null";

/// How many rows are left. A test ends with none.
pub async fn len(db: &Db) -> Result<i64> {
    let (rows,) = db
        .read()
        .await?
        .sql("select count(*) from outbox")
        .one::<(i64,)>()
        .await?;
    Ok(rows)
}
