//! The command line.

mod baseline;
mod compare;
mod growth;
mod storm;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{bail, ensure};
use chassis::{config::duration, shutdown::Shutdown};
use clap::{Args, Parser, Subcommand};

pub use baseline::{Baseline, Hop, HopKind};
pub use compare::Compare;
pub use growth::Growth;
pub use storm::StormTarget;

use crate::{
    payers::Kind,
    plan::{Pace, Plan},
    processes::{Ground, Host, Service},
    usage::Watched,
    work::Work,
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
    /// The gateway, over HTTP as merchants call it, with everything behind it.
    Gateway(GatewayTarget),
    /// sessions-svc alone: sessions created.
    Sessions(SessionsTarget),
    /// charges-svc: charges created, with what they call.
    Charges(Common),
    /// webhooks-svc alone: events published, each until its merchant has received it.
    Webhooks(WebhooksTarget),
    /// ratelimit-svc alone: checks, each counted.
    Ratelimit(Common),
    /// merchants-svc alone: authentications.
    Merchants(Common),
    /// Whole lives of charges for long: whether memory and queues stay flat.
    Soak(SoakTarget),
    /// Whole lives at a rate, then three times as many: what is still done, and how soon the rest
    /// is refused.
    Overload(SoakTarget),
    /// Money moves in every way while processes are killed; in the end, everything is held against the
    /// networks' own books. Fails if a promise is broken.
    Storm(StormTarget),
    /// Counts the statements and transactions of a charge's whole life, alone, and looks for
    /// sequential scans. Fails above the given bounds. Needs PostgreSQL.
    Statements(StatementsTarget),
    /// A bare path: what this machine does at best.
    Baseline {
        #[arg(value_enum)]
        path: Baseline,
        #[command(flatten)]
        common: Common,
    },
    /// Our figures beside the bare paths', against what docs/performance.md asks for.
    Compare(Compare),
    /// Our figures on full tables beside those on small ones. Needs PostgreSQL.
    Growth(Growth),
    /// Requests that wait for charges to change: memory, statements, and how soon each is answered.
    Waits(WaitsTarget),
    /// A flood of logins at the dashboard: what the API's clients feel of it.
    Logins(LoginsTarget),
    /// One hop of a bare path.
    #[command(hide = true)]
    Bare(Hop),
}

#[derive(Clone, Debug, Args)]
pub struct GatewayTarget {
    /// What is asked.
    #[arg(long, value_enum, default_value = "initiate")]
    pub work: Work,
    /// Whom requests name as payer.
    #[arg(long, value_enum, default_value = "none")]
    pub payers: Kind,
    #[command(flatten)]
    pub receiver: Receiving,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct SessionsTarget {
    /// Whom requests name as payer.
    #[arg(long, value_enum, default_value = "none")]
    pub payers: Kind,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct WebhooksTarget {
    #[command(flatten)]
    pub receiver: Receiving,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct SoakTarget {
    /// Lives begun per second.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub rate: u64,

    /// How long is measured.
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub duration: Duration,

    /// How long charges are posted before that.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub warm_up: Duration,

    /// Over how many merchants the charges are spread.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub merchants: u16,

    #[command(flatten)]
    pub receiver: Receiving,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Debug, Args)]
pub struct StatementsTarget {
    /// Most statements in a charge's life.
    #[arg(long, default_value_t = 36)]
    pub statements_max: u64,

    /// Most transactions that write.
    #[arg(long, default_value_t = 11)]
    pub transactions_max: u64,

    #[command(flatten)]
    pub receiver: Receiving,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Debug, Args)]
pub struct WaitsTarget {
    /// How many wait at once.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub waits: u64,

    /// How many of the charges change in a second.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rate: u64,

    /// How long statements are counted.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Duration,

    /// Over how many merchants the charges are spread.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub merchants: u16,

    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Debug, Args)]
pub struct LoginsTarget {
    /// Logins tried per second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub logins: u64,

    /// Requests per second at the API.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rate: u64,

    /// How often both are measured, without and beside the flood in turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub rounds: u8,

    /// How long is measured each time.
    #[arg(long, default_value = "20s", value_parser = duration)]
    pub duration: Duration,

    /// How long requests are sent before that.
    #[arg(long, default_value = "3s", value_parser = duration)]
    pub warm_up: Duration,

    /// Over how many merchants the requests are spread.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub merchants: u16,

    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub output: Output,
}

/// Where merchants receive webhooks.
#[derive(Clone, Debug, Args)]
pub struct Receiving {
    /// Where the load tester listens for webhooks.
    #[arg(long = "receiver-listen", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// The URL at which webhooks-svc reaches that, if it is not on this machine.
    #[arg(long = "receiver-url")]
    pub url: Option<String>,
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

    /// How many processes are started of each service, on the same databases: several need a name
    /// in /etc/hosts. `growth` compares several numbers, such as 1,2,3.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub replicas: Vec<u8>,

