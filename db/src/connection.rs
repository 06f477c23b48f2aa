//! A connection, a transaction, and a statement that runs on either.
//!
//! Transactions are managed here and not by sqlx, whose `begin` on PostgreSQL leaves a transaction
//! open in the pool when it is cancelled halfway (it counts the transaction only once `BEGIN` is
//! answered). Here a PostgreSQL connection with an unanswered statement is closed, and every other
//! uncommitted transaction is rolled back before its connection is reused.

use std::{future::Future, io, ops, time::Duration};

use chassis::shutdown::Tasks;
use chassis::{closed_list::count_unknown, error_chain::chain};
use sqlx::{
    Arguments, Encode, FromRow, PgConnection, Postgres, Sqlite, SqliteConnection, Type,
    error::BoxDynError,
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
    sqlite::{SqliteArguments, SqliteRow},
};
use tracing::{Instrument, Span};

use crate::{Error, Result, error::unknown_value, postgres, sqlite};

/// A value that both stores can bind.
pub trait Param<'q>:
    Encode<'q, Postgres> + Type<Postgres> + Encode<'q, Sqlite> + Type<Sqlite>
{
}

impl<'q, T> Param<'q> for T where
    T: Encode<'q, Postgres> + Type<Postgres> + Encode<'q, Sqlite> + Type<Sqlite>
{
}

/// A row that both stores can read: a struct with `#[derive(sqlx::FromRow)]`, or a tuple.
pub trait Record:
    for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin
{
}

impl<T> Record for T where
    T: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin
{
}

/// A connection. Returns to its pool when dropped.
pub struct Conn {
    pub(crate) held: StoreConnection,
    pub(crate) state: State,
}

pub(crate) enum StoreConnection {
    Postgres(PoolConnection<Postgres>),
    Sqlite(PoolConnection<Sqlite>),
}

/// What the statements on a connection are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Each commits by itself and only reads.
    Read,
    /// Each commits by itself.
    Write,
    /// They are parts of a transaction.
    Transaction,
}

pub(crate) struct State {
    purpose: Purpose,
    /// A statement was sent and its answer has not been read.
    unanswered: bool,
    /// A statement was refused or cut off.
    pub(crate) failed: bool,
    /// Longest wait for an answer from a server that may no longer give one. Its own statement
    /// timeout is shorter.
    answer_max: Option<Duration>,
}

impl Conn {
    pub(crate) fn postgres(held: PoolConnection<Postgres>, purpose: Purpose) -> Self {
        let answer_max = Some(postgres::STATEMENT_AT_MOST);
        Self::new(StoreConnection::Postgres(held), purpose, answer_max)
    }

    pub(crate) fn sqlite(held: PoolConnection<Sqlite>, purpose: Purpose) -> Self {
        Self::new(StoreConnection::Sqlite(held), purpose, None)
    }

    fn new(held: StoreConnection, purpose: Purpose, answer_max: Option<Duration>) -> Self {
        Self {
            held,
            state: State {
                purpose,
                unanswered: false,
                failed: false,
                answer_max,
            },
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.held, StoreConnection::Postgres(_))
    }

    /// A statement: lowercase, `$1` parameters, named columns. Row locks are written `for update`,
    /// `for update skip locked`, `for no key update` or `for share`.
    pub fn sql(&mut self, text: &'static str) -> Sql<'_> {
        let (on, text) = match &mut self.held {
            StoreConnection::Postgres(held) => (On::Postgres(held, PgArguments::default()), text),
            StoreConnection::Sqlite(held) => {
                let text = sqlite::translated(text);
                (On::Sqlite(held, SqliteArguments::default()), text)
            }
        };
        Sql {
            on,
            state: &mut self.state,
            text,
            not_bound: None,
        }
    }

    /// `begin`, `commit` or `rollback`, which are not prepared.
    async fn control(&mut self, text: &'static str) -> Result<()> {
        let query = sqlx::raw_sql(text);
        let answer = match &mut self.held {
            StoreConnection::Postgres(held) => {
                let answer = query.execute(&mut **held);
                self.state.watch(text, answer).await.map(drop)
            }
            StoreConnection::Sqlite(held) => {
                let answer = query.execute(&mut **held);
                self.state.watch(text, answer).await.map(drop)
            }
        };
        // After an error nobody knows the connection's state.
        self.state.unanswered |= answer.is_err();
        answer
    }

    /// Whether the answer to a statement is still outstanding and may never come, or the server is
    /// not to be asked again.
    fn is_lost(&self) -> bool {
        self.state.unanswered && matches!(self.held, StoreConnection::Postgres(_))
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if self.is_lost()
            && let StoreConnection::Postgres(held) = &mut self.held
        {
            held.close_on_drop();
        }
    }
}

/// A transaction. Dropped without [`Tx::commit`], it is rolled back.
pub struct Tx {
    /// `None` once it has ended.
    conn: Option<Conn>,
    /// Runs the rollback of a dropped transaction.
    tasks: Tasks,
}

impl Tx {
    pub(crate) async fn begin(conn: Conn, tasks: &Tasks, is_hasty: bool) -> Result<Self> {
        let begin = match conn.held {
            StoreConnection::Postgres(_) if is_hasty => postgres::BEGIN_HASTY,
            StoreConnection::Postgres(_) => "begin",
            // Takes the write lock now: a reader that becomes a writer may fail halfway.
            StoreConnection::Sqlite(_) => "begin immediate",
        };
        Self::begin_with(conn, tasks, begin).await
    }

