//! How soon a process is ready, and the stack on its two stores.

use std::{
    fs,
    process::Stdio,
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
    processes::{Ground, Processes, Service},
    rounds::Probe,
    shop::Shop,
    store::Server,
    tally::micros,
    thousandths::Thousandths,
    usage::Watched,
};

/// Longest wait until the stack is ready.
const START_MAX: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(2);

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
    url: String,
    api_key: String,
    /// From its start until it had written its ready file.
    ready_after: Duration,
    databases: Option<(Server, String)>,
    _data: TempDir,
}

/// How long each service takes to be ready, on a database that has its tables.
pub async fn rows(compare: &Compare) -> anyhow::Result<Vec<Row>> {
    let ground = compare.place.ground();
    let mut processes = Processes::start(&ground, &Service::ALL).await?;
    let mut rows = Vec::new();
    for service in Service::ALL {
        let mut taken = Vec::new();
        for _ in 0..compare.rounds {
            processes.kill(service).await?;
            taken.push(milliseconds(processes.revive(service).await?));
        }
        if service != Service::Railsim {
            let work = format!("{service} to ready, ms");
            rows.push(Row::figure(13, &work, Asked::at_most(15_000), &taken));
        }
    }
    processes.stop().await?;
    let mut taken = Vec::new();
    for _ in 0..compare.rounds {
        let stack = Stack::start(&ground, None).await?;
        taken.push(milliseconds(stack.ready_after));
        stack.stop().await?;
    }
    let asked = Asked::at_most(80_000);
    rows.push(Row::figure(13, "stack to ready, ms", asked, &taken));
    Ok(rows)
}

/// The stack on SQLite beside the stack on PostgreSQL.
pub async fn embedded(compare: &Compare) -> anyhow::Result<Vec<Row>> {
    let ground = compare.place.ground();
    let server = ground.database_url.as_deref();
    let server = Server::new(server.context("row 14 needs --database-url")?)?;
    let once = compare.one_round();
    let mut rates = [const { Vec::new() }; 4];
    let [initiate, initiate_beside, charge, charge_beside] = &mut rates;
    for _ in 0..compare.rounds {
        for (server, initiates, charges) in [
            (None, &mut *initiate, &mut *charge),
            (Some(&server), &mut *initiate_beside, &mut *charge_beside),
        ] {
            // A new one in each round, so that no charges are left of the round before.
            let stack = Stack::start(&ground, server).await?;
            let store = server.map_or("SQLite", |_| "PostgreSQL");
            let load = Initiations(stack.api()?);
            let probe = Probe::new(&format!("initiate, {store}"), load, stack.watched())?;
            let [found] = once.measure(MANY, [&probe]).await?;
            initiates.extend(found.rates());
            let load = Charges(stack.api()?);
            let probe = Probe::new(&format!("charge, {store}"), load, stack.watched())?;
            let [found] = once.measure(MANY, [&probe]).await?;
            charges.extend(found.rates());
            stack.stop().await?;
        }
    }
    let [initiate, initiate_beside, charge, charge_beside] = &rates;
    let row = |work, ours: &[Thousandths], beside: &[Thousandths]| {
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
    async fn start(ground: &Ground, server: Option<&Server>) -> anyhow::Result<Self> {
        let data = TempDir::new()?;
        let file = data.path().join("ready.json");
        let mut command = Command::new(ground.binary("stack")?);
        for address in ["--api", "--checkout", "--handset"] {
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
        let mut child = command
            .args(["--ephemeral", "--log=error", "--ready-file"])
            .arg(&file)
            .env_clear()
            .envs(ENVIRONMENT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        while !file.exists() {
            ensure!(child.try_wait()?.is_none(), "the stack has ended");
            ensure!(started.elapsed() < START_MAX, "the stack is not ready");
            sleep(LOOK_AGAIN).await;
        }
        let ready_after = started.elapsed();
        let ready: Value = serde_json::from_slice(&fs::read(&file)?)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let url = text(&ready["api"]).context("no address")?;
        let api_key = text(&ready["demo"]["api_key"]).context("no key")?;
        Ok(Self {
            child,
            url,
            api_key,
            ready_after,
            databases: server.map(|server| (server.clone(), prefix)),
            _data: data,
        })
    }

    fn api(&self) -> anyhow::Result<Api> {
        let shop = Shop {
            merchant_id: String::new(),
            api_key: self.api_key.clone(),
        };
        Api::new(&self.url, vec![shop], Kind::None)
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
        self.child.kill().await?;
        if let Some((server, prefix)) = &self.databases {
            for name in DATABASES {
                server.drop(&format!("{prefix}{name}")).await?;
            }
        }
        Ok(())
    }
}

fn milliseconds(duration: Duration) -> Thousandths {
    Thousandths(micros(duration))
}
