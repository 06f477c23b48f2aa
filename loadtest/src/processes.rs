//! The services as separate processes, started on fresh databases for one measurement, and ended
//! with it.

mod ground;
mod start_plan;

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use tokio::{process::Child, time::sleep};

pub use ground::{Ground, Host};
pub use start_plan::free_ports;

use crate::{store::Server, usage::Watched};
use start_plan::{Replica, StartPlan};

/// Longest wait until a process answers.
const START_MAX: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How often a start is tried when somebody else takes a port that was free a moment ago.
pub const START_TRIES: u8 = 3;

/// What a process says that finds its port taken.
const PORT_TAKEN: &str = "is in use by another process";

/// Why a measurement ends early.
pub const STOPPED: &str = "stopped by a signal";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Railsim,
    Merchants,
    Webhooks,
    Sessions,
    Charges,
    Ratelimit,
    Gateway,
}

impl Service {
    pub const ALL: [Self; 7] = [
        Self::Railsim,
        Self::Merchants,
        Self::Webhooks,
        Self::Sessions,
        Self::Charges,
        Self::Ratelimit,
        Self::Gateway,
    ];

    /// The name of its binary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Railsim => "railsim",
            Self::Merchants => "merchants-svc",
            Self::Webhooks => "webhooks-svc",
            Self::Sessions => "sessions-svc",
            Self::Charges => "charges-svc",
            Self::Ratelimit => "ratelimit-svc",
            Self::Gateway => "gateway",
        }
    }

    /// Whether it serves operators, at an address of their own.
    fn has_operators(self) -> bool {
        matches!(self, Self::Merchants | Self::Webhooks | Self::Charges)
    }

    fn has_database(self) -> bool {
        !matches!(self, Self::Railsim | Self::Ratelimit | Self::Gateway)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Running processes, and the databases that were made for them.
pub struct Processes {
    running: Vec<Process>,
    databases: Vec<String>,
    plan: StartPlan,
}

struct Process {
    replica: Replica,
    child: Child,
}

impl Processes {
    /// Starts these services, each on a fresh database, and waits until they are ready.
    pub async fn start(ground: &Ground, services: &[Service]) -> anyhow::Result<Self> {
        let mut tries_left = START_TRIES;
        loop {
            let mut processes = Self {
                running: Vec::new(),
                databases: Vec::new(),
                plan: StartPlan::new(ground)?,
            };
            let Err(error) = processes.start_all(services).await else {
                return Ok(processes);
            };
            tries_left -= 1;
            let is_port_taken = error.to_string().contains(PORT_TAKEN);
            let stopped = processes.stop().await;
            if !is_port_taken || tries_left == 0 {
                return ended(Err(error), stopped);
            }
            stopped?;
        }
    }

    async fn start_all(&mut self, services: &[Service]) -> anyhow::Result<()> {
        for service in services {
            // A signal does not interrupt this: a database that is half made cannot be dropped.
            ensure!(!self.plan.ground.shutdown.has_begun(), STOPPED);
            self.add(*service).await?;
        }
        let Self { plan, running, .. } = self;
        let ready = async {
            for process in running {
                process.until_ready(plan).await?;
            }
            Ok(())
        };
        plan.ground.until_signal(ready).await
    }

    async fn add(&mut self, service: Service) -> anyhow::Result<()> {
        if let Some(server) = &self.plan.server
            && service.has_database()
        {
            let database = self.plan.database(service);
            self.databases.push(database.clone());
            server.create(&database).await?;
            if self.plan.ground.avoid_sequential_scans {
                server.avoid_sequential_scans(&database).await?;
            }
        }
        for replica in self.plan.replicas(service) {
            let child = self.plan.spawn(replica)?;
            self.running.push(Process { replica, child });
        }
        Ok(())
    }

    /// Kills a service's processes. Its database stays.
    pub async fn kill(&mut self, service: Service) -> anyhow::Result<()> {
        self.ensure_started(service)?;
        for process in running(&mut self.running, service) {
            process.child.kill().await?;
        }
        Ok(())
    }

    /// Starts a killed service again and returns how long it took to be ready.
    pub async fn revive(&mut self, service: Service) -> anyhow::Result<Duration> {
        self.ensure_started(service)?;
        let started = Instant::now();
        for process in running(&mut self.running, service) {
            process.child = self.plan.spawn(process.replica)?;
        }
        for process in running(&mut self.running, service) {
            process.until_ready(&self.plan).await?;
        }
        Ok(started.elapsed())
    }

    /// Kills one of a service's processes, the replicas in `turn`s, and starts it again after it was
    /// `gone` for a while.
    pub async fn restart(
        &mut self,
        service: Service,
        turn: u64,
        gone: Duration,
    ) -> anyhow::Result<()> {
        self.ensure_started(service)?;
        let replicas = u64::from(self.plan.ground.host.replicas);
        let place = usize::try_from(turn % replicas)?;
        let mut replicas = running(&mut self.running, service);
        let process = replicas.nth(place).context("a service has its replicas")?;
        process.child.kill().await?;
        sleep(gone).await;
        process.child = self.plan.spawn(process.replica)?;
        process.until_ready(&self.plan).await
    }

    fn ensure_started(&mut self, service: Service) -> anyhow::Result<()> {
        let is_started = running(&mut self.running, service).next().is_some();
        ensure!(is_started, "{service:?} was not started");
        Ok(())
    }

    /// Ends everything and drops the databases.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let mut stopped = Ok(());
        for process in &mut self.running {
            stopped = ended(stopped, end(&mut process.child).await);
        }
        if let Some(server) = &self.plan.server {
            for database in &self.databases {
                stopped = ended(stopped, server.drop(database).await);
            }
        }
        stopped
    }

    /// Leaves databases, files and logs behind. Returns the folder of the files.
    pub fn keep(&mut self) -> PathBuf {
        self.databases.clear();
        self.plan.keep()
    }

    /// Where a service answers: a name, if it has several replicas.
    pub fn url(&self, service: Service) -> String {
        self.plan.url(service)
    }

    /// Where a service listens to operators.
    ///
    /// # Errors
    /// It runs elsewhere, at an address that was not given.
    pub fn operators_url(&self, service: Service) -> anyhow::Result<String> {
        self.plan.operators_url(service)
    }

    /// Where each replica of the gateway answers, for clients that spread their requests themselves.
    pub fn gateway_urls(&self) -> Vec<String> {
        self.plan.gateway_urls()
    }

    /// How many processes there are of each service.
    pub fn replicas(&self) -> u8 {
        self.plan.ground.host.replicas
    }

    /// The URL of the database that was made for a service.
    pub fn database_url(&self, service: Service) -> String {
        self.plan.database_url(service)
    }

    /// The PostgreSQL server, and the name of the service's database there.
    pub fn database(&self, service: Service) -> Option<(&Server, String)> {
        let server = self.plan.server.as_ref()?;
        Some((server, self.plan.database(service)))
    }

    /// The running processes, to be metered.
    pub fn watched(&self) -> Vec<Watched> {
        let running = self.running.iter();
        let watched = running.map(|process| Watched {
            name: self.plan.name(process.replica),
            id: process.child.id(),
            admin: self.plan.admin_url(process.replica),
        });
        watched.collect()
    }
}

