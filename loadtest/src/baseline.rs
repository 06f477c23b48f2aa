//! The bare paths: what this machine does at best along the ways that our services go, measured in
//! the same minutes, so that every figure of ours can be told as a ratio.
//!
//! Each hop is a process of its own, as each service is, with pools as large as theirs. The same
//! requests measure both.

mod edge;
pub mod hop;
pub mod limitador;
pub mod pgbench;
mod sessions;
mod store;

use std::{
    process::Stdio,
    slice,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::sleep,
};
use uuid::Uuid;

use crate::{
    api::Api,
    config::{Baseline, Common},
    gateway::{Charges, Initiations, Reads},
    payers::Kind,
    processes::{Ground, START_TRIES, end, ended, free_ports},
    ratelimit::Checks,
    report::Report,
    rounds::Probe,
    sessions::Creations,
    shop::Shop,
    store::Server,
    usage::Watched,
    work::Work,
};

/// Longest wait until a hop listens.
const START_MAX: Duration = Duration::from_secs(10);

/// Over how many merchants requests are spread.
pub const MERCHANTS: u16 = 20;

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The running hops of a path.
pub struct Hops {
    ground: Ground,
    baseline: Baseline,
    children: Vec<Hop>,
    database: Option<(Server, String)>,
    /// Where its first hop answers.
    pub url: String,
}

struct Hop {
    kind: &'static str,
    url: String,
    child: Child,
}

/// Measures a bare path.
pub async fn run(baseline: Baseline, common: &Common) -> anyhow::Result<Vec<Report>> {
    Hops::during([baseline], &common.place.ground()?, async |[hops]| {
        let measured = async {
            let probe = hops.probe().await?;
            let mut reports = Vec::new();
            for plan in common.offer.plans(&baseline.to_string()) {
                reports.push(probe.measure(plan).await?);
            }
            Ok(reports)
        };
        hops.ground.until_signal(measured).await
    })
    .await
}

impl Hops {
    /// Starts the hops of these paths, each on an empty table, does the work, and ends them,
    /// whatever happens. A signal is the work's own matter.
    pub async fn during<const N: usize, T>(
        baselines: [Baseline; N],
        ground: &Ground,
        work: impl AsyncFnOnce(&[Self; N]) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut paths = baselines.map(|baseline| Self {
            ground: ground.clone(),
            baseline,
            children: Vec::new(),
            database: None,
            url: String::new(),
        });
        let done = async {
            for hops in &mut paths {
                hops.start_all().await?;
            }
            work(&paths).await
        };
        let mut done = done.await;
        for hops in paths {
            done = ended(done, hops.stop().await);
        }
        done
    }

    async fn start_all(&mut self) -> anyhow::Result<()> {
        match self.baseline {
            Baseline::A => self.start_edge(vec![]).await,
            Baseline::B => {
                let store = self.store().await?;
                self.start_edge(vec![store]).await
            }
            Baseline::C => {
                let sessions = self.sessions(vec![]).await?;
                self.start_edge(vec![sessions]).await
            }
            Baseline::D | Baseline::E => {
                let (redis, store) = (self.redis()?, self.store().await?);
                let limits = self.limits(vec![redis]).await?;
                let sessions = self.sessions(vec![store]).await?;
                self.start_edge(vec![limits, sessions]).await
            }
            Baseline::F => self.start_posting(1, 2).await,
            Baseline::G => {
                let limits = self.limits(vec![]).await?;
                let sessions = self.sessions(vec![]).await?;
                self.start_edge(vec![limits, sessions]).await
            }
            Baseline::H => {
                let (store, receiver) = (self.store().await?, self.receiver().await?);
                let flags = vec![store, receiver, "--updates=1".to_owned()];
                self.sessions(flags).await.map(drop)
            }
            Baseline::I => self.start_posting(3, 8).await,
            Baseline::Incr => {
                let redis = self.redis()?;
                self.limits(vec![redis]).await.map(drop)
            }
            Baseline::Insert => {
                let store = self.store().await?;
                self.sessions(vec![store]).await.map(drop)
            }
        }
    }

    /// Like d, with so many POSTs to a stub and so many UPDATEs after the INSERT.
    async fn start_posting(&mut self, posts: u8, updates: u8) -> anyhow::Result<()> {
        let (redis, store) = (self.redis()?, self.store().await?);
        let limits = self.limits(vec![redis]).await?;
        let receiver = self.receiver().await?;
        let (posts, updates) = (format!("--posts={posts}"), format!("--updates={updates}"));
        let sessions = self.sessions(vec![store, receiver, posts, updates]).await?;
        self.start_edge(vec![limits, sessions]).await
    }

