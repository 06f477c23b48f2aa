//! What goes over Hubtel, in and out: what its wire tells late or never, what it refuses, and that
//! a route that changes moves nothing that has begun.

use std::time::Duration;

use chassis::testing::until;
use proto::charges::{CaseKind, DisbursementStatus, Provider, ShowFloatRequest};
use serde_json::{Value, json};
use stack::demo::{Api, Receiver};

use crate::{
    health::ask,
    money_out::{AT, DAYS, Till, check_credit, check_event, collected_with, events, only_case},
    processes::Processes,
    shop::{Shop, WAIT_MAX, book, credits},
};

const CHARGE: &str = "/api/v1/payments/charge";

/// Routes AT's wallets over Hubtel.
const AT_BY_HUBTEL: (&str, &str) = ("charges-svc", "--rail-at=hubtel");

/// Lets a payout account change without a wait.
const NO_HOLD: (&str, &str) = ("charges-svc", "--payout-account-hold=0s");

/// Shorter than a payer's five minutes, and longer than those with their margin.
const STILL_PAYING: Duration = Duration::from_secs(280);
const SURELY_OVER: Duration = Duration::from_secs(120);

/// Longer than until anything may go out again on other rails.
const QUARTER_HOUR: Duration = Duration::from_secs(16 * 60);

const DAY: Duration = Duration::from_secs(25 * 3_600);

