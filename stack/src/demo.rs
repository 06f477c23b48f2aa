//! `--demo`: one payment of each kind through the public API, as a merchant's developer would try
//! it. Prints every request and answer, and receives and verifies every webhook.
//!
//! Promise: returns `Ok` only if each answer, each final state and each event is as specified, and
//! no transaction has two events.

mod api;
mod payer;
mod receiver;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use chassis::{config::Tls, grpc};
use proto::{
    merchants::{
        CreateKeyRequest, CreateMerchantRequest, KycStatus,
        merchant_operations_client::MerchantOperationsClient,
    },
    webhooks::{SetEndpointRequest, webhook_operations_client::WebhookOperationsClient},
};
use serde_json::{Value, json};

use crate::ready::{GrpcAddresses, Ready};

pub use api::{Api, ApiResponse};
pub use receiver::{Receiver, WebhookRequest};

/// Longest wait for a final state or an event.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A direct charge and its expected outcome. The last digits of the number choose what the
/// simulated network does.
struct Story {
    tells: &'static str,
    number: &'static str,
    provider: &'static str,
    /// The first answer's HTTP status code and charge status.
    answer: (u16, &'static str),
    ends: End,
}

enum End {
    Settled,
    Failed(&'static str),
}

const STORIES: [Story; 9] = [
    Story {
        tells: "an MTN payer approves",
        number: "0240000001",
        provider: "MTN",
        answer: (202, "INITIATED"),
        ends: End::Settled,
    },
    Story {
        tells: "an AT payer approves",
        number: "0270000001",
        provider: "AT",
        answer: (202, "INITIATED"),
        ends: End::Settled,
    },
    Story {
        tells: "a payer without enough money",
        number: "0240000003",
        provider: "MTN",
        answer: (202, "INITIATED"),
        ends: End::Failed("INSUFFICIENT_FUNDS"),
    },
    Story {
        tells: "a payer declines",
        number: "0240000004",
        provider: "MTN",
        answer: (202, "INITIATED"),
        ends: End::Failed("PAYER_DECLINED"),
    },
    Story {
        tells: "a payer never answers",
        number: "0240000005",
        provider: "MTN",
        answer: (202, "INITIATED"),
        ends: End::Failed("PAYER_TIMEOUT"),
    },
    Story {
        tells: "a number without a wallet",
        number: "0240000006",
        provider: "MTN",
        answer: (422, "FAILED"),
        ends: End::Failed("PAYER_NOT_FOUND"),
    },
    Story {
        tells: "a network that refuses work",
        number: "0270000007",
        provider: "AT",
        answer: (422, "FAILED"),
        ends: End::Failed("RAIL_UNAVAILABLE"),
    },
    Story {
        tells: "a network that never calls back",
        number: "0240000008",
        provider: "MTN",
        answer: (202, "INITIATED"),
        ends: End::Settled,
    },
    Story {
        tells: "a network whose answer is lost",
        number: "0240000013",
        provider: "MTN",
        answer: (202, "INITIATED"),
        ends: End::Settled,
    },
];

/// Takes every payment. Fails with the first thing that was not as specified.
pub async fn run(ready: &Ready) -> anyhow::Result<()> {
    let receiver = Receiver::start().await?;
    let merchant = Merchant::create(&ready.grpc, &receiver.url).await?;
    let api = Api::new(&ready.api, &merchant.api_key)?;
    let shop = Shop {
        api,
        receiver,
        signing_secret: merchant.signing_secret,
    };
    for story in &STORIES {
        shop.tell(story)
            .await
            .with_context(|| format!("the story of {}", story.tells))?;
    }
    shop.pay_with_otp().await.context("the story of an OTP")?;
    shop.create_sessions().await.context("payment sessions")?;
    shop.pay_a_link().await.context("the hosted checkout")?;
    shop.repeat_itself().await.context("an Idempotency-Key")?;
    shop.make_mistakes().await.context("a caller's mistakes")?;
    shop.receiver.check_no_event_came_twice()?;
    println!("\nEverything went as specified.");
    Ok(())
}

/// A verified merchant of the demonstration's own, so that no other merchant's webhook settings
/// change.
struct Merchant {
    api_key: String,
    signing_secret: String,
}

impl Merchant {
    async fn create(grpc: &GrpcAddresses, webhook_url: &str) -> anyhow::Result<Self> {
        let connect = |url: &str| grpc::connect(url, &Tls::default(), Duration::from_secs(10));
        let mut merchants = MerchantOperationsClient::new(connect(&grpc.merchants_operators)?);
        let new = CreateMerchantRequest {
            name: "Demonstration".to_owned(),
            email: "demonstration@example.com".to_owned(),
            email_verified: true,
            kyc_status: KycStatus::Approved.into(),
            accepting_payments: true,
        };
        let merchant = merchants.create_merchant(new).await?.into_inner();
        let request = CreateKeyRequest {
            merchant_id: merchant.merchant_id.clone(),
            label: "demonstration".to_owned(),
        };
        let key = merchants.create_key(request).await?.into_inner();
        let mut webhooks = WebhookOperationsClient::new(connect(&grpc.webhooks_operators)?);
        let request = SetEndpointRequest {
            merchant_id: merchant.merchant_id,
            url: webhook_url.to_owned(),
            events: Vec::new(),
        };
        let endpoint = webhooks.set_endpoint(request).await?.into_inner();
        Ok(Self {
            api_key: key.api_key,
            signing_secret: endpoint.signing_secret,
        })
    }
}

/// A merchant's backend, which calls the API and receives webhooks.
struct Shop {
    api: Api,
    receiver: Receiver,
    signing_secret: String,
}

impl Shop {
    async fn tell(&self, story: &Story) -> anyhow::Result<()> {
        println!("\n=== {}", story.tells);
        let body = json!({
            "amount": 25.5,
            "mobile_number": story.number,
            "provider": story.provider,
            "description": "Order 17",
            "payer_name": "Ama Mensah",
        });
        let answer = self.api.post("/api/v1/payments/charge", &body).await?;
        let (code, status) = story.answer;
        answer.expect(code)?;
        answer.expect_fields(&[
            ("status", json!(status)),
            ("amount", json!(25.5)),
            ("currency", json!("GHS")),
        ])?;
        self.follow(answer.text("reference")?, &story.ends).await
    }

