//! What a merchant sees of what has happened to a charge, and of a wallet before it is charged.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use charges_svc::{case::CaseKind, charge::Event};
use chassis::{
    ids::MerchantId,
    testing::{
        check_invalid, check_refusal,
        fake_server::{FakeServer, empty, json},
        until,
    },
};
use proto::charges::{
    AskedBy, ChargeStatus, ChargeTimeline, CheckWalletRequest, CreateChargeRequest,
    CreatePayoutRequest, DisbursementStatus, GetChargeTimelineRequest, GetPayoutRequest,
    GetRefundRequest, Provider, ReceiveCallbackRequest, ResolveChargeRequest, TimelineEntry,
    WalletState, resolve_charge_request::Outcome,
};
use rails::testing::with_tokens;
use tonic::{Code, Status};

use crate::{
    cases::given_case,
    mtn::Mtn,
    shop::Shop,
    world::{Neighbour, World, ghs, new_momo_charge, request},
};

async fn timeline(
    world: &World,
    merchant_id: impl ToString,
    reference: impl ToString,
) -> Result<ChargeTimeline, Status> {
    let request = GetChargeTimelineRequest {
        merchant_id: merchant_id.to_string(),
        reference: reference.to_string(),
    };
    let answer = world.charges.clone().get_charge_timeline(request).await?;
    Ok(answer.into_inner())
}

/// An entry's kind, and what else tells it apart.
fn line(entry: &TimelineEntry) -> String {
    let change = entry.balance_change.as_ref().map(|change| {
        let account = if change.is_reserved {
            "reserved"
        } else {
            "available"
        };
        let minor = change.amount.as_ref().unwrap().minor_units;
        format!("{} {account} {minor}", change.posting)
    });
    let said = [
        entry.kind().code(),
        entry.outcome().code(),
        entry.status.as_deref(),
        entry.failure_reason.as_deref(),
        change.as_deref(),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn lines<'e>(entries: impl IntoIterator<Item = &'e TimelineEntry>) -> Vec<String> {
    entries.into_iter().map(line).collect()
}

fn asked_by() -> AskedBy {
    AskedBy {
        request_id: Some("order-17".to_owned()),
        key_name: Some("Till 1 <b>".to_owned()),
    }
}

/// An MTN whose payer approves once the network has been asked twice.
async fn network() -> FakeServer {
    let asked = Mutex::new(0);
    with_tokens(move |seen| {
        let Some(path) = seen.call.strip_prefix("GET ") else {
            return empty(202);
        };
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        let status = if *asked <= 2 { "PENDING" } else { "SUCCESSFUL" };
        let reference = path.rsplit('/').next().unwrap();
        let body = format!(
            r#"{{"amount":"25.50","currency":"GHS","externalId":"{reference}","status":"{status}",
                 "financialTransactionId":"SECRET-OF-THE-RAIL"}}"#
        );
        json(200, body)
    })
    .await
}

/// What happens to ten cedis that are paid to a wallet.
const PAID_OUT: [&str; 8] = [
    "REQUEST",
    "LEDGER RESERVE available -1000",
    "LEDGER RESERVE reserved 1000",
    "NETWORK_REQUEST ACCEPTED",
    "QUERY SUCCEEDED",
    "STATUS COMPLETED",
    "LEDGER DISBURSEMENT reserved -1000",
    "EVENT",
];

