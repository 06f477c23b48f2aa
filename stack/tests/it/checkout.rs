//! The hosted checkout as a browser without scripts uses it: pages, forms and redirects over HTTP.

use std::time::Duration;

use futures::future::join_all;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::shop::{Shop, WAIT_MAX};

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Bytes of a page with its style sheet and script (pages.md: "Low-bandwidth budget").
const FIRST_VIEW_MAX: usize = 30 * 1024;

/// A payer in front of one session's page.
struct Payer {
    client: reqwest::Client,
    base: String,
    session_id: String,
}

/// What the payer sees.
struct Page {
    code: u16,
    html: String,
    headers: reqwest::header::HeaderMap,
}

impl Payer {
    /// Of a session that the shop creates.
    async fn of(shop: &Shop, session: Value) -> Self {
        let created = shop.api.post("/api/v1/payments/initiate", &session).await;
        let created = created.unwrap();
        created.expect(201).unwrap();
        let session_id = created.text("session_id").unwrap().to_owned();
        let url = created.text("payment_url").unwrap();
        assert_eq!(url, format!("{}/pay/{session_id}", shop.ready.checkout));
        Self::at(shop, &session_id)
    }

    fn at(shop: &Shop, session_id: &str) -> Self {
        Self {
            client: chassis::http::client(Duration::from_secs(60)).unwrap(),
            base: shop.ready.checkout.clone(),
            session_id: session_id.to_owned(),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/pay/{}{path}", self.base, self.session_id)
    }

    async fn get(&self, path: &str) -> Page {
        Page::of(self.client.get(self.url(path)).send().await.unwrap()).await
    }

    async fn open(&self) -> Page {
        self.get("").await
    }

    fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(fields);
        self.client
            .post(self.url(path))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin")
            .body(body.finish())
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        Page::of(self.form(path, fields).send().await.unwrap()).await
    }

    /// Fills in and sends the form of `page`.
    async fn pay(&self, page: &Page, network: &str, number: &str) -> Page {
        let attempt = page.field("attempt");
        let quote = page.field("quote");
        let fields = [
            ("attempt", attempt.as_str()),
            ("quote", &quote),
            ("network", network),
            ("number", "other"),
            ("mobile_number", number),
        ];
        self.post("", &fields).await
    }

    /// Opens the page, pays, and follows the redirect to the page that tells what came of it.
    async fn pay_at_once(&self, network: &str, number: &str) -> Page {
        let page = self.open().await;
        assert_eq!(page.state(), "form", "{}", page.html);
        let sent = self.pay(&page, network, number).await;
        self.check_sees_page(&sent);
        self.open().await
    }

    /// A form is answered by the page's own address.
    #[track_caller]
    fn check_sees_page(&self, sent: &Page) {
        assert_eq!(sent.code, 303, "{}", sent.html);
        let location = sent.headers["location"].to_str().unwrap();
        assert_eq!(location, format!("/pay/{}", self.session_id));
    }

