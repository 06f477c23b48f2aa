//! Everything that can happen to payments, with words that occur nowhere else, and the search for
//! those words afterwards.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::{config::Tls, grpc, http};
use proto::webhooks::{
    ListDeliveriesRequest, RotateSecretRequest, SetEndpointRequest,
    webhook_operations_client::WebhookOperationsClient,
};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use stack::demo::{Api, Receiver};

pub const WAIT_MAX: Duration = Duration::from_secs(60);

pub const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The part of a phone number between the network's prefix and the story's digits.
const SUBSCRIBER: &str = "9371";

const EMAIL: &str = "ama.canary@payer-mail.example";
const NAME: &str = "Ama Canarywoman";
const CUSTOMER_EMAIL: &str = "yaw.canary@customer-mail.example";
const CUSTOMER_NAME: &str = "Yaw Canaryman";
const CUSTOMER_PHONE: &str = "+447911837465";
const RIGHT_OTP: &str = "123456";
const WRONG_OTP: &str = "77418203";
const RECEIVER_TOKEN: &str = "receiver-token-4f1c";
const CALLBACK_TOKEN: &str = "callback-token-81d2";
const CALLBACK_SIGNATURE: &str = "callback-signature-60b7";
const STRANGER_SECRET: &str = "StrangerSecretCanary";

const CHARGE: &str = "/api/v1/payments/charge";
const SUBMIT: &str = "/api/v1/payments/charge/submit-otp";
const INITIATE: &str = "/api/v1/payments/initiate";

const BAD_BODIES: [(&str, &str); 13] = [
    (
        CHARGE,
        r#"{"mobile_number":"<number>","payer_email":"<email>""#,
    ),
    (
        CHARGE,
        r#"{"amount":"<number>","mobile_number":"<spaced>","provider":"<otp>"}"#,
    ),
    (
        CHARGE,
        r#"{"amount":1,"mobile_number":"<number> ext <otp>","provider":"MTN"}"#,
    ),
    (
        CHARGE,
        r#"{"amount":1,"mobile_number":"<number>","provider":"<name>","payer_email":"<email> <email>"}"#,
    ),
    (
        CHARGE,
        r#"{"amount":1,"mobile_number":{"n":"<number>"},"provider":["<name>"]}"#,
    ),
    (CHARGE, r#"["<number>","<key>"]"#),
    (
        CHARGE,
        r#"{"<name>":1,"<name>":2,"payer_email":"<email>","payer_email":"<email>"}"#,
    ),
    (SUBMIT, r#"{"reference":"<number>","otp":"<otp>"}"#),
    (
        SUBMIT,
        r#"{"reference":"TX-0000000000-000000","otp":"<otp>"}"#,
    ),
    (SUBMIT, r#"{"reference":7,"otp":"<otp> <otp>"}"#),
    (SUBMIT, r#"{"reference":7,"otp":<otp>}"#),
    (
        INITIATE,
        r#"{"amount":1,"customer_phone":"<phone>x","customer_email":"<email>@x","customer_name":"<name>\u0000"}"#,
    ),
    (
        INITIATE,
        r#"{"amount":1,"redirect_url":"https://<email>:<token>@x/"}"#,
    ),
];

const UNKNOWN_PATHS: [&str; 4] = [
    "/api/v1/payments/charge/<number>",
    "/api/v1/payments/charge/<number>?otp=<otp>&key=<key>",
    "/api/v1/payments/<email>/status",
    "/<key>/<number>",
];

const LOOK_UPS: [(&str, u16); 5] = [
    ("/api/v1/charges?phone=<number>", 200),
    ("/api/v1/customers?phone=<number>&email=<email>", 200),
    (
        "/api/v1/charges?phone=<number>x&reference=<otp>&cursor=<key>",
        400,
    ),
    (
        "/api/v1/customers?phone=<number>&phone=<phone>&email=<email>@",
        400,
    ),
    ("/api/v1/payments?phone=<number>&status=<name>", 400),
];

/// How to reach a running stack.
pub struct Doors {
    pub api: String,
    pub webhooks: String,
    pub merchant_id: String,
    pub api_key: String,
    pub signing_secret: String,
    /// The rails' credentials.
    pub credentials: [String; 9],
}

/// Words that must not be found.
#[derive(Default)]
pub struct Canaries(BTreeSet<String>);

impl Canaries {
    pub fn add(&mut self, word: impl Into<String>) {
        let word = word.into();
        assert!(word.len() >= 6, "{word} may occur by chance");
        self.0.insert(word);
    }

    /// The lines of a text that contain one.
    pub fn find(&self, text: &str) -> Vec<String> {
        let holds = |line: &&str| {
            has_word(line, RIGHT_OTP)
                || has_token(line)
                || self.0.iter().any(|canary| line.contains(canary.as_str()))
        };
        text.lines().filter(holds).map(ToOwned::to_owned).collect()
    }
}

/// Whether a six-digit code occurs by itself, not within a time or an id.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_inner = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '.');
        !is_inner(before) && !is_inner(after)
    })
}

/// Whether a bearer token of the simulated MTN occurs: its expiry in milliseconds, a dot, a MAC.
fn has_token(line: &str) -> bool {
    line.match_indices('.').any(|(dot, _)| {
        let end = line.get(dot.wrapping_sub(13)..dot);
        let mac = line.get(dot + 1..dot + 65);
        end.is_some_and(|end| end.bytes().all(|byte| byte.is_ascii_digit()))
            && mac.is_some_and(|mac| mac.bytes().all(|byte| byte.is_ascii_hexdigit()))
    })
}

/// Everything that happens, and the words that it planted.
pub struct Story<'a> {
    doors: &'a Doors,
    api: Api,
    pub client: Client,
    receiver: Receiver,
    pub canaries: Canaries,
    /// The answers' bodies of refused requests, and of refunds.
    bodies: Vec<String>,
}

