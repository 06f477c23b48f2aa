//! A way to Redis that can be closed, as if Redis hung.

use chassis::testing::listen;
use redis::{Client, ConnectionAddr};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
};

/// Open at first. What comes while it is closed passes once it is open again.
pub struct Gate {
    url: String,
    is_open: watch::Sender<bool>,
    _passing: JoinSet<()>,
}

impl Gate {
    /// A gate with nothing behind it never answers.
    pub async fn before(redis_url: Option<&str>) -> Self {
        let redis = redis_url.map(|url| {
            let client = Client::open(url).unwrap();
            match client.get_connection_info().addr() {
                ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
                other => panic!("a gate cannot stand before {other}"),
            }
        });
        let listener = listen().await;
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let (is_open, open) = watch::channel(true);
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((caller, _)) = listener.accept().await {
                connections.spawn(connection(caller, redis.clone(), open.clone()));
            }
        });
        Self {
            url,
            is_open,
            _passing: passing,
        }
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    pub fn open(&self) {
        self.is_open.send_replace(true);
    }
}

async fn connection(caller: TcpStream, redis: Option<(String, u16)>, open: watch::Receiver<bool>) {
    let Some(redis) = redis else {
        return std::future::pending().await;
    };
    let redis = TcpStream::connect(redis).await.unwrap();
    let ((from_caller, to_caller), (from_redis, to_redis)) =
        (caller.into_split(), redis.into_split());
    tokio::join!(
        pass(from_caller, to_redis, open.clone()),
        pass(from_redis, to_caller, open),
    );
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut open: watch::Receiver<bool>,
) {
    let mut bytes = [0; 4_096];
    while let Ok(len @ 1..) = from.read(&mut bytes).await
        && open.wait_for(|open| *open).await.is_ok()
        && to.write_all(&bytes[..len]).await.is_ok()
    {}
}
