//! A payment is one trace, from the merchant's request to the webhook attempt, across every
//! process and everything that waited in a database in between. It is exported if and where the
//! standard variables say.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use chassis::{config::Tls, shutdown::Tasks};
use futures::future::join_all;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{Span, span::SpanKind},
};
use proto::ratelimit::{
    Bucket, CheckAllRequest, CheckRequest, rate_limits_client::RateLimitsClient,
};
use serde_json::{Value, json};
use stack::demo::{Api, Receiver};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

use crate::{
    callers::certificates,
    processes::{Merchant, Processes},
};

const WAIT_MAX: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The variable with the address of an operator's collector.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

const PHONE: &str = "0249371001";
const EMAIL: &str = "ama.canary@payer-mail.example";
const RECEIVER_TOKEN: &str = "receiver-token-4f1c";

const REQUEST: &str = "POST /api/v1/payments/charge";
const CREATE: &str = "payments.charges.v1.Charges/CreateCharge";
const INITIATE: &str = "/api/v1/payments/initiate";
const CREATE_SESSION: &str = "payments.sessions.v1.Sessions/CreateSession";
const CARRY: &str = "payments.batch.v1.Batches/Carry";
const RECORD: &str = "payments.sessions.v1.Sessions/RecordTransaction";
const PUBLISH: &str = "payments.webhooks.v1.Webhooks/Publish";

/// How many requests come at the same moment.
const BURST: usize = 16;

/// A span and its service.
#[derive(Clone, Debug)]
struct Exported {
    service: String,
    span: Span,
}