impl<'a> Story<'a> {
    pub async fn begin(doors: &'a Doors) -> Self {
        let mut story = Self {
            doors,
            api: Api::new(&doors.api, &doors.api_key).unwrap(),
            client: http::client(WAIT_MAX).unwrap(),
            receiver: Receiver::start().await.unwrap(),
            canaries: Canaries::default(),
            bodies: Vec::new(),
        };
        let secret = doors.api_key.strip_prefix("service_sk_test_").unwrap();
        let [
            subscription_key,
            api_user,
            api_key,
            paystack,
            payout_subscription_key,
            payout_api_user,
            payout_api_key,
            hubtel_id,
            hubtel_key,
        ] = &doors.credentials;
        let basic = BASE64_STANDARD.encode(format!("{api_user}:{api_key}"));
        let hubtel_basic = BASE64_STANDARD.encode(format!("{hubtel_id}:{hubtel_key}"));
        let payout_basic = BASE64_STANDARD.encode(format!("{payout_api_user}:{payout_api_key}"));
        let words = [
            secret,
            STRANGER_SECRET,
            EMAIL,
            NAME,
            CUSTOMER_EMAIL,
            CUSTOMER_NAME,
            WRONG_OTP,
            RECEIVER_TOKEN,
            CALLBACK_TOKEN,
            CALLBACK_SIGNATURE,
            subscription_key,
            api_key,
            paystack,
            payout_subscription_key,
            payout_api_key,
            hubtel_id,
            hubtel_key,
            &hubtel_basic,
            &basic,
            &payout_basic,
            &CUSTOMER_PHONE[1..],
            doors.signing_secret.strip_prefix("whsec_").unwrap(),
        ];
        for word in words {
            story.canaries.add(word);
        }
        story
    }

    /// Runs everything, and plants the signatures of the deliveries.
    pub async fn run(&mut self) {
        let url = format!("{}?token={RECEIVER_TOKEN}", self.receiver.url);
        self.set_endpoint(&url).await;
        self.charges().await;
        self.refunds().await;
        self.codes().await;
        self.session().await;
        self.bad_requests().await;
        self.bad_keys().await;
        self.bad_callbacks().await;
        self.lost_webhook().await;
        for delivery in self.receiver.deliveries() {
            let signature = delivery.header("x-service-signature").unwrap();
            for part in signature
                .split(',')
                .filter_map(|part| part.strip_prefix("v1="))
            {
                self.canaries.add(part);
            }
        }
    }

