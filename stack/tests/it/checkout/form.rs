//! The form: errors appear beside their fields, and the phone number that the merchant sent is
//! only shown masked.

use serde_json::json;

use super::{Page, Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn bad_input_is_told_beside_its_field_and_kept() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let sent = payer.pay(&page, "", "024 12").await;
    assert_eq!((sent.code, sent.state()), (422, "form"));
    sent.says("<title>Error:");
    sent.says("href=\"#network\"");
    sent.says("href=\"#mobile_number\"");
    sent.says("id=\"number-error\"");
    sent.says("value=\"024 12\"");
    assert_eq!(sent.field("attempt"), page.field("attempt"));
    let sent = payer.pay(&sent, "VODAFONE", "").await;
    sent.says("Enter your mobile money number");
    let sent = payer.pay(&sent, "AT", "x").await;
    sent.says("value=\"AT\" checked");
    let cut = payer
        .form("", &[])
        .body("\u{0}%ff=%ff&network=MTN")
        .send()
        .await
        .unwrap();
    assert_eq!(cut.status(), 422);
    let mut other = payer.form("", &[]).build().unwrap();
    let plain = "text/plain".parse().unwrap();
    other.headers_mut().insert("content-type", plain);
    let other = Page::of(payer.client.execute(other).await.unwrap()).await;
    assert_eq!((other.code, other.state()), (415, "refused"));
    shop.close().await;
}

#[tokio::test]
async fn the_merchants_number_is_used_and_never_shown() {
    let shop = Shop::open().await;
    let mut session = order();
    session["customer_phone"] = json!("0244567001");
    let payer = Payer::of(&shop, session).await;
    let page = payer.open().await;
    page.says("024 ••• 7001");
    page.says("Use another number");
    for number in ["0244567001", "244567001"] {
        page.says_not(number);
    }
    let attempt = page.field("attempt");
    let fields = [
        ("attempt", attempt.as_str()),
        ("network", "MTN"),
        ("number", "kept"),
    ];
    payer.check_sees_page(&payer.post("", &fields).await);
    let page = payer.wait_for("success").await;
    page.says_not("244567001");
    assert_eq!(shop.book("0244567001").await[0]["debits"], 1);
    shop.close().await;
}
