//! A payout or a refund that was refused stays refused under its key. An attempt at it that was on
//! its way, and comes when the money is there, must not move it: somebody was told otherwise.

use std::time::Duration;

use charges_svc::{
    charge::{Charge, Event},
    store::idempotency::PAYOUT_KEYS,
};
use chassis::{
    grpc,
    testing::{check_invalid, check_refusal, until},
};
use db::idempotency::KEPT;
use futures::future::join_all;
use proto::charges::{
    CreatePayoutRequest, CreateRefundRequest, DisbursementStatus, Provider,
    SetPayoutSwitchesRequest,
};
use tonic::{Code, Status};

use crate::{
    mtn::Mtn,
    shop::Shop,
    world::{ghs, new_momo_charge},
};

/// What a refusal says: its reason, what it carries, and whether an earlier request got it.
fn told(refused: Result<impl Sized, Status>) -> (String, Option<String>, bool) {
    let Err(status) = refused else {
        panic!("not refused");
    };
    let names = ["available_minor", "refundable_minor", "held_until"];
    let carried = names.iter().find_map(|name| grpc::metadata(&status, name));
    let replayed = grpc::metadata(&status, "replayed").is_some();
    (grpc::reason(&status).unwrap(), carried, replayed)
}

async fn pay_out(shop: &Shop, request: &CreatePayoutRequest) -> Result<bool, Status> {
    let mut disbursements = shop.world.disbursements.clone();
    let made = disbursements.create_payout(request.clone()).await?;
    Ok(made.into_inner().replayed)
}

fn refund_of(charge: &Charge, minor: Option<i64>, key: &str) -> CreateRefundRequest {
    CreateRefundRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
        amount: minor.map(ghs),
        idempotency_key: key.to_owned(),
        asked_by: None,
    }
}

async fn refund(shop: &Shop, request: &CreateRefundRequest) -> Result<(), Status> {
    let mut disbursements = shop.world.disbursements.clone();
    disbursements.create_refund(request.clone()).await.map(drop)
}

#[tokio::test]
async fn what_the_balance_did_not_cover_is_not_paid_by_a_late_repeat() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let payout = shop.payout(2_551);
    let refused = (
        "INSUFFICIENT_BALANCE".to_owned(),
        Some("2550".to_owned()),
        false,
    );
    assert_eq!(told(pay_out(&shop, &payout).await), refused);
    shop.collect().await;
    let again = (refused.0, refused.1, true);
    assert_eq!(told(pay_out(&shop, &payout).await), again);
    let other = CreatePayoutRequest {
        amount: Some(ghs(100)),
        ..payout.clone()
    };
    let reused = pay_out(&shop, &other).await;
    check_refusal(reused, Code::AlreadyExists, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(shop.balance().await, (5_100, 0), "nothing is reserved");

    let another = CreatePayoutRequest {
        idempotency_key: "c:another".to_owned(),
        ..payout
    };
    assert!(!pay_out(&shop, &another).await.unwrap());
    shop.end().await;
}

#[tokio::test]
async fn what_the_payout_account_did_not_allow_is_not_paid_by_a_late_repeat() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let payout = shop.payout(1_000);
    assert_eq!(
        told(pay_out(&shop, &payout).await),
        ("PAYOUTS_NOT_ENABLED".to_owned(), None, false)
    );
    shop.enable_payouts().await;
    assert_eq!(
        told(pay_out(&shop, &payout).await),
        ("PAYOUTS_NOT_ENABLED".to_owned(), None, true)
    );
    assert!(!pay_out(&shop, &shop.payout(1_000)).await.unwrap());
    shop.enable_payouts_to(Provider::Mtn, "024 123 4568").await;
    let payout = shop.payout(1_000);
    let (reason, until, replayed) = told(pay_out(&shop, &payout).await);
    assert_eq!(
        (reason.as_str(), replayed),
        ("PAYOUT_ACCOUNT_ON_HOLD", false)
    );
    // Now another reason stands in the way, and the answer is still the first.
    let switches = SetPayoutSwitchesRequest {
        merchant_id: shop.merchant(),
        payouts_on_request: Some(false),
        daily_settlement: None,
    };
    let mut treasury = shop.world.treasury.clone();
    treasury.set_payout_switches(switches).await.unwrap();
    assert_eq!(told(pay_out(&shop, &payout).await), (reason, until, true));
    shop.end().await;
}

