//! An HTTP server on loopback that answers by a script and records the requests.

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    time::timeout,
};

use super::{address, listen};
use crate::shutdown::{Shutdown, Tasks};

/// A request, as it came.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Method and path, such as `POST /charge`.
    pub call: String,
    pub headers: http::HeaderMap,
    pub body: String,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

/// What the server does with a request that it has read.
#[derive(Clone, Debug)]
pub enum Reaction {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// Closes the connection without an answer.
    Cut,
    /// Closes it after the head and a piece of the body.
    CutInBody { status: u16 },
    /// Keeps the connection open and sends nothing.
    Silence,
    /// Does this once the gate is open.
    Held(watch::Receiver<bool>, Box<Reaction>),
}

pub fn answer(status: u16, content_type: &str, body: impl Into<String>) -> Reaction {
    Reaction::Answer {
        status,
        headers: vec![("content-type", content_type.to_owned())],
        body: body.into(),
    }
}

pub fn json(status: u16, body: impl Into<String>) -> Reaction {
    answer(status, "application/json", body)
}

pub fn html(status: u16) -> Reaction {
    answer(status, "text/html", "<html>Request Rejected</html>")
}

pub fn empty(status: u16) -> Reaction {
    Reaction::Answer {
        status,
        headers: Vec::new(),
        body: String::new(),
    }
}

pub fn redirect(to: &str) -> Reaction {
    Reaction::Answer {
        status: 307,
        headers: vec![("location", to.to_owned())],
        body: String::new(),
    }
}

type Script = dyn Fn(&ReceivedRequest) -> Reaction + Send + Sync;

/// Runs until it is dropped.
pub struct FakeServer {
    at: SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    shutdown: Shutdown,
}

impl FakeServer {
    pub async fn start(
        script: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = listen().await;
        let server = Self {
            at: address(&listener),
            seen: Arc::default(),
            shutdown: Shutdown::new(),
        };
        let (seen, shutdown) = (server.seen.clone(), server.shutdown.clone());
        let script: Arc<Script> = Arc::new(script);
        Tasks::new().spawn(async move {
            let connections = Tasks::new();
            loop {
                let stream = tokio::select! {
                    () = shutdown.wait() => return,
                    accepted = listener.accept() => accepted.expect("a connection").0,
                };
                let serving = serve(stream, script.clone(), seen.clone());
                let shutdown = shutdown.clone();
                connections.spawn(async move {
                    tokio::select! {
                        () = shutdown.wait() => {}
                        () = serving => {}
                    }
                });
            }
        });
        server
    }

    pub fn address(&self) -> String {
        format!("http://{}", self.at)
    }

    pub fn seen(&self) -> Vec<ReceivedRequest> {
        lock(&self.seen).clone()
    }

    /// Method and path of each request, in order.
    pub fn calls(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.call).collect()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

/// An address where nobody listens, for as long as the socket lives.
pub fn closed_port() -> (TcpSocket, String) {
    let socket = bound();
    let address = format!("http://{}", socket.local_addr().expect("a bound address"));
    (socket, address)
}

/// An address where connecting hangs, for as long as the listener and its connections live: they
/// are never accepted, and the backlog is full.
pub async fn full_port() -> ((TcpListener, Vec<TcpStream>), String) {
    let listener = bound().listen(1).expect("a bound socket");
    let at = address(&listener);
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(300), TcpStream::connect(at)).await {
        waiting.push(stream.expect("a connection"));
        assert!(waiting.len() < 100, "connections are not limited here");
    }
    ((listener, waiting), format!("http://{at}"))
}

fn bound() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(free).expect("a free port");
    socket
}

fn lock(seen: &Mutex<Vec<ReceivedRequest>>) -> MutexGuard<'_, Vec<ReceivedRequest>> {
    seen.lock().expect("nobody panics with it")
}

async fn serve(stream: TcpStream, script: Arc<Script>, seen: Arc<Mutex<Vec<ReceivedRequest>>>) {
    let service = service_fn(move |request| react(request, script.clone(), seen.clone()));
    let served = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // A connection that was cut ends in an error here, too.
    drop(served);
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

async fn react(
    request: http::Request<Incoming>,
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
) -> io::Result<http::Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let request = ReceivedRequest {
        call: format!("{} {}", head.method, head.uri),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).expect("text"),
    };
    let mut reaction = script(&request);
    lock(&seen).push(request);
    while let Reaction::Held(mut gate, then) = reaction {
        let opened = gate.wait_for(|is_open| *is_open).await;
        opened.expect("the test opens the gate");
        reaction = *then;
    }
    match reaction {
        Reaction::Held(..) => unreachable!("the gate was passed"),
        Reaction::Cut => Err(io::Error::other("cut")),
        Reaction::Silence => pending().await,
        Reaction::Answer {
            status,
            headers,
            body,
        } => {
            let mut response = http::Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            let body = http_body_util::Full::new(Bytes::from(body)).map_err(never);
            Ok(response.body(body.boxed_unsync()).expect("a response"))
        }
        Reaction::CutInBody { status } => {
            let piece = Ok(Frame::data(Bytes::from_static(b"{\"status\":")));
            let pieces = [piece, Err(io::Error::other("cut"))];
            let body = StreamBody::new(futures::stream::iter(pieces)).boxed_unsync();
            let response = http::Response::builder().status(status);
            Ok(response
                .header("content-type", "application/json")
                .body(body)
                .expect("a response"))
        }
    }
}

fn never(never: Infallible) -> io::Error {
    match never {}
}
