//! Runs seeds, several at a time, and reports those that broke a promise.

use std::{
    collections::BTreeMap,
    env,
    process::{Command, ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Parser;
use serde::{Deserialize, Serialize};
use simulation::driver::lock;
use tokio::runtime::Builder;

/// In real time. A world that has not ended by then never will.
const RUN_MAX: Duration = Duration::from_secs(300);

/// How often a seed that broke a promise is run again, and the most seeds that are.
const REPLAYS: usize = 20;
const REPLAYED_MAX: usize = 3;

/// Seeded runs of the whole set against everything that may go wrong.
#[derive(Debug, Parser)]
#[command(name = "simulation", version)]
struct Config {
    /// A PostgreSQL server whose user may create databases and read files, such as
    /// `postgres://postgres@127.0.0.1:5432/`. Without it, one replica of each service runs on SQLite.
    #[arg(long, env = "TEST_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,

    /// How many seeds to run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,

    /// Starts no further seed after this long, such as `15m`.
    #[arg(long, value_parser = chassis::config::duration)]
    within: Option<Duration>,

    /// Runs the seed of `--from` this many times, and reports how often it broke a promise.
    #[arg(long)]
    replay: Option<u64>,

    /// Stops at the first seed that breaks a promise.
    #[arg(long)]
    first: bool,

    /// Most worlds at once, each in a process of its own.
    #[arg(long, default_value_t = 3)]
    jobs: usize,

    /// What the services log: off, error, warn, info.
    #[arg(long, env = "RUST_LOG", default_value = "off")]
    log: String,

    /// Runs the seed of `--from` in this process, and prints the outcome as JSON.
    #[arg(long, hide = true)]
    alone: bool,
}

/// The outcome of a seed.
#[derive(Debug, Deserialize, Serialize)]
struct Report {
    seed: u64,
    violations: Vec<String>,
    charges: usize,
    settled: usize,
    debits: usize,
    disbursements: usize,
    credits: usize,
    events: usize,
    by_rail: BTreeMap<String, (usize, usize)>,
    steps: u64,
    /// What happened, as the actors saw it, if it broke a promise.
    history: String,
}

fn main() -> ExitCode {
    let config = Config::parse();
    if config.alone {
        return match run_alone(&config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let search = Search {
        config,
        failures: AtomicU64::new(0),
    };
    search.run()
}

fn run_alone(config: &Config) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(&config.log)
        .with_writer(std::io::stderr)
        .init();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = simulation::run(config.from, config.database_url.as_deref());
    let outcome = runtime
        .block_on(async { tokio::time::timeout(RUN_MAX, run).await })
        .context("it does not end")??;
    let violations: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    let history = match violations.is_empty() {
        true => String::new(),
        false => outcome.history.to_string(),
    };
    let report = Report {
        seed: outcome.seed,
        violations,
        charges: outcome.charges,
        settled: outcome.settled,
        debits: outcome.debits,
        disbursements: outcome.disbursements,
        credits: outcome.credits,
        events: outcome.events,
        by_rail: outcome.by_rail,
        steps: outcome.steps,
        history,
    };
    println!("{}", serde_json::to_string(&report)?);
    // Whatever has not ended by itself ends with the process.
    runtime.shutdown_background();
    Ok(())
}

struct Search {
    config: Config,
    /// Runs that could not be carried out.
    failures: AtomicU64,
}

impl Search {
    fn run(&self) -> ExitCode {
        let Config { from, seeds, .. } = self.config;
        let seeds: Vec<u64> = match self.config.replay {
            Some(times) => (0..times).map(|_| from).collect(),
            None => (from..from + seeds).collect(),
        };
        let began = Instant::now();
        let reports = self.run_all(&seeds);
        let seconds = began.elapsed().as_secs();
        self.tell_left_out(seeds.len(), reports.len());
        let broken: Vec<&Report> = reports.iter().filter(|report| report.is_broken()).collect();
        // The search for the first seed, or a run of a single one, asks for no more.
        if !self.config.first && self.config.replay.is_none() {
            for report in broken.iter().take(REPLAYED_MAX) {
                self.replay(report.seed);
            }
        }
        if let Some(shortest) = broken.iter().min_by_key(|report| report.history.len()) {
            println!(
                "\nthe shortest history, of seed {}:\n{}",
                shortest.seed, shortest.history
            );
        }
        self.tell(&reports, seconds)
    }

    fn tell_left_out(&self, wanted: usize, reported: usize) {
        let failed = usize::try_from(self.failures.load(Ordering::SeqCst)).unwrap_or_default();
        let left_out = wanted.saturating_sub(reported + failed);
        if left_out > 0 && !self.config.first {
            println!("{left_out} seeds were not begun in time");
        }
    }

    /// Replays do not repeat the interleaving of threads and of the database, so a seed that has
    /// found something may not find it every time.
    fn replay(&self, seed: u64) {
        let reports = self.run_all(&[seed; REPLAYS]);
        let broken = reports.iter().filter(|report| report.is_broken()).count();
        let runs = reports.len();
        println!("seed {seed} broke a promise again in {broken} of {runs} runs");
    }

    fn run_all(&self, seeds: &[u64]) -> Vec<Report> {
        let next = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let began = Instant::now();
        let within = self.config.within.unwrap_or(Duration::MAX);
        let reports = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..self.config.jobs {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst)
                        && began.elapsed() < within
                        && let Some(seed) = seeds.get(next.fetch_add(1, Ordering::SeqCst))
                    {
                        let Some(report) = self.run_seed(*seed) else {
                            continue;
                        };
                        if self.config.first && report.is_broken() {
                            is_over.store(true, Ordering::SeqCst);
                        }
                        lock(&reports).push(report);
                    }
                });
            }
        });
        reports.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_seed(&self, seed: u64) -> Option<Report> {
        match self.start_run(seed) {
            Ok(report) => {
                for violation in &report.violations {
                    println!("seed {seed}: {violation}");
                }
                Some(report)
            }
            Err(error) => {
                println!("seed {seed} could not be run: {error:#}");
                self.failures.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
    }

    /// Runs a seed in a process of its own, in which a world knows who works (`driver.rs`).
    fn start_run(&self, seed: u64) -> anyhow::Result<Report> {
        let mut command = Command::new(env::current_exe()?);
        command
            .args(["--alone", "--from", &seed.to_string()])
            .args(["--log", &self.config.log])
            .stderr(Stdio::inherit());
        match &self.config.database_url {
            Some(url) => command.env("TEST_DATABASE_URL", url),
            None => command.env_remove("TEST_DATABASE_URL"),
        };
        let output = command.output()?;
        serde_json::from_slice(&output.stdout).context("it ended without a report")
    }

    fn tell(&self, reports: &[Report], seconds: u64) -> ExitCode {
        let sum = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
        println!(
            "{} seeds in {seconds} s: {} charges, {} settled, {} debits, {} disbursements, {} credits, \
             {} events, {} steps of time",
            reports.len(),
            sum(|report| report.charges),
            sum(|report| report.settled),
            sum(|report| report.debits),
            sum(|report| report.disbursements),
            sum(|report| report.credits),
            sum(|report| report.events),
            reports.iter().map(|report| report.steps).sum::<u64>(),
        );
        let mut by_rail: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (rail, (charges, disbursements)) in reports.iter().flat_map(|report| &report.by_rail) {
            let sum = by_rail.entry(rail).or_default();
            *sum = (sum.0 + charges, sum.1 + disbursements);
        }
        for (rail, (charges, disbursements)) in by_rail {
            println!("over {rail}: {charges} charges, {disbursements} disbursements");
        }
        let broken = reports.iter().filter(|report| report.is_broken()).count();
        let failures = self.failures.load(Ordering::SeqCst);
        println!(
            "{broken} of {} broke a promise, {failures} could not be run",
            reports.len()
        );
        match broken == 0 && failures == 0 {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

impl Report {
    fn is_broken(&self) -> bool {
        !self.violations.is_empty()
    }
}
