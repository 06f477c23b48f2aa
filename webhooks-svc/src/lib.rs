//! Webhook endpoints, events, deliveries and attempts (spec §6).
//!
//! Owns the database `webhooks`. Promises: an event that [`Publish`] acknowledged is delivered at
//! least once, or its delivery is shown as exhausted after the whole schedule; its body never
//! changes by a byte; an endpoint that hangs delays no other; only public addresses are called; the
//! merchant is mailed when deliveries begin to be exhausted.
//!
//! [`Publish`]: proto::webhooks::webhooks_server::Webhooks::publish

mod attempts;
pub mod config;
mod conformance;
mod conformance_run;
pub mod delivery;
mod doctor;
mod due;
pub mod endpoint;
mod error;
pub mod event;
mod exhaustion;
mod feed;
mod grpc;
pub mod guard;
mod kept_hosts;
mod listing;
mod publication;
mod queues;
mod replay;
mod replaying;
pub mod secret;
pub mod send;
mod service;
pub mod signature;
mod store;
mod trial;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use chassis::{
    clock::Clock,
    config::SettingsError,
    grpc::{
        Caller::{ChargesSvc, Gateway, Payctl, SessionsSvc},
        Door, Doors, Sockets, connect,
    },
    sealed::Keyring,
    shutdown::Shutdown,
};
use db::{Db, Frame, GroupCommit, Schema, Searches};
use proto::webhooks::{
    merchant_events_server::MerchantEventsServer, merchant_webhooks_server::MerchantWebhooksServer,
    webhook_operations_server::WebhookOperationsServer, webhooks_server::WebhooksServer,
};
use tokio::sync::Semaphore;
use uuid::Uuid;

use attempts::{AttemptRunner, Limits};
use config::Config;
use delivery::Schedule;
use due::DueAttempts;
use exhaustion::Telling;
use feed::{Numbering, Waits};
use grpc::Grpc;
use guard::Guard;
use queues::Queues;
use replaying::Replaying;
use send::Sender;
use service::Service;

/// Longest wait for merchants-svc to take what it is told.
const TELLING_MAX: Duration = Duration::from_secs(5);

/// The schema that `migrate` applies and serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
    release_leases: &[
        store::attempts::RELEASE_LEASES,
        store::trials::RELEASE_LEASES,
    ],
};

/// Serves and delivers until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stopping = shutdown.clone();
    let mut frame = Frame::open(&config, &config.service, &SCHEMA, clock, shutdown).await?;
    let (db, clock, tasks) = (frame.db.clone(), frame.clock.clone(), frame.tasks.clone());
    let keyring = Keyring::new("WEBHOOK_SECRET_KEY", &config.webhook_secret_key)?;
    check_keys(&db, &keyring).await?;
    let guard = Guard::new(
        config.webhook_allow_http,
        config.webhook_allow_nets.clone(),
        guard::system_lookup(),
    );
    if config.webhook_allow_http || !config.webhook_allow_nets.is_empty() {
        tracing::warn!(?guard, "webhooks may go where they must not in production");
    }

    let worker = clock.worker(attempts::WORK);
    let per_endpoint = usize::try_from(config.webhook_endpoint_concurrency)?;
    let limits = Limits {
        running_per_endpoint_max: per_endpoint,
        lease: config.lease,
    };
    let cut_off = CutOff::default();
    let attempts = Arc::new(AttemptRunner {
        clock: clock.clone(),
        keyring: keyring.clone(),
        sender: Sender::new(guard.clone(), config.webhook_timeout)?,
        schedule: Schedule::new(config.webhook_retry_schedule.clone()),
        limits,
        ends: GroupCommit::new(&db, &tasks),
        queues: Queues::new(
            config.webhook_concurrency,
            per_endpoint,
            &clock,
            worker.alarm(),
        ),
        tasks: tasks.clone(),
        cut_off: cut_off.0.clone(),
    });
    frame.work(worker, DueAttempts::new(db.clone(), attempts.clone()));

    begin_telling(&mut frame, &config)?;
    let waits = begin_feed(&mut frame, config.webhook_feed_waits, &stopping);
    let replays = clock.worker(replaying::WORK);
    let service = Service {
        waits,
        searches: Searches::new(&tasks),
        tasks: tasks.clone(),
        replays: replays.alarm(),
        publications: GroupCommit::new(&db, &tasks),
        db,
        clock,
        keyring,
        guard,
        lookups: Arc::new(Semaphore::new(service::LOOKUPS_MAX)),
        rotation_overlap: config.webhook_rotation_overlap,
        attempts,
    };
    let replaying = Replaying {
        db: service.db.clone(),
        clock: service.clock.clone(),
        queues: service.attempts.queues.clone(),
    };
    frame.work(replays, replaying);
    if sockets.admin.is_some() {
        let oldest = store::attempts::OLDEST_DUE;
        frame.show_oldest("webhook_deliveries_due_oldest_seconds", oldest);
    }
    frame.serve(doors(service), sockets).await
}

