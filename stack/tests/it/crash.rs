//! `kill -9` at each step of a charge, and at random under load.
//! Whatever happens: nothing acknowledged is missing, nobody is debited twice, no event is lost
//! or doubled, the ledger is balanced, and SETTLED means debited.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use db::Db;
use futures::future::join_all;
use serde_json::{Value, json};
use stack::demo::{Api, ApiResponse, Receiver};

use crate::{
    processes::Processes,
    shop::{book, check_ledger},
};

/// Longest wait for a charge to end after a crash: 18 s in which the network may have accepted it,
/// its 20 s with their margin, and allowance for a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(120);

const LOOK_AGAIN: Duration = Duration::from_millis(25);

const CHARGE: &str = "/api/v1/payments/charge";

/// The processes, a merchant, and its receiver.
struct World {
    processes: Processes,
    charges: Db,
    sessions: Db,
    receiver: Receiver,
    api: Arc<Api>,
}

impl World {
    async fn start() -> Self {
        let processes = Processes::start(&[]).await;
        let receiver = Receiver::start().await.unwrap();
        let merchant = processes.merchant(&receiver.url).await;
        Self {
            charges: processes.charges_db.connect().await,
            sessions: processes.sessions_db.connect().await,
            api: Arc::new(Api::new(&processes.gateway.url, &merchant.api_key).unwrap()),
            receiver,
            processes,
        }
    }

    async fn charge(&self, number: &str, key: &str) -> anyhow::Result<ApiResponse> {
        charge(&self.api, number, key).await
    }

    /// Repeats a charge with its key until it is acknowledged.
    async fn charge_until_acknowledged(&self, number: &str, key: &str) -> ApiResponse {
        charge_until_acknowledged(&self.api, number, key).await
    }

    /// The states of all charges.
    async fn states(&self) -> Vec<String> {
        let mut conn = self.charges.read().await.unwrap();
        let states = conn.sql("select state from charges order by created_at");
        let states: Vec<(String,)> = states.all().await.unwrap();
        states.into_iter().map(|(state,)| state).collect()
    }

