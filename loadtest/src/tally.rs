//! Latencies while they are counted, apart for requests that succeeded and for each error.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hdrhistogram::{CreationError, Histogram};
use serde::Serialize;

use crate::{
    plan::{Code, Outcome},
    thousandths::Thousandths,
};

/// The longest latency that is told from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Most kinds of errors that are counted apart.
const CODES_MAX: usize = 32;

/// What was counted so far.
pub struct Tally {
    succeeded: Latencies,
    failed: BTreeMap<Code, Latencies>,
    /// When the last counted request ended.
    pub last_end: Option<Instant>,
}

/// A histogram of microseconds, exact to a thousandth.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    pub p50: Thousandths,
    pub p90: Thousandths,
    pub p99: Thousandths,
    pub p999: Thousandths,
    pub max: Thousandths,
}

impl Tally {
    pub fn new() -> Result<Self, CreationError> {
        Ok(Self {
            succeeded: Latencies::new()?,
            failed: BTreeMap::new(),
            last_end: None,
        })
    }

    pub fn record(&mut self, latency: Duration, outcome: Outcome) {
        let Err(mut code) = outcome else {
            self.succeeded.record(latency);
            return;
        };
        if !self.failed.contains_key(&code) && self.failed.len() >= CODES_MAX {
            code = Code::Borrowed("other");
        }
        if let Ok(empty) = Latencies::new() {
            self.failed.entry(code).or_insert(empty).record(latency);
        }
    }

    /// Requests that succeeded.
    pub fn done(&self) -> u64 {
        self.succeeded.len()
    }

    pub fn failed(&self) -> u64 {
        self.failed.values().map(Latencies::len).sum()
    }

    /// Of requests that succeeded.
    pub fn latency(&self) -> Latency {
        self.succeeded.latency()
    }

    pub fn failures(&self) -> impl Iterator<Item = (&Code, &Latencies)> {
        self.failed.iter()
    }
}

impl Latencies {
    pub fn new() -> Result<Self, CreationError> {
        Ok(Self(Histogram::new_with_bounds(1, micros(LATENCY_MAX), 3)?))
    }

    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(micros(latency));
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn latency(&self) -> Latency {
        let at = |quantile| Thousandths(self.0.value_at_quantile(quantile));
        Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: Thousandths(self.0.max()),
        }
    }
}

/// Whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
