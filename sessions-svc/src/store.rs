//! All SQL on sessions, their transactions and their idempotency keys.
//!
//! Rows are locked in this order: transaction, session, idempotency keys, directory, customer.

pub mod customers;

use std::sync::LazyLock;

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{ChargeId, SessionId, TxIdDisplay},
    money::{Currency, Money},
};
use db::{
    Conn, Db, Insert, Result, Tx,
    idempotency::{Columns, Keys},
};
use sqlx::FromRow;

use crate::{
    report::{Report, Step},
    session::{Session, SessionStatus, ShownSession, Tally},
    transaction::{Settlement, Transaction},
};

/// The keys of CreateSession, the only operation that takes them.
pub static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    Keys::new(Columns {
        operation: None,
        subject: "session_id",
        taken_at: None,
        read: "session_id",
        forget_at: "keep_until",
    })
});

pub async fn insert_session(tx: &mut Tx, session: &Session) -> Result<()> {
    tx.sql(
        "insert into sessions
             (session_id, merchant_id, origin, amount_minor, currency, description, redirect_url,
              payer_phone, payer_email, payer_name, customer_id, status, created_at, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    )
    .bind(session.session_id)
    .bind(session.merchant_id)
    .bind(session.origin)
    .bind(session.amount_minor)
    .bind(session.currency)
    .bind(session.description.clone())
    .bind(session.redirect_url.clone())
    .bind(session.payer.phone.clone())
    .bind(session.payer.email.clone())
    .bind(session.payer.name.clone())
    .bind(session.customer_id.clone())
    .bind(session.status)
    .bind(session.created_at)
    .bind(session.expires_at)
    .run()
    .await
}

pub async fn find_session(conn: &mut Conn, id: SessionId) -> Result<Option<Session>> {
    conn.sql(
        "select session_id, merchant_id, origin, amount_minor, currency, description, redirect_url,
                payer_phone, payer_email, payer_name, customer_id, status, created_at, expires_at
         from sessions where session_id = $1",
    )
    .bind(id)
    .optional()
    .await
}

/// Like [`find_session`], and locks the session until the transaction ends.
pub async fn lock_session(tx: &mut Tx, id: SessionId) -> Result<Option<Session>> {
    tx.sql(
        "select session_id, merchant_id, origin, amount_minor, currency, description, redirect_url,
                payer_phone, payer_email, payer_name, customer_id, status, created_at, expires_at
         from sessions where session_id = $1 for update",
    )
    .bind(id)
    .optional()
    .await
}

/// A session beside its latest transaction, if it has one.
#[derive(FromRow)]
struct ShownSessionRow {
    #[sqlx(flatten)]
    session: Session,
    #[sqlx(flatten)]
    transaction: TransactionColumns,
}

/// All null if there is no transaction; otherwise only those that are optional in [`Transaction`]
/// may be.
#[derive(FromRow)]
struct TransactionColumns {
    transaction_status: Option<ChargeStatus>,
    transaction_id: Option<ChargeId>,
    tx_id_display: Option<TxIdDisplay>,
    method: Option<String>,
    failure_reason: Option<String>,
    failure_message: Option<String>,
    settled_minor: Option<i64>,
    settled_currency: Option<Currency>,
    rate: Option<String>,
    transaction_created_at: Option<Timestamp>,
    transaction_updated_at: Option<Timestamp>,
}

impl TransactionColumns {
    fn transaction(self) -> Option<Transaction> {
        let settlement = || {
            Some(Settlement {
                amount: Money::new(self.settled_minor?, self.settled_currency?),
                rate: self.rate?,
            })
        };
        Some(Transaction {
            transaction_id: self.transaction_id?,
            tx_id_display: self.tx_id_display?,
            status: self.transaction_status?,
            method: self.method?,
            failure_reason: self.failure_reason,
            failure_message: self.failure_message,
            settlement: settlement(),
            created_at: self.transaction_created_at?,
            updated_at: self.transaction_updated_at?,
        })
    }
}

/// The session with its latest charge that was not withdrawn, read in one snapshot.
pub async fn find_shown(db: &Db, id: SessionId, now: Timestamp) -> Result<Option<ShownSession>> {
    let row: Option<ShownSessionRow> = db
        .read()
        .await?
        .sql(
            "select s.session_id, s.merchant_id, s.origin, s.amount_minor, s.currency,
                    s.description, s.redirect_url, s.payer_phone, s.payer_email, s.payer_name,
                    s.customer_id, s.status, s.created_at, s.expires_at,
                    t.status as transaction_status, t.transaction_id, t.tx_id_display, t.method,
                    t.failure_reason, t.failure_message,
                    t.settled_minor, t.settled_currency, t.rate,
                    t.created_at as transaction_created_at,
                    t.updated_at as transaction_updated_at
             from sessions s
             left join transactions t
                 on t.session_id = s.session_id
                 and t.charge_number = (select max(l.charge_number) from transactions l
                                        where l.session_id = s.session_id
                                          and l.status <> 'WITHDRAWN')
             where s.session_id = $1",
        )
        .bind(id)
        .optional()
        .await?;
    Ok(row.map(|row| ShownSession {
        status: row.session.status_at(now),
        session: row.session,
        transaction: row.transaction.transaction(),
    }))
}

pub async fn update_status(tx: &mut Tx, id: SessionId, status: SessionStatus) -> Result<()> {
    tx.sql("update sessions set status = $2 where session_id = $1")
        .bind(id)
        .bind(status)
        .run()
        .await
}

pub async fn delete_session(tx: &mut Tx, id: SessionId) -> Result<()> {
    tx.sql("delete from sessions where session_id = $1")
        .bind(id)
        .run()
        .await
}

/// Records what a report says about its charge. [`Insert::AlreadyThere`]: this version or a newer
/// one was recorded before, or the charge has settled, so nothing was changed.
pub async fn record(tx: &mut Tx, report: &Report) -> Result<Insert> {
    match &report.step {
        Step::Open { transaction, .. } | Step::Update { transaction, .. } => {
            record_transaction(tx, report, transaction).await
        }
        Step::Withdraw => record_tombstone(tx, report).await,
    }
}

async fn record_transaction(
    tx: &mut Tx,
    report: &Report,
    transaction: &Transaction,
) -> Result<Insert> {
    let settlement = transaction.settlement.as_ref();
    tx.sql(
        "insert into transactions
             (session_id, charge_number, version, status, transaction_id, tx_id_display, method,
              failure_reason, failure_message, settled_minor, settled_currency, rate,
              created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         on conflict (session_id, charge_number) do update
         set version = excluded.version, status = excluded.status,
             transaction_id = excluded.transaction_id, tx_id_display = excluded.tx_id_display,
             method = excluded.method, failure_reason = excluded.failure_reason,
             failure_message = excluded.failure_message,
             settled_minor = excluded.settled_minor,
             settled_currency = excluded.settled_currency, rate = excluded.rate,
             created_at = excluded.created_at, updated_at = excluded.updated_at
         where transactions.version < excluded.version and transactions.status <> 'SETTLED'",
    )
    .bind(report.session_id)
    .bind(i64::from(report.charge_number))
    .bind(i64::from(report.version))
    .bind(transaction.status)
    .bind(transaction.transaction_id)
    .bind(transaction.tx_id_display.clone())
    .bind(transaction.method.clone())
    .bind(transaction.failure_reason.clone())
    .bind(transaction.failure_message.clone())
    .bind(settlement.map(|settlement| settlement.amount.minor_units()))
    .bind(settlement.map(|settlement| settlement.amount.currency()))
    .bind(settlement.map(|settlement| settlement.rate.clone()))
    .bind(transaction.created_at)
    .bind(transaction.updated_at)
    .insert()
    .await
}

async fn record_tombstone(tx: &mut Tx, report: &Report) -> Result<Insert> {
    tx.sql(
        "insert into transactions (session_id, charge_number, version, status)
         values ($1, $2, $3, 'WITHDRAWN')
         on conflict (session_id, charge_number) do update
         set version = excluded.version, status = excluded.status
         where transactions.version < excluded.version and transactions.status <> 'SETTLED'",
    )
    .bind(report.session_id)
    .bind(i64::from(report.charge_number))
    .bind(i64::from(report.version))
    .insert()
    .await
}

/// The charge that holds a number within its session, unless it was withdrawn. Only tombstones have
/// no id.
pub async fn find_holder(conn: &mut Conn, report: &Report) -> Result<Option<ChargeId>> {
    let holder: Option<(ChargeId,)> = conn
        .sql(
            "select transaction_id from transactions
             where session_id = $1 and charge_number = $2 and status <> 'WITHDRAWN'",
        )
        .bind(report.session_id)
        .bind(i64::from(report.charge_number))
        .optional()
        .await?;
    Ok(holder.map(|(id,)| id))
}

pub async fn tally(conn: &mut Conn, id: SessionId) -> Result<Tally> {
    conn.sql(
        "select count(*) filter (where status = 'SETTLED') as settled,
                count(*) filter (where status in ('INITIATED', 'OTP_REQUIRED')) as in_flight,
                count(*) filter (where status = 'FAILED') as failed
         from transactions where session_id = $1",
    )
    .bind(id)
    .one()
    .await
}

/// Expires up to `limit` PENDING sessions whose time has passed, except those that somebody else
/// has locked. Returns their ids.
pub async fn expire(tx: &mut Tx, now: Timestamp, limit: i64) -> Result<Vec<SessionId>> {
    let expired: Vec<(SessionId,)> = tx
        .sql(
            "with due as materialized (
                 select session_id from sessions
                 where status = 'PENDING' and expires_at <= $1
                 order by expires_at limit $2
                 for update skip locked
             )
             update sessions set status = 'EXPIRED'
             where session_id in (select session_id from due)
             returning session_id",
        )
        .bind(now)
        .bind(limit)
        .all()
        .await?;
    Ok(expired.into_iter().map(|(id,)| id).collect())
}

/// When the next session expires, or the next key may be forgotten.
pub async fn next_due(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let (expiry,): (Option<Timestamp>,) = conn
        .sql("select min(expires_at) from sessions where status = 'PENDING'")
        .one()
        .await?;
    let forgetting = KEYS.next_to_forget(conn).await?;
    Ok([expiry, forgetting].into_iter().flatten().min())
}
