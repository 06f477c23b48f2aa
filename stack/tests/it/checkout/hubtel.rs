//! The checkout where a network is reached through Hubtel: no code, and a failure that shows late.

use std::time::Duration;

use chassis::testing::until;

use super::{Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn a_telecel_payer_gets_a_prompt_and_is_asked_for_no_code() {
    let shop = Shop::open_with(&[("charges-svc", "--rail-telecel=hubtel")]).await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    payer.check_sees_page(&payer.pay(&page, "TELECEL", "020 000 0002").await);
    let page = payer.wait_for("success").await;
    page.says("GHS 25.50");
    assert_eq!(shop.book("0200000002").await[0]["rail"], "hubtel");
    assert_eq!(shop.balance().await, 2_550);
    shop.close().await;
}

#[tokio::test]
async fn who_declined_waits_for_the_end_of_their_time_and_may_then_pay_otherwise() {
    let shop = Shop::open_with(&[("charges-svc", "--rail-at=hubtel")]).await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("AT", "0270000004").await;
    assert_eq!(page.state(), "prompt");
    until("Hubtel knows", async || {
        shop.book("0270000004").await[0]["status"] == "failed"
    })
    .await;
    shop.advance(Duration::from_secs(280)).await;
    assert_eq!(payer.open().await.state(), "slow");
    shop.advance(Duration::from_secs(120)).await;
    payer.wait_for("failed").await;
    let form = payer.get("?again=1").await;
    payer.check_sees_page(&payer.pay(&form, "MTN", "0240000001").await);
    payer.wait_for("success").await;
    assert_eq!(shop.balance().await, 2_550);
    shop.close().await;
}
