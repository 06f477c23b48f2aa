//! What processes use: CPU and memory, and the statements and transactions that they count
//! themselves (`db_statements_total`, `db_transactions_total`).

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::Context as _;
use serde::Serialize;

/// Longest wait for a process's metrics.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Linux counts CPU time in hundredths of a second for every program.
const MICROS_PER_TICK: u64 = 10_000;

const KIB: u64 = 1_024;

/// A process that is watched.
#[derive(Clone, Debug)]
pub struct Watched {
    pub name: String,
    /// `None` for a process elsewhere.
    pub id: Option<u32>,
    /// The URL of its admin address.
    pub admin: Option<String>,
}

/// Reads what processes have used.
pub struct Meter {
    watched: Vec<Watched>,
    client: reqwest::Client,
}

/// What was used up to a moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    processes: Vec<(String, ProcessReading)>,
    statements: Option<u64>,
    writes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ProcessReading {
    cpu_us: u64,
    rss_bytes: u64,
}

/// What was used between two moments.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    pub processes: Vec<ProcessUsage>,
    /// SQL statements, without begin and commit. `None` if nobody counted.
    pub statements: Option<u64>,
    /// Transactions that write.
    pub writes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProcessUsage {
    pub name: String,
    pub cpu_us: u64,
    /// At the later moment.
    pub rss_bytes: u64,
}

impl Meter {
    /// Watches these processes, and this one.
    pub fn new(watched: Vec<Watched>) -> anyhow::Result<Self> {
        let own = Watched {
            name: "loadtest".to_owned(),
            id: Some(std::process::id()),
            admin: None,
        };
        Ok(Self {
            watched: watched.into_iter().chain([own]).collect(),
            client: chassis::http::client(ANSWER_MAX)?,
        })
    }

    pub async fn read(&self) -> anyhow::Result<Reading> {
        let mut reading = Reading::default();
        for process in &self.watched {
            let name = || process.name.clone();
            if let Some(id) = process.id {
                let used =
                    ProcessReading::of(id).with_context(|| format!("{} has ended", name()))?;
                reading.processes.push((name(), used));
            }
            if let Some(admin) = &process.admin {
                let metrics = self.client.get(format!("{admin}/metrics")).send().await?;
                let metrics = metrics.text().await?;
                add(
                    &mut reading.statements,
                    metric(&metrics, "db_statements_total", ""),
                );
                let writes = metric(&metrics, "db_transactions_total", "kind=\"write\"");
                add(&mut reading.writes, writes);
            }
        }
        Ok(reading)
    }

    /// A metric of all processes together.
    pub async fn sum(&self, name: &str) -> anyhow::Result<u64> {
        let mut sum = None;
        for admin in self
            .watched
            .iter()
            .filter_map(|process| process.admin.as_ref())
        {
            let metrics = self.client.get(format!("{admin}/metrics")).send().await?;
            add(&mut sum, metric(&metrics.text().await?, name, ""));
        }
        Ok(sum.unwrap_or_default())
    }
}

impl ProcessReading {
    fn of(id: u32) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        Ok(Self {
            cpu_us: cpu_ticks(&stat).context("no CPU times")? * MICROS_PER_TICK,
            // A process that has ended but not been waited for uses no memory.
            rss_bytes: rss_kib(&status).unwrap_or(0) * KIB,
        })
    }
}

impl Reading {
    /// The memory of each process, in bytes.
    pub fn rss(&self) -> impl Iterator<Item = (&str, u64)> {
        let processes = self.processes.iter();
        processes.map(|(name, used)| (name.as_str(), used.rss_bytes))
    }

    /// SQL statements so far, without begin and commit, and transactions that wrote; `None` if
    /// nobody counts them.
    pub fn sent(&self) -> Option<(u64, u64)> {
        self.statements.zip(self.writes)
    }

    /// What was used from this reading until a later one.
    pub fn until(&self, later: &Self) -> Usage {
        let before: BTreeMap<&str, ProcessReading> = self
            .processes
            .iter()
            .map(|(name, used)| (name.as_str(), *used))
            .collect();
        let processes = later.processes.iter().map(|(name, used)| {
            let before = before.get(name.as_str()).copied().unwrap_or_default();
            ProcessUsage {
                name: name.clone(),
                cpu_us: used.cpu_us.saturating_sub(before.cpu_us),
                rss_bytes: used.rss_bytes,
            }
        });
        let difference = |before: Option<u64>, later: Option<u64>| {
            later.map(|later| later.saturating_sub(before.unwrap_or(0)))
        };
        Usage {
            processes: processes.collect(),
            statements: difference(self.statements, later.statements),
            writes: difference(self.writes, later.writes),
        }
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0) + more);
    }
}

/// User and system time. They are the 14th and 15th field; the second may contain spaces.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss_kib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The sum of a metric over all label sets that contain `label`, from Prometheus's text.
pub fn metric(text: &str, name: &str, label: &str) -> Option<u64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_whole_name = rest.starts_with(['{', ' ']);
        let (labels, value) = rest.rsplit_once(' ')?;
        let is_wanted = is_whole_name && labels.contains(label);
        is_wanted.then(|| value.parse::<u64>().ok()).flatten()
    });
    values.reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_past_a_name_with_spaces() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 90 0 0 0 250 50 0 0 20 0 4 0 1 2 3";
        assert_eq!(cpu_ticks(stat), Some(300));
    }

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE db_transactions_total counter\n\
                    db_transactions_total{kind=\"write\"} 5\n\
                    db_transactions_total{kind=\"read\"} 7\n\
                    db_transactions_total_more 100\n\
                    db_statements_total 40\n";
        assert_eq!(
            metric(text, "db_transactions_total", "kind=\"write\""),
            Some(5)
        );
        assert_eq!(metric(text, "db_transactions_total", ""), Some(12));
        assert_eq!(metric(text, "db_statements_total", ""), Some(40));
        assert_eq!(metric(text, "db_other_total", ""), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let used = ProcessReading::of(std::process::id()).unwrap();
        assert!(used.rss_bytes > 0);
    }
}
