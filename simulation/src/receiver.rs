//! The merchants' webhook receiver: it fails, is slow, acknowledges what it then forgets, and logs
//! every delivery as it came.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use chassis::{error_chain::chain, shutdown::Tasks};
use tokio::net::TcpListener;

use crate::{
    choice::Choices,
    driver::lock,
    time::{MINUTE, Millis, Time},
};

/// Longer than a delivery waits for its answer (10 s, spec §6.2) by more than a step of time.
const TOO_SLOW: Millis = 20_000;

/// One attempt as it was received.
#[derive(Clone, Debug)]
pub struct ReceivedAttempt {
    pub merchant: usize,
    pub event_id: String,
    /// The signature header: signed time in Unix seconds, and signatures.
    pub signature: String,
    pub body: Bytes,
    /// Whether it was answered with 2xx in time, as far as the receiver knows.
    pub acknowledged: bool,
}

/// The receiver. Clones share its log.
#[derive(Clone)]
pub struct Receiver(Arc<Shared>);

struct Shared {
    seed: u64,
    time: Time,
    address: SocketAddr,
    calm: AtomicBool,
    log: Mutex<Vec<ReceivedAttempt>>,
    // Serves until the world ends.
    _tasks: Tasks,
}

#[derive(Clone, Copy)]
enum ReceiverReply {
    Good,
    Failure,
    Elsewhere,
    TooLate,
    /// It keeps the event, but its answer never arrives in time.
    Forgetful,
}

impl Receiver {
    /// # Errors
    /// No socket can be had.
    pub async fn start(seed: u64, time: Time) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let tasks = Tasks::new();
        let receiver = Self(Arc::new(Shared {
            seed,
            time,
            address: listener.local_addr()?,
            calm: AtomicBool::new(false),
            log: Mutex::default(),
            _tasks: tasks.clone(),
        }));
        let router = Router::new()
            .route("/hooks/{merchant}", post(receive))
            .with_state(receiver.clone());
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(error = %chain(&error), "the receiver ended");
            }
        });
        Ok(receiver)
    }

    pub fn url(&self, merchant: usize) -> String {
        format!("http://{}/hooks/{merchant}", self.0.address)
    }

    /// From now on everything is acknowledged.
    pub fn calm(&self) {
        self.0.calm.store(true, Ordering::SeqCst);
    }

    pub fn log(&self) -> Vec<ReceivedAttempt> {
        lock(&self.0.log).clone()
    }

    fn answer(&self, merchant: usize, number: usize) -> ReceiverReply {
        if self.0.calm.load(Ordering::SeqCst) {
            return ReceiverReply::Good;
        }
        let mut outage = Choices::of(self.0.seed, &format!("receiver {merchant}"));
        let from = outage.below(60) * MINUTE;
        let until = from + outage.below(90) * MINUTE;
        let has_outage = outage.chance(300);
        if has_outage && (from..until).contains(&self.0.time.now()) {
            return ReceiverReply::Failure;
        }
        let mut choices = Choices::of(self.0.seed, &format!("receiver {merchant} {number}"));
        choices.weighted(&[
            (740, ReceiverReply::Good),
            (120, ReceiverReply::Failure),
            (20, ReceiverReply::Elsewhere),
            (60, ReceiverReply::TooLate),
            (60, ReceiverReply::Forgetful),
        ])
    }
}

async fn receive(
    State(receiver): State<Receiver>,
    Path(merchant): Path<usize>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (number, answer) = {
        let mut log = lock(&receiver.0.log);
        let answer = receiver.answer(merchant, log.len());
        log.push(ReceivedAttempt {
            merchant,
            event_id: header("x-service-event-id"),
            signature: header("x-service-signature"),
            body,
            acknowledged: false,
        });
        (log.len() - 1, answer)
    };
    match answer {
        ReceiverReply::Good => {
            if let Some(received) = lock(&receiver.0.log).get_mut(number) {
                received.acknowledged = true;
            }
            StatusCode::OK.into_response()
        }
        ReceiverReply::Failure => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        ReceiverReply::Elsewhere => (StatusCode::FOUND, [("location", "/")]).into_response(),
        ReceiverReply::TooLate => {
            receiver.0.time.sleep(TOO_SLOW).await;
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
        ReceiverReply::Forgetful => {
            receiver.0.time.sleep(TOO_SLOW).await;
            StatusCode::OK.into_response()
        }
    }
}
