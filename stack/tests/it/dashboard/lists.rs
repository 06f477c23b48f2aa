//! What only the dashboard's lists can find, and the smaller lists as files.

use futures::{StreamExt as _, stream};
use proto::{
    charges::Provider,
    merchants::{ListKeysRequest, RevokeKeyRequest},
};
use serde_json::json;

use super::{DELIVERIES, Page, Person};
use crate::{
    money_out::Till,
    shop::{NO_LIMITS, Shop},
};

#[tokio::test]
async fn payments_are_found_by_what_payers_see_by_reason_and_by_amount() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let paid = person.take("0240000001", json!({ "amount": 1250 })).await;
    let declined = person.take("0240000003", json!({})).await;
    // TX-0123456789-ABCDEF is shown to the payer as TX-0123456789.
    let (shown, _) = paid.rsplit_once('-').unwrap();
    let reason = person
        .api
        .get(&format!("/api/v1/payments/charge/{declined}"))
        .await
        .unwrap();
    let reason = reason.text("failure_reason").unwrap().to_owned();
    for (query, found) in [
        (format!("q={}", shown.to_lowercase()), vec![&paid]),
        (format!("reason={reason}"), vec![&declined]),
        ("reason=OTP_EXPIRED".to_owned(), vec![]),
        ("amount_from=25.51".to_owned(), vec![&paid]),
        ("amount_to=1,249.99".to_owned(), vec![&declined]),
        (
            "amount_from=25.50&amount_to=1250".to_owned(),
            vec![&declined, &paid],
        ),
    ] {
        let path = format!("/payments?{query}");
        let listed = person.walk(&path, "/payments/").await;
        let found: Vec<String> = found.into_iter().cloned().collect();
        assert_eq!(listed, found, "{query}");
    }
    let wrong = person.get("/payments?amount_from=25,50").await;
    assert_eq!(wrong.code, 400);
    wrong.says("value=\"25,50\"");
    shop.close().await;
}

#[tokio::test]
async fn payments_are_found_by_the_address_of_their_payer() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let other = Person::sign_up(&shop, "Kofi’s Garage").await;
    let esi = json!({ "payer_email": "Esi@Example.com" });
    // Another wallet, and a payment that failed.
    let mut hers = vec![person.take("0240030001", esi.clone()).await];
    hers.push(person.take("0240020003", esi.clone()).await);
    let failed = hers[1].clone();
    hers.push(person.take("0240030001", json!({})).await);
    let unknown = json!({ "payer_email": "efua@example.com" });
    let hopeless = person.take("0240040003", unknown).await;
    // More than a page.
    let taking = (0..50).map(|_| person.take("0240000001", esi.clone()));
    let taken: Vec<String> = stream::iter(taking).buffer_unordered(8).collect().await;
    hers.extend(taken);
    let large = person
        .take(
            "0240030001",
            json!({ "amount": 1250, "payer_email": "another@example.com" }),
        )
        .await;
    hers.push(large.clone());
    let kofi = json!({ "payer_email": "kofi@example.com" });
    let his = person.take("0240000011", kofi).await;
    let unlike = json!({ "payer_email": "yaw@example.com" });
    other.take("0240000001", unlike).await;

    let found = person.lists("/payments", "q=esi%40EXAMPLE.com").await;
    hers.sort();
    let mut sorted = found;
    sorted.sort();
    assert_eq!(sorted, hers);
    person
        .goes_back("/payments?q=esi%40example.com", "/payments/")
        .await;
    for (query, expected) in [
        ("q=esi%40example.com&amount_from=1000", vec![large.clone()]),
        ("q=esi%40example.com&status=FAILED", vec![failed]),
        ("q=another%40example.com", vec![large.clone()]),
        ("q=efua%40example.com", vec![hopeless]),
        ("q=esi%40example.com&network=AT", vec![]),
        ("q=kofi%40example.com&status=SETTLED", vec![his]),
        // Of another merchant, part of one, and one that nobody has.
        ("q=yaw%40example.com", vec![]),
        ("q=si%40example.com", vec![]),
        ("q=nobody%40example.com", vec![]),
    ] {
        assert_eq!(person.lists("/payments", query).await, expected, "{query}");
    }
    let customers = person.lists("/customers", "q=esi%40example.com").await;
    let hers = format!("/customers/{}", customers[0]);
    let listed = person.walk(&hers, "/payments/").await;
    assert_eq!(
        listed,
        person.lists("/payments", "q=esi%40example.com").await
    );
    let none = person.get("/payments?q=nobody%40example.com").await;
    none.says("Nothing matches these filters:");
    none.says("“nobody@example.com”");
    let wrong = person.get("/payments?q=nobody%40&status=FAILED").await;
    assert_eq!(wrong.code, 400);
    wrong.says("value=\"nobody@\"");
    let nowhere = person.get("/payments.csv?q=nobody%40").await;
    assert_eq!(nowhere.leads_to("/payments"), "?q=nobody%40");
    shop.close().await;
}

