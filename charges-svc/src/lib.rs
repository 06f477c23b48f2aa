//! Charges, each a single attempt to debit a payer's wallet; disbursements, each a single attempt to
//! credit an account outside; and the ledger of both.
//!
//! Owns the database `charges`. Promises:
//!
//! - A charge is recorded, with every identifier that it will ever have, before its rail is
//!   called. The payment request goes out once, and a second time only as `resend.rs` says.
//! - Its outcome is the rail's word, or an operator's. While nobody knows it, the charge stays
//!   INITIATED and the rail is queried.
//! - What becomes true together (state, postings, event, key) is committed together. SETTLED and
//!   FAILED never change; money that does not fit goes to suspense, with a case for an operator.
//! - A disbursement is recorded with what is reserved for it, and never overdraws a merchant's
//!   balance. It goes out under one reference, and what may have gone out is never taken for failed.
//! - Whoever sets where a merchant's payouts go, the merchant is told by mail.
//! - sessions-svc is told first of whatever is shown differently, and webhooks-svc only after that.

mod admission;
mod alarms;
pub mod asked_by;
mod balance_line;
#[doc(hidden)]
pub mod books;
mod budget;
mod callback;
pub mod case;
pub mod charge;
mod compare;
pub mod config;
mod create;
mod daily;
#[doc(hidden)]
pub mod days;
mod disburse;
pub mod disbursement;
mod early;
mod error;
mod figures;
mod float_move;
mod grpc;
mod hint;
mod hours;
mod key_look;
pub mod ledger;
mod line_id;
mod lists;
mod message;
mod notices;
mod operate;
mod otp;
mod payout;
pub mod payout_account;
mod payout_fees;
mod payout_setting;
mod rail_call;
mod rail_report;
mod reading;
mod reconcile;
mod record;
mod refund;
mod reply;
mod resend;
mod reserve;
pub mod schedule;
mod seal;
mod service;
mod statement;
mod statement_key;
mod statements;
mod steps;
#[doc(hidden)]
pub mod store;
mod tell;
mod timeline;
mod treasury;
mod turns;
mod upkeep;
mod verdict;
mod wallet;
mod wallets;
mod watch;
mod weather;
mod weather_look;

use std::sync::Arc;

use anyhow::Context as _;
use chassis::{
    clock::{Clock, Worker},
    grpc::{
        Caller::{Gateway, Payctl},
        Door, Doors, Sockets, connect,
    },
    shutdown::Shutdown,
};
use db::{Frame, GroupCommit, Relay, Schema, Searches, outbox};
use proto::charges::{
    charge_operations_server::ChargeOperationsServer, charges_server::ChargesServer,
    disbursement_operations_server::DisbursementOperationsServer,
    disbursements_server::DisbursementsServer, merchant_figures_server::MerchantFiguresServer,
    payout_accounts_server::PayoutAccountsServer, rail_reports_server::RailReportsServer,
    statement_operations_server::StatementOperationsServer, statements_server::StatementsServer,
};
use tokio::sync::Mutex;

use admission::Admission;
use alarms::Alarms;
use books::Bookkeeper;
use config::Config;
use daily::DailySettlement;
use disburse::Disburser;
use grpc::Grpc;
use hours::HourCounter;
use notices::NoticeTeller;
use rails::Rails;
use reconcile::Reconciler;
use service::Service;
use steps::StepWriter;
use store::blocks::Duty;
use tell::{SERVICE_CALL_MAX, Teller};
use turns::Turns;
use upkeep::Sweeper;
use wallets::WalletWork;
use watch::Watches;

/// The schema that `migrate` applies and that serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
    release_leases: &[
        outbox::RELEASE_LEASES,
        store::charges::RELEASE_LEASES,
        store::disbursements::RELEASE_LEASES,
        store::works::RELEASE_LEASES,
    ],
};

