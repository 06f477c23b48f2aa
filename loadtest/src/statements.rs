//! What a charge's whole life asks of the databases when it is alone: a verdict that does not depend
//! on the machine.
//!
//! The planner is told to avoid sequential scans, so that one shows that no index serves, however
//! small the table is. Nor may a life read more than a few rows of a table from its indexes: a read
//! that grows with the number of charges would.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    bench::Bench,
    config::StatementsTarget,
    engine::{Load as _, measure},
    lives::Lives,
    plan::{Pace, Plan},
    processes::Service,
    store::Queues,
    thousandths::Thousandths,
};

/// How long charges are posted beforehand, so that tables are not empty.
const FILL: Duration = Duration::from_secs(3);
const FILL_IN_FLIGHT: usize = 4;

/// How many lives are counted.
const LIVES: u64 = 20;

/// Most rows that a life may read from the indexes of one table: fewer than the tables have by then.
const INDEX_ROWS_MAX: u64 = 50;

/// PostgreSQL tells what an idle connection has read after ten seconds at the latest.
const TOLD_AFTER: Duration = Duration::from_secs(11);

/// Longest wait until nothing waits for work.
const QUIET_MAX: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Within this time after the webhook's arrival, the rest of a life has happened. Whether it has is
/// not asked, because to ask is to scan.
const RECORDED_AFTER: Duration = Duration::from_millis(150);

const DATABASES: [Service; 4] = [
    Service::Merchants,
    Service::Sessions,
    Service::Charges,
    Service::Webhooks,
];