#[tokio::test]
async fn a_timeline_tells_everything_from_the_request_to_the_event_in_order() {
    let network = network().await;
    let url = network.address();
    let world = World::start_with(&[
        ("momo-base-url", &url),
        // A query that comes late skips the times that it missed, so there are more than it takes.
        (
            "reconcile-schedule",
            "50ms,100ms,200ms,400ms,1s,2s,4s,8s,16s",
        ),
    ])
    .await;
    let request = CreateChargeRequest {
        asked_by: Some(asked_by()),
        ..request()
    };
    let merchant_id = request.merchant_id.clone();
    let answer = world.charges.clone().create_charge(request).await.unwrap();
    let reference = answer.into_inner().charge.unwrap().reference;
    until("it is told", async || !world.updates.events().is_empty()).await;
    let told = timeline(&world, &merchant_id, &reference).await.unwrap();
    assert_eq!(told.status(), ChargeStatus::Settled);
    assert!(!told.has_more_refunds);
    let expected = [
        "REQUEST",
        "NETWORK_REQUEST ACCEPTED",
        "PROMPT",
        "QUERY PENDING",
        "QUERY SUCCEEDED",
        "STATUS SETTLED",
        "LEDGER SETTLEMENT available 2550",
        "EVENT",
    ];
    assert_eq!(lines(&told.entries), expected);
    assert!(told.entries.is_sorted_by_key(|entry| entry.at.clone()));
    let pending = &told.entries[3];
    assert_eq!(pending.times, Some(2));
    assert!(pending.last_at.as_ref() > Some(&pending.at));
    assert_eq!(told.entries[0].amount, Some(ghs(2550)));
    assert_eq!(told.entries[0].asked_by, Some(asked_by()));
    assert!(!told.entries[0].at_checkout);
    let event = world.updates.events().remove(0);
    let shown = told.entries.last().unwrap();
    assert_eq!(shown.event_id.as_ref(), Some(&event.event_id));
    assert_eq!(shown.at, event.created_at);
    let shown = format!("{told:?}");
    let charge = world.charge(&reference.parse().unwrap()).await;
    let rail_reference = charge.facts.rail_reference.to_string();
    let named: Vec<_> = told
        .entries
        .iter()
        .map(TimelineEntry::network_reference)
        .collect();
    assert_eq!(named[1], rail_reference, "so that its support finds it");
    assert!(named[2..].iter().all(|name| name.is_empty()));
    for secret in [
        "SECRET-OF-THE-RAIL",
        "HTTP 200",
        &charge.facts.callback_token,
    ] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_refund_is_told_with_its_charge_and_apart_from_it() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    let refund = shop.refund(Some(1000)).await.unwrap();
    let request = GetRefundRequest {
        merchant_id: shop.merchant(),
        refund_id: refund.refund_id.clone(),
    };
    until("it is paid", async || {
        let mut disbursements = shop.world.disbursements.clone();
        let shown = disbursements.get_refund(request.clone()).await.unwrap();
        shown.into_inner().status() == DisbursementStatus::Completed
    })
    .await;
    until("it is told", async || {
        !shop.world.updates.events().is_empty()
    })
    .await;
    let reference = &shop.charge.facts.reference;
    let told = timeline(&shop.world, shop.merchant(), reference)
        .await
        .unwrap();
    let (of_refund, of_charge): (Vec<_>, Vec<_>) = told
        .entries
        .iter()
        .partition(|entry| entry.refund_id.is_some());
    let expected = [
        "REQUEST",
        "STATUS SETTLED",
        "EVENT",
        "LEDGER SETTLEMENT available 2550",
    ];
    assert_eq!(lines(of_charge), expected, "it was put there as settled");
    assert!(
        of_refund
            .iter()
            .all(|entry| entry.refund_id() == refund.refund_id)
    );
    assert_eq!(lines(of_refund.iter().copied()), PAID_OUT);
    let event = shop.world.updates.events().remove(0);
    assert_eq!(of_refund.last().unwrap().event_id(), event.event_id);
    let listed = told.charge.unwrap();
    assert_eq!(listed.payer_masked, shop.charge.facts.phone.masked());
    assert_eq!(listed.charge.unwrap().reference, reference.to_string());
    assert_eq!(told.refundable, Some(ghs(1550)));
    // What the network took back cannot be refunded.
    given_case(&shop.world, &shop.charge, CaseKind::Reversed, None).await;
    let told = timeline(&shop.world, shop.merchant(), reference).await;
    assert_eq!(told.unwrap().refundable, Some(ghs(0)));
    shop.end().await;
}

