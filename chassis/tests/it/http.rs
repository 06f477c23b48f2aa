//! The HTTP accept loop, and the client for what we call.

mod idle;

use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::ConnectInfo,
    http::StatusCode,
    response::Redirect,
    routing::{get, post},
};
use chassis::{
    http::{BodyTooSlow, Limits, ReadError, client, read_body, serve},
    shutdown::{Shutdown, Tasks},
};
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::{PATIENCE, soon};

/// Long enough for a local request, short enough to wait for.
const SHORT: Duration = Duration::from_millis(500);

/// More than fits into the buffers between a server and a client.
const HUGE_BYTES: usize = 4 * 1024 * 1024;

/// A server run by a test.
struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    served: Tasks,
    /// `/wait` has begun, and may go on.
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
    /// The server has dropped the answer of `/huge`.
    given_up: Arc<Notify>,
}

/// The body of `/huge`.
struct Huge {
    bytes: Vec<u8>,
    given_up: Arc<Notify>,
}

impl AsRef<[u8]> for Huge {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Huge {
    fn drop(&mut self) {
        self.given_up.notify_one();
    }
}

async fn start(limits: Limits) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let running = Running {
        address: listener.local_addr().unwrap(),
        shutdown: Shutdown::new(),
        served: Tasks::new(),
        begun: Arc::default(),
        go_on: Arc::default(),
        given_up: Arc::default(),
    };
    let (begun, go_on) = (running.begun.clone(), running.go_on.clone());
    let wait = async move || {
        begun.notify_one();
        go_on.notified().await;
        "waited"
    };
    let given_up = running.given_up.clone();
    let huge = async move || {
        let bytes = vec![b'x'; HUGE_BYTES];
        Bytes::from_owner(Huge {
            bytes,
            given_up: given_up.clone(),
        })
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route(
            "/peer",
            get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()),
        )
        .route("/body", post(read))
        .route("/wait", get(wait))
        .route("/away", get(async || Redirect::temporary("/")))
        .route("/huge", get(huge))
        .route("/long", get(async || Bytes::from(vec![b'x'; 100_000])));
    let shutdown = running.shutdown.clone();
    running
        .served
        .spawn(async move { serve(router, listener, limits, shutdown).await.unwrap() });
    running
}

