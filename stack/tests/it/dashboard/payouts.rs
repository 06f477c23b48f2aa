//! Payouts and the balance.

use std::time::{SystemTime, UNIX_EPOCH};

use proto::charges::Provider;
use ring::hmac;
use serde_json::json;

use super::Person;
use crate::{
    money_out::Till,
    shop::{NO_LIMITS, Shop},
};

#[tokio::test]
async fn payouts_are_shown_and_nobody_without_an_authenticator_asks_for_one() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.get("/payouts").await.says("No payout yet.");
    person
        .get("/payouts/account")
        .await
        .says("No payout account is set yet.");
    let refused = person.get("/payouts/new").await;
    assert_eq!(refused.code, 409);
    refused.says("Set up an authenticator");
    let sent = [
        ("amount", "1"),
        ("nonce", "7c0e4d3e-5a0b-4a4f-9d53-0a1b2c3d4e5f"),
    ];
    assert_eq!(person.post("/payouts/new", &sent).await.code, 409);

    person.take("0240000001", json!({})).await;
    person.get("/balance").await.says("GHS 25.50");
    let mut till = Till::of_merchant(&shop, &person.merchant_id);
    till.pays_to(Provider::Mtn, "0240000201", "Ama Mensah")
        .await;
    let account = person.get("/payouts/account").await;
    for text in ["Ama Mensah", "024 ••• 0201", "Payouts on request"] {
        account.says(text);
    }
    let payout = till.pay_out(1_000, "one").await;
    assert_eq!(person.walk("/payouts", "/payouts/PO-").await.len(), 1);
    let page = person.get(&format!("/payouts/{}", payout.payout_id)).await;
    page.says("GHS 10.00");
    page.says("024 ••• 0201");
    let file = person.get("/payouts.csv").await;
    assert!(file.html.contains(&payout.payout_id));
    shop.close().await;
}

/// What an authenticator with this key shows now (RFC 6238).
#[expect(clippy::disallowed_methods, reason = "the clock has not been moved")]
fn code_of(key: &str) -> String {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: String = key
        .chars()
        .map(|letter| format!("{:05b}", alphabet.find(letter).unwrap()))
        .collect();
    let bytes = bits.as_bytes().chunks_exact(8);
    let bytes: Vec<u8> = bytes
        .map(|byte| u8::from_str_radix(str::from_utf8(byte).unwrap(), 2).unwrap())
        .collect();
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    let tag = hmac::sign(&key, &(seconds / 30).to_be_bytes());
    let at = usize::from(tag.as_ref()[19] & 15);
    let number = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap());
    format!("{:06}", (number & 0x7fff_ffff) % 1_000_000)
}

#[tokio::test]
async fn a_person_with_an_authenticator_asks_for_one_payout_per_form() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let begun = person.post("/settings/security/totp", &[]).await;
    let (_, key) = begun.html.split_once("<code>").unwrap();
    let code = code_of(key.split_once('<').unwrap().0);
    let confirmed = person
        .post("/settings/security/totp/confirm", &[("code", &code)])
        .await;
    assert_eq!(confirmed.code, 200, "{}", confirmed.html);
    let refused = person.get("/payouts/new").await;
    refused.says("not switched on");

    person.take("0240000001", json!({})).await;
    let mut till = Till::of_merchant(&shop, &person.merchant_id);
    till.pays_to(Provider::Mtn, "0240000201", "Ama Mensah")
        .await;
    let form = person.get("/payouts/new").await;
    for text in ["Available: GHS 25.50", "024 ••• 0201, Ama Mensah"] {
        form.says(text);
    }
    let nonce = form.field("nonce");
    let sent = [("amount", "26"), ("nonce", nonce.as_str())];
    let refused = person.post("/payouts/new", &sent).await;
    assert_eq!(refused.code, 409, "{}", refused.html);
    refused.says("is available");
    let sent = [("amount", "10"), ("nonce", nonce.as_str())];
    let first = person
        .post("/payouts/new", &sent)
        .await
        .leads_to("/payouts/");
    let again = person
        .post("/payouts/new", &sent)
        .await
        .leads_to("/payouts/");
    assert_eq!(first, again);
    assert_eq!(
        person
            .listed("/api/v1/payouts?limit=100", "payout_id")
            .await,
        [first]
    );
    person
        .get("/settings/activity")
        .await
        .says("Asked for a payout");
    shop.close().await;
}

#[tokio::test]
async fn a_day_without_a_statement_is_told_beside_its_field() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let wrong = person.get("/balance/statement.csv?day=yesterday").await;
    assert_eq!(wrong.code, 400);
    wrong.says("Give a day such as 2026-11-24.");
    wrong.says("value=\"yesterday\"");
    wrong.says("Available");
    let early = person.get("/balance/statement.csv?day=2020-01-01").await;
    assert_eq!(early.code, 404);
    shop.close().await;
}
