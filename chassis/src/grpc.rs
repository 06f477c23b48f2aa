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
    config::{Listen, OperatorsListen, SettingsError, Tls},
    http::DRAIN_MAX,
    shutdown::Shutdown,
};

mod batch;
mod call;
mod client;
mod deadline;
mod door;
mod linger;
mod origin;
mod status;

use door::GuardLayer;

pub use batch::{BatchedCalls, BatchedMethods};
pub use call::CallInHand;
pub use client::{Channel, Connection, Replicas, check_url, connect, is_serving};
pub use door::{Caller, Door};
pub use status::{
    Reason, invalid, metadata, moved_to_operators, reason, retry_delay, status, status_after,
    status_with, violations,
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
    /// Where it listens to operators, if anybody.
    pub operators: Option<TcpListener>,
    pub admin: Option<TcpListener>,
}

impl Sockets {
    pub async fn bind(listen: &Listen) -> anyhow::Result<Self> {
        let grpc = bind("LISTEN", listen.listen).await?;
        let admin = bind_admin(listen.admin_listen).await?;
        Ok(Self {
            grpc,
            operators: None,
            admin,
        })
    }

    /// Binds the operators' address, too.
    pub async fn bind_for_operators(
        listen: &Listen,
        operators: &OperatorsListen,
    ) -> anyhow::Result<Self> {
        let sockets = Self::bind(listen).await?;
        let operators = match operators.operators_listen {
            Some(address) => Some(bind("OPERATORS_LISTEN", address).await?),
            None => None,
        };
        Ok(Self {
            operators,
            ..sockets
        })
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

/// What a process serves.
#[derive(Clone, Debug, Default)]
pub struct Doors {
    /// The services for merchants, payers and other services.
    pub services: Door,
    /// The services for operators alone. They are served at a socket of their own, or not at all.
    pub operators: Door,
}

impl From<Door> for Doors {
    /// Nothing is for operators alone.
    fn from(services: Door) -> Self {
        Self {
            services,
            ..Self::default()
        }
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
/// deadline. The caller sees a panic as INTERNAL. With mutual TLS, a service answers its callers
/// alone ([`Door`]). Also serves health, reflection if wanted, and the admin address. If one of the
/// sockets fails, the process stops, and what the other has in hand is finished.
pub async fn serve(doors: impl Into<Doors>, serving: ServerSetup) -> anyhow::Result<()> {
    let ServerSetup {
        sockets,
        tls,
        reflection,
        readiness,
        clock,
        shutdown,
    } = serving;
    let server = server(&tls)?;
    let Doors {
        services,
        operators,
    } = doors.into();
    let open = async |door: Door, socket| {
        let guard = door.guard(tls.is_mutual());
        let routes = described(door.routes, reflection)?;
        let at = (socket, server.clone());
        // On the heap, because it is large and there are two.
        let serving = Box::pin(serve_at(at, routes, guard, &clock, &shutdown));
        until_drained(serving, &shutdown)
            .await
            .context("the gRPC server failed")
    };
    let both = async {
        let for_operators = async {
            match sockets.operators {
                Some(socket) => open(operators, socket).await,
                None => Ok(()),
            }
        };
        let (services, operators) = tokio::join!(
            shutdown.begin_on_failure(open(services, sockets.grpc)),
            shutdown.begin_on_failure(for_operators),
        );
        services.and(operators)
    };
    admin::beside(both, sockets.admin, readiness, shutdown.clone()).await
}

fn server(tls: &Tls) -> anyhow::Result<Server> {
    // No grace period after the age: with one, tonic 0.14 would cut the connection off in the
    // middle of its calls instead of asking it to close. Calls have deadlines, so an old
    // connection does end.
    let server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .max_connection_age(CONNECTION_AGE_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE));
    let Some(config) = tls.server()? else {
        return Ok(server);
    };
    server
        .tls_config(config)
        .context("TLS_CERT, TLS_KEY or TLS_CA is not usable")
}

/// These routes, with reflection if it is wanted.
fn described(routes: Routes, reflection: bool) -> anyhow::Result<Routes> {
    if !reflection {
        return Ok(routes);
    }
    let service = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .build_v1()?;
    Ok(routes.add_service(service))
}

/// Serves at one socket until the process stops and the calls there have ended.
async fn serve_at(
    (socket, server): (TcpListener, Server),
    routes: Routes,
    guard: GuardLayer,
    clock: &Clock,
    shutdown: &Shutdown,
) -> Result<(), tonic::transport::Error> {
    let (health, health_service) = health_reporter();
    let stopping = async {
        shutdown.wait().await;
        // Load balancers stop choosing this process.
        health
            .set_service_status("", tonic_health::ServingStatus::NotServing)
            .await;
    };
    let incoming = TcpIncoming::from(socket)
        .with_nodelay(Some(true))
        .then(async |accepted| {
            if accepted.is_err() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            accepted.map(linger::Linger::new)
        });
    server
        .layer(call::layer(clock.clone()))
        .layer(guard)
        .add_routes(routes.add_service(health_service))
        .serve_with_incoming_shutdown(incoming, stopping)
        .await
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
