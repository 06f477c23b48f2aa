//! The page when payments are unavailable.

use super::{Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn a_merchant_who_takes_no_payments_has_no_form() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let form = payer.open().await;
    let update = proto::merchants::UpdateMerchantRequest {
        merchant_id: shop.ready.demo.merchant_id.clone(),
        accepting_payments: Some(false),
        ..Default::default()
    };
    shop.merchants().update_merchant(update).await.unwrap();
    let page = payer.open().await;
    assert_eq!(page.state(), "unavailable");
    page.says(&format!("href=\"/pay/{}\">Try again", payer.session_id));
    payer.check_sees_page(&payer.pay(&form, "MTN", "0240000001").await);
    assert!(shop.book("0240000001").await.is_empty());
    shop.close().await;
}
