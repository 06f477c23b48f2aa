//! The one way to call another service: spread over all addresses of its name, bounded in time,
//! with the caller's trace and request.
//!
//! Each call takes its turn once and walks the replicas from there until one takes it, so it never
//! fails on a lost replica while another lives. A call that may have arrived is never repeated
//! here. Callers with a retry rule of their own use [`Channel::without_repeats`], so that the
//! retries of two layers never multiply.

use std::{
    collections::BTreeMap,
    error::Error as StdError,
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesUnordered};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tonic::{
    ConnectError, Status, TimeoutExpired,
    body::Body,
    transport::{self, ClientTlsConfig, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tower::ServiceExt as _;

use super::{deadline, origin::Origin};
use crate::{
    config::{Refusals, Tls},
    error_chain::chain,
    shutdown::spawn_detached,
};

/// How often a service's name is looked up again, so that new replicas get calls.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);

/// How soon a name that has no address is looked up again.
const RESOLVE_AGAIN: Duration = Duration::from_millis(250);

/// Longest wait for a connection, and for the first look-up of a name.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How long a replica is left alone after connecting to it took too long, because calls would
/// queue up behind each attempt. A refused connection costs no time and causes no such pause.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// How often a call that was certainly not sent is tried if there are fewer replicas: a connection
/// that a replica has closed makes room for a new one.
const TRIES_MIN: usize = 3;

/// A replica that vanished silently is noticed within the sum of these two.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_ANSWER_MAX: Duration = Duration::from_secs(5);

type BoxError = Box<dyn StdError + Send + Sync>;

/// A service, wherever its replicas are. Clones share the connections.
///
/// A call without an answer within the channel's time ends with DEADLINE_EXCEEDED; a call may set
/// a shorter time of its own. One that cannot be sent, or whose connection breaks, ends with
/// UNAVAILABLE; [`tonic::ConnectError`] among its sources means that it was certainly not sent. A
/// status made here has a source; one from the service has none.
///
/// For unary calls only: a whole request is held in memory. For streams see [`Channel::replicas`].
#[derive(Clone)]
pub struct Channel {
    host: Arc<str>,
    /// `None` until the name's first look-up has ended.
    replicas: watch::Receiver<Option<Arc<[Replica]>>>,
    turn: Arc<AtomicUsize>,
    tries_min: usize,
    answer_max: Duration,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.host)
    }
}

/// A channel to `http://name:port` or, with mutual TLS, `https://name:port`. Connects on first
/// use, and reconnects as needed.
///
/// # Panics
/// Outside a tokio runtime.
pub fn connect(url: &str, tls: &Tls, answer_max: Duration) -> anyhow::Result<Channel> {
    let names = Names::parse(url, tls)?;
    let host = names.host.as_str().into();
    let (tell, replicas) = watch::channel(None);
    spawn_detached(names.follow(tell));
    Ok(Channel {
        host,
        replicas,
        turn: Arc::default(),
        tries_min: TRIES_MIN,
        answer_max,
    })
}

/// Refuses a URL that [`connect`] does not take.
pub fn check_url(refusals: &mut Refusals, variable: &'static str, url: &str, tls: &Tls) {
    let wants = "http://name:port, or https://name:port with TLS_CERT, TLS_KEY and TLS_CA";
    let is_good = match tls.is_usable() {
        true => Names::parse(url, tls).is_ok(),
        // Bad TLS files are reported with their own variables alone.
        false => Names::parse(&url.replacen("https:", "http:", 1), &Tls::default()).is_ok(),
    };
    refusals.unless(is_good, variable, wants);
}

/// Whether a service, called without TLS, answers that it is serving.
pub async fn is_serving(url: &str) -> bool {
    match connect(url, &Tls::default(), CONNECT_MAX) {
        Ok(channel) => channel.is_serving().await,
        Err(_) => false,
    }
}

impl Channel {
    /// Tries each call on no replica twice: for callers that retry themselves.
    #[must_use]
    pub fn without_repeats(self) -> Self {
        Self {
            tries_min: 1,
            ..self
        }
    }

    /// Whether any replica of the service answers within a second that it is serving. All are asked
    /// at once: one that has vanished silently would use up the second.
    pub async fn is_serving(&self) -> bool {
        let answered = async {
            let replicas = self.known_replicas().await;
            let checks = replicas.iter().map(|replica| self.at(replica).check());
            let mut checks: FuturesUnordered<_> = checks.collect();
            while let Some(is_serving) = checks.next().await {
                if is_serving {
                    return true;
                }
            }
            false
        };
        timeout(CONNECT_MAX, answered).await.unwrap_or(false)
    }

    /// Whether it answers that it is serving.
    async fn check(self) -> bool {
        let mut health = HealthClient::new(self);
        let answer = health.check(HealthCheckRequest::default()).await;
        answer.is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
    }

