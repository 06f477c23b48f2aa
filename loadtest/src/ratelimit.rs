//! ratelimit-svc alone: checks, each counted.

use proto::ratelimit::{
    Bucket, CheckAllRequest, CheckRequest, rate_limits_client::RateLimitsClient,
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    config::Common,
    engine::{Load, turn},
    grpc::{self, Channels},
    plan::Outcome,
    processes::Service,
    report::Report,
};

pub struct Checks {
    channels: Channels,
    merchants: Vec<String>,
}

impl Checks {
    pub fn new(url: &str, merchants: u16) -> anyhow::Result<Self> {
        let merchants = (0..merchants).map(|_| Uuid::new_v4().to_string());
        Ok(Self {
            channels: Channels::connect(url)?,
            merchants: merchants.collect(),
        })
    }
}

impl Load for Checks {
    async fn request(&self, n: u64) -> Outcome {
        let check = CheckRequest {
            subject: turn(&self.merchants, n).clone(),
            bucket: Bucket::Payments.into(),
        };
        let request = CheckAllRequest {
            checks: vec![check],
        };
        let mut limits = RateLimitsClient::new(self.channels.of(n));
        let checked = limits.check_all(request).await;
        checked.map(drop).map_err(|status| grpc::code(&status))
    }
}

pub async fn run(common: &Common) -> anyhow::Result<Vec<Report>> {
    let alone = [Service::Ratelimit];
    Bench::during(&common.place, &alone, &alone, async |bench| {
        let url = bench.processes.url(Service::Ratelimit);
        let load = Checks::new(&url, common.merchants)?;
        bench.sweep(&common.offer, "ratelimit", load).await
    })
    .await
}