    async fn wait_for_state(&self, wanted: &str) {
        let looking = async {
            while !self.states().await.iter().any(|state| state == wanted) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let found = tokio::time::timeout(WAIT_MAX, looking).await;
        assert!(
            found.is_ok(),
            "no charge is {wanted}: {:?}",
            self.states().await
        );
    }

    /// Waits until every charge has ended, then cross-checks everything. Returns how many settled.
    async fn settle_accounts(&self, acknowledged: &BTreeSet<String>) -> usize {
        let ended = async {
            loop {
                let states = self.states().await;
                let is_end = |state: &String| matches!(&**state, "SETTLED" | "FAILED" | "VOID");
                let left = db::outbox::len(&self.charges).await.unwrap()
                    + db::outbox::len(&self.sessions).await.unwrap();
                if states.iter().all(is_end) && left == 0 {
                    return;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let ended = tokio::time::timeout(WAIT_MAX, ended).await;
        assert!(
            ended.is_ok(),
            "charges are left open: {:?}",
            self.states().await
        );

        let mut conn = self.charges.read().await.unwrap();
        let rows: Vec<Row> = conn
            .sql(
                "select reference, tx_id_display, cast(rail_reference as text) as rail_reference,
                        state from charges where state <> 'VOID'",
            )
            .all()
            .await
            .unwrap();
        drop(conn);
        let known: BTreeSet<_> = rows.iter().map(|row| row.reference.clone()).collect();
        let missing: Vec<_> = acknowledged.difference(&known).collect();
        assert!(missing.is_empty(), "acknowledged and missing: {missing:?}");

        let settled: Vec<_> = rows.iter().filter(|row| row.state == "SETTLED").collect();
        let mut debits = 0;
        for entry in book(&self.processes.railsim.url).await {
            let times = entry["debits"].as_u64().unwrap();
            assert!(times <= 1, "debited twice: {entry}");
            debits += usize::try_from(times).unwrap();
        }
        assert_eq!(
            debits,
            settled.len(),
            "SETTLED means debited, and debited means SETTLED"
        );
        check_ledger(&self.charges).await;
        let posted = posted_to_merchants(&self.charges).await;
        assert_eq!(posted, i64::try_from(settled.len()).unwrap() * 2_550);
        self.check_events(&rows).await;
        settled.len()
    }

    /// Checks that each ended charge has one event, and each event a charge.
    async fn check_events(&self, rows: &[Row]) {
        let wanted: BTreeMap<_, _> = rows
            .iter()
            .map(|row| (row.tx_id_display.clone(), row.state.clone()))
            .collect();
        let arrived = async {
            while events(&self.receiver).len() < wanted.len() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let arrived = tokio::time::timeout(WAIT_MAX, arrived).await;
        let events = events(&self.receiver);
        assert!(
            arrived.is_ok(),
            "{} events of {} charges",
            events.len(),
            wanted.len()
        );
        let statuses: BTreeMap<_, _> = events
            .into_iter()
            .map(|(display, ids)| {
                assert_eq!(ids.len(), 1, "{display} has several events: {ids:?}");
                (display, ids.into_values().next().unwrap())
            })
            .collect();
        assert_eq!(statuses, wanted);
    }

    async fn end(self) {
        self.charges.close().await;
        self.sessions.close().await;
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    reference: String,
    tx_id_display: String,
    state: String,
}

/// For each transaction: its events' ids, each with its status.
fn events(receiver: &Receiver) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut events = BTreeMap::<String, BTreeMap<String, String>>::new();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for delivery in receiver.deliveries() {
        let event = delivery.json().unwrap();
        let of_one = events
            .entry(text(&event["data"]["tx_id_display"]))
            .or_default();
        of_one.insert(text(&event["id"]), text(&event["data"]["status"]));
    }
    events
}

async fn posted_to_merchants(db: &Db) -> i64 {
    let mut conn = db.read().await.unwrap();
    let (posted,): (i64,) = conn
        .sql(
            "select cast(coalesce(sum(amount_minor), 0) as bigint) from postings
             where account like 'merchant:%'",
        )
        .one()
        .await
        .unwrap();
    posted.abs()
}

async fn charge(api: &Api, number: &str, key: &str) -> anyhow::Result<ApiResponse> {
    let provider = match &number[..3] {
        "020" => "TELECEL",
        "027" => "AT",
        _ => "MTN",
    };
    let body = json!({ "amount": 25.5, "mobile_number": number, "provider": provider });
    api.post_with_key(CHARGE, &body, key).await
}

async fn charge_until_acknowledged(api: &Api, number: &str, key: &str) -> ApiResponse {
    let trying = async {
        loop {
            match charge(api, number, key).await {
                Ok(answer) if matches!(answer.code, 202 | 422) => return answer,
                Ok(answer) if answer.code >= 500 || answer.code == 409 => {}
                Ok(answer) => panic!("{}: {}", answer.code, answer.body),
                // The gateway was killed.
                Err(_) => {}
            }
            tokio::time::sleep(LOOK_AGAIN * 4).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, trying)
        .await
        .expect("the charge is acknowledged")
}

#[tokio::test]
async fn killed_before_the_rail_is_called_the_charge_fails_and_nobody_is_debited() {
    assert_eq!(settled_after_a_kill_before_the_rail("0270000001").await, 0);
}

/// MTN accepts a reference only once, so the request can safely be repeated.
#[tokio::test]
async fn killed_before_mtn_is_called_the_sale_is_made_all_the_same() {
    assert_eq!(settled_after_a_kill_before_the_rail("0240000001").await, 1);
}

async fn settled_after_a_kill_before_the_rail(number: &'static str) -> usize {
    let mut world = World::start().await;
    world.processes.sessions.freeze().await;
    let api = world.api.clone();
    let asking = tokio::task::LocalSet::new();
    let asked = asking.spawn_local(async move { charge(&api, number, "order-1").await });
    asking.run_until(world.wait_for_state("SUBMITTING")).await;
    world.processes.charges.kill().await;
    world.processes.sessions.thaw().await;
    asking.await;
    let told = asked.await.unwrap();
    assert!(told.is_err() || told.is_ok_and(|answer| answer.code >= 500));
    world.processes.charges.start().await;
    let answer = world.charge_until_acknowledged(number, "order-1").await;
    let acknowledged = BTreeSet::from([answer.text("reference").unwrap().to_owned()]);
    let settled = world.settle_accounts(&acknowledged).await;
    world.end().await;
    settled
}

#[tokio::test]
async fn killed_while_the_rail_is_called_the_rail_decides() {
    let mut world = World::start().await;
    // A first payment fetches the rail's token, so that the next call is the payment itself.
    let first = world
        .charge_until_acknowledged("0240000001", "order-1")
        .await;
    world.processes.railsim.freeze().await;
    let api = world.api.clone();
    let asking = tokio::task::LocalSet::new();
    let asked = asking.spawn_local(async move { charge(&api, "0240000001", "order-2").await });
    let sessions = async {
        loop {
            let mut conn = world.sessions.read().await.unwrap();
            let (count,): (i64,) = conn
                .sql("select count(*) from sessions")
                .one()
                .await
                .unwrap();
            if count == 2 {
                return;
            }
            drop(conn);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    asking
        .run_until(tokio::time::timeout(WAIT_MAX, sessions))
        .await
        .expect("a second session");
    world.processes.charges.kill().await;
    world.processes.railsim.thaw().await;
    asking.await;
    drop(asked.await.unwrap());
    world.processes.charges.start().await;
    let second = world
        .charge_until_acknowledged("0240000001", "order-2")
        .await;
    let references = [&first, &second].map(|answer| answer.text("reference").unwrap().to_owned());
    world.settle_accounts(&BTreeSet::from(references)).await;
    world.end().await;
}

#[tokio::test]
async fn killed_between_settling_and_telling_the_session_everyone_is_told_once() {
    let mut world = World::start().await;
    let answer = world.charge("0240000100", "order-1").await.unwrap();
    world.processes.sessions.freeze().await;
    approve(&world).await;
    world.wait_for_state("SETTLED").await;
    world.processes.charges.kill().await;
    world.processes.sessions.thaw().await;
    world.processes.charges.start().await;
    let acknowledged = BTreeSet::from([answer.text("reference").unwrap().to_owned()]);
    assert_eq!(world.settle_accounts(&acknowledged).await, 1);
    world.end().await;
}

#[tokio::test]
async fn killed_between_the_session_and_the_event_the_event_is_sent_once() {
    let mut world = World::start().await;
    let answer = world.charge("0240000100", "order-1").await.unwrap();
    world.processes.webhooks.freeze().await;
    approve(&world).await;
    let session_id = answer.text("session_id").unwrap();
    let path = format!("/api/v1/payments/{session_id}/status");
    let is_completed = |session: &Value| session["status"] == "COMPLETED";
    world.api.poll(&path, WAIT_MAX, is_completed).await.unwrap();
    world.processes.charges.kill().await;
    world.processes.webhooks.kill().await;
    world.processes.webhooks.start().await;
    world.processes.charges.start().await;
    let acknowledged = BTreeSet::from([answer.text("reference").unwrap().to_owned()]);
    assert_eq!(world.settle_accounts(&acknowledged).await, 1);
    world.end().await;
}

#[tokio::test]
async fn killed_while_a_code_is_submitted_the_rail_decides() {
    let mut world = World::start().await;
    let answer = world.charge("0200000002", "order-1").await.unwrap();
    let reference = answer.text("reference").unwrap().to_owned();
    world.processes.railsim.freeze().await;
    let submit = async |api: Arc<Api>, reference: String| {
        let body = json!({ "reference": reference, "otp": "123456" });
        api.post("/api/v1/payments/charge/submit-otp", &body).await
    };
    let asking = tokio::task::LocalSet::new();
    let asked = asking.spawn_local(submit(world.api.clone(), reference.clone()));
    asking
        .run_until(world.wait_for_state("OTP_SUBMITTING"))
        .await;
    world.processes.charges.kill().await;
    world.processes.railsim.thaw().await;
    asking.await;
    drop(asked.await.unwrap());
    world.processes.charges.start().await;
    let path = format!("{CHARGE}/{reference}");
    let is_known = |charge: &Value| charge["status"] != "INITIATED";
    let known = world.api.poll(&path, WAIT_MAX, is_known).await.unwrap();
    if known.body["status"] == "OTP_REQUIRED" {
        // The code did not reach the rail.
        submit(world.api.clone(), reference.clone())
            .await
            .unwrap()
            .expect(202)
            .unwrap();
    }
    assert_eq!(world.settle_accounts(&BTreeSet::from([reference])).await, 1);
    world.end().await;
}

/// Kills every service in turn, at random moments, while charges come in.
#[tokio::test]
async fn killed_at_random_under_load_nothing_is_lost_or_doubled() {
    const CLIENTS: usize = 6;
    let kills = kills();
    let mut world = World::start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let clients = (0..CLIENTS).map(|client| {
        let (api, stop, asked) = (world.api.clone(), stop.clone(), asked.clone());
        async move {
            let mut references = BTreeSet::new();
            while !stop.load(Ordering::SeqCst) {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                // MTN, AT, a decline, a missing wallet, a lost answer, no callback.
                let phone = [
                    "0240000001",
                    "0270000001",
                    "0240000004",
                    "0240000006",
                    "0240000013",
                    "0240000008",
                ][number % 6];
                let key = format!("client-{client}-{number}");
                let answer = charge_until_acknowledged(&api, phone, &key).await;
                references.insert(answer.text("reference").unwrap().to_owned());
            }
            references
        }
    });
    let storm = async {
        for round in 0..kills {
            for process in 1..7 {
                let pause = 50 + (round * 7 + process * 13) % 10 * 60;
                tokio::time::sleep(Duration::from_millis(u64::try_from(pause).unwrap())).await;
                world.processes.all()[process].kill_and_start().await;
            }
        }
        stop.store(true, Ordering::SeqCst);
    };
    let (references, ()) = tokio::join!(join_all(clients), storm);
    let acknowledged: BTreeSet<String> = references.into_iter().flatten().collect();
    let settled = world.settle_accounts(&acknowledged).await;
    println!(
        "{} kills, {} charges acknowledged, {settled} settled",
        kills * 6,
        acknowledged.len()
    );
    assert!(settled > 0 && acknowledged.len() > settled);
    world.end().await;
}

/// How often each process is killed: a few times, or `KILLS`.
#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn kills() -> usize {
    std::env::var("KILLS").map_or(2, |kills| kills.parse().expect("KILLS is a number"))
}

/// Approves the only waiting prompt.
async fn approve(world: &World) {
    let client = chassis::http::client(WAIT_MAX).unwrap();
    let handset = &world.processes.railsim.url;
    let prompts = client
        .get(format!("{handset}/prompts"))
        .send()
        .await
        .unwrap();
    let prompts: Vec<Value> = prompts.json().await.unwrap();
    let id = prompts[0]["id"].as_str().unwrap();
    client
        .post(format!("{handset}/prompts/{id}/approve"))
        .send()
        .await
        .unwrap();
}
