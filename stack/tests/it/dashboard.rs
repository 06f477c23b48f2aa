//! The dashboard as used by a browser without scripts: pages, forms and files over HTTP.
//!
//! Here: a merchant's person and what they see.

mod address;
mod balance;
mod fill;
mod filters;
mod isolation;
mod known_browser;
mod lists;
mod overview;
mod payment_link;
mod payments;
mod payouts;
mod plans;
mod refunds;
mod routes;

use std::{sync::Arc, time::Duration};

use chassis::testing::until;
use proto::merchants::{KycStatus, ListMerchantsRequest, Merchant, UpdateMerchantRequest};
use reqwest::Response;
use serde_json::{Value, json};
use stack::demo::Api;

use crate::shop::{Shop, WAIT_MAX};

const LOOK_AGAIN: Duration = Duration::from_millis(100);

const DELIVERIES: &str = "/settings/integrations/webhooks/deliveries";

const PASSWORD: &str = "kente drum harbour lorry";

/// What would run if it were not shown as text.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}";

/// A person who is logged in, and their merchant, which may take payments.
struct Person {
    client: reqwest::Client,
    base: String,
    cookie: String,
    email: String,
    merchant_id: String,
    /// With a key of the merchant.
    api: Arc<Api>,
}

/// A page as the person sees it.
struct Page {
    code: u16,
    html: String,
    headers: reqwest::header::HeaderMap,
}

impl Person {
    /// Signs somebody up who has never been here, and who has not followed the mailed link yet.
    async fn sign_up_unverified(shop: &Shop, business: &str) -> Self {
        let client = chassis::http::client(Duration::from_secs(60)).unwrap();
        let email = format!("{}@shop.example", uuid::Uuid::new_v4().simple());
        let person = Self {
            client,
            base: shop.ready.dashboard.clone(),
            cookie: String::new(),
            email: email.clone(),
            merchant_id: String::new(),
            api: shop.api.clone(),
        };
        let account = [
            ("business_name", business),
            ("email", &email),
            ("password", PASSWORD),
        ];
        person
            .post("/signup", &account)
            .await
            .leads_to("/signup/sent");
        person
    }

    /// The same, up to the first key.
    async fn sign_up(shop: &Shop, business: &str) -> Self {
        let mut person = Self::sign_up_unverified(shop, business).await;
        let link = person.mailed(shop, &person.email, "/verify-email/").await;
        let path = link.strip_prefix(&person.base).unwrap();
        assert_eq!(person.post(path, &[]).await.code, 401, "a link alone");
        let proof = [("password", PASSWORD)];
        assert_eq!(person.post(path, &proof).await.code, 200);
        person.log_in().await;
        person.merchant_id = find_merchant(shop, business).await.merchant_id;
        let approved = UpdateMerchantRequest {
            merchant_id: person.merchant_id.clone(),
            kyc_status: Some(KycStatus::Approved.into()),
            accepting_payments: Some(true),
            ..UpdateMerchantRequest::default()
        };
        shop.merchants().update_merchant(approved).await.unwrap();
        let key = shop.add_key(&person.merchant_id).await.api_key;
        person.api = Arc::new(Api::new(&shop.ready.api, &key).unwrap());
        person
    }

    async fn log_in(&mut self) {
        let login = [("email", self.email.as_str()), ("password", PASSWORD)];
        let entered = self.post("/login", &login).await;
        entered.leads_to("/");
        self.cookie = entered.cookies().swap_remove(0);
    }

