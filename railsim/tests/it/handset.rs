//! The handsets: a person approves or declines, on the page or with a program.

use reqwest::Response;
use serde_json::{Value, json};

use crate::world::{World, reference};

async fn waiting(world: &World) -> (String, String) {
    let reference = reference(0);
    let wires = world.wires();
    wires
        .request_to_pay(&reference, "233241234100", &world.callback)
        .await
        .unwrap();
    let prompts = wires.prompts().await;
    assert_eq!(prompts.len(), 1);
    let prompt = &prompts[0];
    assert_eq!(prompt["reference"], reference);
    assert_eq!(prompt["phone"], "+233241234100");
    assert_eq!(prompt["network"], "MTN");
    assert_eq!(prompt["amount_minor"], 2550);
    assert_eq!(prompt["currency"], "GHS");
    assert_eq!(prompt["text"], "Order 17");
    (reference, prompt["id"].as_str().unwrap().to_owned())
}

async fn touch(world: &World, id: &str, verb: &str) -> Response {
    world
        .post(&format!("/prompts/{id}/{verb}"))
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_prompt_waits_for_a_person_and_is_approved_once() {
    let world = World::start().await;
    let (reference, id) = waiting(&world).await;
    world.advance(30 * 24 * 3_600).await;
    assert_eq!(world.entry(&reference).await["status"], "pending");

    let approved = touch(&world, &id, "approve").await;
    assert_eq!(approved.status(), 200);
    assert_eq!(
        approved.json::<Value>().await.unwrap()["status"],
        "succeeded"
    );
    assert_eq!(touch(&world, &id, "approve").await.status(), 404);
    assert_eq!(touch(&world, &id, "decline").await.status(), 404);
    world.advance(60).await;
    assert_eq!(world.entry(&reference).await["debits"], 1);
    assert_eq!(world.wires().prompts().await.len(), 0);
    assert_eq!(world.calls().len(), 1);
    assert_eq!(world.calls()[0].json()["status"], "SUCCESSFUL");
}

#[tokio::test]
async fn a_declined_prompt_debits_nothing() {
    let world = World::start().await;
    let (reference, id) = waiting(&world).await;
    assert_eq!(touch(&world, &id, "decline").await.status(), 200);
    assert_eq!(touch(&world, &id, "approve").await.status(), 404);
    world.advance(60).await;
    assert_eq!(world.entry(&reference).await["debits"], 0);
    assert_eq!(
        world.wires().momo_json(&reference).await["reason"],
        "APPROVAL_REJECTED"
    );
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn approving_at_the_same_time_as_the_story_debits_once() {
    let world = World::start().await;
    let wires = world.wires();
    let reference = reference(0);
    wires
        .request_to_pay(&reference, "233241234001", &world.callback)
        .await
        .unwrap();
    let prompts = wires.prompts().await;
    let id = prompts[0]["id"].as_str().unwrap();
    let touches = (0..20).map(|_| touch(&world, id, "approve"));
    tokio::join!(futures::future::join_all(touches), world.advance(5));
    assert_eq!(world.entry(&reference).await["debits"], 1);
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn a_prompt_that_does_not_exist_is_404() {
    let world = World::start().await;
    for id in ["x", "5f1b7d6e-0000-4000-8000-000000000001"] {
        assert_eq!(touch(&world, id, "approve").await.status(), 404);
    }
}

#[tokio::test]
async fn the_page_shows_each_handset_its_prompts_and_the_voucher() {
    let world = World::start().await;
    let wires = world.wires();
    let (_, id) = waiting(&world).await;
    wires.charge("order-2", "0201234002", "vod").await.unwrap();
    wires.charge("order-3", "0271234003", "atl").await.unwrap();
    world.advance(2).await;

    let page = world.get("/").send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
    let page = page.text().await.unwrap();
    for shown in [
        "+233241234100",
        "+233201234002",
        "+233271234003",
        "GHS 25.50",
        "Order 17",
        "123456",
        "*110#",
        "not enough money",
        &format!("/prompts/{id}/approve"),
        &format!("/prompts/{id}/decline"),
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(
        !page.contains("<style") && !page.contains("style="),
        "nothing inline"
    );

    for typed in ["0241234100", "%2B233241234100", "024%20123%204100"] {
        let one = world.get(&format!("/?phone={typed}")).send().await.unwrap();
        let one = one.text().await.unwrap();
        assert!(
            one.contains("GHS 25.50") && one.contains("+233241234100"),
            "{typed}"
        );
        assert!(
            !one.contains("+233201234002") && !one.contains("+233271234003"),
            "{typed}"
        );
    }
    let prompts = world.get("/prompts?phone=0271234003").send().await.unwrap();
    assert_eq!(prompts.json::<Value>().await.unwrap(), json!([]));
    for asset in ["/handset.css", "/handset.js"] {
        assert_eq!(world.get(asset).send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn text_from_a_merchant_is_no_markup_on_the_page() {
    let world = World::start().await;
    let page = world
        .get("/?phone=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    assert!(!page.contains("<script>alert"), "{page}");
}

#[tokio::test]
async fn a_browser_is_sent_back_to_its_handset() {
    let world = World::start().await;
    let (reference, id) = waiting(&world).await;
    let answer = world
        .post(&format!("/prompts/{id}/approve?phone=%2B233241234100"))
        .header("Accept", "text/html,application/xhtml+xml")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 303);
    assert_eq!(answer.headers()["location"], "/?phone=%2B233241234100");
    assert_eq!(world.entry(&reference).await["status"], "succeeded");
    let late = world
        .post(&format!("/prompts/{id}/decline"))
        .header("Accept", "text/html")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (late.status().as_u16(), &late.headers()["location"]),
        (303, &"/".parse().unwrap())
    );
}
