//! Runs attempts: claims what is due, a few per endpoint, and records how each one ended.
//!
//! An endpoint that hangs takes up only its own few places. An attempt is on record before it is
//! sent; one whose process died is found by its lease and counts as failed.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    clock::{Alarm, Clock, Term, Timestamp},
    error_chain::chain,
    telemetry,
};
use db::{
    Db, GroupCommit, Result, Update,
    work::{Claimed, TaskSet, Work},
};
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    delivery::{AttemptEnd, AttemptOutcome, AttemptRun, AttemptVerdict, DeliveryState, Schedule},
    endpoint::Endpoint,
    secret::Keyring,
    send::{self, Sender},
    signature,
    store::attempts::{self, ClaimRequest, EndpointQueue},
};

/// How often expired leases are looked for: not on every pass, because every replica does it.
const LOOK_FOR_EXPIRED: Duration = Duration::from_secs(5);

/// Pause before recording again when the database refuses.
const RECORD_AGAIN: Duration = Duration::from_millis(200);

/// What running attempts needs.
#[derive(Clone, Debug)]
pub struct Attempts {
    pub db: Db,
    pub clock: Clock,
    pub keyring: Keyring,
    pub sender: Sender,
    pub schedule: Schedule,
    pub limits: Limits,
    pub ends: GroupCommit<AttemptEnd>,
    /// Of this work.
    pub alarm: Alarm,
    pub looked_for_expired: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most attempts that this process runs at the same time.
    pub running_max: usize,
    /// Most attempts that run to one endpoint at the same time, over all processes.
    pub running_per_endpoint_max: i64,
    /// Real time.
    pub lease: Duration,
}

impl Work for Attempts {
    fn running_max(&self) -> usize {
        self.limits.running_max
    }

    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let queues = self.look().await.context("deliveries cannot be read")?;
        Ok(queues.into_iter().map(|queue| queue.due_at).min())
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let claimed = self.begin_due(tasks).await;
        claimed.context("deliveries are not started")
    }
}

impl Attempts {
    async fn look(&mut self) -> Result<Vec<EndpointQueue>> {
        let looked = self.looked_for_expired;
        if looked.is_none_or(|then| then.elapsed() >= LOOK_FOR_EXPIRED) {
            self.end_expired().await?;
            self.looked_for_expired = Some(Instant::now());
        }
        let most = self.limits.running_per_endpoint_max;
        attempts::waiting(&self.db, most, self.clock.now()).await
    }

    async fn begin_due(&mut self, tasks: &mut TaskSet) -> Result<Claimed> {
        let queues = self.look().await?.into_iter();
        let now = self.clock.now();
        for queue in queues.filter(|queue| queue.due_at <= now) {
            if tasks.room() == 0 {
                return Ok(Claimed::Part(now));
            }
            self.begin(tasks, queue).await?;
        }
        Ok(Claimed::All)
    }

    /// Starts what is due for one endpoint, as far as there is room.
    async fn begin(&self, tasks: &mut TaskSet, queue: EndpointQueue) -> Result<()> {
        let room = tasks.room();
        if room == 0 {
            return Ok(());
        }
        let term = self.clock.term(self.limits.lease);
        let request = ClaimRequest {
            endpoint_id: queue.endpoint_id,
            running_max: self.limits.running_per_endpoint_max,
            limit: i64::try_from(room).unwrap_or(i64::MAX),
            now: self.clock.now(),
            lease_until: term.until,
        };
        let Some((endpoint, begun)) = attempts::begin(&self.db, request).await? else {
            return Ok(());
        };
        let endpoint = Arc::new(endpoint);
        for attempt in begun {
            if !attempt.manual_running {
                let lag = request.now.since(attempt.due_at);
                metrics::histogram!("webhook_delivery_lag_seconds").record(lag);
            }
            let (attempts, endpoint) = (self.clone(), endpoint.clone());
            tasks.start(async move { attempts.attempt(attempt, &endpoint, term).await });
        }
        Ok(())
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
                return send::failed("not sent: it could not be signed".to_owned());
            }
        };
        if term.is_over(&self.clock) {
            // Somebody else may be sending the next one already.
            return interrupted();
        }
        let unix_seconds = self.clock.host_now().unix_seconds();
        let signature = signature::header(&secrets, unix_seconds, &attempt.body);
        self.sender.send(&endpoint.url, attempt, signature).await
    }

    fn end(&self, attempt: AttemptRun, outcome: AttemptOutcome) -> AttemptEnd {
        let at = self.clock.now();
        AttemptEnd {
            state: self.schedule.after(&attempt, outcome.verdict, at),
            attempt,
            outcome,
            at,
        }
    }

    /// Records the end. While the database refuses, tries again for as long as the claim holds;
    /// after that the attempt counts as interrupted.
    async fn record(&self, end: AttemptEnd, term: Term) {
        loop {
            match self.ends.write(end.clone()).await {
                Ok(recorded) => {
                    show(&end, recorded);
                    return self.ring(&end.state);
                }
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

    /// The endpoint has a free place, and the next attempt may be due later.
    fn ring(&self, state: &DeliveryState) {
        if let Some(due) = state.next_attempt_at {
            self.alarm.ring_at(due);
        }
        self.alarm.ring_at(self.clock.now());
    }

    /// Ends the attempts of processes that died.
    async fn end_expired(&self) -> Result<()> {
        let expired = attempts::expired(&self.db, self.clock.real_now()).await?;
        let ends = expired.into_iter();
        let ends: Vec<_> = ends
            .map(|attempt| self.end(attempt, interrupted()))
            .collect();
        if ends.is_empty() {
            return Ok(());
        }
        for (end, recorded) in ends.iter().zip(self.ends.write_set(&ends).await) {
            match recorded {
                Ok(recorded) => show(end, recorded),
                Err(error) => {
                    tracing::warn!(
                        error = %chain(&error),
                        delivery.id = %end.attempt.delivery_id,
                        "an interrupted attempt is not recorded yet"
                    );
                }
            }
        }
        Ok(())
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
        ..send::failed("interrupted".to_owned())
    }
}
