//! A process's admin address: `/healthz` (it is alive), `/readyz` (what it depends on answers) and
//! `/metrics`. Not public.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures::future::join_all;
use serde_json::{Map, Value};
use tokio::net::TcpListener;

use crate::{http, metrics, shutdown::Shutdown};

/// How long an answer of this address may delay the end of a drained process.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Longest wait for one check.
const CHECK_MAX: Duration = Duration::from_secs(2);

/// Longest wait for all of them together.
const ANSWER_MAX: Duration = Duration::from_secs(4);

type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// Named checks that must all pass for the process to be ready.
#[derive(Clone, Default)]
pub struct Readiness(Vec<(&'static str, Check)>);

impl Readiness {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check whether something that the process depends on answers.
    #[must_use]
    pub fn check<F>(
        mut self,
        name: &'static str,
        passes: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        self.0.push((name, Arc::new(move || Box::pin(passes()))));
        self
    }
}

/// Runs `serving` with the admin address, if there is one, beside it. The process reports itself
/// not ready from the moment it begins to stop until `serving` has drained.
pub async fn beside(
    serving: impl Future<Output = anyhow::Result<()>>,
    listener: Option<TcpListener>,
    readiness: Readiness,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let Some(listener) = listener else {
        return serving.await;
    };
    let drained = Shutdown::new();
    let serving = async {
        let served = serving.await;
        drained.begin();
        served
    };
    let limits = http::Limits {
        drain_max: DRAIN_MAX,
        ..http::Limits::default()
    };
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(async || metrics::render()))
        .with_state((readiness, shutdown.clone()));
    let admin = http::serve(router, listener, limits, drained.clone());
    let (served, admin) = tokio::join!(serving, shutdown.begin_on_failure(admin));
    served.and(admin)
}

/// Asks the process at this admin address whether it is ready.
///
/// # Errors
/// It is not ready, or does not answer.
pub(crate) async fn ask_ready(mut address: SocketAddr) -> anyhow::Result<String> {
    if address.ip().is_unspecified() {
        let is_v4 = address.is_ipv4();
        address.set_ip(if is_v4 {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    let client = http::client(ANSWER_MAX)?;
    let answer = client.get(format!("http://{address}/readyz")).send().await;
    let answer = answer.with_context(|| format!("nothing answers on ADMIN_LISTEN={address}"))?;
    let is_ready = answer.status().is_success();
    let checks = answer.text().await?;
    ensure!(is_ready, "not ready: {checks}");
    Ok(checks)
}

async fn ready(State((readiness, shutdown)): State<(Readiness, Shutdown)>) -> Response {
    let checks = readiness.0.iter().map(async |(name, check)| {
        let passes = tokio::time::timeout(CHECK_MAX, check()).await;
        (*name, passes.unwrap_or(false))
    });
    let mut checks = join_all(checks).await;
    checks.push(("not stopping", !shutdown.has_begun()));
    let all = checks.iter().all(|(_, passes)| *passes);
    let status = if all {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body: Map<String, Value> = checks
        .into_iter()
        .map(|(name, passes)| (name.to_owned(), passes.into()))
        .collect();
    (status, Json(body)).into_response()
}
