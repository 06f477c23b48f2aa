//! The frame of a service with a database: everything that such services have in common.
//!
//! Opening it checks the settings, makes sure that the database is up to date and, on SQLite,
//! where no other process can hold a lease, releases those of a process that died. It serves until
//! the process stops or cannot go on, then waits for running work and closes the database. A
//! dropped frame leaves everything as a crash would.

use std::time::Duration;

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Worker},
    config::{self, Settings, Tls},
    grpc::{self, Doors, ServerSetup, Sockets},
    shutdown::{Shutdown, Tasks},
};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Db, Schema,
    config::ServiceConfig,
    oldest::OldestGauge,
    work::{self, Work},
};

/// How long works and tasks together may take to end once no call is left. What it cuts off is found
/// again only as after a crash, once its lease is over. The longest with bounds of its own is a
/// charge that goes to its rail once more, which takes 24 s: its session is asked (2 s), then the
/// rail (8 s), the payment request is sent (8 s), and each answer is written (3 s). A webhook
/// attempt takes longer only if the operator lets it.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// What a service runs in.
#[derive(Debug)]
pub struct Frame {
    pub db: Db,
    pub clock: Clock,
    /// Tasks that may outlive the call or the work that started them. They are drained last.
    pub tasks: Tasks,
    /// Whether the service offers gRPC reflection.
    reflection: bool,
    tls: Tls,
    shutdown: Shutdown,
    works: JoinSet<()>,
}

impl Frame {
    /// Opens the database of these settings and readies it for serving.
    ///
    /// # Errors
    /// If the settings are refused, or the database does not open ([`Db::open`]).
    pub async fn open(
        settings: &impl Settings,
        config: &ServiceConfig,
        schema: &Schema,
        clock: Clock,
        shutdown: Shutdown,
    ) -> anyhow::Result<Self> {
        config::check(settings)?;
        let db = Db::open(&config.database, config.mode, schema, &clock, &shutdown).await?;
        db.release_leases(schema)
            .await
            .context("old leases are still held")?;
        Ok(Self {
            db,
            clock,
            tasks: Tasks::new(),
            reflection: config.listen.reflection(config.mode),
            tls: config.tls.clone(),
            shutdown,
            works: JoinSet::new(),
        })
    }

    /// Runs this work from now on.
    pub fn work(&mut self, worker: Worker, work: impl Work) {
        let (clock, shutdown) = (self.clock.clone(), self.shutdown.clone());
        self.works.spawn(work::run(work, worker, clock, shutdown));
    }

    /// Shows as this gauge, from now on, how long the oldest of what waits has waited
    /// ([`OldestGauge::new`]). Only whoever scrapes the admin address reads it.
    pub fn show_oldest(&mut self, gauge: &'static str, oldest: &'static str) {
        let measuring = OldestGauge::new(&self.db, &self.clock, gauge, oldest);
        self.work(self.clock.worker(gauge), measuring);
    }

    /// Runs a future beside the service. It is cancelled when the process stops, so it must be able
    /// to stop at any point. Time travel does not wait for it.
    pub fn beside(&mut self, running: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        self.works.spawn(async move {
            tokio::select! {
                () = shutdown.wait() => {}
                () = running => {}
            }
        });
    }

    /// Serves until the process stops, then shuts down in order.
    pub async fn serve(self, doors: impl Into<Doors>, sockets: Sockets) -> anyhow::Result<()> {
        let serving = ServerSetup {
            sockets,
            tls: self.tls,
            reflection: self.reflection,
            readiness: self.db.readiness(&self.clock),
            clock: self.clock.clone(),
            shutdown: self.shutdown.clone(),
        };
        let served = grpc::serve(doors, serving).await;
        // Also if serving failed.
        self.shutdown.begin();
        let deadline = Instant::now() + DRAIN_MAX;
        work::drain(self.works, DRAIN_MAX).await;
        // Only now can no work start another task.
        let left = deadline.saturating_duration_since(Instant::now());
        self.tasks.drain(left).await;
        self.db.close().await;
        served
    }
}