    /// Loads the page until it shows the state.
    async fn wait_for(&self, state: &str) -> Page {
        let waiting = async {
            loop {
                let page = self.open().await;
                if page.state() == state {
                    return page;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let waited = tokio::time::timeout(WAIT_MAX, waiting).await;
        waited.unwrap_or_else(|_| panic!("the page never shows {state}"))
    }
}

impl Page {
    async fn of(response: Response) -> Self {
        Self {
            code: response.status().as_u16(),
            headers: response.headers().clone(),
            html: response.text().await.unwrap(),
        }
    }

    fn between<'a>(&'a self, before: &str, after: &str) -> Option<&'a str> {
        let (_, rest) = self.html.split_once(before)?;
        Some(rest.split_once(after)?.0)
    }

    fn state(&self) -> &str {
        self.between("data-state=\"", "\"").unwrap_or("none")
    }

    /// The value of a hidden field; empty where there is none.
    fn field(&self, name: &str) -> String {
        let before = format!("name=\"{name}\" value=\"");
        self.between(&before, "\"").unwrap_or_default().to_owned()
    }

    #[track_caller]
    fn says(&self, text: &str) {
        let html = self.html.replace('\u{a0}', " ");
        assert!(html.contains(text), "{text:?} is not on the page:\n{html}");
    }

    #[track_caller]
    fn says_not(&self, text: &str) {
        assert!(!self.html.contains(text), "{text:?} is on the page");
    }
}

fn order() -> Value {
    json!({
        "amount": 25.5,
        "currency": "GHS",
        "description": "Order 17",
        "redirect_url": "https://shop.example/thanks?order=17#top",
    })
}

/// The session once it has heard of its payment, which the page tells from the charge.
async fn paid_session(shop: &Shop, payer: &Payer) -> Value {
    let path = format!("/api/v1/payments/{}/status", payer.session_id);
    let is_paid = |session: &Value| session["status"] == "COMPLETED";
    let session = shop.api.poll(&path, WAIT_MAX, is_paid).await;
    session.unwrap().body
}

#[tokio::test]
async fn a_payer_pays_by_prompt_and_everybody_hears_of_it_once() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    assert_eq!((page.code, page.state()), (200, "form"));
    for text in [
        "GHS 25.50",
        "Demo Shop",
        "Order 17",
        "Pay GHS 25.50",
        "MTN MoMo",
    ] {
        page.says(text);
    }
    page.says_not(" checked");
    page.says("https://shop.example/thanks?order=17&#38;session_id=");
    page.says("status=cancelled#top");
    let sent = payer.pay(&page, "MTN", "024 000 0001").await;
    payer.check_sees_page(&sent);
    let page = payer.wait_for("success").await;
    page.says("GHS 25.50");
    page.says("024 ••• 0001");
    page.says("Return to shop.example");
    page.says("status=completed#top");
    page.says_not("0240000001");
    let session = paid_session(&shop, &payer).await;
    assert_eq!(session["status"], "COMPLETED");
    assert_eq!(session["transaction"]["status"], "SETTLED");
    let display = session["transaction"]["tx_id_display"].as_str().unwrap();
    let event = shop.wait_for_event(&format!("{display}-x")).await;
    assert_eq!(event["type"], "payment.success");
    assert_eq!(event["data"]["session_id"], json!(payer.session_id));
    assert_eq!(event["data"]["amount"], json!(25.5));
    assert_eq!(event["data"]["currency"], "GHS");
    assert_eq!(shop.balance().await, 2_550);
    assert_eq!(shop.book("0240000001").await[0]["debits"], 1);
    shop.close().await;
}

#[tokio::test]
async fn a_wrong_code_is_told_and_the_right_one_pays() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("TELECEL", "0200000002").await;
    assert_eq!(page.state(), "otp");
    page.says("020 ••• 0002");
    page.says("*110#");
    page.says_not("Tries left");
    let reference = page.field("reference");
    let submit = |otp: &'static str| {
        let reference = reference.clone();
        let payer = &payer;
        async move {
            payer
                .post("/code", &[("reference", &reference), ("otp", otp)])
                .await
        }
    };
    let empty = submit("").await;
    assert_eq!((empty.code, empty.state()), (422, "otp"));
    empty.says("<title>Error:");
    payer.check_sees_page(&submit("000000").await);
    let page = payer.open().await;
    assert_eq!(page.state(), "otp");
    page.says("Tries left: 2");
    page.says("<title>Error:");
    payer.check_sees_page(&submit("123456").await);
    payer.wait_for("success").await;
    payer.check_sees_page(&submit("123456").await);
    assert_eq!(shop.book("0200000002").await[0]["debits"], 1);
    shop.close().await;
}

#[tokio::test]
async fn after_a_refusal_the_payer_tries_again_and_pays() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let first = payer.open().await;
    payer.check_sees_page(&payer.pay(&first, "MTN", "0240000004").await);
    let page = payer.wait_for("failed").await;
    page.says("declined on the phone");
    page.says("You were not charged");
    page.says("status=failed#top");
    page.says(&format!("/pay/{}?again=1", payer.session_id));
    // The old form again, as the back button may send it: still the first charge.
    payer.check_sees_page(&payer.pay(&first, "MTN", "0240000004").await);
    assert_eq!(payer.open().await.state(), "failed");
    assert_eq!(shop.book("0240000004").await.len(), 1);
    let form = payer.get("?again=1").await;
    assert_eq!(form.state(), "form");
    payer.check_sees_page(&payer.pay(&form, "AT", "0270000001").await);
    payer.wait_for("success").await;
    assert_eq!(shop.balance().await, 2_550);
    shop.close().await;
}

#[tokio::test]
async fn a_number_without_a_wallet_is_told_at_once() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("MTN", "0240000006").await;
    assert_eq!(page.state(), "failed");
    page.says("no wallet on the network");
    shop.close().await;
}

