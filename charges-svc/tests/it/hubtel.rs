//! What Hubtel leaves open: its query knows no failures, and what it makes of a reference's second
//! use is documented nowhere. And what began over a rail stays with it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use charges_svc::{charge::State, store::evidence};
use chassis::{
    ids::Reference,
    provider,
    testing::{
        fake_server::{FakeServer, Reaction, ReceivedRequest, json},
        until,
    },
};
use proto::charges::{CaseKind, DisbursementStatus, Payout, Provider};
use rails::RailName;

use crate::{
    mtn::Mtn,
    rail_away::callback,
    shop::Shop,
    world::{World, charge_of, request},
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3_600);

const RECEIVE: &str = "POST /merchantaccount/merchants/2000001/receive/mobilemoney";
const SEND: &str = "POST /api/merchants/3000001/send/mobilemoney";

/// What Hubtel says. Clones share it.
#[derive(Clone)]
struct Hubtel(Arc<Mutex<Says>>);

struct Says {
    /// To a payment request, and to a transfer.
    first: Reaction,
    /// The status of every payment, and of every transfer. `None`: it knows neither.
    status: Option<&'static str>,
    /// Beside the status of a transfer that failed.
    code: &'static str,
}

fn coded(code: &str) -> Reaction {
    json(200, format!(r#"{{"ResponseCode":"{code}","Data":null}}"#))
}

impl Hubtel {
    fn new(first: Reaction, status: Option<&'static str>) -> Self {
        Self(Arc::new(Mutex::new(Says {
            first,
            status,
            code: "0000",
        })))
    }

    fn replies(&self, first: Reaction) {
        self.0.lock().unwrap().first = first;
    }

    fn shows(&self, status: Option<&'static str>) {
        self.0.lock().unwrap().status = status;
    }

    async fn start(&self) -> FakeServer {
        let hubtel = self.clone();
        FakeServer::start(move |seen| hubtel.answer(seen)).await
    }

    fn answer(&self, seen: &ReceivedRequest) -> Reaction {
        let says = self.0.lock().unwrap();
        if seen.call.starts_with("GET /api/inter-transfers/") {
            return json(200, r#"{"responseCode":"0000","data":{"amount":1000.0}}"#);
        }
        let Some((_, reference)) = seen.call.split_once("clientReference=") else {
            return says.first.clone();
        };
        let Some(status) = says.status else {
            return json(404, r#"{"responseCode":"4040","message":"not found"}"#);
        };
        let code = if status == "failed" {
            says.code
        } else {
            "0000"
        };
        // As it likes to write it.
        let reference = reference.to_uppercase();
        json(
            200,
            format!(
                r#"{{"responseCode":"{code}","data":{{"status":"{status}","transactionStatus":"{status}",
                "clientReference":"{reference}","amount":25.50}}}}"#
            ),
        )
    }
}

fn calls(network: &FakeServer, call: &str) -> usize {
    let calls = network.calls();
    calls.iter().filter(|seen| *seen == call).count()
}

fn account(url: &str) -> [(&str, &str); 6] {
    [
        ("hubtel-base-url", url),
        ("hubtel-api-id", "shop1"),
        ("hubtel-api-key", "hubtel-key"),
        ("hubtel-pos-sales-id", "2000001"),
        ("hubtel-prepaid-deposit-id", "3000001"),
        ("callback-base-url", "https://pay.example.com"),
    ]
}

/// A service that debits MTN wallets over Hubtel, and its first charge.
async fn charged(network: &FakeServer) -> (World, Reference) {
    let url = network.address();
    let flags = [&account(&url)[..], &[("rail-mtn", "hubtel")]].concat();
    let mut world = World::start_with(&flags).await;
    let answer = world.charges.create_charge(request()).await.unwrap();
    let charge = answer.into_inner().charge.unwrap();
    (world, charge.reference.parse().unwrap())
}

async fn state(world: &World, charge: &Reference) -> State {
    world.charge(charge).await.progress.state
}

