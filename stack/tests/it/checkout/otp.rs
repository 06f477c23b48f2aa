//! The page that asks for a code.

use super::{Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn a_wrong_code_is_told_and_the_right_one_pays() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("TELECEL", "0200000002").await;
    assert_eq!(page.state(), "otp");
    page.says("020 ••• 0002");
    page.says("*110#");
    page.says_not("Tries left");
    page.says("Use another number or network");
    page.says("I did not get a code");
    let left = payer.get("?leave=1").await;
    assert_eq!((left.code, left.state()), (200, "otp"));
    left.says("You can enter a code until");
    left.says_not("name=\"otp\"");
    let reference = page.field("reference");
    let submit = |otp: &'static str| {
        let reference = reference.clone();
        let payer = &payer;
        async move {
            payer
                .post("/code", &[("reference", &reference), ("otp", otp)])
                .await
        }
    };
    let empty = submit("").await;
    assert_eq!((empty.code, empty.state()), (422, "otp"));
    empty.says("<title>Error:");
    payer.check_sees_page(&submit("000000").await);
    let page = payer.open().await;
    assert_eq!(page.state(), "otp");
    page.says("Tries left: 2");
    page.says("<title>Error:");
    payer.check_sees_page(&submit("123456").await);
    payer.wait_for("success").await;
    payer.check_sees_page(&submit("123456").await);
    assert_eq!(shop.book("0200000002").await[0]["debits"], 1);
    shop.close().await;
}

#[tokio::test]
async fn a_code_ends_a_payment_that_was_begun_before_its_merchant_was_switched_off() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("TELECEL", "0200000002").await;
    assert_eq!(page.state(), "otp");
    let update = proto::merchants::UpdateMerchantRequest {
        merchant_id: shop.ready.demo.merchant_id.clone(),
        accepting_payments: Some(false),
        ..Default::default()
    };
    shop.merchants().update_merchant(update).await.unwrap();
    let page = payer.open().await;
    assert_eq!(page.state(), "otp");
    let reference = page.field("reference");
    let code = [("reference", reference.as_str()), ("otp", "123456")];
    payer.check_sees_page(&payer.post("/code", &code).await);
    payer.wait_for("success").await;
    shop.close().await;
}
