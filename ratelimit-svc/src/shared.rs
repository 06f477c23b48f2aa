//! The counts that all replicas share, in Redis.
//!
//! Promise: Redis decides within the configured time or not at all. After a failure it is left alone for
//! [`REST_AFTER_FAILURE`], so that an outage costs a request nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use chassis::clock::Clock;
use redis::{
    Client, Script,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use tokio::sync::Semaphore;

use crate::window::{Bucket, Decision, WINDOW_MS};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_millis(100);

/// Counts that one process has on their way to Redis; more wait here, where their time does not
/// run, so that a burst does not look like an outage.
const IN_FLIGHT_MAX: usize = 64;

/// How long a Redis that failed is not asked.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Redis as seen by one process.
#[derive(Clone)]
pub struct Shared {
    connection: ConnectionManager,
    script: Arc<Script>,
    clock: Clock,
    answer_max: Duration,
    in_flight: Arc<Semaphore>,
    /// Milliseconds since 1970 before which Redis is not asked.
    resting_until_ms: Arc<AtomicI64>,
}

/// Redis did not decide.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Redis failed a moment ago and is left alone")]
    Resting,
    #[error("Redis did not answer in time")]
    TimedOut,
    #[error("Redis failed")]
    Redis(#[from] redis::RedisError),
}

impl Shared {
    /// Does not wait for a connection; the first count does.
    pub fn connect(url: &str, answer_max: Duration, clock: Clock) -> Result<Self, Error> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(answer_max))
            .set_number_of_retries(1)
            .set_max_delay(CONNECT_MAX);
        Ok(Self {
            connection: ConnectionManager::new_lazy_with_config(Client::open(url)?, config)?,
            script: Arc::new(Script::new(include_str!("window.lua"))),
            clock,
            answer_max,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            resting_until_ms: Arc::default(),
        })
    }

    /// Counts one request, unless the bucket is full.
    pub async fn check(
        &self,
        merchant_id: &str,
        bucket: Bucket,
        limit: u32,
    ) -> Result<Decision, Error> {
        let Ok(_place) = self.in_flight.acquire().await else {
            return Err(Error::Resting);
        };
        let now_ms = self.clock.real_now().unix_millis();
        if now_ms < self.resting_until_ms.load(Ordering::Relaxed) {
            return Err(Error::Resting);
        }
        let decision = self.count(merchant_id, bucket, limit).await;
        if decision.is_err() {
            let rest_ms = i64::try_from(REST_AFTER_FAILURE.as_millis()).unwrap_or(i64::MAX);
            self.resting_until_ms
                .store(now_ms.saturating_add(rest_ms), Ordering::Relaxed);
        }
        decision
    }

    async fn count(
        &self,
        merchant_id: &str,
        bucket: Bucket,
        limit: u32,
    ) -> Result<Decision, Error> {
        let mut connection = self.connection.clone();
        // The braces keep a merchant's keys on one node of a cluster.
        let key = format!("rate:{{{merchant_id}}}:{}", bucket.name());
        let mut call = self.script.key(key);
        call.arg(limit).arg(WINDOW_MS);
        let answer = call.invoke_async::<(u32, u32, u32)>(&mut connection);
        let (allowed, count, left_ms) = tokio::time::timeout(self.answer_max, answer)
            .await
            .map_err(|_| Error::TimedOut)??;
        Ok(Decision {
            allowed: allowed == 1,
            remaining: limit.saturating_sub(count),
            reset_seconds: left_ms.div_ceil(1_000).max(1),
        })
    }
}
