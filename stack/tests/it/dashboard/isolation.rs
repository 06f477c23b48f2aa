//! What belongs to another merchant is not there.

use proto::charges::Provider;
use serde_json::json;

use super::Person;
use crate::{
    money_out::Till,
    shop::{NO_LIMITS, Shop},
};

#[tokio::test]
async fn another_merchants_things_are_not_found() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let owner = Person::sign_up(&shop, "The house next door").await;
    let stranger = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let reference = owner
        .take("0240000001", json!({ "payer_name": "Kofi" }))
        .await;
    let refund = format!("/payments/{reference}/refund");
    let nonce = owner.get(&refund).await.field("nonce");
    let fields = [("amount", "5"), ("nonce", nonce.as_str())];
    let refund_id = owner.post(&refund, &fields).await.leads_to("/refunds/");
    let mut till = Till::of_merchant(&shop, &owner.merchant_id);
    till.pays_to(Provider::Mtn, "0240000201", "Ama Mensah")
        .await;
    let payout = till.pay_out(100, "one").await;
    let customers = owner.walk("/customers", "/customers/").await;
    let [customer_id] = customers.as_slice() else {
        panic!("{customers:?}");
    };
    let customer = owner.get(&format!("/customers/{customer_id}")).await;
    customer.says("Kofi");
    customer.says(&reference);
    for path in [
        format!("/payments/{reference}"),
        refund.clone(),
        format!("/refunds/{refund_id}"),
        format!("/payouts/{}", payout.payout_id),
        format!("/customers/{customer_id}"),
    ] {
        assert_eq!(owner.get(&path).await.code, 200, "{path}");
        let page = stranger.get(&path).await;
        assert_eq!(page.code, 404, "{path}");
        page.says("Page not found");
    }
    assert_eq!(stranger.post(&refund, &fields).await.code, 404);
    for path in ["/payments", "/refunds", "/payouts", "/customers"] {
        for path in [path.to_owned(), format!("{path}.csv")] {
            let page = stranger.get(&path).await;
            assert_eq!(page.code, 200, "{path}");
            for id in [&reference, &refund_id, &payout.payout_id, customer_id] {
                page.says_not(id);
            }
        }
    }
    for path in [
        "/payments/x",
        "/payments/TX-0000000000-000000",
        "/refunds/x",
        "/payouts/x",
    ] {
        assert_eq!(stranger.get(path).await.code, 404, "{path}");
    }
    shop.close().await;
}
