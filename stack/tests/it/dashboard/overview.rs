//! The overview's figures, which are those of the lists that they lead to.

use std::time::Duration;

use chassis::testing::until;
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

/// Asks for a payment that nobody finishes.
async fn begin(person: &Person, number: &str, network: &str, status: &str) -> String {
    let body = json!({ "amount": 25.5, "mobile_number": number, "provider": network });
    let begun = person.api.post("/api/v1/payments/charge", &body).await;
    let begun = begun.unwrap();
    assert_eq!(begun.text("status").unwrap(), status);
    begun.text("reference").unwrap().to_owned()
}

/// Checks that so many payments wait according to the overview, and that these are listed where it
/// leads to.
async fn check_waiting(person: &Person, waiting: &[&str]) {
    let list = "/payments?status=WAITING";
    let (name, count) = ("Waiting for over 5 minutes", waiting.len());
    let page = person.get("/").await;
    page.says(&format!(
        "<a href=\"{list}\">{name}</a> <strong>{count}</strong></li>"
    ));
    assert_eq!(person.walk(list, "/payments/").await, waiting);
}

#[tokio::test]
async fn whatever_has_not_ended_waits_however_old_it_is() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let old = begin(&person, "0240000100", "MTN", "INITIATED").await;
    check_waiting(&person, &[]).await;
    shop.advance(MINUTE * 60 * 24 * 8).await;
    person.log_in().await;
    check_waiting(&person, &[&old]).await;
    let coded = begin(&person, "0200000002", "TELECEL", "OTP_REQUIRED").await;
    check_waiting(&person, &[&old]).await;
    shop.advance(MINUTE * 6).await;
    check_waiting(&person, &[&coded, &old]).await;
    let of_mtn = person.get("/payments?status=WAITING&network=MTN").await;
    assert_eq!(of_mtn.links("/payments/"), [old]);
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
            until("it has ended", async || {
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

const HOUR: Duration = Duration::from_secs(60 * 60);

const WEBHOOKS: &str = "/settings/integrations/webhooks";

const GIVEN_UP: &str = "/settings/integrations/webhooks/deliveries?status=EXHAUSTED";

impl Person {
    /// How many events were given up, as the overview tells.
    async fn given_up_figure(&self) -> usize {
        let overview = self.get("/").await;
        let figure = format!("<a href=\"{GIVEN_UP}\">Events given up</a> <strong>");
        match overview.html.split_once(&figure) {
            Some((_, rest)) => rest.split_once('<').unwrap().0.parse().unwrap(),
            None => 0,
        }
    }

    /// The same, which the webhook's page tells, too, and the list of both holds.
    async fn given_up(&self) -> usize {
        let count = self.given_up_figure().await;
        let listed = self
            .walk(GIVEN_UP, &format!("{WEBHOOKS}/deliveries/"))
            .await;
        assert_eq!(listed.len(), count);
        let endpoint = self.get(WEBHOOKS).await;
        match count {
            0 => endpoint.says_not("Given up"),
            _ => endpoint.says(&format!("<a href=\"{GIVEN_UP}\">{count}<")),
        }
        count
    }
}

#[tokio::test]
async fn what_was_given_up_counts_until_it_is_accepted_however_old_it_is() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut other = Person::sign_up(&shop, "Kofi’s Garage").await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.have_events().await;
    assert_eq!(person.given_up().await, 0);
    for number in ["0240000001", "0240010001", "0240020001"] {
        person.take(number, json!({})).await;
    }
    for times in [36, 30 * 24] {
        // All attempts take 35 hours.
        shop.advance(HOUR * times).await;
        person.log_in().await;
        assert_eq!(person.given_up().await, 3, "{times}");
    }
    other.log_in().await;
    assert_eq!(other.given_up().await, 0);

    let endpoint = [
        ("url", shop.receiver.url.as_str()),
        ("events", "payment.success"),
    ];
    let form = format!("{WEBHOOKS}/endpoint");
    person.post(&form, &endpoint).await.leads_to(WEBHOOKS);
    let deliveries = format!("{WEBHOOKS}/deliveries/");
    let one = person.walk(GIVEN_UP, &deliveries).await.remove(0);
    let delivery = format!("{deliveries}{one}");
    let again = person.post(&format!("{delivery}/redeliver"), &[]).await;
    again.leads_to(&delivery);
    until("one was accepted", async || {
        person.given_up_figure().await == 2
    })
    .await;
    assert_eq!(person.given_up().await, 2);
    let replay = format!("{WEBHOOKS}/replay");
    let nonce = uuid::Uuid::new_v4().to_string();
    let everything = [
        ("step", "start"),
        ("since", "2020-01-01T00:00"),
        ("nonce", &nonce),
    ];
    person.post(&replay, &everything).await.leads_to(&replay);
    until("all were accepted", async || {
        person.given_up_figure().await == 0
    })
    .await;
    assert_eq!(person.given_up().await, 0);
    shop.close().await;
}
