//! The overview's figures, which are those of the lists that they lead to.

use std::time::Duration;

use proto::charges::{ChargeStatus, CreateChargeRequest, GetChargeRequest, Provider};
use serde_json::json;

use super::{Page, Person};
use crate::shop::{NO_LIMITS, Shop};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn figures_lead_to_what_they_count_and_are_nobody_elses() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let other = Person::sign_up(&shop, "Kofi’s Garage").await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let nothing = person.get("/").await;
    nothing.says("Waiting for over 5 minutes");
    nothing.says_not("Collected by day");
    nothing.says("Recommended");
    let mut last = String::new();
    for (number, network) in [
        ("0240000001", "MTN"),
        ("0240010001", "MTN"),
        ("0200000001", "TELECEL"),
        ("0240020003", "MTN"),
    ] {
        last = person.take(number, json!({ "provider": network })).await;
    }
    let failed = format!("/api/v1/payments/charge/{last}");
    let failed = person.api.get(&failed).await.unwrap();
    let why = failed.text("failure_message").unwrap();
    let page = person.get("/").await;
    assert_eq!(page.code, 200);
    for text in [
        "GHS 76.50",
        "Collected by day",
        "Payments that succeeded",
        "Payments that failed, and why",
        &why.replace('\'', "&#39;"),
        "66 %",
        "2 / 3",
        "100 %",
        "<svg viewBox=",
        "role=\"img\" aria-label=\"MTN: ",
        "<caption>Payments that succeeded</caption>",
        "role=\"img\" aria-label=\"Telecel: what was collected",
        "<caption>Collected by network</caption>",
        "Too few payments to tell",
    ] {
        page.says(text);
    }
    for text in [" style=", "<script>", "onclick", "<style"] {
        page.says_not(text);
    }
    // One day, or two around midnight.
    let collected = page.links("/payments?status=SETTLED");
    let (of_networks, days): (Vec<_>, Vec<_>) = collected
        .iter()
        .map(|link| format!("/payments?status=SETTLED{}", link.replace("&#38;", "&")))
        .partition(|link| link.contains("network="));
    let mut settled = 0;
    for list in days {
        settled += person.walk(&list, "/payments/").await.len();
    }
    assert_eq!(settled, 3);
    // The first is of the picture, and of all seven days.
    for (network, count) in [("MTN", 2), ("TELECEL", 1)] {
        let list = of_networks.iter().find(|list| list.contains(network));
        let listed = person.walk(list.unwrap(), "/payments/").await;
        assert_eq!(listed.len(), count, "{network}");
    }
    let failed = page.links("/payments?status=FAILED");
    let [failed] = failed.as_slice() else {
        panic!("{failed:?}");
    };
    assert!(failed.contains("reason="), "{failed}");
    let failed = format!("/payments?status=FAILED{}", failed.replace("&#38;", "&"));
    assert_eq!(person.walk(&failed, "/payments/").await, [last]);

    let theirs = other.get("/").await;
    theirs.says_not("Collected by day");
    theirs.says_not("76.50");
    shop.close().await;
}

/// Each of these merchants charges seven numbers that end like this. Returns once all have ended.
async fn charge(shop: &Shop, merchants: &[String], ending: &str) {
    let mut charges = shop.charges();
    for merchant_id in merchants {
        for number in 0..7 {
            let request = CreateChargeRequest {
                merchant_id: merchant_id.clone(),
                merchant_name: "Demo Shop".to_owned(),
                amount: Some(proto::money::Money {
                    minor_units: 100,
                    currency: "GHS".to_owned(),
                }),
                mobile_number: format!("+23324{number:03}{ending}"),
                provider: Provider::Mtn.into(),
                idempotency_key: format!("g:{}", uuid::Uuid::new_v4()),
                ..CreateChargeRequest::default()
            };
            let made = charges.create_charge(request).await.unwrap().into_inner();
            let asked = GetChargeRequest {
                merchant_id: merchant_id.clone(),
                reference: made.charge.unwrap().reference,
            };
            chassis::testing::until("it has ended", async || {
                let read = shop.charges().get_charge(asked.clone()).await.unwrap();
                let status = read.into_inner().status();
                matches!(status, ChargeStatus::Settled | ChargeStatus::Failed)
            })
            .await;
        }
    }
}

/// The row of a network's weather.
fn weather(page: &Page, network: &str) -> String {
    let (_, table) = page.html.split_once("by everybody’s payments").unwrap();
    let (table, _) = table.split_once("</table>").unwrap();
    let mut rows = table.split("<tr>");
    rows.find(|row| row.contains(network)).unwrap().to_owned()
}

#[tokio::test]
async fn the_networks_weather_is_everybodys_and_tells_of_nobody() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let mut merchants = vec![person.merchant_id.clone()];
    for name in ["Kofi’s Garage", "Esi’s Cloth"] {
        merchants.push(shop.add_merchant(name).await);
    }
    charge(&shop, &merchants, "0001").await;
    shop.advance(MINUTE).await;
    let fine = weather(&person.get("/").await, "MTN");
    for text in ["As usual", "100\u{a0}%", "0\u{a0}%"] {
        assert!(fine.contains(text), "{text}: {fine}");
    }
    let page = person.get("/").await;
    for network in ["Telecel", "AT"] {
        let none = weather(&page, network);
        assert!(none.contains("Too few payments to tell"), "{none}");
        assert!(!none.contains('%'), "{none}");
    }
    // A login ends if it is not used for so long.
    for _ in 0..3 {
        shop.advance(MINUTE * 25).await;
        assert_eq!(person.get("/").await.code, 200);
    }
    let past = weather(&person.get("/").await, "MTN");
    assert!(past.contains("Too few payments to tell"), "{past}");
    charge(&shop, &merchants, "0003").await;
    shop.advance(MINUTE).await;
    let bad = weather(&person.get("/").await, "MTN");
    assert!(bad.contains("Many fail"), "{bad}");
    shop.close().await;
}
