//! Keys, codes, secrets and full phone numbers reach no log, no error body and no metric, whatever
//! goes wrong and however much is logged.
//!
//! Each test plants words that occur nowhere else, runs through everything that can happen to
//! payments, and then searches for the words.

mod story;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use chassis::{config::Tls, grpc};
use proto::webhooks::{SetEndpointRequest, webhook_operations_client::WebhookOperationsClient};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use self::story::{Doors, LOOK_AGAIN, Story, WAIT_MAX};
use crate::processes::{Processes, STATEMENT_KEY, WEBHOOK_SECRET_KEY, binary};

/// The most verbose filter, with libraries by name.
const EVERYTHING: &str = "trace,h2=trace,h2::codec=trace,hyper=trace,hyper::proto::h1=trace,\
     hyper_util=trace,hyper_util::client=trace,reqwest=trace,reqwest::connect=trace,sqlx=trace,\
     sqlx::query=trace,axum=trace,axum::rejection=trace,tonic=trace,tower=trace,rustls=trace,\
     [sql]=trace,[request]=trace";

#[tokio::test]
async fn the_stack_tells_nobodys_secrets() {
    let folder = TempDir::new().unwrap();
    let (data, ready) = (folder.path().join("data"), folder.path().join("ready.json"));
    let log = folder.path().join("log");
    let free = "127.0.0.1:0";
    let mut child = Command::new(binary("stack"))
        .args([
            "--api",
            free,
            "--checkout",
            free,
            "--dashboard",
            free,
            "--handset",
            free,
        ])
        .arg("--data")
        .arg(&data)
        .arg("--ready-file")
        .arg(&ready)
        .env("RUST_LOG", EVERYTHING)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let ready = read_ready(&ready).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let merchant_id = text(&ready["demo"]["merchant_id"]);
    let webhooks = text(&ready["grpc"]["webhooks_operators"]);
    let doors = Doors {
        api: text(&ready["api"]),
        signing_secret: set_first_endpoint(&webhooks, &merchant_id).await,
        webhooks,
        merchant_id,
        api_key: text(&ready["demo"]["api_key"]),
        credentials: [
            "stack-momo-subscription-key",
            "6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11",
            "stack-momo-api-key",
            "sk_test_stack",
            "stack-momo-disbursement-key",
            "6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a12",
            "stack-momo-disbursement-api-key",
            "stack-hubtel-api-id",
            "stack-hubtel-api-key",
        ]
        .map(ToOwned::to_owned),
    };
    let mut story = Story::begin(&doors).await;
    story.run().await;
    terminate(&child).await;
    assert!(child.wait().await.unwrap().success());
    let charges = format!("sqlite://{}", data.join("charges.db").display());
    let charges = db::Db::connect(&charges, 1).await.unwrap();
    story.plant_callback_tokens(&charges).await;
    charges.close().await;
    let key = std::fs::read_to_string(data.join("webhook-secret-key")).unwrap();
    story.canaries.add(key.trim());
    let key = std::fs::read_to_string(data.join("totp-secret-key")).unwrap();
    story.canaries.add(key.trim());
    let key = std::fs::read_to_string(data.join("statement-key")).unwrap();
    story.canaries.add(key.trim());
    story.check_bodies();
    let log = std::fs::read_to_string(&log).unwrap();
    story.check_log(&log);
    assert!(log.contains("\"level\":\"INFO\""), "{log}");
}

async fn read_ready(file: &Path) -> Value {
    let written = async {
        loop {
            match std::fs::read(file) {
                Ok(content) => return serde_json::from_slice(&content).unwrap(),
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    };
    tokio::time::timeout(WAIT_MAX, written)
        .await
        .expect("a ready file")
}

async fn set_first_endpoint(webhooks: &str, merchant_id: &str) -> String {
    let channel = grpc::connect(webhooks, &Tls::default(), WAIT_MAX).unwrap();
    let request = SetEndpointRequest {
        merchant_id: merchant_id.to_owned(),
        url: "http://127.0.0.1:9/".to_owned(),
        events: Vec::new(),
    };
    let endpoint = WebhookOperationsClient::new(channel)
        .set_endpoint(request)
        .await;
    endpoint.unwrap().into_inner().signing_secret
}

async fn terminate(child: &tokio::process::Child) {
    let id = child.id().unwrap().to_string();
    let status = Command::new("kill").args(["-TERM", &id]).status().await;
    assert!(status.unwrap().success());
}

/// The rails' credentials, as flags.
const CREDENTIALS: [(&str, &str); 9] = [
    ("--momo-subscription-key=", "subscription-key-canary"),
    ("--momo-api-user=", "0e6e5a7e-6d0e-4b0e-9d43-1f2f3a4b5c6d"),
    ("--momo-api-key=", "momo-api-key-canary"),
    ("--paystack-secret-key=", "sk_test_paystack_canary"),
    (
        "--momo-disbursement-subscription-key=",
        "disbursement-key-canary",
    ),
    (
        "--momo-disbursement-api-user=",
        "0e6e5a7e-6d0e-4b0e-9d43-1f2f3a4b5c6e",
    ),
    (
        "--momo-disbursement-api-key=",
        "disbursement-api-key-canary",
    ),
    ("--hubtel-api-id=", "hubtel-api-id-canary"),
    ("--hubtel-api-key=", "hubtel-api-key-canary"),
];

#[tokio::test]
async fn no_process_tells_anybodys_secrets() {
    let folder = TempDir::new().unwrap();
    let mut processes = Processes::plan().await;
    let mut logs = Vec::<PathBuf>::new();
    for process in processes.all() {
        for flag in &mut process.flags {
            for (name, value) in CREDENTIALS {
                if flag.starts_with(name) {
                    *flag = format!("{name}{value}");
                }
            }
        }
        process.env.push(("RUST_LOG", EVERYTHING.to_owned()));
        if process.name == "charges-svc" {
            process.flags.push("--rail-at=hubtel".to_owned());
        }
        process.log = folder.path().join(process.name);
        logs.push(process.log.clone());
    }
    processes.start_all().await;
    let merchant = processes.merchant("http://127.0.0.1:9/").await;
    let doors = Doors {
        api: processes.gateway.url.clone(),
        webhooks: processes.webhooks.operators_url().to_owned(),
        merchant_id: merchant.merchant_id,
        api_key: merchant.api_key,
        signing_secret: merchant.signing_secret,
        credentials: CREDENTIALS.map(|(_, value)| value.to_owned()),
    };
    let mut story = Story::begin(&doors).await;
    story.canaries.add(WEBHOOK_SECRET_KEY);
    story.canaries.add(STATEMENT_KEY);
    story.run().await;
    let charges = processes.charges_db.connect().await;
    story.plant_callback_tokens(&charges).await;
    charges.close().await;
    processes.charges_db.until_relayed().await;
    let mut metrics = String::new();
    for process in processes.all() {
        if let Some(admin) = &process.admin {
            let answer = story.client.get(format!("{admin}/metrics")).send().await;
            metrics += &answer.unwrap().text().await.unwrap();
        }
        process.terminate().await;
    }
    for process in processes.all() {
        assert!(process.ended().await.success(), "{}", process.name);
    }
    assert!(metrics.contains("webhook_attempts_total"), "{metrics}");
    let found = story.canaries.find(&metrics);
    assert!(found.is_empty(), "metrics tell: {found:#?}");
    story.check_bodies();
    let mut logged = 0;
    for log in logs {
        let log = std::fs::read_to_string(log).unwrap();
        story.check_log(&log);
        logged += log.lines().count();
    }
    assert!(logged > 100, "{logged} lines in all");
}
