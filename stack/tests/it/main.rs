//! The whole service through its public doors: JSON over HTTP, webhooks as a receiver sees them,
//! the simulated networks' own book. On embedded stores, or on the servers that
//! `TEST_DATABASE_URL` and `TEST_REDIS_URL` name.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod abuse;
mod access;
mod architecture;
mod checkout;
mod config;
mod contradictions;
mod crash;
mod health;
mod hosted;
mod idempotency;
mod leaks;
mod limits;
mod lists;
mod local;
mod openapi;
mod otp;
mod processes;
mod shop;
mod stories;
mod telemetry;
mod tenants;
mod travel;
mod wire;
