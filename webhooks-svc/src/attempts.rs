//! Runs attempts: signs and sends each, and records how it ended.
//!
//! An attempt is on record before it is sent; one whose process died is found by its lease and counts
//! as failed.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chassis::{
    clock::{Clock, Term},
    error_chain::chain,
    sealed::Keyring,
    shutdown::{Shutdown, Tasks},
    telemetry,
};
use db::{GroupCommit, Update};
use futures::FutureExt as _;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    delivery::{AttemptEnd, AttemptOutcome, AttemptRun, AttemptVerdict, Cause, Schedule},
    endpoint::Endpoint,
    queues::{Place, Queues},
    send::{self, Message, Sender},
    signature,
};

/// The name of this work in logs.
pub const WORK: &str = "webhook attempts";

/// Pause before recording again when the database refuses.
const RECORD_AGAIN: Duration = Duration::from_millis(200);

/// Runs attempts that have begun.
#[derive(Debug)]
pub struct AttemptRunner {
    pub clock: Clock,
    pub keyring: Keyring,
    pub sender: Sender,
    pub schedule: Schedule,
    pub limits: Limits,
    pub ends: GroupCommit<AttemptEnd>,
    pub queues: Queues,
    pub tasks: Tasks,
    /// Begins when attempts are cut off, as in a crash.
    pub cut_off: Shutdown,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most attempts that run to one endpoint at the same time, over all processes.
    pub running_per_endpoint_max: usize,
    /// Real time.
    pub lease: Duration,
}

impl AttemptRunner {
    /// Runs an attempt that is on record, in its place. Time travel waits for it.
    pub fn start(
        self: &Arc<Self>,
        attempt: AttemptRun,
        endpoint: Arc<Endpoint>,
        term: Term,
        mut place: Place,
    ) {
        if !attempt.manual_running {
            let lag = self.clock.now().since(attempt.due_at);
            metrics::histogram!("webhook_delivery_lag_seconds").record(lag);
        }
        place.begin();
        let (runner, activity) = (self.clone(), self.clock.activity());
        self.tasks.spawn_apart(async move {
            let attempting = AssertUnwindSafe(runner.attempt(attempt, &endpoint, term));
            tokio::select! {
                biased;
                () = runner.cut_off.wait() => {}
                ended = attempting.catch_unwind() => if ended.is_err() {
                    tracing::error!(work = WORK, "a task panicked, what it held waits for its lease");
                }
            }
            drop(place);
            drop(activity);
        });
    }

    /// Sends one attempt, in the trace of its event, and records how it ended.
    async fn attempt(&self, attempt: AttemptRun, endpoint: &Endpoint, term: Term) {
        let span = tracing::info_span!(
            "webhook attempt",
            otel.kind = "client",
            event.id = %attempt.event_id,
            event.r#type = attempt.event_type,
            delivery.id = %attempt.delivery_id,
            endpoint.id = %attempt.endpoint_id,
            attempt = attempt.attempts_count,
            http.response.status_code = Empty,
            outcome = Empty,
        );
        telemetry::set_parent(&span, attempt.traceparent.as_deref());
        let attempting = async {
            let started_at = Instant::now();
            let mut outcome = self.send(&attempt, endpoint, term).await;
            outcome.duration = started_at.elapsed();
            let span = Span::current();
            span.record("outcome", outcome.verdict.code());
            span.record("http.response.status_code", outcome.http_status);
            self.record(self.end(attempt, outcome), term).await;
        };
        attempting.instrument(span).await;
    }

