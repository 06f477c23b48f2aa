//! What a rail's float has room for, whichever replicas pay out of it.

use chassis::testing::until;
use proto::charges::{CaseKind, DisbursementStatus, disbursements_client::DisbursementsClient};
use tokio::sync::watch;

use crate::{
    mtn::{Mtn, transfers},
    shop::Shop,
};

/// MTN looks at its float only after it has taken a transfer, and then fails what is not covered.
#[tokio::test]
async fn replicas_never_count_on_the_same_money_of_a_float() {
    let (open, gate) = watch::channel(false);
    let mtn = Mtn::with_float("1.50");
    mtn.ends("PENDING", None);
    mtn.holds_balance(gate);
    let mut shop = Shop::open(&mtn).await;
    shop.enable_payouts().await;
    let replica = shop.world.replica().await;
    let mut at_replica = DisbursementsClient::new(replica.channel());
    let mut payouts = Vec::new();
    for _ in 0..2 {
        payouts.push(shop.pay_out(100).await.unwrap());
        let asked = at_replica.create_payout(shop.payout(100)).await;
        payouts.push(asked.unwrap().into_inner().payout.unwrap());
    }
    // Each asks once at a time.
    until("both ask for the float", async || {
        let calls = shop.network.calls();
        let asked = calls.iter().filter(|call| call.ends_with("/balance"));
        asked.count() == 2
    })
    .await;
    open.send_replace(true);
    until("the others wait with a case", async || {
        let cases = shop.open_cases().await;
        let empty = cases.iter();
        let empty = empty.filter(|case| case.kind() == CaseKind::FloatEmpty);
        empty.count() == payouts.len() - 1
    })
    .await;
    assert_eq!(transfers(&shop.network), 1);
    mtn.set_float("1000");
    mtn.ends("SUCCESSFUL", None);
    for payout in &payouts {
        shop.until_payout(payout, DisbursementStatus::Completed)
            .await;
    }
    assert_eq!(transfers(&shop.network), payouts.len());
    replica.stop().await;
    shop.end().await;
}
