//! Rounds: what is compared is measured in turn, again and again, so that whatever else the machine
//! does meanwhile meets all alike.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use anyhow::ensure;
use serde::Serialize;

use crate::{
    engine::{Load, measure},
    plan::{Pace, Plan},
    report::Report,
    thousandths::Thousandths,
    usage::{Meter, Watched},
};

type Measuring = Pin<Box<dyn Future<Output = anyhow::Result<Report>> + Send>>;

/// One of the things that are measured in turn.
pub struct Probe {
    name: String,
    measuring: Box<dyn Fn(Plan) -> Measuring + Send + Sync>,
}

/// How long and how often is measured.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub rounds: u8,
    pub warm_up: Duration,
    pub duration: Duration,
}

/// The reports of one probe, one for each round.
pub struct Reports(pub Vec<Report>);

/// A figure of each round.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub rounds: Vec<Thousandths>,
    /// How many requests failed meanwhile.
    pub failed: u64,
}

/// A figure in several rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub min: Thousandths,
    pub median: Thousandths,
    pub max: Thousandths,
}

impl Probe {
    pub fn new(name: &str, load: impl Load, watched: Vec<Watched>) -> anyhow::Result<Self> {
        let (load, meter) = (Arc::new(load), Arc::new(Meter::new(watched)?));
        Ok(Self {
            name: name.to_owned(),
            measuring: Box::new(move |plan| {
                let (load, meter) = (load.clone(), meter.clone());
                Box::pin(async move { measure(load, &plan, &meter).await })
            }),
        })
    }

    pub async fn measure(&self, plan: Plan) -> anyhow::Result<Report> {
        (self.measuring)(plan).await
    }
}

impl Rounds {
    /// Measures each in turn with so many requests at once.
    pub async fn measure<const N: usize>(
        &self,
        in_flight: usize,
        probes: [&Probe; N],
    ) -> anyhow::Result<[Reports; N]> {
        let mut reports = probes.map(|_| Reports(Vec::new()));
        for _ in 0..self.rounds {
            for (probe, reports) in probes.iter().zip(&mut reports) {
                let plan = Plan {
                    name: probe.name.clone(),
                    pace: Pace::InFlight(in_flight),
                    warm_up: self.warm_up,
                    duration: self.duration,
                };
                let report = probe.measure(plan).await?;
                eprint!("{report}");
                ensure!(report.requests > 0, "{}: nothing succeeded", probe.name);
                reports.0.push(report);
            }
        }
        Ok(reports)
    }
}

impl Reports {
    /// Requests per second.
    pub fn rates(&self) -> Figures {
        self.figures(|report| Some(report.rate))
    }

    /// SQL statements per request, where they are counted.
    pub fn statements(&self) -> Figures {
        self.figures(|report| report.statements)
    }

    /// Milliseconds.
    pub fn p50s(&self) -> Figures {
        self.figures(|report| Some(report.latency.p50))
    }

    /// Milliseconds.
    pub fn p99s(&self) -> Figures {
        self.figures(|report| Some(report.latency.p99))
    }

    fn figures(&self, of: impl Fn(&Report) -> Option<Thousandths>) -> Figures {
        Figures {
            rounds: self.0.iter().filter_map(of).collect(),
            failed: self.0.iter().map(Report::failed).sum(),
        }
    }
}

impl Figures {
    /// Adds further rounds.
    pub fn extend(&mut self, more: Self) {
        self.rounds.extend(more.rounds);
        self.failed += more.failed;
    }
}

/// Figures of what cannot fail in part.
impl From<Vec<Thousandths>> for Figures {
    fn from(rounds: Vec<Thousandths>) -> Self {
        Self { rounds, failed: 0 }
    }
}

impl Spread {
    pub fn of(figures: &[Thousandths]) -> Self {
        let mut figures = figures.to_vec();
        figures.sort_unstable();
        let median = figures.get(figures.len() / 2);
        Self {
            min: figures.first().copied().unwrap_or_default(),
            median: median.copied().unwrap_or_default(),
            max: figures.last().copied().unwrap_or_default(),
        }
    }
}

/// `0.58 (0.55–0.61)`
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, median, max } = self;
        let digits = f.precision().unwrap_or(2);
        write!(f, "{median:.digits$} ({min:.digits$}–{max:.digits$})")
    }
}