    /// The link with this in its path that was mailed to this address.
    async fn mailed(&self, shop: &Shop, email: &str, path: &str) -> String {
        let url = format!("{}.json?to={email}", shop.ready.mail);
        let waiting = async {
            loop {
                let mails: Value = self
                    .client
                    .get(&url)
                    .send()
                    .await
                    .unwrap()
                    .json()
                    .await
                    .unwrap();
                let mails = mails.as_array().unwrap().iter();
                let links = mails.filter_map(|mail| mail["links"].as_array()).flatten();
                let mut links = links.filter_map(Value::as_str);
                if let Some(link) = links.find(|link| link.contains(path)) {
                    return link.to_owned();
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let waited = tokio::time::timeout(WAIT_MAX, waiting).await;
        waited.expect("a link is mailed")
    }

    async fn get(&self, path: &str) -> Page {
        let url = format!("{}{path}", self.base);
        let request = self.client.get(url).header("cookie", &self.cookie);
        Page::of(request.send().await.unwrap()).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(fields);
        let request = self
            .client
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin")
            .header("cookie", &self.cookie)
            .body(body.finish());
        Page::of(request.send().await.unwrap()).await
    }

    /// Takes a payment of 25.50 GHS and waits for its end. Returns its reference.
    async fn take(&self, number: &str, more: Value) -> String {
        let mut body = json!({ "amount": 25.5, "mobile_number": number, "provider": "MTN" });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let charge = self.api.post("/api/v1/payments/charge", &body).await;
        let charge = charge.unwrap();
        let reference = charge.text("reference").unwrap().to_owned();
        let path = format!("/api/v1/payments/charge/{reference}");
        let is_final = |body: &Value| body["status"] == "SETTLED" || body["status"] == "FAILED";
        self.api.poll(&path, WAIT_MAX, is_final).await.unwrap();
        reference
    }

    /// Has events sent to where nobody listens, which is no fault of what is sent.
    async fn have_events(&self) {
        let webhooks = "/settings/integrations/webhooks";
        let endpoint = [
            ("url", "http://127.0.0.1:9/"),
            ("events", "payment.success"),
        ];
        let set = self.post(&format!("{webhooks}/endpoint"), &endpoint).await;
        set.leads_to(webhooks);
    }

    /// The deliveries of a payment, once there are any.
    async fn deliveries_of(&self, reference: &str) -> Vec<String> {
        let address = format!("{DELIVERIES}?q={reference}");
        let links = format!("{DELIVERIES}/");
        until("its event has a delivery", async || {
            !self.walk(&address, &links).await.is_empty()
        })
        .await;
        self.walk(&address, &links).await
    }

    /// Follows a list from this address to its end. Returns what its rows link to.
    async fn walk(&self, path: &str, links: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let page = self.get(&path).await;
            assert_eq!(page.code, 200, "{path}\n{}", page.html);
            found.extend(page.links(links));
            next = page.older();
        }
        found
    }

    /// Goes back from the second page of a list, which is the first that can.
    async fn goes_back(&self, path: &str, links: &str) {
        let first = self.get(path).await;
        assert_eq!(first.newer(), None, "{path}");
        let second = self.get(&first.older().expect("a second page")).await;
        let back = self.get(&second.newer().expect("a way back")).await;
        assert_eq!(back.links(links), first.links(links), "{path}");
        if let Some(third) = second.older() {
            let third = self.get(&third).await;
            let back = self.get(&third.newer().expect("a way back")).await;
            assert_eq!(back.links(links), second.links(links), "{path}");
        }
    }

    /// All ids of one of the API's lists.
    async fn listed(&self, path: &str, id: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.api.get(&format!("{path}{cursor}")).await.unwrap();
            page.expect(200).unwrap();
            let data = page.body["data"].as_array().unwrap().iter();
            found.extend(data.map(|entry| entry[id].as_str().unwrap().to_owned()));
            match page.body["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    }
}

async fn find_merchant(shop: &Shop, name: &str) -> Merchant {
    let mut after = String::new();
    loop {
        let request = ListMerchantsRequest { after };
        let page = shop.merchants().list_merchants(request).await.unwrap();
        let merchants = page.into_inner().merchants;
        let last = merchants.last().unwrap().merchant_id.clone();
        if let Some(found) = merchants.into_iter().find(|merchant| merchant.name == name) {
            return found;
        }
        after = last;
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

    /// The cookies that it sets, as they are sent back.
    fn cookies(&self) -> Vec<String> {
        let lines = self.headers.get_all("set-cookie").iter();
        let pairs = lines.map(|line| line.to_str().unwrap().split(';').next().unwrap().to_owned());
        pairs.collect()
    }

    /// The value of a hidden field.
    fn field(&self, name: &str) -> String {
        let before = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.html.split_once(&before).expect("the field");
        rest.split_once('"').unwrap().0.to_owned()
    }

    /// What comes after this in the links of the table's cells, in the order of the page.
    fn links(&self, start: &str) -> Vec<String> {
        let before = format!("\"><a href=\"{start}");
        let parts = self.html.split(&before).skip(1);
        let links = parts.map(|rest| rest.split('"').next().unwrap());
        links.map(str::to_owned).collect()
    }

    fn older(&self) -> Option<String> {
        self.related("next")
    }

    fn newer(&self) -> Option<String> {
        self.related("prev")
    }

    fn related(&self, how: &str) -> Option<String> {
        let (before, _) = self.html.split_once(&format!("\" rel=\"{how}\""))?;
        let (_, address) = before.rsplit_once("href=\"")?;
        Some(address.replace("&#38;", "&").replace("&amp;", "&"))
    }

    /// Checks that a form was answered with a redirect that begins so. Returns the rest of it.
    #[track_caller]
    fn leads_to(&self, path: &str) -> String {
        assert_eq!(self.code, 303, "{}", self.html);
        let location = self.headers["location"].to_str().unwrap();
        let rest = location.strip_prefix(path);
        rest.unwrap_or_else(|| panic!("leads to {location}"))
            .to_owned()
    }

    #[track_caller]
    fn says(&self, text: &str) {
        let html = self.html.replace('\u{a0}', " ");
        assert!(html.contains(text), "{text:?} is not on the page:\n{html}");
    }

    #[track_caller]
    fn says_not(&self, text: &str) {
        let html = &self.html;
        assert!(!html.contains(text), "{text:?} is on the page:\n{html}");
    }
}
