//! webhooks-svc through its gRPC API, on SQLite, or on PostgreSQL with `TEST_DATABASE_URL`, with
//! receivers that speak real HTTP.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clock;
mod conformance;
mod crash;
mod doctor;
mod endpoint;
mod event_deliveries;
mod exhaustion;
mod fairness;
mod feed;
mod guard;
mod isolation;
mod keep_alive;
mod listing;
mod publish;
mod receiver;
mod receivers;
mod redelivery;
mod replays;
mod schedule;
mod signature;
mod start;
mod tls;
mod trials;
mod world;
