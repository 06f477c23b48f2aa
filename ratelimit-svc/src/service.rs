//! What ratelimit-svc does: it decides, by Redis if Redis answers, otherwise by this process's own
//! counts.

use std::{num::NonZeroU32, sync::Arc};

use chassis::{
    clock::Clock,
    fixed_window::{Admission, FixedWindow},
    rate_bucket::RateBucket,
    shutdown::Tasks,
};
use redis::RedisError;
use tokio::sync::oneshot;

use crate::{
    config::{BucketLimits, Config},
    shared::SharedCounts,
    window::WINDOW,
};

#[derive(Clone)]
pub struct Service {
    /// `None` if this process is the only one, so that its own counts are the truth.
    shared: Option<SharedCounts>,
    /// This process's counts, for the local stack and while Redis is away. A few entries for each
    /// merchant that is active in one minute, and two for each number that it looks up.
    own: Arc<FixedWindow<(String, RateBucket)>>,
    limits: BucketLimits,
}

impl Service {
    pub fn new(config: &Config, clock: Clock, tasks: &Tasks) -> Result<Self, RedisError> {
        let url = config.redis_url.as_deref();
        let shared = url.map(|url| SharedCounts::connect(url, config.redis_timeout, tasks));
        Ok(Self {
            shared: shared.transpose()?,
            own: Arc::new(FixedWindow::new(WINDOW, usize::MAX, clock)),
            limits: config.limits,
        })
    }

    pub fn limit(&self, bucket: RateBucket) -> u32 {
        match bucket {
            RateBucket::Payments => self.limits.payments,
            RateBucket::Charge => self.limits.charge,
            RateBucket::ChargeStatus => self.limits.charge_status,
            RateBucket::Read => self.limits.read,
            RateBucket::Write => self.limits.write,
            RateBucket::Number => self.limits.number,
            RateBucket::NumberOverall => self.limits.number_overall,
        }
    }

    /// Counts requests in their order, unless their buckets are full. Always decides each.
    pub async fn check(&self, checks: &[(String, RateBucket)]) -> Vec<Admission> {
        // All are handed in before the first is waited for, so that they share a call.
        let mut asked = Vec::with_capacity(checks.len());
        for (subject, bucket) in checks {
            asked.push(match &self.shared {
                Some(shared) => shared.ask(subject, *bucket, self.limit(*bucket)).await,
                None => None,
            });
        }
        let mut decisions = Vec::with_capacity(checks.len());
        for ((subject, bucket), asked) in checks.iter().zip(asked) {
            let decision = self.decide(subject, *bucket, asked).await;
            let outcome = if decision.allowed {
                "allowed"
            } else {
                "refused"
            };
            metrics::counter!("ratelimit_checks_total", "bucket" => bucket.code(), "outcome" => outcome)
                .increment(1);
            decisions.push(decision);
        }
        decisions
    }

    /// Redis's decision, or this process's own if there is none.
    async fn decide(
        &self,
        subject: &str,
        bucket: RateBucket,
        asked: Option<oneshot::Receiver<Admission>>,
    ) -> Admission {
        if let Some(asked) = asked
            && let Ok(decision) = asked.await
        {
            return decision;
        }
        if self.shared.is_some() {
            metrics::counter!("ratelimit_fallbacks_total").increment(1);
        }
        self.check_own(subject, bucket, self.limit(bucket))
    }

    fn check_own(&self, subject: &str, bucket: RateBucket, limit: u32) -> Admission {
        let key = (subject.to_owned(), bucket);
        // The settings refuse a limit of 0.
        self.own.take([(key, NonZeroU32::new(limit))])
    }
}
