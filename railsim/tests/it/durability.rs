//! The book survives `kill -9` of the real binary at any moment.

use std::{collections::HashSet, path::Path, process::Stdio, time::Duration};

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

use crate::{
    mail::Client,
    world::{Wires, World, credentials, plain_reference, reference},
};

/// The binary's process, killed on drop.
struct Process {
    child: Child,
    wires: Wires,
    smtp: String,
    _log: Lines<BufReader<ChildStderr>>,
}

impl Process {
    async fn start(data: &Path, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_railsim"))
            .args(credentials())
            .args(["--listen=127.0.0.1:0", "--mail-listen=127.0.0.1:0"])
            .arg(format!("--data={}", data.display()))
            .args(flags)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut addresses = Vec::new();
        while addresses.len() < 2 {
            let line = log.next_line().await.unwrap();
            let line = line.expect("the binary says its addresses");
            let line: Value = serde_json::from_str(&line).unwrap();
            addresses.extend(line["fields"]["address"].as_str().map(str::to_owned));
        }
        let (smtp, address) = (addresses.remove(1), addresses.remove(0));
        let client = chassis::http::client(Duration::from_secs(5)).unwrap();
        let wires = Wires {
            base: format!("http://{address}"),
            client,
        };
        Self {
            child,
            wires,
            smtp,
            _log: log,
        }
    }

    /// `kill -9`
    async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
    }
}

#[tokio::test]
async fn acknowledged_mail_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]).await;
    let mut client = Client::connect_to(&process.smtp).await;
    client.greet().await;
    client
        .send("ama@example.com", "Subject: kept\r\n\r\ntext")
        .await;
    process.kill().await;
    let process = Process::start(folder.path(), &[]).await;
    let mails = process
        .wires
        .client
        .get(format!("{}/mail.json", process.wires.base));
    let mails: Value = mails.send().await.unwrap().json().await.unwrap();
    assert_eq!(mails[0]["subject"], "kept");
    process.kill().await;
}

