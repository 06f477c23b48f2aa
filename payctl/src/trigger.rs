//! `payctl trigger`: makes an event happen in the sandbox, by the number that tells its story.
//!
//! The payments, refunds and payouts are real ones of the merchants' API, which is why only a test
//! key may make them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use proto::webhooks::EventType;
use serde_json::{Value, json};

use crate::{
    merchant_api::{MerchantApi, Unanswered},
    services::{Failure, Services},
    webhook::event_type,
};

/// Longest wait for an answer of the API, which may wait for a network.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Longest wait until what was begun has ended.
const END_MAX: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Pays.
const PAYS: &str = "0240000001";
/// Has not enough money: INSUFFICIENT_FUNDS.
const HAS_NO_MONEY: &str = "0240000003";
/// Pays, and can be refunded.
const TAKES_REFUNDS: &str = "0240000201";
/// Pays, and cannot be refunded: PAYEE_NOT_FOUND.
const TAKES_NO_REFUNDS: &str = "0240000203";

/// How the number of a payout account ends that is paid, and of one that cannot be:
/// PAYEE_NOT_FOUND.
const PAID: &str = "201";
const NOT_PAID: &str = "203";

/// What was triggered, as it ended.
pub async fn run(services: &Services, event: &str) -> Result<Value, Failure> {
    let event_type = event_type(event)?;
    let api = services.merchant_api(ANSWER_MAX)?;
    ensure!(
        api.key.is_test(),
        "only a test key may trigger events: service_sk_test_…"
    );
    match event_type {
        EventType::PaymentSuccess => pay(&api, PAYS, "SETTLED").await,
        EventType::PaymentFailed => pay(&api, HAS_NO_MONEY, "FAILED").await,
        EventType::RefundSuccess => refund(&api, TAKES_REFUNDS, "COMPLETED").await,
        EventType::RefundFailed => refund(&api, TAKES_NO_REFUNDS, "FAILED").await,
        EventType::PayoutSuccess => payout(&api, "COMPLETED", PAID).await,
        EventType::PayoutFailed => payout(&api, "FAILED", NOT_PAID).await,
        EventType::EndpointTest => {
            Ok(post(&api, "/api/v1/webhook-endpoint/test", &json!({})).await?)
        }
        EventType::Unspecified => bail!("{event} is of a newer version"),
    }
}

async fn pay(api: &MerchantApi, number: &str, ends: &str) -> Result<Value, Failure> {
    let body = json!({ "amount": 25.5, "mobile_number": number, "provider": "MTN" });
    let charge = post(api, "/api/v1/payments/charge", &body).await?;
    let reference = text(&charge, "reference")?;
    let path = format!("/api/v1/payments/charge/{reference}");
    ended_as(ends, api, &path).await
}

async fn refund(api: &MerchantApi, number: &str, ends: &str) -> Result<Value, Failure> {
    let charge = pay(api, number, "SETTLED").await?;
    let reference = text(&charge, "reference")?;
    let path = format!("/api/v1/payments/charge/{reference}/refunds");
    let refund = post(api, &path, &json!({})).await?;
    let refund_id = text(&refund, "refund_id")?;
    ended_as(ends, api, &format!("/api/v1/refunds/{refund_id}")).await
}

/// Asks for a payout. The number of the merchant's payout account decides how it ends, and only the
/// payout shows it.
async fn payout(api: &MerchantApi, ends: &str, number_ends: &str) -> Result<Value, Failure> {
    let payout = post(api, "/api/v1/payouts", &json!({ "amount": 1 })).await?;
    let payout_id = text(&payout, "payout_id")?;
    let account = text(&payout["destination"], "account")?;
    let ended = ended_as(ends, api, &format!("/api/v1/payouts/{payout_id}")).await;
    ended.with_context(|| {
        format!(
            "the payout account decides how a payout ends: set one whose number ends in \
             {number_ends} for this event, instead of {account}"
        )
    })
}

async fn post(api: &MerchantApi, path: &str, body: &Value) -> Result<Value, Failure> {
    let answer = api.post(path, body).await;
    answer.map_err(|unanswered| unanswered.why)
}

/// Reads it until it has ended, and checks that it ended as it should.
async fn ended_as(ends: &str, api: &MerchantApi, path: &str) -> Result<Value, Failure> {
    let began = Instant::now();
    loop {
        let read: Result<Value, _> = api.get(path).await;
        let wait = match read {
            Ok(now) if now["status"] == ends => return Ok(now),
            Ok(now) => {
                let status = text(&now, "status")?;
                let is_open = matches!(status, "INITIATED" | "PENDING" | "PROCESSING");
                ensure!(is_open, "{path} ended {status}, not {ends}");
                LOOK_AGAIN
            }
            Err(Unanswered {
                again_after: Some(again_after),
                ..
            }) => again_after,
            Err(Unanswered { why, .. }) => return Err(why),
        };
        ensure!(began.elapsed() < END_MAX, "{path} has not ended yet");
        tokio::time::sleep(wait).await;
    }
}

fn text<'a>(answer: &'a Value, name: &str) -> Result<&'a str, Failure> {
    answer[name]
        .as_str()
        .with_context(|| format!("an answer without {name}"))
}
