//! What strangers write into the pages, and what other sites send.

use serde_json::json;

use super::{Page, Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn nothing_that_others_wrote_runs_on_the_page() {
    let shop = Shop::open().await;
    let merchant_id = shop.add_merchant("<img src=x onerror=alert(1)>").await;
    let key = shop.add_key(&merchant_id).await.api_key;
    let api = stack::demo::Api::new(&shop.ready.api, &key).unwrap();
    for evil in [
        "<script>alert(1)</script>",
        "\"><svg onload=alert(1)>",
        "'onmouseover='alert(1)",
        "</title><script>alert(1)</script>",
        "javascript:alert(1)",
        "{{7*7}}${7*7}<%= 7*7 %>",
        "&lt;script&gt;",
        "<!--<script>",
    ] {
        let session = json!({
            "amount": 1,
            "currency": "GHS",
            "description": evil,
            "customer_name": evil,
            "redirect_url": "https://shop.example/\"><script>alert(1)</script>?a='x'",
        });
        let created = api
            .post("/api/v1/payments/initiate", &session)
            .await
            .unwrap();
        created.expect(201).unwrap();
        let payer = Payer::at(&shop, created.text("session_id").unwrap());
        let page = payer.open().await;
        let attempt = page.field("attempt");
        let fields = [
            ("attempt", attempt.as_str()),
            ("network", evil),
            ("mobile_number", evil),
        ];
        for page in [page, payer.post("", &fields).await] {
            assert_eq!(page.html.matches("<script").count(), 1, "{}", page.html);
            for tag in ["<img", "<svg", "onload=alert(1)>", "'onmouseover", "<!--"] {
                page.says_not(tag);
            }
            page.says_not("href=\"javascript:");
            page.says_not(" style=");
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let attempt = page.field("attempt");
    let fields = [
        ("attempt", attempt.as_str()),
        ("network", "MTN"),
        ("mobile_number", "0240000001"),
    ];
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
    ] {
        for path in ["", "/code"] {
            let mut request = payer.form(path, &fields).build().unwrap();
            request.headers_mut().remove("sec-fetch-site");
            request.headers_mut().insert(name, value.parse().unwrap());
            let refused = Page::of(payer.client.execute(request).await.unwrap()).await;
            assert_eq!(
                (refused.code, refused.state()),
                (403, "refused"),
                "{name}: {value}"
            );
        }
    }
    assert!(shop.book("0240000001").await.is_empty());
    assert_eq!(payer.open().await.state(), "form");
    shop.close().await;
}

#[tokio::test]
async fn one_number_is_not_prompted_without_end() {
    // No rate window ends during this test.
    let shop = Shop::open_with(&[
        ("gateway", "--checkout-tries-per-number=1"),
        ("gateway", "--checkout-limit-window=8760h"),
    ])
    .await;
    let first = Payer::of(&shop, order()).await;
    first.pay_at_once("MTN", "0240000001").await;
    first.wait_for("success").await;
    let second = Payer::of(&shop, order()).await;
    let page = second.open().await;
    let refused = second.pay(&page, "MTN", "+233 24 000 0001").await;
    assert_eq!((refused.code, refused.state()), (429, "form"));
    refused.says("Too many tries");
    assert_eq!(shop.book("0240000001").await.len(), 1);
    // The API has no limit per phone number.
    shop.charge("0240000001", "MTN").await.expect(202).unwrap();
    shop.close().await;
}