#[tokio::test]
async fn a_payout_has_a_timeline_of_its_own_and_its_merchant_alone_sees_it() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let request = CreatePayoutRequest {
        asked_by: Some(asked_by()),
        ..shop.payout(1_000)
    };
    let mut disbursements = shop.world.disbursements.clone();
    let made = disbursements.create_payout(request).await.unwrap();
    let payout = made.into_inner().payout.unwrap();
    until("it is told", async || {
        !shop.world.updates.events().is_empty()
    })
    .await;
    let asked = |merchant_id: String, payout_id: &str| GetPayoutRequest {
        merchant_id,
        payout_id: payout_id.to_owned(),
    };
    let told = asked(shop.merchant(), &payout.payout_id);
    let told = disbursements.get_payout_timeline(told).await.unwrap();
    let told = told.into_inner();
    assert_eq!(lines(&told.entries), PAID_OUT);
    assert!(told.entries.iter().all(|entry| entry.refund_id.is_none()));
    assert_eq!(told.entries[0].asked_by, Some(asked_by()));
    let named = told.entries[3].network_reference.clone().unwrap();
    assert!(!named.is_empty());
    assert_eq!(told.next_query_at, None, "it has ended");
    let event = shop.world.updates.events().remove(0);
    assert_eq!(told.entries.last().unwrap().event_id(), event.event_id);

    let refund = shop.refund(Some(500)).await.unwrap();
    for (merchant_id, payout_id) in [
        (MerchantId::new().to_string(), payout.payout_id.as_str()),
        (shop.merchant(), &refund.refund_id),
        (shop.merchant(), "PO-0123456789"),
        ("no id".to_owned(), &payout.payout_id),
    ] {
        let request = asked(merchant_id, payout_id);
        let answer = disbursements.get_payout_timeline(request).await;
        check_refusal(answer, Code::NotFound, "PAYOUT_NOT_FOUND");
    }
    let request = GetRefundRequest {
        merchant_id: shop.merchant(),
        refund_id: refund.refund_id.clone(),
    };
    let told = disbursements.get_refund_timeline(request).await.unwrap();
    let told = told.into_inner().entries;
    assert_eq!(line(&told[0]), "REQUEST");
    assert!(told.iter().all(|entry| entry.refund_id.is_none()));
    // Whatever becomes of it is told, and the test would end with that untold.
    until("the refund is told", async || {
        shop.world.updates.events().len() == 2
    })
    .await;
    shop.end().await;
}

#[tokio::test]
async fn only_the_newest_refunds_are_shown_and_the_rest_is_not_hidden() {
    let mtn = Mtn::with_float("1000");
    mtn.answers(
        json(400, r#"{"code":"PAYEE_NOT_FOUND","message":"no"}"#),
        false,
    );
    let mut shop = Shop::open(&mtn).await;
    for count in 1..=21 {
        shop.refund(None).await.unwrap();
        until("it has failed", async || {
            shop.world.updates.events().len() == count
        })
        .await;
    }
    let reference = &shop.charge.facts.reference;
    let told = timeline(&shop.world, shop.merchant(), reference)
        .await
        .unwrap();
    assert!(told.has_more_refunds);
    let failed = lines(&told.entries);
    let failed = failed
        .iter()
        .filter(|line| *line == "STATUS FAILED PAYEE_NOT_FOUND");
    assert_eq!(failed.count(), 20);
    shop.end().await;
}

#[tokio::test]
async fn what_operators_write_is_not_in_a_timeline() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    let resolution = ResolveChargeRequest {
        reference: charge.facts.reference.to_string(),
        evidence: "statement of 31 January, line 12".to_owned(),
        outcome: Some(Outcome::FailedReason("PAYER_DECLINED".to_owned())),
    };
    world.operations.resolve_charge(resolution).await.unwrap();
    let merchant_id = charge.facts.merchant_id;
    let told = timeline(&world, merchant_id, &charge.facts.reference)
        .await
        .unwrap();
    let expected = ["REQUEST", "STATUS FAILED PAYER_DECLINED", "EVENT"];
    assert_eq!(lines(&told.entries), expected);
    assert_eq!(told.refundable, None);
    assert!(!format!("{told:?}").contains("statement"));
    world.end().await;
}

#[tokio::test]
async fn a_callback_is_told_and_so_is_a_network_that_does_not_answer() {
    let world = World::start().await;
    let charge = new_momo_charge(world.clock.now());
    let charge = world.given(charge, &[Event::Accepted]).await;
    let callback = ReceiveCallbackRequest {
        rail: "momo".to_owned(),
        token: charge.facts.callback_token.clone(),
        body: b"{\"status\":\"SUCCESSFUL\"}".to_vec(),
        ..ReceiveCallbackRequest::default()
    };
    world
        .charges
        .clone()
        .receive_callback(callback)
        .await
        .unwrap();
    let merchant_id = charge.facts.merchant_id;
    let reference = &charge.facts.reference;
    let expected = ["REQUEST", "CALLBACK", "QUERY UNKNOWN"];
    until("the network was asked", async || {
        let told = timeline(&world, merchant_id, reference).await.unwrap();
        lines(&told.entries) == expected
    })
    .await;
    let told = timeline(&world, merchant_id, reference).await.unwrap();
    assert_eq!(told.status(), ChargeStatus::Initiated, "nobody believed it");
    assert_eq!(told.entries[1].times, Some(1));
    world.end().await;
}

