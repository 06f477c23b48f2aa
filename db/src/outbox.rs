//! The transactional outbox: one row per change, written in the transaction that makes it true.
//!
//! A row says *whose* state changed, not what it became: the relay reads the latest state and
//! sends that, and receivers are idempotent and ignore older states. So rows need no order among
//! themselves.
//!
//! A row is written already claimed by the process that tells it from memory ([`Hold`]), or it is
//! claimed once due. A claim lasts as long as its lease, and only the claim that holds a row may
//! complete it ([`Row::claim`], a fencing token). Due times are moved time, leases are real time.
//!
//! Each service's migrations create the table, as in [`DDL`].

use std::{collections::HashSet, time::Duration};

use chassis::{
    clock::{Clock, Timestamp},
    telemetry,
};
use uuid::Uuid;

use crate::{Conn, Db, Grouped, Joint, Result, Tx, Update};

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

/// A row to write, due at once, with the trace of the caller who made it.
#[derive(Clone, Debug)]
pub struct NewRow {
    pub id: Uuid,
    pub subject: String,
    pub event_id: Option<String>,
    pub traceparent: Option<String>,
    pub created_at: Timestamp,
    /// Who tells it from memory once it is committed ([`crate::Relay::row`]), or nobody.
    pub hold: Option<Hold>,
}

/// A claim that a row is written with.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub claim: Uuid,
    /// Real time.
    pub lease_until: Timestamp,
}

impl NewRow {
    /// A row that nobody holds.
    pub fn new(subject: &str, event_id: Option<&str>, now: Timestamp) -> Self {
        Self {
            id: Uuid::now_v7(),
            subject: subject.to_owned(),
            event_id: event_id.map(str::to_owned),
            traceparent: telemetry::current_traceparent(),
            created_at: now,
            hold: None,
        }
    }

    /// The claims so far: the one that it is written with counts.
    pub(crate) fn attempts(&self) -> i64 {
        i64::from(self.hold.is_some())
    }

    /// Writes it in this transaction.
    pub async fn put(&self, tx: &mut Tx) -> Result<()> {
        put_set(tx.joint(), &[self]).run().await
    }
}

/// Adds the writing of these rows to other writes.
pub fn put_set<'c>(joint: Joint<'c>, rows: &[&NewRow]) -> Joint<'c> {
    joint
        .sql_set(
            "given (id uuid, subject text, event_id text, traceparent text,
                    created_at timestamptz, attempts bigint, lease_until timestamptz, claim uuid)
             insert into outbox (id, subject, event_id, traceparent, created_at, due_at, attempts,
                                 lease_until, claim)
             select id, subject, event_id, traceparent, created_at, created_at, attempts,
                    lease_until, claim
             from given",
            rows.len(),
        )
        .column(rows.iter().map(|row| row.id))
        .column(rows.iter().map(|row| &*row.subject))
        .column(rows.iter().map(|row| row.event_id.as_deref()))
        .column(rows.iter().map(|row| row.traceparent.as_deref()))
        .column(rows.iter().map(|row| row.created_at))
        .column(rows.iter().map(|row| row.attempts()))
        .column(rows.iter().map(|row| row.hold.map(|hold| hold.lease_until)))
        .column(rows.iter().map(|row| row.hold.map(|hold| hold.claim)))
}

/// Writes a row that nobody holds and that is due at once, with the caller's trace. Returns its id.
pub async fn put(
    tx: &mut Tx,
    subject: &str,
    event_id: Option<&str>,
    now: Timestamp,
) -> Result<Uuid> {
    let row = NewRow::new(subject, event_id, now);
    row.put(tx).await?;
    Ok(row.id)
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
             where id = any(array(select id from due))
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

    async fn run_set(db: &Db, set: &[Self]) -> Result<Vec<Update>> {
        let (again, relayed): (Vec<&Self>, Vec<&Self>) =
            set.iter().partition(|end| end.due.is_some());
        let written = if again.is_empty() && (db.is_postgres() || relayed.len() == 1) {
            // One statement commits by itself.
            delete(&mut db.write().await?, &relayed).await?
        } else {
            let mut tx = db.begin().await?;
            let mut written = delete(&mut tx, &relayed).await?;
            for end in again {
                if let Some(due) = end.due
                    && release(&mut tx, &end.row, due).await? == Update::Updated
                {
                    written.insert((end.row.id, end.row.claim));
                }
            }
            tx.commit().await?;
            written
        };
        let outcome = |end: &Self| match written.contains(&(end.row.id, end.row.claim)) {
            true => Update::Updated,
            false => Update::NotThere,
        };
        Ok(set.iter().map(outcome).collect())
    }
}

/// Returns which of them were there, under their claims. Nobody else locks a row under its claim, so
/// these need no order.
async fn delete(conn: &mut Conn, relayed: &[&RowEnd]) -> Result<HashSet<(Uuid, Uuid)>> {
    let deleted: Vec<(Uuid, Uuid)> = conn
        .sql_set(
            "given (id uuid, claim uuid)
             delete from outbox
             where id = any(array(select id from given))
               and (id, claim) in (select id, claim from given)
             returning id, claim",
            relayed.len(),
        )
        .column(relayed.iter().map(|end| end.row.id))
        .column(relayed.iter().map(|end| end.row.claim))
        .all()
        .await?;
    Ok(deleted.into_iter().collect())
}

/// Lets a row go that was not relayed.
async fn release(tx: &mut Tx, row: &Row, due: Timestamp) -> Result<Update> {
    tx.sql(
        "update outbox set claim = null, lease_until = null, due_at = $3
         where id = $1 and claim = $2",
    )
    .bind(row.id)
    .bind(row.claim)
    .bind(due)
    .update()
    .await
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

/// Since when the oldest row has waited ([`crate::Frame::show_oldest`]). Ids follow the time; due
/// times do not, because what is tried again is due later.
pub const OLDEST: &str = "select created_at from outbox order by id limit 1";

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