    /// Waits for the end of a charge, and for its event.
    async fn follow(&self, reference: &str, ends: &End) -> anyhow::Result<()> {
        let path = format!("/api/v1/payments/charge/{reference}");
        let charge = self.api.poll(&path, WAIT_MAX, is_final).await?;
        let (status, event_type, session_status) = match ends {
            End::Settled => ("SETTLED", "payment.success", "COMPLETED"),
            End::Failed(_) => ("FAILED", "payment.failed", "FAILED"),
        };
        let reason = match ends {
            End::Settled => Value::Null,
            End::Failed(reason) => json!(reason),
        };
        charge.expect_fields(&[
            ("status", json!(status)),
            ("method", json!("MOBILE_MONEY")),
            ("failure_reason", reason.clone()),
        ])?;
        let display = reference
            .rsplit_once('-')
            .map_or(reference, |(display, _)| display);
        let event = self.receiver.wait_for(display, WAIT_MAX).await?;
        event.print();
        event.verify(&self.signing_secret)?;
        event.expect(event_type, status, &reason)?;
        let session_id = charge.text("session_id")?;
        let path = format!("/api/v1/payments/{session_id}/status");
        let session = self.api.get(&path).await?;
        session.expect(200)?;
        session.expect_fields(&[("status", json!(session_status))])
    }

    async fn pay_with_otp(&self) -> anyhow::Result<()> {
        println!("\n=== a Telecel payer reads out a code, wrong at first");
        let body = json!({ "amount": 10, "mobile_number": "0200000002", "provider": "TELECEL" });
        let answer = self.api.post("/api/v1/payments/charge", &body).await?;
        answer.expect(202)?;
        answer.expect_fields(&[("status", json!("OTP_REQUIRED"))])?;
        let reference = answer.text("reference")?;
        let submit = async |otp: &str| {
            let body = json!({ "reference": reference, "otp": otp });
            self.api
                .post("/api/v1/payments/charge/submit-otp", &body)
                .await
        };
        let wrong = submit("000000").await?;
        wrong.expect(202)?;
        wrong.expect_fields(&[("status", json!("OTP_REQUIRED"))])?;
        let right = submit("123456").await?;
        right.expect(202)?;
        right.expect_fields(&[("status", json!("INITIATED"))])?;
        let again = submit("123456").await?;
        again.expect(409)?;
        again.expect_fields(&[("code", json!("CHARGE_NOT_AWAITING_OTP"))])?;
        self.follow(reference, &End::Settled).await
    }