#[tokio::test]
async fn a_payer_of_each_network_is_debited_without_a_code_and_everybody_hears_of_it_once() {
    let routes = ["--rail-mtn=hubtel", "--rail-telecel=hubtel", AT_BY_HUBTEL.1];
    let shop = Shop::open_with(&routes.map(|route| ("charges-svc", route))).await;
    for (paid, (number, provider)) in [
        ("0240000001", "MTN"),
        ("0200000002", "TELECEL"),
        ("0270000001", "AT"),
        // Its reply is lost.
        ("0270000013", "AT"),
        // It never calls back.
        ("0240000008", "MTN"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = shop.charge(number, provider).await;
        answer.expect(202).unwrap();
        answer
            .expect_fields(&[("status", json!("INITIATED"))])
            .unwrap();
        let reference = answer.text("reference").unwrap();
        let charge = shop.wait_for_end(reference).await;
        assert_eq!(charge["status"], "SETTLED", "{charge}");
        let event = shop.wait_for_event(reference).await;
        assert_eq!(event["type"], "payment.success");
        let book = shop.book(number).await;
        assert_eq!(book.len(), 1, "{book:?}");
        assert_eq!(
            (&book[0]["rail"], &book[0]["debits"], &book[0]["requests"]),
            (&json!("hubtel"), &json!(1), &json!(1))
        );
        // What Hubtel takes is not the merchant's.
        let paid = i64::try_from(paid).unwrap() + 1;
        assert_eq!(shop.balance().await, paid * 2_550);
    }
    shop.close().await;
}

/// Hubtel's status has no word for a failure, and its callbacks are not signed.
#[tokio::test]
async fn a_declined_payment_stays_open_until_the_payers_time_is_over() {
    let shop = Shop::open_with(&[AT_BY_HUBTEL]).await;
    // Without funds, declined, and never answered.
    for number in ["0270000003", "0270000004", "0270000005"] {
        let answer = shop.charge(number, "AT").await;
        answer.expect(202).unwrap();
        let reference = answer.text("reference").unwrap();
        until("Hubtel knows", async || {
            shop.book(number).await[0]["status"] == "failed"
        })
        .await;
        shop.advance(STILL_PAYING).await;
        assert_eq!(shop.read_charge(reference).await["status"], "INITIATED");
        assert!(shop.events(reference).is_empty());
        shop.advance(SURELY_OVER).await;
        let charge = shop.wait_for_end(reference).await;
        assert_eq!(charge["status"], "FAILED", "{charge}");
        assert_eq!(charge["failure_reason"], "PAYER_TIMEOUT");
        let event = shop.wait_for_event(reference).await;
        assert_eq!(event["type"], "payment.failed");
    }
    shop.advance(DAYS).await;
    assert_eq!(shop.balance().await, 0);
    assert!(shop.cases().await.is_empty(), "{:?}", shop.cases().await);
    shop.close().await;
}

#[tokio::test]
async fn what_hubtel_refuses_at_once_fails_at_once() {
    let shop = Shop::open_with(&[AT_BY_HUBTEL]).await;
    let answer = shop.charge("0270000006", "AT").await;
    answer.expect(422).unwrap();
    let charge = shop.read_charge(answer.text("reference").unwrap()).await;
    assert_eq!(charge["status"], "FAILED");
    assert_eq!(charge["failure_reason"], "PAYER_NOT_FOUND");
    shop.close().await;
}

#[tokio::test]
async fn payouts_are_paid_from_the_float_and_the_ledgers_is_hubtels() {
    let shop = collected_with(&[AT_BY_HUBTEL, NO_HOLD]).await;
    let mut till = Till::of(&shop);
    // As it comes, its reply lost, without a callback, and with three.
    for (paid, story) in ["201", "207", "208", "209"].into_iter().enumerate() {
        let number = format!("{}{story}", AT.1);
        till.pays_to(Provider::At, &number, "Ama Mensah").await;
        let payout = till.pay_out(500, story).await;
        till.until(&payout, DisbursementStatus::Completed).await;
        check_credit(&till, &payout, (1, 500)).await;
        check_event(&shop, &payout, "payout.success").await;
        let lines = credits(&shop.ready.handset).await;
        assert_eq!(lines.len(), paid + 1, "{lines:?}");
        assert!(lines.iter().all(|line| line["rail"] == "hubtel"));
    }
    assert_eq!(till.balance().await, (550, 0));
    let floats = till.treasury.show_float(ShowFloatRequest {}).await;
    let mut floats = floats.unwrap().into_inner().rails.into_iter();
    let float = floats.find(|float| float.rail == "hubtel").unwrap();
    // Nobody told the ledger what was there at first.
    let spent = float.rail_balance.unwrap().minor_units - 100_000_000;
    assert_eq!(float.float.unwrap().minor_units, spent);
    assert!(spent <= -2_000, "{spent}");
    shop.advance(DAYS).await;
    assert!(shop.cases().await.is_empty(), "{:?}", shop.cases().await);
    shop.close().await;
}

#[tokio::test]
async fn a_float_that_a_callback_calls_empty_fails_the_payout_and_tells_an_operator() {
    let shop = collected_with(&[AT_BY_HUBTEL]).await;
    let mut till = Till::of(&shop);
    till.pays_to(Provider::At, "0270000206", "Ama Mensah").await;
    let payout = till.pay_out(2_000, "206").await;
    let failed = till.until(&payout, DisbursementStatus::Failed).await;
    // An empty float is ours, and no fault of the payee or the merchant.
    assert_eq!(failed.failure_reason.as_deref(), Some("RAIL_UNAVAILABLE"));
    only_case(&shop, &payout, CaseKind::FloatEmpty).await;
    assert_eq!(till.balance().await, (2_550, 0));
    check_credit(&till, &payout, (0, 0)).await;
    check_event(&shop, &payout, "payout.failed").await;
    shop.close().await;
}

/// Hubtel does not say what a second use of a reference does.
#[tokio::test]
async fn a_payout_without_an_outcome_is_never_sent_twice_and_is_an_operators_after_a_day() {
    let shop = collected_with(&[AT_BY_HUBTEL]).await;
    let mut till = Till::of(&shop);
    // Its request is lost on the way, so Hubtel knows nothing of it.
    till.pays_to(Provider::At, "0270000215", "Ama Mensah").await;
    let payout = till.pay_out(2_000, "215").await;
    till.until(&payout, DisbursementStatus::Processing).await;
    shop.advance(QUARTER_HOUR).await;
    let waiting = till.read(&payout).await;
    assert_eq!(waiting.status(), DisbursementStatus::Processing);
    assert!(shop.cases().await.is_empty());
    shop.advance(DAY).await;
    only_case(&shop, &payout, CaseKind::UnknownOutcome).await;
    let requests: u64 = credits(&shop.ready.handset)
        .await
        .iter()
        .map(|line| line["requests"].as_u64().unwrap())
        .sum();
    assert!(requests <= 1, "{requests}");
    assert_eq!(till.balance().await, (550, 2_000));
    assert!(events(&shop, &payout.payout_id).is_empty());
    shop.close().await;
}

/// Everything in processes of its own, with AT's wallets over Hubtel, and a merchant.
struct World {
    processes: Processes,
    receiver: Receiver,
    merchant: crate::processes::Merchant,
    api: Api,
}

impl World {
    async fn start(more: &[(&'static str, &str)]) -> Self {
        let mut processes = Processes::plan().await;
        for process in processes.all() {
            let flags = more.iter().filter(|(name, _)| *name == process.name);
            for (_, flag) in flags {
                let (name, _) = flag.split_once('=').unwrap();
                process.flags.retain(|old| !old.starts_with(name));
                process.flags.push((*flag).to_owned());
            }
        }
        processes.start_all().await;
        let receiver = Receiver::start().await.unwrap();
        let merchant = processes.merchant(&receiver.url).await;
        let api = Api::new(&processes.gateway.url, &merchant.api_key).unwrap();
        Self {
            processes,
            receiver,
            merchant,
            api,
        }
    }

    async fn charge(&self, number: &str, provider: &str) -> Value {
        let body = json!({"amount": 25.5, "mobile_number": number, "provider": provider});
        self.api.post(CHARGE, &body).await.unwrap().body
    }

    async fn ended(&self, charge: &Value) -> Value {
        let path = format!("{CHARGE}/{}", charge["reference"].as_str().unwrap());
        let is_final = |body: &Value| body["status"] == "SETTLED" || body["status"] == "FAILED";
        self.api.poll(&path, WAIT_MAX, is_final).await.unwrap().body
    }

    fn till(&self) -> Till {
        let charges = &self.processes.charges;
        let (channel, operators) = (charges.channel(), charges.operators());
        let networks = &self.processes.railsim.url;
        Till::new(channel, operators, &self.merchant.merchant_id, networks)
    }

    /// The rail of each debit and each credit of this account, by the networks' own book.
    async fn rails_of(&self, number: &str) -> Vec<String> {
        let networks = &self.processes.railsim.url;
        let lines = [book(networks).await, credits(networks).await].concat();
        let account = format!("+233{}", &number[1..]);
        let ours = lines.into_iter().filter(|line| {
            line["phone"] == account.as_str() || line["account"] == account.as_str()
        });
        ours.map(|line| line["rail"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn press(&self, button: &str) {
        let client = chassis::http::client(WAIT_MAX).unwrap();
        let networks = &self.processes.railsim.url;
        let prompts = client.get(format!("{networks}/prompts")).send().await;
        let prompts: Vec<Value> = prompts.unwrap().json().await.unwrap();
        let id = prompts[0]["id"].as_str().unwrap();
        let url = format!("{networks}/prompts/{id}/{button}");
        assert!(client.post(url).send().await.unwrap().status().is_success());
    }

    /// Ends the test.
    async fn close(self) {
        self.processes.charges_db.until_relayed().await;
        self.processes.sessions_db.until_relayed().await;
        self.receiver.check_no_event_came_twice().unwrap();
    }
}

#[tokio::test]
async fn what_began_on_a_rail_stays_there_whatever_the_routes_are_later() {
    let mut world = World::start(&[
        AT_BY_HUBTEL,
        NO_HOLD,
        // No query before the routes have changed.
        ("charges-svc", "--reconcile-schedule=20s"),
        ("charges-svc", "--approval-window=300s"),
    ])
    .await;
    let collected = world.charge("0240000001", "MTN").await;
    assert_eq!(world.ended(&collected).await["status"], "SETTLED");
    let waiting = world.charge("0270000100", "AT").await;
    let mut till = world.till();
    // Hubtel never calls back about it.
    till.pays_to(Provider::At, "0270000208", "Ama Mensah").await;
    let payout = till.pay_out(1_000, "208").await;
    until("Hubtel has it", async || {
        !world.rails_of("0270000208").await.is_empty()
    })
    .await;
    let sent = till.read(&payout).await;
    assert_eq!(sent.status(), DisbursementStatus::Processing);

    world.processes.charges.kill().await;
    let flags = &mut world.processes.charges.flags;
    flags.retain(|flag| flag != AT_BY_HUBTEL.1);
    world.processes.charges.start().await;

    let new = world.charge("0270000001", "AT").await;
    assert_eq!(world.ended(&new).await["status"], "SETTLED");
    world.press("approve").await;
    assert_eq!(world.ended(&waiting).await["status"], "SETTLED");
    let till = world.till();
    till.until(&payout, DisbursementStatus::Completed).await;
    check_credit(&till, &payout, (1, 1_000)).await;
    for (number, rail) in [
        ("0270000100", "hubtel"),
        ("0270000208", "hubtel"),
        ("0270000001", "paystack"),
    ] {
        assert_eq!(world.rails_of(number).await, [rail], "{number}");
    }
    assert_eq!(till.balance().await, (3 * 2_550 - 1_000, 0));
    world.close().await;
}

/// Hubtel answers listed addresses only.
#[tokio::test]
async fn a_caller_who_is_not_listed_is_the_operators_fault_and_not_the_payers() {
    let world = World::start(&[
        AT_BY_HUBTEL,
        NO_HOLD,
        ("railsim", "--hubtel-allowed-addresses=192.0.2.1"),
    ])
    .await;
    let collected = world.charge("0240000001", "MTN").await;
    assert_eq!(world.ended(&collected).await["status"], "SETTLED");
    let charge = world.charge("0270000001", "AT").await;
    assert_eq!(charge["status"], "FAILED", "{charge}");
    let charge = world.ended(&charge).await;
    assert_eq!(charge["failure_reason"], "RAIL_CONFIGURATION");
    assert!(world.rails_of("0270000001").await.is_empty());
    let counted = async |call: &str| {
        let line = format!("rail_configuration_errors_total{{rail=\"hubtel\",call=\"{call}\"}}");
        let (_, metrics) = ask(&world.processes.charges, "/metrics").await;
        metrics.contains(&line)
    };
    assert!(counted("request_payment").await);

    let mut till = world.till();
    // Nobody can ask Hubtel whose wallet it is, so the operator confirms it.
    till.pays_to(Provider::At, "0270000204", "Ama Mensah").await;
    let payout = till.pay_out(1_000, "unlisted").await;
    until("it was tried", async || {
        counted("float").await || counted("send").await
    })
    .await;
    // Nothing was sent, and it waits for whoever mends it.
    till.until(&payout, DisbursementStatus::Pending).await;
    assert_eq!(till.balance().await, (1_550, 1_000));
    world.close().await;
}

/// As after an upgrade, with the settings from before.
#[tokio::test]
async fn without_any_setting_of_hubtels_the_other_rails_do_what_they_did() {
    let mut processes = Processes::plan().await;
    let flags = &mut processes.charges.flags;
    flags.retain(|flag| !flag.starts_with("--hubtel"));
    flags.push(NO_HOLD.1.to_owned());
    processes.start_all().await;
    let receiver = Receiver::start().await.unwrap();
    let merchant = processes.merchant(&receiver.url).await;
    let api = Api::new(&processes.gateway.url, &merchant.api_key).unwrap();
    let world = World {
        processes,
        receiver,
        merchant,
        api,
    };
    for (number, provider) in [("0240000001", "MTN"), ("0270000001", "AT")] {
        let charge = world.charge(number, provider).await;
        assert_eq!(world.ended(&charge).await["status"], "SETTLED");
    }
    let mut till = world.till();
    till.pays_to(Provider::At, "0270000201", "Ama Mensah").await;
    let payout = till.pay_out(1_000, "before").await;
    till.until(&payout, DisbursementStatus::Completed).await;
    assert_eq!(till.balance().await, (2 * 2_550 - 1_000, 0));
    for number in ["0270000001", "0270000201"] {
        assert_eq!(world.rails_of(number).await, ["paystack"]);
    }
    let floats = till.treasury.show_float(ShowFloatRequest {}).await;
    let floats = floats.unwrap().into_inner().rails;
    let hubtel = floats.into_iter().find(|float| float.rail == "hubtel");
    assert!(hubtel.is_none_or(|float| float.rail_balance.is_none()));
    world.close().await;
}
