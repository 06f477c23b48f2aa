//! Payment sessions, their transactions as shown, expiry, and the customer directory.
//!
//! Owns the database `sessions`. Promises:
//! - One idempotency key creates one session.
//! - A session has one charge in flight at most, and none once it has ended.
//! - What is shown of a charge never goes back to what was known before; money that has settled is
//!   never unsettled.
//! - A session that ends unpaid is told of with one event, once. A charge in flight is waited for.
//! - A payment counts once for its customer; two customers never become one.

pub mod config;
mod customer;
mod directory;
mod error;
mod expiry_event;
mod fingerprint;
mod grpc;
mod service;
mod session;
mod store;
mod sweeper;
mod transaction;

use std::time::Duration;

use anyhow::Context as _;
use chassis::{
    clock::Clock,
    grpc::{Serving, Sockets},
    http::DRAIN_MAX,
    shutdown::{Shutdown, Tasks},
};
use db::{
    Db, Schema,
    outbox::{self, Relay},
};
use proto::sessions::sessions_server::SessionsServer;
use tonic::service::Routes;

use config::Config;
use service::Service;
use sweeper::{Sweeper, Wake};

/// What `migrate` applies, and serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
};

/// Longest wait for webhooks-svc to take an event.
const PUBLISH_MAX: Duration = Duration::from_secs(5);

/// Serves, expires and relays until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let db = Db::open(&config.database, config.mode, &SCHEMA, &clock, &shutdown).await?;
    outbox::release_leases(&db).await?;
    let tasks = Tasks::new();

    let webhooks = chassis::grpc::connect(&config.webhooks_url, &config.tls, PUBLISH_MAX)
        .context("WEBHOOKS_URL is not usable")?;
    let relaying = clock.worker("expiry events");
    let relayed = db.clone();
    let relay = Relay::new(&db, &clock, &relaying, &tasks, config.lease, move |row| {
        expiry_event::publish(relayed.clone(), webhooks.clone(), row)
    });
    tasks.spawn(relay.clone().run(relaying, shutdown.clone()));

    let sweeping = clock.worker("session expiry");
    let wake = Wake::new(&sweeping);
    let service = Service {
        db: db.clone(),
        clock: clock.clone(),
        session_lifetime: config.session_lifetime,
        wake: wake.clone(),
    };
    let sweeper = Sweeper {
        db: db.clone(),
        clock: clock.clone(),
        relay,
        wake,
    };
    tasks.spawn(sweeper.run(sweeping, shutdown.clone()));

    let serving = Serving {
        sockets,
        tls: config.tls,
        reflection: config.listen.reflection(config.mode),
        readiness: db.readiness(&clock),
        clock,
        shutdown: shutdown.clone(),
    };
    let served = chassis::grpc::serve(Routes::new(SessionsServer::new(service)), serving).await;
    // The workers end with the server, however it ended.
    shutdown.begin();
    tasks.drain(DRAIN_MAX).await;
    db.close().await;
    served
}