    /// A channel to this replica alone. A connection that was closed does not mean that it is down,
    /// so it is tried again.
    fn at(&self, replica: &Replica) -> Self {
        let replica = Arc::from([replica.clone()]);
        Self {
            host: Arc::clone(&self.host),
            replicas: watch::channel(Some(replica)).1,
            turn: Arc::default(),
            tries_min: TRIES_MIN,
            answer_max: self.answer_max,
        }
    }

    /// The service's replicas, for streams, each of which is one replica's.
    pub fn replicas(&self) -> Replicas {
        Replicas(self.replicas.clone())
    }

    async fn send(
        self,
        request: Request<Body>,
        ends_at: Instant,
    ) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let replicas = self.known_replicas().await;
        let mut failure = BoxError::from(format!("{} has no address to try", self.host));
        for replica in self.walk(&replicas) {
            let request = Request::from_parts(head.clone(), whole(body.clone()));
            match replica.send(request).await {
                Err(error) if was_not_sent(&error) => failure = error.into(),
                answer => return Ok(answer?),
            }
            // If the next replica were silent too, the call's time would end while it is tried, and
            // its caller could not tell that it was never sent.
            let left = ends_at.saturating_duration_since(Instant::now());
            if !replica.may_be_tried() && left < CONNECT_MAX {
                break;
            }
        }
        Err(ConnectError(failure).into())
    }

    /// Waits for the first look-up, but not for long.
    async fn known_replicas(&self) -> Arc<[Replica]> {
        let mut replicas = self.replicas.clone();
        let known = timeout(CONNECT_MAX, replicas.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(known)) => known.clone().unwrap_or_default(),
            // No look-up yet, or the runtime is ending.
            Ok(Err(_)) | Err(_) => Arc::default(),
        }
    }

    /// All replicas that are not left alone, from the next in turn.
    fn walk<'a>(&self, replicas: &'a [Replica]) -> impl Iterator<Item = &'a Replica> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let start = turn.checked_rem(replicas.len()).unwrap_or_default();
        let (before, from) = replicas.split_at(start);
        let tries = self.tries_min.max(replicas.len());
        let walk = from.iter().chain(before).cycle().take(tries);
        walk.filter(|replica| replica.may_be_tried())
    }
}

fn whole(body: Bytes) -> Body {
    Body::new(Full::new(body))
}

impl tower::Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    /// Always ready: waiting for a replica counts towards the call's time.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let answer_max = deadline::shorten(request.headers_mut(), self.answer_max);
        Origin::current().write(request.headers_mut());
        let channel = self.clone();
        Box::pin(async move {
            let ends_at = Instant::now() + answer_max;
            let answer = timeout_at(ends_at, channel.send(request, ends_at)).await;
            let answer = answer.unwrap_or_else(|_| Err(TimeoutExpired(()).into()));
            answer.map_err(failure)
        })
    }
}

/// The status of a call without an answer.
fn failure(error: BoxError) -> Status {
    let mut status = if causes(&*error).any(|cause| cause.is::<TimeoutExpired>()) {
        Status::deadline_exceeded("no answer in time")
    } else {
        Status::unavailable("no connection, or it broke")
    };
    status.set_source(Arc::from(error));
    status
}

/// Whether no connection was made, or it ended before it was given the request, or the server
/// closed it gracefully and said that it will not process this call (RFC 9113 §6.8).
fn was_not_sent(error: &transport::Error) -> bool {
    causes(error).any(|cause| {
        if let Some(error) = cause.downcast_ref::<hyper::Error>() {
            return error.is_canceled();
        }
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            let is_in_good_order = error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_go_away() && error.is_remote() && is_in_good_order;
        }
        cause.is::<ConnectError>()
    })
}

/// The error and all its sources.
fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// A connection to one replica, which is made on first use and made anew as needed. Calls on it have
/// no deadline but their own.
pub type Connection = transport::Channel;

/// The replicas of a service, as its name is looked up again and again.
pub struct Replicas(watch::Receiver<Option<Arc<[Replica]>>>);

impl Replicas {
    /// Waits for the first look-up, or until they are others, and returns them by address. `None`
    /// once the last channel to the service is gone.
    pub async fn next(&mut self) -> Option<BTreeMap<SocketAddr, Connection>> {
        self.0.changed().await.ok()?;
        let known = self.0.borrow_and_update().clone().unwrap_or_default();
        let known = known
            .iter()
            .map(|replica| (replica.address, replica.connection.clone()));
        Some(known.collect())
    }
}

/// One address of a service.
#[derive(Clone)]
struct Replica {
    address: SocketAddr,
    connection: transport::Channel,
    left_alone_until: Arc<Mutex<Option<Instant>>>,
}