    async fn create_sessions(&self) -> anyhow::Result<()> {
        println!("\n=== a payment link");
        let body = json!({
            "amount": 99.9,
            "currency": "GHS",
            "description": "Order 18",
            "redirect_url": "https://shop.example.com/thanks",
            "customer_email": "ama@example.com",
        });
        let created = self.api.post("/api/v1/payments/initiate", &body).await?;
        created.expect(201)?;
        created.expect_fields(&[("amount", json!(99.9)), ("currency", json!("GHS"))])?;
        let session_id = created.text("session_id")?;
        ensure!(
            created
                .text("payment_url")?
                .ends_with(&format!("/pay/{session_id}")),
            "payment_url does not lead to the session"
        );
        ensure!(
            created.body["warnings"][0]["code"] == "CUSTOMER_PHONE_OMITTED",
            "no warning for the missing phone number"
        );
        let path = format!("/api/v1/payments/{session_id}/status");
        let read = self.api.get(&path).await?;
        read.expect(200)?;
        read.expect_fields(&[
            ("status", json!("PENDING")),
            ("description", json!("Order 18")),
        ])?;
        println!("\n=== the same by the deprecated address");
        let old = self
            .api
            .post("/api/payments/initiate", &json!({ "amount": 5 }))
            .await?;
        old.expect(201)?;
        old.expect_fields(&[("currency", json!("USD"))])?;
        ensure!(old.header("deprecation").is_some(), "no Deprecation header");
        Ok(())
    }

    async fn pay_a_link(&self) -> anyhow::Result<()> {
        println!("\n=== a payer opens a payment link and fills in its form");
        let body = json!({ "amount": 12.5, "currency": "GHS", "description": "Order 20" });
        let created = self.api.post("/api/v1/payments/initiate", &body).await?;
        created.expect(201)?;
        payer::pay(created.text("payment_url")?, "MTN", "0240000001").await?;
        let path = format!("/api/v1/payments/{}/status", created.text("session_id")?);
        let is_paid = |session: &Value| session["status"] == "COMPLETED";
        let session = self.api.poll(&path, WAIT_MAX, is_paid).await?;
        session.expect_fields(&[("amount", json!(12.5)), ("currency", json!("GHS"))])?;
        let display = session.body["transaction"]["tx_id_display"].as_str();
        let display = display.context("a paid session without its transaction")?;
        let event = self.receiver.wait_for(display, WAIT_MAX).await?;
        event.print();
        event.verify(&self.signing_secret)?;
        event.expect("payment.success", "SETTLED", &Value::Null)
    }

    async fn repeat_itself(&self) -> anyhow::Result<()> {
        println!("\n=== a request repeated with its Idempotency-Key");
        let path = "/api/v1/payments/initiate";
        let body = json!({ "amount": 7.25, "currency": "GHS" });
        let first = self.api.post_with_key(path, &body, "order-19").await?;
        first.expect(201)?;
        let second = self.api.post_with_key(path, &body, "order-19").await?;
        second.expect(201)?;
        ensure!(second.body == first.body, "the second answer is another");
        ensure!(
            second.header("idempotent-replayed") == Some("true"),
            "the second answer does not say that it is a repetition"
        );
        let body = json!({ "amount": 8.25, "currency": "GHS" });
        let other = self.api.post_with_key(path, &body, "order-19").await?;
        other.expect(409)?;
        other.expect_fields(&[("code", json!("IDEMPOTENCY_KEY_REUSED"))])
    }

    async fn make_mistakes(&self) -> anyhow::Result<()> {
        println!("\n=== mistakes");
        let path = "/api/v1/payments/charge";
        let body = json!({ "amount": "25.50", "mobile_number": "12", "provider": "VODAFONE" });
        let answer = self.api.post(path, &body).await?;
        answer.expect(400)?;
        answer.expect_fields(&[("code", json!("VALIDATION_ERROR"))])?;
        let fields = answer.body["fields"].as_array().map_or(0, Vec::len);
        ensure!(fields == 3, "{fields} fields are named, not three");
        let unknown = self
            .api
            .get("/api/v1/payments/charge/TX-0000000000-000000")
            .await?;
        unknown.expect(404)?;
        unknown.expect_fields(&[("code", json!("NOT_FOUND"))])?;
        let keyless = self
            .api
            .get_without_key("/api/v1/payments/charge/TX-1")
            .await?;
        keyless.expect(401)?;
        keyless.expect_fields(&[("code", json!("INVALID_API_KEY"))])
    }
}

/// Whether a charge has ended.
fn is_final(charge: &Value) -> bool {
    charge["status"] == "SETTLED" || charge["status"] == "FAILED"
}
