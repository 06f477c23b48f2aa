//! gRPC in both directions: the one way to serve, the one way to call, and how errors travel.

use std::{future::Future, io::ErrorKind, net::SocketAddr, time::Duration};

use anyhow::{Context as _, anyhow};
use futures::StreamExt as _;
use tokio::net::TcpListener;
use tonic::{
    service::Routes,
    transport::{Server, server::TcpIncoming},
};
use tonic_health::server::health_reporter;

use crate::{
    admin::{self, Readiness},
    clock::Clock,
    config::{Listen, SettingsError, Tls},
    http::DRAIN_MAX,
    shutdown::Shutdown,
};

mod call;
mod client;
mod deadline;
mod linger;
mod status;

pub use call::CallInHand;
pub use client::{Channel, Connection, Replicas, check_url, connect, is_serving};
pub use status::{
    Reason, invalid, metadata, reason, retry_delay, status, status_after, status_with, violations,
};

/// Concurrent calls on one connection. Most of them may be calls that wait ([`CallInHand::wait`]).
const STREAMS_MAX: u32 = 16_384;

/// A connection this old is asked to close, so that clients spread over new replicas.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);

/// How often a connection is pinged, to notice clients that vanished silently.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// How long accepting pauses when the system has no sockets left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A service's bound sockets.
#[derive(Debug)]
pub struct Sockets {
    pub grpc: TcpListener,
    pub admin: Option<TcpListener>,
}

impl Sockets {
    pub async fn bind(listen: &Listen) -> anyhow::Result<Self> {
        let grpc = bind("LISTEN", listen.listen).await?;
        let admin = bind_admin(listen.admin_listen).await?;
        Ok(Self { grpc, admin })
    }
}

/// Binds the address that `variable` gives.
///
/// # Errors
/// [`SettingsError`], except if the address is in use: the other process may just be ending.
pub async fn bind(variable: &'static str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        if error.kind() == ErrorKind::AddrInUse {
            return anyhow!("{variable}={address} is in use by another process");
        }
        let wants = "an address of this machine that the process may listen on";
        SettingsError::new(format!(
            "{variable} got \"{address}\"; wants {wants} ({error})"
        ))
        .into()
    })
}

/// Binds the admin address, if there is one.
pub async fn bind_admin(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    match address {
        Some(address) => bind("ADMIN_LISTEN", address).await.map(Some),
        None => Ok(None),
    }
}

/// What [`serve`] needs besides the routes.
pub struct ServerSetup {
    pub sockets: Sockets,
    pub tls: Tls,
    /// Whether to offer gRPC reflection.
    pub reflection: bool,
    pub readiness: Readiness,
    pub clock: Clock,
    pub shutdown: Shutdown,
}

/// Serves until the process stops, then drains, for [`DRAIN_MAX`] at most.
///
/// Each call runs in a span, is counted, keeps time travel waiting, and honours its caller's
/// deadline. The caller sees a panic as INTERNAL. Also serves health, reflection if wanted, and
/// the admin address.
pub async fn serve(routes: Routes, serving: ServerSetup) -> anyhow::Result<()> {
    let ServerSetup {
        sockets,
        tls,
        reflection,
        readiness,
        clock,
        shutdown,
    } = serving;
    let (health, health_service) = health_reporter();
    let mut routes = routes.add_service(health_service);
    if reflection {
        let service = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .build_v1()?;
        routes = routes.add_service(service);
    }
    // No grace period after the age: with one, tonic 0.14 would cut the connection off in the
    // middle of its calls instead of asking it to close. Calls have deadlines, so an old
    // connection does end.
    let mut server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .max_connection_age(CONNECTION_AGE_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE));
    if let Some(config) = tls.server()? {
        server = server
            .tls_config(config)
            .context("TLS_CERT, TLS_KEY or TLS_CA is not usable")?;
    }
    let stopping = {
        let (shutdown, health) = (shutdown.clone(), health);
        async move {
            shutdown.wait().await;
            // Load balancers stop choosing this process.
            health
                .set_service_status("", tonic_health::ServingStatus::NotServing)
                .await;
        }
    };
    let incoming = TcpIncoming::from(sockets.grpc)
        .with_nodelay(Some(true))
        .then(async |accepted| {
            if accepted.is_err() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            accepted.map(linger::Linger::new)
        });
    let grpc = server
        .layer(call::layer(clock))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, stopping);
    let grpc = async {
        until_drained(grpc, &shutdown)
            .await
            .context("the gRPC server failed")
    };
    admin::beside(grpc, sockets.admin, readiness, shutdown.clone()).await
}

/// Waits for `serving`, but for at most [`DRAIN_MAX`] once the process stops: a silent connection
/// would hold up the drain for ever.
async fn until_drained<T: Default, E>(
    serving: impl Future<Output = Result<T, E>>,
    shutdown: &Shutdown,
) -> Result<T, E> {
    let too_late = async {
        shutdown.wait().await;
        tokio::time::sleep(DRAIN_MAX).await;
    };
    tokio::select! {
        served = serving => served,
        () = too_late => {
            tracing::warn!("connections did not end before the deadline");
            Ok(T::default())
        }
    }
}
