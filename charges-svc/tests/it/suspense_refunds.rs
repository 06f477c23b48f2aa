//! Money in suspense that goes back to the wallet that paid, and what is refunded only once.

use charges_svc::{
    case::{Case, CaseKind},
    charge::{Charge, Event},
};
use chassis::{
    failure::FailureReason,
    grpc,
    money::{Currency, Money},
    testing::{check_refusal, until},
};
use proto::charges::{
    DisbursementStatus, GetRefundRequest, Refund, ResolveChargeRequest, close_case_request::Action,
    resolve_charge_request::Outcome,
};
use tonic::Code;

use crate::{
    cases::{close, given_case, posted},
    mtn::{Mtn, transfers},
    shop::Shop,
    world::new_momo_charge,
};

/// A charge that failed and whose 25.50 cedis arrived all the same.
pub async fn given_late_money(shop: &Shop) -> (Charge, Case) {
    let mut charge = new_momo_charge(shop.world.clock.now());
    charge.facts_mut().merchant_id = shop.charge.facts.merchant_id;
    let late = Event::Failed(FailureReason::PayerTimeout);
    let charge = shop.world.given(charge, &[Event::Accepted, late]).await;
    let money = Money::new(2550, Currency::GHS);
    let case = given_case(&shop.world, &charge, CaseKind::LateMoney, Some(money)).await;
    (charge, case)
}

pub async fn refund_of(shop: &Shop) -> Refund {
    let [case] = &shop.open_cases().await[..] else {
        panic!("one case is open");
    };
    let request = GetRefundRequest {
        merchant_id: shop.merchant(),
        refund_id: case.refund_id.clone().expect("a refund is on its way"),
    };
    let mut disbursements = shop.world.disbursements.clone();
    let found = disbursements.get_refund(request).await;
    found.unwrap().into_inner()
}

#[tokio::test]
async fn suspense_is_sent_back_once_and_its_case_closes_when_it_has_arrived() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("PENDING", None);
    let mut shop = Shop::open(&mtn).await;
    let (charge, case) = given_late_money(&shop).await;
    close(&mut shop.world, &case, Action::Refund).await.unwrap();
    for action in [Action::Refund, Action::Refunded, Action::Release] {
        let refused = close(&mut shop.world, &case, action).await;
        check_refusal(refused, Code::FailedPrecondition, "CASE_BEING_REFUNDED");
    }
    let refund = refund_of(&shop).await;
    assert_eq!(refund.reference, charge.facts.reference.as_str());
    assert_eq!(refund.amount.unwrap().minor_units, 2550);
    assert_eq!(shop.balance().await, (2550, 0), "the merchant pays nothing");
    mtn.ends("SUCCESSFUL", None);
    until("the case is closed", async || {
        shop.open_cases().await.is_empty()
    })
    .await;
    let refused = close(&mut shop.world, &case, Action::Release).await;
    check_refusal(refused, Code::FailedPrecondition, "CASE_CLOSED");
    assert_eq!(transfers(&shop.network), 1);
    assert_eq!(shop.balance().await, (2550, 0));
    assert_eq!(
        posted(&mut shop.world, &charge).await,
        [
            "SUSPENSE rail:momo:clearing -2550",
            "SUSPENSE suspense 2550"
        ],
        "the rest is the refund's"
    );
    shop.end().await;
}

#[tokio::test]
async fn suspense_whose_refund_fails_waits_for_another_decision() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("PENDING", None);
    let mut shop = Shop::open(&mtn).await;
    let (_, case) = given_late_money(&shop).await;
    close(&mut shop.world, &case, Action::Refund).await.unwrap();
    let refund = refund_of(&shop).await;
    assert_ne!(refund.status(), DisbursementStatus::Failed);
    mtn.ends("FAILED", Some("PAYEE_NOT_FOUND"));
    until("the refund has failed", async || {
        let cases = shop.open_cases().await;
        cases.len() == 1 && cases[0].refund_id.is_none()
    })
    .await;
    assert_eq!(
        shop.balance().await,
        (2550, 0),
        "it was never the merchant's"
    );
    close(&mut shop.world, &case, Action::Release)
        .await
        .unwrap();
    assert_eq!(shop.balance().await, (5100, 0));
    shop.end().await;
}

#[tokio::test]
async fn what_the_rail_took_back_is_not_sent_again() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let (charge, late) = given_late_money(&shop).await;
    given_case(&shop.world, &charge, CaseKind::Reversed, None).await;
    let refused = close(&mut shop.world, &late, Action::Refund).await;
    check_refusal(refused, Code::FailedPrecondition, "REFUND_AFTER_REVERSAL");
    close(&mut shop.world, &late, Action::Refunded)
        .await
        .unwrap();
    assert_eq!(transfers(&shop.network), 0);
    shop.end().await;
}

