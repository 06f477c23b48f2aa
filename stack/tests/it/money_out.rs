//! Money that goes out, over both rails: every story of a payee to its end, refunds, and a
//! service that is killed on the way. The networks' own book of credits is what counts.

use std::time::Duration;

use chassis::testing::until;
use proto::{
    charges::{
        CaseKind, CreatePayoutRequest, CreateRefundRequest, DestinationType, DisbursementStatus,
        GetBalanceRequest, GetPayoutRequest, GetRefundRequest, Payout, Provider,
        SetPayoutAccountRequest, SetPayoutSwitchesRequest, ShowDisbursementRequest,
        ShowFloatRequest, charges_client::ChargesClient,
        disbursement_operations_client::DisbursementOperationsClient,
        disbursements_client::DisbursementsClient,
    },
    money::Money,
    webhooks::EventType,
};
use serde_json::{Value, json};
use stack::demo::{Api, Receiver};
use uuid::Uuid;

use crate::{
    processes::Processes,
    shop::{Shop, WAIT_MAX, check_ledger, credits},
};

/// Longest wait for a payout to end after a crash: the lease of who was killed, and then as long
/// again as it is old.
const CRASH_WAIT_MAX: Duration = Duration::from_secs(90);

/// Longer than a call of a rail, which may just be on its way.
const CALL_MAX: Duration = Duration::from_secs(10);

/// Longer than a rail's silence after which a disbursement is sent again.
const SENT_AGAIN_AFTER: Duration = Duration::from_secs(16 * 60);

pub const DAYS: Duration = Duration::from_secs(80 * 3_600);

/// Who carries a wallet, and its number without the story.
pub const MTN: (Provider, &str) = (Provider::Mtn, "0240000");
pub const AT: (Provider, &str) = (Provider::At, "0270000");

type Channel = chassis::grpc::Channel;

fn ghs(minor_units: i64) -> Money {
    Money {
        minor_units,
        currency: "GHS".to_owned(),
    }
}

/// What pays a merchant out.
#[derive(Clone)]
pub struct Till {
    charges: ChargesClient<Channel>,
    disbursements: DisbursementsClient<Channel>,
    pub treasury: DisbursementOperationsClient<Channel>,
    merchant_id: String,
    networks: String,
}

impl Till {
    pub fn new(channel: Channel, operators: Channel, merchant_id: &str, networks: &str) -> Self {
        Self {
            charges: ChargesClient::new(channel.clone()),
            disbursements: DisbursementsClient::new(channel),
            treasury: DisbursementOperationsClient::new(operators),
            merchant_id: merchant_id.to_owned(),
            networks: networks.to_owned(),
        }
    }

    pub fn of(shop: &Shop) -> Self {
        Self::of_merchant(shop, &shop.ready.demo.merchant_id)
    }

    pub fn of_merchant(shop: &Shop, merchant_id: &str) -> Self {
        let (channel, operators) = (shop.charges_channel(), shop.charges_operators());
        Self::new(channel, operators, merchant_id, &shop.ready.handset)
    }

    /// Lets the merchant be paid out to this wallet.
    pub async fn pays_to(&mut self, provider: Provider, number: &str, holder_name: &str) {
        let account = SetPayoutAccountRequest {
            merchant_id: self.merchant_id.clone(),
            r#type: DestinationType::MobileMoney.into(),
            provider: provider.into(),
            account: number.to_owned(),
            holder_name: holder_name.to_owned(),
            // The networks know no wallet in story 204.
            confirm_holder_name: number.ends_with("204"),
            ..SetPayoutAccountRequest::default()
        };
        self.treasury.set_payout_account(account).await.unwrap();
        let switches = SetPayoutSwitchesRequest {
            merchant_id: self.merchant_id.clone(),
            payouts_on_request: Some(true),
            daily_settlement: None,
        };
        self.treasury.set_payout_switches(switches).await.unwrap();
    }

    pub async fn pay_out(&mut self, minor: i64, key: &str) -> Payout {
        let request = CreatePayoutRequest {
            merchant_id: self.merchant_id.clone(),
            amount: Some(ghs(minor)),
            idempotency_key: format!("c:{key}"),
            asked_by: None,
            seen: None,
        };
        let answer = self.disbursements.create_payout(request).await.unwrap();
        answer.into_inner().payout.unwrap()
    }

    pub async fn read(&self, payout: &Payout) -> Payout {
        let request = GetPayoutRequest {
            merchant_id: self.merchant_id.clone(),
            payout_id: payout.payout_id.clone(),
        };
        let mut disbursements = self.disbursements.clone();
        let found = disbursements.get_payout(request).await.unwrap();
        found.into_inner()
    }

