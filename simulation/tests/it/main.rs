//! Tests of the simulation's own parts.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod links;
mod planted;
mod postgres_links;
mod runs;
mod world;