/// A rail that pays late says so whenever it is asked.
#[tokio::test]
async fn suspense_that_is_paid_late_closes_its_case_and_opens_none() {
    let hours = |count: u64| std::time::Duration::from_secs(count * 3_600);
    let mtn = Mtn::with_float("1000");
    mtn.ends("FAILED", Some("COULD_NOT_PERFORM_TRANSACTION"));
    let mut shop = Shop::open(&mtn).await;
    let (_, case) = given_late_money(&shop).await;
    close(&mut shop.world, &case, Action::Refund).await.unwrap();
    until("the refund has failed", async || {
        let cases = shop.open_cases().await;
        cases.len() == 1 && cases[0].refund_id.is_none()
    })
    .await;
    mtn.ends("SUCCESSFUL", None);
    shop.world.clock.advance(hours(2)).await.unwrap();
    until("the case is closed", async || {
        shop.open_cases().await.is_empty()
    })
    .await;
    let queries = || {
        let calls = shop.network.calls();
        let asked = |call: &&String| call.starts_with("GET /disbursement/v1_0/transfer/");
        calls.iter().filter(asked).count()
    };
    let before = queries();
    shop.world.clock.advance(hours(80)).await.unwrap();
    until("it is asked about again", async || queries() >= before + 2).await;
    let refused = close(&mut shop.world, &case, Action::Release).await;
    check_refusal(refused, Code::FailedPrecondition, "CASE_CLOSED");
    assert!(shop.open_cases().await.is_empty());
    assert_eq!(transfers(&shop.network), 1);
    shop.end().await;
}

/// Once for the payer, by the merchant's refunds and what an operator takes back together.
#[tokio::test]
async fn a_charge_that_was_credited_twice_is_given_back_once() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("PENDING", None);
    let mut shop = Shop::open(&mtn).await;
    let twice = given_case(&shop.world, &shop.charge, CaseKind::CreditedTwice, None).await;
    shop.refund(Some(1000)).await.unwrap();
    // It may still fail.
    let refused = close(&mut shop.world, &twice, Action::Refund).await;
    check_refusal(refused, Code::FailedPrecondition, "CASE_BEING_REFUNDED");
    mtn.ends("SUCCESSFUL", None);
    until("it is paid", async || shop.balance().await == (1550, 0)).await;
    close(&mut shop.world, &twice, Action::Refund)
        .await
        .unwrap();
    assert_eq!(shop.balance().await, (0, 0), "the rest is taken back");
    shop.end().await;

    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let twice = given_case(&shop.world, &shop.charge, CaseKind::CreditedTwice, None).await;
    shop.refund(None).await.unwrap();
    until("it is paid", async || shop.balance().await == (0, 0)).await;
    let refused = close(&mut shop.world, &twice, Action::Refund).await;
    check_refusal(refused, Code::FailedPrecondition, "ALREADY_TAKEN_BACK");
    shop.end().await;

    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let twice = given_case(&shop.world, &shop.charge, CaseKind::CreditedTwice, None).await;
    close(&mut shop.world, &twice, Action::Refund)
        .await
        .unwrap();
    let refused = shop.refund(Some(1)).await;
    check_refusal(refused, Code::FailedPrecondition, "REFUND_EXCEEDS_CHARGE");
    assert_eq!(shop.balance().await, (0, 0));
    shop.end().await;
}

/// Only what the rail takes back may leave a merchant with less than nothing.
#[tokio::test]
async fn what_was_credited_twice_is_taken_back_once_the_balance_covers_it() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let twice = given_case(&shop.world, &shop.charge, CaseKind::CreditedTwice, None).await;
    let payout = shop.pay_out(2500).await.unwrap();
    let refused = close(&mut shop.world, &twice, Action::Refund).await;
    let available = grpc::metadata(refused.as_ref().unwrap_err(), "available_minor");
    assert_eq!(available.as_deref(), Some("50"));
    check_refusal(refused, Code::FailedPrecondition, "INSUFFICIENT_BALANCE");
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    let refused = close(&mut shop.world, &twice, Action::Refund).await;
    check_refusal(refused, Code::FailedPrecondition, "INSUFFICIENT_BALANCE");
    assert_eq!(shop.balance().await, (50, 0));
    assert_eq!(shop.open_cases().await.len(), 1, "it waits");
    let mut next = new_momo_charge(shop.world.clock.now());
    next.facts_mut().merchant_id = shop.charge.facts.merchant_id;
    let next = shop.world.given(next, &[Event::Accepted]).await;
    let request = ResolveChargeRequest {
        reference: next.facts.reference.to_string(),
        outcome: Some(Outcome::Settled(true)),
        evidence: "the portal shows it".to_owned(),
    };
    shop.world.operations.resolve_charge(request).await.unwrap();
    close(&mut shop.world, &twice, Action::Refund)
        .await
        .unwrap();
    assert_eq!(shop.balance().await, (50, 0));
    assert!(shop.open_cases().await.is_empty());
    shop.end().await;
}

#[tokio::test]
async fn what_the_rail_took_back_is_taken_back_whatever_the_balance() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(2500).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    let reversed = given_case(&shop.world, &shop.charge, CaseKind::Reversed, None).await;
    close(&mut shop.world, &reversed, Action::Refund)
        .await
        .unwrap();
    assert_eq!(shop.balance().await, (-2500, 0));
    shop.end().await;
}
