//! ratelimit-svc alone: checks, each counted.

use std::sync::Arc;

use proto::ratelimit::{Bucket, CheckRequest, rate_limits_client::RateLimitsClient};
use uuid::Uuid;

use crate::{
    config::Common,
    engine::{Load, measure},
    grpc::{self, Channels},
    plan::Outcome,
    processes::{Processes, Service},
    report::Report,
    usage::Meter,
};

struct Checks {
    channels: Channels,
    merchants: Vec<String>,
}

impl Load for Checks {
    async fn request(&self, n: u64) -> Outcome {
        let mut limits = RateLimitsClient::new(self.channels.of(n));
        let turn = usize::try_from(n).unwrap_or(0) % self.merchants.len();
        let request = CheckRequest {
            merchant_id: self.merchants[turn].clone(),
            bucket: Bucket::Payments.into(),
        };
        let checked = limits.check(request).await;
        checked.map(drop).map_err(|status| grpc::code(&status))
    }
}

pub async fn run(common: &Common) -> anyhow::Result<Vec<Report>> {
    let processes = Processes::start(&common.place.ground(), &[Service::Ratelimit]).await?;
    let load = Arc::new(Checks {
        channels: Channels::connect(&processes.url(Service::Ratelimit))?,
        merchants: (0..common.merchants)
            .map(|_| Uuid::new_v4().to_string())
            .collect(),
    });
    let meter = Meter::new(processes.watched())?;
    let mut reports = Vec::new();
    for plan in common.offer.plans("ratelimit") {
        reports.push(measure(load.clone(), &plan, &meter).await?);
    }
    processes.stop().await?;
    Ok(reports)
}