#[tokio::test]
async fn an_unpaid_payment_fails_only_once_the_payers_time_is_over() {
    let hubtel = Hubtel::new(coded("0001"), Some("Unpaid"));
    let network = hubtel.start().await;
    let (mut world, charge) = charged(&network).await;

    // A callback that says it failed only has Hubtel asked.
    let token = world.charge(&charge).await.facts.callback_token.clone();
    let body = r#"{"ResponseCode":"2001","Message":"failed"}"#;
    let called = callback("hubtel", &token, body, None);
    world.charges.receive_callback(called).await.unwrap();
    let is_asked = async || network.calls().len() > 1;
    until("Hubtel is asked", is_asked).await;
    world.clock.advance(345 * SECOND).await.unwrap();
    assert_eq!(state(&world, &charge).await, State::Initiated);

    world.clock.advance(10 * SECOND).await.unwrap();
    let failed = world.charge(&charge).await.progress;
    assert_eq!(failed.state, State::Failed);
    assert_eq!(failed.failure_reason.as_deref(), Some("PAYER_TIMEOUT"));

    let mut conn = world.db.read().await.unwrap();
    let charge_id = world.charge(&charge).await.facts.transaction_id;
    let evidence = evidence::list(&mut conn, charge_id.uuid()).await.unwrap();
    drop(conn);
    let called = evidence.iter().find(|said| said.action == "callback");
    assert_eq!(called.unwrap().rail_text, "code 2001: failed");

    // The payer had approved after all.
    hubtel.shows(Some("Paid"));
    world.clock.advance(3_600 * SECOND).await.unwrap();
    let mut operations = world.operations.clone();
    let cases = operations.list_cases(proto::charges::ListCasesRequest {});
    let cases = cases.await.unwrap().into_inner().cases;
    let kinds: Vec<_> = cases.iter().map(proto::charges::Case::kind).collect();
    assert_eq!(kinds, [CaseKind::LateMoney]);
    assert_eq!(calls(&network, RECEIVE), 1);
    world.end().await;
}

#[tokio::test]
async fn a_payment_whose_reply_was_lost_is_never_sent_again() {
    for (status, state_then) in [(Some("Paid"), State::Settled), (None, State::Failed)] {
        let hubtel = Hubtel::new(Reaction::Cut, None);
        let network = hubtel.start().await;
        let (world, charge) = charged(&network).await;
        world.clock.advance(85 * SECOND).await.unwrap();
        assert_eq!(state(&world, &charge).await, State::Initiated);
        hubtel.shows(status);
        world.clock.advance(300 * SECOND).await.unwrap();
        assert_eq!(state(&world, &charge).await, state_then, "{status:?}");
        assert_eq!(calls(&network, RECEIVE), 1, "{status:?}");
        world.end().await;
    }
}

/// Whoever died with it may have sent it.
#[tokio::test]
async fn a_payment_whose_process_died_is_not_sent_by_another() {
    let hubtel = Hubtel::new(coded("0001"), None);
    let network = hubtel.start().await;
    let (world, _) = charged(&network).await;
    world.stop().await;
    let begun_at = world.clock.now() - 31 * SECOND;
    let orphan = charge_of(provider::Provider::Mtn, RailName::Hubtel, begun_at);
    let orphan = world.given(orphan, &[]).await.facts.reference.clone();
    let world = world.restart().await;
    world.clock.advance(60 * SECOND).await.unwrap();
    assert_eq!(state(&world, &orphan).await, State::Initiated);
    world.clock.advance(300 * SECOND).await.unwrap();
    assert_eq!(state(&world, &orphan).await, State::Failed);
    assert_eq!(calls(&network, RECEIVE), 1, "the other's");
    world.end().await;
}

#[tokio::test]
async fn a_charge_stays_with_its_rail_whatever_the_routes_become() {
    let hubtel = Hubtel::new(coded("0001"), Some("Unpaid"));
    let network = hubtel.start().await;
    let (world, charge) = charged(&network).await;
    let world = world.restart_with(&[("rail-mtn", "momo")]).await;
    hubtel.shows(Some("Paid"));
    world.clock.advance(20 * SECOND).await.unwrap();
    assert_eq!(state(&world, &charge).await, State::Settled);
    world.end().await;
}

