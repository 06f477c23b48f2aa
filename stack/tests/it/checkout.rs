//! The hosted checkout as used by a browser without scripts: pages, forms and redirects over HTTP.
//!
//! Here: the payer and what they see. Each state of the page has a file, and so has what all
//! states share.

mod abuse;
mod expired;
mod failed;
mod form;
mod headers;
mod hubtel;
mod language;
mod once;
mod otp;
mod quote;
mod rollout;
mod success;
mod unavailable;
mod unknown;
mod waiting;
mod weight;

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::shop::{Shop, WAIT_MAX};

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A payer at a session's page.
struct Payer {
    client: reqwest::Client,
    base: String,
    session_id: String,
}

/// The page as the payer sees it.
struct Page {
    code: u16,
    html: String,
    headers: reqwest::header::HeaderMap,
}

impl Payer {
    /// A payer of a new session of the shop.
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

    /// Opens the page, pays, and follows the redirect to the page with the outcome.
    async fn pay_at_once(&self, network: &str, number: &str) -> Page {
        let page = self.open().await;
        assert_eq!(page.state(), "form", "{}", page.html);
        let sent = self.pay(&page, network, number).await;
        self.check_sees_page(&sent);
        self.open().await
    }

    /// Checks that a form was answered with a redirect to the page.
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

    /// The value of a hidden field, or empty if there is none.
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

/// The session once it knows of its payment. The page shows the charge's state, which is ahead.
async fn paid_session(shop: &Shop, payer: &Payer) -> Value {
    let path = format!("/api/v1/payments/{}/status", payer.session_id);
    let is_paid = |session: &Value| session["status"] == "COMPLETED";
    let session = shop.api.poll(&path, WAIT_MAX, is_paid).await;
    session.unwrap().body
}
