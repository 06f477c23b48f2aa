//! A lean HTTP/1.1 client: kept-alive connections, and nothing between a request and its bytes,
//! because the load tester shares the machine with what it measures.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use chassis::shutdown::Tasks;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::plan::Code;

/// A client of one server.
pub struct Client {
    /// `host:port`.
    authority: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    connections: Tasks,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Client {
    /// For a server at `http://host:port`.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        ensure!(uri.scheme_str() == Some("http"), "{url} is not http://");
        let host = uri.host().with_context(|| format!("{url} has no host"))?;
        let port = uri.port_u16().unwrap_or(80);
        Ok(Self {
            authority: format!("{host}:{port}"),
            idle: Mutex::default(),
            connections: Tasks::new(),
        })
    }

    /// Sends a request, whose URI is a path. A failure without an answer is a code.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Code> {
        let host = self.authority.parse();
        let host = host.map_err(|_| Code::Borrowed("no such host"))?;
        request.headers_mut().insert(http::header::HOST, host);
        let mut connection = self.connection().await?;
        let answer = connection.send_request(request).await;
        let answer = answer.map_err(|_| Code::Borrowed("connection broke"))?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await;
        let body = body.map_err(|_| Code::Borrowed("answer broke off"))?;
        self.idle().push(connection);
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        })
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, Code> {
        loop {
            let Some(mut kept) = self.idle().pop() else {
                return self
                    .connect()
                    .await
                    .map_err(|_| Code::Borrowed("no connection"));
            };
            // The server closes connections that were idle for long.
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        self.connections.spawn(async {
            // How it ended shows in its requests.
            drop(connection.await);
        });
        Ok(sender)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<Full<Bytes>>>> {
        // No code panics while it holds the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
