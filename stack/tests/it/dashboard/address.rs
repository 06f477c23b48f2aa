//! Changing one's e-mail address.

use uuid::Uuid;

use super::{PASSWORD, Person};
use crate::shop::{NO_LIMITS, Shop};

const FORM: &str = "/settings/security/email";

#[tokio::test]
async fn an_address_is_changed_by_the_link_that_is_mailed_to_it() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let wrong = person.post(FORM, &[("email", "ama")]).await;
    assert_eq!(wrong.code, 400);
    wrong.says("value=\"ama\"");
    let new = format!("{}@shop.example", Uuid::new_v4().simple());
    let asked = person.post(FORM, &[("email", &new)]).await;
    let rest = asked.leads_to("/settings/security?");
    let told = person.get(&format!("/settings/security?{rest}")).await;
    told.says(&format!("{new} is not confirmed yet"));

    let link = person.mailed(&shop, &new, "/change-email/").await;
    let path = link.strip_prefix(&person.base).unwrap();
    assert_eq!(person.get(path).await.code, 200);
    assert_eq!(person.post(path, &[]).await.code, 401, "a link alone");
    let changed = person.post(path, &[("password", PASSWORD)]).await;
    assert_eq!(changed.code, 200);
    changed.says(&new);
    let ended = person.get("/settings/activity").await;
    assert_eq!(ended.code, 303, "every login has ended");
    person.email = new;
    person.log_in().await;
    let proof = [("password", PASSWORD)];
    let ended = person.post("/change-email/1", &proof).await;
    ended.says("This link has ended");
    person
        .get("/settings/activity")
        .await
        .says("Changed their address");
    shop.close().await;
}

/// Whoever has signed up with somebody else's address has no stranger called.
#[tokio::test]
async fn no_receiver_is_tried_before_the_address_is_verified() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up_unverified(&shop, "Ama’s Kitchen").await;
    person.log_in().await;
    let runs = "/settings/integrations/webhooks/conformance";
    let run = format!("{runs}/{}", Uuid::now_v7());
    let url = [("url", "https://somebody.example/hook")];
    for refused in [person.post(runs, &[]).await, person.post(&run, &url).await] {
        assert_eq!(refused.code, 409);
        refused.says("Verify your address first");
    }
    shop.close().await;
}