#[derive(Debug, Serialize)]
pub struct Statements {
    /// Per life, without begin and commit, and without what is asked while nothing happens.
    pub statements: Thousandths,
    /// Transactions that write, per life.
    pub transactions: Thousandths,
    /// By database and table.
    pub tables: BTreeMap<String, TableScans>,
    /// What is out of bounds.
    pub faults: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct TableScans {
    /// Sequential scans in all lives.
    pub sequential: u64,
    /// Rows read from indexes, per life.
    pub index_rows: Thousandths,
}

/// What was counted up to a moment.
struct Counts {
    at: Instant,
    statements: u64,
    writes: u64,
}

pub async fn run(target: &StatementsTarget) -> anyhow::Result<Statements> {
    let place = &target.place;
    ensure!(
        place.database_url.is_some(),
        "--database-url is needed: only PostgreSQL counts scans"
    );
    let mut ground = place.ground()?;
    ground.avoid_sequential_scans = true;
    Bench::on(&ground, &Service::ALL, async |bench| {
        let merchants = 1;
        let lives = Lives::start(&bench.processes, merchants, &target.receiver).await?;
        let lives = Arc::new(lives);
        let plan = Plan {
            name: "statements, filling".to_owned(),
            pace: Pace::InFlight(FILL_IN_FLIGHT),
            warm_up: Duration::ZERO,
            duration: FILL,
        };
        let filled = measure(lives.clone(), &plan, &bench.meter).await?;
        ensure!(filled.errors.is_empty(), "lives failed: {filled}");
        let queues = queues(bench).await?;
        until_quiet(&queues).await?;
        vacuum(bench).await?;
        let idle_from = counts(bench).await?;
        sleep(TOLD_AFTER).await;
        let before = counts(bench).await?;
        let scans_before = scans(bench).await?;
        for n in 0..LIVES {
            let lived = lives.request(filled.requests * 2 + n).await;
            lived.map_err(|code| anyhow!("a life failed: {code}"))?;
            sleep(RECORDED_AFTER).await;
        }
        let after = counts(bench).await?;
        sleep(TOLD_AFTER).await;
        let scans_after = scans(bench).await?;
        until_quiet(&queues).await?;
        let statements = before.until(&after, &idle_from, |counts| counts.statements);
        let transactions = before.until(&after, &idle_from, |counts| counts.writes);
        let tables = difference(&scans_before, &scans_after);
        let faults = faults(target, statements, transactions, &tables);
        Ok(Statements {
            statements,
            transactions,
            tables,
            faults,
        })
    })
    .await
}

impl Counts {
    /// What a life took from here until `after`, without as much as was counted in the same time
    /// while nothing happened, from `idle_from` until here.
    fn until(&self, after: &Self, idle_from: &Self, count: impl Fn(&Self) -> u64) -> Thousandths {
        let idle_ms = (self.at - idle_from.at).as_millis().max(1);
        let ms = (after.at - self.at).as_millis();
        let idle = u128::from(count(self) - count(idle_from)) * ms / idle_ms;
        let counted = count(after) - count(self);
        let own = counted.saturating_sub(u64::try_from(idle).unwrap_or(u64::MAX));
        Thousandths::of(own, LIVES)
    }
}

async fn counts(bench: &Bench) -> anyhow::Result<Counts> {
    let sent = bench.meter.read().await?.sent();
    let (statements, writes) = sent.context("the services count no statements")?;
    Ok(Counts {
        at: Instant::now(),
        statements,
        writes,
    })
}

async fn queues(bench: &Bench) -> anyhow::Result<Queues> {
    let charges = bench.processes.database_url(Service::Charges);
    let sessions = bench.processes.database_url(Service::Sessions);
    let webhooks = bench.processes.database_url(Service::Webhooks);
    Queues::open(&charges, &sessions, &webhooks).await
}

async fn until_quiet(queues: &Queues) -> anyhow::Result<()> {
    let quiet = async {
        while queues.read().await?.iter().any(|(_, rows)| *rows > 0) {
            sleep(LOOK_AGAIN).await;
        }
        anyhow::Ok(())
    };
    timeout(QUIET_MAX, quiet).await.context("work is left")?
}

/// Removes what filling left behind, which autovacuum would do at a time of its own.
async fn vacuum(bench: &Bench) -> anyhow::Result<()> {
    for service in DATABASES {
        let (server, database) = bench.processes.database(service).context("no PostgreSQL")?;
        server.vacuum(&database).await?;
    }
    Ok(())
}

/// By database and table: sequential scans, and rows read from indexes.
async fn scans(bench: &Bench) -> anyhow::Result<BTreeMap<String, (u64, u64)>> {
    let mut found = BTreeMap::new();
    for service in DATABASES {
        let (server, database) = bench.processes.database(service).context("no PostgreSQL")?;
        for scans in server.scans(&database).await? {
            let table = format!("{service} {}", scans.table_name);
            let counts = (
                u64::try_from(scans.sequential)?,
                u64::try_from(scans.index_rows)?,
            );
            found.insert(table, counts);
        }
    }
    Ok(found)
}

fn difference(
    before: &BTreeMap<String, (u64, u64)>,
    after: &BTreeMap<String, (u64, u64)>,
) -> BTreeMap<String, TableScans> {
    let tables = after.iter().map(|(table, (sequential, rows))| {
        let (sequential_before, rows_before) = before.get(table).copied().unwrap_or_default();
        let scans = TableScans {
            sequential: sequential.saturating_sub(sequential_before),
            index_rows: Thousandths::of(rows.saturating_sub(rows_before), LIVES),
        };
        (table.clone(), scans)
    });
    tables.collect()
}

fn faults(
    target: &StatementsTarget,
    statements: Thousandths,
    transactions: Thousandths,
    tables: &BTreeMap<String, TableScans>,
) -> Vec<String> {
    let mut faults = Vec::new();
    let bounds = [
        ("statements", statements, target.statements_max),
        (
            "writing transactions",
            transactions,
            target.transactions_max,
        ),
    ];
    for (name, count, max) in bounds {
        if count > Thousandths::of(max, 1) {
            faults.push(format!("a life takes {count:.1} {name}, more than {max}"));
        }
    }
    for (table, scans) in tables {
        // What is less frequent is not for a charge, but for upkeep.
        if scans.sequential >= LIVES / 2 {
            faults.push(format!(
                "{table} was scanned sequentially {} times",
                scans.sequential
            ));
        }
        if scans.index_rows > Thousandths::of(INDEX_ROWS_MAX, 1) {
            faults.push(format!(
                "a life reads {:.1} rows of {table} from its indexes, more than {INDEX_ROWS_MAX}",
                scans.index_rows
            ));
        }
    }
    faults
}

impl fmt::Display for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            statements,
            transactions,
            tables,
            faults,
        } = self;
        writeln!(
            f,
            "A charge's life: {statements:.1} statements, {transactions:.1} writing transactions"
        )?;
        for (
            table,
            TableScans {
                sequential,
                index_rows,
            },
        ) in tables
        {
            if *sequential > 0 || *index_rows > Thousandths(0) {
                writeln!(
                    f,
                    "  {table:<32} {index_rows:>6.1} index rows per life, {sequential} sequential scans"
                )?;
            }
        }
        for fault in faults {
            writeln!(f, "OUT OF BOUNDS: {fault}")?;
        }
        Ok(())
    }
}
