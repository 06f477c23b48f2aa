//! A browser that was logged in before, and what others try at its person's address.

use super::{PASSWORD, Person};
use crate::shop::{NO_LIMITS, Shop};

#[tokio::test]
async fn strangers_keep_nobody_out_of_a_browser_that_was_logged_in() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let email = person.email.clone();
    let right = [("email", email.as_str()), ("password", PASSWORD)];
    let entered = person.post("/login", &right).await;
    let [login, earlier] = entered.cookies().try_into().unwrap();
    assert!(login.starts_with("login="));
    assert!(earlier.starts_with("earlier-login="));
    person.cookie = format!("{login}; {earlier}");
    let left = person.post("/logout", &[]).await;
    assert_eq!(left.cookies(), ["login="]);

    person.cookie = String::new();
    let wrong = [("email", email.as_str()), ("password", "not the right one")];
    for _ in 0..5 {
        assert_eq!(person.post("/login", &wrong).await.code, 401);
    }
    assert_eq!(person.post("/login", &right).await.code, 429);
    person.cookie = earlier;
    let page = person.get("/settings/activity").await;
    assert_eq!(page.code, 303, "it lets nobody in");
    person.post("/login", &right).await.leads_to("/");
    shop.close().await;
}
