//! The counts that all replicas share, in Redis.
//!
//! Checks that wait at the same moment are decided by one call, each as if it had come by itself.
//! Promises that Redis decides within the configured time or not at all. After a failure Redis is
//! left alone for [`REST_AFTER_FAILURE`], so that an outage costs requests nothing.

use std::{collections::HashMap, iter, panic::AssertUnwindSafe, time::Duration};

use chassis::{
    error_chain::chain, fixed_window::Admission, rate_bucket::RateBucket, shutdown::Tasks,
};
use futures::FutureExt as _;
use redis::{
    Client, RedisError, Script,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
    time::{Instant, timeout},
};

use crate::window::WINDOW_MS;

/// Longest wait for a connection, unless an answer may take longer.
const CONNECT_MAX: Duration = Duration::from_millis(100);

/// Most checks in one call. Redis does nothing else meanwhile, for well under a millisecond.
const SET_MAX: usize = 256;

/// Most checks that wait for the call before theirs. The callers of more wait to hand theirs in.
const WAITING_MAX: usize = 1_024;

/// How long Redis is left alone after a failure.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Redis as seen by one process.
#[derive(Clone)]
pub struct SharedCounts {
    waiting: mpsc::Sender<Check>,
}

/// One request to count, whose caller waits.
struct Check {
    /// The bucket's name in Redis.
    bucket: String,
    limit: u32,
    decision: oneshot::Sender<Admission>,
}

/// Redis did not decide.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("Redis did not answer in time")]
    TimedOut,
    #[error("Redis failed")]
    Redis(#[from] RedisError),
}

impl SharedCounts {
    /// Does not wait for a connection; the first count does.
    pub fn connect(url: &str, answer_max: Duration, tasks: &Tasks) -> Result<Self, RedisError> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX.max(answer_max)))
            .set_response_timeout(Some(answer_max))
            .set_number_of_retries(1)
            .set_max_delay(CONNECT_MAX);
        let counter = Counter {
            connection: ConnectionManager::new_lazy_with_config(Client::open(url)?, config)?,
            script: Script::new(include_str!("window.lua")),
            answer_max,
        };
        let (waiting, checks) = mpsc::channel(WAITING_MAX);
        tasks.spawn(counter.run(checks));
        Ok(Self { waiting })
    }

    /// Has one request counted, unless the bucket is full. No decision comes if Redis does not
    /// decide.
    pub async fn ask(
        &self,
        subject: &str,
        bucket: RateBucket,
        limit: u32,
    ) -> Option<oneshot::Receiver<Admission>> {
        let (decision, decided) = oneshot::channel();
        let check = Check {
            bucket: ["rate:{", subject, "}:", bucket.code()].concat(),
            limit,
            decision,
        };
        self.waiting.send(check).await.ok()?;
        Some(decided)
    }
}

/// What is asked of one bucket at the same moment.
struct Demand {
    limit: u32,
    /// In order of arrival.
    decisions: Vec<oneshot::Sender<Admission>>,
}

/// Has Redis decide the checks that wait, by one call at a time. A check that is dropped undecided
/// tells its caller so.
struct Counter {
    connection: ConnectionManager,
    script: Script,
    answer_max: Duration,
}

impl Counter {
    /// Ends when nobody can check any more.
    async fn run(mut self, mut waiting: mpsc::Receiver<Check>) {
        let mut resting_until = None;
        while let Some(first) = waiting.recv().await {
            // Requests that have arrived, but not yet here, can still join.
            yield_now().await;
            let joining = iter::from_fn(|| waiting.try_recv().ok());
            let set = iter::once(first).chain(joining).take(SET_MAX);
            let demands = demands(set);
            if demands.is_empty() || resting_until.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            // A panic fails one call, not all that come after it.
            match AssertUnwindSafe(self.decide(demands)).catch_unwind().await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => tracing::warn!(
                    error = %chain(&error),
                    "counting in this process until Redis answers"
                ),
                Err(_) => tracing::error!("counting in Redis panicked"),
            }
            resting_until = Some(Instant::now() + REST_AFTER_FAILURE);
        }
    }

    async fn decide(&mut self, demands: Vec<(String, Demand)>) -> Result<(), Error> {
        let mut call = self.script.prepare_invoke();
        call.arg(WINDOW_MS);
        for (bucket, demand) in &demands {
            call.key(bucket)
                .arg(demand.limit)
                .arg(demand.decisions.len());
        }
        let answer = call.invoke_async::<(u32, Vec<u32>)>(&mut self.connection);
        let (left_ms, passed) = timeout(self.answer_max, answer)
            .await
            .map_err(|_| Error::TimedOut)??;
        let reset_seconds = left_ms.div_ceil(1_000).max(1);
        for ((_, demand), passed) in demands.into_iter().zip(passed) {
            let mut left = demand.limit.saturating_sub(passed);
            for decision in demand.decisions {
                let allowed = left > 0;
                left = left.saturating_sub(1);
                let admission = Admission {
                    allowed,
                    remaining: left,
                    reset_seconds,
                };
                // A caller that has just gone is counted, as if its answer had been lost.
                decision.send(admission).ok();
            }
        }
        Ok(())
    }
}

/// Each bucket once. Callers that are gone are not counted.
fn demands(set: impl Iterator<Item = Check>) -> Vec<(String, Demand)> {
    let mut by_bucket = HashMap::<String, Demand>::new();
    for check in set.filter(|check| !check.decision.is_closed()) {
        let demand = by_bucket.entry(check.bucket).or_insert_with(|| Demand {
            limit: check.limit,
            decisions: Vec::new(),
        });
        demand.decisions.push(check.decision);
    }
    by_bucket.into_iter().collect()
}
