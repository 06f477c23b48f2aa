//! A process's logs and traces.
//!
//! Logs are text on a terminal and JSON elsewhere. Spans are exported only if the standard
//! `OTEL_*` variables say where to; otherwise there is no exporter and no context travels. The log
//! level does not affect traces.
//!
//! A request's id travels with its calls, whether or not spans are exported.
//!
//! Promise: whatever `RUST_LOG` says, libraries log nothing below INFO, because there they log
//! what goes over connections, keys and codes included.
//!
//! What nobody listens to costs nothing: every filter decides for a call site once and names its
//! lowest level, so that tracing asks nobody at run time.

mod json_lines;
mod request_id;

use std::{collections::HashMap, io::IsTerminal as _};

use anyhow::Context as _;
use opentelemetry::{
    propagation::{Extractor, TextMapPropagator as _},
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::{WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Level, Metadata, Span, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{FilterExt as _, dynamic_filter_fn, filter_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

pub use self::request_id::current_request_id;
use self::{json_lines::JsonLines, request_id::RequestIds};
use crate::{config::Telemetry, error_chain::chain, metrics};

/// Our own crates. All others are libraries.
const OURS: [&str; 12] = [
    "charges_svc",
    "chassis",
    "db",
    "gateway",
    "merchants_svc",
    "payctl",
    "rails",
    "railsim",
    "ratelimit_svc",
    "sessions_svc",
    "stack",
    "webhooks_svc",
];

/// The lowest level of our spans.
const EXPORTED_MOST: LevelFilter = LevelFilter::DEBUG;

/// Sends the remaining spans when dropped.
pub struct TelemetryGuard(Option<SdkTracerProvider>);

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            eprintln!("the last spans were not exported: {error}");
        }
    }
}

/// Starts logs, metrics and, if configured, traces. Call once per process.
pub fn start(service: &'static str, config: &Telemetry) -> anyhow::Result<TelemetryGuard> {
    metrics::install();
    let wanted = EnvFilter::try_new(&config.log)
        .with_context(|| format!("RUST_LOG is no filter: {}", config.log))?;
    let provider = config
        .traces_endpoint()
        .map(|endpoint| exporter(service, endpoint, config))
        .transpose()?;
    let logs = if std::io::stderr().is_terminal() {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .boxed()
    } else {
        JsonLines(std::io::stderr).boxed()
    };
    let may_be_logged = filter_fn(may_be_logged).with_max_level_hint(LevelFilter::TRACE);
    let logs = logs
        .and_then(RequestIds)
        .with_filter(wanted.and(may_be_logged));
    let subscriber = tracing_subscriber::registry().with(logs);
    // Without an exporter there is no layer for it: even an empty one would make tracing ask at run
    // time.
    let started = match &provider {
        Some(provider) => {
            // Asked each time: with two filters that decide for good, one that some library asks in
            // passing, as sqlx does, would stay decided for whatever is logged next.
            let exported = dynamic_filter_fn(|metadata, _| may_be_exported(metadata))
                .with_max_level_hint(EXPORTED_MOST);
            let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer(service));
            subscriber.with(traces.with_filter(exported)).try_init()
        }
        None => subscriber.try_init(),
    };
    started.context("telemetry was started before")?;
    Ok(TelemetryGuard(provider))
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

/// All our spans down to [`EXPORTED_MOST`], and their events at INFO and above.
fn may_be_exported(metadata: &Metadata<'_>) -> bool {
    is_ours(metadata) && (metadata.is_span() || *metadata.level() <= Level::INFO)
}

fn exporter(
    service: &'static str,
    endpoint: &str,
    config: &Telemetry,
) -> anyhow::Result<SdkTracerProvider> {
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint);
    if let Some(tls) = config.collector_tls(endpoint)? {
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

/// Makes the span a child of the one in `traceparent`.
pub fn set_parent(span: &Span, traceparent: Option<&str>) {
    let Some(traceparent) = traceparent else {
        return;
    };
    let parent = TraceContextPropagator::new().extract(&Traceparent(traceparent));
    if let Err(error) = span.set_parent(parent) {
        tracing::trace!(error = %chain(&error), "spans are not exported");
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
