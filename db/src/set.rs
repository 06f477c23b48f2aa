//! Statements about a set of rows, written once for both stores.
//!
//! Such a text begins with the set's columns and their types on PostgreSQL, and then uses `given` as
//! a table:
//!
//! ```sql
//! given (id uuid, name text)
//! update account set name = given.name from given where account.id = given.id
//! ```
//!
//! PostgreSQL gets the whole set in one statement, as arrays. SQLite has none: it gets the rows as
//! they are, in batches of a few sizes, so that its statements are prepared once. So a text must mean
//! the same either way: no row of a set may depend on another, and no two may change the same.

use std::{
    array,
    collections::HashMap,
    iter,
    sync::{LazyLock, PoisonError, RwLock},
};

use sqlx::{
    Arguments as _, Postgres, Sqlite,
    error::BoxDynError,
    postgres::{PgArguments, PgHasArrayType},
    sqlite::SqliteArguments,
};

use crate::{
    Conn, Error, KnownRows, Param, Record, Result,
    connection::{StoreConnection, known},
    sqlite,
};

/// A value of a set's column.
pub trait ColumnValue<'q>: Param<'q> + PgHasArrayType {}

impl<'q, T: Param<'q> + PgHasArrayType> ColumnValue<'q> for T {}

/// A statement about a set, with its values. Runs once one of its methods is awaited; nothing is sent
/// for an empty set.
#[must_use = "nothing runs before one of its methods is awaited"]
pub struct SetSql<'c> {
    conn: &'c mut Conn,
    text: &'static str,
    values: Values,
}

impl Conn {
    /// A statement about a set of this many rows. Its text begins with `given (…)`, see `set.rs`. On
    /// SQLite a write belongs into a transaction, or each batch commits by itself.
    pub fn sql_set(&mut self, text: &'static str, rows: usize) -> SetSql<'_> {
        SetSql {
            values: Values::new(self.is_postgres(), rows),
            conn: self,
            text,
        }
    }
}

impl SetSql<'_> {
    /// Binds the value of the next parameter, which every row shares. These come before the columns.
    pub fn bind<'q, T>(mut self, value: T) -> Self
    where
        T: Param<'q>,
        for<'a> &'a T: Param<'q>,
    {
        self.values.bind(value);
        self
    }

    /// Binds the values of the next column of `given`, one for each row.
    pub fn column<'q, T: ColumnValue<'q>>(mut self, column: impl IntoIterator<Item = T>) -> Self {
        self.values.column(column);
        self
    }

    /// For a statement that certainly changes rows, or for which their number does not matter.
    pub async fn run(self) -> Result<()> {
        self.rows_affected().await?;
        Ok(())
    }

    /// Changes any number of rows; returns how many.
    pub async fn rows_affected(self) -> Result<u64> {
        if self.values.rows == 0 {
            return Ok(0);
        }
        let statement = SetStatement::of(self.text)?;
        let state = &mut self.conn.state;
        match (&mut self.conn.held, self.values.bound()?) {
            (StoreConnection::Postgres(conn), Bound::Postgres(arguments)) => {
                let text = statement.postgres;
                let query = sqlx::query_with::<Postgres, _>(text, arguments);
                let answer = state.run(text, query.execute(&mut **conn));
                Ok(answer.await?.rows_affected())
            }
            (StoreConnection::Sqlite(conn), Bound::Sqlite(batches)) => {
                let mut affected = 0;
                for batch in batches {
                    let text = statement.sqlite(batch.rows)?;
                    let query = sqlx::query_with::<Sqlite, _>(text, batch.arguments);
                    let answer = state.run(text, query.execute(&mut **conn));
                    affected += answer.await?.rows_affected();
                }
                Ok(affected)
            }
            (_, Bound::Postgres(_) | Bound::Sqlite(_)) => Err(other_store()),
        }
    }

    /// Returns every row that the statement returns, in no certain order.
    pub async fn all<T: Record>(self) -> Result<Vec<T>> {
        self.fetch(|rows| rows.collect()).await
    }

    /// Like [`SetSql::all`]; a row with a value that this version does not know is left out and
    /// counted.
    pub async fn known<T: Record>(self) -> Result<KnownRows<T>> {
        self.fetch(|rows| known(rows)).await
    }

    async fn fetch<T: Record, R>(
        self,
        read: impl FnOnce(&mut dyn Iterator<Item = Result<T>>) -> Result<R>,
    ) -> Result<R> {
        if self.values.rows == 0 {
            return read(&mut iter::empty());
        }
        let statement = SetStatement::of(self.text)?;
        let state = &mut self.conn.state;
        match (&mut self.conn.held, self.values.bound()?) {
            (StoreConnection::Postgres(conn), Bound::Postgres(arguments)) => {
                let text = statement.postgres;
                let query = sqlx::query_with::<Postgres, _>(text, arguments);
                let rows = state.run(text, query.fetch_all(&mut **conn)).await?;
                read(&mut rows.iter().map(T::from_row))
            }
            (StoreConnection::Sqlite(conn), Bound::Sqlite(batches)) => {
                let mut rows = Vec::new();
                for batch in batches {
                    let text = statement.sqlite(batch.rows)?;
                    let query = sqlx::query_with::<Sqlite, _>(text, batch.arguments);
                    rows.extend(state.run(text, query.fetch_all(&mut **conn)).await?);
                }
                read(&mut rows.iter().map(T::from_row))
            }
            (_, Bound::Postgres(_) | Bound::Sqlite(_)) => Err(other_store()),
        }
    }
}

