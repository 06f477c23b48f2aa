//! The page of an expired link.

use std::time::Duration;

use super::{Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn an_unpaid_link_ends_after_24_hours() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let form = payer.open().await;
    shop.advance(Duration::from_secs(86_400)).await;
    let page = payer.open().await;
    assert_eq!((page.code, page.state()), (200, "expired"));
    page.says("status=expired#top");
    payer.check_sees_page(&payer.pay(&form, "MTN", "0240000001").await);
    assert_eq!(payer.open().await.state(), "expired");
    assert!(shop.book("0240000001").await.is_empty());
    shop.close().await;
}