/// 200 with the body's length, or 408 if it did not arrive in time.
async fn read(body: Body) -> (StatusCode, String) {
    match body.collect().await {
        Ok(body) => (StatusCode::OK, body.to_bytes().len().to_string()),
        Err(error) => {
            let error: &(dyn Error + 'static) = &error;
            let mut causes = std::iter::successors(Some(error), |&error| error.source());
            assert!(causes.any(|cause| cause.is::<BodyTooSlow>()), "{error:?}");
            (StatusCode::REQUEST_TIMEOUT, String::new())
        }
    }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Everything until the server closes the connection.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4_096];
    while let Ok(count @ 1..) = soon(stream.read(&mut chunk)).await {
        bytes.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_connection_that_sends_nothing_is_closed() {
    let server = start(Limits {
        head_max: SHORT,
        ..Limits::default()
    })
    .await;
    assert_eq!(until_closed(&mut server.connect().await).await, "");
}

#[tokio::test]
async fn a_connection_that_sends_half_a_head_is_closed() {
    let server = start(Limits {
        head_max: SHORT,
        ..Limits::default()
    })
    .await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n")
        .await
        .unwrap();
    let answer = until_closed(&mut stream).await;
    assert!(!answer.contains("hello"), "{answer}");
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_answer() {
    let server = start(Limits {
        head_max: SHORT,
        ..Limits::default()
    })
    .await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let answer = until_closed(&mut stream).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_given_up_even_if_some_of_it_keeps_coming() {
    let server = start(Limits {
        body_max: SHORT,
        ..Limits::default()
    })
    .await;
    let (mut from, mut to) = server.connect().await.into_split();
    to.write_all(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        .await
        .unwrap();
    let tasks = Tasks::new();
    tasks.spawn(async move {
        // Ends when the connection does.
        while to.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    let mut answer = [0; 12];
    soon(from.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    drop(from);
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn a_body_in_time_arrives_whole() {
    let server = start(Limits::default()).await;
    let body = vec![b'x'; 200_000];
    let answer = client(PATIENCE)
        .unwrap()
        .post(server.url("/body"))
        .body(body);
    let answer = soon(answer.send()).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "200000");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = start(Limits::default()).await;
    let mut stream = server.connect().await;
    let long = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "x".repeat(64 * 1024)
    );
    // The server may close the connection before all of it is sent.
    drop(stream.write_all(long.as_bytes()).await);
    let mut answer = [0; 12];
    soon(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_a_place() {
    let server = start(Limits {
        connections_max: 1,
        ..Limits::default()
    })
    .await;
    let mut first = server.connect().await;
    first
        .write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    soon(server.begun.notified()).await;
    let mut second = server.connect().await;
    second
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut byte = [0; 1];
    let early = tokio::time::timeout(SHORT, second.peek(&mut byte)).await;
    assert!(early.is_err(), "the only place is taken");
    drop(first);
    assert!(until_closed(&mut second).await.ends_with("hello"));
}

#[tokio::test]
async fn handlers_know_the_clients_address() {
    let server = start(Limits::default()).await;
    let mut stream = server.connect().await;
    let own = stream.local_addr().unwrap().to_string();
    stream
        .write_all(b"GET /peer HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let answer = until_closed(&mut stream).await;
    assert!(answer.ends_with(&own), "{answer}");
}

#[tokio::test]
async fn stopping_lets_a_request_finish_and_closes_idle_connections() {
    // No time limit closes the idle connection.
    let server = start(Limits {
        head_max: Duration::from_secs(3_600),
        drain_max: Duration::MAX,
        ..Limits::default()
    })
    .await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut running = server.connect().await;
    running
        .write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    soon(server.begun.notified()).await;
    server.shutdown.begin();
    assert!(until_closed(&mut idle).await.ends_with("hello"));
    server.go_on.notify_one();
    assert!(until_closed(&mut running).await.ends_with("waited"));
    soon(server.served.drain(Duration::MAX)).await;
}

#[tokio::test]
async fn half_a_head_and_a_stuck_request_do_not_hold_up_the_stop() {
    let server = start(Limits {
        head_max: Duration::from_secs(3_600),
        drain_max: SHORT,
        ..Limits::default()
    })
    .await;
    let mut half = server.connect().await;
    half.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    let mut stuck = server.connect().await;
    stuck
        .write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    soon(server.begun.notified()).await;
    server.shutdown.begin();
    soon(server.served.drain(Duration::MAX)).await;
    assert_eq!(until_closed(&mut half).await, "");
    assert_eq!(until_closed(&mut stuck).await, "");
}

#[tokio::test]
async fn the_client_follows_no_redirect() {
    let server = start(Limits::default()).await;
    let answer = client(PATIENCE).unwrap().get(server.url("/away"));
    assert_eq!(soon(answer.send()).await.unwrap().status(), 307);
}

#[tokio::test]
async fn the_client_gives_up_after_its_time() {
    let server = start(Limits::default()).await;
    let answer = client(SHORT).unwrap().get(server.url("/wait"));
    assert!(soon(answer.send()).await.unwrap_err().is_timeout());
}

#[tokio::test]
async fn an_answer_is_read_up_to_its_limit() {
    let server = start(Limits::default()).await;
    let long = async || soon(client(PATIENCE).unwrap().get(server.url("/long")).send()).await;
    let whole = read_body(long().await.unwrap(), 100_000).await.unwrap();
    assert_eq!(whole.len(), 100_000);
    let cut = read_body(long().await.unwrap(), 99_999).await;
    assert!(matches!(cut, Err(ReadError::TooLong(99_999))), "{cut:?}");
}
