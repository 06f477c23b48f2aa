//! A merchant with its own running stack, and the checks that end every test.

use std::{sync::Arc, time::Duration};

use chassis::{config::Tls, grpc};
use clap::Parser as _;
use db::testing::TestDb;
use futures::future::join_all;
use proto::{
    charges::{
        Case, GetBalanceRequest, ListCasesRequest,
        charge_operations_client::ChargeOperationsClient, charges_client::ChargesClient,
    },
    merchants::{
        CreateKeyRequest, CreateKeyResponse, CreateMerchantRequest, KycStatus,
        merchant_operations_client::MerchantOperationsClient,
    },
    webhooks::{
        Delivery, EventType, ListDeliveriesRequest, SetEndpointRequest,
        webhook_operations_client::WebhookOperationsClient,
    },
};
use serde_json::{Value, json};
use stack::{
    Stack,
    config::Config,
    demo::{Api, ApiResponse, Receiver, WebhookRequest},
    ready::Ready,
};

/// Longest wait for anything.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// Flags for tests that are not about rates.
pub const NO_LIMITS: &[(&str, &str)] = &[
    ("ratelimit-svc", "--limit-payments=1000000"),
    ("ratelimit-svc", "--limit-charge=1000000"),
    ("ratelimit-svc", "--limit-charge-status=1000000"),
    ("ratelimit-svc", "--limit-read=1000000"),
    ("ratelimit-svc", "--limit-write=1000000"),
    ("ratelimit-svc", "--limit-number=1000000"),
    ("ratelimit-svc", "--limit-number-overall=1000001"),
];

/// Interval of polling for what has no notification.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A stack, its demo merchant, and that merchant's webhook receiver.
pub struct Shop {
    pub api: Arc<Api>,
    pub receiver: Receiver,
    pub signing_secret: String,
    pub ready: Ready,
    stack: Stack,
    databases: Vec<(&'static str, TestDb)>,
}

impl Shop {
    pub async fn open() -> Self {
        Self::open_with(&[]).await
    }

