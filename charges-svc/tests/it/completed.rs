//! Payouts that an operator completed: what the rail says of them afterwards is heard, and once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chassis::testing::{
    fake_server::{FakeServer, Reaction, ReceivedRequest, empty, json},
    until,
};
use proto::charges::{
    CaseKind, CloseCaseRequest, Direction, DisbursementStatus, MatchLinesRequest, Payout, Provider,
    ReportLine, ResolveDisbursementRequest, ShowDisbursementRequest, close_case_request::Action,
    report_line::Said, resolve_disbursement_request::Outcome,
};

use tokio::sync::watch;

use crate::{
    mtn::Mtn,
    rail_away::{callback, signed},
    shop::Shop,
    world::{CALLBACK_TOKEN, ghs},
};

/// What Paystack says of every transfer: its `status`, its `amount` and its `fee_charged`, in
/// pesewas.
#[derive(Clone)]
struct Paystack(Arc<Mutex<(&'static str, i64, i64)>>);

impl Paystack {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(("pending", 2_000, 0))))
    }

    fn says(&self, status: &'static str, amount: i64, fee: i64) {
        *self.0.lock().unwrap() = (status, amount, fee);
    }

    async fn start(&self) -> FakeServer {
        let paystack = self.clone();
        FakeServer::start(move |seen| paystack.answer(seen)).await
    }

    /// Like [`Paystack::start`], with looks that wait for the gate.
    async fn start_behind(&self, gate: watch::Receiver<bool>) -> FakeServer {
        let paystack = self.clone();
        let answer = move |seen: &ReceivedRequest| match is_look(&seen.call) {
            true => Reaction::Held(gate.clone(), Box::new(paystack.answer(seen))),
            false => paystack.answer(seen),
        };
        FakeServer::start(answer).await
    }

    fn answer(&self, seen: &ReceivedRequest) -> Reaction {
        let ok = |data: String| json(200, format!(r#"{{"status":true,"data":{data}}}"#));
        let (status, amount, fee) = *self.0.lock().unwrap();
        let transfer = |reference: &str| {
            ok(format!(
                r#"{{"reference":"{reference}","amount":{amount},"currency":"GHS","status":"{status}","fee_charged":{fee}}}"#
            ))
        };
        if let Some(reference) = seen.call.strip_prefix("GET /transfer/verify/") {
            return transfer(reference);
        }
        match seen.call.as_str() {
            "POST /transferrecipient" => ok(r#"{"recipient_code":"RCP_1"}"#.to_owned()),
            "POST /transfer" => transfer(seen.json()["reference"].as_str().unwrap()),
            "GET /balance" => ok(r#"[{"currency":"GHS","balance":100000}]"#.to_owned()),
            _ => empty(404),
        }
    }
}

fn is_look(call: &str) -> bool {
    call.starts_with("GET /transfer/verify/")
}

/// A shop with a payout of 20 cedis over Paystack, which an operator completes because Paystack says
/// nothing of it.
async fn completed(paystack: &Paystack) -> (Shop, FakeServer, Payout) {
    let server = paystack.start().await;
    let (shop, payout) = completed_over(&server).await;
    // The rail is asked at once.
    until_at_rest(&shop, &payout).await;
    (shop, server, payout)
}

/// A shop that has asked for a payout of 20 cedis over Paystack.
async fn asked_over(server: &FakeServer) -> (Shop, Payout) {
    let url = server.address();
    let flags = [("paystack-base-url", url.as_str())];
    let mut shop = Shop::open_with(&Mtn::with_float("0"), &flags).await;
    shop.enable_payouts_to(Provider::Telecel, "020 123 4567")
        .await;
    let payout = shop.pay_out(2_000).await.unwrap();
    (shop, payout)
}

/// A shop with a payout of 20 cedis that Paystack has declined.
async fn failed(paystack: &Paystack) -> (Shop, FakeServer, Payout) {
    paystack.says("failed", 2_000, 0);
    let server = paystack.start().await;
    let (shop, payout) = asked_over(&server).await;
    shop.until_payout(&payout, DisbursementStatus::Failed).await;
    until_at_rest(&shop, &payout).await;
    (shop, server, payout)
}

async fn completed_over(server: &FakeServer) -> (Shop, Payout) {
    let (mut shop, payout) = asked_over(server).await;
    shop.until_payout(&payout, DisbursementStatus::Processing)
        .await;
    let request = ResolveDisbursementRequest {
        id: payout.payout_id.clone(),
        outcome: Some(Outcome::Completed(true)),
        evidence: "the portal, line 12".to_owned(),
    };
    shop.world
        .treasury
        .resolve_disbursement(request)
        .await
        .unwrap();
    (shop, payout)
}

/// What was posted of it beside what every payout has, as "kind account amount".
async fn posted_since(shop: &Shop, payout: &Payout) -> Vec<String> {
    let mut treasury = shop.world.treasury.clone();
    let id = payout.payout_id.clone();
    let file = treasury.show_disbursement(ShowDisbursementRequest { id });
    let postings = file.await.unwrap().into_inner().postings;
    let of_every = ["RESERVE", "DISBURSEMENT"];
    let others = postings
        .into_iter()
        .filter(|posting| !of_every.contains(&posting.kind.as_str()));
    let shown = others.map(|posting| {
        let minor = posting.amount.unwrap().minor_units;
        let (kind, account) = (posting.kind, posting.account);
        let account = account.replace(&shop.merchant(), "M");
        format!("{kind} {account} {minor}")
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort_unstable();
    shown
}

/// Waits until the rail has answered, and nothing is due of the payout now.
async fn until_at_rest(shop: &Shop, payout: &Payout) {
    until("the rail has answered", async || {
        let found = shop.disbursement(payout).await;
        let now = shop.world.clock.now();
        found.claim.fence.is_none() && found.next_due_at.is_none_or(|due| due > now)
    })
    .await;
}

/// Waits for what the rail says at the next of the looks after the end.
async fn look_again(shop: &Shop, payout: &Payout) {
    let due = shop.disbursement(payout).await.next_due_at.unwrap();
    let until_then = due.since(shop.world.clock.now());
    shop.world.clock.advance(until_then).await.unwrap();
    until_at_rest(shop, payout).await;
}

/// The kinds of the open cases.
async fn cases(shop: &Shop) -> Vec<CaseKind> {
    let cases = shop.open_cases().await;
    cases.iter().map(proto::charges::Case::kind).collect()
}

/// Closes a case, the only one that is open.
async fn close(shop: &Shop, case_id: String, action: Action) {
    let request = CloseCaseRequest {
        case_id,
        action: action.into(),
        override_reason: None,
        ..CloseCaseRequest::default()
    };
    let mut operations = shop.world.operations.clone();
    operations.close_case(request).await.unwrap();
    assert_eq!(cases(shop).await, []);
}

#[tokio::test]
async fn the_fee_of_what_an_operator_completed_is_posted_once() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = completed(&paystack).await;
    assert_eq!(posted_since(&shop, &payout).await, [""; 0]);
    paystack.says("success", 2_000, 100);
    let fee = [
        "DISBURSEMENT_FEE house -100",
        "DISBURSEMENT_FEE rail:paystack:float 100",
    ];
    for _ in 0..2 {
        look_again(&shop, &payout).await;
        assert_eq!(posted_since(&shop, &payout).await, fee);
        assert_eq!(cases(&shop).await, []);
    }
    assert_eq!(shop.balance().await, (550, 0));
    shop.end().await;
}

#[tokio::test]
async fn a_payout_that_an_operator_completed_and_the_rail_paid_differently_is_a_case() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = completed(&paystack).await;
    paystack.says("success", 1_999, 100);
    for _ in 0..2 {
        look_again(&shop, &payout).await;
        assert_eq!(cases(&shop).await, [CaseKind::Mismatch]);
    }
    assert_eq!(posted_since(&shop, &payout).await, [""; 0]);
    shop.end().await;
}

#[tokio::test]
async fn another_contradiction_opens_the_case_again() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = completed(&paystack).await;
    paystack.says("success", 1_999, 100);
    look_again(&shop, &payout).await;
    let case_id = shop.open_cases().await.remove(0).case_id;
    close(&shop, case_id, Action::Release).await;
    paystack.says("failed", 2_000, 0);
    look_again(&shop, &payout).await;
    assert_eq!(cases(&shop).await, [CaseKind::Mismatch]);
    shop.end().await;
}

#[tokio::test]
async fn the_fee_of_what_was_paid_late_is_posted_once_it_is_told() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = failed(&paystack).await;
    paystack.says("success", 2_000, 0);
    look_again(&shop, &payout).await;
    assert_eq!(cases(&shop).await, [CaseKind::PaidLate]);
    paystack.says("success", 2_000, 100);
    look_again(&shop, &payout).await;
    let posted = posted_since(&shop, &payout).await;
    assert!(
        posted.contains(&"DISBURSEMENT_FEE house -100".to_owned()),
        "{posted:?}"
    );
    assert_eq!(cases(&shop).await, [CaseKind::PaidLate]);
    shop.end().await;
}

#[tokio::test]
async fn what_the_rail_takes_back_of_its_word_after_a_failure_is_a_case() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = failed(&paystack).await;
    paystack.says("success", 2_000, 0);
    look_again(&shop, &payout).await;
    assert_eq!(cases(&shop).await, [CaseKind::PaidLate]);
    paystack.says("failed", 2_000, 0);
    look_again(&shop, &payout).await;
    assert_eq!(cases(&shop).await, [CaseKind::PaidLate, CaseKind::Mismatch]);
    shop.end().await;
}

