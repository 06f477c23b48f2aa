//! The command line.

use std::{path::PathBuf, time::Duration};

use chassis::config::duration;
use clap::{Args, Parser, Subcommand};

use crate::{
    plan::{Pace, Plan},
    processes::Ground,
};

/// Measures each service alone and all of them together. Starts what it needs on loopback, on
/// fresh databases, and stops by itself.
#[derive(Clone, Debug, Parser)]
#[command(name = "loadtest", version)]
pub struct Config {
    #[command(subcommand)]
    pub target: Target,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Target {
    /// ratelimit-svc alone: checks, each counted.
    Ratelimit(Common),
}

/// What every measurement is told.
#[derive(Clone, Debug, Args)]
pub struct Common {
    #[command(flatten)]
    pub offer: Offer,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
    /// Over how many merchants the requests are spread.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub merchants: u16,
}

/// What is offered.
#[derive(Clone, Debug, Args)]
pub struct Offer {
    /// Requests per second, in an open loop; several, such as 500,1000,2000, are measured one after
    /// the other.
    #[arg(long, value_delimiter = ',', conflicts_with = "in_flight", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: Vec<u64>,

    /// Requests at once, in a closed loop; several are measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "64", value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub in_flight: Vec<u16>,

    /// How long is measured.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub duration: Duration,

    /// How long requests are sent before that.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub warm_up: Duration,
}

/// Where the measured services are.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// A PostgreSQL server, such as `postgres://me@localhost/`, on which databases are created and
    /// dropped. Without it, services keep their records in SQLite files.
    #[arg(long, env = "LOADTEST_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    /// A Redis that counts rate limits. Without it, ratelimit-svc counts alone.
    #[arg(long, env = "LOADTEST_REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,

    /// The folder of the services' binaries. By default the load tester's own.
    #[arg(long)]
    pub binaries: Option<PathBuf>,
}

/// Where the report goes besides the terminal.
#[derive(Clone, Debug, Args)]
pub struct Output {
    /// File for the reports as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,

    /// File for a chart of latency against rate.
    #[arg(long)]
    pub svg: Option<PathBuf>,
}

impl Offer {
    /// One plan for each pace.
    pub fn plans(&self, name: &str) -> Vec<Plan> {
        let rates = self.rate.iter().map(|rate| Pace::Rate(*rate));
        let loops = self.in_flight.iter();
        let loops = loops.map(|requests| Pace::InFlight(usize::from(*requests)));
        let paces: Vec<Pace> = match self.rate.is_empty() {
            true => loops.collect(),
            false => rates.collect(),
        };
        let plan = |pace| Plan {
            name: name.to_owned(),
            pace,
            warm_up: self.warm_up,
            duration: self.duration,
        };
        paces.into_iter().map(plan).collect()
    }
}

impl Place {
    pub fn ground(&self) -> Ground {
        Ground {
            binaries: self.binaries.clone(),
            database_url: self.database_url.clone(),
            redis_url: self.redis_url.clone(),
            flags: Vec::new(),
        }
    }
}
