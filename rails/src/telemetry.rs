//! What is counted and logged about calls to rails.

use std::{future::Future, time::Duration};

use chassis::failure::FailureReason;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::{
    answer::{CallOutcome, RailAnswer},
    name::RailName,
};

/// Runs a call in its span, and records its outcome and duration.
pub async fn observed<T: CallOutcome>(
    rail: RailName,
    call: &'static str,
    span: Span,
    work: impl Future<Output = RailAnswer<T>>,
) -> RailAnswer<T> {
    let started = Instant::now();
    let answer = work.instrument(span.clone()).await;
    let (outcome, took) = (answer.outcome.label(), started.elapsed());
    span.record("outcome", outcome);
    span.record(
        "duration_ms",
        u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    );
    if let Some(reason) = answer.outcome.reason() {
        span.record("reason", reason.code());
        if reason == FailureReason::RailConfiguration {
            span.in_scope(|| misconfigured(rail, call));
        }
    }
    count_call(rail, call, outcome, took);
    answer
}

pub fn count_call(rail: RailName, call: &'static str, outcome: &'static str, took: Duration) {
    let rail = rail.code();
    let labels = [("rail", rail), ("call", call), ("outcome", outcome)];
    metrics::counter!("rail_calls_total", &labels).increment(1);
    metrics::histogram!("rail_call_seconds", "rail" => rail, "call" => call).record(took);
}

/// The rail refuses our configuration. An operator must act, since no such call will pass.
pub fn misconfigured(rail: RailName, call: &'static str) {
    let rail = rail.code();
    tracing::error!(rail, call, "the rail refuses our configuration");
    metrics::counter!("rail_configuration_errors_total", "rail" => rail, "call" => call)
        .increment(1);
}

/// A failure reason that is not mapped. The rail's words are kept with the evidence.
pub fn unmapped(rail: RailName) -> FailureReason {
    let rail = rail.code();
    tracing::warn!(rail, "the rail gave a reason that is not mapped");
    metrics::counter!("rail_unmapped_text_total", "rail" => rail).increment(1);
    FailureReason::RailError
}
