//! How soon a process is ready, and the stack on its two stores.

use std::{
    fs,
    process::Stdio,
    slice,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::sleep,
};
use uuid::Uuid;

use super::{
    MANY,
    row::{Asked, Row},
};
use crate::{
    api::Api,
    config::Compare,
    gateway::{Charges, Initiations},
    payers::Kind,
    processes::{Ground, Processes, STOPPED, Service, end, ended},
    rounds::{Figures, Probe},
    shop::Shop,
    store::Server,
    tally::micros,
    thousandths::Thousandths,
    usage::Watched,
};

/// Longest wait until the stack is ready.
const START_MAX: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(2);

const READY_FILE: &str = "ready.json";

/// Nobody is limited, and payers approve at once.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("LIMIT_PAYMENTS", "1000000000"),
    ("LIMIT_CHARGE", "1000000000"),
    ("LIMIT_CHARGE_STATUS", "1000000000"),
    ("RAILSIM_APPROVE_DELAY", "0s"),
];

/// The databases that the stack makes.
const DATABASES: [&str; 4] = ["merchants", "sessions", "charges", "webhooks"];

/// The whole service in one process.
struct Stack {
    child: Child,
    started: Instant,
    databases: Option<(Server, String)>,
    data: TempDir,
}

/// What a stack tells in its ready file.
struct Ready {
    url: String,
    api_key: String,
    /// From its start until it had written the file.
    after: Duration,
}

/// How long each service takes to be ready, on a database that has its tables.
pub async fn rows(compare: &Compare) -> anyhow::Result<Vec<Row>> {
    let ground = compare.place.ground()?;
    let processes = Processes::start(&ground, &Service::ALL).await?;
    let revive = async |processes: &mut Processes| revivals(compare, processes).await;
    let mut rows = ground.during(processes, revive, Processes::stop).await?;
    let mut taken = Vec::new();
    for _ in 0..compare.rounds {
        let (stack, ready) = Stack::start(&ground, None).await?;
        stack.stop().await?;
        taken.push(milliseconds(ready.after));
    }
    let asked = Asked::at_most(80_000);
    rows.push(Row::figure(13, "stack to ready, ms", asked, &taken.into()));
    Ok(rows)
}

async fn revivals(compare: &Compare, processes: &mut Processes) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for service in Service::ALL {
        let mut taken = Vec::new();
        for _ in 0..compare.rounds {
            processes.kill(service).await?;
            taken.push(milliseconds(processes.revive(service).await?));
        }
        if service != Service::Railsim {
            let work = format!("{service} to ready, ms");
            let asked = Asked::at_most(15_000);
            rows.push(Row::figure(13, &work, asked, &taken.into()));
        }
    }
    Ok(rows)
}

/// The stack on SQLite beside the stack on PostgreSQL.
pub async fn embedded(compare: &Compare) -> anyhow::Result<Vec<Row>> {
    let ground = compare.place.ground()?;
    let server = ground.database_url.as_deref();
    let server = Server::new(server.context("row 14 needs --database-url")?)?;
    let once = compare.one_round();
    let mut rates = <[Figures; 4]>::default();
    let [initiate, initiate_beside, charge, charge_beside] = &mut rates;
    for _ in 0..compare.rounds {
        for (server, initiates, charges) in [
            (None, &mut *initiate, &mut *charge),
            (Some(&server), &mut *initiate_beside, &mut *charge_beside),
        ] {
            // A new one in each round, so that no charges are left of the round before.
            let (stack, ready) = Stack::start(&ground, server).await?;
            let store = server.map_or("SQLite", |_| "PostgreSQL");
            let work = async |stack: &mut Stack| {
                let load = Initiations(ready.api()?);
                let probe = Probe::new(&format!("initiate, {store}"), load, stack.watched())?;
                let [found] = once.measure(MANY, [&probe]).await?;
                initiates.extend(found.rates());
                let load = Charges(ready.api()?);
                let probe = Probe::new(&format!("charge, {store}"), load, stack.watched())?;
                let [found] = once.measure(MANY, [&probe]).await?;
                charges.extend(found.rates());
                Ok(())
            };
            ground.during(stack, work, Stack::stop).await?;
        }
    }
    let [initiate, initiate_beside, charge, charge_beside] = &rates;
    let row = |work, ours: &Figures, beside: &Figures| {
        Row::ratio(
            14,
            work,
            Asked::at_least(50),
            ours,
            ("on PostgreSQL", beside),
        )
    };
    Ok(vec![
        row("embedded: initiate", initiate, initiate_beside),
        row("embedded: charge", charge, charge_beside),
    ])
}

impl Stack {
    /// A signal does not interrupt this: a database that is half made cannot be dropped.
    async fn start(ground: &Ground, server: Option<&Server>) -> anyhow::Result<(Self, Ready)> {
        ensure!(!ground.shutdown.has_begun(), STOPPED);
        let mut stack = Self::spawn(ground, server)?;
        match stack.until_ready().await {
            Ok(ready) => Ok((stack, ready)),
            Err(error) => ended(Err(error), stack.stop().await),
        }
    }

    fn spawn(ground: &Ground, server: Option<&Server>) -> anyhow::Result<Self> {
        let data = TempDir::new()?;
        let mut command = Command::new(ground.binary("stack")?);
        for address in ["--api", "--checkout", "--dashboard", "--handset"] {
            command.args([address, "127.0.0.1:0"]);
        }
        let prefix = format!("loadtest_{}_", Uuid::new_v4().simple());
        if let Some(server) = server {
            command.arg(format!(
                "--database-url-prefix={}",
                server.database(&prefix)
            ));
        }
        let started = Instant::now();
        let child = command
            .args(["--ephemeral", "--log=error", "--ready-file"])
            .arg(data.path().join(READY_FILE))
            .env_clear()
            .envs(ENVIRONMENT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            child,
            started,
            databases: server.map(|server| (server.clone(), prefix)),
            data,
        })
    }

    async fn until_ready(&mut self) -> anyhow::Result<Ready> {
        let file = self.data.path().join(READY_FILE);
        while !file.exists() {
            ensure!(self.child.try_wait()?.is_none(), "the stack has ended");
            ensure!(self.started.elapsed() < START_MAX, "the stack is not ready");
            sleep(LOOK_AGAIN).await;
        }
        let after = self.started.elapsed();
        let ready: Value = serde_json::from_slice(&fs::read(&file)?)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Ready {
            url: text(&ready["api"]).context("no address")?,
            api_key: text(&ready["demo"]["api_key"]).context("no key")?,
            after,
        })
    }

    fn watched(&self) -> Vec<Watched> {
        let stack = Watched {
            name: "stack".to_owned(),
            id: self.child.id(),
            admin: None,
        };
        vec![stack]
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        let mut stopped = end(&mut self.child).await;
        if let Some((server, prefix)) = &self.databases {
            for name in DATABASES {
                stopped = ended(stopped, server.drop(&format!("{prefix}{name}")).await);
            }
        }
        stopped
    }
}

impl Ready {
    fn api(&self) -> anyhow::Result<Api> {
        let shop = Shop {
            merchant_id: String::new(),
            api_key: self.api_key.clone(),
        };
        Api::new(slice::from_ref(&self.url), vec![shop], Kind::None)
    }
}

fn milliseconds(duration: Duration) -> Thousandths {
    Thousandths(micros(duration))
}
