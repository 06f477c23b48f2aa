//! Whole lives of charges for long, at a rate: whether memory and queues stay flat.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use anyhow::ensure;
use serde::Serialize;
use tokio::time::{Instant, interval_at};

use crate::{
    bench::Bench,
    config::SoakTarget,
    engine::measure,
    lives::Lives,
    plan::{Pace, Plan},
    processes::{Processes, Service},
    report::Report,
    store::Queues,
};

/// How many samples are taken.
const SAMPLES: u32 = 30;

const MIB: u64 = 1_024 * 1_024;

/// A process may grow by this much, in MiB, and be called flat: allocators breathe.
const RSS_SLACK_MIB: u64 = 2;

#[derive(Debug, Serialize)]
pub struct Soak {
    pub report: Report,
    /// Over time: MiB of each process, rows of each queue.
    pub series: BTreeMap<String, Series>,
    /// Webhooks with a wrong signature.
    pub refused_webhooks: u64,
}

#[derive(Debug, Default, Serialize)]
pub struct Series {
    pub values: Vec<u64>,
    /// Whether the last third rises above the middle third.
    pub is_flat: bool,
}

pub async fn run(target: &SoakTarget) -> anyhow::Result<Soak> {
    let called = [Service::Gateway];
    Bench::during(&target.place, &Service::ALL, &called, async |bench| {
        ensure!(
            target.duration >= Duration::from_secs(3),
            "a soak takes longer"
        );
        let lives = Lives::start(&bench.processes, target.merchants, &target.receiver).await?;
        let lives = Arc::new(lives);
        let plan = Plan {
            name: "soak".to_owned(),
            pace: Pace::Rate(target.rate),
            warm_up: target.warm_up,
            duration: target.duration,
        };
        let measured = measure(lives.clone(), &plan, &bench.meter);
        let sampled = sample(bench, target);
        let (report, series) = tokio::try_join!(measured, sampled)?;
        let series = series.into_iter().map(|(name, values)| {
            // A second of work may wait.
            let slack = match name.ends_with("MiB") {
                true => RSS_SLACK_MIB,
                false => target.rate,
            };
            let is_flat = is_flat(&values, slack);
            (name, Series { values, is_flat })
        });
        Ok(Soak {
            report,
            series: series.collect(),
            refused_webhooks: lives.receiver.refused(),
        })
    })
    .await
}

/// Reads memory and queues while the measurement runs.
async fn sample(bench: &Bench, target: &SoakTarget) -> anyhow::Result<BTreeMap<String, Vec<u64>>> {
    let every = target.duration / SAMPLES;
    let queues = queues(&bench.processes).await?;
    let mut series = BTreeMap::<String, Vec<u64>>::new();
    let mut ticks = interval_at(Instant::now() + target.warm_up + every, every);
    for _ in 0..SAMPLES {
        ticks.tick().await;
        let reading = bench.meter.read().await?;
        for (name, bytes) in reading.rss() {
            series
                .entry(format!("{name} MiB"))
                .or_default()
                .push(bytes / MIB);
        }
        if let Some(queues) = &queues {
            for (name, rows) in queues.read().await? {
                series.entry(name.to_owned()).or_default().push(rows);
            }
        }
    }
    Ok(series)
}

/// The queues of services that were started here.
async fn queues(processes: &Processes) -> anyhow::Result<Option<Queues>> {
    if processes.watched().is_empty() {
        return Ok(None);
    }
    let charges = processes.database_url(Service::Charges);
    let sessions = processes.database_url(Service::Sessions);
    let webhooks = processes.database_url(Service::Webhooks);
    Queues::open(&charges, &sessions, &webhooks).await.map(Some)
}

/// Whether the highest value of the last third is at most a tenth and the slack above that of the
/// middle third.
fn is_flat(values: &[u64], slack: u64) -> bool {
    let third = values.len() / 3;
    let highest = |values: &[u64]| values.iter().copied().max().unwrap_or(0);
    let (before, last) = values.split_at(values.len() - third);
    let (_, middle) = before.split_at(before.len() - third);
    highest(last) <= highest(middle) * 11 / 10 + slack
}

impl fmt::Display for Soak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.report)?;
        for (name, series) in &self.series {
            let verdict = if series.is_flat { "flat" } else { "GROWS" };
            let step = series.values.len().div_ceil(10).max(1);
            let shown = series.values.iter().step_by(step);
            let shown: Vec<String> = shown.map(ToString::to_string).collect();
            writeln!(f, "  {name:<20} {verdict}  {}", shown.join(" "))?;
        }
        writeln!(
            f,
            "  {} webhooks had a wrong signature",
            self.refused_webhooks
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breathes_is_flat_and_what_rises_is_not() {
        assert!(is_flat(&[5, 20, 12, 18, 14, 19, 13, 20, 15], 1));
        assert!(!is_flat(&[0, 10, 20, 30, 40, 50, 60, 70, 80], 1));
        assert!(is_flat(&[], 0));
    }
}
