//! The headers of every answer.

use super::{Page, Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn every_answer_carries_the_headers_that_protect_it() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let unknown = Payer::at(&shop, "00000000-0000-4000-8000-000000000000");
    let pages = [
        payer.open().await,
        payer.pay(&payer.open().await, "", "").await,
        unknown.open().await,
    ];
    for page in &pages {
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert_eq!(
            policy,
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
             connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        );
        assert_eq!(page.headers["cache-control"], "no-store");
    }
    let state = payer.get("/state").await;
    assert_eq!(state.html, "{\"state\":\"form\"}");
    for page in pages.iter().chain([&state]) {
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert!(
            page.headers["x-robots-tag"]
                .to_str()
                .unwrap()
                .starts_with("noindex")
        );
        assert!(!page.headers.contains_key("set-cookie"));
    }
    let tag = state.headers["etag"].clone();
    let same = payer
        .client
        .get(payer.url("/state"))
        .header("if-none-match", tag);
    let same = Page::of(same.send().await.unwrap()).await;
    assert_eq!((same.code, same.html.len()), (304, 0));
    shop.close().await;
}