async fn settled(wires: &Wires, reference: &str) -> Value {
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let entry = wires.entry(reference).await;
        if entry["status"] == "succeeded" {
            return entry;
        }
        assert!(tokio::time::Instant::now() < until, "{entry}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9_and_is_debited_once() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = "http://127.0.0.1:9/";
    let (waiting, settling, token) = (reference(0), reference(0), {
        let process = Process::start(folder.path(), &["--approve-delay=10m"]).await;
        process.wires.token().await
    });
    let process = Process::start(folder.path(), &["--approve-delay=10m"]).await;
    process
        .wires
        .request_to_pay(&waiting, "233241234100", nowhere)
        .await
        .unwrap();
    process
        .wires
        .request_to_pay(&settling, "233241234001", nowhere)
        .await
        .unwrap();
    process
        .wires
        .charge("voucher", "0201234002", "vod")
        .await
        .unwrap();
    process.kill().await;

    let process = Process::start(folder.path(), &["--approve-delay=0s"]).await;
    let wires = process.wires.clone();
    assert_eq!(settled(&wires, &settling).await["debits"], 1);
    assert_eq!(wires.entry(&waiting).await["status"], "pending");
    assert_eq!(wires.entry("voucher").await["status"], "otp");
    let path = format!("{}/collection/v1_0/requesttopay/{waiting}", wires.base);
    let told = wires
        .momo(wires.client.get(path), &token)
        .send()
        .await
        .unwrap();
    assert_eq!(told.status(), 200, "a token outlives the network's restart");
    wires.submit_otp("voucher", "123456").await.unwrap();
    assert_eq!(settled(&wires, "voucher").await["debits"], 1);
    process.kill().await;

    let process = Process::start(folder.path(), &["--approve-delay=0s"]).await;
    let wires = process.wires.clone();
    for reference in [settling.as_str(), "voucher"] {
        let entry = wires.entry(reference).await;
        assert_eq!(
            (&entry["status"], &entry["debits"]),
            (&json!("succeeded"), &json!(1))
        );
    }
    let again = wires
        .request_to_pay(&settling, "233241234001", nowhere)
        .await
        .unwrap();
    assert_eq!(again.status(), 409);
}

/// Charges until the process is killed. Returns the references of all charges that were answered.
async fn charge_until_killed(wires: &Wires, prefix: String) -> Vec<String> {
    let mut accepted = Vec::new();
    loop {
        let reference = format!("{prefix}-{}", accepted.len());
        match wires.charge(&reference, "0201234001", "vod").await {
            Ok(answer) if answer.status() == 200 => accepted.push(reference),
            Ok(answer) => panic!("{}", answer.status()),
            Err(_) => return accepted,
        }
    }
}

#[tokio::test]
async fn killed_at_any_moment_it_neither_forgets_nor_debits_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0_u64..10 {
        let process = Process::start(folder.path(), &["--approve-delay=1ms"]).await;
        let wires = process.wires.clone();
        let load = (0..8).map(|client| charge_until_killed(&wires, format!("{round}-{client}")));
        let kill = async {
            tokio::time::sleep(Duration::from_millis(20 + 13 * round)).await;
            process.kill().await;
        };
        let (accepted, ()) = tokio::join!(futures::future::join_all(load), kill);
        acknowledged.extend(accepted.into_iter().flatten());
    }
    let process = Process::start(folder.path(), &["--approve-delay=1ms"]).await;
    assert!(acknowledged.len() > 10, "the rounds did something");
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    let book = loop {
        let book = process.wires.book().await;
        if book.iter().all(|entry| entry["status"] == "succeeded") {
            break book;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "everything is debited in the end"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(book.iter().all(|entry| entry["debits"] == 1));
    let booked: HashSet<&str> = book
        .iter()
        .map(|entry| entry["reference"].as_str().unwrap())
        .collect();
    assert!(
        acknowledged
            .iter()
            .all(|reference| booked.contains(reference.as_str()))
    );
}

#[tokio::test]
async fn a_torn_last_line_is_cut_off_and_the_rest_is_kept() {
    let world = World::start().await;
    let wires = world.wires();
    wires.charge("order-1", "0201234100", "vod").await.unwrap();
    wires.charge("order-2", "0201234100", "vod").await.unwrap();
    let journal = world.journal();
    assert_eq!(journal.lines().count(), 2);

    let folder = tempfile::tempdir().unwrap();
    let torn = &journal[..journal.len() - 20];
    std::fs::write(folder.path().join("journal.jsonl"), torn).unwrap();
    let process = Process::start(folder.path(), &[]).await;
    let book = process.wires.book().await;
    assert_eq!(book.len(), 1);
    assert_eq!(book[0]["reference"], "order-1");
    process
        .wires
        .charge("order-3", "0201234100", "vod")
        .await
        .unwrap();
    process.kill().await;
    let process = Process::start(folder.path(), &[]).await;
    let references: Vec<Value> = process
        .wires
        .book()
        .await
        .iter()
        .map(|entry| entry["reference"].clone())
        .collect();
    assert_eq!(references, ["order-1", "order-3"]);
}

#[tokio::test]
async fn a_journal_that_is_broken_in_the_middle_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("journal.jsonl"), "{\"rail\":\"momo\"}\n").unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_railsim"))
        .args(credentials())
        .arg("--listen=127.0.0.1:0")
        .arg(format!("--data={}", folder.path().display()))
        .output()
        .await
        .unwrap();
    assert!(!ended.status.success());
    assert!(
        String::from_utf8(ended.stderr)
            .unwrap()
            .contains("line 1 is broken")
    );
}

#[tokio::test]
async fn a_webhook_that_was_not_answered_is_sent_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let reserved = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = reserved.local_addr().unwrap();
    let callback = format!("--paystack-callback-url=http://{address}/");
    let flags = ["--approve-delay=0s", callback.as_str()];
    let process = Process::start(folder.path(), &flags).await;
    process
        .wires
        .charge("order-1", "0201234001", "vod")
        .await
        .unwrap();
    settled(&process.wires, "order-1").await;
    // The webhook hangs: the address accepts the connection and does not answer.
    let (_hanging, _) = reserved.accept().await.unwrap();
    process.kill().await;

    let process = Process::start(folder.path(), &flags).await;
    let again = tokio::time::timeout(Duration::from_secs(5), reserved.accept()).await;
    assert!(again.unwrap().is_ok());
    let answer = process
        .wires
        .paystack(Method::GET, "/charge/order-1")
        .send()
        .await
        .unwrap();
    assert_eq!(
        answer.json::<Value>().await.unwrap()["data"]["status"],
        "success"
    );
}