    /// Starts it with more flags for services or for `stack` itself: (service, flag).
    pub async fn open_with(flags: &[(&'static str, &str)]) -> Self {
        let free = "127.0.0.1:0";
        let ours = [
            "stack",
            "--ephemeral",
            "--api",
            free,
            "--checkout",
            free,
            "--dashboard",
            free,
            "--handset",
            free,
        ];
        let of_stack = flags.iter().filter(|(name, _)| *name == "stack");
        let mut config =
            Config::parse_from(ours.into_iter().chain(of_stack.map(|(_, flag)| *flag)));
        config.redis_url = redis_url();
        let mut databases = Vec::new();
        let services = [
            "merchants-svc",
            "sessions-svc",
            "charges-svc",
            "webhooks-svc",
        ];
        let fresh = join_all(services.map(TestDb::new)).await;
        for (service, database) in services.into_iter().zip(fresh) {
            let flag = format!("--database-url={}", database.url);
            config.flags.push((service, flag));
            databases.push((service, database));
        }
        // A machine that is busy with other tests must not look like an outage.
        config
            .flags
            .push(("ratelimit-svc", "--redis-timeout=10s".to_owned()));
        config
            .flags
            .push(("gateway", "--ratelimit-timeout=10s".to_owned()));
        let more = flags
            .iter()
            .map(|(service, flag)| (*service, (*flag).to_owned()));
        config.flags.extend(more);
        let stack = Stack::start(&config).await.unwrap();
        let ready = stack.ready.clone();
        let receiver = Receiver::start().await.unwrap();
        let shop = Self {
            api: Arc::new(Api::new(&ready.api, &ready.demo.api_key).unwrap()),
            receiver,
            signing_secret: String::new(),
            ready,
            stack,
            databases,
        };
        let signing_secret = shop.set_endpoint(&shop.receiver.url).await;
        Self {
            signing_secret,
            ..shop
        }
    }

    /// Points the merchant's webhooks to `url`. Returns the signing secret.
    pub async fn set_endpoint(&self, url: &str) -> String {
        self.set_endpoint_of(&self.ready.demo.merchant_id, url)
            .await
    }

    /// Lets the merchant's receiver be told these events and no others.
    pub async fn listen_for(&self, events: &[EventType]) {
        let request = SetEndpointRequest {
            merchant_id: self.ready.demo.merchant_id.clone(),
            url: self.receiver.url.clone(),
            events: events.iter().map(|event| (*event).into()).collect(),
        };
        self.webhooks().set_endpoint(request).await.unwrap();
    }

    pub async fn set_endpoint_of(&self, merchant_id: &str, url: &str) -> String {
        let request = SetEndpointRequest {
            merchant_id: merchant_id.to_owned(),
            url: url.to_owned(),
            events: Vec::new(),
        };
        let endpoint = self.webhooks().set_endpoint(request).await.unwrap();
        endpoint.into_inner().signing_secret
    }

    /// Adds a merchant who may take payments. Returns its id.
    pub async fn add_merchant(&self, name: &str) -> String {
        let new = CreateMerchantRequest {
            name: name.to_owned(),
            email: "merchant@example.com".to_owned(),
            email_verified: true,
            kyc_status: KycStatus::Approved.into(),
            accepting_payments: true,
        };
        let created = self.merchants().create_merchant(new).await.unwrap();
        created.into_inner().merchant_id
    }

    pub async fn add_key(&self, merchant_id: &str) -> CreateKeyResponse {
        let request = CreateKeyRequest {
            merchant_id: merchant_id.to_owned(),
            label: "test".to_owned(),
        };
        let created = self.merchants().create_key(request).await.unwrap();
        created.into_inner()
    }

    /// Connects to a service's database, to count what is stored there.
    pub async fn database(&self, service: &str) -> db::Db {
        self.test_db(service).connect().await
    }

    /// The address of a service's database.
    pub fn database_url(&self, service: &str) -> &str {
        &self.test_db(service).url
    }

    fn test_db(&self, service: &str) -> &TestDb {
        let mut databases = self.databases.iter();
        let (_, database) = databases.find(|(name, _)| *name == service).unwrap();
        database
    }

    pub fn merchants(&self) -> MerchantOperationsClient<grpc::Channel> {
        MerchantOperationsClient::new(connect(&self.ready.grpc.merchants_operators))
    }

    pub fn webhooks(&self) -> WebhookOperationsClient<grpc::Channel> {
        WebhookOperationsClient::new(connect(&self.ready.grpc.webhooks_operators))
    }

    /// For the other interfaces of charges-svc.
    pub fn charges_channel(&self) -> grpc::Channel {
        connect(&self.ready.grpc.charges)
    }

    /// For what charges-svc serves to operators.
    pub fn charges_operators(&self) -> grpc::Channel {
        connect(&self.ready.grpc.charges_operators)
    }

    pub fn charges(&self) -> ChargesClient<grpc::Channel> {
        ChargesClient::new(connect(&self.ready.grpc.charges))
    }

    pub fn operations(&self) -> ChargeOperationsClient<grpc::Channel> {
        ChargeOperationsClient::new(self.charges_operators())
    }

    /// Charges 25.50 GHS.
    pub async fn charge(&self, number: &str, provider: &str) -> ApiResponse {
        let body = json!({ "amount": 25.5, "mobile_number": number, "provider": provider });
        self.api
            .post("/api/v1/payments/charge", &body)
            .await
            .unwrap()
    }

    pub async fn submit_otp(&self, reference: &str, otp: &str) -> ApiResponse {
        let body = json!({ "reference": reference, "otp": otp });
        let path = "/api/v1/payments/charge/submit-otp";
        self.api.post(path, &body).await.unwrap()
    }

    pub async fn read_charge(&self, reference: &str) -> Value {
        let path = format!("/api/v1/payments/charge/{reference}");
        let answer = self.api.get(&path).await.unwrap();
        answer.expect(200).unwrap();
        answer.body
    }

    /// Reads the charge until it is SETTLED or FAILED.
    pub async fn wait_for_end(&self, reference: &str) -> Value {
        let path = format!("/api/v1/payments/charge/{reference}");
        let is_final = |body: &Value| body["status"] == "SETTLED" || body["status"] == "FAILED";
        self.api.poll(&path, WAIT_MAX, is_final).await.unwrap().body
    }

    pub async fn read_session(&self, session_id: &str) -> Value {
        let path = format!("/api/v1/payments/{session_id}/status");
        let answer = self.api.get(&path).await.unwrap();
        answer.expect(200).unwrap();
        answer.body
    }

    /// Waits for the event of the charge with this reference, and verifies its signature.
    pub async fn wait_for_event(&self, reference: &str) -> Value {
        let event = self
            .receiver
            .wait_for(display(reference), WAIT_MAX)
            .await
            .unwrap();
        event.verify(&self.signing_secret).unwrap();
        event.json().unwrap()
    }

    /// Every delivery so far of the charge with this reference.
    pub fn events(&self, reference: &str) -> Vec<WebhookRequest> {
        let mut deliveries = self.receiver.deliveries();
        deliveries.retain(|delivery| {
            delivery.json().unwrap()["data"]["tx_id_display"] == display(reference)
        });
        deliveries
    }

    /// The network's book entries for a phone number.
    pub async fn book(&self, number: &str) -> Vec<Value> {
        let mut book = book(&self.ready.handset).await;
        let tail = &number[number.len() - 9..];
        book.retain(|entry| entry["phone"].as_str().unwrap().ends_with(tail));
        book
    }

    pub async fn cases(&self) -> Vec<Case> {
        let cases = self.operations().list_cases(ListCasesRequest {}).await;
        cases.unwrap().into_inner().cases
    }

    /// Waits until this charge has a case.
    pub async fn wait_for_case(&self, reference: &str) -> Case {
        let looking = async {
            loop {
                let cases = self.cases().await;
                if let Some(case) = cases.into_iter().find(|case| case.reference == reference) {
                    return case;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(WAIT_MAX, looking)
            .await
            .expect("a case is opened")
    }

    /// The merchant's balance in minor units of GHS.
    pub async fn balance(&self) -> i64 {
        self.balance_of(&self.ready.demo.merchant_id).await
    }

    pub async fn balance_of(&self, merchant_id: &str) -> i64 {
        let request = GetBalanceRequest {
            merchant_id: merchant_id.to_owned(),
            with_suspense: false,
        };
        let balance = self
            .charges()
            .get_balance(request)
            .await
            .unwrap()
            .into_inner();
        let ghs = balance
            .available
            .iter()
            .find(|money| money.currency == "GHS");
        ghs.map_or(0, |money| money.minor_units)
    }

    pub async fn deliveries(&self) -> Vec<Delivery> {
        let request = ListDeliveriesRequest {
            merchant_id: self.ready.demo.merchant_id.clone(),
            page_size: 100,
            page_token: String::new(),
        };
        let listed = self.webhooks().list_deliveries(request).await.unwrap();
        listed.into_inner().deliveries
    }

    /// Moves time forward through the stack's clock address.
    pub async fn advance(&self, by: Duration) {
        let client = chassis::http::client(Duration::from_secs(120)).unwrap();
        let body = json!({ "advance_seconds": by.as_secs() });
        let answer = client
            .post(&self.ready.clock)
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert!(answer["now"].is_string());
    }

    /// Ends the test: the outboxes are empty, no wallet was debited or credited twice, no transaction has two
    /// events, and the ledger is balanced.
    pub async fn close(self) {
        // charges-svc tells sessions-svc, which then has something to tell.
        for service in ["charges-svc", "sessions-svc"] {
            self.test_db(service).until_relayed().await;
        }
        for entry in book(&self.ready.handset).await {
            assert!(
                entry["debits"].as_u64().unwrap() <= 1,
                "debited twice: {entry}"
            );
        }
        for entry in credits(&self.ready.handset).await {
            assert!(
                entry["credits"].as_u64().unwrap() <= 1,
                "credited twice: {entry}"
            );
        }
        self.receiver.check_no_event_came_twice().unwrap();
        let charges = self.database("charges-svc").await;
        check_ledger(&charges).await;
        charges.close().await;
        self.stack.stop().await.unwrap();
    }
}

/// Checks that the postings of every currency sum to zero.
pub async fn check_ledger(db: &db::Db) {
    let mut conn = db.read().await.unwrap();
    let unbalanced: Vec<(String, i64)> = conn
        .sql(
            "select currency, cast(sum(amount_minor) as bigint) from postings
             group by currency having sum(amount_minor) <> 0",
        )
        .all()
        .await
        .unwrap();
    assert!(unbalanced.is_empty(), "{unbalanced:?}");
}

pub async fn book(handset: &str) -> Vec<Value> {
    lines(&format!("{handset}/book")).await
}

/// The networks' book of credits.
pub async fn credits(handset: &str) -> Vec<Value> {
    lines(&format!("{handset}/credits")).await
}

async fn lines(url: &str) -> Vec<Value> {
    let client = chassis::http::client(Duration::from_secs(10)).unwrap();
    client.get(url).send().await.unwrap().json().await.unwrap()
}

fn connect(url: &str) -> grpc::Channel {
    grpc::connect(url, &Tls::default(), Duration::from_secs(15)).unwrap()
}

/// The display identifier at the start of a reference.
fn display(reference: &str) -> &str {
    reference.rsplit_once('-').unwrap().0
}

#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
pub fn redis_url() -> Option<String> {
    std::env::var("TEST_REDIS_URL")
        .ok()
        .filter(|url| !url.is_empty())
}
