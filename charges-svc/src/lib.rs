//! Charges: one try each to debit a payer's wallet; and the ledger of what was collected.
//!
//! Owns the database `charges`. Promises (design §3):
//!
//! - A charge is written down, with every identifier that it will ever have, before its rail is
//!   called, and the payment request goes out once; once more only as `resend.rs` says.
//! - Its outcome is the rail's word, or an operator's. What nobody knows stays INITIATED and is
//!   asked about.
//! - What becomes true together (state, postings, event, key) is committed together. SETTLED and
//!   FAILED never change; money that does not fit is in suspense, with a case for an operator.
//! - sessions-svc hears of each change first, and webhooks-svc only after that.

#[doc(hidden)]
pub mod books;
mod budget;
mod callback;
pub mod case;
pub mod charge;
pub mod config;
mod create;
pub mod error;
pub mod grpc;
pub mod ledger;
mod message;
mod operate;
mod otp;
mod rail_call;
mod reconcile;
mod resend;
pub mod schedule;
pub mod seal;
pub mod service;
#[doc(hidden)]
pub mod store;
mod tell;
mod upkeep;
pub mod verdict;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Worker},
    grpc::{Serving, Sockets, connect},
    shutdown::{Shutdown, Tasks},
};
use db::{
    Db, Schema,
    outbox::{self, Relay},
};
use proto::charges::{
    charge_operations_server::ChargeOperationsServer, charges_server::ChargesServer,
};
use tonic::service::Routes;

use config::Config;
use grpc::Grpc;
use rails::{self as rail, Rails};
use reconcile::{Alarms, Reconciler};
use service::Service;
use tell::Teller;

/// What `migrate` applies, and serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
};

/// Longest wait for another service's answer.
const SERVICE_CALL_MAX: Duration = Duration::from_secs(5);

/// A rail call that runs when the process stops, and the writing of its outcome, take less.
const DRAIN_MAX: Duration = Duration::from_secs(15);

/// Serves until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    chassis::config::check(&config)?;
    let db = Db::open(&config.database, config.mode, &SCHEMA, &clock, &shutdown).await?;
    release_leases(&db)
        .await
        .context("old leases are still held")?;
    let rails = Rails::new(&config.rails).context("the rails are not usable")?;
    let reconcilers = rails.each().map(|rail| Reconciler::new(rail, &clock));
    let reconcilers: Vec<_> = reconcilers.collect();
    let relay = clock.worker("charges: relay");
    let alarms = Alarms::of(&reconcilers);
    let service = Arc::new(service(&config, (&db, &clock), rails, alarms, &relay)?);
    let loops = Tasks::new();
    for reconciler in reconcilers {
        loops.spawn(reconciler.run(Arc::clone(&service), shutdown.clone()));
    }
    start_loops(&loops, &service, relay, &shutdown);
    if sockets.admin.is_some() {
        // Read by whoever scrapes the admin address, and by nobody else.
        loops.spawn(upkeep::measure(Arc::clone(&service), shutdown.clone()));
    }

    let grpc = Grpc(Arc::clone(&service));
    let routes = Routes::new(ChargesServer::new(grpc.clone()))
        .add_service(ChargeOperationsServer::new(grpc));
    let serving = Serving {
        sockets,
        tls: config.tls,
        reflection: config.listen.reflection(config.mode),
        readiness: db.readiness(&clock),
        clock,
        shutdown: shutdown.clone(),
    };
    let served = chassis::grpc::serve(routes, serving).await;
    // Also where serving failed.
    shutdown.begin();
    service.tasks.drain(DRAIN_MAX).await;
    loops.drain(DRAIN_MAX).await;
    db.close().await;
    served
}

fn service(
    config: &Config,
    (db, clock): (&Db, &Clock),
    rails: Rails,
    reconcile_alarms: Alarms,
    relay: &Worker,
) -> anyhow::Result<Service> {
    let connect = |url: &str| connect(url, &config.tls, SERVICE_CALL_MAX);
    let sessions = connect(&config.sessions_url).context("SESSIONS_URL")?;
    let webhooks = connect(&config.webhooks_url).context("WEBHOOKS_URL")?;
    let teller = Teller::new(db, sessions, webhooks);
    let (tasks, telling) = (Tasks::new(), teller.clone());
    let hand_on = move |row| telling.clone().hand_on(row);
    Ok(Service {
        db: db.clone(),
        clock: clock.clone(),
        rails,
        settings: config.settings(),
        teller,
        relay: Relay::new(db, clock, relay, &tasks, config.lease, hand_on),
        reconcile_alarms,
        tasks,
    })
}

fn start_loops(loops: &Tasks, service: &Arc<Service>, relay: Worker, shutdown: &Shutdown) {
    let sweeper = service.clock.worker("charges: sweeper");
    loops.spawn(service.relay.clone().run(relay, shutdown.clone()));
    loops.spawn(upkeep::sweep(
        Arc::clone(service),
        sweeper,
        shutdown.clone(),
    ));
    for duty in books::DUTIES {
        loops.spawn(books::keep(duty, Arc::clone(service), shutdown.clone()));
    }
}

/// On SQLite no other process can hold a lease, so all of them are of a process that died.
async fn release_leases(db: &Db) -> db::Result<()> {
    if db.is_postgres() {
        return Ok(());
    }
    outbox::release_leases(db).await?;
    let mut tx = db.begin().await?;
    store::charges::release_all(&mut tx).await?;
    tx.commit().await
}
