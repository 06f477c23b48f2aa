//! Where a merchant's payouts go, and what a change of that does.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    testing::{
        fake_server::{empty, json},
        until,
    },
};
use proto::charges::{
    CaseKind, DestinationType, DisbursementStatus, PayoutAccount, Provider, SetPayoutAccountRequest,
};

use crate::{
    mtn::{Mtn, transfers},
    shop::Shop,
};

const HOUR: Duration = Duration::from_secs(3_600);

async fn set(shop: &mut Shop, provider: Provider, account: &str) -> PayoutAccount {
    let request = SetPayoutAccountRequest {
        merchant_id: shop.merchant(),
        r#type: DestinationType::MobileMoney.into(),
        provider: provider.into(),
        account: account.to_owned(),
        holder_name: "Ama Mensah".to_owned(),
        confirm_holder_name: true,
        ..SetPayoutAccountRequest::default()
    };
    let set = shop.world.treasury.set_payout_account(request).await;
    set.unwrap().into_inner()
}

/// A payout that the empty float keeps waiting.
async fn given_waiting_payout(shop: &mut Shop) -> proto::charges::Payout {
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    until("it waits for the float", async || {
        let cases = shop.open_cases().await;
        cases.iter().any(|case| case.kind() == CaseKind::FloatEmpty)
    })
    .await;
    payout
}

#[tokio::test]
async fn a_change_of_the_account_holds_what_was_not_sent_too() {
    let mtn = Mtn::with_float("9.99");
    let mut shop = Shop::open(&mtn).await;
    let payout = given_waiting_payout(&mut shop).await;
    set(&mut shop, Provider::Mtn, "0241234568").await;
    mtn.set_float("1000");
    // Refunds do not go to the account.
    shop.refund(Some(500)).await.unwrap();
    until("the refund is paid", async || {
        shop.balance().await == (1050, 1000)
    })
    .await;
    shop.world.clock.advance(23 * HOUR).await.unwrap();
    assert_eq!(
        shop.shown(&payout).await.status(),
        DisbursementStatus::Pending
    );
    assert_eq!(transfers(&shop.network), 1, "the refund alone is sent");
    shop.world.clock.advance(2 * HOUR).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    let seen = shop.network.seen();
    let sent = seen
        .iter()
        .rfind(|seen| seen.call == "POST /disbursement/v1_0/transfer");
    let payee = &sent.unwrap().json()["payee"]["partyId"];
    assert_eq!(payee, "233241234567", "where it was recorded to go");
    shop.end().await;
}

#[tokio::test]
async fn a_change_of_the_account_holds_what_was_lost_on_its_way_too() {
    let mtn = Mtn::with_float("1000");
    mtn.answers(json(500, r#"{"code":"INTERNAL_PROCESSING_ERROR"}"#), false);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1000).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Processing)
        .await;
    until("it is sent", async || transfers(&shop.network) == 1).await;
    set(&mut shop, Provider::Mtn, "0241234568").await;
    mtn.answers(empty(202), true);
    shop.world.clock.advance(23 * HOUR).await.unwrap();
    assert_eq!(transfers(&shop.network), 1, "it is held");
    assert!(shop.open_cases().await.is_empty());
    shop.world.clock.advance(2 * HOUR).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    assert_eq!(transfers(&shop.network), 2);
    shop.end().await;
}

/// What mail is to tell of payout accounts, oldest first: before, after, and until when payouts
/// wait.
async fn notices(shop: &Shop) -> Vec<(Option<String>, Option<String>, Option<Timestamp>)> {
    let mut conn = shop.world.db.read().await.unwrap();
    let notices = conn
        .sql(
            "select account_before, account_after, held_until from notices
             where kind = 'PAYOUT_ACCOUNT_SET' order by notice_id",
        )
        .all();
    notices.await.unwrap()
}

#[tokio::test]
async fn a_notice_tells_each_change_of_the_account_and_no_repetition() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    let first = set(&mut shop, Provider::Mtn, "0241234567").await;
    let again = set(&mut shop, Provider::Mtn, "024 123 4567").await;
    assert_eq!(first.held_until, again.held_until);
    let changed = set(&mut shop, Provider::Telecel, "0201234002").await;
    let again = set(&mut shop, Provider::Telecel, "0201234002").await;
    assert_eq!(changed.held_until, again.held_until);
    let mtn = || Some("MTN 024 ••• 4567, Ama Mensah".to_owned());
    let telecel = || Some("TELECEL 020 ••• 4002, Ama Mensah".to_owned());
    let held = |told: &PayoutAccount| Some(told.held_until.parse().unwrap());
    assert_eq!(
        notices(&shop).await,
        [
            (None, mtn(), held(&first)),
            (mtn(), telecel(), held(&changed)),
        ]
    );
    shop.end().await;
}