#[tokio::test]
async fn what_the_charge_did_not_allow_is_not_refunded_by_a_late_repeat() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("PENDING", None);
    let mut shop = Shop::open(&mtn).await;
    shop.collect().await;
    let too_much = refund_of(&shop.charge, Some(2_551), "c:too-much");
    let rest = refund_of(&shop.charge, Some(1_000), "c:rest");
    shop.refund(None).await.unwrap();
    let exceeds = |left: &str, replayed| {
        (
            "REFUND_EXCEEDS_CHARGE".to_owned(),
            Some(left.to_owned()),
            replayed,
        )
    };
    for request in [&too_much, &rest] {
        let refused = refund(&shop, request).await;
        assert_eq!(told(refused), exceeds("0", false));
    }
    mtn.ends("FAILED", Some("PAYEE_NOT_FOUND"));
    until("the first is back", async || {
        shop.balance().await == (5_100, 0)
    })
    .await;
    for request in [&too_much, &rest] {
        let refused = refund(&shop, request).await;
        assert_eq!(told(refused), exceeds("0", true));
    }
    let new = refund_of(&shop.charge, Some(1_000), "c:new");
    refund(&shop, &new).await.unwrap();

    let charge = new_momo_charge(shop.world.clock.now());
    let open = shop.world.given(charge, &[Event::Accepted]).await;
    let early = refund_of(&open, None, "c:early");
    let not_settled = |replayed| ("CHARGE_NOT_SETTLED".to_owned(), None, replayed);
    assert_eq!(told(refund(&shop, &early).await), not_settled(false));
    assert_eq!(told(refund(&shop, &early).await), not_settled(true));
    shop.end().await;
}

/// What it must be depends on what else is refunded.
#[tokio::test]
async fn a_part_that_was_too_small_is_not_refunded_once_it_is_the_rest() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let part = refund_of(&shop.charge, Some(50), "c:part");
    check_invalid(refund(&shop, &part).await, "amount");
    shop.refund(Some(2_500)).await.unwrap();
    check_invalid(refund(&shop, &part).await, "amount");
    let rest = refund_of(&shop.charge, Some(50), "c:rest");
    refund(&shop, &rest).await.unwrap();
    shop.end().await;
}

/// What is wrong with the request by itself leaves its key free, whatever stands in its way.
#[tokio::test]
async fn an_invalid_request_takes_no_key() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let tiny = shop.payout(99);
    check_invalid(pay_out(&shop, &tiny).await, "amount");
    shop.enable_payouts().await;
    check_invalid(pay_out(&shop, &tiny).await, "amount");
    let mended = CreatePayoutRequest {
        amount: Some(ghs(100)),
        ..tiny
    };
    assert!(!pay_out(&shop, &mended).await.unwrap());
    shop.end().await;
}

/// Of many at once one is first, and all are told what it was told.
#[tokio::test]
async fn twins_are_all_paid_for_by_one_or_all_refused() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    for minor in [2_551, 2_550] {
        let request = shop.payout(minor);
        let twins = (0..8).map(|_| pay_out(&shop, &request));
        let answers = join_all(twins).await;
        // A database may let one of them give up its wait.
        let answers: Vec<_> = answers
            .into_iter()
            .filter(|answer| match answer {
                Err(status) => grpc::reason(status).as_deref() != Some("IDEMPOTENCY_IN_PROGRESS"),
                Ok(_) => true,
            })
            .collect();
        let first = answers.iter().filter(|answer| match answer {
            Ok(replayed) => !replayed,
            Err(status) => grpc::metadata(status, "replayed").is_none(),
        });
        assert_eq!(first.count(), 1);
        let are_refused = minor == 2_551;
        assert!(answers.iter().all(|answer| answer.is_err() == are_refused));
    }
    assert_eq!(shop.payouts().await.len(), 1);
    let paid = &shop.payouts().await[0];
    shop.until_payout(paid, DisbursementStatus::Completed).await;
    shop.end().await;
}

/// It is kept as long as a key whose payout has ended at the moment of the refusal.
#[tokio::test]
async fn a_refused_key_is_free_after_a_day() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let before = shop.world.clock.now();
    let refused = pay_out(&shop, &shop.payout(2_551)).await;
    check_refusal(refused, Code::FailedPrecondition, "INSUFFICIENT_BALANCE");
    let after = shop.world.clock.now();
    let mut tx = shop.world.db.begin().await.unwrap();
    let early = PAYOUT_KEYS
        .forget_due(&mut tx, before + (KEPT - Duration::from_secs(1)), 10)
        .await;
    assert_eq!(early.unwrap(), 0);
    let due = PAYOUT_KEYS.forget_due(&mut tx, after + KEPT, 10).await;
    assert_eq!(due.unwrap(), 1);
    drop(tx);
    shop.end().await;
}
