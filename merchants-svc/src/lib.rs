//! Who a merchant is: verification and API keys.
//!
//! Owns the database `merchants`. Promises that a key's secret is shown once and stored nowhere,
//! only its SHA-256, and that whatever is revoked or changed here holds for the very next
//! [`Authenticate`] call.
//!
//! [`Authenticate`]: proto::merchants::merchants_server::Merchants::authenticate

#![expect(dead_code, reason = "the calls that use them follow")]

mod activity;
pub mod config;
mod error;
mod grpc;
mod mail;
mod merchant;
mod service;
mod store;

use chassis::{clock::Clock, grpc::Sockets, shutdown::Shutdown};
use db::{Frame, Schema};
use proto::merchants::merchants_server::MerchantsServer;
use tonic::service::Routes;

use config::Config;
use grpc::Grpc;
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
    let frame = Frame::open(&config, &config.service, &SCHEMA, clock, shutdown).await?;
    let service = Service {
        db: frame.db.clone(),
        clock: frame.clock.clone(),
        mode: config.service.mode,
    };
    let routes = Routes::new(MerchantsServer::new(Grpc(service)));
    frame.serve(routes, sockets).await
}
