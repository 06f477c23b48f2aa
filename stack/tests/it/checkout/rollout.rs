//! During a rollout, a page from one version may request its files from a process of another.

use super::{Page, Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn a_file_of_another_version_is_ours_and_is_not_kept() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let get = async |path: &str| {
        let request = payer.client.get(format!("{}{path}", payer.base));
        Page::of(request.send().await.unwrap()).await
    };
    for (before, extension) in [("href=\"", "css"), ("src=\"", "js")] {
        let before = format!("{before}/assets/");
        let name = page.between(&before, "\"").unwrap();
        let ours = get(&format!("/assets/{name}")).await;
        let other = format!("/assets/checkout-0123456789abcdef.{extension}");
        let other = get(&other).await;
        assert_eq!(other.code, 200);
        assert_eq!(other.html, ours.html);
        assert_eq!(other.headers["content-type"], ours.headers["content-type"]);
        assert_eq!(other.headers["cache-control"], "no-store");
        let sent = payer.client.post(format!("{}/assets/{name}", payer.base));
        let refused = Page::of(sent.send().await.unwrap()).await;
        assert_eq!(refused.code, 405);
        assert_eq!(refused.headers["cache-control"], "no-store");
    }
    shop.close().await;
}

#[tokio::test]
async fn what_never_was_a_file_of_ours_is_not_there() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    for path in [
        "checkout.css",
        "checkout-.css",
        "checkout-0123456789abcde.css",
        "checkout-0123456789abcdef0.css",
        "checkout-0123456789abcdeg.css",
        "checkout-0123456789abcdef.css.map",
        "checkout-0123456789abcdef.html",
        "checkout-0123456789abcdef",
        "other-0123456789abcdef.css",
        "%2e%2e%2fcheckout-0123456789abcdef.css",
        "checkout-%C3%A9123456789abcdef.css",
        "",
    ] {
        let url = format!("{}/assets/{path}", payer.base);
        let page = Page::of(payer.client.get(url).send().await.unwrap()).await;
        assert_eq!(page.code, 404, "{path}");
        assert_eq!(page.headers["cache-control"], "no-store", "{path}");
    }
    shop.close().await;
}