    async fn send(&self, attempt: &AttemptRun, endpoint: &Endpoint, term: Term) -> AttemptOutcome {
        let secrets = match endpoint.signing_secrets(&self.keyring, self.clock.now()) {
            Ok(secrets) => secrets,
            Err(error) => {
                tracing::error!(error = %chain(&error), "a delivery cannot be signed");
                return send::failed(Cause::Unsigned, "not sent: it could not be signed");
            }
        };
        if term.is_over(&self.clock) {
            // Somebody else may be sending the next one already.
            return interrupted();
        }
        let unix_seconds = self.clock.host_now().unix_seconds();
        let signature = signature::header(&secrets, unix_seconds, &attempt.body);
        let message = Message {
            event_id: &attempt.event_id,
            delivery_id: &attempt.delivery_id,
            attempt: attempt.attempts_count,
            body: &attempt.body,
            signature: &signature,
        };
        self.sender.send(&endpoint.url, &message).await
    }

    fn end(&self, attempt: AttemptRun, outcome: AttemptOutcome) -> AttemptEnd {
        let at = self.clock.now();
        AttemptEnd {
            state: self.schedule.after(&attempt, outcome.verdict, at),
            attempt: Arc::new(attempt),
            outcome,
            at,
        }
    }

    /// Records the end. While the database refuses, tries again for as long as the claim holds;
    /// after that the attempt counts as interrupted.
    async fn record(&self, end: AttemptEnd, term: Term) {
        loop {
            match self.ends.run(end.clone()).await {
                Ok(recorded) => return self.show(&end, recorded),
                Err(error) if !term.is_over(&self.clock) => {
                    tracing::warn!(error = %chain(&error), "an attempt is not recorded yet");
                    tokio::time::sleep(RECORD_AGAIN).await;
                }
                Err(error) => {
                    tracing::error!(error = %chain(&error), "an attempt was not recorded, it counts as interrupted");
                    return;
                }
            }
        }
    }

    /// Ends attempts of processes that died.
    pub async fn end_interrupted(&self, attempts: Vec<AttemptRun>) {
        let ends = attempts.into_iter();
        let ends: Vec<_> = ends
            .map(|attempt| self.end(attempt, interrupted()))
            .collect();
        for (end, recorded) in ends.iter().zip(self.ends.run_set(&ends).await) {
            match recorded {
                Ok(recorded) => self.show(end, recorded),
                Err(error) => {
                    tracing::warn!(
                        error = %chain(&error),
                        delivery.id = %end.attempt.delivery_id,
                        "an interrupted attempt is not recorded yet"
                    );
                }
            }
        }
    }

    /// Logs and counts an end that was recorded, and tells when the next attempt is due.
    fn show(&self, end: &AttemptEnd, recorded: Update) {
        show(end, recorded);
        if end.state.manual_owed {
            self.queues.tell(end.attempt.merchant_id);
        } else if let Some(at) = end.state.next_attempt_at {
            self.queues.tell_later(at);
        }
    }
}

/// Logs and counts an end that was recorded.
fn show(end: &AttemptEnd, recorded: Update) {
    let (attempt, outcome) = (&end.attempt, &end.outcome);
    if recorded == Update::NotThere {
        tracing::warn!(delivery.id = %attempt.delivery_id, "the claim was lost");
        return;
    }
    let outcome_code = outcome.verdict.code();
    let kind = if attempt.manual_running {
        "manual"
    } else {
        "scheduled"
    };
    let labels = [("outcome", outcome_code), ("kind", kind)];
    metrics::counter!("webhook_attempts_total", &labels).increment(1);
    metrics::histogram!("webhook_attempt_seconds").record(outcome.duration);
    tracing::info!(
        outcome = outcome_code,
        http_status = outcome.http_status,
        reason = outcome.error,
        "webhook attempt ended"
    );
    if end.is_exhausting() {
        metrics::counter!("webhook_deliveries_exhausted_total").increment(1);
        tracing::warn!(
            delivery.id = %attempt.delivery_id,
            endpoint.id = %attempt.endpoint_id,
            "a delivery is exhausted"
        );
    }
}

fn interrupted() -> AttemptOutcome {
    AttemptOutcome {
        verdict: AttemptVerdict::Interrupted,
        ..send::failed(Cause::Interrupted, "interrupted")
    }
}