/// The merchant has given back what it had twice. If the rail takes the payout back after all, only
/// its report tells.
#[tokio::test]
async fn a_report_s_reversal_of_what_was_paid_late_and_recovered_is_a_case() {
    let paystack = Paystack::new();
    let (mut shop, _server, payout) = failed(&paystack).await;
    paystack.says("success", 2_000, 0);
    look_again(&shop, &payout).await;
    let case_id = shop.open_cases().await.remove(0).case_id;
    close(&shop, case_id, Action::Refund).await;
    let reference = shop.disbursement(&payout).await.rail_reference.to_string();
    let line = ReportLine {
        number: 1,
        reference: reference.clone(),
        rail_id: reference,
        direction: Direction::Out.into(),
        amount: Some(ghs(2_000)),
        said: Said::Reversed.into(),
        at: Some(payout.created_at.clone()),
    };
    let request = MatchLinesRequest {
        rail: "paystack".to_owned(),
        report: hex::encode([1; 32]),
        lines: vec![line],
    };
    let compared = shop.world.reports.match_lines(request).await.unwrap();
    let [difference] = &compared.get_ref().differences[..] else {
        panic!("{compared:?}");
    };
    assert_eq!(difference.kind(), CaseKind::ReportContradicts);
    shop.end().await;
}