/// Collects what processes export.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Exported>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut kept = self.0.lock().unwrap();
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let service = text(&attributes, "service.name").unwrap();
            let spans = resource.scope_spans.into_iter();
            kept.extend(spans.flat_map(|scope| scope.spans).map(|span| Exported {
                service: service.clone(),
                span,
            }));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Listens on a free port. Returns its URL too.
    async fn start() -> (Self, String) {
        Self::start_with(None).await
    }

    /// Like `start`, but over TLS if there is a certificate.
    async fn start_with(tls: Option<&Tls>) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let collector = Self::default();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            let read = |file: &Option<PathBuf>| std::fs::read(file.as_ref().unwrap()).unwrap();
            let identity = Identity::from_pem(read(&tls.tls_cert), read(&tls.tls_key));
            let config = ServerTlsConfig::new().identity(identity);
            server = server.tls_config(config).unwrap();
        }
        let server = server
            .add_service(TraceServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        Tasks::new().spawn(async { server.await.unwrap() });
        (collector, url)
    }

    fn has(&self, name: &str) -> bool {
        self.spans().iter().any(|one| one.span.name == name)
    }

    /// In how many traces with the first span there is the second, and wherever it is, right below it
    /// and of the same request.
    fn traces(&self, above: &str, below: &str) -> usize {
        let spans = self.spans();
        let named = |name| {
            spans
                .iter()
                .filter(move |one: &&Exported| one.span.name == name)
        };
        let has_it = |parent: &&Exported| {
            let parent = &parent.span;
            let children = named(below).map(|child| &child.span);
            let mut children = children
                .filter(|child| child.trace_id == parent.trace_id)
                .peekable();
            let request_id = text(&parent.attributes, "request.id");
            children.peek().is_some()
                && children.all(|child| {
                    child.parent_span_id == parent.span_id
                        && text(&child.attributes, "request.id") == request_id
                })
        };
        named(above).filter(has_it).count()
    }

    fn spans(&self) -> Vec<Exported> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for the trace that contains a span with this name, until all of these (service, span)
    /// and every span's parent are in it.
    async fn wait_for_trace(&self, name: &str, wanted: &[(&str, &str)]) -> Trace {
        let looking = async {
            loop {
                if let Some(trace) = Trace::of(&self.spans(), name)
                    && trace.is_whole()
                    && wanted
                        .iter()
                        .all(|(service, name)| trace.find(service, name).is_some())
                {
                    return trace;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let found = tokio::time::timeout(WAIT_MAX, looking).await;
        found.unwrap_or_else(|_| {
            let spans = self.spans();
            let told = match Trace::of(&spans, name) {
                Some(trace) => trace.0.values().map(|one| trace.tell(one)).collect(),
                None => Vec::new(),
            };
            panic!("not all of {wanted:?} in one whole trace: {told:#?}")
        })
    }
}

/// The spans of one trace, by their ids.
struct Trace(BTreeMap<Vec<u8>, Exported>);

impl Trace {
    fn of(spans: &[Exported], name: &str) -> Option<Self> {
        let id = &spans
            .iter()
            .find(|one| one.span.name == name)?
            .span
            .trace_id;
        let of_trace = spans.iter().filter(|one| &one.span.trace_id == id);
        let by_id = of_trace.map(|one| (one.span.span_id.clone(), one.clone()));
        Some(Self(by_id.collect()))
    }

    /// Whether there is one root, and every other span's parent is present.
    fn is_whole(&self) -> bool {
        let spans = self.0.values().map(|one| &one.span);
        let orphans = spans.filter(|span| !self.0.contains_key(&span.parent_span_id));
        let orphans: Vec<_> = orphans.collect();
        matches!(&orphans[..], [root] if root.parent_span_id.is_empty())
    }

    fn find(&self, service: &str, name: &str) -> Option<&Span> {
        let mut spans = self.0.values();
        let found = spans.find(|one| one.service == service && one.span.name == name)?;
        Some(&found.span)
    }

    /// The names of the span and its ancestors.
    fn path(&self, span: &Span) -> Vec<&str> {
        let parent = |one: &&Exported| self.0.get(&one.span.parent_span_id);
        let first = self.0.get(&span.span_id);
        let path = std::iter::successors(first, |one| parent(one));
        path.map(|one| one.span.name.as_str()).collect()
    }

    fn tell(&self, one: &Exported) -> String {
        format!("{}: {}", one.service, self.path(&one.span).join(" < "))
    }

    /// The statements that a service ran.
    fn statements(&self, service: &str) -> Vec<String> {
        let of_service = self.0.values().filter(|one| one.service == service);
        let statements = of_service.filter(|one| one.span.name == "sql");
        statements
            .map(|one| text(&one.span.attributes, "db.query.text").unwrap())
            .collect()
    }
}

/// An attribute as text.
fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|one| one.key == key)?;
    let Some(AnyValue { value: Some(value) }) = &found.value else {
        return None;
    };
    match value {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        any_value::Value::BoolValue(is_so) => Some(is_so.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

#[track_caller]
fn check(span: &Span, kind: SpanKind, attributes: &[(&str, &str)]) {
    assert_eq!(span.kind(), kind, "{}", span.name);
    for (key, value) in attributes {
        let found = text(&span.attributes, key);
        assert_eq!(found.as_deref(), Some(*value), "{key} of {span:#?}");
    }
}

/// Processes, not started yet, that export to this collector without a long wait.
async fn exporting_to(url: &str) -> Processes {
    let mut processes = Processes::plan().await;
    for process in processes.all() {
        let soon = ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned());
        process.env.extend([(ENDPOINT, url.to_owned()), soon]);
    }
    processes
}

/// Charges 25.50 GHS. Returns once the charge has settled and its webhook has arrived.
async fn pay(processes: &Processes) -> Merchant {
    let receiver = Receiver::start().await.unwrap();
    let url = format!("{}?token={RECEIVER_TOKEN}", receiver.url);
    let merchant = processes.merchant(&url).await;
    let api = Api::new(&processes.gateway.url, &merchant.api_key).unwrap();
    let body = json!({
        "amount": 25.5, "mobile_number": PHONE, "provider": "MTN", "payer_email": EMAIL,
    });
    let answer = api.post("/api/v1/payments/charge", &body).await.unwrap();
    answer.expect(202).unwrap();
    let reference = answer.text("reference").unwrap();
    let path = format!("/api/v1/payments/charge/{reference}");
    let is_settled = |charge: &Value| charge["status"] == "SETTLED";
    api.poll(&path, WAIT_MAX, is_settled).await.unwrap();
    let display = reference.rsplit_once('-').unwrap().0;
    receiver.wait_for(display, WAIT_MAX).await.unwrap();
    processes.charges_db.until_relayed().await;
    merchant
}

#[tokio::test]
async fn a_payment_is_one_trace_from_the_request_to_the_webhook() {
    let (collector, url) = Collector::start().await;
    let mut processes = exporting_to(&url).await;
    for process in processes.all() {
        // The log level must not affect traces.
        process.env.push(("RUST_LOG", "error".to_owned()));
    }
    processes.start_all().await;
    let merchant = pay(&processes).await;
    let wanted = [
        ("gateway", REQUEST),
        (
            "merchants-svc",
            "payments.merchants.v1.Merchants/Authenticate",
        ),
        ("ratelimit-svc", "payments.ratelimit.v1.RateLimits/CheckAll"),
        ("charges-svc", CREATE),
        ("charges-svc", "rail.request_payment"),
        ("charges-svc", "reconcile"),
        ("charges-svc", "rail.query"),
        ("charges-svc", "relay"),
        ("sessions-svc", RECORD),
        ("webhooks-svc", PUBLISH),
        ("webhooks-svc", "webhook attempt"),
    ];
    let trace = collector.wait_for_trace(REQUEST, &wanted).await;
    check_payment(&trace, &merchant.merchant_id);
    check_statements(&trace);
    check_nothing_secret(&collector.spans(), &merchant);
}

/// Requests that are sent on by one call keep their own traces and names.
#[tokio::test]
async fn sessions_that_are_created_together_are_each_in_their_requests_trace() {
    let (collector, url) = Collector::start().await;
    let mut processes = exporting_to(&url).await;
    processes.start_all().await;
    let merchant = processes.merchant("http://127.0.0.1:9").await;
    let api = Api::new(&processes.gateway.url, &merchant.api_key).unwrap();
    let body = json!({"amount": 25.5, "currency": "GHS"});
    let sending = async {
        let mut sent = 0;
        while !collector.has(CARRY) {
            let burst = (0..BURST).map(|_| api.post(INITIATE, &body));
            for answer in join_all(burst).await {
                answer.unwrap().expect(201).unwrap();
            }
            sent += BURST;
        }
        sent
    };
    let sent = tokio::time::timeout(WAIT_MAX, sending).await.unwrap();
    let requested = format!("POST {INITIATE}");
    let each_has_its_own = async {
        while collector.traces(&requested, CREATE_SESSION) < sent {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let seen = tokio::time::timeout(WAIT_MAX, each_has_its_own).await;
    assert!(
        seen.is_ok(),
        "{} of {sent}",
        collector.traces(&requested, CREATE_SESSION)
    );
}

/// Checks the attributes and the ancestors of each step.
fn check_payment(trace: &Trace, merchant_id: &str) {
    let find = |service, name| trace.find(service, name).unwrap();
    let request = [
        ("http.request.method", "POST"),
        ("http.route", "/api/v1/payments/charge"),
        ("http.response.status_code", "202"),
        ("merchant.id", merchant_id),
    ];
    check(find("gateway", REQUEST), SpanKind::Server, &request);
    let create = [
        ("rpc.system", "grpc"),
        ("rpc.method", CREATE),
        ("rpc.code", "Ok"),
    ];
    check(find("charges-svc", CREATE), SpanKind::Server, &create);
    assert_eq!(trace.path(find("charges-svc", CREATE)), [CREATE, REQUEST]);
    assert!(
        trace
            .path(find("sessions-svc", RECORD))
            .ends_with(&[CREATE, REQUEST])
    );
    let asked = find("charges-svc", "rail.request_payment");
    check(
        asked,
        SpanKind::Client,
        &[("rail", "momo"), ("outcome", "accepted")],
    );
    assert_eq!(trace.path(asked), ["rail.request_payment", CREATE, REQUEST]);

    let attempt = find("webhooks-svc", "webhook attempt");
    let attributes = [
        ("attempt", "1"),
        ("outcome", "succeeded"),
        ("event.type", "payment.success"),
        ("http.response.status_code", "200"),
    ];
    check(attempt, SpanKind::Client, &attributes);
    let path = [
        "webhook attempt",
        PUBLISH,
        "relay",
        "reconcile",
        CREATE,
        REQUEST,
    ];
    assert_eq!(trace.path(attempt), path);
}

/// Checks that SQL statements are exported without their values.
fn check_statements(trace: &Trace) {
    for (service, statement) in [
        ("merchants-svc", "select"),
        ("sessions-svc", "insert into sessions"),
        ("charges-svc", "insert into charges"),
        ("charges-svc", "insert into postings"),
        ("webhooks-svc", "insert into events"),
    ] {
        let statements = trace.statements(service);
        let is_there = statements.iter().any(|text| text.contains(statement));
        assert!(is_there, "{service}: {statements:#?}");
    }
}

/// Checks that keys, secrets, phone numbers and addresses stay out of traces, and that the queries
/// of idle loops start none.
fn check_nothing_secret(spans: &[Exported], merchant: &Merchant) {
    let secrets = [
        merchant.api_key.strip_prefix("service_sk_test_").unwrap(),
        merchant.signing_secret.strip_prefix("whsec_").unwrap(),
        &PHONE[1..],
        EMAIL,
        RECEIVER_TOKEN,
        "sk_test_processes",
    ];
    for one in spans {
        let told = format!("{one:?}");
        for secret in secrets {
            assert!(!told.contains(secret), "{secret} in {told}");
        }
        let is_root = one.span.parent_span_id.is_empty();
        assert!(!(is_root && one.span.name == "sql"), "{told}");
    }
}

#[tokio::test]
async fn without_the_variables_nothing_is_exported_and_no_context_is_kept() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut processes = Processes::plan().await;
    let charges = &mut processes.charges;
    // Switched off, even though there is an endpoint.
    charges.env.push((ENDPOINT, url.clone()));
    charges.env.push(("OTEL_SDK_DISABLED", "true".to_owned()));
    charges
        .env
        .push(("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()));
    processes.start_all().await;
    pay(&processes).await;
    for process in processes.all() {
        process.terminate().await;
    }
    for process in processes.all() {
        assert!(process.ended().await.success(), "{}", process.name);
    }
    let connected = listener.accept().map(|(_, client)| client);
    let error = connected.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    // There would be a context if an exporter had been started.
    let (charges, webhooks) = (&processes.charges_db, &processes.webhooks_db);
    let kept = [
        traceparents(&charges.connect().await, "select traceparent from charges").await,
        traceparents(&webhooks.connect().await, "select traceparent from events").await,
    ];
    assert_eq!(kept, [[None], [None]]);
}

/// Lines are searched by these two, whatever span they were written in.
#[tokio::test]
async fn each_log_line_of_a_request_has_its_ids() {
    let (collector, url) = Collector::start().await;
    let mut processes = exporting_to(&url).await;
    processes.start_all().await;
    pay(&processes).await;
    let wanted = [
        ("gateway", REQUEST),
        ("charges-svc", CREATE),
        ("sessions-svc", RECORD),
    ];
    let trace = collector.wait_for_trace(REQUEST, &wanted).await;
    let request = trace.find("gateway", REQUEST).unwrap();
    let trace_id: String = request
        .trace_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // Other tests' processes write to the same files.
    let lines = |log: &PathBuf, message: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(log).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines
            .filter(|line: &Value| line["fields"]["message"] == message)
            .filter(|line| line["trace_id"] == *trace_id)
            .collect()
    };
    let answered = lines(&processes.gateway.log, "answered");
    let [answered] = &answered[..] else {
        panic!("{answered:?}");
    };
    let request_id = text(&request.attributes, "request.id").unwrap();
    assert_eq!(answered["request_id"], *request_id);
    assert_eq!(answered["span"]["request.id"], *request_id);
    assert!(answered.get("spans").is_none(), "its span is said once");
    let ended = lines(&processes.charges.log, "the charge has ended");
    let [ended] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(ended["request_id"], *request_id);
    for (service, call) in wanted {
        let span = trace.find(service, call).unwrap();
        assert_eq!(
            text(&span.attributes, "request.id"),
            Some(request_id.clone()),
            "{call}"
        );
    }
}

async fn traceparents(db: &db::Db, text: &'static str) -> Vec<Option<String>> {
    let mut conn = db.read().await.unwrap();
    let rows: Vec<(Option<String>,)> = conn.sql(text).all().await.unwrap();
    drop(conn);
    db.close().await;
    rows.into_iter().map(|(traceparent,)| traceparent).collect()
}

#[tokio::test]
async fn spans_reach_a_collector_that_speaks_tls() {
    let folder = tempfile::TempDir::new().unwrap();
    let tls = certificates(folder.path(), &["collector"]).remove(0);
    let (collector, url) = Collector::start_with(Some(&tls)).await;
    let mut processes = Processes::plan().await;
    let process = &mut processes.ratelimit;
    let authority = tls.tls_ca.unwrap().display().to_string();
    process.env.push((ENDPOINT, url));
    process
        .env
        .push(("OTEL_EXPORTER_OTLP_CERTIFICATE", authority));
    process
        .env
        .push(("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()));
    process.start().await;
    let check = CheckRequest {
        subject: "0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e".to_owned(),
        bucket: Bucket::Payments.into(),
    };
    let check = CheckAllRequest {
        checks: vec![check],
    };
    let mut limits = RateLimitsClient::new(process.channel());
    limits.check_all(check).await.unwrap();
    let name = "payments.ratelimit.v1.RateLimits/CheckAll";
    let wanted = [("ratelimit-svc", name)];
    collector.wait_for_trace(name, &wanted).await;
}
