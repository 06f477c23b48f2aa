//! Whole lives at a rate, then three times as many: how many are still lived, and how soon the rest
//! is refused.

use std::sync::Arc;

use crate::{
    bench::Bench,
    config::SoakTarget,
    engine::measure,
    lives::Lives,
    plan::{Pace, Plan},
    processes::Service,
    report::Report,
};

/// How many times the rate is offered.
const TIMES: u64 = 3;

pub async fn run(target: &SoakTarget) -> anyhow::Result<Vec<Report>> {
    let called = [Service::Gateway];
    Bench::during(&target.place, &Service::ALL, &called, async |bench| {
        let lives = Lives::start(&bench.processes, target.merchants, &target.receiver).await?;
        let lives = Arc::new(lives);
        let mut reports = Vec::new();
        for (name, rate) in [
            ("sustained", target.rate),
            ("overload", target.rate * TIMES),
        ] {
            let plan = Plan {
                name: name.to_owned(),
                pace: Pace::Rate(rate),
                warm_up: target.warm_up,
                duration: target.duration,
            };
            reports.push(measure(lives.clone(), &plan, &bench.meter).await?);
        }
        Ok(reports)
    })
    .await
}