    fn webhooks(&self) -> WebhookOperationsClient<grpc::Channel> {
        let url = &self.doors.webhooks;
        WebhookOperationsClient::new(grpc::connect(url, &Tls::default(), WAIT_MAX).unwrap())
    }

    async fn set_endpoint(&mut self, url: &str) {
        let merchant_id = self.doors.merchant_id.clone();
        let mut webhooks = self.webhooks();
        let request = SetEndpointRequest {
            merchant_id: merchant_id.clone(),
            url: url.to_owned(),
            events: Vec::new(),
        };
        webhooks.set_endpoint(request).await.unwrap();
        let rotated = webhooks
            .rotate_secret(RotateSecretRequest { merchant_id })
            .await;
        let rotated = rotated.unwrap().into_inner();
        let before = rotated.previous_signing_secret.unwrap();
        for secret in [rotated.signing_secret, before] {
            self.canaries.add(secret.strip_prefix("whsec_").unwrap());
        }
    }

    /// A number of this network and story, in one of several forms, all of which are planted.
    fn number(&mut self, network: &str, story: &str, form: usize) -> String {
        let (head, tail) = SUBSCRIBER.split_at(2);
        let plain = format!("{network}{SUBSCRIBER}{story}");
        let spaced = format!("{network} {head}{} {}{story}", &tail[..1], &tail[1..]);
        self.canaries.add(&plain);
        self.canaries.add(&spaced);
        let forms = [
            format!("0{plain}"),
            format!("233{plain}"),
            format!("+233{plain}"),
            format!("0{spaced}"),
            format!("+233 {spaced}"),
        ];
        forms[form % forms.len()].clone()
    }

    async fn charge(&mut self, number: &str, provider: &str) -> Value {
        let body = json!({
            "amount": 25.5, "mobile_number": number, "provider": provider,
            "payer_email": EMAIL, "payer_name": NAME, "description": "Order 17",
        });
        let answer = self.api.post(CHARGE, &body).await.unwrap();
        assert!(
            matches!(answer.code, 202 | 422),
            "{}: {}",
            answer.code,
            answer.body
        );
        if answer.code == 422 {
            self.bodies.push(answer.body.to_string());
        }
        answer.body
    }

    /// Charges with every outcome on every rail, including a cut connection, and their webhooks.
    async fn charges(&mut self) {
        let mut references = Vec::new();
        let stories = ["001", "003", "004", "006", "007", "013"];
        for (form, story) in stories.into_iter().enumerate() {
            for (network, provider) in [("24", "MTN"), ("27", "AT"), ("20", "TELECEL")] {
                let number = self.number(network, story, form);
                let charge = self.charge(&number, provider).await;
                references.push(charge["reference"].as_str().unwrap().to_owned());
            }
        }
        let mismatched = self.number("24", "015", 0);
        self.charge(&mismatched, "MTN").await;
        for reference in references {
            self.wait_for_end(&reference).await;
            let display = reference.rsplit_once('-').unwrap().0;
            self.receiver.wait_for(display, WAIT_MAX).await.unwrap();
        }
    }

    async fn wait_for_end(&self, reference: &str) {
        let path = format!("/api/v1/payments/charge/{reference}");
        let is_final =
            |charge: &Value| charge["status"] == "SETTLED" || charge["status"] == "FAILED";
        self.api.poll(&path, WAIT_MAX, is_final).await.unwrap();
    }

    /// Refunds with every outcome on each rail, including a cut connection.
    async fn refunds(&mut self) {
        let mut refunds = Vec::new();
        let stories = ["201", "203", "204", "205", "207", "213"];
        for (form, story) in stories.into_iter().enumerate() {
            for (network, provider) in [("24", "MTN"), ("27", "AT")] {
                // A busy Paystack or Hubtel may have taken it, and it is not sent again at once.
                if story == "213" && provider == "AT" {
                    continue;
                }
                let number = self.number(network, story, form);
                let charge = self.charge(&number, provider).await;
                let reference = charge["reference"].as_str().unwrap();
                self.wait_for_end(reference).await;
                let path = format!("{CHARGE}/{reference}/refunds");
                let key = format!("refund-{network}-{story}");
                let answer = self.api.post_with_key(&path, &json!({}), &key).await;
                let answer = answer.unwrap();
                answer.expect(202).unwrap();
                self.bodies.push(answer.body.to_string());
                refunds.push(answer.text("refund_id").unwrap().to_owned());
            }
        }
        for refund in refunds {
            let path = format!("/api/v1/refunds/{refund}");
            let is_final =
                |refund: &Value| refund["status"] == "COMPLETED" || refund["status"] == "FAILED";
            let ended = self.api.poll(&path, WAIT_MAX, is_final).await.unwrap();
            self.bodies.push(ended.body.to_string());
        }
    }

