//! charges-svc through its doors.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod create;
mod finality;
mod hosted;
mod leases;
mod operate;
mod rail_away;
mod rails;
mod resend;
mod stalling;
mod store;
mod world;
