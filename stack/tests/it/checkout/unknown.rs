//! Addresses that belong to no payment.

use super::{Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn what_is_not_there_looks_the_same_whatever_it_is() {
    let shop = Shop::open().await;
    let direct = shop.charge("0240000001", "MTN").await;
    let ids = [
        "00000000-0000-4000-8000-000000000000",
        "1",
        "%3Cscript%3E",
        direct.text("session_id").unwrap(),
    ];
    let mut bodies = Vec::new();
    for id in ids {
        let page = Payer::at(&shop, id).open().await;
        assert_eq!((page.code, page.state()), (404, "unknown"), "{id}");
        bodies.push(page.html);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    shop.wait_for_end(direct.text("reference").unwrap()).await;
    shop.close().await;
}

#[tokio::test]
async fn guessing_addresses_ends_in_a_wait() {
    // No rate window ends during this test.
    let shop = Shop::open_with(&[
        ("gateway", "--checkout-unknown-per-address=3"),
        ("gateway", "--checkout-limit-window=8760h"),
    ])
    .await;
    let payer = Payer::of(&shop, order()).await;
    payer.pay_at_once("MTN", "0240000001").await;
    payer.wait_for("success").await;
    let unknown = Payer::at(&shop, "00000000-0000-4000-8000-000000000000");
    for _ in 0..3 {
        assert_eq!(unknown.open().await.code, 404);
    }
    let page = unknown.open().await;
    assert_eq!(page.code, 429);
    assert!(page.headers.contains_key("retry-after"));
    // Other payers may share the IP address, and one of them may just have paid.
    page.says("you do not need to pay again");
    page.says_not("Nothing was charged");
    let page = payer.open().await;
    assert_eq!((page.code, page.state()), (200, "success"));
    shop.close().await;
}
