//! However often a form is sent, and by however many payers, there is one charge.

use futures::future::join_all;
use serde_json::json;

use super::{Payer, order};
use crate::shop::Shop;

#[tokio::test]
async fn a_form_sent_many_times_is_one_charge() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let sent = join_all((0..5).map(|_| payer.pay(&page, "MTN", "0240000001"))).await;
    for sent in &sent {
        payer.check_sees_page(sent);
    }
    payer.wait_for("success").await;
    payer.check_sees_page(&payer.pay(&page, "MTN", "0240000001").await);
    let book = shop.book("0240000001").await;
    assert_eq!((book.len(), &book[0]["debits"]), (1, &json!(1)));
    shop.close().await;
}

#[tokio::test]
async fn of_fifty_payers_of_one_session_one_is_debited() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let paid = join_all((0..50).map(|n| {
        let payer = &payer;
        async move {
            let page = payer.open().await;
            // Late payers see that somebody is already paying.
            if page.state() == "form" {
                let number = format!("02411{n:02}001");
                payer.check_sees_page(&payer.pay(&page, "MTN", &number).await);
            }
        }
    }));
    paid.await;
    payer.wait_for("success").await;
    let database = shop.database("charges-svc").await;
    let mut conn = database.read().await.unwrap();
    let (settled,): (i64,) = conn
        .sql("select count(*) from charges where state = 'SETTLED'")
        .one()
        .await
        .unwrap();
    assert_eq!(settled, 1);
    drop(conn);
    database.close().await;
    let book = crate::shop::book(&shop.ready.handset).await;
    let debits: u64 = book
        .iter()
        .map(|entry| entry["debits"].as_u64().unwrap())
        .sum();
    assert_eq!(debits, 1, "{book:?}");
    shop.close().await;
}
