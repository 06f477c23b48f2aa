//! `loadtest growth`: how our figures change as tables grow, and with several replicas of each
//! service. Each size has databases of its own, and all sizes are measured in turn.

mod store;

use anyhow::{Context as _, ensure};
use serde::Serialize;

use crate::{
    api::Api,
    config::Growth,
    gateway::{Charges, Initiations, Reads},
    payers::Kind,
    processes::{Processes, Service, ended},
    rounds::{Probe, Rounds, Spread},
    shop::{self, Shop},
    thousandths::Thousandths,
};
use store::{Filling, Setting};

const MERCHANTS: u16 = 20;

/// How many of the sessions that were filled in are read in turn.
const READ: i64 = 2_000;

#[derive(Debug, Serialize)]
pub struct Grown {
    /// PostgreSQL's.
    settings: Vec<Setting>,
    curve: Vec<Point>,
}

/// What one kind of request reached at one size.
#[derive(Debug, Serialize)]
struct Point {
    work: &'static str,
    rows: u64,
    replicas: u8,
    rate: Spread,
    p99_ms: Spread,
    /// How many times the rate of the first size.
    rate_ratio: Spread,
    p99_ratio: Spread,
}

/// So many replicas of the services, on tables with so many rows.
struct Size {
    rows: u64,
    replicas: u8,
    probes: [(&'static str, Probe); 3],
}

/// Fills, measures, and prints a line of a table for each figure.
pub async fn run(growth: &Growth) -> anyhow::Result<Grown> {
    let grounds = growth.place.grounds()?;
    let ground = grounds.first().context("no number of replicas")?;
    ensure!(ground.database_url.is_some(), "--database-url is needed");
    let mut started = Vec::new();
    for rows in &growth.rows {
        for ground in &grounds {
            match Processes::start(ground, &Service::ALL).await {
                Ok(processes) => started.push((*rows, processes)),
                Err(error) => return ended(Err(error), stop(started).await),
            }
        }
    }
    let work = async |started: &mut Vec<_>| grow(growth, started).await;
    let grown = ground.during(started, work, stop).await?;
    println!("| Work | Rows | Replicas | Per second | of the first | p99 ms | of the first |");
    println!("|---|---|---|---|---|---|---|");
    for point in &grown.curve {
        let Point {
            work,
            rows,
            replicas,
            rate,
            p99_ms,
            rate_ratio,
            p99_ratio,
        } = point;
        println!(
            "| {work} | {rows} | {replicas} | {rate:.0} | {rate_ratio} | {p99_ms} | {p99_ratio} |"
        );
    }
    Ok(grown)
}

async fn stop(started: Vec<(u64, Processes)>) -> anyhow::Result<()> {
    let mut stopped = Ok(());
    for (_, processes) in started {
        stopped = ended(stopped, processes.stop().await);
    }
    stopped
}

/// Fills the tables of each of these, and measures.
async fn grow(growth: &Growth, started: &mut [(u64, Processes)]) -> anyhow::Result<Grown> {
    let mut sizes = Vec::new();
    for (rows, processes) in &mut *started {
        sizes.push(Size::fill(*rows, processes).await?);
        eprintln!("{rows} rows are filled in");
    }
    let (_, first) = started.first().context("no rows")?;
    let (server, name) = first.database(Service::Sessions).context("no database")?;
    let settings = store::settings(&mut server.connect(&name).await?).await?;
    for Setting { name, setting } in &settings {
        println!("{name} = {setting}");
    }
    let curve = measure(growth, &sizes).await?;
    Ok(Grown { settings, curve })
}

async fn measure(growth: &Growth, sizes: &[Size]) -> anyhow::Result<Vec<Point>> {
    let round = Rounds {
        rounds: 1,
        warm_up: growth.warm_up,
        duration: growth.duration,
    };
    let settling = Rounds {
        duration: growth.settling,
        ..round
    };
    let mut curve = Vec::new();
    for number in 0..3 {
        if !growth.settling.is_zero() {
            for size in sizes {
                let (_, probe) = &size.probes[number];
                settling.measure(growth.in_flight.into(), [probe]).await?;
            }
        }
        let mut found = vec![(Vec::new(), Vec::new()); sizes.len()];
        for _ in 0..growth.rounds {
            for (size, (rates, p99s)) in sizes.iter().zip(&mut found) {
                let (_, probe) = &size.probes[number];
                let [reports] = round.measure(growth.in_flight.into(), [probe]).await?;
                rates.extend(reports.rates().rounds);
                p99s.extend(reports.p99s().rounds);
            }
        }
        let ratios = |ours: &[Thousandths], first: &[Thousandths]| {
            let rounds = ours.iter().zip(first);
            let ratios: Vec<_> = rounds.map(|(ours, first)| ours.ratio(*first)).collect();
            Spread::of(&ratios)
        };
        let (first_rates, first_p99s) = found.first().cloned().unwrap_or_default();
        for (size, (rates, p99s)) in sizes.iter().zip(&found) {
            curve.push(Point {
                work: size.probes[number].0,
                rows: size.rows,
                replicas: size.replicas,
                rate: Spread::of(rates),
                p99_ms: Spread::of(p99s),
                rate_ratio: ratios(rates, &first_rates),
                p99_ratio: ratios(p99s, &first_p99s),
            });
        }
    }
    Ok(curve)
}

impl Size {
    /// Fills the tables while those who use them are stopped, and starts these again.
    async fn fill(rows: u64, processes: &mut Processes) -> anyhow::Result<Self> {
        let shops = shop::open(&processes.operators_url(Service::Merchants)?, MERCHANTS).await?;
        let merchants: Vec<String> = shops.iter().map(|shop| shop.merchant_id.clone()).collect();
        let mut paths = Vec::new();
        for (service, filling) in [
            (Service::Sessions, Filling::Sessions),
            (Service::Charges, Filling::Charges),
        ] {
            processes.kill(service).await?;
            let (server, name) = processes.database(service).context("no database")?;
            let mut database = server.connect(&name).await?;
            store::fill(&mut database, filling, &merchants, rows).await?;
            if filling == Filling::Sessions {
                paths = store::sample(&mut database, &merchants, READ).await?;
            }
            processes.revive(service).await?;
        }
        let replicas = processes.replicas();
        let urls = processes.gateway_urls();
        let api = |shops: Vec<Shop>| Api::new(&urls, shops, Kind::None);
        let reads = Reads::new(api(shops)?, paths);
        let merchants_url = processes.operators_url(Service::Merchants)?;
        let initiations = Initiations(api(shop::open(&merchants_url, MERCHANTS).await?)?);
        let charges = Charges(api(shop::open(&merchants_url, MERCHANTS).await?)?);
        let name = |work: &str| format!("{work}, {rows} rows, replicas {replicas}");
        let watched = || processes.watched();
        let probes = [
            (
                "initiate",
                Probe::new(&name("initiate"), initiations, watched())?,
            ),
            (
                "GET status",
                Probe::new(&name("GET status"), reads, watched())?,
            ),
            ("charge", Probe::new(&name("charge"), charges, watched())?),
        ];
        Ok(Self {
            rows,
            replicas,
            probes,
        })
    }
}
