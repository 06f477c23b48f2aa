//! A network on loopback: answers by a script and records the requests.

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use chassis::shutdown::{Shutdown, Tasks};
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

/// A request, as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method and path, such as `POST /charge`.
    pub call: String,
    pub headers: http::HeaderMap,
    pub body: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What the network does with a request that it has read.
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

type Script = dyn Fn(&Seen) -> Reaction + Send + Sync;

pub struct FakeNetwork {
    at: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    shutdown: Shutdown,
}

impl FakeNetwork {
    pub async fn start(script: impl Fn(&Seen) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = Self {
            at: listener.local_addr().unwrap(),
            seen: Arc::default(),
            shutdown: Shutdown::new(),
        };
        let (seen, shutdown) = (network.seen.clone(), network.shutdown.clone());
        let script: Arc<Script> = Arc::new(script);
        Tasks::new().spawn(async move {
            let connections = Tasks::new();
            loop {
                let stream = tokio::select! {
                    () = shutdown.wait() => return,
                    accepted = listener.accept() => accepted.unwrap().0,
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
        network
    }

    /// A network that answers every token request itself, and the rest by `script`.
    pub async fn with_tokens(script: impl Fn(&Seen) -> Reaction + Send + Sync + 'static) -> Self {
        let minted = Mutex::new(0);
        Self::start(move |seen| {
            if seen.call != "POST /collection/token/" {
                return script(seen);
            }
            let mut minted = minted.lock().unwrap();
            *minted += 1;
            token(&format!("token-{minted}"), 3600)
        })
        .await
    }

    pub fn address(&self) -> String {
        format!("http://{}", self.at)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Method and path of each request, in order.
    pub fn calls(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.call).collect()
    }
}

impl Drop for FakeNetwork {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

pub fn token(token: &str, expires_in: u32) -> Reaction {
    let body = format!(
        r#"{{"access_token":"{token}","token_type":"access_token","expires_in":{expires_in}}}"#
    );
    json(200, body)
}

/// An address where nobody listens, for as long as the socket lives.
pub fn closed_port() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    (socket, address)
}

/// An address where connecting hangs, for as long as the listener and its connections live: they
/// are never accepted, and the backlog is full.
pub async fn full_port() -> ((TcpListener, Vec<TcpStream>), String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let at = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(300), TcpStream::connect(at)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 100, "connections are not limited here");
    }
    ((listener, waiting), format!("http://{at}"))
}

async fn serve(stream: TcpStream, script: Arc<Script>, seen: Arc<Mutex<Vec<Seen>>>) {
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
    seen: Arc<Mutex<Vec<Seen>>>,
) -> io::Result<http::Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let request = Seen {
        call: format!("{} {}", head.method, head.uri),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let mut reaction = script(&request);
    seen.lock().unwrap().push(request);
    while let Reaction::Held(mut gate, then) = reaction {
        gate.wait_for(|is_open| *is_open).await.unwrap();
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
            Ok(response.body(body.boxed_unsync()).unwrap())
        }
        Reaction::CutInBody { status } => {
            let piece = Ok(Frame::data(Bytes::from_static(b"{\"status\":")));
            let pieces = [piece, Err(io::Error::other("cut"))];
            let body = StreamBody::new(futures::stream::iter(pieces)).boxed_unsync();
            let response = http::Response::builder().status(status);
            Ok(response
                .header("content-type", "application/json")
                .body(body)
                .unwrap())
        }
    }
}

fn never(never: Infallible) -> io::Error {
    match never {}
}