    /// See [`crate::Db::survey`].
    pub(crate) async fn survey(conn: Conn, tasks: &Tasks) -> Result<Self> {
        let begin = match conn.held {
            StoreConnection::Postgres(_) => postgres::BEGIN_SURVEY,
            // A separate reader, which holds up no writer.
            StoreConnection::Sqlite(_) => "begin",
        };
        let mut tx = Self::begin_with(conn, tasks, begin).await?;
        let most = tx.state.answer_max.as_mut();
        if let Some(most) = most {
            *most = postgres::SURVEY_AT_MOST;
        }
        Ok(tx)
    }

    async fn begin_with(conn: Conn, tasks: &Tasks, begin: &'static str) -> Result<Self> {
        let mut tx = Self {
            conn: Some(conn),
            tasks: tasks.clone(),
        };
        tx.state.purpose = Purpose::Transaction;
        tx.control(begin).await?;
        Ok(tx)
    }

    /// Commits. An error means that the outcome is unknown (see the crate's documentation), except
    /// after a failed statement: then nothing was committed.
    pub async fn commit(mut self) -> Result<()> {
        if self.state.failed {
            // PostgreSQL would answer such a commit with a silent rollback.
            let text = "a transaction in which a statement failed cannot be committed";
            return Err(Error::Protocol(text.into()));
        }
        count_transaction("write");
        self.control("commit").await?;
        self.conn = None;
        Ok(())
    }
}

impl ops::Deref for Tx {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        self.conn.as_ref().expect("held until the transaction ends")
    }
}

impl ops::DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Conn {
        self.conn.as_mut().expect("held until the transaction ends")
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        // The server rolls back what a closed connection had open.
        let Some(mut conn) = self.conn.take().filter(|conn| !conn.is_lost()) else {
            return;
        };
        self.tasks.spawn(async move {
            if let Err(error) = conn.control("rollback").await {
                // On SQLite also if `begin` never ran or `commit` succeeded.
                tracing::debug!(error = %chain(&error), "there was nothing to roll back");
            }
        });
    }
}

/// The outcome of an insert that leaves an existing row alone.
#[must_use = "a row that is there already is another's"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    Inserted,
    /// Nothing was written.
    AlreadyThere,
}

/// The outcome of an update or delete of one row in an expected state.
#[must_use = "a row that is not there, or not as expected, was not changed"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    Updated,
    /// No such row. Nothing was written.
    NotThere,
}

/// What [`Sql::known`] found.
#[derive(Clone, Debug)]
pub struct KnownRows<T> {
    pub rows: Vec<T>,
    /// Rows that were left out, because only a newer version knows one of their values.
    pub unknown: usize,
}

/// Rows that nobody has read yet.
pub(crate) enum Rows {
    Postgres(Vec<PgRow>),
    Sqlite(Vec<SqliteRow>),
}

/// A statement with its values. Runs once one of its methods is awaited.
#[must_use = "nothing runs before one of its methods is awaited"]
pub struct Sql<'c> {
    on: On<'c>,
    state: &'c mut State,
    text: &'static str,
    /// The first value that could not be encoded.
    not_bound: Option<BoxDynError>,
}