#[tokio::test]
async fn a_prompt_that_is_never_answered_ends_as_not_approved_in_time() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("MTN", "0240000005").await;
    assert_eq!(page.state(), "prompt");
    page.says("*170#");
    page.says("024 ••• 0005");
    let page = payer.wait_for("failed").await;
    page.says("not approved in time");
    page.says_not("You were not charged");
    shop.close().await;
}

#[tokio::test]
async fn a_prompt_that_waits_long_says_that_nothing_need_be_done() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.pay_at_once("MTN", "0240000100").await;
    assert_eq!(page.state(), "prompt");
    shop.advance(Duration::from_secs(121)).await;
    let page = payer.open().await;
    assert_eq!(page.state(), "slow");
    page.says("you do not need to pay again");
    let prompts = format!("{}/prompts", shop.ready.handset);
    let prompts: Value = payer
        .client
        .get(&prompts)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let id = prompts[0]["id"].as_str().unwrap();
    let approve = format!("{}/prompts/{id}/approve", shop.ready.handset);
    assert!(
        payer
            .client
            .post(&approve)
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
    );
    payer.wait_for("success").await;
    shop.close().await;
}

#[tokio::test]
async fn an_unpaid_link_ends_after_24_hours() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let form = payer.open().await;
    shop.advance(Duration::from_secs(86_400)).await;
    let page = payer.open().await;
    assert_eq!((page.code, page.state()), (200, "expired"));
    page.says("status=expired#top");
    payer.check_sees_page(&payer.pay(&form, "MTN", "0240000001").await);
    assert_eq!(payer.open().await.state(), "expired");
    assert!(shop.book("0240000001").await.is_empty());
    shop.close().await;
}

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
    page.says("no exchange rate");
    shop.close().await;
}

#[tokio::test]
async fn a_form_sent_many_times_is_one_charge() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let sent = join_all((0..5).map(|_| payer.pay(&page, "MTN", "0240000001"))).await;
    for sent in &sent {
        payer.check_sees_page(sent);
    }
    payer.wait_for("success").await;
    payer.check_sees_page(&payer.pay(&page, "MTN", "0240000001").await);
    let book = shop.book("0240000001").await;
    assert_eq!((book.len(), &book[0]["debits"]), (1, &json!(1)));
    shop.close().await;
}

#[tokio::test]
async fn of_fifty_payers_of_one_session_one_is_debited() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let paid = join_all((0..50).map(|n| {
        let payer = &payer;
        async move {
            let page = payer.open().await;
            // Whoever comes late sees that somebody pays already.
            if page.state() == "form" {
                let number = format!("02411{n:02}001");
                payer.check_sees_page(&payer.pay(&page, "MTN", &number).await);
            }
        }
    }));
    paid.await;
    payer.wait_for("success").await;
    let database = shop.database("charges-svc").await;
    let mut conn = database.read().await.unwrap();
    let (settled,): (i64,) = conn
        .sql("select count(*) from charges where state = 'SETTLED'")
        .one()
        .await
        .unwrap();
    assert_eq!(settled, 1);
    drop(conn);
    database.close().await;
    let book = crate::shop::book(&shop.ready.handset).await;
    let debits: u64 = book
        .iter()
        .map(|entry| entry["debits"].as_u64().unwrap())
        .sum();
    assert_eq!(debits, 1, "{book:?}");
    shop.close().await;
}

#[tokio::test]
async fn bad_input_is_told_beside_its_field_and_kept() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let sent = payer.pay(&page, "", "024 12").await;
    assert_eq!((sent.code, sent.state()), (422, "form"));
    sent.says("<title>Error:");
    sent.says("href=\"#network\"");
    sent.says("href=\"#mobile_number\"");
    sent.says("id=\"number-error\"");
    sent.says("value=\"024 12\"");
    assert_eq!(sent.field("attempt"), page.field("attempt"));
    let sent = payer.pay(&sent, "VODAFONE", "").await;
    sent.says("Enter your mobile money number");
    let sent = payer.pay(&sent, "AT", "x").await;
    sent.says("value=\"AT\" checked");
    let cut = payer
        .form("", &[])
        .body("\u{0}%ff=%ff&network=MTN")
        .send()
        .await
        .unwrap();
    assert_eq!(cut.status(), 422);
    let mut other = payer.form("", &[]).build().unwrap();
    let plain = "text/plain".parse().unwrap();
    other.headers_mut().insert("content-type", plain);
    let other = Page::of(payer.client.execute(other).await.unwrap()).await;
    assert_eq!((other.code, other.state()), (415, "refused"));
    shop.close().await;
}

