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

    /// Counts one request, unless the bucket is full. Always decides.
    pub async fn check(&self, subject: &str, bucket: RateBucket) -> Admission {
        let limit = self.limit(bucket);
        let decision = match &self.shared {
            Some(shared) => self.check_shared(shared, subject, bucket, limit).await,
            None => self.check_own(subject, bucket, limit),
        };
        let outcome = if decision.allowed {
            "allowed"
        } else {
            "refused"
        };
        metrics::counter!("ratelimit_checks_total", "bucket" => bucket.code(), "outcome" => outcome)
            .increment(1);
        decision
    }

    fn check_own(&self, subject: &str, bucket: RateBucket, limit: u32) -> Admission {
        let key = (subject.to_owned(), bucket);
        // The settings refuse a limit of 0.
        self.own.take([(key, NonZeroU32::new(limit))])
    }

    async fn check_shared(
        &self,
        shared: &SharedCounts,
        subject: &str,
        bucket: RateBucket,
        limit: u32,
    ) -> Admission {
        if let Some(decision) = shared.check(subject, bucket, limit).await {
            return decision;
        }
        metrics::counter!("ratelimit_fallbacks_total").increment(1);
        self.check_own(subject, bucket, limit)
    }
}