    /// One-time codes: wrong, right, expired, and with a lost reply.
    async fn codes(&mut self) {
        for story in ["002", "011", "014"] {
            let number = self.number("20", story, 1);
            let charge = self.charge(&number, "TELECEL").await;
            assert_eq!(charge["status"], "OTP_REQUIRED");
            let reference = charge["reference"].as_str().unwrap();
            let codes: &[&str] = if story == "002" {
                &[WRONG_OTP, RIGHT_OTP]
            } else {
                &[RIGHT_OTP]
            };
            for otp in codes {
                let body = json!({ "reference": reference, "otp": otp });
                self.api.post(SUBMIT, &body).await.unwrap();
            }
            self.wait_for_end(reference).await;
            let body = json!({ "reference": reference, "otp": WRONG_OTP });
            let late = self.api.post(SUBMIT, &body).await.unwrap();
            late.expect(409).unwrap();
            self.bodies.push(late.body.to_string());
        }
    }

    async fn session(&self) {
        let body = json!({
            "amount": 10, "currency": "GHS", "customer_email": CUSTOMER_EMAIL,
            "customer_name": CUSTOMER_NAME, "customer_phone": CUSTOMER_PHONE,
            "redirect_url": format!("https://shop.example/?token={RECEIVER_TOKEN}"),
        });
        let created = self.api.post(INITIATE, &body).await.unwrap();
        created.expect(201).unwrap();
        let path = format!(
            "/api/v1/payments/{}/status",
            created.text("session_id").unwrap()
        );
        self.api.get(&path).await.unwrap().expect(200).unwrap();
    }

