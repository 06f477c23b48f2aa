//! Payment sessions, their transactions as shown, expiry, and the customer directory.
//!
//! Owns the database `sessions`. Promises:
//! - One idempotency key creates one session.
//! - A session has one charge in flight at most, and none once it has ended.
//! - What is shown of a charge never goes back to an older state; a settled charge stays settled.
//! - A session that ends unpaid gets exactly one event. It does not expire while a charge is in
//!   flight.
//! - A payment counts once for its customer; two customers are never merged.
//! - Lists are newest first, and what is added or changes while they are read moves nothing in them.

mod change;
pub mod config;
mod contention;
mod creation;
mod customer;
mod directory;
mod error;
mod expiry_event;
mod fingerprint;
mod grpc;
mod lists;
mod reading;
mod recording;
mod report;
mod service;
mod session;
mod store;
mod sweeper;
mod transaction;

use std::sync::Arc;

use anyhow::Context as _;
use chassis::{
    clock::Clock,
    grpc::{
        Caller::{ChargesSvc, Gateway},
        Door, Sockets, connect,
    },
    shutdown::Shutdown,
};
use db::{Frame, GroupCommit, Relay, Schema, Searches, outbox};
use proto::sessions::{
    checkout_sessions_server::CheckoutSessionsServer,
    session_operations_server::SessionOperationsServer, sessions_server::SessionsServer,
};

use config::Config;
use expiry_event::PUBLISH_MAX;
use grpc::Grpc;
use service::Service;
use sweeper::Sweeper;

/// The schema that `migrate` applies and serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
    release_leases: &[outbox::RELEASE_LEASES],
};

/// Serves, expires and relays until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let mut frame = Frame::open(&config, &config.service, &SCHEMA, clock, shutdown).await?;
    let (db, clock) = (frame.db.clone(), frame.clock.clone());
    let webhooks = connect(&config.webhooks_url, &config.service.tls, PUBLISH_MAX)
        .context("WEBHOOKS_URL is not usable")?;

    let relaying = clock.worker("expiry events");
    let relayed = db.clone();
    let publish =
        move |row, session| expiry_event::publish(relayed.clone(), webhooks.clone(), row, session);
    let relay = Relay::new(&db, &clock, &relaying, &frame.tasks, config.lease, publish);
    frame.work(relaying, relay.clone());

    let sweeping = clock.worker("session expiry");
    let wake = sweeping.alarm();
    let sweeper = Sweeper {
        db: db.clone(),
        clock: clock.clone(),
        relay,
    };
    frame.work(sweeping, sweeper);
    if sockets.admin.is_some() {
        frame.show_oldest("sessions_outbox_oldest_seconds", outbox::OLDEST);
        frame.show_oldest("sessions_to_expire_oldest_seconds", store::OLDEST_TO_EXPIRE);
    }

    let service = Service {
        creations: GroupCommit::new(&db, &frame.tasks),
        readings: GroupCommit::new(&db, &frame.tasks),
        recordings: GroupCommit::new(&db, &frame.tasks),
        searches: Searches::new(&frame.tasks),
        db,
        clock,
        session_lifetime: config.session_lifetime,
        wake,
    };
    let grpc = Arc::new(Grpc(service));
    let services = Door::default()
        .service(SessionsServer::from_arc(Arc::clone(&grpc)), &[Gateway])
        .method(
            "payments.sessions.v1.Sessions/RecordTransaction",
            &[ChargesSvc],
        )
        .service(grpc.batched().into_server(), &[Gateway, ChargesSvc])
        .service(
            CheckoutSessionsServer::from_arc(Arc::clone(&grpc)),
            &[Gateway],
        )
        .service(SessionOperationsServer::from_arc(grpc), &[ChargesSvc]);
    frame.serve(services, sockets).await
}
