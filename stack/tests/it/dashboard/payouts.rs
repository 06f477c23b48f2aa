//! Payouts and the balance.

use std::time::{SystemTime, UNIX_EPOCH};

use chassis::testing::until;
use proto::charges::{
    DestinationType, DisbursementStatus, Provider, SetPayoutAccountRequest,
    SetPayoutSwitchesRequest, disbursement_operations_client::DisbursementOperationsClient,
};
use ring::hmac;
use serde_json::json;

use super::{Page, Person};
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
    till.until(&payout, DisbursementStatus::Completed).await;
    let page = person.get(&format!("/payouts/{}", payout.payout_id)).await;
    for text in [
        "Payout asked for",
        "Your balance changed",
        "Sent to the network. It accepted the request.",
        "Reference at the network: ",
        "Arrived",
    ] {
        page.says(text);
    }
    page.says_not("cannot be shown");
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

impl Person {
    async fn set_up_authenticator(&self) {
        let begun = self.post("/settings/security/totp", &[]).await;
        let (_, key) = begun.html.split_once("<code>").unwrap();
        let code = code_of(key.split_once('<').unwrap().0);
        let sent = [("code", code.as_str()), ("then", "/payouts/new")];
        let confirmed = self.post("/settings/security/totp/confirm", &sent).await;
        assert_eq!(confirmed.code, 200, "{}", confirmed.html);
        confirmed.says("href=\"/payouts/new\"");
    }

    /// Fills the form of the payout account in. Returns the page that asks whose it is.
    async fn types_account(&self, number: &str, name: &str) -> Page {
        let updated_at = self.get("/payouts/account/set").await.field("updated_at");
        let typed = account(number, name);
        let sent = [&typed[..], &[("updated_at", updated_at.as_str())]].concat();
        self.post("/payouts/account/set", &sent).await
    }

    /// Sends the page that asks whose the account is.
    async fn confirms_account(&self, asked: &Page) -> Page {
        let names = [
            "step",
            "provider",
            "account",
            "holder_name",
            "updated_at",
            "confirmed_name",
        ];
        let values = names.map(|name| (name, asked.field(name)));
        let sent = values
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        self.post("/payouts/account/set", &sent).await
    }

    async fn sets_account(&self, number: &str) {
        let asked = self.types_account(number, "Ama Mensah").await;
        let set = self.confirms_account(&asked).await;
        set.leads_to("/payouts/account?done=set");
    }

    /// Asks for a payout. Returns the page that says what will happen.
    async fn asks_for(&self, amount: &str) -> Page {
        self.post("/payouts/new", &[("amount", amount)]).await
    }

    /// Sends the page that says what will happen.
    async fn pays(&self, asked: &Page) -> Page {
        let names = ["step", "amount", "terms", "nonce"];
        let values = names.map(|name| (name, asked.field(name)));
        let sent = values
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        self.post("/payouts/new", &sent).await
    }
}

fn account<'a>(number: &'a str, name: &'a str) -> [(&'static str, &'a str); 3] {
    [
        ("provider", "MTN"),
        ("account", number),
        ("holder_name", name),
    ]
}

#[tokio::test]
async fn a_merchant_sets_its_account_and_gets_one_payout_for_each_form() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.set_up_authenticator().await;
    person
        .get("/payouts/new")
        .await
        .says("Say first where the money goes.");
    person.take("0240000001", json!({})).await;

    let asked = person.types_account("024 000 0201", "Mensah Ama").await;
    asked.says("Is this you?");
    asked.says("The network says whose wallet MTN 024 000 0201 is: Ama Mensah");
    person
        .get("/payouts/account")
        .await
        .says("No payout account is set yet.");
    let set = person.confirms_account(&asked).await;
    set.leads_to("/payouts/account?done=set");
    let again = person.confirms_account(&asked).await;
    again.leads_to("/payouts/account?done=set");
    let page = person.get("/payouts/account").await;
    for text in ["Name at the network", "024 ••• 0201", "Mensah Ama", "You"] {
        page.says(text);
    }
    page.says_not("Payouts wait for");

    person
        .get("/payouts/new")
        .await
        .says("Available: GHS 25.50");
    let refused = person.asks_for("25.51").await;
    assert_eq!(refused.code, 409, "{}", refused.html);
    refused.says("is available");
    refused.says("value=\"25.51\"");
    assert_eq!(person.asks_for("25,5").await.code, 400);
    let asked = person.asks_for("10").await;
    for text in [
        "Pay out?",
        "Amount: GHS 10.00",
        "024 ••• 0201",
        "Left on your balance: GHS 15.50",
    ] {
        asked.says(text);
    }
    let (first, again) = tokio::join!(person.pays(&asked), person.pays(&asked));
    let third = person.pays(&asked).await.leads_to("/payouts/");
    for other in [first, again].into_iter().filter(|page| page.code == 303) {
        assert_eq!(other.leads_to("/payouts/"), third);
    }
    let listed = person
        .listed("/api/v1/payouts?limit=100", "payout_id")
        .await;
    assert_eq!(listed, std::slice::from_ref(&third));
    let path = format!("/payouts/{third}");
    until("the payout has arrived", async || {
        person
            .get(&path)
            .await
            .html
            .contains("The network has paid it.")
    })
    .await;
    person.get("/balance").await.says("GHS 15.50");
    let activity = person.get("/settings/activity").await;
    for text in [
        "Asked for a payout",
        "Asked to change the payout account",
        "MTN 024 ••• 0201",
    ] {
        activity.says(text);
    }
    shop.close().await;
}

