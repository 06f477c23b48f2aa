//! The gateway, over HTTP as merchants call it, with everything behind it.

use anyhow::{Context as _, anyhow};

use crate::{
    api::Api,
    bench::Bench,
    config::GatewayTarget,
    engine::{Load, turn},
    lives::Lives,
    plan::{Code, Outcome},
    processes::Service,
    report::Report,
    shop,
    work::Work,
};

/// How many sessions or charges there are to read.
const READ: u64 = 500;

pub async fn run(target: &GatewayTarget) -> anyhow::Result<Vec<Report>> {
    let GatewayTarget {
        common,
        work,
        payers,
        receiver,
    } = target;
    let called = [Service::Gateway];
    Bench::during(&common.place, &Service::ALL, &called, async |bench| {
        let name = work.name();
        if *work == Work::Life {
            let lives = Lives::start(&bench.processes, common.merchants, receiver).await?;
            return bench.sweep(&common.offer, &name, lives).await;
        }
        let shops = match work {
            Work::UnknownPath => Vec::new(),
            _ => {
                shop::open(
                    &bench.processes.operators_url(Service::Merchants)?,
                    common.merchants,
                )
                .await?
            }
        };
        let api = Api::new(&bench.processes.gateway_urls(), shops, *payers)?;
        match work {
            Work::Initiate => bench.sweep(&common.offer, &name, Initiations(api)).await,
            Work::Charge => bench.sweep(&common.offer, &name, Charges(api)).await,
            Work::UnknownPath => bench.sweep(&common.offer, &name, UnknownPaths(api)).await,
            Work::Status | Work::ReadCharge | Work::Life => {
                let reads = Reads::prepare(api, *work).await?;
                bench.sweep(&common.offer, &name, reads).await
            }
        }
    })
    .await
}

pub struct Initiations(pub Api);

impl Load for Initiations {
    async fn request(&self, n: u64) -> Outcome {
        self.0.initiate(n).await.map(drop)
    }
}

pub struct Charges(pub Api);

impl Load for Charges {
    async fn request(&self, n: u64) -> Outcome {
        self.0.charge(n).await.map(drop)
    }
}

pub struct UnknownPaths(pub Api);

impl Load for UnknownPaths {
    async fn request(&self, n: u64) -> Outcome {
        self.0.ask_for_nothing(n).await
    }
}

/// Reads what was made beforehand.
pub struct Reads {
    api: Api,
    /// The nth is the nth merchant's.
    paths: Vec<String>,
}

impl Reads {
    /// The nth path is the nth merchant's.
    pub fn new(api: Api, paths: Vec<String>) -> Self {
        Self { api, paths }
    }

    pub async fn prepare(api: Api, work: Work) -> anyhow::Result<Self> {
        let mut paths = Vec::new();
        // A whole number of rounds, so that the nth path stays the nth merchant's.
        let merchants = api.merchants();
        let count = READ.div_ceil(merchants) * merchants;
        for n in 0..count {
            let path = match work {
                Work::ReadCharge => {
                    let charge = made(api.charge(n).await)?;
                    let reference = charge.reference.context("a charge without reference")?;
                    format!("/api/v1/payments/charge/{reference}")
                }
                _ => {
                    let session = made(api.initiate(n).await)?;
                    format!("/api/v1/payments/{}/status", session.session_id)
                }
            };
            paths.push(path);
        }
        Ok(Self { api, paths })
    }
}

fn made<T>(answer: Result<T, Code>) -> anyhow::Result<T> {
    answer.map_err(|code| anyhow!("what is to be read cannot be made: {code}"))
}

impl Load for Reads {
    async fn request(&self, n: u64) -> Outcome {
        let path: &String = turn(&self.paths, n);
        self.api.read(n, path).await
    }
}
