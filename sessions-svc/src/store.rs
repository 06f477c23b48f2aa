//! All SQL on sessions, their transactions and their idempotency keys.
//!
//! Rows are locked in this order: session, transaction, idempotency keys, directory, customer; and
//! those of one kind by their keys, so that two sets never wait for each other.

pub mod customers;
pub mod reports;
pub mod wallets;

use std::sync::LazyLock;

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{ChargeId, SessionId, TxIdDisplay},
    money::{Currency, Money},
};
use db::{
    Conn, Db, Joint, Result, Tx,
    idempotency::{Columns, Keys},
};
use sqlx::FromRow;

use crate::{
    session::{Session, ShownSession},
    transaction::{Settlement, Transaction, Wallet},
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

/// Adds new sessions.
pub fn insert_sessions<'c>(joint: Joint<'c>, sessions: &[&Session]) -> Joint<'c> {
    joint
        .sql_set(
            "given (session_id uuid, merchant_id uuid, origin text, amount_minor bigint,
                currency text, description text, redirect_url text, payer_phone text,
                payer_email text, payer_name text, customer_id text, status text,
                created_at timestamptz, expires_at timestamptz)
         insert into sessions
             (session_id, merchant_id, origin, amount_minor, currency, description, redirect_url,
              payer_phone, payer_email, payer_name, customer_id, status, created_at, expires_at)
         select given.session_id, given.merchant_id, given.origin, given.amount_minor,
                given.currency, given.description, given.redirect_url, given.payer_phone,
                given.payer_email, given.payer_name, given.customer_id, given.status,
                given.created_at, given.expires_at
         from given",
            sessions.len(),
        )
        .column(sessions.iter().map(|session| session.session_id))
        .column(sessions.iter().map(|session| session.merchant_id))
        .column(sessions.iter().map(|session| session.origin))
        .column(sessions.iter().map(|session| session.amount_minor))
        .column(sessions.iter().map(|session| session.currency))
        .column(sessions.iter().map(|session| session.description.clone()))
        .column(sessions.iter().map(|session| session.redirect_url.clone()))
        .column(sessions.iter().map(|session| session.payer.phone.clone()))
        .column(sessions.iter().map(|session| session.payer.email.clone()))
        .column(sessions.iter().map(|session| session.payer.name.clone()))
        .column(sessions.iter().map(|session| session.customer_id.clone()))
        .column(sessions.iter().map(|session| session.status))
        .column(sessions.iter().map(|session| session.created_at))
        .column(sessions.iter().map(|session| session.expires_at))
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

/// Like [`find_session`], for each of these.
pub async fn find_sessions(conn: &mut Conn, ids: &[SessionId]) -> Result<Vec<Session>> {
    conn.sql_set(
        "given (session_id uuid)
         select sessions.session_id, sessions.merchant_id, sessions.origin, sessions.amount_minor,
                sessions.currency, sessions.description, sessions.redirect_url,
                sessions.payer_phone, sessions.payer_email, sessions.payer_name,
                sessions.customer_id, sessions.status, sessions.created_at, sessions.expires_at
         from given join sessions on sessions.session_id = given.session_id",
        ids.len(),
    )
    .column(ids.iter().copied())
    .all()
    .await
}

/// Every column of a [`ShownSessionRow`], so that every statement names them all.
macro_rules! shown_columns {
    () => {
        "s.session_id, s.merchant_id, s.origin, s.amount_minor, s.currency,
         s.description, s.redirect_url, s.payer_phone, s.payer_email, s.payer_name,
         s.customer_id, s.status, s.created_at, s.expires_at,
         t.status as transaction_status, t.transaction_id, t.tx_id_display, t.method,
         t.failure_reason, t.failure_message, t.settled_minor, t.settled_currency, t.rate,
         t.provider, t.payer_last_four,
         t.created_at as transaction_created_at, t.updated_at as transaction_updated_at"
    };
}

/// The latest transaction `t` of a session `s` that was not withdrawn.
macro_rules! join_latest {
    () => {
        "left join transactions t
             on t.session_id = s.session_id
             and t.charge_number = (select max(l.charge_number) from transactions l
                                    where l.session_id = s.session_id
                                      and l.status <> 'WITHDRAWN')"
    };
}

pub mod list;

/// A session beside its latest transaction, if it has one.
#[derive(FromRow)]
struct ShownSessionRow {
    #[sqlx(flatten)]
    session: Session,
    #[sqlx(flatten)]
    transaction: TransactionColumns,
}

impl ShownSessionRow {
    fn shown_at(self, now: Timestamp) -> ShownSession {
        ShownSession {
            status: self.session.status_at(now),
            session: self.session,
            transaction: self.transaction.transaction(),
        }
    }
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
    provider: Option<String>,
    payer_last_four: Option<String>,
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
            wallet: self
                .provider
                .zip(self.payer_last_four)
                .map(|wallet| Wallet {
                    provider: wallet.0,
                    last_four: wallet.1,
                }),
            created_at: self.transaction_created_at?,
            updated_at: self.transaction_updated_at?,
        })
    }
}

/// See [`find_shown`].
#[derive(FromRow)]
struct FoundSessionRow {
    /// The place among those that were wanted.
    place: i64,
    #[sqlx(flatten)]
    row: ShownSessionRow,
}

/// These sessions, each as it is at a time and with its latest charge that was not withdrawn, read in
/// one snapshot. They come in the order in which they were wanted.
pub async fn find_shown(
    db: &Db,
    wanted: &[(SessionId, Timestamp)],
) -> Result<Vec<Option<ShownSession>>> {
    let rows: Vec<FoundSessionRow> = db
        .read()
        .await?
        .sql_set(
            concat!(
                "given (place bigint, session_id uuid)
                 select given.place, ",
                shown_columns!(),
                " from given join sessions s on s.session_id = given.session_id ",
                join_latest!()
            ),
            wanted.len(),
        )
        .column((0..).take(wanted.len()))
        .column(wanted.iter().map(|(id, _)| *id))
        .all()
        .await?;
    let mut found: Vec<_> = wanted.iter().map(|_| None).collect();
    for FoundSessionRow { place, row } in rows {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if let (Some(found), Some((_, now))) = (found.get_mut(place), wanted.get(place)) {
            *found = Some(row.shown_at(*now));
        }
    }
    Ok(found)
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
             where session_id = any(array(select session_id from due))
             returning session_id",
        )
        .bind(now)
        .bind(limit)
        .all()
        .await?;
    Ok(expired.into_iter().map(|(id,)| id).collect())
}

/// Since when the session is over that has been so for longest and is not noted as EXPIRED yet. In
/// the future if all are noted.
pub const OLDEST_TO_EXPIRE: &str =
    "select expires_at from sessions where status = 'PENDING' order by expires_at limit 1";

/// When the next session expires, or the next key may be forgotten.
pub async fn next_due(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let (expiry, forgetting): (Option<Timestamp>, Option<Timestamp>) = conn
        .sql(
            "select (select min(expires_at) from sessions where status = 'PENDING'),
                    (select min(keep_until) from idempotency_keys where keep_until is not null)",
        )
        .one()
        .await?;
    Ok([expiry, forgetting].into_iter().flatten().min())
}
