//! Runs seeds, several at a time, and tells which broke a promise.

use std::{
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use chassis::clock::Clock;
use clap::Parser;
use simulation::{Outcome, driver::lock};
use tokio::runtime::Builder;

/// Seeded runs of the whole set against everything that may go wrong.
#[derive(Debug, Parser)]
#[command(name = "simulation", version)]
struct Config {
    /// A PostgreSQL server whose user may make databases and read files, such as
    /// `postgres://postgres@127.0.0.1:5432/`. Without it one replica of each service runs on SQLite.
    #[arg(long, env = "TEST_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,

    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,

    /// How many seeds are run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,

    /// Runs one seed so many times, and tells in how many it broke a promise.
    #[arg(long)]
    replay: Option<u64>,

    /// Stops at the first seed that breaks a promise.
    #[arg(long)]
    first: bool,

    /// Worlds that run at the same time.
    #[arg(long, default_value_t = 3)]
    jobs: usize,

    /// What the services log: off, error, warn, info.
    #[arg(long, env = "RUST_LOG", default_value = "off")]
    log: String,
}

fn main() -> ExitCode {
    let config = Config::parse();
    tracing_subscriber::fmt()
        .with_env_filter(&config.log)
        .with_writer(std::io::stderr)
        .init();
    let search = Search {
        runs: config.replay.unwrap_or(config.seeds),
        config,
        next: AtomicU64::new(0),
        outcomes: Mutex::default(),
        failures: Mutex::default(),
    };
    let clock = Clock::system();
    let began = clock.now();
    thread::scope(|scope| {
        for _ in 0..search.config.jobs {
            scope.spawn(|| search.run());
        }
    });
    search.tell(clock.now().since(began).as_secs())
}

struct Search {
    config: Config,
    runs: u64,
    next: AtomicU64,
    outcomes: Mutex<Vec<Outcome>>,
    /// Runs that could not be made.
    failures: Mutex<Vec<String>>,
}

impl Search {
    fn run(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            let is_over = self.config.first && self.has_found();
            if number >= self.runs || is_over {
                return;
            }
            let seed = match self.config.replay {
                Some(_) => self.config.from,
                None => self.config.from + number,
            };
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be made");
            match runtime.block_on(simulation::run(seed, self.config.database_url.as_deref())) {
                Ok(outcome) => {
                    for violation in &outcome.violations {
                        println!("seed {seed}: {violation}");
                    }
                    lock(&self.outcomes).push(outcome);
                }
                Err(error) => {
                    println!("seed {seed} could not be run: {error:#}");
                    lock(&self.failures).push(format!("{seed}: {error:#}"));
                }
            }
            runtime.shutdown_background();
        }
    }

    fn has_found(&self) -> bool {
        lock(&self.outcomes)
            .iter()
            .any(|outcome| !outcome.violations.is_empty())
    }

    fn tell(&self, seconds: u64) -> ExitCode {
        let outcomes = lock(&self.outcomes);
        let broken: Vec<&Outcome> = outcomes
            .iter()
            .filter(|outcome| !outcome.violations.is_empty())
            .collect();
        if let Some(shortest) = broken.iter().min_by_key(|outcome| outcome.charges) {
            println!(
                "\nthe shortest history, of seed {}:\n{:#?}",
                shortest.seed, shortest.history
            );
        }
        let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
        println!(
            "{} seeds in {seconds} s: {} charges, {} settled, {} debits, {} events, {} steps of time",
            outcomes.len(),
            sum(|outcome| outcome.charges),
            sum(|outcome| outcome.settled),
            sum(|outcome| outcome.debits),
            sum(|outcome| outcome.events),
            outcomes.iter().map(|outcome| outcome.steps).sum::<u64>(),
        );
        let failures = lock(&self.failures).len();
        println!(
            "{} of {} broke a promise, {failures} could not be run",
            broken.len(),
            outcomes.len()
        );
        match broken.is_empty() && failures == 0 {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}
