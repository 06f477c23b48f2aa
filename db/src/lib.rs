//! One database over PostgreSQL or SQLite, chosen by the URL's scheme alone.
//!
//! SQL is written once, in the subset that both understand, and runs through [`Conn::sql`]. Only
//! this crate handles the differences: SQLite has one writer, which transactions queue for, and no
//! row locks, so `for update` is stripped from its statements; and no arrays, so there
//! `id = any(array(select …))`, which PostgreSQL always looks up by index, is `id in (select …)`.
//!
//! Work is done in sets: requests that wait at the same moment share a transaction
//! ([`GroupCommit`]), one statement reads or writes many rows ([`Conn::sql_set`]), and one round
//! trip carries several writes ([`Conn::joint`]).
//!
//! What a caller may rely on:
//!
//! - A transaction that is dropped, by an error, a panic or a cancelled request, is rolled back.
//! - A transaction in which a statement failed cannot be committed, on either store.
//! - [`Tx::commit`] that returns an error leaves the outcome *unknown*: the reply may have been
//!   lost after the server committed. Treat it as neither done nor undone, and check again.
//! - No call waits forever: see the limits in `postgres.rs` and `sqlite.rs`.
//!
//! Functions that only read take `&mut Conn`, functions that write take `&mut Tx`; a `&mut Tx`
//! derefs to a `&mut Conn`. Never ask the [`Db`] for a second connection while holding a
//! transaction: on SQLite the caller would wait for itself.

mod alignment;
pub mod config;
mod connection;
mod database;
mod error;
pub mod frame;
mod group_commit;
pub mod idempotency;
mod joint;
mod oldest;
pub mod outbox;
mod page;
mod postgres;
mod relay;
mod schema;
mod searches;
mod set;
mod sqlite;
#[doc(hidden)]
pub mod testing;
pub mod work;

pub use connection::{Conn, Insert, KnownRows, Param, Record, Sql, Tx, Update};
pub use database::Db;
pub use error::{
    Error, Result, is_incomplete, is_retryable, is_unavailable, is_unique_violation, status,
};
pub use frame::Frame;
pub use group_commit::{GroupCommit, Grouped};
pub use joint::Joint;
pub use oldest::OldestGauge;
pub use page::{Page, PlaceId};
pub use postgres::create_database_if_missing;
pub use relay::{Relay, RelayOutcome, Telling, UntoldRow};
pub use schema::{Schema, migrate};
pub use searches::{Searches, TooManySearches};
pub use set::{ColumnValue, SetSql};
