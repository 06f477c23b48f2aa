//! A merchant's receiver, written on bare sockets so that it can misbehave and see every byte.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::shutdown::Tasks;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A request that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub head: String,
    /// By lower-case name.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Arrival {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    pub fn event_id(&self) -> &str {
        self.header("x-service-event-id")
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// How the receiver answers.
#[derive(Clone, Debug)]
pub enum Answer {
    Status(u16),
    /// These bytes, then closes the connection.
    Raw(Vec<u8>),
    /// 200, after this time.
    Late(Duration),
    /// 200, once [`Receiver::release`] is called.
    Held,
    /// Nothing, and the connection is reset.
    Reset,
    /// 200, and an endless body.
    Endless,
    /// 200, and a body that arrives byte by byte, slowly.
    Drip,
}

type Script = Arc<dyn Fn(usize, &Arrival) -> Answer + Send + Sync>;

#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: Tasks,
}

struct Shared {
    script: Script,
    /// Whether a connection serves many requests. If not, it is closed after an answer that says so.
    keeps: bool,
    received: Mutex<Vec<Arrival>>,
    connections: AtomicUsize,
    /// Requests that are not answered yet, and the most there were at once.
    open: AtomicUsize,
    open_most: AtomicUsize,
    sent: AtomicUsize,
    released: watch::Sender<bool>,
}

impl Receiver {
    /// The script gets the number of the request, from 1, and chooses the answer.
    pub async fn start(script: impl Fn(usize, &Arrival) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", script).await
    }

    pub async fn start_at(
        address: &str,
        script: impl Fn(usize, &Arrival) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::listen(address, Arc::new(script), false).await
    }

    /// Answers 200, and keeps its connections open.
    pub async fn keeping(address: &str) -> Self {
        Self::listen(address, Arc::new(|_, _| Answer::Status(200)), true).await
    }

    async fn listen(address: &str, script: Script, keeps: bool) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script,
            keeps,
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            open_most: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            released: watch::Sender::new(false),
        });
        let tasks = Tasks::new();
        let (accepting, serving) = (tasks.clone(), shared.clone());
        tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                serving.connections.fetch_add(1, Ordering::SeqCst);
                let serving = serving.clone();
                accepting.spawn(async move { serving.connection(stream).await });
            }
        });
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    pub async fn always(status: u16) -> Self {
        Self::start(move |_, _| Answer::Status(status)).await
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub fn received(&self) -> Vec<Arrival> {
        self.shared.received.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    pub fn open_most(&self) -> usize {
        self.shared.open_most.load(Ordering::SeqCst)
    }

    /// How many bytes of bodies the other side took.
    pub fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::SeqCst)
    }

    pub fn release(&self) {
        self.shared.released.send_replace(true);
    }
}

impl Shared {
    async fn connection(&self, mut stream: TcpStream) {
        while let Some(request) = read_request(&mut stream).await {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.open_most.fetch_max(open, Ordering::SeqCst);
            let answer = {
                let mut received = self.received.lock().unwrap();
                received.push(request.clone());
                (self.script)(received.len(), &request)
            };
            self.answer(&mut stream, answer).await;
            self.open.fetch_sub(1, Ordering::SeqCst);
            if !self.keeps {
                return;
            }
        }
    }

    /// Ends when the answer is out or the other side has gone.
    async fn answer(&self, stream: &mut TcpStream, answer: Answer) {
        let ok = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let endless = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
        match answer {
            Answer::Status(status) => {
                let connection = if self.keeps { "keep-alive" } else { "close" };
                let head = format!(
                    "HTTP/1.1 {status} X\r\nConnection: {connection}\r\nContent-Length: 2\r\n\r\n{{}}"
                );
                send(stream, head.as_bytes()).await;
            }
            Answer::Raw(bytes) => {
                send(stream, &bytes).await;
            }
            Answer::Late(wait) => {
                if still_there(stream, tokio::time::sleep(wait)).await {
                    send(stream, ok).await;
                }
            }
            Answer::Held => {
                let mut released = self.released.subscribe();
                let released = async { drop(released.wait_for(|released| *released).await) };
                if still_there(stream, released).await {
                    send(stream, ok).await;
                }
            }
            Answer::Reset => stream.set_zero_linger().unwrap(),
            Answer::Endless => {
                send(stream, endless).await;
                while send(stream, &[b'x'; 1_024]).await {
                    self.sent.fetch_add(1_024, Ordering::SeqCst);
                }
            }
            Answer::Drip => {
                send(stream, endless).await;
                while send(stream, b"x").await {
                    self.sent.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

/// Returns false if the other side has gone.
async fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).await.is_ok()
}

/// Waits; returns false if the other side went away first.
async fn still_there(stream: &mut TcpStream, wait: impl Future<Output = ()>) -> bool {
    let mut byte = [0];
    tokio::select! {
        () = wait => true,
        _ = stream.read(&mut byte) => false,
    }
}

/// One request with its body; `None` if the other side goes away before it is complete.
async fn read_request(stream: &mut TcpStream) -> Option<Arrival> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let headers: HashMap<String, String> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().unwrap();
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Arrival {
        head,
        headers,
        body,
    })
}