enum On<'c> {
    Postgres(&'c mut PgConnection, PgArguments),
    Sqlite(&'c mut SqliteConnection, SqliteArguments),
}

impl<'c> Sql<'c> {
    /// Binds the value of the next parameter.
    pub fn bind<'q, T: Param<'q>>(mut self, value: T) -> Self {
        let bound = match &mut self.on {
            On::Postgres(_, arguments) => Arguments::add(arguments, value),
            On::Sqlite(_, arguments) => Arguments::add(arguments, value),
        };
        if let Err(error) = bound {
            self.not_bound.get_or_insert(error);
        }
        self
    }

    /// For a statement that certainly changes rows, or for which their number does not matter.
    pub async fn run(self) -> Result<()> {
        self.rows_affected().await?;
        Ok(())
    }

    /// Runs an insert of one row with `on conflict`.
    pub async fn insert(self) -> Result<Insert> {
        Ok(match self.rows_affected().await? {
            0 => Insert::AlreadyThere,
            _ => Insert::Inserted,
        })
    }

    /// Runs an update or delete of one row.
    pub async fn update(self) -> Result<Update> {
        Ok(match self.rows_affected().await? {
            0 => Update::NotThere,
            _ => Update::Updated,
        })
    }

    /// Changes any number of rows; returns how many.
    pub async fn rows_affected(self) -> Result<u64> {
        let (on, state, text) = self.bound()?;
        match on {
            On::Postgres(conn, arguments) => {
                let query = sqlx::query_with::<Postgres, _>(text, arguments);
                let answer = state.run(text, query.execute(conn));
                Ok(answer.await?.rows_affected())
            }
            On::Sqlite(conn, arguments) => {
                let query = sqlx::query_with::<Sqlite, _>(text, arguments);
                let answer = state.run(text, query.execute(conn));
                Ok(answer.await?.rows_affected())
            }
        }
    }

    /// Returns the first row; [`Error::RowNotFound`] if there is none.
    pub async fn one<T: Record>(self) -> Result<T> {
        self.optional().await?.ok_or(Error::RowNotFound)
    }

    /// Returns the first row, if there is one.
    pub async fn optional<T: Record>(self) -> Result<Option<T>> {
        let (on, state, text) = self.bound()?;
        match on {
            On::Postgres(conn, arguments) => {
                let query = sqlx::query_as_with::<Postgres, T, _>(text, arguments);
                state.run(text, query.fetch_optional(conn)).await
            }
            On::Sqlite(conn, arguments) => {
                let query = sqlx::query_as_with::<Sqlite, T, _>(text, arguments);
                state.run(text, query.fetch_optional(conn)).await
            }
        }
    }

    /// Returns every row. The statement must have a `limit`, or a result that is small by nature.
    pub async fn all<T: Record>(self) -> Result<Vec<T>> {
        let (on, state, text) = self.bound()?;
        match on {
            On::Postgres(conn, arguments) => {
                let query = sqlx::query_as_with::<Postgres, T, _>(text, arguments);
                state.run(text, query.fetch_all(conn)).await
            }
            On::Sqlite(conn, arguments) => {
                let query = sqlx::query_as_with::<Sqlite, T, _>(text, arguments);
                state.run(text, query.fetch_all(conn)).await
            }
        }
    }

    /// Like [`Sql::all`], for lists and claims that one row must not block: a row with a value
    /// that this version does not know is left out and counted.
    pub async fn known<T: Record>(self) -> Result<KnownRows<T>> {
        match self.rows().await? {
            Rows::Postgres(rows) => known(rows.iter().map(T::from_row)),
            Rows::Sqlite(rows) => known(rows.iter().map(T::from_row)),
        }
    }

    /// Returns every row as its store returned it.
    pub(crate) async fn rows(self) -> Result<Rows> {
        let (on, state, text) = self.bound()?;
        match on {
            On::Postgres(conn, arguments) => {
                let query = sqlx::query_with::<Postgres, _>(text, arguments);
                let rows = state.run(text, query.fetch_all(conn)).await?;
                Ok(Rows::Postgres(rows))
            }
            On::Sqlite(conn, arguments) => {
                let query = sqlx::query_with::<Sqlite, _>(text, arguments);
                let rows = state.run(text, query.fetch_all(conn)).await?;
                Ok(Rows::Sqlite(rows))
            }
        }
    }

    fn bound(self) -> Result<(On<'c>, &'c mut State, &'static str)> {
        match self.not_bound {
            Some(error) => Err(Error::Encode(error)),
            None => Ok((self.on, self.state, self.text)),
        }
    }
}

impl State {
    /// Runs a statement that is not the start or end of a transaction.
    pub(crate) async fn run<T>(
        &mut self,
        text: &str,
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        metrics::counter!("db_statements_total").increment(1);
        match self.purpose {
            Purpose::Read => count_transaction("read"),
            Purpose::Write => count_transaction("write"),
            Purpose::Transaction => {}
        }
        self.watch(text, answer).await
    }

    /// Runs a statement in its own span, and records how it ended.
    async fn watch<T>(&mut self, text: &str, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let before = self.failed;
        self.failed = true;
        self.unanswered = true;
        // Only the text: values stay out of traces. A loop's checks for work belong to no trace,
        // and start none.
        let span = if Span::current().is_none() {
            Span::none()
        } else {
            tracing::debug_span!("sql", otel.kind = "client", db.query.text = text)
        };
        let answer = answer.instrument(span);
        let answer = match self.answer_max {
            Some(most) => tokio::time::timeout(most, answer)
                .await
                .unwrap_or_else(|_| Err(Error::Io(io::ErrorKind::TimedOut.into()))),
            None => answer.await,
        };
        self.unanswered = answer.as_ref().is_err_and(|error| {
            matches!(error, Error::Io(_) | Error::Tls(_) | Error::Protocol(_))
                || postgres::is_read_only(error)
        });
        self.failed = before || answer.is_err();
        answer
    }
}

/// Counts a transaction that is about to be committed.
fn count_transaction(kind: &'static str) {
    metrics::counter!("db_transactions_total", "kind" => kind).increment(1);
}

pub(crate) fn known<T>(found: impl Iterator<Item = Result<T>>) -> Result<KnownRows<T>> {
    let mut unknown = 0;
    let known = found.filter(|row| {
        let column = row.as_ref().err().and_then(unknown_value);
        let is_known = column.inspect(|column| count_unknown(column)).is_none();
        unknown += usize::from(!is_known);
        is_known
    });
    let rows = known.collect::<Result<_>>()?;
    Ok(KnownRows { rows, unknown })
}
