//! Days over the whole stack: their statements through the API and payctl, verified without a
//! server.

use std::{collections::BTreeSet, path::Path, process::Output, time::Duration};

use chassis::testing::until;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    processes::binary,
    shop::{Shop, WAIT_MAX},
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Runs payctl in this folder.
async fn payctl(shop: &Shop, folder: &Path, words: &str) -> Output {
    let mut command = Command::new(binary("payctl"));
    command
        .current_dir(folder)
        .args(words.split(' '))
        .env("CHARGES_GRPC_URL", &shop.ready.grpc.charges_operators);
    command.output().await.unwrap()
}

/// Verifies a file without any server.
async fn verify(folder: &Path, words: &str) -> Value {
    let mut command = Command::new(binary("payctl"));
    command
        .current_dir(folder)
        .args(["proof", "verify"])
        .args(words.split(' '))
        .env_clear();
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What the API answers, byte for byte, into a file.
async fn download(shop: &Shop, path: &str, file: &Path) {
    let client = chassis::http::client(WAIT_MAX).unwrap();
    let request = client
        .get(format!("{}{path}", shop.ready.api))
        .bearer_auth(&shop.ready.demo.api_key);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    std::fs::write(file, answer.bytes().await.unwrap()).unwrap();
}

async fn count(shop: &Shop, sql: &'static str) -> i64 {
    let db = shop.database("charges-svc").await;
    let (count,) = db.read().await.unwrap().sql(sql).one().await.unwrap();
    db.close().await;
    count
}

/// Collects twice and refunds a part. Returns what the lines of it are about.
async fn trade(shop: &Shop) -> BTreeSet<String> {
    let mut references = BTreeSet::new();
    for number in ["0240000001", "0270000001"] {
        let provider = if number.starts_with("024") {
            "MTN"
        } else {
            "AT"
        };
        let answer = shop.charge(number, provider).await;
        let reference = answer.text("reference").unwrap().to_owned();
        assert_eq!(shop.wait_for_end(&reference).await["status"], "SETTLED");
        references.insert(reference);
    }
    let first = references.first().unwrap();
    let path = format!("/api/v1/payments/charge/{first}/refunds");
    let refund = shop.api.post(&path, &json!({ "amount": 5 })).await.unwrap();
    refund.expect(202).unwrap();
    let refund_id = refund.text("refund_id").unwrap().to_owned();
    until("the refund is completed", async || {
        let path = format!("/api/v1/refunds/{refund_id}");
        shop.api.get(&path).await.unwrap().body["status"] == "COMPLETED"
    })
    .await;
    references.insert(refund_id);
    references
}

#[tokio::test]
async fn every_movement_is_in_one_days_statement_that_anybody_can_verify() {
    let shop = Shop::open().await;
    let refused = shop.api.get("/api/v1/statements/2020-01-01").await.unwrap();
    refused.expect(404).unwrap();
    let traded = trade(&shop).await;
    shop.advance(Duration::from_secs(120)).await;
    until("everything is sealed", async || {
        count(&shop, "select count(*) from unsealed_postings").await == 0
    })
    .await;
    // The second day has nothing.
    shop.advance(2 * DAY).await;
    until("two days are proven", async || {
        count(&shop, "select count(*) from proven_days").await >= 2
    })
    .await;
    let db = shop.database("charges-svc").await;
    let days = "select day from proven_days order by day";
    let days: Vec<(String,)> = db.read().await.unwrap().sql(days).all().await.unwrap();
    db.close().await;

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    download(&shop, "/api/v1/statements/keys", &at("keys.json")).await;
    let (mut seen, mut closing, mut before) = (BTreeSet::new(), Value::Null, None);
    for (day,) in days {
        let path = format!("/api/v1/statements/{day}");
        download(&shop, &path, &at(&day)).await;
        download(&shop, &format!("{path}?format=csv"), &at("csv")).await;
        let words = format!("proof statement --day {day}");
        let house = payctl(&shop, folder.path(), &words).await;
        std::fs::write(at("house"), house.stdout).unwrap();
        let house = verify(folder.path(), "house --key keys.json").await;
        assert_eq!(house["statement_of"], "house");

        let after = before.map_or(String::new(), |before| format!(" --after {before}"));
        let words = format!("{day} --key keys.json --house house{after}");
        let verified = verify(folder.path(), &words).await;
        let csv = verify(folder.path(), "csv --key keys.json --house house").await;
        assert_eq!(verified, csv);
        let words = format!(
            "proof statement --day {day} --merchant {}",
            shop.ready.demo.merchant_id
        );
        let same = payctl(&shop, folder.path(), &words).await.stdout;
        let text = std::fs::read(at(&day)).unwrap();
        assert_eq!(same, text, "payctl and the API give the same bytes");

        let statement: Value = serde_json::from_slice(&text).unwrap();
        for account in statement["accounts"].as_array().unwrap() {
            for line in account["lines"].as_array().unwrap() {
                seen.insert(line["reference"].as_str().unwrap().to_owned());
            }
        }
        closing = verified["accounts"][0]["closing"].clone();
        before = Some(day);
    }
    assert_eq!(seen, traded);
    let balance = shop.api.get("/api/v1/balance").await.unwrap();
    let available = balance.body["balances"][0]["available"].as_f64().unwrap();
    assert_eq!(closing, json!(format!("{available:.2}")));
    shop.close().await;
}