/// Ends a process, which may have ended by itself.
pub async fn end(child: &mut Child) -> anyhow::Result<()> {
    if child.try_wait()?.is_none() {
        child.kill().await?;
    }
    Ok(())
}

/// What was done, unless something could not be ended afterwards.
pub fn ended<T>(done: anyhow::Result<T>, stopped: anyhow::Result<()>) -> anyhow::Result<T> {
    match (done, stopped) {
        (Err(error), Err(left)) => Err(error.context(format!("something is left over: {left:#}"))),
        (Ok(_), Err(left)) => Err(left),
        (done, Ok(())) => done,
    }
}

/// The processes of a service.
fn running(running: &mut [Process], service: Service) -> impl Iterator<Item = &mut Process> {
    let running = running.iter_mut();
    running.filter(move |process| process.replica.service == service)
}

impl Process {
    async fn until_ready(&mut self, plan: &StartPlan) -> anyhow::Result<()> {
        let replica = self.replica;
        let ready = match plan.admin_url(replica) {
            Some(admin) => format!("{admin}/readyz"),
            None => plan.url(replica.service),
        };
        let client = chassis::http::client(START_MAX)?;
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Ok(answer) = client.get(&ready).send().await
                && answer.status().is_success()
                // Otherwise somebody else answers at its port.
                && self.child.try_wait()?.is_none()
            {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(plan.log(replica)).unwrap_or_default();
                bail!("{} did not start: {log}", plan.name(replica));
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}
