//! The services as separate processes, started on fresh databases for one measurement, and ended
//! with it.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    net::TcpListener,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use chassis::shutdown::Shutdown;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::sleep,
};
use uuid::Uuid;

use crate::{store::Server, usage::Watched};

/// Longest wait until a process answers.
const START_MAX: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How often a start is tried when somebody else takes a port that was free a moment ago.
pub const START_TRIES: u8 = 3;

/// What a process says that finds its port taken.
const PORT_TAKEN: &str = "is in use by another process";

/// Why a measurement ends early.
pub const STOPPED: &str = "stopped by a signal";

/// High enough to limit nobody.
const UNLIMITED: u32 = 1_000_000_000;

/// Encrypts the signing secrets of databases that are dropped at the end.
const WEBHOOK_SECRET_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Between charges-svc and the simulated networks, which listen on loopback only.
const RAIL_CREDENTIALS: [&str; 5] = [
    "--momo-subscription-key=loadtest",
    "--momo-api-user=6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11",
    "--momo-api-key=loadtest",
    "--momo-target-environment=mtnghana",
    "--paystack-secret-key=sk_test_loadtest",
];

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

    fn has_database(self) -> bool {
        !matches!(self, Self::Railsim | Self::Ratelimit | Self::Gateway)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// On what processes are started.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// The folder of the binaries. By default the load tester's own.
    pub binaries: Option<PathBuf>,
    /// A PostgreSQL server. Without it, each service has an SQLite file.
    pub database_url: Option<String>,
    /// Without it, ratelimit-svc counts alone.
    pub redis_url: Option<String>,
    /// Services that run already, with their URLs.
    pub elsewhere: BTreeMap<Service, String>,
    /// Makes PostgreSQL scan a table sequentially only where no index serves.
    pub avoid_sequential_scans: bool,
    /// More flags of a service, each in place of our own of that name.
    pub flags: Vec<(Service, String)>,
    /// Ends every measurement.
    pub shutdown: Shutdown,
}

impl Ground {
    /// Does the work, or as much of it as is done before a signal.
    pub async fn until_signal<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            () = self.shutdown.wait() => Err(anyhow!(STOPPED)),
        }
    }

    /// Does the work with what was started, or as much of it as is done before a signal, and ends
    /// what was started, whatever happened.
    pub async fn during<S, T>(
        &self,
        mut started: S,
        work: impl AsyncFnOnce(&mut S) -> anyhow::Result<T>,
        stop: impl AsyncFnOnce(S) -> anyhow::Result<()>,
    ) -> anyhow::Result<T> {
        let done = self.until_signal(work(&mut started)).await;
        ended(done, stop(started).await)
    }

    /// The path of a binary.
    pub fn binary(&self, name: &str) -> anyhow::Result<PathBuf> {
        Ok(self.folder()?.join(name))
    }

    fn folder(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = &self.binaries {
            return Ok(folder.clone());
        }
        let own = std::env::current_exe()?;
        Ok(own.parent().context("a binary is in a folder")?.to_owned())
    }
}

/// Running processes, and the databases that were made for them.
pub struct Processes {
    running: Vec<Process>,
    databases: Vec<String>,
    plan: StartPlan,
}

struct Process {
    service: Service,
    child: Child,
}

/// Where everything is, also what does not run.
struct StartPlan {
    ports: BTreeMap<Service, Ports>,
    server: Option<Server>,
    /// The databases' names begin with this.
    prefix: String,
    ground: Ground,
    binaries: PathBuf,
    /// SQLite files and logs.
    data: TempDir,
}

