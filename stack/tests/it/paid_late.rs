//! What a network pays after it said that it had failed: who bears it, and what becomes of that if the
//! network takes it back after all.

use std::time::Duration;

use proto::charges::{
    CaseKind, CloseCaseRequest, DisbursementStatus, Payout, ShowDisbursementRequest,
    close_case_request::Action,
};

use crate::{
    money_out::{AT, DAYS, MTN, Till, check_credit, check_event, collected, events, only_case},
    shop::{Shop, check_ledger},
};

/// Longer than until the first look at what has failed, and shorter than until the second.
const HOURS: Duration = Duration::from_secs(2 * 3_600);

#[tokio::test]
async fn story_210_what_is_paid_after_it_failed_goes_to_suspense() {
    for rail in [MTN, AT] {
        let shop = collected().await;
        let mut till = Till::of(&shop);
        let number = format!("{}210", rail.1);
        till.pays_to(rail.0, &number, "Ama Mensah").await;
        let payout = till.pay_out(2_000, "210").await;
        let failed = till.until(&payout, DisbursementStatus::Failed).await;
        assert_eq!(failed.failure_reason.as_deref(), Some("RAIL_ERROR"));
        check_event(&shop, &payout, "payout.failed").await;
        shop.advance(DAYS).await;
        only_case(&shop, &payout, CaseKind::PaidLate).await;
        check_credit(&till, &payout, (1, 2_000)).await;
        // It stays failed, and a person decides who bears it.
        assert_eq!(
            till.read(&payout).await.status(),
            DisbursementStatus::Failed
        );
        assert_eq!(till.balance().await, (2_550, 0));
        assert_eq!(events(&shop, &payout.payout_id).len(), 1);
        shop.close().await;
    }
}

/// A payout that failed and that Paystack has paid after all.
async fn paid_late() -> (Shop, Till, Payout) {
    let shop = collected().await;
    let mut till = Till::of(&shop);
    till.pays_to(AT.0, "0270000216", "Ama Mensah").await;
    let payout = till.pay_out(2_000, "216").await;
    till.until(&payout, DisbursementStatus::Failed).await;
    shop.advance(HOURS).await;
    only_case(&shop, &payout, CaseKind::PaidLate).await;
    (shop, till, payout)
}

/// After the network has taken it back: the float is as it was, and so is everybody else.
async fn check_taken_back(shop: &Shop, till: &Till, payout: &Payout) {
    shop.advance(DAYS).await;
    let request = ShowDisbursementRequest {
        id: payout.payout_id.clone(),
    };
    chassis::testing::until("it is in the ledger", async || {
        let mut treasury = till.treasury.clone();
        let file = treasury.show_disbursement(request.clone()).await;
        let file = file.unwrap().into_inner();
        let mut kinds = file.postings.iter().map(|posting| posting.kind.as_str());
        kinds.any(|kind| kind == "LATE_REVERSAL")
    })
    .await;
    assert!(shop.cases().await.is_empty());
    assert_eq!(till.balance().await, (2_550, 0));
    check_credit(till, payout, (1, 0)).await;
    check_ledger(&shop.database("charges-svc").await).await;
}

#[tokio::test]
async fn story_216_what_is_taken_back_before_anybody_decided_leaves_nothing_to_decide() {
    let (shop, till, payout) = paid_late().await;
    check_taken_back(&shop, &till, &payout).await;
    shop.close().await;
}

#[tokio::test]
async fn story_216_what_the_merchant_gave_back_is_its_own_again() {
    let (shop, till, payout) = paid_late().await;
    let case = shop.wait_for_case(&payout.payout_id).await;
    let recover = CloseCaseRequest {
        case_id: case.case_id,
        action: Action::Refund.into(),
        ..CloseCaseRequest::default()
    };
    shop.operations().close_case(recover).await.unwrap();
    assert_eq!(till.balance().await, (550, 0));
    check_taken_back(&shop, &till, &payout).await;
    shop.close().await;
}
