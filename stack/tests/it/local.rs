//! `cargo run` as people and programs use it: the demonstration, the ready file, what survives a
//! crash, and `payctl`.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use stack::demo::{Api, Receiver};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{processes::binary, shop::Shop};

const WAIT_MAX: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The `stack` binary with a data folder.
struct Local {
    data: PathBuf,
    ready_file: PathBuf,
    child: Child,
    ready: Value,
}

impl Local {
    async fn start(folder: &Path) -> Self {
        let (data, ready_file) = (folder.join("data"), folder.join("ready.json"));
        let free = "127.0.0.1:0";
        let child = Command::new(binary("stack"))
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
            .arg(&ready_file)
            .env_remove("DATABASE_URL_PREFIX")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let written = async {
            loop {
                // Written by a rename, so it is always complete.
                match std::fs::read(&ready_file) {
                    Ok(content) => return serde_json::from_slice(&content).unwrap(),
                    Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
                }
            }
        };
        let ready = tokio::time::timeout(WAIT_MAX, written)
            .await
            .expect("a ready file");
        Self {
            data,
            ready_file,
            child,
            ready,
        }
    }

    /// `kill -9`, then a start on the same data. Removes the old ready file in between.
    async fn crash_and_start(mut self, folder: &Path) -> Self {
        self.child.kill().await.unwrap();
        std::fs::remove_file(&self.ready_file).unwrap();
        Self::start(folder).await
    }

    fn api(&self) -> Api {
        Api::new(self.text(&["api"]), self.text(&["demo", "api_key"])).unwrap()
    }

    fn text(&self, path: &[&str]) -> &str {
        let found = path.iter().fold(&self.ready, |value, key| &value[key]);
        found.as_str().unwrap()
    }

    async fn advance(&self, seconds: u64) -> Value {
        let client = chassis::http::client(WAIT_MAX).unwrap();
        let body = json!({ "advance_seconds": seconds });
        let answer = client
            .post(self.text(&["clock"]))
            .json(&body)
            .send()
            .await
            .unwrap();
        answer.json().await.unwrap()
    }
}

#[tokio::test]
async fn the_demonstration_goes_as_specified() {
    let shop = Shop::open().await;
    stack::demo::run(&shop.ready).await.unwrap();
    shop.close().await;
}

#[tokio::test]
async fn what_was_taken_is_there_after_a_crash_of_everything() {
    let folder = TempDir::new().unwrap();
    let local = Local::start(folder.path()).await;
    for file in [&local.ready_file, &local.data.join("demo.json")] {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{} holds a key", file.display());
    }
    let body = json!({ "amount": 25.5, "mobile_number": "0240000008", "provider": "MTN" });
    let api = local.api();
    let answer = api
        .post_with_key("/api/v1/payments/charge", &body, "order-1")
        .await
        .unwrap();
    answer.expect(202).unwrap();
    let moved = local.advance(3_600).await;

    let local = local.crash_and_start(folder.path()).await;
    let api = local.api();
    let path = format!(
        "/api/v1/payments/charge/{}",
        answer.text("reference").unwrap()
    );
    let is_settled = |charge: &Value| charge["status"] == "SETTLED";
    api.poll(&path, WAIT_MAX, is_settled).await.unwrap();
    let again = api
        .post_with_key("/api/v1/payments/charge", &body, "order-1")
        .await
        .unwrap();
    again.expect(202).unwrap();
    assert_eq!(
        again.text("reference").unwrap(),
        answer.text("reference").unwrap()
    );
    let now = local.advance(0).await;
    assert!(
        now["now"].as_str() > moved["now"].as_str(),
        "time does not run backwards"
    );

    let key = local.text(&["demo", "api_key"]).to_owned();
    std::fs::remove_file(local.data.join("demo.json")).unwrap();
    let local = local.crash_and_start(folder.path()).await;
    assert_ne!(
        local.text(&["demo", "api_key"]),
        key,
        "a lost file is a new key"
    );
}

