//! What payouts cost merchants, where the operator passes on what rails take.

use chassis::grpc;
use proto::charges::{DisbursementStatus, ShowDisbursementRequest};

use crate::{mtn::Mtn, shop::Shop, world::ghs};

#[tokio::test]
async fn a_fee_is_taken_once_it_is_paid_and_returned_if_it_fails() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open_with(&mtn, &[("payout-fee-momo", "0.50")]).await;
    shop.enable_payouts().await;
    let refused = shop.pay_out(2501).await.unwrap_err();
    assert_eq!(
        grpc::metadata(&refused, "available_minor").as_deref(),
        Some("2550")
    );
    mtn.ends("FAILED", Some("PAYEE_NOT_FOUND"));
    let payout = shop.pay_out(2500).await.unwrap();
    assert_eq!(payout.fee, Some(ghs(50)));
    assert_eq!(shop.balance().await.0, 0);
    shop.until_payout(&payout, DisbursementStatus::Failed).await;
    assert_eq!(shop.balance().await, (2550, 0));
    mtn.ends("SUCCESSFUL", None);
    let payout = shop.pay_out(2500).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    assert_eq!(shop.balance().await, (0, 0));
    let request = ShowDisbursementRequest {
        id: payout.payout_id,
    };
    let treasury = &mut shop.world.treasury;
    let file = treasury.show_disbursement(request).await.unwrap();
    let postings = file.into_inner().postings;
    let paid: Vec<_> = postings
        .iter()
        .filter(|line| line.kind == "PAYOUT_FEE")
        .map(|line| (line.account.as_str(), line.amount.clone()))
        .collect();
    let reserved = format!("merchant:{}:reserved", shop.merchant());
    assert_eq!(
        paid,
        [
            (reserved.as_str(), Some(ghs(-50))),
            ("house", Some(ghs(50)))
        ]
    );
    shop.end().await;
}
