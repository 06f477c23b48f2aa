//! Several writes in one round trip.
//!
//! On PostgreSQL they are one statement, whose parts all see the state from before it; on SQLite they
//! run one after the other. So no part may read what another writes, no two may touch the same row,
//! and none returns rows.

use std::{
    collections::HashMap,
    mem,
    sync::{LazyLock, PoisonError, RwLock},
};

use sqlx::{Arguments as _, Postgres, Row as _, Sqlite, postgres::PgRow};

use crate::{
    Conn, Db, Error, Param, Result, Tx,
    connection::StoreConnection,
    error::has_code,
    postgres,
    set::{Batch, Bound, ColumnValue, SetStatement, Values, batches, other_store, renumbered},
    sqlite,
};

/// Writes that are sent together. Nothing is sent before [`Joint::rows_affected`] or [`Joint::run`]
/// is awaited.
#[must_use = "nothing runs before one of its methods is awaited"]
pub struct Joint<'c> {
    on: On<'c>,
    parts: Vec<Part>,
    /// On SQLite of the last part alone.
    values: Values,
    /// A part that is no statement about a set, although it should be.
    refused: Option<Error>,
}

enum On<'c> {
    Tx(&'c mut Tx),
    Alone(&'c Db),
}

struct Part {
    statement: Statement,
    rows: usize,
    /// How many parameters the parts before it have, on PostgreSQL.
    before: usize,
    /// The number of its last parameter, on PostgreSQL.
    last: usize,
    /// Whether nothing is written unless it changes as many rows as its set has.
    is_whole: bool,
    /// Its values, on SQLite.
    batches: Vec<Batch>,
}

#[derive(Clone, Copy)]
enum Statement {
    Plain(&'static str),
    Set(&'static SetStatement),
}

impl Statement {
    fn postgres(self) -> &'static str {
        match self {
            Self::Plain(text) => text,
            Self::Set(statement) => statement.postgres,
        }
    }

    fn sqlite(self, rows: usize) -> Result<&'static str> {
        match self {
            Self::Plain(text) => Ok(sqlite::translated(text)),
            Self::Set(statement) => statement.sqlite(rows),
        }
    }
}

impl Tx {
    /// Several writes of this transaction in one round trip.
    pub fn joint(&mut self) -> Joint<'_> {
        let is_postgres = self.is_postgres();
        Joint::new(On::Tx(self), is_postgres)
    }
}

impl Db {
    /// Several writes that become a transaction of their own.
    pub fn joint(&self) -> Joint<'_> {
        Joint::new(On::Alone(self), self.is_postgres())
    }
}

impl<'c> Joint<'c> {
    fn new(on: On<'c>, is_postgres: bool) -> Self {
        Self {
            on,
            parts: Vec::new(),
            values: Values::new(is_postgres, 0),
            refused: None,
        }
    }

    /// Adds a write, as for [`Conn::sql`]. Its values follow.
    pub fn sql(mut self, text: &'static str) -> Self {
        self.begin_part(Statement::Plain(text), 1);
        self
    }

    /// Adds a write about a set of this many rows, as for [`Conn::sql_set`]. Its values follow.
    pub fn sql_set(mut self, text: &'static str, rows: usize) -> Self {
        match SetStatement::of(text) {
            Ok(statement) => self.begin_part(Statement::Set(statement), rows),
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        self
    }

    fn begin_part(&mut self, statement: Statement, rows: usize) {
        let before = self.end_part(rows);
        self.parts.push(Part {
            statement,
            rows,
            before,
            last: before,
            is_whole: false,
            batches: Vec::new(),
        });
    }

    /// Leaves the last part its values, for a next one of this many rows. Returns the number of
    /// parameters so far.
    fn end_part(&mut self, next_rows: usize) -> usize {
        self.values.rows = next_rows;
        match &mut self.values.bound {
            Bound::Postgres(arguments) => {
                let last = arguments.len();
                if let Some(part) = self.parts.last_mut() {
                    part.last = last;
                }
                last
            }
            Bound::Sqlite(bound) => {
                let bound = mem::replace(bound, batches(next_rows));
                if let Some(last) = self.parts.last_mut() {
                    last.batches = bound;
                }
                0
            }
        }
    }

    /// Binds the value of the last part's next parameter; of a set, one that every row shares.
    pub fn bind<'q, T>(mut self, value: T) -> Self
    where
        T: Param<'q>,
        for<'a> &'a T: Param<'q>,
    {
        self.values.bind(value);
        self
    }

    /// Binds the values of the next column of the last part's set.
    pub fn column<'q, T: ColumnValue<'q>>(mut self, column: impl IntoIterator<Item = T>) -> Self {
        self.values.column(column);
        self
    }

    /// Nothing at all is written unless the last part changes a row for each of its set: the whole
    /// then fails with [`is_incomplete`](crate::is_incomplete). A violated constraint does that,
    /// too, but PostgreSQL would write the values into its log.
    pub fn whole(mut self) -> Self {
        if let Some(part) = self.parts.last_mut() {
            part.is_whole = true;
        }
        self
    }

    /// For writes that certainly change rows, or for which their number does not matter.
    pub async fn run(self) -> Result<()> {
        self.run_parts().await?;
        Ok(())
    }

    /// Returns how many rows each part has changed.
    pub async fn rows_affected<const N: usize>(self) -> Result<[u64; N]> {
        let affected = self.run_parts().await?;
        let parts = affected.len();
        let other = |_| Error::Protocol(format!("{parts} writes were given, not {N}"));
        affected.try_into().map_err(other)
    }

    async fn run_parts(mut self) -> Result<Vec<u64>> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        self.end_part(0);
        let (parts, bound) = (self.parts, self.values.bound()?);
        // A transaction's locks were told when it began.
        let is_hasty = matches!(&self.on, On::Alone(db) if db.is_hasty);
        match self.on {
            On::Tx(tx) => run(tx, parts, bound, is_hasty).await,
            On::Alone(db) if db.is_postgres() => {
                run(&mut db.write().await?, parts, bound, is_hasty).await
            }
            On::Alone(db) => {
                let mut tx = db.begin().await?;
                let affected = run(&mut tx, parts, bound, is_hasty).await?;
                tx.commit().await?;
                Ok(affected)
            }
        }
    }
}

