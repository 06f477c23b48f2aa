//! Idempotency keys: what a caller's key stands for.
//!
//! A key is taken in the transaction that writes what it stands for, its subject, so that neither
//! exists without the other. Another transaction that takes the same key meanwhile waits for the
//! first to end, and then finds the key taken, or free after a rollback. A key is forgotten some
//! time after its subject has ended.
//!
//! Each service's migrations create the table `idempotency_keys`, with `merchant_id`, `key` and
//! `fingerprint`; [`Columns`] names the others.

use std::{collections::HashSet, time::Duration};

use chassis::{clock::Timestamp, ids::MerchantId};
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;
use uuid::Uuid;

use crate::{Conn, Insert, Joint, Param, Record, Result, Tx};

/// How long a key is kept after its subject has ended.
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

/// A key that is wanted for a subject.
#[derive(Clone, Copy, Debug)]
pub struct WantedKey<'a> {
    pub key: &'a IdempotencyKey,
    pub subject: Uuid,
    pub now: Timestamp,
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
    of_sets: SetTexts,
}

/// The statements about sets of keys.
#[derive(Debug)]
struct SetTexts {
    take_free: String,
    take: String,
    find: String,
    forget_later: String,
}

/// The merchant and the operation whose keys these are, in SQL.
struct Scope {
    names: &'static str,
    /// Of the operation, in a list of values.
    value: String,
    /// That the operation is this one.
    condition: String,
}

impl Scope {
    fn of(columns: &Columns) -> Self {
        match columns.operation {
            Some(name) => Self {
                names: "merchant_id, operation",
                value: format!(", '{name}'"),
                condition: format!(" and operation = '{name}'"),
            },
            None => Self {
                names: "merchant_id",
                value: String::new(),
                condition: String::new(),
            },
        }
    }
}

impl SetTexts {
    fn new(columns: &Columns, scope: &Scope) -> Self {
        let Columns {
            subject,
            read,
            forget_at,
            ..
        } = columns;
        let Scope {
            names,
            value,
            condition,
        } = scope;
        let (taken_at, now, column) = match columns.taken_at {
            Some(name) => (
                format!(", {name}"),
                ", given.wanted_at",
                ", wanted_at timestamptz",
            ),
            None => (String::new(), "", ""),
        };
        let take_free = format!(
            "given (merchant_id uuid, key text, fingerprint text, wanted_for uuid{column})
             insert into idempotency_keys ({names}, key, fingerprint, {subject}{taken_at})
             select given.merchant_id{value}, given.key, given.fingerprint,
                    given.wanted_for{now}
             from given where true
             on conflict ({names}, key) do nothing"
        );
        Self {
            take: format!("{take_free} returning {subject}"),
            take_free,
            find: format!(
                "given (place bigint, merchant_id uuid, key text)
                 select {read}, fingerprint, given.place
                 from given join idempotency_keys
                     on idempotency_keys.merchant_id = given.merchant_id{condition}
                     and idempotency_keys.key = given.key"
            ),
            forget_later: format!(
                "given (ended uuid, kept_until timestamptz)
                 update idempotency_keys set {forget_at} = given.kept_until
                 from given where idempotency_keys.{subject} = given.ended"
            ),
        }
    }
}

impl<'a> WantedKey<'a> {
    fn name(&self) -> (MerchantId, &'a str) {
        (self.key.merchant_id, &self.key.key)
    }
}

/// In one order everywhere, so that two sets never wait for each other.
fn in_order<'w, 'a>(wanted: &'w [WantedKey<'a>]) -> Vec<&'w WantedKey<'a>> {
    let mut wanted: Vec<&WantedKey<'a>> = wanted.iter().collect();
    wanted.sort_by_key(|wanted| wanted.name());
    wanted
}

#[derive(FromRow)]
struct FirstUse<T> {
    fingerprint: String,
    #[sqlx(flatten)]
    read: T,
}

/// See [`Keys::take_set`].
#[derive(FromRow)]
struct FoundUse<T> {
    /// The place in the set.
    place: i64,
    #[sqlx(flatten)]
    first: FirstUse<T>,
}

impl<T> FirstUse<T> {
    /// What this use of the key makes of a later one.
    fn seen_by(self, key: &IdempotencyKey) -> KeyUse<T> {
        match self.fingerprint == key.fingerprint {
            true => KeyUse::Repeat(self.read),
            false => KeyUse::Reuse,
        }
    }
}

