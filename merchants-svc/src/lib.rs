//! Who a merchant is: verification and API keys.
//!
//! Owns the database `merchants`. Promises that a key's secret is shown once and stored nowhere,
//! only its SHA-256, and that whatever is revoked or changed here holds for the very next
//! [`Authenticate`] call.
//!
//! [`Authenticate`]: proto::merchants::merchants_server::Merchants::authenticate

#![expect(dead_code, reason = "the calls that use them follow")]

mod activity;
mod approvals;
mod business;
mod business_form;
pub mod config;
mod error;
mod grpc;
mod last_uses;
mod mail;
mod merchant;
mod service;
mod store;

use chassis::{clock::Clock, grpc::Sockets, shutdown::Shutdown};
use db::{Frame, Schema};
use proto::merchants::{
    business_reviews_server::BusinessReviewsServer, merchant_account_server::MerchantAccountServer,
    merchant_operations_server::MerchantOperationsServer, merchants_server::MerchantsServer,
};
use tonic::service::Routes;

use approvals::Approvals;
use config::Config;
use grpc::Grpc;
use last_uses::{LastUses, WriteLastUses};
use service::Service;

/// The schema that `migrate` applies and that serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
    release_leases: &[store::mails::RELEASE_LEASES],
};

/// Serves until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let mut frame = Frame::open(&config, &config.service, &SCHEMA, clock, shutdown).await?;
    let approvals_worker = frame.clock.worker(approvals::WORK);
    let service = Service {
        db: frame.db.clone(),
        clock: frame.clock.clone(),
        mode: config.service.mode,
        last_uses: LastUses::default(),
        approvals: approvals_worker.alarm(),
    };
    let last_uses = WriteLastUses {
        db: frame.db.clone(),
        clock: frame.clock.clone(),
        uses: service.last_uses.clone(),
        rests_until: frame.clock.now(),
    };
    frame.work(frame.clock.worker(last_uses::WORK), last_uses);
    frame.work(approvals_worker, Approvals(service.clone()));
    let routes = Routes::new(MerchantsServer::new(Grpc(service.clone())))
        .add_service(MerchantOperationsServer::new(Grpc(service.clone())))
        .add_service(MerchantAccountServer::new(Grpc(service.clone())))
        .add_service(BusinessReviewsServer::new(Grpc(service)));
    frame.serve(routes, sockets).await
}