/// Serves until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let mut frame = Frame::open(&config, &config.service, &SCHEMA, clock, shutdown.clone()).await?;
    let rails = Rails::new(&config.rails).context("the rails are not usable")?;
    let names = rails.each().map(|rail| rail.name);
    let asking: Vec<_> = names
        .map(|rail| (rail, frame.clock.worker(rail.code())))
        .collect();
    let alarms = Alarms::of(&asking);
    let paying: Vec<_> = rails
        .each()
        .map(|rail| (rail.name, frame.clock.worker(disburse::name(rail.name))))
        .collect();
    let disburse_alarms = Alarms::of(&paying);
    let relaying = frame.clock.worker("charges: relay");
    let service = Arc::new(service(
        &frame,
        &config,
        rails,
        (alarms, disburse_alarms, Watches::new(&frame.db, &shutdown)),
        &relaying,
    )?);

    frame.work(relaying, service.relay.clone());
    for ((_, worker), rail) in asking.into_iter().zip(service.rails.each()) {
        frame.work(worker, Reconciler::new(rail, &service));
    }
    for ((_, worker), rail) in paying.into_iter().zip(service.rails.each()) {
        frame.work(worker, Disburser::new(rail, &service));
    }
    let settling = frame.clock.worker("charges: daily settlement");
    frame.work(settling, DailySettlement::new(&service));
    let sweeping = frame.clock.worker("charges: sweeper");
    frame.work(sweeping, Sweeper::new(&service));
    let adding = frame.clock.worker("charges: wallets");
    frame.work(adding, WalletWork::new(&service));
    let telling = frame.clock.worker("charges: notices");
    frame.work(telling, NoticeTeller::new(&service));
    let counting = frame.clock.worker("charges: hours");
    frame.work(counting, HourCounter::new(&service));
    for duty in Duty::ALL {
        let worker = frame.clock.worker(books::name(*duty));
        let keeper = Bookkeeper::new(*duty, &frame.db, &frame.clock, &shutdown);
        frame.work(worker, keeper);
    }
    frame.beside(service.watches.clone().look_on());
    let watching = Arc::clone(&service);
    frame.beside(async move {
        watching
            .admission
            .watch(&watching.db, &watching.clock)
            .await
    });
    if sockets.admin.is_some() {
        // Only whoever scrapes the admin address reads these.
        frame.beside(upkeep::measure(Arc::clone(&service)));
        frame.show_oldest("charges_outbox_oldest_seconds", outbox::OLDEST);
    }

    frame.serve(doors(Grpc(service)), sockets).await
}

/// What is served, each with who may call it.
fn doors(grpc: Grpc) -> Doors {
    let services = Door::default()
        .service(ChargesServer::new(grpc.clone()), &[Gateway])
        .service(grpc.batched().into_server(), &[Gateway])
        .service(DisbursementsServer::new(grpc.clone()), &[Gateway])
        .service(PayoutAccountsServer::new(grpc.clone()), &[Gateway])
        .service(StatementsServer::new(grpc.clone()), &[Gateway])
        .service(MerchantFiguresServer::new(grpc.clone()), &[Gateway]);
    let operators = Door::default()
        .service(ChargeOperationsServer::new(grpc.clone()), &[Payctl])
        .service(DisbursementOperationsServer::new(grpc.clone()), &[Payctl])
        .service(StatementOperationsServer::new(grpc.clone()), &[Payctl])
        .service(RailReportsServer::new(grpc), &[Payctl]);
    Doors {
        services,
        operators,
    }
}

fn service(
    frame: &Frame,
    config: &Config,
    rails: Rails,
    (reconcile_alarms, disburse_alarms, watches): (Alarms, Alarms, Watches),
    relaying: &Worker,
) -> anyhow::Result<Service> {
    let (db, clock, tasks) = (&frame.db, &frame.clock, &frame.tasks);
    let connect = |url: &str| connect(url, &config.service.tls, SERVICE_CALL_MAX);
    let sessions = connect(&config.sessions_url).context("SESSIONS_URL")?;
    let webhooks = connect(&config.webhooks_url).context("WEBHOOKS_URL")?;
    let merchants = connect(&config.merchants_url).context("MERCHANTS_URL")?;
    let teller = Teller::new(db, sessions, webhooks, merchants);
    let telling = teller.clone();
    let hand_on = move |row, known| telling.clone().hand_on(row, known);
    let turns = Turns::new(&rails, clock);
    Ok(Service {
        admission: Admission::new(&rails, &turns),
        turns,
        awaited: Arc::default(),
        watches,
        db: db.clone(),
        clock: clock.clone(),
        rails,
        settings: config.settings(),
        statement_keys: config.statement_keys()?.map(Arc::new),
        teller,
        relay: Relay::new(db, clock, relaying, tasks, config.lease, hand_on),
        reconcile_alarms,
        disburse_alarms,
        readings: GroupCommit::new(db, tasks),
        recordings: GroupCommit::new(db, tasks),
        hints: GroupCommit::new(db, tasks),
        key_looks: GroupCommit::new(db, tasks),
        steps: StepWriter::new(db, tasks),
        searches: Searches::new(tasks),
        weather: Mutex::default(),
        tasks: tasks.clone(),
    })
}
