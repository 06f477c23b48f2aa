//! Logs, traces and metrics of a process.
//!
//! Logs are text on a terminal and JSON elsewhere. Spans are exported only when the standard
//! `OTEL_*` variables say where to; otherwise no exporter exists and no context travels. What is
//! logged and what is exported are chosen apart: fewer logs are no fewer traces.
//!
//! Promise: whatever `RUST_LOG` asks for, libraries tell nothing below INFO. What they would tell
//! there is what goes over connections, keys and codes included.

use std::{
    collections::HashMap, fs, io::IsTerminal as _, path::Path, sync::OnceLock, thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::{
    propagation::{Extractor, TextMapPropagator as _},
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::{WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tracing::{Level, Metadata, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{FilterExt as _, filter_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{config::Telemetry, http::install_tls};

/// Our own crates. Every other one is a library.
const OURS: [&str; 11] = [
    "charges_svc",
    "chassis",
    "db",
    "gateway",
    "merchants_svc",
    "payctl",
    "railsim",
    "ratelimit_svc",
    "sessions_svc",
    "stack",
    "webhooks_svc",
];

/// Buckets of every duration, in seconds: from a cached look-up to a rail that times out.
const SECONDS: [Seconds; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

#[expect(
    clippy::disallowed_types,
    reason = "a bucket of a histogram, not money"
)]
type Seconds = f64;

/// How often measured durations are sorted into their buckets, so that they take no memory of
/// their own where nobody asks for `/metrics`.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();

/// Sends what is left when it is dropped.
pub struct Guard(Option<SdkTracerProvider>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            eprintln!("the last spans were not exported: {error}");
        }
    }
}

/// Starts logs, metrics and, where configured, traces. Once per process.
pub fn start(service: &'static str, config: &Telemetry) -> anyhow::Result<Guard> {
    install_metrics();
    let wanted = EnvFilter::try_new(&config.log)
        .with_context(|| format!("RUST_LOG is no filter: {}", config.log))?;
    let provider = config
        .traces_endpoint()
        .map(|endpoint| exporter(service, endpoint, config.authority()))
        .transpose()?;
    let traces = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)))
        .map(|layer| layer.with_filter(filter_fn(may_be_exported)));
    let logs = if std::io::stderr().is_terminal() {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .boxed()
    } else {
        tracing_subscriber::fmt::layer()
            .json()
            .with_writer(std::io::stderr)
            .boxed()
    };
    tracing_subscriber::registry()
        .with(logs.with_filter(wanted.and(filter_fn(may_be_logged))))
        .with(traces)
        .try_init()
        .context("telemetry was started before")?;
    Ok(Guard(provider))
}

/// Whether `text` says what is logged.
pub fn is_filter(text: &str) -> bool {
    EnvFilter::try_new(text).is_ok()
}

/// # Errors
/// Spans cannot be exported to `endpoint`, whose certificate `authority` signed, or one that the
/// system trusts.
pub fn check_endpoint(endpoint: &str, authority: Option<&Path>) -> anyhow::Result<()> {
    let collector = Endpoint::from_shared(endpoint.to_owned())?;
    let scheme = collector.uri().scheme_str();
    ensure!(
        matches!(scheme, Some("http" | "https")),
        "it is not http(s)"
    );
    if let Some(tls) = collector_tls(endpoint, authority)? {
        collector.tls_config(tls)?;
    }
    Ok(())
}

/// How a collector at https:// is known.
fn collector_tls(
    endpoint: &str,
    authority: Option<&Path>,
) -> anyhow::Result<Option<ClientTlsConfig>> {
    let uri: http::Uri = endpoint.parse()?;
    if uri.scheme_str() != Some("https") {
        return Ok(None);
    }
    install_tls();
    let tls = ClientTlsConfig::new();
    Ok(Some(match authority {
        Some(file) => tls.ca_certificate(Certificate::from_pem(fs::read(file)?)),
        None => tls.with_native_roots(),
    }))
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    let name = metadata.target().split("::").next();
    name.is_some_and(|name| OURS.contains(&name))
}

fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let is_sqlx = metadata.target().starts_with("sqlx");
    let most = if is_sqlx { Level::WARN } else { Level::INFO };
    is_ours(metadata) || *metadata.level() <= most
}

/// All our spans, and what they tell at INFO and above.
fn may_be_exported(metadata: &Metadata<'_>) -> bool {
    is_ours(metadata) && (metadata.is_span() || *metadata.level() <= Level::INFO)
}

fn exporter(
    service: &'static str,
    endpoint: &str,
    authority: Option<&Path>,
) -> anyhow::Result<SdkTracerProvider> {
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint);
    if let Some(tls) = collector_tls(endpoint, authority)? {
        exporter = exporter.with_tls_config(tls);
    }
    let exporter = exporter
        .build()
        .with_context(|| format!("spans cannot be exported to {endpoint}"))?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build())
}

/// Starts to count. Several services may share one process and its counters.
fn install_metrics() -> &'static PrometheusHandle {
    METRICS.get_or_init(|| {
        let builder = PrometheusBuilder::new()
            .set_buckets(&SECONDS)
            .expect("there are buckets");
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("something else counts in this process; /metrics stays empty");
        }
        let sorted = handle.clone();
        // A thread, because the process may have several runtimes, as tests do.
        thread::spawn(move || {
            loop {
                thread::sleep(UPKEEP_EVERY);
                sorted.run_upkeep();
            }
        });
        handle
    })
}

/// Every metric of the process, as Prometheus reads it.
pub fn render_metrics() -> String {
    let handle = install_metrics();
    handle.run_upkeep();
    handle.render()
}

/// The W3C `traceparent` of the current span, if spans are exported.
pub fn current_traceparent() -> Option<String> {
    let context = Span::current().context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut headers);
    headers.remove("traceparent")
}

/// Makes the span a child of the one that `traceparent` names.
pub fn set_parent(span: &Span, traceparent: Option<&str>) {
    let Some(traceparent) = traceparent else {
        return;
    };
    let parent = TraceContextPropagator::new().extract(&Traceparent(traceparent));
    if let Err(error) = span.set_parent(parent) {
        tracing::trace!(%error, "spans are not exported");
    }
}

struct Traceparent<'a>(&'a str);

impl Extractor for Traceparent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}
