//! The page of a successful payment.

use serde_json::json;

use super::{Payer, order, paid_session};
use crate::shop::Shop;

#[tokio::test]
async fn a_payer_pays_by_prompt_and_everybody_hears_of_it_once() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    assert_eq!((page.code, page.state()), (200, "form"));
    for text in [
        "GHS 25.50",
        "Demo Shop",
        "Order 17",
        "Pay GHS 25.50",
        "MTN MoMo",
    ] {
        page.says(text);
    }
    page.says_not(" checked");
    page.says("https://shop.example/thanks?order=17&#38;session_id=");
    page.says("status=cancelled#top");
    let sent = payer.pay(&page, "MTN", "024 000 0001").await;
    payer.check_sees_page(&sent);
    let page = payer.wait_for("success").await;
    page.says("GHS 25.50");
    page.says("024 ••• 0001");
    page.says("Return to shop.example");
    page.says("data-return=\"5\"");
    page.says("Stay on this page");
    page.says("data-print>Print or save receipt");
    page.says("<div class=\"result success\" role=\"alert\">");
    page.says("status=completed#top");
    page.says_not("0240000001");
    let session = paid_session(&shop, &payer).await;
    assert_eq!(session["status"], "COMPLETED");
    assert_eq!(session["transaction"]["status"], "SETTLED");
    let display = session["transaction"]["tx_id_display"].as_str().unwrap();
    let event = shop.wait_for_event(&format!("{display}-x")).await;
    assert_eq!(event["type"], "payment.success");
    assert_eq!(event["data"]["session_id"], json!(payer.session_id));
    assert_eq!(event["data"]["amount"], json!(25.5));
    assert_eq!(event["data"]["currency"], "GHS");
    assert_eq!(shop.balance().await, 2_550);
    assert_eq!(shop.book("0240000001").await[0]["debits"], 1);
    shop.close().await;
}