pub(crate) fn other_store() -> Error {
    Error::Protocol("values for one store, and a connection to the other".into())
}

/// The values of a statement: on SQLite those of each batch apart.
pub(crate) struct Values {
    pub rows: usize,
    pub bound: Bound,
    /// The first value that could not be bound.
    refused: Option<BoxDynError>,
}

pub(crate) enum Bound {
    Postgres(PgArguments),
    Sqlite(Vec<Batch>),
}

/// Some rows that SQLite gets at once.
#[derive(Clone)]
pub(crate) struct Batch {
    /// A power of two, up to [`BATCH_MAX`].
    pub rows: usize,
    /// What every row shares, and then column after column.
    pub arguments: SqliteArguments,
}

const BATCH_MAX: usize = 16;

/// As few batches as these rows need, the largest first.
pub(crate) fn batches(mut rows: usize) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(power) = rows.min(BATCH_MAX).checked_ilog2() {
        let batch = 1 << power;
        batches.push(Batch {
            rows: batch,
            arguments: SqliteArguments::default(),
        });
        rows -= batch;
    }
    batches
}

impl Values {
    pub fn new(is_postgres: bool, rows: usize) -> Self {
        let bound = if is_postgres {
            Bound::Postgres(PgArguments::default())
        } else {
            Bound::Sqlite(batches(rows))
        };
        Self {
            rows,
            bound,
            refused: None,
        }
    }

    pub fn bind<'q, T>(&mut self, value: T)
    where
        T: Param<'q>,
        for<'a> &'a T: Param<'q>,
    {
        if self.rows == 0 {
            return;
        }
        let bound = match &mut self.bound {
            Bound::Postgres(arguments) => arguments.add(value),
            Bound::Sqlite(batches) => {
                let mut batches = batches.iter_mut();
                batches.try_for_each(|batch| batch.arguments.add(&value))
            }
        };
        self.note(bound);
    }

    pub fn column<'q, T: ColumnValue<'q>>(&mut self, column: impl IntoIterator<Item = T>) {
        let column: Vec<T> = column.into_iter().collect();
        if column.is_empty() && self.rows == 0 {
            return;
        }
        let bound = if column.len() == self.rows {
            match &mut self.bound {
                Bound::Postgres(arguments) => arguments.add(column),
                Bound::Sqlite(batches) => {
                    let mut column = column.into_iter();
                    batches.iter_mut().try_for_each(|batch| {
                        let mut values = column.by_ref().take(batch.rows);
                        values.try_for_each(|value| batch.arguments.add(value))
                    })
                }
            }
        } else {
            let (rows, values) = (self.rows, column.len());
            Err(format!("a column of {values} values in a set of {rows} rows").into())
        };
        self.note(bound);
    }

    fn note(&mut self, bound: Result<(), BoxDynError>) {
        if let Err(refused) = bound {
            self.refused.get_or_insert(refused);
        }
    }

    pub fn bound(self) -> Result<Bound> {
        match self.refused {
            Some(refused) => Err(Error::Encode(refused)),
            None => Ok(self.bound),
        }
    }
}

/// A statement about a set, as each store runs it.
#[derive(Debug)]
pub(crate) struct SetStatement {
    pub postgres: &'static str,
    /// For batches of 1, 2, 4, … rows.
    sqlite: [&'static str; BATCH_MAX.ilog2() as usize + 1],
}

/// Statements are static, so each is known by where it lies, and translated once.
static TRANSLATED: LazyLock<RwLock<HashMap<(usize, usize), &SetStatement>>> =
    LazyLock::new(RwLock::default);

impl SetStatement {
    pub fn of(text: &'static str) -> Result<&'static Self> {
        let place = (text.as_ptr().addr(), text.len());
        let known = TRANSLATED.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&place) {
            return Ok(known);
        }
        drop(known);
        let translated = Self::translate(text).ok_or_else(|| {
            Error::Protocol(format!(
                "not `given (column type, …)` and a statement: {text}"
            ))
        })?;
        let mut known = TRANSLATED.write().unwrap_or_else(PoisonError::into_inner);
        Ok(known
            .entry(place)
            .or_insert_with(|| Box::leak(Box::new(translated))))
    }