/// What is served, each with who may call it.
fn doors(service: Service) -> Doors {
    let services = Door::default()
        .service(
            WebhooksServer::new(Grpc(service.clone())),
            &[ChargesSvc, SessionsSvc],
        )
        .service(grpc::batched(&service).into_server(), &[ChargesSvc])
        .service(MerchantEventsServer::new(Grpc(service.clone())), &[Gateway])
        .service(
            MerchantWebhooksServer::new(Grpc(service.clone())),
            &[Gateway],
        );
    let operators = Door::default().service(WebhookOperationsServer::new(Grpc(service)), &[Payctl]);
    Doors {
        services,
        operators,
    }
}

/// Tells merchants whose endpoints no longer take events.
fn begin_telling(frame: &mut Frame, config: &Config) -> anyhow::Result<()> {
    let merchants = connect(&config.merchants_url, &config.service.tls, TELLING_MAX);
    let merchants = merchants.context("MERCHANTS_URL")?;
    let worker = frame.clock.worker(exhaustion::WORK);
    let telling = Telling::new(frame.db.clone(), frame.clock.clone(), merchants);
    frame.work(worker, telling);
    Ok(())
}

/// Numbers events from now on, and tells those who wait for them.
fn begin_feed(frame: &mut Frame, places: usize, stopping: &Shutdown) -> Waits {
    let worker = frame.clock.worker(feed::WORK);
    let waits = Waits::new(places, &frame.clock, worker.alarm(), stopping);
    let numbering = Numbering {
        db: frame.db.clone(),
        clock: frame.clock.clone(),
        waits: waits.clone(),
    };
    frame.work(worker, numbering);
    frame.beside(waits.clone().watch(frame.db.clone()));
    waits
}

/// Cuts off what is still running once serving has ended, or was itself cut off.
#[derive(Default)]
struct CutOff(Shutdown);

impl Drop for CutOff {
    fn drop(&mut self) {
        self.0.begin();
    }
}

/// Re-encrypts every signing secret with the first key.
pub async fn reseal(config: &Config) -> anyhow::Result<()> {
    let service = &config.service;
    let keyring = Keyring::new("WEBHOOK_SECRET_KEY", &config.webhook_secret_key)?;
    let (clock, shutdown) = (Clock::system(), Shutdown::new());
    let opening = Db::open(&service.database, service.mode, &SCHEMA, &clock, &shutdown);
    let db = opening.await?;
    let mut last = Uuid::nil();
    loop {
        let found = store::list_endpoints_after(&mut db.read().await?, last).await?;
        let Some(end) = found.last() else {
            db.close().await;
            return Ok(());
        };
        last = end.endpoint_id.uuid();
        for endpoint in found {
            let mut tx = db.begin().await?;
            if let Some(mut endpoint) = store::lock_endpoint(&mut tx, endpoint.merchant_id).await? {
                endpoint.reseal(&keyring)?;
                store::update_secrets(&mut tx, &endpoint).await?;
            }
            tx.commit().await?;
        }
    }
}

/// Refuses to start without a key that stored secrets need: their deliveries would fail.
async fn check_keys(db: &Db, keyring: &Keyring) -> anyhow::Result<()> {
    for key_id in store::list_key_ids(&mut db.read().await?).await? {
        if !keyring.has(&key_id) {
            let why = format!("the key {key_id}, with which signing secrets are encrypted");
            return Err(SettingsError::new(format!("WEBHOOK_SECRET_KEY lacks {why}")).into());
        }
    }
    Ok(())
}
