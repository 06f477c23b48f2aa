//! Refunds that a person asks for.

use serde_json::json;

use super::Person;
use crate::shop::{NO_LIMITS, Shop};

#[tokio::test]
async fn a_form_refunds_once_however_often_it_is_sent() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let reference = person.take("0240000001", json!({})).await;
    let address = format!("/payments/{reference}/refund");
    let form = person.get(&address).await;
    form.says("Can be refunded: GHS 25.50");
    form.says("value=\"25.50\"");
    let nonce = form.field("nonce");
    for (amount, nonce, code) in [
        ("", nonce.as_str(), 400),
        ("ten", &nonce, 400),
        ("0.001", &nonce, 400),
        ("5", "", 400),
    ] {
        let refused = person
            .post(&address, &[("amount", amount), ("nonce", nonce)])
            .await;
        assert_eq!(refused.code, code, "{amount}: {}", refused.html);
    }
    // What was refused never pays, and leads to one form, however often it is sent.
    let too_much = [("amount", "25.51"), ("nonce", nonce.as_str())];
    let refused = person.post(&address, &too_much).await;
    assert_eq!(refused.code, 409);
    refused.says("Only GHS 25.50 is left of this payment.");
    let again = person.post(&address, &too_much).await;
    assert_eq!(again.code, 409);
    again.says("This form was refused before.");
    assert_ne!(refused.field("nonce"), nonce);
    assert_eq!(again.field("nonce"), refused.field("nonce"));
    let nonce = refused.field("nonce");
    let fields = [("amount", "5"), ("nonce", nonce.as_str())];
    let first = person.post(&address, &fields).await.leads_to("/refunds/");
    let again = person.post(&address, &fields).await.leads_to("/refunds/");
    assert_eq!(first, again);
    let other = [("amount", "6"), ("nonce", nonce.as_str())];
    let refused = person.post(&address, &other).await;
    assert_eq!(refused.code, 409);
    // Not a fresh form, which could refund a second time.
    refused.says("This form was sent before.");
    refused.says_not("name=\"nonce\"");
    let api = person
        .listed("/api/v1/refunds?limit=100", "refund_id")
        .await;
    assert_eq!(api, std::slice::from_ref(&first));
    assert_eq!(person.walk("/refunds", "/refunds/").await, api);

    let page = person.get(&format!("/payments/{reference}")).await;
    page.says(&first);
    page.says("GHS 20.50");
    let page = person.get(&format!("/refunds/{first}")).await;
    page.says("GHS 5.00");
    page.says(&reference);
    page.says("Refund asked for");
    page.says_not("cannot be shown");
    let activity = person.get("/settings/activity").await;
    activity.says("Asked for a refund");
    activity.says(&reference);
    shop.close().await;
}
