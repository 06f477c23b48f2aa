//! What operators ask of every process: whether it is alive, whether it can serve, its metrics;
//! and that it stops when told to, whoever is connected.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use chassis::{
    http,
    shutdown::{Shutdown, Tasks},
    testing::until,
};
use serde_json::{Value, json};
use stack::demo::{Api, ApiResponse, Receiver};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};
use tonic::Code;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::processes::{Process, Processes};

const WAIT_MAX: Duration = Duration::from_secs(60);

/// An orchestrator kills a process that has not ended by then; ours take 52 s at most.
const GRACE: Duration = Duration::from_secs(55);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

const CHARGE: &str = "/api/v1/payments/charge";

/// Status and body of a path of a process's admin address.
pub async fn ask(process: &Process, path: &str) -> (u16, String) {
    let url = format!("{}{path}", process.admin.as_ref().unwrap());
    let answer = http::client(WAIT_MAX)
        .unwrap()
        .get(url)
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn readiness(process: &Process) -> (u16, Value) {
    let (code, body) = ask(process, "/readyz").await;
    (code, serde_json::from_str(&body).unwrap())
}

async fn charge(api: &Api) -> ApiResponse {
    let body = json!({ "amount": 25.5, "mobile_number": "0240000001", "provider": "MTN" });
    api.post(CHARGE, &body).await.unwrap()
}

/// One payment from its request to its webhook.
pub async fn pay(processes: &Processes) -> Api {
    let receiver = Receiver::start().await.unwrap();
    let merchant = processes.merchant(&receiver.url).await;
    let api = Api::new(&processes.gateway.url, &merchant.api_key).unwrap();
    let answer = charge(&api).await;
    answer.expect(202).unwrap();
    let display = answer
        .text("reference")
        .unwrap()
        .rsplit_once('-')
        .unwrap()
        .0;
    let event = receiver.wait_for(display, WAIT_MAX).await.unwrap();
    event.verify(&merchant.signing_secret).unwrap();
    event
        .expect("payment.success", "SETTLED", &Value::Null)
        .unwrap();
    processes.charges_db.until_relayed().await;
    api
}

#[tokio::test]
async fn every_process_says_how_it_is_and_what_it_did() {
    let mut processes = Processes::start(&[("ratelimit-svc", "--no-reflection")]).await;
    let api = pay(&processes).await;
    let unknown = api.get(&format!("{CHARGE}/TX-0000000000-000000")).await;
    unknown.unwrap().expect(404).unwrap();
    let is_postgres = processes.sessions_db.url.starts_with("postgres");
    for process in &processes.all()[1..] {
        let checks = match process.name {
            "gateway" => json!({ "merchants": true, "sessions": true, "charges": true }),
            "ratelimit-svc" => json!({}),
            _ => json!({ "database": true, "clock": true }),
        };
        let is_measured = is_postgres && checks["clock"] == true;
        let mut all = checks;
        all["not stopping"] = true.into();
        assert_eq!(ask(process, "/healthz").await, (200, "ok\n".to_owned()));
        until(&format!("{} is ready", process.name), async || {
            readiness(process).await == (200, all.clone())
        })
        .await;
        let (code, metrics) = ask(process, "/metrics").await;
        assert_eq!(code, 200);
        assert_eq!(metrics.contains("clock_offset_seconds 0"), is_measured);
        // A webhook is received before its attempt is recorded and counted.
        for name in counted(process.name) {
            until(name, async || {
                ask(process, "/metrics").await.1.contains(name)
            })
            .await;
        }
    }
    for process in &processes.all()[1..6] {
        check_reflection(process).await;
    }
    check_waits_are_counted(&processes.gateway, &api).await;

    // The gateway can do without ratelimit-svc, but not without merchants-svc.
    processes.ratelimit.kill().await;
    until_ready(&processes.gateway, 200).await;
    processes.merchants.kill().await;
    until("only merchants-svc is away", async || {
        let (code, checks) = readiness(&processes.gateway).await;
        (code, &checks["merchants"], &checks["charges"]) == (503, &json!(false), &json!(true))
    })
    .await;
    assert_eq!(ask(&processes.gateway, "/healthz").await.0, 200);
    processes.merchants.start().await;
    until_ready(&processes.gateway, 200).await;
}

/// Checks that a wait counts for as long as it lasts.
async fn check_waits_are_counted(gateway: &Process, api: &Api) {
    let counted = async |line: &str| {
        let waits = async || ask(gateway, "/metrics").await.1.contains(line);
        until(line, waits).await;
    };
    let waiting = api.get("/api/v1/events?after=1000&wait=30");
    tokio::select! {
        _ = waiting => panic!("answered"),
        () = counted("gateway_waits 1") => {}
    }
    counted("gateway_waits 0").await;
}

/// The metrics of a process that has handled a payment.
fn counted(name: &str) -> &'static [&'static str] {
    match name {
        "merchants-svc" => &[
            "grpc_calls_total{method=\"payments.merchants.v1.Merchants/Authenticate\",code=\"Ok\"}",
            "grpc_call_seconds_bucket",
        ],
        "sessions-svc" => &[
            "grpc_calls_total{method=\"payments.sessions.v1.Sessions/RecordTransaction\",code=\"Ok\"}",
            "charge_reports_total",
        ],
        "charges-svc" => &[
            "grpc_calls_total{method=\"payments.charges.v1.Charges/CreateCharge\",code=\"Ok\"} 1",
            "grpc_calls_total{method=\"payments.charges.v1.Charges/GetCharge\",code=\"NotFound\"} 1",
            "charges_ended_total{state=\"SETTLED\",reason=\"\"} 1",
            "rail_calls_total{rail=\"momo\",call=\"request_payment\",outcome=\"accepted\"} 1",
            "rail_call_seconds_bucket",
            "charges_open",
            "charges_outbox_rows",
            "statement_errors_total{reason=\"difference\"} 0",
            "statement_errors_total{reason=\"changed_block\"} 0",
            "statement_difference_minor 0",
        ],
        "webhooks-svc" => &[
            "webhook_events_total{type=\"payment.success\"} 1",
            "webhook_attempts_total{outcome=\"succeeded\",kind=\"scheduled\"} 1",
            "webhook_attempt_seconds_bucket",
            "webhook_delivery_lag_seconds_bucket",
        ],
        "ratelimit-svc" => &["ratelimit_checks_total{bucket=\"charge\",outcome=\"allowed\"} 1"],
        _ => &[
            "http_requests_total{method=\"POST\",route=\"/api/v1/payments/charge\",status=\"202\"} 1",
            "http_requests_total{method=\"GET\",route=\"/api/v1/payments/charge/{reference}\",status=\"404\"} 1",
            "http_request_duration_seconds_bucket",
            "gateway_watch_streams 1",
        ],
    }
}

