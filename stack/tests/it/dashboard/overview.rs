//! The overview's figures, which are those of the lists that they lead to.

use serde_json::json;

use super::Person;
use crate::shop::{NO_LIMITS, Shop};

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
    let mut settled = 0;
    for day in page.links("/payments?status=SETTLED") {
        let list = format!("/payments?status=SETTLED{}", day.replace("&#38;", "&"));
        settled += person.walk(&list, "/payments/").await.len();
    }
    assert_eq!(settled, 3);
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
