//! What `cargo run` tells on the terminal: what happened, a line each, and nothing else.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use axum::{Router, http::StatusCode, routing::post};
use chassis::{
    config::Tls,
    grpc,
    http::{self, Limits},
    shutdown::{Shutdown, Tasks},
};
use proto::{
    merchants::{
        CreateKeyRequest, CreateMerchantRequest,
        merchant_operations_client::MerchantOperationsClient,
    },
    webhooks::{SetEndpointRequest, webhook_operations_client::WebhookOperationsClient},
};
use serde_json::{Value, json};
use stack::demo::Api;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdout, Command},
};

use crate::processes::binary;

const WAIT_MAX: Duration = Duration::from_secs(60);

const CHARGE: &str = "/api/v1/payments/charge";

/// The `stack` binary and what it prints.
struct Terminal {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    ready: Value,
    _folder: TempDir,
}

impl Terminal {
    async fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let ready_file = folder.path().join("ready.json");
        let mut child = Command::new(binary("stack"))
            .args(
                ["--api", "--checkout", "--dashboard", "--handset"]
                    .map(|flag| format!("{flag}=127.0.0.1:0")),
            )
            .arg("--ephemeral")
            .arg("--ready-file")
            .arg(&ready_file)
            .args(flags)
            .env_remove("DATABASE_URL_PREFIX")
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let introduction = async {
            // It ends with the example's body.
            while !output.next_line().await.unwrap().unwrap().contains("-d '") {}
        };
        tokio::time::timeout(WAIT_MAX, introduction)
            .await
            .expect("it is ready");
        let ready = std::fs::read(ready_file).unwrap();
        Self {
            child,
            output,
            ready: serde_json::from_slice(&ready).unwrap(),
            _folder: folder,
        }
    }

    fn text(&self, path: &[&str]) -> &str {
        let found = path.iter().fold(&self.ready, |value, key| &value[key]);
        found.as_str().unwrap()
    }

    fn api(&self) -> Api {
        Api::new(self.text(&["api"]), self.text(&["demo", "api_key"])).unwrap()
    }

    fn connect(&self, service: &str) -> grpc::Channel {
        grpc::connect(self.text(&["grpc", service]), &Tls::default(), WAIT_MAX).unwrap()
    }

    async fn charge(&self, number: &str) -> String {
        let body = json!({ "amount": 25.5, "mobile_number": number, "provider": "MTN" });
        let answer = self.api().post(CHARGE, &body).await.unwrap();
        answer.text("reference").unwrap().to_owned()
    }

    async fn advance(&self, seconds: u64) {
        let client = http::client(WAIT_MAX).unwrap();
        let body = json!({ "advance_seconds": seconds });
        let moved = client.post(self.text(&["clock"])).json(&body).send().await;
        assert_eq!(moved.unwrap().status(), 200);
    }

    /// The next line without its time. Leaves out dates.
    async fn line(&mut self) -> String {
        loop {
            let line = tokio::time::timeout(WAIT_MAX, self.output.next_line()).await;
            let line = line.expect("a line").unwrap().expect("a line");
            if line.is_empty() || line.ends_with(" GMT") {
                continue;
            }
            let (time, told) = line.split_once("  ").unwrap();
            let is_time = time.len() == 8 && time.split(':').all(|part| part.parse::<u8>().is_ok());
            assert!(is_time, "{line}");
            assert!(!line.contains('\x1b'), "no colours outside a terminal");
            return told.to_owned();
        }
    }

    async fn expect(&mut self, beginning: &str) -> String {
        let line = self.line().await;
        assert!(
            line.starts_with(beginning),
            "{beginning} wanted, not {line}"
        );
        line
    }

    /// Stops it as Ctrl+C does. Returns the lines that are left, and all that it logged.
    async fn stop(mut self) -> (Vec<String>, String) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await;
        assert!(sent.unwrap().success());
        let mut left = Vec::new();
        while let Some(line) = self.output.next_line().await.unwrap() {
            left.push(line);
        }
        let mut log = String::new();
        let mut error = self.child.stderr.take().unwrap();
        error.read_to_string(&mut log).await.unwrap();
        assert!(self.child.wait().await.unwrap().success(), "{log}");
        (left, log)
    }
}

/// `TX-…`, as the lines name a charge.
fn display(reference: &str) -> &str {
    reference.rsplit_once('-').unwrap().0
}

/// The end of a line after what begins it, if it is a number of seconds.
fn is_seconds(end: &str) -> bool {
    let number = end.trim().strip_suffix(" s").unwrap_or_default();
    number.split_once('.').is_some_and(|(whole, tenth)| {
        whole.parse::<u8>().is_ok() && tenth.len() == 1 && tenth.parse::<u8>().is_ok()
    })
}

