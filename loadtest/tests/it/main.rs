//! Tests of the load tester itself. Their verdicts are on counts, never on how fast a machine is.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod baselines;
mod chart;
mod pace;
mod replicas;
mod signals;
mod storm;
mod targets;
