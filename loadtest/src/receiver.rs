//! The merchants' webhook endpoint: keeps connections alive, verifies signatures (spec §6.3), and
//! tells whoever waits for an event of a session.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use ::http::{HeaderMap, StatusCode};
use anyhow::{Context as _, ensure};
use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    routing::post,
};
use chassis::{
    error_chain::chain,
    http,
    shutdown::{Shutdown, Tasks},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use sha2::Sha256;
use tokio::{net::TcpListener, sync::oneshot};

use crate::plan::Code;

/// A receiver that runs until it is dropped.
pub struct Receiver {
    url: String,
    inbox: Arc<Inbox>,
    shutdown: Shutdown,
}

#[derive(Default)]
struct Inbox {
    /// By merchant.
    secrets: RwLock<HashMap<String, String>>,
    /// By session.
    sessions: Mutex<HashMap<String, Arrival>>,
    received: AtomicU64,
    refused: AtomicU64,
}

/// A session's event.
enum Arrival {
    Awaited(oneshot::Sender<()>),
    /// Before anybody asked for it.
    Early,
}

#[derive(Deserialize)]
struct Event {
    data: EventData,
}

#[derive(Deserialize)]
struct EventData {
    session_id: String,
}

impl Receiver {
    /// Listens at `listen`, which others reach at `url` if that is given.
    pub async fn start(listen: SocketAddr, url: Option<&str>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let own = format!("http://{}", listener.local_addr()?);
        let inbox = Arc::<Inbox>::default();
        let router = Router::new()
            .route("/{merchant_id}", post(receive))
            .with_state(inbox.clone());
        let shutdown = Shutdown::new();
        let served = http::serve(router, listener, http::Limits::default(), shutdown.clone());
        Tasks::new().spawn(async {
            if let Err(error) = served.await {
                eprintln!("the receiver failed: {}", chain(error.as_ref()));
            }
        });
        Ok(Self {
            url: url.map_or(own, str::to_owned),
            inbox,
            shutdown,
        })
    }

    /// Where this merchant's events are to be sent.
    pub fn url(&self, merchant_id: &str) -> String {
        format!("{}/{merchant_id}", self.url)
    }

    /// Expects events of this merchant, signed with its secret.
    pub fn expect(&self, merchant_id: &str, secret: String) {
        // No code panics while it holds the lock.
        let secrets = self.inbox.secrets.write();
        let mut secrets = secrets.unwrap_or_else(PoisonError::into_inner);
        secrets.insert(merchant_id.to_owned(), secret);
    }

    /// Waits until the session's event arrives.
    pub async fn arrival(&self, session_id: &str) -> Result<(), Code> {
        let arrived = {
            let mut sessions = self.inbox.sessions();
            if sessions.remove(session_id).is_some() {
                return Ok(());
            }
            let (sender, arrived) = oneshot::channel();
            sessions.insert(session_id.to_owned(), Arrival::Awaited(sender));
            arrived
        };
        arrived.await.map_err(|_| Code::Borrowed("not delivered"))
    }

    /// Events that arrived, each as often as it did.
    pub fn received(&self) -> u64 {
        self.inbox.received.load(Ordering::Relaxed)
    }

    /// Deliveries with a wrong signature or body.
    pub fn refused(&self) -> u64 {
        self.inbox.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

async fn receive(
    State(inbox): State<Arc<Inbox>>,
    Path(merchant_id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    match inbox.take(&merchant_id, &headers, &body) {
        Ok(()) => StatusCode::OK,
        Err(error) => {
            inbox.refused.fetch_add(1, Ordering::Relaxed);
            eprintln!("a delivery is refused: {}", chain(error.as_ref()));
            StatusCode::BAD_REQUEST
        }
    }
}

impl Inbox {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arrival>> {
        // No code panics while it holds the lock.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, merchant_id: &str, headers: &HeaderMap, body: &[u8]) -> anyhow::Result<()> {
        let signature = headers.get("x-service-signature");
        let signature = signature.context("no signature")?.to_str()?;
        {
            let secrets = self.secrets.read();
            let secrets = secrets.unwrap_or_else(PoisonError::into_inner);
            let secret = secrets.get(merchant_id).context("an unknown merchant")?;
            verify(secret, signature, body)?;
        }
        let event: Event = serde_json::from_slice(body)?;
        self.received.fetch_add(1, Ordering::Relaxed);
        let mut sessions = self.sessions();
        match sessions.remove(&event.data.session_id) {
            Some(Arrival::Awaited(waiting)) => {
                let _has_given_up = waiting.send(()).is_err();
            }
            Some(Arrival::Early) | None => {
                sessions.insert(event.data.session_id, Arrival::Early);
            }
        }
        Ok(())
    }
}

/// Checks `t=<unix seconds>,v1=<hex>`, in constant time.
fn verify(secret: &str, signature: &str, body: &[u8]) -> anyhow::Result<()> {
    let mut parts = signature.split(',');
    let time = parts.next().and_then(|part| part.strip_prefix("t="));
    let time = time.context("the signature has no time")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body);
    let mut signed = parts.filter_map(|part| hex::decode(part.strip_prefix("v1=")?).ok());
    let is_right = signed.any(|digest| mac.clone().verify_slice(&digest).is_ok());
    ensure!(is_right, "the signature is wrong");
    Ok(())
}
