//! What the tests of every service share: waiting, running a service, and checking refusals. For
//! tests alone; whatever goes wrong here panics.

pub mod fake_server;

use std::{
    collections::BTreeSet,
    net::{self, SocketAddr},
    process::Stdio,
    sync::{self, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    sync::Mutex,
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::{Code, Status, service::Routes};
use uuid::Uuid;

use crate::{
    admin::Readiness,
    clock::Clock,
    config::Tls,
    grpc::{self, Channel, Door, ServerSetup, Sockets},
    shutdown::Shutdown,
};

/// Longest wait for what must happen. No verdict depends on how long it took.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Longest wait for a service to stop: it drains its calls, then its work.
const STOP_MAX: Duration = Duration::from_secs(55);

/// Longest that a call to a service takes. Longer than a charge takes.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// Waits until the condition holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "waited in vain until {what}");
}

/// The whole seconds that this gauge shows among the metrics, if it is there.
pub fn gauged_seconds(metrics: &str, gauge: &str) -> Option<u64> {
    let mut samples = metrics.lines().filter_map(|line| line.split_once(' '));
    let (_, seconds) = samples.find(|(name, _)| *name == gauge)?;
    seconds.split('.').next()?.parse().ok()
}

/// A free port of this machine.
pub async fn listen() -> TcpListener {
    let bound = TcpListener::bind("127.0.0.1:0").await;
    bound.expect("a free port")
}

pub fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound address")
}

/// A channel without TLS.
pub fn connect(url: &str) -> Channel {
    grpc::connect(url, &Tls::default(), ANSWER_MAX).expect("a URL")
}

/// A service in the test's own process. Dropping it ends it as a crash would.
#[derive(Debug)]
pub struct ServedService {
    pub address: SocketAddr,
    pub operators: SocketAddr,
    pub admin: SocketAddr,
    shutdown: Shutdown,
    serving: Mutex<JoinSet<anyhow::Result<()>>>,
}

impl ServedService {
    /// Serves on free ports. Returns once it answers.
    pub async fn start<F>(serve: impl FnOnce(Sockets, Shutdown) -> F) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (grpc, operators, admin) = (listen().await, listen().await, listen().await);
        let (at, operators_at, admin_at) = (address(&grpc), address(&operators), address(&admin));
        let sockets = Sockets {
            grpc,
            operators: Some(operators),
            admin: Some(admin),
        };
        let (shutdown, mut serving) = (Shutdown::new(), JoinSet::new());
        serving.spawn(serve(sockets, shutdown.clone()));
        let url = format!("http://{at}");
        tokio::select! {
            ended = serving.join_next() => panic!("it does not serve: {ended:?}"),
            () = until("it serves", async || grpc::is_serving(&url).await) => {}
        }
        Self {
            address: at,
            operators: operators_at,
            admin: admin_at,
            shutdown,
            serving: Mutex::new(serving),
        }
    }

    /// Serves these routes, which stand in for a service.
    pub async fn of(routes: Routes) -> Self {
        Self::start(|sockets, shutdown| {
            let serving = ServerSetup {
                sockets,
                tls: Tls::default(),
                reflection: false,
                readiness: Readiness::new(),
                clock: Clock::system(),
                shutdown,
            };
            grpc::serve(Door::stand_in(routes), serving)
        })
        .await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn channel(&self) -> Channel {
        connect(&self.url())
    }

    /// For operators.
    pub fn operators(&self) -> Channel {
        connect(&format!("http://{}", self.operators))
    }

    /// Stops it as SIGTERM would. Returns once its work has ended.
    pub async fn stop(&self) {
        self.shutdown.begin();
        let mut serving = self.serving.lock().await;
        let stopped = timeout(STOP_MAX, serving.join_next()).await;
        if let Some(ended) = stopped.expect("it stops in time") {
            ended.expect("no panic").expect("it served");
        }
    }

    /// Cuts it off wherever it is, as a crash would.
    pub async fn crash(&self) {
        self.serving.lock().await.shutdown().await;
    }

    /// The admin address's answer, head and body.
    pub async fn ask_admin(&self, path: &str) -> String {
        let connected = TcpStream::connect(self.admin).await;
        let mut connection = connected.expect("it serves its admin address");
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        let sent = connection.write_all(request.as_bytes()).await;
        sent.expect("it reads");
        let mut answer = String::new();
        let read = connection.read_to_string(&mut answer).await;
        read.expect("it answers");
        answer
    }
}

/// A free port for a process that is told where to listen: never the same twice in a test run, and
/// none that the system hands out to whoever asks for any.
pub fn free_port() -> u16 {
    static TAKEN: sync::Mutex<BTreeSet<u16>> = sync::Mutex::new(BTreeSet::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let [high, low, ..] = Uuid::new_v4().into_bytes();
        let port = 10_000 + u16::from_be_bytes([high, low]) % 20_000;
        let is_free = net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free && taken.insert(port) {
            return port;
        }
    }
}

/// A service in a process of its own, which can be killed, and is killed when dropped.
#[derive(Debug)]
pub struct ServiceProcess {
    pub url: String,
    /// Where it listens to operators, if it serves any.
    pub operators_url: String,
    child: Child,
}

impl ServiceProcess {
    /// Runs the command, which is told where to listen. Returns once it answers.
    pub async fn start(command: &mut Command) -> Self {
        let [free, operators] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
        let url = format!("http://{free}");
        let child = command
            .arg(format!("--listen={free}"))
            // Not a flag, because not every service has it.
            .env("OPERATORS_LISTEN", &operators)
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        until("it serves", async || grpc::is_serving(&url).await).await;
        Self {
            url,
            operators_url: format!("http://{operators}"),
            child,
        }
    }

    pub fn channel(&self) -> Channel {
        connect(&self.url)
    }

    /// For operators.
    pub fn operators(&self) -> Channel {
        connect(&self.operators_url)
    }

    /// Kills it with SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }
}

/// Expects a refusal with this code and reason.
#[track_caller]
pub fn check_refusal(answer: Result<impl Sized, Status>, code: Code, reason: &str) {
    let Err(status) = answer else {
        panic!("not refused");
    };
    assert_eq!(status.code(), code, "{status}");
    assert_eq!(grpc::reason(&status).as_deref(), Some(reason));
}

/// Expects INVALID_ARGUMENT that names exactly this field.
#[track_caller]
pub fn check_invalid(answer: Result<impl Sized, Status>, field: &str) {
    let Err(status) = answer else {
        panic!("{field} was not refused");
    };
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let violations = grpc::violations(&status);
    let fields: Vec<&str> = violations.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, [field]);
}
