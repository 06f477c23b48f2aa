//! The whole service through its public interfaces: JSON over HTTP, webhooks as a receiver sees
//! them, the simulated networks' own book. Runs on embedded stores, or on the servers in
//! `TEST_DATABASE_URL` and `TEST_REDIS_URL`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod abuse;
mod access;
mod architecture;
mod balance;
mod callers;
mod checkout;
mod config;
mod contradictions;
mod crash;
mod dashboard;
mod events;
mod health;
mod hosted;
mod hubtel;
mod idempotency;
mod kyc;
mod leaks;
mod limits;
mod lists;
mod local;
mod money_out;
mod openapi;
mod otp;
mod paid_late;
mod paystack_transfers;
mod ports;
mod processes;
mod reconciliation;
mod shop;
mod statements;
mod stories;
mod telemetry;
mod tenants;
mod terminal;
mod timeline;
mod travel;
mod wait;
mod wire;
