//! The page while the payer has the prompt: at first, and when it takes a while.

use std::time::Duration;

use serde_json::Value;

use super::{Payer, order};
use crate::shop::Shop;

/// The number of a payer who answers the prompt by hand.
const BY_HAND: &str = "0240000100";

/// Approves or declines the only waiting prompt.
async fn answer_prompt(shop: &Shop, payer: &Payer, answer: &str) {
    let prompts = format!("{}/prompts", shop.ready.handset);
    let waiting = payer.client.get(&prompts).send().await.unwrap();
    let waiting: Value = waiting.json().await.unwrap();
    assert_eq!(waiting.as_array().unwrap().len(), 1, "{waiting}");
    let id = waiting[0]["id"].as_str().unwrap();
    let url = format!("{prompts}/{id}/{answer}");
    let answered = payer.client.post(url).send().await.unwrap();
    assert!(answered.status().is_success());
}

#[tokio::test]
async fn a_prompt_that_waits_long_says_that_nothing_need_be_done() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("MTN", BY_HAND).await;
    assert_eq!(page.state(), "prompt");
    shop.advance(Duration::from_secs(121)).await;
    let page = payer.open().await;
    assert_eq!(page.state(), "slow");
    page.says("you do not need to pay again");
    // A reload does not restart the counter.
    let counted = page.between("data-counter=\"", "\"").unwrap();
    assert!(counted.parse::<u64>().unwrap() > 120, "{counted}");
    page.says("data-copy=\"TX-");
    answer_prompt(&shop, &payer, "approve").await;
    payer.wait_for("success").await;
    shop.close().await;
}

#[tokio::test]
async fn whoever_stops_waiting_is_told_that_the_prompt_is_still_there() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    // There is no payment to leave yet.
    assert_eq!(payer.get("?leave=1").await.state(), "form");
    let page = payer.pay_at_once("MTN", BY_HAND).await;
    page.says(&format!("href=\"/pay/{}?leave=1\"", payer.session_id));
    page.says("Cancel waiting");
    let left = payer.get("?leave=1").await;
    // It keeps polling, so that it ends when the payment does.
    assert_eq!((left.code, left.state()), (200, "prompt"));
    left.says("data-poll=");
    left.says("cannot be called back");
    left.says("you pay GHS 25.50");
    left.says(&format!(
        "href=\"/pay/{}\">Back to the payment",
        payer.session_id
    ));
    left.says("status=cancelled#top");
    left.says_not("name=\"attempt\"");
    let twi = payer.get("?lang=tw&leave=1").await;
    twi.says("<html lang=\"tw\">");
    twi.says(&format!("/pay/{}?lang=en&#38;leave=1", payer.session_id));
    // No other charge is made while the rail has this one.
    let attempt = "5a6b7c8d00004000800000000000000a";
    let fields = [
        ("attempt", attempt),
        ("network", "MTN"),
        ("mobile_number", "0240000001"),
    ];
    payer.check_sees_page(&payer.post("", &fields).await);
    assert!(shop.book("0240000001").await.is_empty());
    assert_eq!(payer.open().await.state(), "prompt");
    answer_prompt(&shop, &payer, "decline").await;
    payer.wait_for("failed").await;
    assert_eq!(payer.get("?leave=1").await.state(), "failed");
    payer.check_sees_page(&payer.post("", &fields).await);
    payer.wait_for("success").await;
    assert_eq!(payer.get("?leave=1").await.state(), "success");
    shop.close().await;
}

#[tokio::test]
async fn an_operator_changes_what_helps_when_no_prompt_shows_up() {
    let rescue =
        r#"--checkout-rescue={"MTN": {"en": "Dial *999# <b>now</b>.", "tw": "Frɛ *998#."}}"#;
    let shop = Shop::open_with(&[("gateway", rescue)]).await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("MTN", BY_HAND).await;
    page.says("Did not get a prompt?");
    page.says("data-open-after=\"20\"");
    page.says("Dial *999# &#60;b&#62;now&#60;/b&#62;.");
    page.says_not("*170#");
    payer.get("?lang=tw").await.says("Frɛ *998#.");
    answer_prompt(&shop, &payer, "approve").await;
    payer.wait_for("success").await;
    // The other networks keep our own text.
    let other = Payer::of(&shop, order()).await;
    let page = other.pay_at_once("AT", "0270000100").await;
    page.says("AT Money, dial *110#");
    answer_prompt(&shop, &other, "decline").await;
    other.wait_for("failed").await;
    shop.close().await;
}