/// Checks that a service describes itself, unless that is switched off.
async fn check_reflection(process: &Process) {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(process.channel());
    let asked = client.server_reflection_info(futures::stream::iter([request]));
    let answer = asked.await;
    if process.name == "ratelimit-svc" {
        assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
        assert!(process.channel().is_serving().await);
        return;
    }
    let answer = answer.unwrap().into_inner().message().await.unwrap();
    let Some(MessageResponse::ListServicesResponse(listed)) = answer.unwrap().message_response
    else {
        panic!("no list");
    };
    let package = process.name.trim_end_matches("-svc");
    let start = format!("payments.{package}.v1.");
    let is_listed = listed
        .service
        .iter()
        .any(|service| service.name.starts_with(&start));
    assert!(is_listed, "{listed:?}");
}

/// Waits until a process answers `/readyz` with this status.
pub async fn until_ready(process: &Process, wanted: u16) {
    let what = format!("{} answers {wanted}", process.name);
    until(&what, async || readiness(process).await.0 == wanted).await;
}

/// Connections that would stay open for ever: a silent one, and one that has sent half a head.
async fn connect_in_vain(url: &str, half: &[u8]) -> [TcpStream; 2] {
    let address = url.strip_prefix("http://").unwrap();
    let silent = TcpStream::connect(address).await.unwrap();
    let mut begun = TcpStream::connect(address).await.unwrap();
    begun.write_all(half).await.unwrap();
    [silent, begun]
}

