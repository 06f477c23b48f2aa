//! A running simulator with a clock that can be moved, a receiver for its callbacks, and a client
//! that uses all APIs correctly.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::{
    clock::Clock,
    http::Limits,
    shutdown::{Shutdown, Tasks},
};
use clap::Parser as _;
use http::{HeaderMap, Method, StatusCode};
use railsim::{Config, Sockets};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

/// What a network says in the stories 017 and 217.
pub const MARKUP: &str = "'\"><script>ran=1</script><img src=x onerror=ran=1></title>{0}";

pub const SUBSCRIPTION: &str = "subscription-key";
pub const API_USER: &str = "5f1b7d6e-0000-4000-8000-000000000001";
pub const API_KEY: &str = "api-key";
pub const DISBURSEMENT: [(&str, &str); 3] = [
    (
        "--momo-disbursement-subscription-key",
        "disbursement-subscription-key",
    ),
    (
        "--momo-disbursement-api-user",
        "5f1b7d6e-0000-4000-8000-000000000002",
    ),
    ("--momo-disbursement-api-key", "disbursement-api-key"),
];
pub const SECRET: &str = "sk_test_secret";
pub const HUBTEL_ID: &str = "hubtel-id";
pub const HUBTEL_KEY: &str = "hubtel-key";
pub const POS: &str = "2017";
pub const PREPAID: &str = "3017";

/// A callback as received.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    pub signature: Option<String>,
    pub body: Bytes,
}

impl Call {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Clone, Default)]
struct Receiver {
    calls: Arc<Mutex<Vec<Call>>>,
    /// How many of the next callbacks to answer with 500.
    refuse: Arc<Mutex<u32>>,
}

pub struct World {
    pub base: String,
    /// Address that takes mail.
    pub smtp: String,
    pub callback: String,
    pub clock: Clock,
    pub client: Client,
    receiver: Receiver,
    folder: tempfile::TempDir,
    shutdown: Shutdown,
    tasks: Tasks,
}

/// The credentials, as flags.
pub fn credentials() -> Vec<String> {
    [
        ("--momo-subscription-key", SUBSCRIPTION),
        ("--momo-api-user", API_USER),
        ("--momo-api-key", API_KEY),
        ("--paystack-secret-key", SECRET),
        ("--hubtel-api-id", HUBTEL_ID),
        ("--hubtel-api-key", HUBTEL_KEY),
        ("--hubtel-pos-sales-id", POS),
        ("--hubtel-prepaid-deposit-id", PREPAID),
    ]
    .iter()
    .chain(&DISBURSEMENT)
    .map(|(flag, value)| format!("{flag}={value}"))
    .collect()
}

impl World {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts it with additional flags.
    pub async fn start_with(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = format!("--data={}", folder.path().join("data").display());
        Self::start_in(folder, [flags, &[&data]].concat()).await
    }

