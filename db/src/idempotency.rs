//! Idempotency keys: what a caller's key stands for.
//!
//! A key is taken in the transaction that writes what it stands for, its subject, so that neither
//! exists without the other. Another transaction that takes the same key meanwhile waits for the
//! first to end, and then finds the key taken, or free after a rollback. A key is forgotten some
//! time after its subject has ended.
//!
//! Each service's migrations create the table `idempotency_keys`, with `merchant_id`, `key` and
//! `fingerprint`; [`Columns`] names the others.

use std::time::Duration;

use chassis::{clock::Timestamp, ids::MerchantId};
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;

use crate::{Conn, Insert, Param, Record, Result, Tx};

/// How long a key is kept after its subject has ended (design: "Idempotency-Key").
pub const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// A caller's key, and the request that it came with.
#[derive(Clone, Debug)]
pub struct IdempotencyKey {
    /// Each merchant has its own keys.
    pub merchant_id: MerchantId,
    pub key: String,
    /// [`fingerprint`] of the request. The key stands for this request alone.
    pub fingerprint: String,
}

/// SHA-256, in hex, of what a request asks for, however it was spelled. It is stored: if the parts
/// or their order change, keys in use are refused.
pub fn fingerprint<P: AsRef<str>>(parts: impl IntoIterator<Item = Option<P>>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref().map(AsRef::as_ref);
        // Length first, so that no two lists of parts hash the same bytes; absent differs from
        // empty.
        let length = part.map_or(u64::MAX, |part| part.len() as u64);
        hash.update(length.to_be_bytes());
        hash.update(part.unwrap_or_default());
    }
    hex::encode(hash.finalize())
}

/// The outcome of taking a key. `T` is what the service reads of the key's first request.
#[must_use = "only a first use may go on"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse<T> {
    /// The key was free and now stands for the subject.
    First,
    /// The same request took the key before.
    Repeat(T),
    /// Another request took the key before.
    Reuse,
    /// The key was taken, and has become free meanwhile. It is not taken now.
    Freed,
}

/// The columns in which a service keeps the keys of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// The value in the column `operation`, if the table has one.
    pub operation: Option<&'static str>,
    pub subject: &'static str,
    /// When the key was taken, if the service wants to know.
    pub taken_at: Option<&'static str>,
    /// What [`KeyUse::Repeat`] returns, separated by commas.
    pub read: &'static str,
    pub forget_at: &'static str,
}

/// The keys of one operation. A service has them in a `static`, because their SQL is written once.
#[derive(Debug)]
pub struct Keys {
    columns: Columns,
    take: String,
    find: String,
    free: String,
    forget_later: String,
    forget_due: String,
    next_to_forget: String,
}

#[derive(FromRow)]
struct FirstUse<T> {
    fingerprint: String,
    #[sqlx(flatten)]
    read: T,
}

impl Keys {
    pub fn new(columns: Columns) -> Self {
        let Columns {
            operation,
            subject,
            taken_at,
            read,
            forget_at,
        } = columns;
        let (scope, operation, of_operation) = match operation {
            Some(name) => (
                "merchant_id, operation",
                format!(", '{name}'"),
                format!(" and operation = '{name}'"),
            ),
            None => ("merchant_id", String::new(), String::new()),
        };
        let (taken_at, now) = match taken_at {
            Some(column) => (format!(", {column}"), ", $5"),
            None => (String::new(), ""),
        };
        Self {
            columns,
            take: format!(
                "insert into idempotency_keys ({scope}, key, fingerprint, {subject}{taken_at})
                 values ($1{operation}, $2, $3, $4{now})
                 on conflict ({scope}, key) do nothing"
            ),
            find: format!(
                "select {read}, fingerprint from idempotency_keys
                 where merchant_id = $1{of_operation} and key = $2"
            ),
            free: format!("delete from idempotency_keys where {subject} = $1"),
            forget_later: format!(
                "update idempotency_keys set {forget_at} = $2 where {subject} = $1"
            ),
            forget_due: format!(
                "with due as materialized (
                     select {subject} from idempotency_keys
                     where {forget_at} <= $1 order by {forget_at} limit $2
                     for update skip locked
                 )
                 delete from idempotency_keys where {subject} in (select {subject} from due)"
            ),
            next_to_forget: format!(
                "select min({forget_at}) from idempotency_keys where {forget_at} is not null"
            ),
        }
    }

    /// Takes a key for a subject, or finds out who has it. Waits for a transaction that is taking
    /// it; [`is_retryable`](crate::is_retryable) tells that the wait was in vain.
    pub async fn take<'q, T: Record>(
        &'static self,
        tx: &mut Tx,
        key: &'q IdempotencyKey,
        subject: impl Param<'q>,
        now: Timestamp,
    ) -> Result<KeyUse<T>> {
        let taking = tx
            .sql(&self.take)
            .bind(key.merchant_id)
            .bind(&key.key)
            .bind(&key.fingerprint)
            .bind(subject);
        let taking = match self.columns.taken_at {
            Some(_) => taking.bind(now),
            None => taking,
        };
        if taking.insert().await? == Insert::Inserted {
            return Ok(KeyUse::First);
        }
        let found = tx.sql(&self.find).bind(key.merchant_id).bind(&key.key);
        let first: Option<FirstUse<T>> = found.optional().await?;
        Ok(match first {
            Some(first) if first.fingerprint == key.fingerprint => KeyUse::Repeat(first.read),
            Some(_) => KeyUse::Reuse,
            None => KeyUse::Freed,
        })
    }

    /// Frees a subject's key, because nothing was started under it.
    pub async fn free<'q>(&'static self, tx: &mut Tx, subject: impl Param<'q>) -> Result<()> {
        tx.sql(&self.free).bind(subject).run().await
    }

    /// Records when the subject ended: its key is [`KEPT`] from then on.
    pub async fn forget_later<'q>(
        &'static self,
        tx: &mut Tx,
        subject: impl Param<'q>,
        ended_at: Timestamp,
    ) -> Result<()> {
        let forgetting = tx.sql(&self.forget_later).bind(subject);
        forgetting.bind(ended_at + KEPT).run().await
    }

    /// Forgets up to `limit` keys whose time has come, of every operation. Returns how many.
    pub async fn forget_due(&'static self, tx: &mut Tx, now: Timestamp, limit: i64) -> Result<u64> {
        let forgetting = tx.sql(&self.forget_due).bind(now).bind(limit);
        forgetting.rows_affected().await
    }

    /// When the next key may be forgotten.
    pub async fn next_to_forget(&'static self, conn: &mut Conn) -> Result<Option<Timestamp>> {
        let (due,) = conn.sql(&self.next_to_forget).one().await?;
        Ok(due)
    }
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn no_two_requests_have_one_fingerprint() {
        let requests: [&[Option<&str>]; 8] = [
            &[],
            &[None],
            &[Some("")],
            &[None, None],
            &[Some("ab"), None],
            &[Some("a"), Some("b")],
            &[None, Some("ab")],
            &[Some("ab")],
        ];
        let mut prints = requests.map(|parts| fingerprint(parts.iter().copied()));
        prints.sort();
        assert!(
            prints.windows(2).all(|pair| pair[0] != pair[1]),
            "{prints:?}"
        );
    }

    #[test]
    fn a_fingerprint_is_as_older_versions_stored_it() {
        let stored = "a65b5e749ee2a02758c127304f35d99b6a6eb404a7b7188bcf41cbdfb125e9de";
        assert_eq!(fingerprint([Some("25.50 é"), None, Some("")]), stored);
    }
}