#[tokio::test]
async fn a_process_that_is_told_to_stop_finishes_what_runs_and_ends_whoever_is_connected() {
    let mut processes = Processes::start(&[]).await;
    // A first payment fetches the rail's token.
    let api = Arc::new(pay(&processes).await);
    let mut held = Vec::new();
    for process in &processes.all()[1..] {
        let half: &[u8] = match process.name {
            "gateway" => b"POST /api/v1/payments/charge HTTP/1.1\r\nHost: a\r\nContent-",
            _ => b"PRI * HTTP/2.0\r\n",
        };
        held.push(connect_in_vain(&process.url, half).await);
        let admin = process.admin.as_ref().unwrap();
        held.push(connect_in_vain(admin, b"GET /metrics HTTP/1.1\r\nHo").await);
    }
    processes.railsim.freeze().await;
    let asking = tokio::task::LocalSet::new();
    let asked = asking.spawn_local({
        let api = api.clone();
        async move { charge(&api).await }
    });
    asking.run_until(until_called(&processes)).await;
    processes.gateway.terminate().await;
    processes.charges.terminate().await;
    for process in [&processes.gateway, &processes.charges] {
        asking.run_until(until_ready(process, 503)).await;
        let (_, checks) = asking.run_until(readiness(process)).await;
        assert_eq!(checks["not stopping"], false);
        assert_eq!(asking.run_until(ask(process, "/healthz")).await.0, 200);
    }
    processes.railsim.thaw().await;
    asking.await;
    asked.await.unwrap().expect(202).unwrap();
    processes.charges_db.until_relayed().await;
    for process in processes.all() {
        if !matches!(process.name, "gateway" | "charges-svc") {
            process.terminate().await;
        }
    }
    for process in processes.all() {
        let ended = tokio::time::timeout(GRACE, process.ended()).await;
        let ended = ended.unwrap_or_else(|_| panic!("{} does not end", process.name));
        assert!(ended.success(), "{}: {ended}", process.name);
    }
    drop(held);
}

/// Waits until the second charge and its session are stored, after which the rail is called.
async fn until_called(processes: &Processes) {
    let db = processes.sessions_db.connect().await;
    let looking = async {
        loop {
            let mut conn = db.read().await.unwrap();
            let sessions = conn.sql("select count(*) from sessions").one().await;
            let (sessions,): (i64,) = sessions.unwrap();
            if sessions == 2 {
                return;
            }
            drop(conn);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let found = tokio::time::timeout(WAIT_MAX, looking).await;
    found.expect("a second session");
    db.close().await;
}

/// A connection path to a server that can be cut.
struct Line {
    address: SocketAddr,
    server: String,
    cut: Shutdown,
}

impl Line {
    async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut line = Self {
            address: listener.local_addr().unwrap(),
            server: server.to_owned(),
            cut: Shutdown::new(),
        };
        line.carry(listener);
        line
    }

    fn carry(&mut self, listener: TcpListener) {
        self.cut = Shutdown::new();
        let (server, cut) = (self.server.clone(), self.cut.clone());
        let tasks = Tasks::new();
        tasks.clone().spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = cut.wait() => return,
                    accepted = listener.accept() => accepted,
                };
                let (mut client, _) = accepted.unwrap();
                let (server, cut) = (server.clone(), cut.clone());
                tasks.spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        () = cut.wait() => {}
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    }
                });
            }
        });
    }

    fn cut(&self) {
        self.cut.begin();
    }

    async fn mend(&mut self) {
        let binding = async {
            loop {
                match TcpListener::bind(self.address).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
                }
            }
        };
        let listener = tokio::time::timeout(WAIT_MAX, binding).await.unwrap();
        self.carry(listener);
    }
}

/// On PostgreSQL only, since a file cannot be unreachable.
#[tokio::test]
async fn a_service_whose_database_is_away_lives_but_is_not_ready() {
    let mut processes = Processes::plan().await;
    let merchants = &mut processes.merchants;
    let is_url = |flag: &&mut String| flag.starts_with("--database-url=postgres");
    let Some(flag) = merchants.flags.iter_mut().find(is_url) else {
        return;
    };
    let (start, rest) = flag.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let mut line = Line::to(server).await;
    *flag = format!("{start}@{}/{database}", line.address);
    merchants.start().await;
    until_ready(merchants, 200).await;
    line.cut();
    until_ready(merchants, 503).await;
    until("its database is known to be away", async || {
        readiness(merchants).await.1["database"] == false
    })
    .await;
    assert_eq!(ask(merchants, "/healthz").await.0, 200);
    line.mend().await;
    until_ready(merchants, 200).await;
    merchants.terminate().await;
    assert!(merchants.ended().await.success());
}