    /// Ends the hops and drops their table.
    async fn stop(mut self) -> anyhow::Result<()> {
        let mut stopped = Ok(());
        for hop in &mut self.children {
            stopped = ended(stopped, end(&mut hop.child).await);
        }
        if let Some((server, name)) = &self.database {
            stopped = ended(stopped, server.drop(name).await);
        }
        stopped
    }

    /// The running hops, to be metered.
    pub fn watched(&self) -> Vec<Watched> {
        let children = self.children.iter();
        let watched = children.map(|hop| Watched {
            name: format!("bare {}", hop.kind),
            id: hop.child.id(),
            admin: None,
        });
        watched.collect()
    }

    /// Where the last hop of a kind answers.
    pub fn url_of(&self, kind: &str) -> Option<&str> {
        let mut hops = self.children.iter().rev();
        hops.find(|hop| hop.kind == kind)
            .map(|hop| hop.url.as_str())
    }

    /// The requests that measure the path: those that measure ours.
    pub async fn probe(&self) -> anyhow::Result<Probe> {
        let name = self.baseline.to_string();
        // Any key will do.
        let shop = Shop {
            merchant_id: Uuid::nil().to_string(),
            api_key: format!("service_sk_{}", "0".repeat(46)),
        };
        let api = Api::new(slice::from_ref(&self.url), vec![shop], Kind::None)?;
        match self.baseline {
            Baseline::A | Baseline::B | Baseline::C | Baseline::D | Baseline::G => {
                Probe::new(&name, Initiations(api), self.watched())
            }
            Baseline::E => {
                let reads = Reads::prepare(api, Work::Status).await?;
                Probe::new(&name, reads, self.watched())
            }
            Baseline::F | Baseline::I => Probe::new(&name, Charges(api), self.watched()),
            Baseline::H | Baseline::Insert => {
                let creations = Creations::single(&self.url, MERCHANTS, Kind::None)?;
                Probe::new(&name, creations, self.watched())
            }
            Baseline::Incr => Probe::new(&name, Checks::new(&self.url, MERCHANTS)?, self.watched()),
        }
    }

    async fn start_edge(&mut self, flags: Vec<String>) -> anyhow::Result<()> {
        self.add("edge", flags).await
    }

    async fn receiver(&mut self) -> anyhow::Result<String> {
        self.add("edge", vec![]).await?;
        Ok(format!("--post-url={}", self.url))
    }

    async fn limits(&mut self, flags: Vec<String>) -> anyhow::Result<String> {
        self.add("limits", flags).await?;
        Ok(format!("--limits-url={}", self.url))
    }

    async fn sessions(&mut self, flags: Vec<String>) -> anyhow::Result<String> {
        self.add("sessions", flags).await?;
        Ok(format!("--sessions-url={}", self.url))
    }

    fn redis(&self) -> anyhow::Result<String> {
        let url = self.ground.redis_url.as_ref();
        let url = url.context("this bare path needs --redis-url")?;
        Ok(format!("--redis-url={url}"))
    }

    async fn store(&mut self) -> anyhow::Result<String> {
        let url = self.ground.database_url.as_ref();
        let server = Server::new(url.context("this bare path needs --database-url")?)?;
        let name = format!("loadtest_{}_bare", Uuid::new_v4().simple());
        let url = server.database(&name);
        self.database = Some((server, name));
        store::prepare(&url).await?;
        Ok(format!("--database-url={url}"))
    }

    /// Starts one more hop and waits until it listens.
    async fn add(&mut self, kind: &'static str, flags: Vec<String>) -> anyhow::Result<()> {
        let mut tries_left = START_TRIES;
        let hop = loop {
            let hop = Hop::start(kind, &flags);
            tries_left -= 1;
            match self.ground.until_signal(hop).await? {
                Some(hop) => break hop,
                None => ensure!(tries_left > 0, "the bare {kind} has ended"),
            }
        };
        self.url.clone_from(&hop.url);
        self.children.push(hop);
        Ok(())
    }
}

impl Hop {
    /// `None` if it has ended: somebody else may have taken its port.
    async fn start(kind: &'static str, flags: &[String]) -> anyhow::Result<Option<Self>> {
        let [port] = free_ports()?;
        let address = format!("127.0.0.1:{port}");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bare", kind, "--listen", &address])
            .args(flags)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(&address).await.is_err() {
            if child.try_wait()?.is_some() {
                return Ok(None);
            }
            ensure!(Instant::now() < deadline, "the bare {kind} does not listen");
            sleep(LOOK_AGAIN).await;
        }
        let url = format!("http://{address}");
        Ok(Some(Self { kind, url, child }))
    }
}