#[tokio::test]
async fn each_end_of_a_payment_is_a_line_and_nothing_is_logged() {
    let mut terminal = Terminal::start(&[]).await;
    let settles = terminal.charge("0240000001").await;
    let line = format!(
        "{} GHS 25.50 MTN 024 ••• 0001  SETTLED after ",
        display(&settles)
    );
    let told = terminal.expect(&line).await;
    assert!(is_seconds(&told[line.len()..]), "{told}");

    let fails = terminal.charge("0240000004").await;
    let line = format!(
        "{} GHS 25.50 MTN 024 ••• 0004  FAILED PAYER_DECLINED after ",
        display(&fails)
    );
    let told = terminal.expect(&line).await;
    assert!(is_seconds(&told[line.len()..]), "{told}");

    // The network's answer is lost.
    let unknown = terminal.charge("0240000013").await;
    let payment = format!("{} GHS 25.50 MTN 024 ••• 0013  ", display(&unknown));
    terminal
        .expect(&format!("{payment}OUTCOME UNKNOWN  "))
        .await;
    terminal.expect(&format!("{payment}SETTLED after ")).await;

    let waits = terminal.charge("0240000100").await;
    let payment = format!("{} GHS 25.50 MTN 024 ••• 0100  ", display(&waits));
    let handset = terminal.text(&["handset"]).to_owned();
    let line = format!("{payment}INITIATED  waits for the payer: {handset}");
    terminal.expect(&line).await;

    let refunds = format!("{CHARGE}/{settles}/refunds");
    let refund = terminal.api().post(&refunds, &json!({})).await.unwrap();
    let line = format!(
        "{} GHS 25.50 of {} to MTN 024 ••• 0001  COMPLETED after ",
        refund.text("refund_id").unwrap(),
        display(&settles)
    );
    terminal.expect(&line).await;
    let (left, log) = terminal.stop().await;
    assert_eq!(left, [] as [&str; 0]);
    assert_eq!(log, "");
}

#[tokio::test]
async fn a_webhook_that_is_refused_is_told_with_each_attempt() {
    let mut terminal = Terminal::start(&[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let refuse = || async { StatusCode::INTERNAL_SERVER_ERROR };
    let router = Router::new().route("/webhooks", post(refuse));
    let shutdown = Shutdown::new();
    let served = http::serve(router, listener, Limits::default(), shutdown.clone());
    Tasks::new().spawn(async { served.await.unwrap() });
    let request = SetEndpointRequest {
        merchant_id: terminal.text(&["demo", "merchant_id"]).to_owned(),
        url: format!("http://{address}/webhooks"),
        events: Vec::new(),
    };
    let mut webhooks = WebhookOperationsClient::new(terminal.connect("webhooks_operators"));
    webhooks.set_endpoint(request).await.unwrap();

    let reference = terminal.charge("0240000001").await;
    let display = display(&reference);
    let line = terminal
        .expect(&format!(
            "{display} GHS 25.50 MTN 024 ••• 0001  SETTLED after "
        ))
        .await;
    assert!(line.contains(" s  webhook 500  again at "), "{line}");
    terminal.advance(120).await;
    let line = terminal.expect(&format!("{display}  webhook 500")).await;
    assert!(line.contains("  again at "), "{line}");
    // Longer than its schedule.
    terminal.advance(7 * 24 * 3_600).await;
    loop {
        let line = terminal.expect(&format!("{display}  webhook 500")).await;
        if line.ends_with("  given up") {
            break;
        }
    }
    shutdown.begin();
}

#[tokio::test]
async fn sessions_keys_merchants_and_mails_are_told_and_obey_nobody() {
    let mut terminal = Terminal::start(&[]).await;
    let body = json!({ "amount": 40, "currency": "GHS" });
    let api = terminal.api();
    let session = api.post("/api/v1/payments/initiate", &body).await.unwrap();
    let url = session.text("payment_url").unwrap();
    let id = session.text("session_id").unwrap();
    terminal
        .expect(&format!("session {id} GHS 40.00  OPENED  {url}"))
        .await;

    let mut merchants = MerchantOperationsClient::new(terminal.connect("merchants_operators"));
    let new = CreateMerchantRequest {
        name: "Ama\u{202e}".to_owned(),
        email: "ama@example.com".to_owned(),
        ..CreateMerchantRequest::default()
    };
    let merchant = merchants.create_merchant(new).await.unwrap().into_inner();
    terminal.expect("merchant \"Ama\"  CREATED").await;
    let request = CreateKeyRequest {
        merchant_id: merchant.merchant_id,
        label: "till".to_owned(),
    };
    let made = merchants.create_key(request).await.unwrap().into_inner();
    let hint = made.key.unwrap().hint;
    let line = terminal.expect("key \"till\" …").await;
    assert_eq!(line, format!("key \"till\" …{hint}  CREATED"));

    let mut smtp = TcpStream::connect(terminal.text(&["smtp"])).await.unwrap();
    let mail = "EHLO a\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<ama@example.com>\r\nDATA\r\n\
        Subject: hello \x1b[31m\r\n\r\ntext\r\n.\r\nQUIT\r\n";
    smtp.write_all(mail.as_bytes()).await.unwrap();
    let page = terminal.text(&["mail"]).to_owned();
    let line = terminal.expect("mail to ama@example.com  ").await;
    assert!(line.ends_with(&format!("\"hello [31m\"  {page}")), "{line}");

    terminal.advance(24 * 3_600).await;
    terminal.expect(&format!("session {id}  EXPIRED")).await;
}

#[tokio::test]
async fn logs_are_there_on_demand() {
    let terminal = Terminal::start(&["--log", "info"]).await;
    let (left, log) = terminal.stop().await;
    assert_eq!(left.concat(), "");
    assert!(log.contains("\"level\":\"INFO\""), "{log}");
}
