//! The page of a failed payment, and the next attempt.

use super::{Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn after_a_refusal_the_payer_tries_again_and_pays() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let first = payer.open().await;
    payer.check_sees_page(&payer.pay(&first, "MTN", "0240000004").await);
    let page = payer.wait_for("failed").await;
    page.says("declined on the phone");
    page.says("You were not charged");
    page.says("status=failed#top");
    page.says(&format!("/pay/{}?again=1", payer.session_id));
    // The old form again, as the back button may send it, is still the first charge.
    payer.check_sees_page(&payer.pay(&first, "MTN", "0240000004").await);
    assert_eq!(payer.open().await.state(), "failed");
    assert_eq!(shop.book("0240000004").await.len(), 1);
    let form = payer.get("?again=1").await;
    assert_eq!(form.state(), "form");
    payer.check_sees_page(&payer.pay(&form, "AT", "0270000001").await);
    payer.wait_for("success").await;
    assert_eq!(shop.balance().await, 2_550);
    shop.close().await;
}

#[tokio::test]
async fn a_number_without_a_wallet_is_told_at_once() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("MTN", "0240000006").await;
    assert_eq!(page.state(), "failed");
    page.says("no wallet on the network");
    shop.close().await;
}

#[tokio::test]
async fn a_prompt_that_is_never_answered_ends_as_not_approved_in_time() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("MTN", "0240000005").await;
    assert_eq!(page.state(), "prompt");
    page.says("*170#");
    page.says("024 ••• 0005");
    let page = payer.wait_for("failed").await;
    page.says("not approved in time");
    page.says_not("You were not charged");
    page.says("If money left your wallet");
    shop.close().await;
}