#[tokio::test]
async fn the_merchants_number_is_used_and_never_shown() {
    let shop = Shop::open().await;
    let mut session = order();
    session["customer_phone"] = json!("0244567001");
    let payer = Payer::of(&shop, session).await;
    let page = payer.open().await;
    page.says("024 ••• 7001");
    page.says("Use another number");
    for number in ["0244567001", "244567001"] {
        page.says_not(number);
    }
    let attempt = page.field("attempt");
    let fields = [
        ("attempt", attempt.as_str()),
        ("network", "MTN"),
        ("number", "kept"),
    ];
    payer.check_sees_page(&payer.post("", &fields).await);
    let page = payer.wait_for("success").await;
    page.says_not("244567001");
    assert_eq!(shop.book("0244567001").await[0]["debits"], 1);
    shop.close().await;
}

#[tokio::test]
async fn nothing_that_others_wrote_runs_on_the_page() {
    let shop = Shop::open().await;
    let merchant_id = shop.add_merchant("<img src=x onerror=alert(1)>").await;
    let key = shop.add_key(&merchant_id).await.api_key;
    let api = stack::demo::Api::new(&shop.ready.api, &key).unwrap();
    for evil in [
        "<script>alert(1)</script>",
        "\"><svg onload=alert(1)>",
        "'onmouseover='alert(1)",
        "</title><script>alert(1)</script>",
        "javascript:alert(1)",
        "{{7*7}}${7*7}<%= 7*7 %>",
        "&lt;script&gt;",
        "<!--<script>",
    ] {
        let session = json!({
            "amount": 1,
            "currency": "GHS",
            "description": evil,
            "customer_name": evil,
            "redirect_url": "https://shop.example/\"><script>alert(1)</script>?a='x'",
        });
        let created = api
            .post("/api/v1/payments/initiate", &session)
            .await
            .unwrap();
        created.expect(201).unwrap();
        let payer = Payer::at(&shop, created.text("session_id").unwrap());
        let page = payer.open().await;
        let attempt = page.field("attempt");
        let fields = [
            ("attempt", attempt.as_str()),
            ("network", evil),
            ("mobile_number", evil),
        ];
        for page in [page, payer.post("", &fields).await] {
            assert_eq!(page.html.matches("<script").count(), 1, "{}", page.html);
            for tag in ["<img", "<svg", "onload=alert(1)>", "'onmouseover", "<!--"] {
                page.says_not(tag);
            }
            page.says_not("href=\"javascript:");
            page.says_not(" style=");
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn every_answer_carries_the_headers_that_protect_it() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let unknown = Payer::at(&shop, "00000000-0000-4000-8000-000000000000");
    let pages = [
        payer.open().await,
        payer.pay(&payer.open().await, "", "").await,
        unknown.open().await,
    ];
    for page in &pages {
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert_eq!(
            policy,
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
             connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        );
        assert_eq!(page.headers["cache-control"], "no-store");
    }
    let state = payer.get("/state").await;
    assert_eq!(state.html, "{\"state\":\"form\"}");
    for page in pages.iter().chain([&state]) {
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert!(
            page.headers["x-robots-tag"]
                .to_str()
                .unwrap()
                .starts_with("noindex")
        );
        assert!(!page.headers.contains_key("set-cookie"));
    }
    let tag = state.headers["etag"].clone();
    let same = payer
        .client
        .get(payer.url("/state"))
        .header("if-none-match", tag);
    let same = Page::of(same.send().await.unwrap()).await;
    assert_eq!((same.code, same.html.len()), (304, 0));
    shop.close().await;
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let attempt = page.field("attempt");
    let fields = [
        ("attempt", attempt.as_str()),
        ("network", "MTN"),
        ("mobile_number", "0240000001"),
    ];
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
    ] {
        for path in ["", "/code"] {
            let mut request = payer.form(path, &fields).build().unwrap();
            request.headers_mut().remove("sec-fetch-site");
            request.headers_mut().insert(name, value.parse().unwrap());
            let refused = Page::of(payer.client.execute(request).await.unwrap()).await;
            assert_eq!(
                (refused.code, refused.state()),
                (403, "refused"),
                "{name}: {value}"
            );
        }
    }
    assert!(shop.book("0240000001").await.is_empty());
    assert_eq!(payer.open().await.state(), "form");
    shop.close().await;
}

#[tokio::test]
async fn what_is_not_there_looks_the_same_whatever_it_is() {
    let shop = Shop::open().await;
    let direct = shop.charge("0240000001", "MTN").await;
    let ids = [
        "00000000-0000-4000-8000-000000000000",
        "1",
        "%3Cscript%3E",
        direct.text("session_id").unwrap(),
    ];
    let mut bodies = Vec::new();
    for id in ids {
        let page = Payer::at(&shop, id).open().await;
        assert_eq!((page.code, page.state()), (404, "unknown"), "{id}");
        bodies.push(page.html);
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    shop.wait_for_end(direct.text("reference").unwrap()).await;
    shop.close().await;
}

#[tokio::test]
async fn guessing_addresses_ends_in_a_wait() {
    let shop = Shop::open_with(&[("gateway", "--checkout-unknown-per-address=3")]).await;
    let payer = Payer::of(&shop, order()).await;
    let unknown = Payer::at(&shop, "00000000-0000-4000-8000-000000000000");
    for _ in 0..3 {
        assert_eq!(unknown.open().await.code, 404);
    }
    let page = unknown.open().await;
    assert_eq!(page.code, 429);
    assert!(page.headers.contains_key("retry-after"));
    assert_eq!(
        payer.open().await.code,
        429,
        "whether it exists is not told"
    );
    shop.close().await;
}

#[tokio::test]
async fn one_number_is_not_prompted_without_end() {
    let shop = Shop::open_with(&[("gateway", "--checkout-tries-per-number=1")]).await;
    let first = Payer::of(&shop, order()).await;
    first.pay_at_once("MTN", "0240000001").await;
    first.wait_for("success").await;
    let second = Payer::of(&shop, order()).await;
    let page = second.open().await;
    let refused = second.pay(&page, "MTN", "+233 24 000 0001").await;
    assert_eq!((refused.code, refused.state()), (429, "form"));
    refused.says("Too many tries");
    assert_eq!(shop.book("0240000001").await.len(), 1);
    // The API is not limited by number.
    shop.charge("0240000001", "MTN").await.expect(202).unwrap();
    shop.close().await;
}

#[tokio::test]
async fn a_merchant_who_takes_no_payments_has_no_form() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let form = payer.open().await;
    let update = proto::merchants::UpdateMerchantRequest {
        merchant_id: shop.ready.demo.merchant_id.clone(),
        accepting_payments: Some(false),
        ..Default::default()
    };
    shop.merchants().update_merchant(update).await.unwrap();
    let page = payer.open().await;
    assert_eq!(page.state(), "unavailable");
    payer.check_sees_page(&payer.pay(&form, "MTN", "0240000001").await);
    assert!(shop.book("0240000001").await.is_empty());
    shop.close().await;
}

#[tokio::test]
async fn the_page_speaks_twi_to_whoever_asks() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.get("?lang=tw").await;
    page.says("<html lang=\"tw\">");
    page.says("Tua GHS 25.50");
    page.says(&format!("action=\"/pay/{}?lang=tw\"", payer.session_id));
    let asked = payer
        .client
        .get(payer.url(""))
        .header("accept-language", "tw");
    Page::of(asked.send().await.unwrap())
        .await
        .says("Tua GHS 25.50");
    payer.open().await.says("<html lang=\"en\">");
    shop.close().await;
}

#[tokio::test]
async fn the_first_view_is_light() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let mut weight = page.html.len();
    let files = [
        ("href=\"/assets/", "text/css"),
        ("src=\"/assets/", "text/javascript"),
    ];
    for (before, kind) in files {
        let name = page.between(before, "\"").unwrap();
        let file = payer.client.get(format!("{}/assets/{name}", payer.base));
        let file = Page::of(file.send().await.unwrap()).await;
        assert_eq!(file.code, 200);
        assert!(
            file.headers["content-type"]
                .to_str()
                .unwrap()
                .starts_with(kind)
        );
        assert!(
            file.headers["cache-control"]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        weight += file.html.len();
    }
    println!(
        "first view: {weight} bytes, of which {} page",
        page.html.len()
    );
    assert!(weight <= FIRST_VIEW_MAX, "{weight}");
    for foreign in ["http://", "https://"] {
        let html = page.html.replace("https://shop.example", "");
        assert!(!html.contains(foreign), "a third party is named");
    }
    shop.close().await;
}
