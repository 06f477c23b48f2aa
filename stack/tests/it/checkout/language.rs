//! Every page in every language.

use super::{Page, Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn the_page_speaks_twi_to_whoever_asks() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.get("?lang=tw").await;
    page.says("<html lang=\"tw\">");
    page.says("Tua GHS 25.50");
    page.says(&format!("action=\"/pay/{}?lang=tw\"", payer.session_id));
    let asked = payer
        .client
        .get(payer.url(""))
        .header("accept-language", "tw");
    Page::of(asked.send().await.unwrap())
        .await
        .says("Tua GHS 25.50");
    payer.open().await.says("<html lang=\"en\">");
    shop.close().await;
}
