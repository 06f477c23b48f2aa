//! Sessions in a currency other than cedis.

use serde_json::json;

use super::{Payer, paid_session};
use crate::shop::Shop;

#[tokio::test]
async fn a_session_in_dollars_is_debited_in_cedis_at_the_quote() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, json!({ "amount": 10, "currency": "USD" })).await;
    let page = payer.open().await;
    page.says("USD 10.00");
    page.says("Pay GHS 125.00");
    page.says("12.50");
    assert_eq!(page.field("quote"), "12500@12.50");
    let attempt = page.field("attempt");
    let old_quote = [
        ("attempt", attempt.as_str()),
        ("quote", "11000@11.00"),
        ("network", "MTN"),
        ("mobile_number", "0240000001"),
    ];
    let again = payer.post("", &old_quote).await;
    assert_eq!((again.code, again.state()), (409, "form"));
    again.says("rate has changed");
    again.says("value=\"0240000001\"");
    assert!(shop.book("0240000001").await.is_empty());
    payer.check_sees_page(&payer.pay(&again, "MTN", "0240000001").await);
    let page = payer.wait_for("success").await;
    page.says("GHS 125.00");
    let session = paid_session(&shop, &payer).await;
    assert_eq!(
        (&session["amount"], &session["currency"]),
        (&json!(10.0), &json!("USD"))
    );
    assert_eq!(session["transaction"]["settled_amount"], json!(125.0));
    let display = session["transaction"]["tx_id_display"].as_str().unwrap();
    let event = shop.wait_for_event(&format!("{display}-x")).await;
    let data = &event["data"];
    assert_eq!(
        (&data["amount"], &data["currency"]),
        (&json!(10.0), &json!("USD"))
    );
    assert_eq!(data["settled_amount"], json!(125.0));
    assert_eq!(data["settled_currency"], "GHS");
    assert_eq!(shop.balance().await, 12_500);
    let euros = Payer::of(&shop, json!({ "amount": 10, "currency": "EUR" })).await;
    let page = euros.open().await;
    assert_eq!(page.state(), "unavailable");
    page.says("EUR 10.00 cannot be paid with mobile money yet");
    page.says("no exchange rate");
    let made = json!({ "amount": 10, "currency": "EUR", "customer_phone": "0240000001" });
    let made = shop.api.post("/api/v1/payments/initiate", &made).await;
    let warnings = made.unwrap().body["warnings"].clone();
    let codes: Vec<_> = warnings.as_array().unwrap().iter().collect();
    let codes: Vec<_> = codes.iter().map(|warning| &warning["code"]).collect();
    assert_eq!(codes, ["CUSTOMER_EMAIL_OMITTED", "CURRENCY_WITHOUT_RATE"]);
    shop.close().await;
}
