//! Who a merchant is: verification and API keys.
//!
//! Owns the database `merchants`. Promises: a key's secret is shown once and stored nowhere, only
//! its SHA-256; what is revoked or changed here holds for the very next [`Authenticate`] call.
//!
//! [`Authenticate`]: proto::merchants::merchants_server::Merchants::authenticate

pub mod config;
pub mod error;
pub mod grpc;
pub mod merchant;
pub mod service;
mod store;

use chassis::{
    clock::Clock,
    grpc::{Serving, Sockets},
    shutdown::Shutdown,
};
use db::{Db, Schema};
use proto::merchants::merchants_server::MerchantsServer;
use tonic::service::Routes;

use config::Config;
use service::Service;

/// What `migrate` applies, and serving needs.
pub static SCHEMA: Schema = Schema {
    migrations: sqlx::migrate!(),
};

/// Serves until `shutdown`.
pub async fn serve(
    config: Config,
    sockets: Sockets,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let db = Db::open(&config.database, config.mode, &SCHEMA, &clock, &shutdown).await?;
    let service = Service {
        db: db.clone(),
        clock: clock.clone(),
    };
    let routes = Routes::new(MerchantsServer::new(service));
    let serving = Serving {
        sockets,
        tls: config.tls,
        reflection: config.listen.reflection(config.mode),
        readiness: db.readiness(&clock),
        clock,
        shutdown,
    };
    chassis::grpc::serve(routes, serving).await?;
    db.close().await;
    Ok(())
}