#[tokio::test]
async fn what_is_wrong_with_an_account_is_told_and_nothing_is_set() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    for path in ["/payouts/account/set", "/payouts/account/daily"] {
        let refused = person.post(path, &[("daily", "on")]).await;
        assert_eq!(refused.code, 409, "{path}");
        refused.says("Set up an authenticator");
    }
    person.set_up_authenticator().await;
    for (number, name, told) in [
        ("024", "Ama Mensah", "Give a Ghana mobile number"),
        ("0240000201", "", "Name of its holder must"),
        (
            "0240000204",
            "Ama Mensah",
            "Number is not known to the network",
        ),
    ] {
        let refused = person.types_account(number, name).await;
        assert_eq!(refused.code, 400, "{number} {name}");
        refused.says(told);
        refused.says(&format!("value=\"{number}\""));
    }
    let other = person.types_account("0240000212", "Ama Mensah").await;
    other.says("You typed Ama Mensah, but the network says");
    other.says("Kofi Boateng");
    let claimed = [
        &account("0240000212", "Ama Mensah")[..],
        &[("step", "confirm"), ("confirmed_name", "Ama Mensah")],
    ];
    let refused = person.post("/payouts/account/set", &claimed.concat()).await;
    assert_eq!(refused.code, 409);
    refused.says("Look at it once more.");
    person
        .get("/payouts/account")
        .await
        .says("No payout account is set yet.");

    let stranger = Person::sign_up(&shop, "The house next door").await;
    person.sets_account("0240000201").await;
    let page = stranger.get("/payouts/account").await;
    page.says("No payout account is set yet.");
    page.says_not("024 •••");
    stranger.set_up_authenticator().await;
    for _ in 0..10 {
        stranger.types_account("0240000201", "Ama Mensah").await;
    }
    let many = stranger.types_account("0240000201", "Ama Mensah").await;
    assert_eq!(many.code, 429);
    many.says("You have asked about many numbers.");
    shop.close().await;
}

#[tokio::test]
async fn what_was_changed_meanwhile_is_neither_overwritten_nor_paid_to() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.set_up_authenticator().await;
    let daily = person
        .post("/payouts/account/daily", &[("daily", "on")])
        .await;
    daily.leads_to("/payouts/account");
    person.sets_account("0240000201").await;
    person.take("0240000001", json!({})).await;
    let asked = person.asks_for("10").await;
    let sent = [
        ("step", "pay"),
        ("amount", "10"),
        ("terms", "x"),
        ("nonce", "x"),
    ];
    let whole = person.post("/payouts/new", &sent).await;
    assert_eq!(whole.code, 409);
    whole.says("not whole");

    let (one, other) = (
        person.types_account("0240000208", "Ama Mensah").await,
        person.types_account("0240000209", "Ama Mensah").await,
    );
    person
        .confirms_account(&one)
        .await
        .leads_to("/payouts/account?done=set");
    let stale = person.confirms_account(&other).await;
    assert_eq!(stale.code, 409);
    stale.says("changed meanwhile");
    let page = person.get("/payouts/account").await;
    for text in ["024 ••• 0208", "024 ••• 0201", "Payouts wait for"] {
        page.says(text);
    }
    page.says_not("024 ••• 0209");
    let held = person.pays(&asked).await;
    assert_eq!(held.code, 409);
    held.says("Payouts wait for");
    let daily = person
        .post("/payouts/account/daily", &[("daily", "on")])
        .await;
    daily.leads_to("/payouts/account?done=on");
    person
        .get("/payouts/account")
        .await
        .says("Stop the daily settlement");
    assert!(
        person
            .listed("/api/v1/payouts?limit=100", "payout_id")
            .await
            .is_empty()
    );

    shop.close().await;
}