    /// Sends a request. Keeps the answer's body if it was refused.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> u16 {
        let url = format!("{}{path}", self.doors.api);
        let mut request = self.client.request(method, url).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.text().await.unwrap();
        if code >= 400 {
            self.bodies.push(body);
        }
        code
    }

    async fn bad_requests(&mut self) {
        let number = self.number("24", "001", 0);
        let spaced = self.number("24", "001", 3);
        let api_key = self.doors.api_key.clone();
        let words = [
            ("<number>", number.as_str()),
            ("<spaced>", &spaced),
            ("<key>", &api_key),
            ("<email>", EMAIL),
            ("<name>", NAME),
            ("<otp>", WRONG_OTP),
            ("<token>", RECEIVER_TOKEN),
            ("<phone>", CUSTOMER_PHONE),
        ];
        let fill = |text: &str| {
            let filled = |text: String, (place, word): &(&str, &str)| text.replace(place, word);
            words.iter().fold(text.to_owned(), filled)
        };
        let key = format!("Bearer {api_key}");
        let json = [
            ("authorization", key.as_str()),
            ("content-type", "application/json"),
        ];
        for (path, body) in BAD_BODIES {
            let code = self.send(Method::POST, path, &json, fill(body)).await;
            assert!((400..500).contains(&code), "{code} to {path} {body}");
        }
        for path in UNKNOWN_PATHS {
            let path = fill(path);
            let code = self.send(Method::GET, &path, &json, String::new()).await;
            assert_eq!(code, 404, "{path}");
        }
        for (path, expected) in LOOK_UPS {
            let path = fill(path);
            let code = self.send(Method::GET, &path, &json, String::new()).await;
            assert_eq!(code, expected, "{path}");
        }
        let odd = [("authorization", key.as_str()), ("content-type", EMAIL)];
        let refused = self.send(Method::POST, CHARGE, &odd, number.clone()).await;
        assert_eq!(refused, 415);
        let refused = self.send(Method::DELETE, CHARGE, &json, number).await;
        assert_eq!(refused, 405);
    }

    async fn bad_keys(&mut self) {
        let key = &self.doors.api_key;
        let (start, end) = key.split_at(key.len() - 1);
        let other = if end == "0" { "1" } else { "0" };
        let basic = BASE64_STANDARD.encode(format!("{key}:"));
        self.canaries
            .add(basic.trim_end_matches('=').get(20..).unwrap());
        let wrong = [
            format!("Bearer {start}{other}"),
            format!("Bearer service_sk_{STRANGER_SECRET}"),
            format!("Bearer {key} {key}"),
            format!("bearer\t{STRANGER_SECRET}"),
            format!("Basic {basic}"),
            key.clone(),
        ];
        for value in wrong {
            let headers = [
                ("authorization", value.as_str()),
                ("x-api-key", value.as_str()),
            ];
            let path = "/api/v1/payments/charge/TX-0000000000-000000";
            let code = self.send(Method::GET, path, &headers, String::new()).await;
            assert_eq!(code, 401, "{value}");
        }
    }

    async fn bad_callbacks(&mut self) {
        let number = self.number("24", "001", 2);
        let body = json!({ "payer": { "partyId": number }, "email": EMAIL, "otp": WRONG_OTP });
        let headers = [
            ("content-type", "application/json"),
            ("x-paystack-signature", CALLBACK_SIGNATURE),
        ];
        for rail in ["momo", "paystack", "hubtel", STRANGER_SECRET] {
            let path = format!("/rails/{rail}/{CALLBACK_TOKEN}");
            let code = self
                .send(Method::PUT, &path, &headers, body.to_string())
                .await;
            assert!((400..500).contains(&code), "{code} to {path}");
        }
    }

    /// A webhook whose receiver is gone.
    async fn lost_webhook(&mut self) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        self.set_endpoint(&format!("http://{address}/hooks?token={RECEIVER_TOKEN}"))
            .await;
        let number = self.number("24", "006", 4);
        self.charge(&number, "MTN").await;
        let failed = async {
            loop {
                let request = ListDeliveriesRequest {
                    merchant_id: self.doors.merchant_id.clone(),
                    page_size: 100,
                    page_token: String::new(),
                };
                let listed = self.webhooks().list_deliveries(request).await.unwrap();
                let deliveries = listed.into_inner().deliveries;
                if deliveries.iter().any(|delivery| {
                    delivery.attempts_count > 0 && delivery.next_attempt_at.is_some()
                }) {
                    return;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(WAIT_MAX, failed)
            .await
            .expect("a failed attempt");
    }

    /// Plants the secret last segments of the charges' callback addresses.
    pub async fn plant_callback_tokens(&mut self, charges: &db::Db) {
        let mut conn = charges.read().await.unwrap();
        let tokens = conn.sql("select callback_token from charges").all().await;
        let tokens: Vec<(String,)> = tokens.unwrap();
        assert!(!tokens.is_empty());
        for (token,) in tokens {
            self.canaries.add(token);
        }
    }

    pub fn check_bodies(&self) {
        for body in &self.bodies {
            let found = self.canaries.find(body);
            assert!(found.is_empty(), "an error tells: {found:?}");
        }
    }

    /// Checks that no planted word is logged, and that only our own crates log details.
    pub fn check_log(&self, log: &str) {
        let found = self.canaries.find(log);
        assert!(
            found.is_empty(),
            "{} lines tell: {:#?}",
            found.len(),
            first(&found)
        );
        let read = |line| serde_json::from_str::<Value>(line).expect("not on a terminal, JSON");
        let lines = log.lines().map(read);
        let is_detail = |line: &Value| line["level"] == "DEBUG" || line["level"] == "TRACE";
        for line in lines.filter(is_detail) {
            let target = line["target"].as_str().unwrap();
            let is_ours = ["chassis", "db", "gateway", "railsim", "stack"].contains(&head(target))
                || head(target).ends_with("_svc");
            assert!(is_ours, "{line}");
        }
    }
}

fn first(lines: &[String]) -> &[String] {
    &lines[..lines.len().min(5)]
}

fn head(target: &str) -> &str {
    target.split("::").next().unwrap()
}