#[tokio::test]
async fn deliveries_are_found_by_their_payment() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.have_events().await;
    let first = person.take("0240000001", json!({})).await;
    let second = person.take("0240000011", json!({})).await;
    let of_first = person.deliveries_of(&first).await;
    let of_second = person.deliveries_of(&second).await;
    assert!(of_first.len() == 1 && of_second.len() == 1 && of_first != of_second);
    let file = person.get(&format!("{DELIVERIES}.csv?q={first}")).await;
    let lines: Vec<&str> = file.html.split_terminator("\r\n").collect();
    assert!(
        lines[0].starts_with("delivery_id,event_id,"),
        "{}",
        lines[0]
    );
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[1].starts_with(&format!("{},", of_first[0])),
        "{}",
        lines[1]
    );
    let unknown = person
        .get(&format!("{DELIVERIES}?q=TX-0123456789-ABCDEF"))
        .await;
    unknown.says("Nothing matches these filters:");
    let wrong = person.get(&format!("{DELIVERIES}?q=first")).await;
    assert_eq!(wrong.code, 400);
    let nowhere = person.get(&format!("{DELIVERIES}.csv?q=first")).await;
    assert_eq!(nowhere.leads_to(DELIVERIES), "?q=first");
    shop.close().await;
}

#[tokio::test]
async fn a_customers_payments_and_the_activity_are_files() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let paid = person.take("0240000001", json!({})).await;
    person.take("0240000011", json!({})).await;
    let found = person.get("/customers?q=0240000001").await;
    let customer = found.links("/customers/").remove(0);
    let page = person.get(&format!("/customers/{customer}")).await;
    let address = format!("/customers/{customer}/payments.csv");
    page.says(&format!("href=\"{address}\""));
    let file = person.get(&address).await;
    let lines: Vec<&str> = file.html.split_terminator("\r\n").skip(1).collect();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(&paid), "{}", lines[0]);

    let activity = person.get("/settings/activity.csv").await;
    let lines: Vec<&str> = activity.html.split_terminator("\r\n").collect();
    assert_eq!(
        lines[0],
        "created_at,action,object,person,address,user_agent"
    );
    assert!(lines[1].contains(",Logged in,"), "{}", lines[1]);
    shop.close().await;
}

impl Page {
    fn rows(&self) -> usize {
        self.html.matches("<tr>").count() - 1
    }
}

#[tokio::test]
async fn keys_are_paged_and_live_ones_come_first() {
    const KEYS: &str = "/settings/integrations/keys";
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let live = |page: &Page| page.html.matches("/revoke\"").count();
    let short = person.get(KEYS).await;
    assert_eq!(
        (short.rows(), short.older(), short.newer()),
        (1, None, None)
    );
    let mut made = Vec::new();
    for _ in 0..52 {
        let key = shop.add_key(&person.merchant_id).await.key.unwrap();
        made.push(key.key_id);
    }
    // The newest are revoked, and the key with which the person began is live.
    for key_id in made.drain(22..) {
        let request = RevokeKeyRequest { key_id };
        shop.merchants().revoke_key(request).await.unwrap();
    }
    let first = person.get(KEYS).await;
    assert_eq!((first.rows(), live(&first)), (50, 23));
    assert_eq!(first.newer(), None);
    let second = person.get(&first.older().unwrap()).await;
    assert_eq!((second.rows(), live(&second)), (3, 0));
    assert_eq!(second.older(), None);
    let back = person.get(&second.newer().unwrap()).await;
    assert_eq!(live(&back), 23);
    // A key on no first page is found nevertheless.
    let request = ListKeysRequest {
        merchant_id: person.merchant_id.clone(),
    };
    let keys = shop.merchants().list_keys(request).await.unwrap();
    let keys = keys.into_inner().keys;
    for key in [keys.first().unwrap(), keys.last().unwrap()] {
        let page = person.get(&format!("{KEYS}/{}/revoke", key.key_id)).await;
        page.says(&format!("•••• {}", key.hint));
    }
    let unknown = format!("{KEYS}/{}/revoke", uuid::Uuid::now_v7());
    assert_eq!(person.get(&unknown).await.code, 404);
    person.is_led_to_the_newest_of(KEYS).await;
    shop.close().await;
}

#[tokio::test]
async fn what_was_set_as_payout_account_is_paged() {
    const ACCOUNT: &str = "/payouts/account";
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let mut till = Till::of_merchant(&shop, &person.merchant_id);
    for index in 0..53 {
        let number = format!("024{index:04}201");
        till.pays_to(Provider::Mtn, &number, "Ama Mensah").await;
    }
    let first = person.get(ACCOUNT).await;
    assert_eq!((first.rows(), first.newer()), (50, None));
    let second = person.get(&first.older().unwrap()).await;
    assert_eq!((second.rows(), second.older()), (3, None));
    second.says("Pay out every day");
    let back = person.get(&second.newer().unwrap()).await;
    assert_eq!((back.rows(), back.newer()), (50, None));
    assert_eq!(back.older(), first.older());
    person.is_led_to_the_newest_of(ACCOUNT).await;
    shop.close().await;
}

impl Person {
    /// From a place that is none.
    async fn is_led_to_the_newest_of(&self, list: &str) {
        let page = self.get(&format!("{list}?after=1")).await;
        assert_eq!(page.code, 400, "{list}");
        page.says("This address is not whole. Start from the newest.");
        page.says(&format!("href=\"{list}\">Newest</a>"));
    }
}