    /// Starts it with a book that is lost with the process.
    pub async fn start_in_memory() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Vec::new()).await
    }

    async fn start_in(folder: tempfile::TempDir, flags: Vec<&str>) -> Self {
        let clock = Clock::travelling(folder.path().join("clock")).unwrap();
        let (shutdown, tasks, receiver) = (Shutdown::new(), Tasks::new(), Receiver::default());

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let callback = format!("http://{}/callback", listener.local_addr().unwrap());
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        let stop = shutdown.clone();
        tasks.spawn(async move {
            chassis::http::serve(router, listener, Limits::default(), stop)
                .await
                .unwrap();
        });
        let mut world = Self {
            base: String::new(),
            smtp: String::new(),
            callback,
            clock,
            client: chassis::http::client(Duration::from_secs(5)).unwrap(),
            receiver,
            folder,
            shutdown,
            tasks,
        };
        world.serve(&flags).await;
        world
    }

    async fn serve(&mut self, flags: &[&str]) {
        let mut arguments = vec!["railsim".to_owned()];
        arguments.extend(credentials());
        arguments.push(format!("--paystack-callback-url={}", self.callback));
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let config = Config::try_parse_from(arguments)
            .map_err(|error| error.to_string())
            .unwrap();
        let sockets = Sockets {
            web: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            mail: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        };
        self.base = format!("http://{}", sockets.web.local_addr().unwrap());
        self.smtp = sockets.mail.local_addr().unwrap().to_string();
        let serving = railsim::serve(config, sockets, self.clock.clone(), self.shutdown.clone());
        self.tasks.spawn(async move { serving.await.unwrap() });
    }

    /// Stops it, and starts it again on the same data.
    pub async fn restart(&mut self) {
        self.shutdown.begin();
        self.tasks.drain(Duration::from_secs(10)).await;
        (self.shutdown, self.tasks) = (Shutdown::new(), Tasks::new());
        let data = format!("--data={}", self.folder.path().join("data").display());
        self.serve(&[&data]).await;
    }

    /// The content of the journal.
    pub fn journal(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("data/journal.jsonl")).unwrap()
    }

    pub async fn advance(&self, seconds: u64) {
        self.clock
            .advance(Duration::from_secs(seconds))
            .await
            .unwrap();
    }

    pub fn calls(&self) -> Vec<Call> {
        lock(&self.receiver.calls).clone()
    }

    /// Makes the receiver answer the next `count` callbacks with 500.
    pub fn refuse_calls(&self, count: u32) {
        *lock(&self.receiver.refuse) = count;
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.base))
    }

    pub fn post(&self, path: &str) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.base))
    }

    pub fn wires(&self) -> Wires {
        Wires {
            base: self.base.clone(),
            client: self.client.clone(),
        }
    }

    /// The line of the book for a reference.
    pub async fn entry(&self, reference: &str) -> Value {
        self.wires().entry(reference).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

async fn receive(
    State(receiver): State<Receiver>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    assert_eq!(headers["content-type"], "application/json");
    let signature = headers
        .get("x-paystack-signature")
        .map(|value| value.to_str().unwrap().to_owned());
    lock(&receiver.calls).push(Call {
        method,
        signature,
        body,
    });
    let mut refuse = lock(&receiver.refuse);
    if *refuse > 0 {
        *refuse -= 1;
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    StatusCode::OK
}

/// A client that does everything right.
#[derive(Clone)]
pub struct Wires {
    pub base: String,
    pub client: Client,
}

impl Wires {
    pub async fn token(&self) -> String {
        let answer = self.token_request().send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        answer["access_token"].as_str().unwrap().to_owned()
    }

    pub fn token_request(&self) -> RequestBuilder {
        let basic = BASE64_STANDARD.encode(format!("{API_USER}:{API_KEY}"));
        self.client
            .post(format!("{}/collection/token/", self.base))
            .header("Authorization", format!("Basic {basic}"))
            .header("Ocp-Apim-Subscription-Key", SUBSCRIPTION)
            .json(&json!({"grant_type": "client_credentials"}))
    }

    pub fn momo(&self, request: RequestBuilder, token: &str) -> RequestBuilder {
        request
            .header("Authorization", format!("Bearer {token}"))
            .header("X-Target-Environment", "mtnghana")
            .header("Ocp-Apim-Subscription-Key", SUBSCRIPTION)
    }

    /// Asks MTN to debit the payer by 25.50, without checking the answer's status.
    pub async fn request_to_pay(
        &self,
        reference: &str,
        phone: &str,
        callback: &str,
    ) -> reqwest::Result<Response> {
        let token = self.token().await;
        let url = format!("{}/collection/v1_0/requesttopay", self.base);
        self.momo(self.client.post(url), &token)
            .header("X-Reference-Id", reference)
            .header("X-Callback-Url", callback)
            .json(&momo_body(phone))
            .send()
            .await
    }

    pub async fn momo_status(&self, reference: &str) -> Response {
        let token = self.token().await;
        let url = format!("{}/collection/v1_0/requesttopay/{reference}", self.base);
        self.momo(self.client.get(url), &token)
            .send()
            .await
            .unwrap()
    }

    pub async fn momo_json(&self, reference: &str) -> Value {
        let answer = self.momo_status(reference).await;
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }

    pub fn paystack(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.base))
            .header("Authorization", format!("Bearer {SECRET}"))
    }

    /// Asks Paystack to debit the payer by 25.50.
    pub async fn charge(
        &self,
        reference: &str,
        phone: &str,
        provider: &str,
    ) -> reqwest::Result<Response> {
        let body = paystack_body(reference, phone, provider);
        self.paystack(Method::POST, "/charge")
            .json(&body)
            .send()
            .await
    }

    pub async fn submit_otp(&self, reference: &str, otp: &str) -> reqwest::Result<Response> {
        let body = json!({"otp": otp, "reference": reference});
        self.paystack(Method::POST, "/charge/submit_otp")
            .json(&body)
            .send()
            .await
    }

    pub async fn verify(&self, reference: &str) -> Value {
        self.paystack_data(&format!("/transaction/verify/{reference}"))
            .await
    }

    pub async fn check(&self, reference: &str) -> Value {
        self.paystack_data(&format!("/charge/{reference}")).await
    }

    async fn paystack_data(&self, path: &str) -> Value {
        let answer = self.paystack(Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["status"], true);
        answer["data"].clone()
    }

    pub async fn book(&self) -> Vec<Value> {
        let url = format!("{}/book", self.base);
        self.client
            .get(url)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    }

    pub async fn entry(&self, reference: &str) -> Value {
        let book = self.book().await;
        let mut entries = book
            .into_iter()
            .filter(|entry| entry["reference"] == reference);
        let entry = entries.next().unwrap();
        assert!(entries.next().is_none(), "one line for each reference");
        entry
    }

    pub async fn prompts(&self) -> Vec<Value> {
        let url = format!("{}/prompts", self.base);
        self.client
            .get(url)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    }
}

pub fn momo_body(phone: &str) -> Value {
    json!({
        "amount": "25.50",
        "currency": "GHS",
        "externalId": "order-17",
        "payer": {"partyIdType": "MSISDN", "partyId": phone},
        "payerMessage": "Order 17",
        "payeeNote": "TX-ABC",
    })
}

pub fn paystack_body(reference: &str, phone: &str, provider: &str) -> Value {
    json!({
        "email": "ama@example.com",
        "amount": 2550,
        "currency": "GHS",
        "reference": reference,
        "mobile_money": {"phone": phone, "provider": provider},
        "metadata": {"order": 17},
    })
}

/// A version 4 UUID that ends with the given byte, which chooses MTN's variants.
pub fn reference(last: u8) -> String {
    let mut bytes = *Uuid::new_v4().as_bytes();
    bytes[15] = last;
    Uuid::from_bytes(bytes).to_string()
}

/// As [`reference`], in 32 digits without dashes, which is how Hubtel takes one. An odd last byte
/// makes the payer pay for it.
pub fn plain_reference(last: u8) -> String {
    reference(last).replace('-', "")
}
