//! What only the dashboard's lists can find, and the smaller lists as files.

use serde_json::json;

use super::{LOOK_AGAIN, Person};
use crate::shop::{NO_LIMITS, Shop, WAIT_MAX};

const DELIVERIES: &str = "/settings/integrations/webhooks/deliveries";

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

impl Person {
    /// The deliveries of a payment, once there are any.
    async fn deliveries_of(&self, reference: &str) -> Vec<String> {
        let address = format!("{DELIVERIES}?q={reference}");
        let waiting = async {
            loop {
                let found = self.walk(&address, &format!("{DELIVERIES}/")).await;
                if !found.is_empty() {
                    return found;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let waited = tokio::time::timeout(WAIT_MAX, waiting).await;
        waited.expect("its event is delivered")
    }
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