    fn translate(text: &'static str) -> Option<Self> {
        let (columns, statement) = text.trim_start().strip_prefix("given (")?.split_once(')')?;
        let columns = columns
            .split(',')
            .map(|column| column.trim().split_once(' '));
        let columns: Vec<(&str, &str)> = columns.collect::<Option<_>>()?;
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        // The columns follow what every row shares.
        let first = parameters(statement) + 1;
        let arrays: Vec<String> = (first..)
            .zip(&columns)
            .map(|(number, (_, kind))| format!("${number}::{kind}[]"))
            .collect();
        let arrays = arrays.join(", ");
        let statement = statement.trim_start();
        // A statement that has a `with` of its own goes on with it.
        let statement = match statement.strip_prefix("with ") {
            Some(rest) => format!(", {rest}"),
            None => format!(" {statement}"),
        };
        let sqlite = array::from_fn(|power| {
            let values = values(first, columns.len(), 1 << power);
            sqlite::translated(format!("with given ({names}) as ({values}){statement}").leak())
        });
        Some(Self {
            postgres: format!(
                "with given ({names}) as (select * from unnest({arrays})){statement}"
            )
            .leak(),
            sqlite,
        })
    }

    /// For a [`Batch`] of this many rows.
    pub fn sqlite(&self, rows: usize) -> Result<&'static str> {
        let power = rows
            .checked_ilog2()
            .and_then(|power| usize::try_from(power).ok());
        let text = power.and_then(|power| self.sqlite.get(power));
        text.copied()
            .ok_or_else(|| Error::Protocol(format!("a batch of {rows} rows")))
    }
}

/// A table of parameters, which are counted from `first`, column after column.
fn values(first: usize, columns: usize, rows: usize) -> String {
    let row = |row| {
        let numbers = (0..columns).map(|column| first + column * rows + row);
        let parameters: Vec<String> = numbers.map(|number| format!("${number}")).collect();
        parameters.join(", ")
    };
    if rows == 1 {
        // Unlike `values`, it becomes a part of the statement that reads it.
        return format!("select {}", row(0));
    }
    let rows: Vec<String> = (0..rows)
        .map(|number| format!("({})", row(number)))
        .collect();
    format!("values {}", rows.join(", "))
}

/// The highest parameter of a statement.
fn parameters(statement: &str) -> usize {
    let numbers = statement.split('$').skip(1).filter_map(leading_number);
    numbers.max().unwrap_or_default()
}

/// The statement with its parameters counted from `before`.
pub(crate) fn renumbered(statement: &str, before: usize) -> String {
    let mut parts = statement.split('$');
    let mut renumbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        renumbered.push('$');
        if let Some(number) = leading_number(part) {
            renumbered.push_str(&(number + before).to_string());
        }
        renumbered.push_str(rest);
    }
    renumbered
}

fn leading_number(text: &str) -> Option<usize> {
    let end = text.find(|digit: char| !digit.is_ascii_digit());
    text.get(..end.unwrap_or(text.len()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_arrays_on_postgresql_and_rows_on_sqlite() {
        let text = "given (id uuid, due timestamptz)
            update outbox set due_at = given.due from given
            where outbox.id = given.id and claim = $1";
        let statement = SetStatement::of(text).unwrap();
        let rest = "update outbox set due_at = given.due from given
            where outbox.id = given.id and claim = $1";
        let arrays = "select * from unnest($2::uuid[], $3::timestamptz[])";
        assert_eq!(
            statement.postgres,
            format!("with given (id, due) as ({arrays}) {rest}")
        );
        for (rows, values) in [
            (1, "select $2, $3"),
            (2, "values ($2, $4), ($3, $5)"),
            (4, "values ($2, $6), ($3, $7), ($4, $8), ($5, $9)"),
        ] {
            assert_eq!(
                statement.sqlite(rows).unwrap(),
                format!("with given (id, due) as ({values}) {rest}")
            );
        }
        assert!(statement.sqlite(BATCH_MAX).unwrap().contains("($17, $33)"));
        assert!(statement.sqlite(2 * BATCH_MAX).is_err());
        assert!(statement.sqlite(0).is_err());
        assert!(SetStatement::of("update outbox set due_at = $1").is_err());
    }

    #[test]
    fn a_statement_keeps_its_own_with() {
        let text = "given (id uuid) with due as (select id from given) select id from due";
        let statement = SetStatement::of(text).unwrap();
        assert_eq!(
            statement.sqlite(1).unwrap(),
            "with given (id) as (select $1), due as (select id from given) select id from due"
        );
    }

    #[test]
    fn sqlite_gets_as_few_batches_as_a_set_needs() {
        let sizes = |rows| -> Vec<usize> { batches(rows).iter().map(|batch| batch.rows).collect() };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(15), [8, 4, 2, 1]);
        assert_eq!(sizes(39), [16, 16, 4, 2, 1]);
    }

    #[test]
    fn parameters_are_counted_on() {
        assert_eq!(
            renumbered("a = $1 and b = $12::uuid[]", 3),
            "a = $4 and b = $15::uuid[]"
        );
        assert_eq!(renumbered("select 1", 3), "select 1");
    }
}