    pub async fn until(&self, payout: &Payout, status: DisbursementStatus) -> Payout {
        let what = format!("the payout is {status:?}");
        until(&what, async || self.read(payout).await.status() == status).await;
        self.read(payout).await
    }

    /// Available and reserved pesewas.
    pub async fn balance(&self) -> (i64, i64) {
        let merchant_id = self.merchant_id.clone();
        let mut charges = self.charges.clone();
        let balance = charges
            .get_balance(GetBalanceRequest {
                merchant_id,
                with_suspense: false,
            })
            .await;
        let balance = balance.unwrap().into_inner();
        let minor = |of: &[Money]| of.first().map_or(0, |money| money.minor_units);
        (minor(&balance.available), minor(&balance.reserved))
    }

    /// The networks' line about a payout or a refund; none if they never heard of it.
    async fn credit(&self, id: &str) -> Option<Value> {
        let request = ShowDisbursementRequest { id: id.to_owned() };
        let mut treasury = self.treasury.clone();
        let file = treasury.show_disbursement(request).await.unwrap();
        let ours: Uuid = file.into_inner().rail_reference.parse().unwrap();
        let lines = credits(&self.networks).await;
        // Hubtel knows it without dashes.
        let is_ours = |line: &Value| line["reference"].as_str().unwrap().parse() == Ok(ours);
        lines.into_iter().find(is_ours)
    }

    async fn add_float(&self, rail: &str, amount_minor: i64) {
        let client = chassis::http::client(WAIT_MAX).unwrap();
        let body = json!({"rail": rail, "amount_minor": amount_minor});
        let call = client.post(format!("{}/float", self.networks)).json(&body);
        assert_eq!(call.send().await.unwrap().status(), 200);
    }
}

/// A stack whose merchant has collected 25.50.
pub async fn collected() -> Shop {
    collected_with(&[]).await
}

