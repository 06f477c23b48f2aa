//! The counts that all replicas share, in Redis.
//!
//! Promises that Redis decides within the configured time or not at all. After a failure Redis is
//! left alone for [`REST_AFTER_FAILURE`], so that an outage costs requests nothing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chassis::{fixed_window::Admission, rate_bucket::RateBucket};
use redis::{
    Client, Script,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use tokio::{sync::Semaphore, time::Instant};

use crate::window::WINDOW_MS;

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_millis(100);

/// Most counts that one process may have on their way to Redis. More wait here, where their time
/// does not run, so that a burst does not look like an outage.
const IN_FLIGHT_MAX: usize = 64;

/// How long Redis is left alone after a failure.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Redis as seen by one process.
#[derive(Clone)]
pub struct SharedCounts {
    connection: ConnectionManager,
    script: Arc<Script>,
    answer_max: Duration,
    in_flight: Arc<Semaphore>,
    /// Redis is not asked before this time.
    resting_until: Arc<Mutex<Option<Instant>>>,
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

impl SharedCounts {
    /// Does not wait for a connection; the first count does.
    pub fn connect(url: &str, answer_max: Duration) -> Result<Self, Error> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(answer_max))
            .set_number_of_retries(1)
            .set_max_delay(CONNECT_MAX);
        Ok(Self {
            connection: ConnectionManager::new_lazy_with_config(Client::open(url)?, config)?,
            script: Arc::new(Script::new(include_str!("window.lua"))),
            answer_max,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            resting_until: Arc::default(),
        })
    }

    /// Counts one request, unless the bucket is full.
    pub async fn check(
        &self,
        merchant_id: &str,
        bucket: RateBucket,
        limit: u32,
    ) -> Result<Admission, Error> {
        let Ok(_place) = self.in_flight.acquire().await else {
            return Err(Error::Resting);
        };
        let now = Instant::now();
        if self.resting_until().is_some_and(|until| now < until) {
            return Err(Error::Resting);
        }
        let decision = self.count(merchant_id, bucket, limit).await;
        if decision.is_err() {
            *self.resting_until() = Some(now + REST_AFTER_FAILURE);
        }
        decision
    }

    fn resting_until(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code panics while it holds the lock.
        let locked = self.resting_until.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    async fn count(
        &self,
        merchant_id: &str,
        bucket: RateBucket,
        limit: u32,
    ) -> Result<Admission, Error> {
        let mut connection = self.connection.clone();
        // The braces keep a merchant's keys on one node of a cluster.
        let key = format!("rate:{{{merchant_id}}}:{}", bucket.code());
        let mut call = self.script.key(key);
        call.arg(limit).arg(WINDOW_MS);
        let answer = call.invoke_async::<(u32, u32, u32)>(&mut connection);
        let (allowed, count, left_ms) = tokio::time::timeout(self.answer_max, answer)
            .await
            .map_err(|_| Error::TimedOut)??;
        Ok(Admission {
            allowed: allowed == 1,
            remaining: limit.saturating_sub(count),
            reset_seconds: left_ms.div_ceil(1_000).max(1),
        })
    }
}
