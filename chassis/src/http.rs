//! HTTP in both directions: the accept loop for what we serve, and the client for what we call.
//!
//! The loop is our own because nothing ready-made closes a connection on which nothing arrives,
//! or ends a drain that a half-sent header holds up.

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{Router, body::Body, extract::ConnectInfo};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower::ServiceExt as _;

use crate::shutdown::{Shutdown, Tasks};

/// Longest that a process drains requests before it ends anyway. Longer than a charge takes.
pub const DRAIN_MAX: Duration = Duration::from_secs(15);

/// How long accepting pauses when the system has no sockets left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Longest wait for a connection to another server.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// How long a connection to another server is kept for its next request. Shorter than servers keep
/// theirs: a request on a connection that is just being closed has an unknown outcome.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// What a client of ours may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until a request's head is complete, counted from the connection or the request before.
    pub head_max: Duration,
    /// Until its body is complete.
    pub body_max: Duration,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// Connections at the same time; more wait to be accepted.
    pub connections_max: usize,
    /// How long a stopping process waits for requests that run.
    pub drain_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_max: Duration::from_secs(10),
            body_max: Duration::from_secs(10),
            head_bytes_max: 32 * 1024,
            connections_max: 10_000,
            drain_max: DRAIN_MAX,
        }
    }
}

/// Serves until the process stops, then drains, for `limits.drain_max` at most. Handlers find the
/// client's address in `ConnectInfo<SocketAddr>`.
pub async fn serve(
    router: Router,
    listener: TcpListener,
    limits: Limits,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let connections = Tasks::new();
    let drained = Shutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections_max));
    while let Some((stream, peer, place)) = accept(&listener, &places, &shutdown).await {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "the client has gone");
            continue;
        }
        let connection = connection(router.clone(), stream, peer, limits, shutdown.clone());
        let drained = drained.clone();
        connections.spawn(async move {
            tokio::select! {
                () = connection => {}
                () = drained.wait() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    connections.drain(limits.drain_max).await;
    // What is left is cut off.
    drained.begin();
    Ok(())
}

/// The next connection with its place; `None` once the process stops.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    shutdown: &Shutdown,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => return None,
            accepted = accept_one(listener, places) => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn accept_one(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await;
    let place = place.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

async fn connection(
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    limits: Limits,
    shutdown: Shutdown,
) {
    let answer = service_fn(move |request: http::Request<Incoming>| {
        let mut request = request.map(|body| within(body, limits.body_max));
        request.extensions_mut().insert(ConnectInfo(peer));
        let router = router.clone();
        async move {
            let Ok(response) = router.oneshot(request).await;
            Ok::<_, Infallible>(response)
        }
    });
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
        tracing::debug!(%error, "a connection ended early");
    }
}

/// The body of a request that did not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not arrive in time")]
pub struct BodyTooSlow;

/// A body that fails with [`BodyTooSlow`] once `body_max` has passed.
fn within(body: Incoming, body_max: Duration) -> Body {
    let deadline = tokio::time::Instant::now() + body_max;
    let frames = futures::stream::unfold(Some(body), move |body| async move {
        let mut body = body?;
        match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                Some((Ok(data), Some(body)))
            }
            Ok(Some(Err(error))) => Some((Err(axum::Error::new(error)), None)),
            Ok(None) => None,
            Err(_) => Some((Err(axum::Error::new(BodyTooSlow)), None)),
        }
    });
    Body::from_stream(frames)
}

/// A client that follows no redirect, uses no proxy, keeps no cookie, sends nothing twice, and
/// waits at most `timeout` for a whole answer.
pub fn client(timeout: Duration) -> anyhow::Result<reqwest::Client> {
    client_builder(timeout)
        .build()
        .context("the HTTP client cannot be made")
}

/// As [`client`], for callers who add to it.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that makes clients"
)]
pub fn client_builder(timeout: Duration) -> reqwest::ClientBuilder {
    install_tls();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .retry(reqwest::retry::never())
        .pool_idle_timeout(IDLE_MAX)
        .connect_timeout(CONNECT_MAX.min(timeout))
        .timeout(timeout)
        .user_agent(concat!("payments/", env!("CARGO_PKG_VERSION")))
}

/// Makes ring the process's TLS provider, once.
pub(crate) fn install_tls() {
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        tracing::trace!("the TLS provider is installed already");
    }
}

/// An answer's body was longer than it may be, or broke off.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    #[error("the body broke off")]
    Broken(#[source] reqwest::Error),
}

/// Reads an answer's body, of `bytes_max` at most.
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
