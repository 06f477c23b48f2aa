//! charges-svc through its doors.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod books;
mod commit_wire;
mod create;
mod fairness;
mod finality;
mod hints;
mod hosted;
mod leases;
mod operate;
mod rail_away;
mod rails;
mod resend;
mod stalling;
mod started;
mod store;
mod world;
