//! What ratelimit-svc does: one decision, by Redis where it answers, by this process where not.

use std::sync::Arc;

use chassis::clock::Clock;

use crate::{
    config::{Config, Limits},
    shared::{Error, Shared},
    table::Table,
    window::{Bucket, Decision},
};

#[derive(Clone)]
pub struct Service {
    /// `None`: this process is alone and its table is the truth.
    shared: Option<Shared>,
    table: Arc<Table>,
    limits: Limits,
}

impl Service {
    pub fn new(config: &Config, clock: Clock) -> Result<Self, Error> {
        let url = config.redis_url.as_deref();
        let shared = url.map(|url| Shared::connect(url, config.redis_timeout));
        Ok(Self {
            shared: shared.transpose()?,
            table: Arc::new(Table::new(clock)),
            limits: config.limits,
        })
    }

    pub fn limit(&self, bucket: Bucket) -> u32 {
        match bucket {
            Bucket::Payments => self.limits.payments,
            Bucket::Charge => self.limits.charge,
            Bucket::ChargeStatus => self.limits.charge_status,
        }
    }

    /// Counts one request, unless the bucket is full. Always decides.
    pub async fn check(&self, merchant_id: &str, bucket: Bucket) -> Decision {
        let limit = self.limit(bucket);
        let decision = match &self.shared {
            Some(shared) => self.check_shared(shared, merchant_id, bucket, limit).await,
            None => self.table.check(merchant_id, bucket, limit),
        };
        let outcome = if decision.allowed {
            "allowed"
        } else {
            "refused"
        };
        metrics::counter!("ratelimit_checks_total", "bucket" => bucket.name(), "outcome" => outcome)
            .increment(1);
        decision
    }

    async fn check_shared(
        &self,
        shared: &Shared,
        merchant_id: &str,
        bucket: Bucket,
        limit: u32,
    ) -> Decision {
        match shared.check(merchant_id, bucket, limit).await {
            Ok(decision) => decision,
            Err(error) => {
                metrics::counter!("ratelimit_fallbacks_total").increment(1);
                if !matches!(error, Error::Resting) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "counting in this process until Redis answers"
                    );
                }
                self.table.check(merchant_id, bucket, limit)
            }
        }
    }
}