#[tokio::test]
async fn what_is_paid_after_it_was_taken_back_late_is_a_case() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = failed(&paystack).await;
    for (said, open) in [
        ("success", vec![CaseKind::PaidLate]),
        ("reversed", Vec::new()),
        ("success", vec![CaseKind::Mismatch]),
    ] {
        paystack.says(said, 2_000, 0);
        look_again(&shop, &payout).await;
        assert_eq!(cases(&shop).await, open, "{said}");
    }
    shop.end().await;
}

#[tokio::test]
async fn the_fee_of_what_an_operator_completed_and_the_rail_took_back_is_posted() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = completed(&paystack).await;
    paystack.says("reversed", 2_000, 100);
    look_again(&shop, &payout).await;
    let expected = [
        "DISBURSEMENT_FEE house -100",
        "DISBURSEMENT_FEE rail:paystack:float 100",
        "DISBURSEMENT_REVERSAL merchant:M 2000",
        "DISBURSEMENT_REVERSAL rail:paystack:float -2000",
    ];
    assert_eq!(posted_since(&shop, &payout).await, expected);
    assert_eq!(cases(&shop).await, [CaseKind::TakenBack]);
    assert_eq!(shop.balance().await, (2_550, 0));
    shop.end().await;
}

#[tokio::test]
async fn a_fee_that_was_posted_with_the_success_is_not_posted_with_its_reversal() {
    let paystack = Paystack::new();
    let (shop, _server, payout) = completed(&paystack).await;
    paystack.says("success", 2_000, 100);
    look_again(&shop, &payout).await;
    paystack.says("reversed", 2_000, 100);
    look_again(&shop, &payout).await;
    assert_eq!(posted_since(&shop, &payout).await.len(), 4);
    assert_eq!(cases(&shop).await, [CaseKind::TakenBack]);
    shop.end().await;
}

/// Otherwise an answer of just before an hour was over would stand for the look after it.
#[tokio::test]
async fn a_look_that_began_before_its_time_is_not_that_look() {
    let paystack = Paystack::new();
    let (open, gate) = watch::channel(true);
    let server = paystack.start_behind(gate).await;
    let (mut shop, payout) = completed_over(&server).await;
    until_at_rest(&shop, &payout).await;
    let looks = || server.calls().iter().filter(|call| is_look(call)).count();
    let due = shop.disbursement(&payout).await.next_due_at.unwrap();
    let before = due - Duration::from_secs(2);
    let until_then = before.since(shop.world.clock.now());
    shop.world.clock.advance(until_then).await.unwrap();

    let seen = looks();
    open.send_replace(false);
    let reference = shop.disbursement(&payout).await.rail_reference;
    let body = format!(r#"{{"event":"transfer.success","data":{{"reference":"{reference}"}}}}"#);
    let told = callback("paystack", CALLBACK_TOKEN, &body, signed(&body));
    shop.world.charges.receive_callback(told).await.unwrap();
    until("the rail is asked", async || looks() == seen + 1).await;
    assert!(shop.world.clock.now() < due);
    until("an hour is over", async || shop.world.clock.now() > due).await;
    open.send_replace(true);
    until("it is asked again", async || looks() == seen + 2).await;
    shop.end().await;
}