#[tokio::test]
async fn credits_recipients_and_floats_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = "http://127.0.0.1:9/";
    let (paid, waiting) = (reference(0), reference(0));
    let process = Process::start(folder.path(), &["--approve-delay=10m"]).await;
    let wires = process.wires.clone();
    let recipient = wires.recipient("0271234201", "ATL").await;
    wires.paystack_transfer(&paid, "0271234201").await.unwrap();
    let momo = async |reference: &str| {
        let sent = wires.momo_transfer(reference, "233241234201", nowhere);
        sent.await.unwrap()
    };
    momo(&waiting).await;
    wires.add_float("momo", 700).await;
    process.kill().await;

    let process = Process::start(folder.path(), &["--approve-delay=0s"]).await;
    let wires = process.wires.clone();
    for reference in [&paid, &waiting] {
        let until = tokio::time::Instant::now() + Duration::from_secs(10);
        while wires.credit(reference).await["credits"] != 1 {
            assert!(tokio::time::Instant::now() < until, "it is paid in the end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(wires.recipient("0271234201", "ATL").await, recipient);
    process.kill().await;

    let process = Process::start(folder.path(), &["--approve-delay=0s"]).await;
    let wires = process.wires.clone();
    for reference in [&paid, &waiting] {
        assert_eq!(wires.credit(reference).await["credits"], 1);
    }
    assert_eq!(wires.float("momo").await, 100_000_000 + 700 - 2_550);
    assert_eq!(wires.float("paystack").await, 100_000_000 - 2_650);
    let again = wires.momo_transfer(&waiting, "233241234201", nowhere);
    assert_eq!(again.await.unwrap().status(), 409);
    let again = wires.paystack_transfer(&paid, "0271234201").await.unwrap();
    assert_eq!(again.status(), 400);
}

#[tokio::test]
async fn what_hubtel_acknowledged_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = "http://127.0.0.1:9/";
    let (waiting, settling, sent) = (plain_reference(0), plain_reference(1), plain_reference(0));
    let process = Process::start(folder.path(), &["--approve-delay=10m"]).await;
    let wires = process.wires.clone();
    for (reference, phone) in [(&waiting, "233241234100"), (&settling, "233241234001")] {
        wires.receive(reference, phone, nowhere).await.unwrap();
    }
    wires.send(&sent, "233241234201", nowhere).await.unwrap();
    wires.add_float("hubtel", 700).await;
    process.kill().await;

    let process = Process::start(folder.path(), &["--approve-delay=0s"]).await;
    let wires = process.wires.clone();
    assert_eq!(settled(&wires, &settling).await["debits"], 1);
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    while wires.credit(&sent).await["credits"] != 1 {
        assert!(tokio::time::Instant::now() < until, "it is paid in the end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    process.kill().await;

    let process = Process::start(folder.path(), &["--approve-delay=0s"]).await;
    let wires = process.wires.clone();
    assert_eq!(wires.hubtel_data(&settling).await["status"], "Paid");
    assert_eq!(wires.hubtel_data(&waiting).await["status"], "Unpaid");
    assert_eq!(wires.prompts().await.len(), 1);
    assert_eq!(wires.stands("hubtel", &sent).await, "success");
    assert_eq!(wires.float("hubtel").await, 100_000_000 + 700 - 2_550);
    let again = wires.receive(&settling, "233241234001", nowhere).await;
    assert_eq!(again.unwrap().status(), 400);
    let again = wires.send(&sent, "233241234201", nowhere).await;
    assert_eq!(again.unwrap().status(), 400);
}

#[tokio::test]
async fn without_a_folder_the_book_is_kept_in_memory() {
    let world = World::start_in_memory().await;
    world
        .wires()
        .charge("order-1", "0201234001", "vod")
        .await
        .unwrap();
    world.advance(2).await;
    assert_eq!(world.entry("order-1").await["debits"], 1);
}