/// Runs `payctl` with these words and parses the JSON that it prints.
pub async fn payctl(ready: &stack::ready::Ready, words: &str) -> Result<Value, String> {
    let output = Command::new(binary("payctl"))
        .args(words.split(' '))
        .env("MERCHANTS_GRPC_URL", &ready.grpc.merchants_operators)
        .env("CHARGES_GRPC_URL", &ready.grpc.charges_operators)
        .env("WEBHOOKS_GRPC_URL", &ready.grpc.webhooks_operators)
        .env("CLOCK_URL", &ready.clock)
        .output()
        .await
        .unwrap();
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).unwrap());
    }
    assert_eq!(output.status.code(), Some(1));
    Err(String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn payctl_takes_a_merchant_from_its_creation_to_its_first_delivery() {
    let shop = Shop::open().await;
    let run = async |words: String| payctl(&shop.ready, &words).await.unwrap();
    let create = "merchant create --name Kofi --email kofi@example.com --kyc PENDING";
    let created = run(create.to_owned()).await;
    let merchant = created["merchant_id"].as_str().unwrap();
    assert_eq!(created["kyc_status"], "PENDING");
    assert_eq!(created["email_verified"], false);
    let key = run(format!("key create {merchant} --label till")).await;
    let api = Api::new(&shop.ready.api, key["api_key"].as_str().unwrap()).unwrap();
    let body = json!({ "amount": 3, "mobile_number": "0240000001", "provider": "MTN" });
    let charge = async || api.post("/api/v1/payments/charge", &body).await.unwrap();
    charge().await.expect(403).unwrap();
    let update = format!("merchant update {merchant} --kyc APPROVED --email-verified true");
    assert_eq!(run(update).await["kyc_status"], "APPROVED");

    let receiver = Receiver::start().await.unwrap();
    let url = &receiver.url;
    let set = format!("webhook set {merchant} --url {url} --events payment.success");
    let endpoint = run(set).await;
    assert_eq!(endpoint["events"], json!(["payment.success"]));
    let taken = async {
        loop {
            // The change to the merchant takes effect within a second.
            let answer = charge().await;
            if answer.code == 202 {
                return answer;
            }
            tokio::time::sleep(LOOK_AGAIN * 10).await;
        }
    };
    let answer = tokio::time::timeout(WAIT_MAX, taken).await.unwrap();
    let reference = answer.text("reference").unwrap();
    let display = reference.rsplit_once('-').unwrap().0;
    let event = receiver.wait_for(display, WAIT_MAX).await.unwrap();
    let secret = endpoint["signing_secret"].as_str().unwrap();
    event.verify(secret).unwrap();

    let shown = run(format!("charge show {reference}")).await;
    assert_eq!(shown["state"], "SETTLED");
    assert!(!shown["evidence"].as_array().unwrap().is_empty());
    assert_eq!(shown["postings"].as_array().unwrap().len(), 2);
    let balance = run(format!("balance {merchant}")).await;
    let available = json!([{ "amount": "3.00", "currency": "GHS" }]);
    assert_eq!(balance, json!({ "available": available, "reserved": [] }));
    let listed = run(format!("webhook deliveries {merchant}")).await;
    let delivery = listed[0]["delivery_id"].as_str().unwrap();
    run(format!("webhook redeliver {delivery}")).await;
    run("clock advance 24h".to_owned()).await;
    let copies = receiver.deliveries();
    assert_eq!(copies.len(), 2);
    assert_eq!(copies[0].body, copies[1].body);
    let key_id = key["key_id"].as_str().unwrap();
    let revoked = run(format!("key revoke {key_id}")).await;
    assert!(revoked["revoked_at"].is_string());
    shop.close().await;
}

#[tokio::test]
async fn payctl_settles_what_only_a_person_can_decide() {
    let shop = Shop::open().await;
    let charge = async |number| {
        let answer = shop.charge(number, "MTN").await;
        answer.text("reference").unwrap().to_owned()
    };
    let run = async |words: String| payctl(&shop.ready, &words).await;
    let mismatched = charge("0240000015").await;
    shop.wait_for_case(&mismatched).await;
    let settle = format!("charge resolve {mismatched} --settled --evidence statement");
    let refused = run(settle).await.unwrap_err();
    assert!(refused.contains("EVIDENCE_MISMATCH"), "{refused}");

    let late = charge("0240000010").await;
    let case = shop.wait_for_case(&late).await.case_id;
    let listed = run("cases".to_owned()).await.unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let closed = run(format!("case close {case} --release")).await.unwrap();
    assert!(closed["closed_at"].is_string());
    assert_eq!(shop.balance().await, 2_550, "released to the merchant");
    let again = run(format!("case close {case} --refund"))
        .await
        .unwrap_err();
    assert!(again.contains("CASE_CLOSED"), "{again}");

    let waiting = charge("0240000100").await;
    let fail = format!("charge resolve {waiting} --failed PAYER_TIMEOUT --evidence call");
    assert_eq!(run(fail).await.unwrap()["state"], "FAILED");
    let event = shop.wait_for_event(&waiting).await;
    assert_eq!(event["data"]["failure_reason"], "PAYER_TIMEOUT");
    let show = "charge show TX-0000000000-000000".to_owned();
    let unknown = run(show).await.unwrap_err();
    assert!(unknown.contains("CHARGE_NOT_FOUND"), "{unknown}");
    shop.close().await;
}