async fn run(conn: &mut Conn, parts: Vec<Part>, bound: Bound, is_hasty: bool) -> Result<Vec<u64>> {
    let state = &mut conn.state;
    let mut affected = Vec::new();
    match (&mut conn.held, bound) {
        (StoreConnection::Postgres(conn), Bound::Postgres(arguments)) => {
            if parts.iter().all(|part| part.rows == 0) {
                return Ok(vec![0; parts.len()]);
            }
            let text = together(&parts, is_hasty);
            let query = sqlx::query_with::<Postgres, _>(text, arguments);
            let counted = state.run(text, query.fetch_one(&mut **conn)).await;
            let is_guarded = parts.iter().any(|part| part.is_whole);
            let counts: PgRow =
                counted.map_err(
                    |error| match is_guarded && has_code(&error, &[INCOMPLETE]) {
                        true => Error::RowNotFound,
                        false => error,
                    },
                )?;
            let mut column = usize::from(is_hasty);
            for part in &parts {
                if part.rows == 0 {
                    affected.push(0);
                    continue;
                }
                let count: i64 = counts.try_get(column)?;
                affected.push(count.unsigned_abs());
                column += 1;
            }
        }
        (StoreConnection::Sqlite(conn), Bound::Sqlite(_)) => {
            for part in parts {
                let mut count = 0;
                for batch in part.batches {
                    let text = part.statement.sqlite(batch.rows)?;
                    let query = sqlx::query_with::<Sqlite, _>(text, batch.arguments);
                    let answer = state.run(text, query.execute(&mut **conn));
                    count += answer.await?.rows_affected();
                }
                if part.is_whole && count < part.rows as u64 {
                    // As PostgreSQL does, so that its transaction cannot be committed.
                    state.failed = true;
                    return Err(Error::RowNotFound);
                }
                affected.push(count);
            }
        }
        (_, Bound::Postgres(_) | Bound::Sqlite(_)) => return Err(other_store()),
    }
    Ok(affected)
}

/// PostgreSQL's division by zero, by which a part that must be whole ends the statement.
const INCOMPLETE: &str = "22012";

/// Where the text of a part lies, its parameters so far, and whether it must be whole.
type Place = (usize, usize, usize, bool);

/// The parts, and whether they wait for locks only for a moment.
type Combination = (Vec<Place>, bool);

/// The parts are static, so each combination is written once.
static TOGETHER: LazyLock<RwLock<HashMap<Combination, &str>>> = LazyLock::new(RwLock::default);

/// One statement of PostgreSQL that runs the parts that have rows and returns how many rows each has
/// changed.
fn together(parts: &[Part], is_hasty: bool) -> &'static str {
    let parts = parts.iter().filter(|part| part.rows > 0);
    let place = |part: &Part| {
        let text = part.statement.postgres();
        let (address, length) = (text.as_ptr().addr(), text.len());
        (address, length, part.before, part.is_whole)
    };
    let combination: Combination = (parts.clone().map(place).collect(), is_hasty);
    let known = TOGETHER.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(&combination) {
        return known;
    }
    drop(known);
    let mut with = Vec::new();
    let mut selected = Vec::new();
    if is_hasty {
        // First, so that it holds for every part: each runs once its count is asked for.
        selected.push(postgres::SELECT_HASTY.to_owned());
    }
    for (number, part) in parts.enumerate() {
        let text = renumbered(part.statement.postgres(), part.before);
        with.push(format!("part{number} as ({text} returning 1)"));
        let count = match part.is_whole {
            // The last parameter is a column of its set.
            true => format!("count(*) / (count(*) = cardinality(${}))::int", part.last),
            false => "count(*)".to_owned(),
        };
        selected.push(format!("(select {count} from part{number})"));
    }
    let text = format!("with {} select {}", with.join(", "), selected.join(", "));
    let mut known = TOGETHER.write().unwrap_or_else(PoisonError::into_inner);
    known.entry(combination).or_insert_with(|| text.leak())
}
