//! A proxy to PostgreSQL that can hold up a commit, or a statement that commits by itself: the server
//! gets everything before it, and the commit itself only once it is let go, whether or not anybody
//! still waits for the answer. The text of a statement comes by only when its connection first prepares it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use chassis::shutdown::{Shutdown, Tasks};
use reqwest::Url;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A commit as a simple query: its type, its length and its text.
pub const COMMIT: &[u8] = b"Q\0\0\0\x0bcommit\0";

pub struct CommitWire {
    /// The URL of the same database, through the proxy.
    pub url: String,
    holds: Arc<Holds>,
    stop: Shutdown,
}

#[derive(Default)]
struct Holds {
    /// What to hold when it comes next: a part of the message.
    next: Mutex<Option<&'static [u8]>>,
    /// Whether it has been held.
    held: AtomicBool,
    let_go: Shutdown,
}

impl CommitWire {
    /// Starts a proxy to the server of this URL.
    pub async fn lay(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near: Url = url.parse().unwrap();
        let server = format!(
            "{}:{}",
            near.host_str().unwrap(),
            near.port().unwrap_or(5432)
        );
        let at = listener.local_addr().unwrap();
        near.set_host(Some(&at.ip().to_string())).unwrap();
        near.set_port(Some(at.port())).unwrap();
        let (holds, stop) = (Arc::new(Holds::default()), Shutdown::new());
        let (each, ends, tasks) = (holds.clone(), stop.clone(), Tasks::new());
        tasks.clone().spawn(async move {
            while let Some(Ok((near, _))) = tokio::select! {
                accepted = listener.accept() => Some(accepted),
                () = ends.wait() => None,
            } {
                let far = TcpStream::connect(&server).await.unwrap();
                tasks.spawn(carry(near, far, each.clone(), tasks.clone()));
            }
        });
        Self {
            url: near.to_string(),
            holds,
            stop,
        }
    }

    pub fn hold_the_next(&self, text: &'static [u8]) {
        *self.holds.next.lock().unwrap() = Some(text);
    }

    pub fn is_holding(&self) -> bool {
        self.holds.held.load(Ordering::SeqCst)
    }

    pub fn let_go(&self) {
        self.holds.let_go.begin();
    }
}

impl Drop for CommitWire {
    fn drop(&mut self) {
        self.let_go();
        self.stop.begin();
    }
}

async fn carry(near: TcpStream, far: TcpStream, holds: Arc<Holds>, tasks: Tasks) {
    let (mut asked, mut answers) = near.into_split();
    let (mut answered, mut asks) = far.into_split();
    tasks.spawn(async move {
        // There may be nobody left to receive it.
        tokio::io::copy(&mut answered, &mut answers).await.ok();
    });
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = asked.read(&mut bytes).await {
        let part = &bytes[..length];
        let is_part = |text: &[u8]| part.windows(text.len()).any(|window| window == text);
        let held = holds.next.lock().unwrap().take_if(|next| is_part(next));
        if held.is_some() {
            holds.held.store(true, Ordering::SeqCst);
            holds.let_go.wait().await;
        }
        if asks.write_all(part).await.is_err() {
            return;
        }
    }
}