#[derive(Clone, Copy)]
struct Ports {
    serving: u16,
    admin: u16,
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
        let child = self.plan.spawn(service)?;
        self.running.push(Process { service, child });
        Ok(())
    }

    /// Kills a service, which keeps its database.
    pub async fn kill(&mut self, service: Service) -> anyhow::Result<()> {
        Ok(running(&mut self.running, service)?.child.kill().await?)
    }

    /// Starts a killed service again and returns how long it took to be ready.
    pub async fn revive(&mut self, service: Service) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let child = self.plan.spawn(service)?;
        let process = running(&mut self.running, service)?;
        process.child = child;
        process.until_ready(&self.plan).await?;
        Ok(started.elapsed())
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

    /// Where a service answers.
    pub fn url(&self, service: Service) -> String {
        self.plan.url(service)
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
            name: process.service.name().to_owned(),
            id: process.child.id(),
            admin: self.plan.admin_url(process.service),
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

fn running(running: &mut [Process], service: Service) -> anyhow::Result<&mut Process> {
    let mut running = running.iter_mut();
    let process = running.find(|process| process.service == service);
    process.with_context(|| format!("{service} does not run"))
}

impl Process {
    async fn until_ready(&mut self, plan: &StartPlan) -> anyhow::Result<()> {
        let service = self.service;
        let ready = match plan.admin_url(service) {
            Some(admin) => format!("{admin}/readyz"),
            None => plan.url(service),
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
                let log = std::fs::read_to_string(plan.log(service)).unwrap_or_default();
                bail!("{service} did not start: {log}");
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

impl StartPlan {
    fn new(ground: &Ground) -> anyhow::Result<Self> {
        let free = free_ports::<{ 2 * Service::ALL.len() }>()?;
        let (pairs, _) = free.as_chunks::<2>();
        let ports = Service::ALL.into_iter().zip(pairs);
        let ports = ports.map(|(service, &[serving, admin])| (service, Ports { serving, admin }));
        let server = ground.database_url.as_deref().map(Server::new);
        Ok(Self {
            ports: ports.collect(),
            server: server.transpose()?,
            prefix: format!("loadtest_{}", Uuid::new_v4().simple()),
            ground: ground.clone(),
            binaries: ground.folder()?,
            data: TempDir::new()?,
        })
    }

    fn spawn(&self, service: Service) -> anyhow::Result<Child> {
        let binary = self.binaries.join(service.name());
        let log = File::create(self.log(service))?;
        let more = self.ground.flags.iter().filter(|(of, _)| *of == service);
        let more: Vec<&String> = more.map(|(_, flag)| flag).collect();
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        let mut own = self.flags(service);
        own.retain(|flag| more.iter().all(|more| name(more) != name(flag)));
        let spawned = Command::new(&binary)
            .args(own)
            .args(more)
            // Settings come from here alone.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        spawned.with_context(|| {
            let binary = binary.display();
            format!("{binary} does not start; cargo build --release --workspace makes it")
        })
    }

    fn flags(&self, service: Service) -> Vec<String> {
        let own = match service {
            Service::Railsim => self.railsim(),
            Service::Merchants => Vec::new(),
            Service::Webhooks => webhooks(),
            Service::Sessions => vec![self.flag("webhooks-url", Service::Webhooks)],
            Service::Charges => self.charges(),
            Service::Ratelimit => self.ratelimit(),
            Service::Gateway => self.gateway(),
        };
        let listen = match service {
            Service::Gateway => "api-listen",
            _ => "listen",
        };
        let Ports { serving, admin } = self.ports(service);
        let mut flags = vec![
            "--log=warn".to_owned(),
            format!("--{listen}=127.0.0.1:{serving}"),
        ];
        if service != Service::Railsim {
            flags.push(format!("--admin-listen=127.0.0.1:{admin}"));
        }
        if service.has_database() {
            flags.push(format!("--database-url={}", self.database_url(service)));
        }
        [flags, own].concat()
    }

    fn railsim(&self) -> Vec<String> {
        let gateway = self.url(Service::Gateway);
        let own = [
            // Its fastest: a payer approves at once, and the callback follows.
            "--approve-delay=0s".to_owned(),
            format!("--paystack-callback-url={gateway}/rails/paystack/loadtest"),
        ];
        with_credentials(&own)
    }

    fn charges(&self) -> Vec<String> {
        let own = [
            self.flag("sessions-url", Service::Sessions),
            self.flag("webhooks-url", Service::Webhooks),
            self.flag("callback-base-url", Service::Gateway),
            self.flag("momo-base-url", Service::Railsim),
            self.flag("paystack-base-url", Service::Railsim),
            format!("--momo-queries-per-second={RAIL_QUERIES_PER_SECOND}"),
            format!("--paystack-queries-per-second={RAIL_QUERIES_PER_SECOND}"),
            "--paystack-email-domain=payers.example.com".to_owned(),
            "--paystack-callback-token=loadtest".to_owned(),
        ];
        with_credentials(&own)
    }

    fn ratelimit(&self) -> Vec<String> {
        let limits = ["payments", "charge", "charge-status"];
        let limits = limits.map(|bucket| format!("--limit-{bucket}={UNLIMITED}"));
        let redis = self
            .ground
            .redis_url
            .iter()
            .map(|url| format!("--redis-url={url}"));
        limits.into_iter().chain(redis).collect()
    }

    fn gateway(&self) -> Vec<String> {
        vec![
            self.flag("merchants-url", Service::Merchants),
            self.flag("sessions-url", Service::Sessions),
            self.flag("charges-url", Service::Charges),
            self.flag("ratelimit-url", Service::Ratelimit),
            "--checkout-listen=127.0.0.1:0".to_owned(),
            "--checkout-url=http://127.0.0.1:1".to_owned(),
            "--auth-failures-per-minute=0".to_owned(),
        ]
    }

    fn flag(&self, name: &str, service: Service) -> String {
        format!("--{name}={}", self.url(service))
    }

    fn url(&self, service: Service) -> String {
        if let Some(url) = self.ground.elsewhere.get(&service) {
            return url.trim_end_matches('/').to_owned();
        }
        format!("http://127.0.0.1:{}", self.ports(service).serving)
    }

    /// The networks have none.
    fn admin_url(&self, service: Service) -> Option<String> {
        let admin = || format!("http://127.0.0.1:{}", self.ports(service).admin);
        (service != Service::Railsim).then(admin)
    }

    fn ports(&self, service: Service) -> Ports {
        self.ports[&service]
    }

    fn database_url(&self, service: Service) -> String {
        let database = self.database(service);
        match &self.server {
            Some(server) => server.database(&database),
            None => format!("sqlite://{}/{database}.db", self.data.path().display()),
        }
    }

    fn database(&self, service: Service) -> String {
        let service = service.name().trim_end_matches("-svc");
        format!("{}_{service}", self.prefix)
    }

    fn log(&self, service: Service) -> PathBuf {
        self.data.path().join(format!("{service}.log"))
    }
}

/// More than any rail allows: what is measured is ours.
const RAIL_QUERIES_PER_SECOND: u32 = 10_000;

fn webhooks() -> Vec<String> {
    vec![
        format!("--webhook-secret-key={WEBHOOK_SECRET_KEY}"),
        "--webhook-allow-http=true".to_owned(),
        "--webhook-allow-nets=127.0.0.0/8".to_owned(),
    ]
}

fn with_credentials(own: &[String]) -> Vec<String> {
    let credentials = RAIL_CREDENTIALS.iter().map(|flag| (*flag).to_owned());
    own.iter().cloned().chain(credentials).collect()
}

/// Ports on which nothing listens now, below those that the system gives to connections. They
/// differ, because each is held until all are found.
pub fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    const FROM: u16 = 10_000;
    const PORTS: u16 = 20_000;
    const TRIES: usize = 1_000;
    let mut ports = [0; N];
    let mut held = Vec::new();
    for _ in 0..TRIES {
        let Some(next) = ports.get_mut(held.len()) else {
            return Ok(ports);
        };
        let [high, low, ..] = *Uuid::new_v4().as_bytes();
        *next = FROM + u16::from_be_bytes([high, low]) % PORTS;
        held.extend(TcpListener::bind(("127.0.0.1", *next)));
    }
    bail!("too few ports are free")
}
