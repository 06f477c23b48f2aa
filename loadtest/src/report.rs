//! What a measurement found: as a table and as JSON.

use std::{collections::BTreeMap, fmt, fs, path::Path, time::Duration};

use anyhow::Context as _;
use serde::Serialize;

use crate::{
    plan::{Pace, Plan},
    tally::{Latency, Tally, micros},
    thousandths::Thousandths,
    usage::Usage,
};

const MIB: u64 = 1_024 * 1_024;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub name: String,
    /// Requests at once, in a closed loop.
    pub in_flight: Option<usize>,
    /// Requests offered per second, in an open loop.
    pub offered: Option<u64>,
    /// Requests that succeeded.
    pub requests: u64,
    /// Requests that succeeded, per second.
    pub rate: Thousandths,
    /// In milliseconds, of requests that succeeded.
    pub latency: Latency,
    /// By code.
    pub errors: BTreeMap<String, Failures>,
    pub processes: Vec<ProcessReport>,
    /// SQL statements per request, without begin and commit.
    pub statements: Option<Thousandths>,
    /// Transactions that write, per request.
    pub transactions: Option<Thousandths>,
}

/// Requests that failed in one way.
#[derive(Clone, Debug, Serialize)]
pub struct Failures {
    pub requests: u64,
    pub latency: Latency,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    pub name: String,
    /// CPU milliseconds per request.
    pub cpu_ms: Thousandths,
    pub rss_mib: Thousandths,
}

impl Report {
    pub fn new(plan: &Plan, elapsed: Duration, tally: &Tally, usage: Usage) -> Self {
        let requests = tally.done();
        // A refused request takes CPU and statements too.
        let answered = requests + tally.failed();
        let errors = tally.failures().map(|(code, latencies)| {
            let failures = Failures {
                requests: latencies.len(),
                latency: latencies.latency(),
            };
            (code.clone().into_owned(), failures)
        });
        let processes = usage.processes.into_iter().map(|process| ProcessReport {
            name: process.name,
            cpu_ms: Thousandths::of(process.cpu_us, answered * 1_000),
            rss_mib: Thousandths::of(process.rss_bytes, MIB),
        });
        let (in_flight, offered) = match plan.pace {
            Pace::InFlight(requests) => (Some(requests), None),
            Pace::Rate(rate) => (None, Some(rate)),
        };
        Self {
            name: plan.name.clone(),
            in_flight,
            offered,
            requests,
            rate: Thousandths::of(requests * 1_000_000, micros(elapsed)),
            latency: tally.latency(),
            errors: errors.collect(),
            processes: processes.collect(),
            statements: usage.statements.map(|sent| Thousandths::of(sent, answered)),
            transactions: usage.writes.map(|writes| Thousandths::of(writes, answered)),
        }
    }

    /// How many requests failed.
    pub fn failed(&self) -> u64 {
        self.errors.values().map(|failures| failures.requests).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pace = match (self.in_flight, self.offered) {
            (Some(requests), _) => format!("{requests} in flight"),
            (_, Some(rate)) => format!("{rate}/s offered"),
            _ => String::new(),
        };
        writeln!(
            f,
            "{}, {pace}: {:.1}/s of {} requests",
            self.name, self.rate, self.requests
        )?;
        writeln!(f, "  latency ms {}", self.latency)?;
        for (code, failures) in &self.errors {
            writeln!(
                f,
                "  failed     {} × {code}, ms {}",
                failures.requests, failures.latency
            )?;
        }
        for process in &self.processes {
            let ProcessReport {
                name,
                cpu_ms,
                rss_mib,
            } = process;
            writeln!(
                f,
                "  {name:<15} {cpu_ms:>8} CPU ms per request  {rss_mib:>7.1} MiB"
            )?;
        }
        if let Some(statements) = self.statements {
            write!(f, "  {statements:.2} statements")?;
            if let Some(transactions) = self.transactions {
                write!(f, " and {transactions:.2} writing transactions")?;
            }
            writeln!(f, " per request")?;
        }
        Ok(())
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            p50,
            p90,
            p99,
            p999,
            max,
        } = self;
        write!(
            f,
            "p50 {p50:.2}  p90 {p90:.2}  p99 {p99:.2}  p99.9 {p999:.2}  max {max:.2}"
        )
    }
}

/// Writes reports, or whatever else was found, to a file.
pub fn write_json(file: &Path, found: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(found)?;
    fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}