/// A shop that has asked for a payout of 20 cedis over Hubtel.
async fn asked_over(network: &FakeServer) -> (Shop, Payout) {
    let url = network.address();
    let flags = [&account(&url)[..], &[("rail-telecel", "hubtel")]].concat();
    let mut shop = Shop::open_with(&Mtn::with_float("0"), &flags).await;
    shop.enable_payouts_to(Provider::Telecel, "020 123 4567")
        .await;
    let payout = shop.pay_out(2_000).await.unwrap();
    (shop, payout)
}

#[tokio::test]
async fn a_payouts_first_request_may_be_refused_and_a_later_one_says_nothing() {
    let network = Hubtel::new(coded("4000"), None).start().await;
    let (shop, payout) = asked_over(&network).await;
    shop.until_payout(&payout, DisbursementStatus::Failed).await;
    assert_eq!(shop.balance().await, (2_550, 0));
    shop.end().await;

    // The first is not taken, for our configuration; the second may be a reference's second use.
    let hubtel = Hubtel::new(coded("4101"), None);
    let network = hubtel.start().await;
    let (shop, payout) = asked_over(&network).await;
    until("it was sent", async || calls(&network, SEND) == 1).await;
    let is_waiting = async || shop.disbursement(&payout).await.sent_at.is_none();
    until("it waits", is_waiting).await;
    assert_eq!(
        shop.shown(&payout).await.status(),
        DisbursementStatus::Pending
    );
    hubtel.replies(coded("4000"));
    shop.world.clock.advance(3_600 * SECOND).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Processing)
        .await;
    shop.world.clock.advance(DAY).await.unwrap();
    let shown = shop.shown(&payout).await;
    assert_eq!(shown.status(), DisbursementStatus::Processing);
    assert_eq!(shop.balance().await, (550, 2_000));
    let cases: Vec<_> = shop.open_cases().await;
    let kinds: Vec<_> = cases.iter().map(proto::charges::Case::kind).collect();
    assert!(kinds.contains(&CaseKind::UnknownOutcome), "{kinds:?}");
    assert_eq!(calls(&network, SEND), 2);
    shop.end().await;
}

#[tokio::test]
async fn a_payout_stays_with_its_rail_and_goes_out_once() {
    let hubtel = Hubtel::new(Reaction::Cut, None);
    let network = hubtel.start().await;
    let (mut shop, payout) = asked_over(&network).await;
    shop.until_payout(&payout, DisbursementStatus::Processing)
        .await;
    shop.world = shop
        .world
        .restart_with(&[("rail-telecel", "paystack")])
        .await;
    // Other rails would get it once more by now.
    shop.world.clock.advance(3_600 * SECOND).await.unwrap();
    assert_eq!(calls(&network, SEND), 1);
    hubtel.shows(Some("failed"));
    shop.world.clock.advance(3_600 * SECOND).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Failed).await;
    assert_eq!(shop.balance().await, (2_550, 0));
    shop.end().await;
}

#[tokio::test]
async fn an_empty_float_found_later_fails_a_payout_and_is_our_fault() {
    let hubtel = Hubtel::new(coded("0001"), Some("pending"));
    let network = hubtel.start().await;
    let (shop, payout) = asked_over(&network).await;
    shop.until_payout(&payout, DisbursementStatus::Processing)
        .await;
    hubtel.0.lock().unwrap().code = "4075";
    hubtel.shows(Some("failed"));
    shop.world.clock.advance(3_600 * SECOND).await.unwrap();
    let failed = shop.until_payout(&payout, DisbursementStatus::Failed).await;
    assert_eq!(failed.failure_reason.as_deref(), Some("RAIL_UNAVAILABLE"));
    let cases = shop.open_cases().await;
    let kinds: Vec<_> = cases.iter().map(proto::charges::Case::kind).collect();
    assert_eq!(kinds, [CaseKind::FloatEmpty]);
    shop.end().await;
}
