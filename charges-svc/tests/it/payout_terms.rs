//! Payouts on the terms that somebody was shown.

use chassis::testing::{check_invalid, check_refusal};
use proto::charges::{ReadPayoutAccountRequest, SeenPayoutTerms};
use tonic::Code;

use crate::{mtn::Mtn, shop::Shop, world::ghs};

#[tokio::test]
async fn a_payout_is_made_on_the_terms_that_were_seen_or_not_at_all() {
    let mut shop = Shop::open(&Mtn::with_float("1000")).await;
    shop.enable_payouts().await;
    let mut disbursements = shop.world.disbursements.clone();
    let request = ReadPayoutAccountRequest {
        merchant_id: shop.merchant(),
    };
    let account = disbursements.read_payout_account(request).await.unwrap();
    let seen = SeenPayoutTerms {
        fee: Some(ghs(0)),
        account_updated_at: account.into_inner().updated_at,
    };
    for (other, field) in [
        (
            SeenPayoutTerms {
                fee: Some(ghs(1)),
                ..seen.clone()
            },
            None,
        ),
        (
            SeenPayoutTerms {
                account_updated_at: "2020-01-01T00:00:00.000Z".to_owned(),
                ..seen.clone()
            },
            None,
        ),
        (
            SeenPayoutTerms {
                fee: None,
                ..seen.clone()
            },
            Some("seen"),
        ),
        (
            SeenPayoutTerms {
                account_updated_at: "x".to_owned(),
                ..seen.clone()
            },
            Some("seen"),
        ),
    ] {
        let mut request = shop.payout(1000);
        request.seen = Some(other);
        let refused = disbursements.create_payout(request.clone()).await;
        match field {
            None => {
                check_refusal(refused, Code::FailedPrecondition, "PAYOUT_TERMS_CHANGED");
                // What was asked for on other terms is not paid on these.
                request.seen = Some(seen.clone());
                let again = disbursements.create_payout(request).await;
                check_refusal(again, Code::FailedPrecondition, "PAYOUT_TERMS_CHANGED");
            }
            Some(field) => check_invalid(refused, field),
        }
    }
    assert_eq!(shop.balance().await, (2550, 0), "nothing is reserved");

    // The key stands for this payout, whatever is seen later.
    let mut request = shop.payout(1000);
    request.seen = Some(seen);
    let made = disbursements.create_payout(request.clone()).await;
    let made = made.unwrap().into_inner();
    assert!(!made.replayed);
    request.seen = Some(SeenPayoutTerms {
        fee: Some(ghs(1)),
        account_updated_at: "2020-01-01T00:00:00.000Z".to_owned(),
    });
    let again = disbursements.create_payout(request).await.unwrap();
    assert!(again.get_ref().replayed);
    assert_eq!(again.into_inner().payout, made.payout);
    shop.end().await;
}
