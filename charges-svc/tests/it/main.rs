//! charges-svc through its doors.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod books;
mod create;
mod hosted;
mod operate;
mod rail_away;
mod rails;
mod stalling;
mod store;
mod world;