impl Keys {
    pub fn new(columns: Columns) -> Self {
        let scope = Scope::of(&columns);
        let Scope {
            names,
            value,
            condition,
        } = &scope;
        let Columns {
            subject,
            read,
            forget_at,
            ..
        } = columns;
        let (taken_at, now) = match columns.taken_at {
            Some(column) => (format!(", {column}"), ", $5"),
            None => (String::new(), ""),
        };
        Self {
            take: format!(
                "insert into idempotency_keys ({names}, key, fingerprint, {subject}{taken_at})
                 values ($1{value}, $2, $3, $4{now})
                 on conflict ({names}, key) do nothing"
            ),
            find: format!(
                "select {read}, fingerprint from idempotency_keys
                 where merchant_id = $1{condition} and key = $2"
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
                 delete from idempotency_keys where {subject} = any(array(select {subject} from due))"
            ),
            next_to_forget: format!(
                "select min({forget_at}) from idempotency_keys where {forget_at} is not null"
            ),
            of_sets: SetTexts::new(&columns, &scope),
            columns,
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
        Ok(self.find(tx, key).await?.unwrap_or(KeyUse::Freed))
    }

    /// What a committed use makes of this one, or `None` if the key is free or just being taken.
    pub async fn find<T: Record>(
        &'static self,
        conn: &mut Conn,
        key: &IdempotencyKey,
    ) -> Result<Option<KeyUse<T>>> {
        let found = conn.sql(&self.find).bind(key.merchant_id).bind(&key.key);
        let first: Option<FirstUse<T>> = found.optional().await?;
        Ok(first.map(|first| first.seen_by(key)))
    }

    /// Like [`Keys::take`], for each of a set. Of equal keys the first may take it; the others find
    /// it taken, as if they had come later.
    pub async fn take_set<T: Record>(
        &'static self,
        tx: &mut Tx,
        wanted: &[WantedKey<'_>],
    ) -> Result<Vec<KeyUse<T>>> {
        let mut first = in_order(wanted);
        first.dedup_by_key(|wanted| wanted.name());
        let first = first.iter();
        let taking = tx
            .sql_set(&self.of_sets.take, first.len())
            .column(first.clone().map(|wanted| wanted.key.merchant_id))
            .column(first.clone().map(|wanted| &*wanted.key.key))
            .column(first.clone().map(|wanted| &*wanted.key.fingerprint))
            .column(first.clone().map(|wanted| wanted.subject));
        let taking = match self.columns.taken_at {
            Some(_) => taking.column(first.map(|wanted| wanted.now)),
            None => taking,
        };
        let taken: Vec<(Uuid,)> = taking.all().await?;
        let taken: HashSet<Uuid> = taken.into_iter().map(|(subject,)| subject).collect();
        let mut uses: Vec<KeyUse<T>> = wanted
            .iter()
            .map(|wanted| match taken.contains(&wanted.subject) {
                true => KeyUse::First,
                false => KeyUse::Freed,
            })
            .collect();
        if taken.len() == wanted.len() {
            return Ok(uses);
        }
        let lost = || {
            (0..)
                .zip(wanted)
                .filter(|(_, wanted)| !taken.contains(&wanted.subject))
        };
        let found: Vec<FoundUse<T>> = tx
            .sql_set(&self.of_sets.find, wanted.len() - taken.len())
            .column(lost().map(|(place, _)| place))
            .column(lost().map(|(_, wanted)| wanted.key.merchant_id))
            .column(lost().map(|(_, wanted)| &*wanted.key.key))
            .all()
            .await?;
        for FoundUse { place, first } in found {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            if let (Some(found), Some(wanted)) = (uses.get_mut(place), wanted.get(place)) {
                *found = first.seen_by(wanted.key);
            }
        }
        Ok(uses)
    }

    /// Takes these keys if all of them are free and no two are equal, else nothing is written.
    pub fn take_free_set<'c>(
        &'static self,
        joint: Joint<'c>,
        wanted: &[WantedKey<'_>],
    ) -> Joint<'c> {
        let wanted = in_order(wanted);
        let wanted = wanted.iter();
        let taking = joint
            .sql_set(&self.of_sets.take_free, wanted.len())
            .column(wanted.clone().map(|wanted| wanted.key.merchant_id))
            .column(wanted.clone().map(|wanted| &*wanted.key.key))
            .column(wanted.clone().map(|wanted| &*wanted.key.fingerprint))
            .column(wanted.clone().map(|wanted| wanted.subject));
        match self.columns.taken_at {
            Some(_) => taking.column(wanted.map(|wanted| wanted.now)),
            None => taking,
        }
        .whole()
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

    /// Like [`Keys::forget_later`], for each of these subjects.
    pub fn forget_later_set<'c>(
        &'static self,
        joint: Joint<'c>,
        ended: &[(Uuid, Timestamp)],
    ) -> Joint<'c> {
        joint
            .sql_set(&self.of_sets.forget_later, ended.len())
            .column(ended.iter().map(|(subject, _)| *subject))
            .column(ended.iter().map(|(_, ended_at)| *ended_at + KEPT))
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