#[tokio::test]
async fn anothers_timeline_is_not_found_like_an_unknown_one() {
    let world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    let reference = charge.facts.reference.to_string();
    let void = world.given_charge(&[Event::Withdrawn]).await;
    for (merchant_id, reference) in [
        (MerchantId::new().to_string(), reference.as_str()),
        ("no id".to_owned(), &reference),
        (charge.facts.merchant_id.to_string(), "TX-0123456789-ABCDEF"),
        (charge.facts.merchant_id.to_string(), "no reference"),
        (
            void.facts.merchant_id.to_string(),
            void.facts.reference.as_str(),
        ),
    ] {
        let answer = timeline(&world, &merchant_id, reference).await;
        check_refusal(answer, Code::NotFound, "CHARGE_NOT_FOUND");
    }
    world.end().await;
}

#[tokio::test]
async fn a_wallet_is_looked_at_where_the_rail_tells_and_nowhere_else() {
    let is_odd = Arc::new(AtomicBool::new(false));
    let odd = is_odd.clone();
    let network = with_tokens(move |seen| match seen.call.as_str() {
        _ if odd.load(Ordering::SeqCst) => empty(200),
        call if call.ends_with("/233241234001/active") => json(200, r#"{"result":true}"#),
        call if call.ends_with("/active") => json(200, r#"{"result":false}"#),
        _ => empty(404),
    })
    .await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    let look = async |number: &str, provider: Provider| {
        let request = CheckWalletRequest {
            mobile_number: number.to_owned(),
            provider: provider.into(),
        };
        let answer = world.charges.clone().check_wallet(request).await;
        answer.map(|answer| answer.into_inner().wallet())
    };
    let there = look("+233241234001", Provider::Mtn).await.unwrap();
    assert_eq!(there, WalletState::Active);
    let path = "GET /collection/v1_0/accountholder/msisdn/233241234001/active";
    assert!(network.calls().contains(&path.to_owned()));
    let nowhere = look("+233241234006", Provider::Mtn).await.unwrap();
    assert_eq!(nowhere, WalletState::NotActive);
    let calls = network.calls().len();
    for provider in [Provider::Telecel, Provider::At] {
        let silent = look("+233241234001", provider).await.unwrap();
        assert_eq!(silent, WalletState::Unknown);
    }
    assert_eq!(network.calls().len(), calls, "nobody was asked");
    is_odd.store(true, Ordering::SeqCst);
    let odd = look("+233241234001", Provider::Mtn).await.unwrap();
    assert_eq!(odd, WalletState::Unknown);
    check_invalid(look("0302123456", Provider::Mtn).await, "mobile_number");
    let unnamed = look("+233241234001", Provider::Unspecified).await;
    check_invalid(unnamed, "provider");
    world.end().await;
}

#[tokio::test]
async fn an_open_charge_tells_when_its_network_is_asked_next() {
    let world = World::start().await;
    let mut tellings = Vec::new();
    for events in [&[Event::Accepted][..], &[Event::CodeWanted]] {
        let charge = world.given_charge(events).await;
        let facts = &charge.facts;
        let told = timeline(&world, facts.merchant_id, &facts.reference).await;
        tellings.push((charge, told.unwrap().next_query_at));
    }
    let [(accepted, told), (_, code_wanted)] = tellings.as_slice() else {
        panic!("two charges");
    };
    let due = accepted.timer.next_query_at.map(|at| at.to_string());
    assert!(due.is_some());
    assert_eq!(told, &due);
    assert_eq!(code_wanted, &None, "only the payer can go on");
    let facts = &accepted.facts;
    let resolve = ResolveChargeRequest {
        reference: facts.reference.to_string(),
        outcome: Some(Outcome::Settled(true)),
        evidence: "seen in the network's portal".to_owned(),
    };
    let mut operations = world.operations.clone();
    operations.resolve_charge(resolve).await.unwrap();
    let ended = timeline(&world, facts.merchant_id, &facts.reference).await;
    assert_eq!(ended.unwrap().next_query_at, None);
    world.end().await;
}
