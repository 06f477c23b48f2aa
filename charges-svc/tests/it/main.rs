//! Tests of charges-svc through its interfaces.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod books;
mod commit_wire;
mod create;
mod fairness;
mod finality;
mod hints;
mod hosted;
mod leases;
#[expect(dead_code, reason = "the rails' own tests need more of it")]
#[path = "../../../rails/tests/it/network.rs"]
mod network;
mod newer;
mod operate;
mod rail_away;
mod resend;
mod stalling;
mod started;
mod store;
mod world;
