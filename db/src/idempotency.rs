//! Idempotency keys: what a caller's key stands for.
//!
//! A key is taken in the transaction that writes what it stands for, its subject, so that neither
//! exists without the other. Another transaction that takes the same key meanwhile waits for the
//! first to end, and then finds the key taken, or free after a rollback. A key is forgotten some
//! time after its subject has ended.
//!
//! Each service's migrations create the table `idempotency_keys`, with `merchant_id`, `key` and
//! `fingerprint`; [`idempotency_keys!`](crate::idempotency_keys) names the other columns.

use chassis::{clock::Timestamp, ids::MerchantId};
use sha2::{Digest as _, Sha256};

use crate::{Conn, Param, Record, Result, Sql, Tx};

/// A key, and the request that it came with.
#[derive(Clone, Debug)]
pub struct Key {
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

/// The keys of one operation, made by [`idempotency_keys!`](crate::idempotency_keys).
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    #[doc(hidden)]
    pub take: &'static str,
    #[doc(hidden)]
    pub find: &'static str,
    #[doc(hidden)]
    pub free: &'static str,
    #[doc(hidden)]
    pub forget_later: &'static str,
    #[doc(hidden)]
    pub forget_due: &'static str,
    #[doc(hidden)]
    pub next_to_forget: &'static str,
}

impl Keys {
    /// Takes a key for a subject. The caller binds the service's own column, if any, and awaits
    /// [`Sql::insert`].
    pub fn take<'c, 'q>(&self, tx: &'c mut Tx, key: &'q Key, subject: impl Param<'q>) -> Sql<'c> {
        tx.sql(self.take)
            .bind(key.merchant_id)
            .bind(&key.key)
            .bind(&key.fingerprint)
            .bind(subject)
    }

    /// What a key stands for, if it is taken.
    pub async fn find<R: Record>(&self, conn: &mut Conn, key: &Key) -> Result<Option<R>> {
        conn.sql(self.find)
            .bind(key.merchant_id)
            .bind(&key.key)
            .optional()
            .await
    }

    /// Frees a subject's key, because nothing was started under it.
    pub async fn free<'q>(&self, tx: &mut Tx, subject: impl Param<'q>) -> Result<()> {
        tx.sql(self.free).bind(subject).run().await
    }

    /// Records that the subject has ended: its key is kept until `forget_at`.
    pub async fn forget_later<'q>(
        &self,
        tx: &mut Tx,
        subject: impl Param<'q>,
        forget_at: Timestamp,
    ) -> Result<()> {
        tx.sql(self.forget_later)
            .bind(subject)
            .bind(forget_at)
            .run()
            .await
    }

    /// Forgets up to `limit` keys whose time has come, of every operation. Returns how many.
    pub async fn forget_due(&self, tx: &mut Tx, now: Timestamp, limit: i64) -> Result<u64> {
        tx.sql(self.forget_due)
            .bind(now)
            .bind(limit)
            .rows_affected()
            .await
    }

    /// When the next key may be forgotten.
    pub async fn next_to_forget(&self, conn: &mut Conn) -> Result<Option<Timestamp>> {
        let (due,) = conn.sql(self.next_to_forget).one().await?;
        Ok(due)
    }
}

/// Makes the [`Keys`] of a service's table. Takes the column and value of the operation, if the
/// table has keys of several; the subject's column; a column of the service's own with the
/// parameter that it is bound to, from `$5` on; the columns to read; and the column of the time at
/// which a key is forgotten.
#[macro_export]
macro_rules! idempotency_keys {
    (
        $(operation: $operation:literal = $value:literal,)?
        subject: $subject:literal,
        $(own: $own:literal = $parameter:literal,)?
        read: $read:literal,
        forget_at: $forget_at:literal $(,)?
    ) => {
        $crate::idempotency::Keys {
            take: concat!(
                "insert into idempotency_keys (merchant_id, ", $($operation, ", ",)?
                "key, fingerprint, ", $subject, $(", ", $own,)?
                ") values ($1, ", $("'", $value, "', ",)? "$2, $3, $4", $(", ", $parameter,)?
                ") on conflict (merchant_id, ", $($operation, ", ",)? "key) do nothing",
            ),
            find: concat!(
                "select ", $read, " from idempotency_keys where merchant_id = $1 and ",
                $($operation, " = '", $value, "' and ",)? "key = $2",
            ),
            free: concat!("delete from idempotency_keys where ", $subject, " = $1"),
            forget_later: concat!(
                "update idempotency_keys set ", $forget_at, " = $2 where ", $subject, " = $1",
            ),
            forget_due: concat!(
                "with due as materialized (
                     select ", $subject, " from idempotency_keys
                     where ", $forget_at, " <= $1 order by ", $forget_at, " limit $2
                     for update skip locked
                 )
                 delete from idempotency_keys
                 where ", $subject, " in (select ", $subject, " from due)",
            ),
            next_to_forget: concat!(
                "select min(", $forget_at, ") from idempotency_keys
                 where ", $forget_at, " is not null",
            ),
        }
    };
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
