//! sessions-svc through its gRPC API, on SQLite, or on PostgreSQL with `TEST_DATABASE_URL`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clock;
mod create;
mod customers;
mod expiry;
mod history;
mod lists;
mod record;
mod sets;
mod unconfirmed;
mod webhooks;
mod world;