/// The same with more flags for services.
pub async fn collected_with(flags: &[(&'static str, &str)]) -> Shop {
    let shop = Shop::open_with(flags).await;
    let wanted = [
        EventType::PayoutSuccess,
        EventType::PayoutFailed,
        EventType::RefundSuccess,
        EventType::RefundFailed,
    ];
    shop.listen_for(&wanted).await;
    let answer = shop.charge("0240000001", "MTN").await;
    shop.wait_for_end(answer.text("reference").unwrap()).await;
    shop
}

/// How a payout of 20.00 is to end.
struct End {
    status: DisbursementStatus,
    /// Empty unless it failed.
    reason: &'static str,
    /// Available pesewas in the end.
    available: i64,
    /// How often the networks credited the wallet, and what is there in the end.
    credited: (u64, i64),
}

const PAID: End = End {
    status: DisbursementStatus::Completed,
    reason: "",
    available: 550,
    credited: (1, 2_000),
};

const fn failed(reason: &'static str) -> End {
    End {
        status: DisbursementStatus::Failed,
        reason,
        available: 2_550,
        credited: (0, 0),
    }
}

/// Pays 20.00 out to the wallet of a story, and checks its end everywhere. Leaves the stack open
/// for what may come later.
async fn check_story(rail: (Provider, &str), story: &str, end: End) -> (Shop, Till, Payout) {
    let shop = collected().await;
    let mut till = Till::of(&shop);
    let (provider, number) = (rail.0, format!("{}{story}", rail.1));
    let holder = match story {
        "212" => "Kofi Boateng",
        _ => "Ama Mensah",
    };
    till.pays_to(provider, &number, holder).await;
    let payout = till.pay_out(2_000, story).await;
    // Paystack says that it is busy in a way that leaves open whether it has taken it.
    if matches!((story, provider), ("215", _) | ("213", Provider::At)) {
        till.until(&payout, DisbursementStatus::Processing).await;
        shop.advance(SENT_AGAIN_AFTER).await;
    }
    let ended = till.until(&payout, end.status).await;
    assert_eq!(
        ended.failure_reason.as_deref().unwrap_or_default(),
        end.reason
    );
    assert_eq!(till.balance().await, (end.available, 0));
    check_credit(&till, &payout, end.credited).await;
    let wanted = match end.status {
        DisbursementStatus::Completed => "payout.success",
        _ => "payout.failed",
    };
    check_event(&shop, &payout, wanted).await;
    (shop, till, payout)
}

pub async fn check_credit(till: &Till, payout: &Payout, (credits, minor): (u64, i64)) {
    let line = till.credit(&payout.payout_id).await.unwrap();
    assert_eq!(line["credits"], credits, "{line}");
    assert_eq!(line["credited_minor"], minor, "{line}");
}

/// Checks that there is exactly this event of a payout.
pub async fn check_event(shop: &Shop, payout: &Payout, wanted: &str) {
    until("it is told", async || {
        !events(shop, &payout.payout_id).is_empty()
    })
    .await;
    assert_eq!(events(shop, &payout.payout_id), [wanted]);
}

/// The types of the different events that arrived of a payout or a refund.
pub fn events(shop: &Shop, id: &str) -> Vec<String> {
    let events = shop.receiver.deliveries().into_iter();
    let events = events.map(|delivery| {
        delivery.verify(&shop.signing_secret).unwrap();
        delivery.json().unwrap()
    });
    let mut ours: Vec<(String, String)> = events
        .filter(|event| event["data"]["payout_id"] == id || event["data"]["refund_id"] == id)
        .map(|event| {
            (
                event["id"].to_string(),
                event["type"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    ours.sort();
    ours.dedup();
    ours.into_iter().map(|(_, kind)| kind).collect()
}

/// A story that ends at once and has no case, on both rails.
async fn check_both(story: &str, end: fn() -> End) {
    for rail in [MTN, AT] {
        let (shop, till, payout) = check_story(rail, story, end()).await;
        // Whatever else could come of it comes within three days.
        shop.advance(DAYS).await;
        assert_eq!(till.read(&payout).await.status(), end().status);
        assert_eq!(till.balance().await, (end().available, 0));
        check_credit(&till, &payout, end().credited).await;
        assert_eq!(events(&shop, &payout.payout_id).len(), 1);
        assert!(shop.cases().await.is_empty(), "{:?}", shop.cases().await);
        shop.close().await;
    }
}

pub async fn only_case(shop: &Shop, payout: &Payout, kind: CaseKind) {
    let case = shop.wait_for_case(&payout.payout_id).await;
    assert_eq!(case.kind(), kind);
    assert_eq!(shop.cases().await.len(), 1);
}

#[tokio::test]
async fn story_201_a_payout_is_paid_and_the_ledgers_float_is_the_rails() {
    for (rail, code) in [(MTN, "momo"), (AT, "paystack")] {
        let (shop, mut till, _) = check_story(rail, "201", PAID).await;
        let floats = till.treasury.show_float(ShowFloatRequest {}).await;
        let floats = floats.unwrap().into_inner().rails;
        let float = floats.into_iter().find(|float| float.rail == code).unwrap();
        // Nobody told the ledger what was in the float at first.
        let opening = 100_000_000;
        let held = float.rail_balance.unwrap().minor_units;
        assert_eq!(float.float.unwrap().minor_units, held - opening);
        shop.close().await;
    }
}

#[tokio::test]
async fn story_203_a_payee_is_not_found_after_acceptance() {
    check_both("203", || failed("PAYEE_NOT_FOUND")).await;
}

#[tokio::test]
async fn story_204_a_payee_is_not_found_at_once() {
    check_both("204", || failed("PAYEE_NOT_FOUND")).await;
}

#[tokio::test]
async fn story_205_a_payee_has_reached_a_limit() {
    check_both("205", || failed("PAYEE_LIMIT_REACHED")).await;
}

#[tokio::test]
async fn story_206_mtn_ends_what_its_float_does_not_cover() {
    let (shop, _, payout) = check_story(MTN, "206", failed("RAIL_UNAVAILABLE")).await;
    only_case(&shop, &payout, CaseKind::FloatEmpty).await;
    shop.close().await;
}

#[tokio::test]
async fn story_206_paystack_takes_nothing_until_its_float_is_filled() {
    let shop = collected().await;
    let mut till = Till::of(&shop);
    till.pays_to(Provider::At, "0270000206", "Ama Mensah").await;
    let payout = till.pay_out(2_000, "206").await;
    only_case(&shop, &payout, CaseKind::FloatEmpty).await;
    assert_eq!(till.balance().await, (550, 2_000));
    assert!(events(&shop, &payout.payout_id).is_empty());
    till.add_float("paystack", 100_000).await;
    till.until(&payout, DisbursementStatus::Completed).await;
    assert_eq!(till.balance().await, (550, 0));
    check_credit(&till, &payout, (1, 2_000)).await;
    check_event(&shop, &payout, "payout.success").await;
    assert!(shop.cases().await.is_empty());
    shop.close().await;
}

#[tokio::test]
async fn story_207_an_answer_that_is_lost_is_found_by_query() {
    check_both("207", || PAID).await;
}

#[tokio::test]
async fn story_208_without_any_callback_the_rail_is_asked() {
    check_both("208", || PAID).await;
}

#[tokio::test]
async fn story_209_three_callbacks_pay_once() {
    check_both("209", || PAID).await;
}

#[tokio::test]
async fn story_211_what_paystack_takes_back_is_the_merchants_again() {
    let (shop, till, payout) = check_story(AT, "211", PAID).await;
    shop.advance(DAYS).await;
    only_case(&shop, &payout, CaseKind::TakenBack).await;
    let taken_back = till.read(&payout).await;
    assert_eq!(taken_back.status(), DisbursementStatus::Completed);
    assert!(taken_back.reversed_at.is_some());
    assert_eq!(till.balance().await, (2_550, 0));
    check_credit(&till, &payout, (1, 0)).await;
    shop.close().await;
}

#[tokio::test]
async fn story_212_another_holder_is_not_paid_unless_an_operator_confirms() {
    let shop = collected().await;
    let mut till = Till::of(&shop);
    for (provider, number) in [(Provider::Mtn, "0240000212"), (Provider::At, "0270000212")] {
        let account = SetPayoutAccountRequest {
            merchant_id: till.merchant_id.clone(),
            r#type: DestinationType::MobileMoney.into(),
            provider: provider.into(),
            account: number.to_owned(),
            holder_name: "Ama Mensah".to_owned(),
            ..SetPayoutAccountRequest::default()
        };
        let refused = till.treasury.set_payout_account(account).await.unwrap_err();
        assert_eq!(
            chassis::grpc::metadata(&refused, "rail_holder_name").as_deref(),
            Some("Kofi Boateng")
        );
    }
    shop.close().await;
    check_both("212", || PAID).await;
}

#[tokio::test]
async fn story_213_what_the_rail_did_not_execute_is_sent_later() {
    check_both("213", || PAID).await;
}

#[tokio::test]
async fn story_214_another_amount_never_completes() {
    for rail in [MTN, AT] {
        let shop = collected().await;
        let mut till = Till::of(&shop);
        let number = format!("{}214", rail.1);
        till.pays_to(rail.0, &number, "Ama Mensah").await;
        let payout = till.pay_out(2_000, "214").await;
        only_case(&shop, &payout, CaseKind::Mismatch).await;
        shop.advance(Duration::from_secs(20 * 3_600)).await;
        let open = till.read(&payout).await;
        assert_eq!(open.status(), DisbursementStatus::Processing);
        assert_eq!(till.balance().await, (550, 2_000));
        assert!(events(&shop, &payout.payout_id).is_empty());
        shop.close().await;
    }
}

#[tokio::test]
async fn story_215_what_never_arrived_is_sent_again_under_the_same_reference() {
    check_both("215", || PAID).await;
}

#[tokio::test]
async fn a_refund_goes_to_the_wallet_that_paid() {
    for (number, provider, ends_well) in [
        ("0240000201", "MTN", true),
        ("0270000201", "AT", true),
        ("0240000203", "MTN", false),
        ("0270000203", "AT", false),
    ] {
        let shop = collected().await;
        let till = Till::of(&shop);
        let charge = shop.charge(number, provider).await;
        let reference = charge.text("reference").unwrap().to_owned();
        assert_eq!(shop.wait_for_end(&reference).await["status"], "SETTLED");
        let request = CreateRefundRequest {
            merchant_id: till.merchant_id.clone(),
            reference,
            amount: None,
            idempotency_key: "c:refund-1".to_owned(),
            asked_by: None,
        };
        let mut disbursements = till.disbursements.clone();
        let refund = disbursements.create_refund(request).await.unwrap();
        let refund_id = refund.into_inner().refund.unwrap().refund_id;
        let request = GetRefundRequest {
            merchant_id: till.merchant_id.clone(),
            refund_id: refund_id.clone(),
        };
        let (status, event) = match ends_well {
            true => (DisbursementStatus::Completed, "refund.success"),
            false => (DisbursementStatus::Failed, "refund.failed"),
        };
        until("the refund has ended", async || {
            let mut disbursements = till.disbursements.clone();
            let found = disbursements.get_refund(request.clone()).await.unwrap();
            found.into_inner().status() == status
        })
        .await;
        let line = till.credit(&refund_id).await.unwrap();
        assert_eq!(line["account"], format!("+233{}", &number[1..]));
        assert_eq!(line["credits"], u64::from(ends_well));
        let left = if ends_well { 2_550 } else { 5_100 };
        assert_eq!(till.balance().await, (left, 0));
        until("it is told", async || events(&shop, &refund_id) == [event]).await;
        shop.close().await;
    }
}

/// Payouts to every kind of payee while the service that sends them is killed again and again.
#[tokio::test]
async fn killed_at_random_no_payout_is_lost_or_doubled() {
    let flags = [("charges-svc", "--payout-account-hold=0s")];
    let mut processes = Processes::start(&flags).await;
    let receiver = Receiver::start().await.unwrap();
    let merchant = processes.merchant(&receiver.url).await;
    let api = Api::new(&processes.gateway.url, &merchant.api_key).unwrap();
    let till = |processes: &Processes| {
        let networks = &processes.railsim.url;
        let charges = &processes.charges;
        let (channel, operators) = (charges.channel(), charges.operators());
        Till::new(channel, operators, &merchant.merchant_id, networks)
    };
    let mut first = till(&processes);
    for number in 0..4 {
        let body = json!({"amount": 25.5, "mobile_number": "0240000001", "provider": "MTN"});
        let key = format!("order-{number}");
        let charge = "/api/v1/payments/charge";
        let answer = api.post_with_key(charge, &body, &key).await.unwrap();
        answer.expect(202).unwrap();
    }
    until("all is collected", async || {
        first.balance().await == (10_200, 0)
    })
    .await;

    // Each payee once on each rail, whoever is killed meanwhile: paid, found by query, told three
    // times, refused once, and failed.
    let mut payouts = Vec::new();
    for story in ["201", "207", "209", "213", "203"] {
        for rail in [MTN, AT] {
            let mut till = till(&processes);
            let number = format!("{}{story}", rail.1);
            till.pays_to(rail.0, &number, "Ama Mensah").await;
            let key = format!("{story}-{:?}", rail.0);
            let payout = till.pay_out(1_000, &key).await;
            payouts.push((story, payout));
            // From before it is sent to after it is paid.
            let pause = [0, 20, 4, 1_100, 8, 35, 15, 2, 70, 500][payouts.len() - 1];
            tokio::time::sleep(Duration::from_millis(pause)).await;
            processes.charges.kill_and_start().await;
        }
    }
    first = till(&processes);
    let (mut paid, mut reserved) = (0, 0);
    for (story, payout) in &payouts {
        match after_kills(&first, story, payout).await {
            DisbursementStatus::Completed => paid += 1_000,
            DisbursementStatus::Processing => reserved += 1_000,
            _ => {}
        }
    }
    println!("{paid} pesewas paid, {reserved} not sent yet");
    let left = 10_200 - paid - reserved;
    assert_eq!(first.balance().await, (left, reserved));
    let references = credits(&processes.railsim.url).await.len();
    assert!(references <= payouts.len(), "one reference for each payout");
    assert!(paid > 0, "something was sent");
    let charges = processes.charges_db.connect().await;
    check_ledger(&charges).await;
    charges.close().await;
    // What a killed service was telling of is told again once its lease is over.
    processes.charges_db.until_relayed().await;
    processes.sessions_db.until_relayed().await;
}

/// Waits for the end of a payout, checks that it is its story's, and returns it. One that was
/// recorded as sent and never was stays PROCESSING: it goes out again after a quarter of an hour,
/// for which nobody waits here.
async fn after_kills(till: &Till, story: &str, payout: &Payout) -> DisbursementStatus {
    let end = match story {
        "203" => DisbursementStatus::Failed,
        _ => DisbursementStatus::Completed,
    };
    let ended = async {
        let mut unsent_since = None;
        loop {
            let line = till.credit(&payout.payout_id).await;
            let is_taken = line.is_some_and(|line| line["status"] != "refused");
            let status = till.read(payout).await.status();
            let is_unsent = !is_taken && status == DisbursementStatus::Processing;
            let now = tokio::time::Instant::now();
            let since = *unsent_since.get_or_insert(now);
            if !is_unsent {
                unsent_since = None;
            }
            if status == end || (is_unsent && now - since > CALL_MAX) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = tokio::time::timeout(CRASH_WAIT_MAX, ended).await;
    let Ok(status) = ended else {
        panic!("{story} has no end: {:?}", till.read(payout).await);
    };
    let credits = u64::from(status == DisbursementStatus::Completed);
    if let Some(line) = till.credit(&payout.payout_id).await {
        assert_eq!(line["credits"], credits, "{line}");
    }
    status
}