#[tokio::test]
async fn a_bank_account_is_shown_and_paid_to_but_not_set_here() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.set_up_authenticator().await;
    for path in ["/payouts/account", "/payouts/account/set"] {
        person.get(path).await.says("To be paid to a bank account,");
    }
    person.take("0240000001", json!({})).await;
    let mut treasury = DisbursementOperationsClient::new(shop.charges_operators());
    let account = SetPayoutAccountRequest {
        merchant_id: person.merchant_id.clone(),
        r#type: DestinationType::Bank.into(),
        bank_code: "040100".to_owned(),
        account: "1234567890123".to_owned(),
        holder_name: "Ama Mensah".to_owned(),
        confirm_holder_name: true,
        ..SetPayoutAccountRequest::default()
    };
    treasury.set_payout_account(account).await.unwrap();
    let switches = SetPayoutSwitchesRequest {
        merchant_id: person.merchant_id.clone(),
        payouts_on_request: Some(true),
        daily_settlement: None,
    };
    treasury.set_payout_switches(switches).await.unwrap();
    let page = person.get("/payouts/account").await;
    page.says("Bank 040100");
    page.says_not("1234567890123");
    person
        .asks_for("10")
        .await
        .says("Bank 040100 ••• 0123, Ama Mensah");
    let form = person.get("/payouts/account/set").await;
    form.says("Your money goes to a bank account now.");
    shop.close().await;
}

#[tokio::test]
async fn a_form_whose_answer_was_lost_finds_its_payout_whatever_has_changed_since() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.set_up_authenticator().await;
    person.sets_account("0240000201").await;
    person.take("0240000001", json!({})).await;
    let nonce = person.get("/payouts/new").await.field("nonce");
    let first = [("amount", "10"), ("nonce", nonce.as_str())];
    let asked = person.post("/payouts/new", &first).await;
    let payout = person.pays(&asked).await.leads_to("/payouts/");
    // Nor does it pay twice if somebody goes back to the first step and takes the second again.
    let asked_again = person.post("/payouts/new", &first).await;
    let again = person.pays(&asked_again).await;
    assert_eq!(again.leads_to("/payouts/"), payout);
    person.sets_account("0240000208").await;
    let again = person.pays(&asked).await;
    assert_eq!(again.leads_to("/payouts/"), payout);
    // With another amount in it, it is told as sent, and no fresh form could pay a second time.
    let (terms, nonce) = (asked.field("terms"), asked.field("nonce"));
    let changed = [
        ("step", "pay"),
        ("amount", "9"),
        ("terms", &terms),
        ("nonce", &nonce),
    ];
    let refused = person.post("/payouts/new", &changed).await;
    assert_eq!(refused.code, 409);
    refused.says("This form was sent before.");
    refused.says_not("name=\"nonce\"");
    // Another form meets the change.
    let other = person.asks_for("5").await;
    assert_eq!(other.code, 409);
    other.says("Payouts wait for");
    shop.close().await;
}

#[tokio::test]
async fn a_payout_is_not_made_to_an_account_that_nobody_confirmed() {
    let flags = [NO_LIMITS, &[("charges-svc", "--payout-account-hold=0s")]].concat();
    let shop = Shop::open_with(&flags).await;
    let person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.set_up_authenticator().await;
    person.sets_account("0240000201").await;
    person.take("0240000001", json!({})).await;
    let asked = person.asks_for("10").await;
    person.sets_account("0240000208").await;
    let changed = person.pays(&asked).await;
    assert_eq!(changed.code, 409);
    changed.says("The account or the fee has changed meanwhile.");
    changed.says("Amount: GHS 10.00");
    changed.says("024 ••• 0208");
    assert!(
        person
            .listed("/api/v1/payouts?limit=100", "payout_id")
            .await
            .is_empty()
    );
    // The form that was refused never pays, and whatever follows it pays once, also if somebody
    // goes back to it.
    let payout = person.pays(&changed).await.leads_to("/payouts/");
    let again = person.pays(&asked).await;
    assert_eq!(again.code, 409);
    let again = person.pays(&again).await;
    assert_eq!(again.leads_to("/payouts/"), payout);
    let listed = person.listed("/api/v1/payouts?limit=100", "payout_id");
    assert_eq!(listed.await, std::slice::from_ref(&payout));
    person
        .get(&format!("/payouts/{payout}"))
        .await
        .says("024 ••• 0208");
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
