//! Payments as a list, as a file, and one by one.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use proto::merchants::CreateKeyRequest;
use serde_json::json;
use stack::demo::Api;

use super::{HOSTILE, Person};
use crate::shop::{NO_LIMITS, Shop};

/// More than a page of a file, which has more than a page of a list.
const MANY: usize = 104;

#[tokio::test]
async fn pages_and_files_list_what_the_api_lists() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let nothing = person.get("/payments").await;
    nothing.says("No payment yet.");
    // Most settle; each tenth is declined.
    let numbers = (0..MANY).map(|index| match index % 10 {
        0 => format!("024{index:04}003"),
        _ => format!("024{index:04}001"),
    });
    let taking = stream::iter(numbers).map(|number| {
        let person = &person;
        async move { person.take(&number, json!({})).await }
    });
    let taken: Vec<String> = taking.buffer_unordered(8).collect().await;
    let api = person
        .listed("/api/v1/charges?limit=100", "reference")
        .await;
    assert_eq!(api.len(), taken.len());
    assert_eq!(person.walk("/payments", "/payments/").await, api);
    person
        .goes_back("/payments?network=MTN", "/payments/")
        .await;

    let file = person.get("/payments.csv").await;
    assert_eq!(file.code, 200);
    assert_eq!(file.headers["content-type"], "text/csv; charset=utf-8");
    let disposition = file.headers["content-disposition"].to_str().unwrap();
    assert!(disposition.starts_with("attachment; filename=\"payments-20"));
    let mut lines = file.html.split_terminator("\r\n");
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("reference,tx_id_display,")
    );
    let lines: Vec<&str> = lines.collect();
    let references = lines.iter().map(|line| line.split(',').next().unwrap());
    assert!(references.eq(api.iter().map(String::as_str)));
    assert!(lines.iter().all(|line| line.contains(",25.50,GHS,")));

    for (ours, theirs) in [
        ("status=SETTLED", "status=SETTLED"),
        ("status=FAILED&network=MTN", "status=FAILED&provider=MTN"),
        ("network=AT", "provider=AT"),
        ("q=0240001001", "phone=0240001001"),
    ] {
        let api = format!("/api/v1/charges?limit=100&{theirs}");
        let api = person.listed(&api, "reference").await;
        let ours = format!("/payments?{ours}");
        assert_eq!(person.walk(&ours, "/payments/").await, api, "{ours}");
        let file = person
            .get(&ours.replace("/payments", "/payments.csv"))
            .await;
        let references = file.html.lines().skip(1);
        let references = references.map(|line| line.split(',').next().unwrap());
        assert!(references.eq(api.iter().map(String::as_str)), "{ours}");
    }
    // Whoever has paid is a customer.
    let settled = person.lists("/payments", "status=SETTLED").await;
    let customers = person.lists("/customers", "").await;
    assert_eq!(customers.len(), settled.len());
    let none = person.get("/payments?network=AT&status=SETTLED").await;
    none.says("Nothing matches these filters:");
    none.says("Clear the filters");
    shop.close().await;
}

#[tokio::test]
async fn no_mix_of_filters_breaks_a_list() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.take("0240000001", json!({})).await;
    let deliveries = "/settings/integrations/webhooks/deliveries";
    let lists = [
        "/payments",
        "/customers",
        "/payouts",
        "/refunds",
        "/balance",
        "/settings/activity",
        deliveries,
    ];
    let values: &[(&str, &[&str])] = &[
        ("reason", &["", "PAYER_DECLINED", "x"]),
        ("amount_from", &["", "25.50", "x"]),
        (
            "status",
            &["", "SETTLED", "COMPLETED", "FAILED", "x", "<script>"],
        ),
        ("network", &["", "MTN", "mtn"]),
        ("from", &["", "0001-01-01", "9999-12-31", "2026-02-30"]),
        ("to", &["", "9999-12-31", "0000-01-01"]),
        ("q", &["", "0240000001", "%00", "'; drop table charges; --"]),
        (
            "after",
            &["", "0", "1.0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e"],
        ),
        ("passed", &["", "1.0190b2c0-f5a9-7c8e-9b1d-2f3a4b5c6d7e"]),
    ];
    let mut queries = vec![String::new()];
    for (name, values) in values {
        queries = queries
            .iter()
            .flat_map(|query| {
                values
                    .iter()
                    .map(move |value| format!("{query}&{name}={value}"))
            })
            .collect();
    }
    // Every 211th of them has each pair of values, or nearly.
    for query in queries.iter().step_by(211) {
        for list in lists {
            for path in [format!("{list}?{query}"), format!("{list}.csv?{query}")] {
                let page = person.get(&path).await;
                assert!(
                    matches!(page.code, 200 | 303 | 400),
                    "{path}: {}",
                    page.code
                );
                page.says_not("<script>");
            }
        }
    }
    let wrong = person.get("/payments?from=2026-02-30&status=FAILED").await;
    assert_eq!(wrong.code, 400);
    wrong.says("Give a day such as 2026-11-24.");
    wrong.says("value=\"2026-02-30\"");
    wrong.says_not("TX-");
    shop.close().await;
}

#[tokio::test]
async fn a_payment_is_shown_with_all_that_has_happened() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let key = CreateKeyRequest {
        merchant_id: person.merchant_id.clone(),
        label: format!("Till {HOSTILE}"),
    };
    let key = shop.merchants().create_key(key).await.unwrap().into_inner();
    person.api = Arc::new(Api::new(&shop.ready.api, &key.api_key).unwrap());
    let more = json!({ "description": HOSTILE, "payer_name": HOSTILE });
    let settled = person.take("0240000001", more).await;
    let page = person.get(&format!("/payments/{settled}")).await;
    assert_eq!(page.code, 200);
    for text in [
        &settled,
        "GHS 25.50",
        "024 ••• 0001",
        "Settled",
        "<ol class=\"timeline\">",
        "API key: Till &#60;script&#62;",
        "Request: ",
        "Reference at the network: ",
        "Sent to the network.",
        "Your balance changed",
        "Can be refunded",
        "&#60;script&#62;alert(1)",
        "{{7*7}}",
    ] {
        page.says(text);
    }
    page.says_not("<script>alert");
    page.says_not("<img src=x");

    let failed = person.take("0240000003", json!({})).await;
    let page = person.get(&format!("/payments/{failed}")).await;
    page.says("Failed");
    page.says_not("Refund this payment");
    let shown = person
        .api
        .get(&format!("/api/v1/payments/charge/{failed}"))
        .await
        .unwrap();
    page.says(
        &shown
            .text("failure_message")
            .unwrap()
            .replace('\'', "&#39;"),
    );

    let found = person
        .get(&format!("/payments?q={}", settled.to_lowercase()))
        .await;
    assert_eq!(found.links("/payments/"), [settled]);
    shop.close().await;
}