    /// A running gateway, http://host:port. With an address, nothing is started.
    #[arg(long, env = "LOADTEST_GATEWAY_URL")]
    pub gateway_url: Option<String>,

    /// A running merchants-svc.
    #[arg(long, env = "LOADTEST_MERCHANTS_URL")]
    pub merchants_url: Option<String>,

    /// Where a running merchants-svc listens to operators: merchants are made there.
    #[arg(long, env = "LOADTEST_MERCHANTS_OPERATORS_URL")]
    pub merchants_operators_url: Option<String>,

    /// A running sessions-svc.
    #[arg(long, env = "LOADTEST_SESSIONS_URL")]
    pub sessions_url: Option<String>,

    /// A running charges-svc.
    #[arg(long, env = "LOADTEST_CHARGES_URL")]
    pub charges_url: Option<String>,

    /// A running webhooks-svc.
    #[arg(long, env = "LOADTEST_WEBHOOKS_URL")]
    pub webhooks_url: Option<String>,

    /// Where a running webhooks-svc listens to operators: merchants' endpoints are set there.
    #[arg(long, env = "LOADTEST_WEBHOOKS_OPERATORS_URL")]
    pub webhooks_operators_url: Option<String>,

    /// A running ratelimit-svc.
    #[arg(long, env = "LOADTEST_RATELIMIT_URL")]
    pub ratelimit_url: Option<String>,

    /// Admin addresses of running processes, to read what they count.
    #[arg(long, env = "LOADTEST_ADMIN_URLS", value_delimiter = ',')]
    pub admin_urls: Vec<String>,

    /// Ends every measurement.
    #[arg(skip)]
    pub shutdown: Shutdown,
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

impl Target {
    /// Where it measures. A hop measures nothing.
    pub fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::Gateway(target) => Some(&mut target.common.place),
            Self::Sessions(target) => Some(&mut target.common.place),
            Self::Webhooks(target) => Some(&mut target.common.place),
            Self::Charges(common)
            | Self::Ratelimit(common)
            | Self::Merchants(common)
            | Self::Baseline { common, .. } => Some(&mut common.place),
            Self::Soak(target) | Self::Overload(target) => Some(&mut target.place),
            Self::Statements(target) => Some(&mut target.place),
            Self::Storm(target) => Some(&mut target.place),
            Self::Compare(target) => Some(&mut target.place),
            Self::Growth(target) => Some(&mut target.place),
            Self::Waits(target) => Some(&mut target.place),
            Self::Logins(target) => Some(&mut target.place),
            Self::Bare(_) => None,
        }
    }
}

/// The addresses that were given.
fn given(urls: &[(Service, &Option<String>)]) -> BTreeMap<Service, String> {
    let urls = urls.iter();
    urls.filter_map(|(service, url)| Some((*service, (*url).clone()?)))
        .collect()
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
    /// The ground of a measurement that does not compare several.
    pub fn ground(&self) -> anyhow::Result<Ground> {
        match self.grounds()?.as_slice() {
            [ground] => Ok(ground.clone()),
            _ => bail!("only growth takes several numbers of replicas"),
        }
    }

    /// One ground for each number of replicas.
    pub fn grounds(&self) -> anyhow::Result<Vec<Ground>> {
        let replicas = self.replicas.iter();
        replicas
            .map(|replicas| self.ground_with(*replicas))
            .collect()
    }

    fn ground_with(&self, replicas: u8) -> anyhow::Result<Ground> {
        let elsewhere = [
            (Service::Gateway, &self.gateway_url),
            (Service::Merchants, &self.merchants_url),
            (Service::Sessions, &self.sessions_url),
            (Service::Charges, &self.charges_url),
            (Service::Webhooks, &self.webhooks_url),
            (Service::Ratelimit, &self.ratelimit_url),
        ];
        let elsewhere = given(&elsewhere);
        let operators_elsewhere = given(&[
            (Service::Merchants, &self.merchants_operators_url),
            (Service::Webhooks, &self.webhooks_operators_url),
        ]);
        if replicas > 1 {
            ensure!(elsewhere.is_empty(), "what runs already gets no replicas");
            let have_stores = self.database_url.is_some() && self.redis_url.is_some();
            ensure!(
                have_stores,
                "several replicas need --database-url and --redis-url"
            );
        }
        Ok(Ground {
            binaries: self.binaries.clone(),
            database_url: self.database_url.clone(),
            redis_url: self.redis_url.clone(),
            host: Host::with(replicas)?,
            elsewhere,
            operators_elsewhere,
            shutdown: self.shutdown.clone(),
            ..Ground::default()
        })
    }

    /// The running processes whose counters are read.
    pub fn watched(&self) -> Vec<Watched> {
        let watched = self.admin_urls.iter().map(|url| Watched {
            name: url.clone(),
            id: None,
            admin: Some(url.trim_end_matches('/').to_owned()),
        });
        watched.collect()
    }
}
