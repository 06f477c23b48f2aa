//! A payment by a link that is made at the dashboard.

use super::{HOSTILE, Person};
use crate::shop::{NO_LIMITS, Shop};

const NEW: &str = "/payments/new";

#[tokio::test]
async fn a_link_is_made_once_for_each_form_and_leads_to_the_checkout() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let nonce = person.get(NEW).await.field("nonce");
    let sent = [
        ("amount", "1,250.00"),
        ("description", HOSTILE),
        ("nonce", &nonce),
    ];
    let first = person.post(NEW, &sent).await.leads_to("/payments/link/");
    let again = person.post(NEW, &sent).await.leads_to("/payments/link/");
    assert_eq!(again, first);
    let page = person.get(&format!("/payments/link/{first}")).await;
    page.says("GHS 1,250.00");
    page.says("Not paid yet");
    page.says(&format!("{}/pay/{first}", shop.ready.checkout));
    page.says_not("<script>alert");
    let checkout = format!("{}/pay/{first}", shop.ready.checkout);
    let checkout = person.client.get(checkout).send().await.unwrap();
    assert_eq!(checkout.status().as_u16(), 200);

    let other = [("amount", "2"), ("description", ""), ("nonce", &nonce)];
    let other = person.post(NEW, &other).await;
    assert_eq!(other.code, 409);
    other.says("value=\"2\"");
    let (long, whole) = ("x".repeat(501), nonce.as_str());
    for (amount, description, nonce, told) in [
        ("0", "", whole, "value=\"0\""),
        ("25,50", "", whole, "value=\"25,50\""),
        ("5", long.as_str(), whole, "in one line."),
        ("5", "two\nlines", whole, "in one line."),
        ("5", "", "", "Send it again."),
    ] {
        let sent = [
            ("amount", amount),
            ("description", description),
            ("nonce", nonce),
        ];
        let refused = person.post(NEW, &sent).await;
        assert_eq!(refused.code, 400, "{amount} {description}");
        refused.says(told);
    }
    let stranger = Person::sign_up(&shop, "The house next door").await;
    let nowhere = stranger.get(&format!("/payments/link/{first}")).await;
    assert_eq!(nowhere.code, 404);
    shop.close().await;
}
