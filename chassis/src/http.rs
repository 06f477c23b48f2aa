//! HTTP in both directions: the accept loop for what we serve, and the client for what we call.
//!
//! The loop is our own because no ready-made one closes a connection on which nothing arrives, or
//! ends a drain that a half-sent header holds up.

mod arriving;
mod idle;
mod write_deadline;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{Router, body::Body, extract::ConnectInfo};
use bytes::{Bytes, BytesMut};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::{
    net::{listen, sockopt::set_socket_send_buffer_size},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower::ServiceExt as _;

pub use self::arriving::BodyTooSlow;
use self::{
    arriving::ArrivingBody,
    idle::{Connection, IdleConnections},
    write_deadline::WriteDeadline,
};
use crate::{
    error_chain::chain,
    shutdown::{Shutdown, Tasks},
    tls,
};

/// Longest that a process drains requests before it ends regardless. Longer than a charge takes.
pub const DRAIN_MAX: Duration = Duration::from_secs(15);

/// How long accepting pauses when there is no socket, or no place, for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listen backlog, as far as the system allows it. Beyond it the kernel drops the SYN, and the
/// client retries after a second.
const BACKLOG: i32 = 4_096;

/// Send buffer of a connection; the system doubles it. Small, so that a client that does not read
/// costs little, and the progress of one that reads slowly shows.
const SEND_BUFFER_BYTES: usize = 32 * 1024;

/// Longest wait for a connection to another server.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How long an idle connection to another server is kept. Shorter than servers keep theirs: a
/// request on a connection that is just being closed has an unknown outcome.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// How much time and how many resources our clients may take.
#[derive(Clone)]
pub struct Limits {
    /// Until a request's head is complete, counted from the start of the connection or the
    /// previous request.
    pub head_max: Duration,
    /// Until its body is complete.
    pub body_max: Duration,
    /// While the client reads nothing of its answer.
    pub stalled_max: Duration,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Concurrent connections. One more evicts the connection that has been idle longest; if none
    /// has been idle for long, it waits.
    pub connections_max: usize,
    /// Of these, idle ones. One more evicts the oldest, unless none has been idle for long.
    pub waiting_max: usize,
    /// Of these, idle ones of one address. One more evicts the address's oldest.
    pub waiting_per_address_max: usize,
    /// The address that a peer's connections count towards; `None` for a proxy, which has many
    /// clients.
    pub counted_as: Arc<dyn Fn(IpAddr) -> Option<IpAddr> + Send + Sync>,
    /// How long a stopping process waits for running requests.
    pub drain_max: Duration,
}

impl Default for Limits {
    /// For servers that are not public: every peer is a client, and may have all connections.
    fn default() -> Self {
        Self {
            head_max: Duration::from_secs(10),
            body_max: Duration::from_secs(10),
            stalled_max: Duration::from_secs(30),
            head_bytes_max: 32 * 1024,
            connections_max: 10_000,
            waiting_max: usize::MAX,
            waiting_per_address_max: usize::MAX,
            counted_as: Arc::new(Some),
            drain_max: DRAIN_MAX,
        }
    }
}

/// Raises the limit of open files, of which each connection is one, as far as the system allows,
/// and returns it. The usual default, 1,024, is too low for a server.
pub fn raise_open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
    let open_files_max = if is_raised {
        limit.maximum
    } else {
        limit.current
    };
    usize::try_from(open_files_max.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
}

/// Serves until the process stops, then drains, for `limits.drain_max` at most. Handlers find the
/// client's address in `ConnectInfo<SocketAddr>`.
pub async fn serve(
    router: Router,
    listener: TcpListener,
    limits: Limits,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    listen(&listener, BACKLOG)?;
    let connections = Tasks::new();
    let drained = Shutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let idle = Arc::new(IdleConnections::new(
        limits.waiting_max,
        limits.waiting_per_address_max,
    ));
    while let Some((stream, peer, place)) = accept(&listener, &places, &idle, &shutdown).await {
        if let Err(error) = prepare(&stream) {
            tracing::debug!(error = %chain(&error), "the client has gone");
            continue;
        }
        let connection = Arc::new(idle.add((limits.counted_as)(peer.ip())));
        let client = (stream, peer, connection.clone());
        let serving = serve_connection(router.clone(), client, limits.clone(), shutdown.clone());
        let drained = drained.clone();
        connections.spawn(async move {
            tokio::select! {
                () = serving => {}
                () = connection.evicted() => {}
                () = drained.wait() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    connections.drain(limits.drain_max).await;
    // Cuts off the remaining connections.
    drained.begin();
    Ok(())
}

/// The next connection with its place; `None` once the process stops.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    idle: &IdleConnections,
    shutdown: &Shutdown,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let place = tokio::select! {
                    () = shutdown.wait() => return None,
                    place = place(places, idle) => place,
                };
                return Some((stream, peer, place));
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "a connection was not accepted");
                // The system may be out of sockets.
                idle.evict_oldest();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A place for a connection. If none is free, the connection that has been idle longest is
/// evicted.
async fn place(places: &Arc<Semaphore>, idle: &IdleConnections) -> OwnedSemaphorePermit {
    loop {
        if let Ok(place) = places.clone().try_acquire_owned() {
            return place;
        }
        idle.evict_oldest();
        let place = tokio::time::timeout(ACCEPT_PAUSE, places.clone().acquire_owned());
        if let Ok(Ok(place)) = place.await {
            return place;
        }
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES)?;
    Ok(())
}

async fn serve_connection(
    router: Router,
    (stream, peer, connection): (TcpStream, SocketAddr, Arc<Connection>),
    limits: Limits,
    shutdown: Shutdown,
) {
    let answer = service_fn(move |request: http::Request<Incoming>| {
        let (router, connection) = (router.clone(), connection.clone());
        async move {
            if !connection.mark_active() {
                // The connection is about to be closed.
                std::future::pending::<()>().await;
            }
            let arriving = |body| ArrivingBody::new(body, limits.body_max, connection.clone());
            let mut request = request.map(|body| Body::new(arriving(body)));
            request.extensions_mut().insert(ConnectInfo(peer));
            let Ok(response) = router.oneshot(request).await;
            connection.mark_idle();
            Ok::<_, Infallible>(response)
        }
    });
    let stream = WriteDeadline::new(stream, limits.stalled_max);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_max)
        .max_buf_size(limits.head_bytes_max)
        .serve_connection(TokioIo::new(stream), answer);
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = shutdown.wait() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %chain(&error), "a connection ended early");
    }
}

/// A client that follows no redirect, uses no proxy, keeps no cookie, sends nothing twice, and
/// waits at most `timeout` for a whole answer.
pub fn client(timeout: Duration) -> anyhow::Result<reqwest::Client> {
    client_builder(timeout)
        .build()
        .context("the HTTP client cannot be made")
}

/// Like [`client`], for callers that add to it.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that makes clients"
)]
pub fn client_builder(timeout: Duration) -> reqwest::ClientBuilder {
    tls::install();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .retry(reqwest::retry::never())
        .pool_idle_timeout(IDLE_MAX)
        .connect_timeout(CONNECT_MAX.min(timeout))
        .timeout(timeout)
        .user_agent(concat!("payments/", env!("CARGO_PKG_VERSION")))
}

/// A response's body is longer than allowed, or broke off.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    #[error("the body broke off")]
    Broken(#[source] reqwest::Error),
}

/// Reads a response's body, of at most `bytes_max` bytes.
pub async fn read_body(response: reqwest::Response, bytes_max: usize) -> Result<Bytes, ReadError> {
    let mut response = response;
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(ReadError::Broken)? {
        if body.len() + chunk.len() > bytes_max {
            return Err(ReadError::TooLong(bytes_max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}
