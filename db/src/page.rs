//! Reads pages of lists (`chassis::page`).

use chassis::{clock::Timestamp, page::Place};
use sqlx::{Decode, Postgres, Row as _, Sqlite, Type};

use crate::{
    Record, Result, Sql,
    connection::{Rows, known},
};

/// An id that both stores can read and order.
pub trait PlaceId:
    for<'r> Decode<'r, Postgres> + Type<Postgres> + for<'r> Decode<'r, Sqlite> + Type<Sqlite>
{
}

impl<I> PlaceId for I where
    I: for<'r> Decode<'r, Postgres> + Type<Postgres> + for<'r> Decode<'r, Sqlite> + Type<Sqlite>
{
}

/// A page of a list, newest first.
#[derive(Clone, Debug)]
pub struct Page<T, I> {
    /// May be fewer than asked for, even none: what only a newer version knows is left out.
    pub rows: Vec<T>,
    /// The place after which there may be more.
    pub next: Option<Place<I>>,
}

impl<T, I> Page<T, I> {
    /// Goes on where the search for this page stops.
    pub fn or_after(self, stops_at: Option<Place<I>>) -> Self {
        Self {
            next: self.next.or(stops_at),
            ..self
        }
    }
}

impl Sql<'_> {
    /// Returns a page of up to `size` rows. The statement returns up to one more, each with its
    /// place in the columns `place_at` and `place_id`.
    pub async fn page<T: Record, I: PlaceId>(self, size: u32) -> Result<Page<T, I>> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        match self.rows().await? {
            Rows::Postgres(rows) => page(
                &rows,
                size,
                |row| T::from_row(row),
                |row| Ok((row.try_get("place_at")?, row.try_get("place_id")?)),
            ),
            Rows::Sqlite(rows) => page(
                &rows,
                size,
                |row| T::from_row(row),
                |row| Ok((row.try_get("place_at")?, row.try_get("place_id")?)),
            ),
        }
    }
}

/// Where the next page begins does not depend on whether this version knows the rows.
fn page<R, T, I>(
    rows: &[R],
    size: usize,
    read: impl Fn(&R) -> Result<T>,
    place: impl Fn(&R) -> Result<(Timestamp, I)>,
) -> Result<Page<T, I>> {
    let shown = rows.get(..size).unwrap_or(rows);
    let last = shown.last().filter(|_| rows.len() > size);
    let next = last.map(place).transpose()?;
    Ok(Page {
        rows: known(shown.iter().map(read))?.rows,
        next: next.map(|(at, id)| Place { at, id }),
    })
}