impl Replica {
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, transport::Error> {
        let started = Instant::now();
        let answer = self.connection.clone().oneshot(request).await;
        if let Err(error) = &answer
            && was_not_sent(error)
            && started.elapsed() >= CONNECT_MAX
        {
            *self.left_alone() = Some(Instant::now() + LEFT_ALONE);
        }
        answer
    }

    fn may_be_tried(&self) -> bool {
        self.left_alone()
            .is_none_or(|until| until <= Instant::now())
    }

    fn left_alone(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        // No code panics while it holds the lock.
        self.left_alone_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service's name, and how to connect to its addresses.
struct Names {
    origin: Uri,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    tls: Option<ClientTlsConfig>,
}

impl Names {
    fn parse(url: &str, tls: &Tls) -> anyhow::Result<Self> {
        let origin: Uri = url.parse().with_context(|| format!("{url} is not a URL"))?;
        let Some(host) = origin.host() else {
            bail!("{url} has no host");
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        // A `Uri` ignores a port beyond 65535, as if there were none.
        let port = reqwest::Url::parse(url)
            .ok()
            .and_then(|url| url.port_or_known_default());
        let Some(port) = port.filter(|port| *port > 0) else {
            bail!("{url} has no port that can be called");
        };
        let tls = match origin.scheme_str() {
            Some("http") => None,
            Some("https") => {
                let Some(tls) = tls.client()? else {
                    bail!("{url} needs TLS_CERT, TLS_KEY and TLS_CA");
                };
                Some(tls.domain_name(host.clone()).timeout(CONNECT_MAX))
            }
            _ => bail!("{url} must begin with http:// or https://"),
        };
        let names = Self {
            port,
            origin,
            host,
            tls,
        };
        // Reports a bad certificate now, not at the first call.
        names.endpoint(SocketAddr::from(([127, 0, 0, 1], names.port)))?;
        Ok(names)
    }

    /// Looks the name up again and again, and publishes the replicas, until the last channel is
    /// gone.
    async fn follow(self, tell: watch::Sender<Option<Arc<[Replica]>>>) {
        let mut known = BTreeMap::new();
        let mut failed = false;
        loop {
            match self.look_up(&known).await {
                Ok(found) => {
                    failed = false;
                    if !found.keys().eq(known.keys()) || tell.borrow().is_none() {
                        tell.send_replace(Some(found.values().cloned().collect()));
                        known = found;
                    }
                }
                Err(error) => {
                    if !failed {
                        tracing::warn!(host = self.host, error = %chain(error.as_ref()), "the name cannot be looked up");
                    }
                    failed = true;
                    // The last known addresses are better than none.
                    tell.send_if_modified(|told| {
                        let is_first = told.is_none();
                        told.get_or_insert_default();
                        is_first
                    });
                }
            }
            let wait = if known.is_empty() {
                RESOLVE_AGAIN
            } else {
                RESOLVE_EVERY
            };
            tokio::select! {
                () = tell.closed() => return,
                () = sleep(wait) => {}
            }
        }
    }

    /// All current replicas. Those known before keep their connections.
    async fn look_up(
        &self,
        known: &BTreeMap<SocketAddr, Replica>,
    ) -> anyhow::Result<BTreeMap<SocketAddr, Replica>> {
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        addresses
            .map(|address| {
                let replica = match known.get(&address) {
                    Some(replica) => replica.clone(),
                    None => Replica {
                        address,
                        connection: self.endpoint(address)?.connect_lazy(),
                        left_alone_until: Arc::default(),
                    },
                };
                Ok((address, replica))
            })
            .collect()
    }

    fn endpoint(&self, address: SocketAddr) -> anyhow::Result<Endpoint> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?
            .origin(self.origin.clone())
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_ANSWER_MAX)
            .keep_alive_while_idle(true);
        match &self.tls {
            Some(tls) => endpoint
                .tls_config(tls.clone())
                .context("TLS_CERT, TLS_KEY or TLS_CA is not usable"),
            None => Ok(endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;
    use crate::{
        admin::Readiness,
        clock::Clock,
        grpc::{Door, ServerSetup, Sockets, serve},
        shutdown::{Shutdown, Tasks},
    };

    /// A channel to these addresses of one name.
    fn channel(addresses: &[SocketAddr]) -> Channel {
        let names = Names::parse("http://any:1", &Tls::default()).unwrap();
        let replicas: Arc<[Replica]> = addresses
            .iter()
            .map(|address| Replica {
                address: *address,
                connection: names.endpoint(*address).unwrap().connect_lazy(),
                left_alone_until: Arc::default(),
            })
            .collect();
        Channel {
            host: "any".into(),
            replicas: watch::channel(Some(replicas)).1,
            turn: Arc::default(),
            tries_min: TRIES_MIN,
            answer_max: Duration::from_secs(10),
        }
    }

    async fn replica(tasks: &Tasks, shutdown: &Shutdown) -> SocketAddr {
        let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = grpc.local_addr().unwrap();
        let serving = ServerSetup {
            sockets: Sockets {
                grpc,
                operators: None,
                admin: None,
            },
            tls: Tls::default(),
            reflection: false,
            readiness: Readiness::new(),
            clock: Clock::system(),
            shutdown: shutdown.clone(),
        };
        tasks.spawn(async { serve(Door::default(), serving).await.unwrap() });
        address
    }

    /// An address that refuses connections: bound, so that nobody else takes the port, but not
    /// listening.
    fn gone() -> TcpSocket {
        let gone = TcpSocket::new_v4().unwrap();
        gone.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        gone
    }

    #[tokio::test]
    async fn calls_at_once_all_find_the_replica_that_lives() {
        let (tasks, shutdown) = (Tasks::new(), Shutdown::new());
        let gone = gone();
        let addresses = [gone.local_addr().unwrap(), replica(&tasks, &shutdown).await];
        let channel = channel(&addresses).without_repeats();
        let calls = (0..200).map(|_| {
            let mut health = HealthClient::new(channel.clone());
            async move { health.check(HealthCheckRequest::default()).await }
        });
        for answer in futures::future::join_all(calls).await {
            answer.unwrap();
        }
        shutdown.begin();
        tasks.drain(Duration::MAX).await;
    }

    #[tokio::test]
    async fn a_replica_that_is_gone_costs_no_call() {
        let tasks = Tasks::new();
        let (shutdown, other) = (Shutdown::new(), Shutdown::new());
        let gone = gone();
        let addresses = [
            gone.local_addr().unwrap(),
            replica(&tasks, &shutdown).await,
            replica(&tasks, &other).await,
        ];
        let channel = channel(&addresses);
        for _ in 0..30 {
            assert!(channel.is_serving().await);
        }
        other.begin();
        for _ in 0..30 {
            let mut health = HealthClient::new(channel.clone());
            health.check(HealthCheckRequest::default()).await.unwrap();
        }
        shutdown.begin();
        tasks.drain(Duration::MAX).await;
        assert!(!channel.is_serving().await);
    }

    /// Addresses at which connections wait for ever, because the backlogs are full.
    async fn silent<const N: usize>() -> ([SocketAddr; N], Vec<TcpListener>) {
        let mut full = Vec::new();
        let addresses = [(); N].map(|()| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let listener = socket.listen(1).unwrap();
            let address = listener.local_addr().unwrap();
            full.push(listener);
            address
        });
        let waiting = addresses.repeat(4).into_iter().map(TcpStream::connect);
        let waiting = timeout(CONNECT_MAX, futures::future::join_all(waiting)).await;
        assert!(waiting.is_err(), "the backlogs are full");
        (addresses, full)
    }

    /// Otherwise one machine without power makes every gateway look unready.
    #[tokio::test]
    async fn a_service_serves_though_another_of_its_replicas_is_silent() {
        let (tasks, shutdown) = (Tasks::new(), Shutdown::new());
        let ([silent], _full) = silent().await;
        let channel = channel(&[silent, replica(&tasks, &shutdown).await]);
        for _ in 0..4 {
            assert!(channel.is_serving().await);
        }
        shutdown.begin();
        tasks.drain(Duration::MAX).await;
    }

    #[tokio::test]
    async fn a_call_to_silent_replicas_counts_as_never_sent() {
        let (addresses, _full) = silent::<3>().await;
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.set_timeout(CONNECT_MAX * 5 / 2);
        let mut health = HealthClient::new(channel(&addresses).without_repeats());
        let failure = health.check(request).await.unwrap_err();
        let source = failure.source().unwrap();
        assert!(causes(source).any(|cause| cause.is::<ConnectError>()));
    }

    #[tokio::test]
    async fn look_ups_end_with_the_last_channel() {
        let names = Names::parse("http://127.0.0.1:1", &Tls::default()).unwrap();
        let (tell, replicas) = watch::channel(None);
        drop(replicas);
        let ended = timeout(Duration::from_secs(10), names.follow(tell)).await;
        assert!(ended.is_ok());
    }

    #[tokio::test]
    async fn an_ipv6_address_and_a_default_port_are_understood() {
        let names = Names::parse("http://[::1]", &Tls::default()).unwrap();
        assert_eq!((names.host.as_str(), names.port), ("::1", 80));
        let found = names.look_up(&BTreeMap::new()).await.unwrap();
        let addresses: Vec<_> = found.keys().map(ToString::to_string).collect();
        assert_eq!(addresses, ["[::1]:80"]);
    }
}
