//! Disbursements of which the rail knows nothing after a quarter of an hour are sent again, under the
//! same reference.

use std::time::Duration;

use chassis::testing::{
    check_refusal,
    fake_server::{Reaction, empty, json},
    until,
};
use proto::charges::{
    Case, CaseKind, DisbursementStatus, ResolveDisbursementRequest,
    resolve_disbursement_request::Outcome,
};
use tonic::Code;

use crate::{
    mtn::{Mtn, transfers},
    shop::Shop,
};

/// What was certainly not sent the second time may be sent a third, under the same reference.
#[tokio::test]
async fn what_the_rail_never_got_is_sent_again_until_it_takes_it() {
    let minutes = |count: u64| Duration::from_secs(count * 60);
    let lacks_float = json(400, r#"{"code":"NOT_ENOUGH_FUNDS","message":"no"}"#);
    for (refusal, cases) in [
        (json(503, r#"{"code":"SERVICE_UNAVAILABLE"}"#), vec![]),
        (lacks_float, vec![CaseKind::FloatEmpty]),
    ] {
        let mtn = Mtn::with_float("1000");
        mtn.answers(json(500, r#"{"code":"INTERNAL_PROCESSING_ERROR"}"#), false);
        let mut shop = Shop::open(&mtn).await;
        shop.enable_payouts().await;
        let payout = shop.pay_out(1000).await.unwrap();
        shop.until_payout(&payout, DisbursementStatus::Processing)
            .await;
        until("it is sent", async || transfers(&shop.network) == 1).await;
        mtn.answers(refusal, false);
        shop.world.clock.advance(minutes(21)).await.unwrap();
        until("it is sent again", async || transfers(&shop.network) > 1).await;
        until("the refusal is heard", async || {
            let open = shop.open_cases().await;
            open.iter().map(Case::kind).eq(cases.iter().copied())
        })
        .await;
        mtn.answers(empty(202), true);
        shop.world.clock.advance(minutes(21)).await.unwrap();
        shop.until_payout(&payout, DisbursementStatus::Completed)
            .await;
        let seen = shop.network.seen();
        let sent = seen
            .iter()
            .filter(|seen| seen.call == "POST /disbursement/v1_0/transfer");
        let mut references: Vec<_> = sent.map(|seen| seen.header("x-reference-id")).collect();
        assert!(references.len() > 2);
        references.dedup();
        assert_eq!(references.len(), 1, "one reference");
        assert_eq!(shop.balance().await, (1550, 0));
        assert!(shop.open_cases().await.is_empty());
        shop.end().await;
    }
}

/// It may have been taken the first time. After a day a person is asked, and it goes out no more.
#[tokio::test]
async fn what_is_refused_when_it_is_sent_again_has_not_failed() {
    for refusal in [
        json(400, r#"{"code":"PAYEE_NOT_FOUND"}"#),
        json(503, r#"{"code":"SERVICE_UNAVAILABLE"}"#),
    ] {
        let mtn = Mtn::with_float("1000");
        mtn.answers(json(429, "{}"), false);
        let mut shop = Shop::open(&mtn).await;
        shop.enable_payouts().await;
        shop.pay_out(1000).await.unwrap();
        until("it is sent", async || transfers(&shop.network) == 1).await;
        mtn.answers(refusal, false);
        let hour = Duration::from_secs(3_600);
        shop.world.clock.advance(hour).await.unwrap();
        until("it is sent again", async || transfers(&shop.network) > 1).await;
        until("a person is asked", async || {
            shop.world.clock.advance(hour).await.unwrap();
            let open = shop.open_cases().await;
            open.iter().map(Case::kind).eq([CaseKind::UnknownOutcome])
        })
        .await;
        assert_eq!(shop.balance().await, (1550, 1000), "it waits");
        shop.end().await;
    }
}

/// A rail that has forgotten what it took may not refuse its second use either.
#[tokio::test]
async fn what_the_rail_took_is_not_sent_again_though_it_knows_nothing_of_it() {
    let mtn = Mtn::with_float("1000");
    mtn.answers(empty(202), false);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    shop.pay_out(1000).await.unwrap();
    until("it is sent", async || transfers(&shop.network) == 1).await;
    until("a person is asked", async || {
        let hour = Duration::from_secs(3_600);
        shop.world.clock.advance(hour).await.unwrap();
        let open = shop.open_cases().await;
        open.iter().map(Case::kind).eq([CaseKind::UnknownOutcome])
    })
    .await;
    assert_eq!(transfers(&shop.network), 1);
    assert_eq!(shop.balance().await, (1550, 1000), "it waits");
    shop.end().await;
}

/// It may be on its way to the rail.
#[tokio::test]
async fn nobody_fails_what_is_being_sent() {
    let mtn = Mtn::with_float("1000");
    mtn.answers(Reaction::Silence, false);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    until("it is sent", async || transfers(&shop.network) == 1).await;
    let failed = ResolveDisbursementRequest {
        id: payout.payout_id.clone(),
        outcome: Some(Outcome::FailedReason("RAIL_ERROR".to_owned())),
        evidence: "the portal shows nothing".to_owned(),
    };
    let mut treasury = shop.world.treasury.clone();
    let refused = treasury.resolve_disbursement(failed).await;
    check_refusal(refused, Code::Aborted, "DISBURSEMENT_IN_HAND");
    assert_eq!(shop.balance().await, (1550, 1000));
    shop.end().await;
}
