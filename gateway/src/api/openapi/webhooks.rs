//! What merchants are sent, as the document describes it. webhooks-svc makes the bodies by types of
//! its own; a test of the whole set holds a real delivery against this page.

#![expect(dead_code, reason = "types that are only described")]

use serde_json::json;
use utoipa::ToSchema;

use super::{json::Json, schemas};

/// A payment settled, or failed.
#[derive(ToSchema)]
pub struct PaymentEvent {
    /// The same in every delivery of this event. Ignore an event that you know already.
    #[schema(pattern = "^evt_[0-9A-HJKMNP-TV-Z]{26}$")]
    id: String,
    #[schema(rename = "type")]
    kind: PaymentEventType,
    #[schema(value_type = schemas::Timestamp)]
    created_at: (),
    data: PaymentEventData,
}

/// payment.success: the payment settled, and the money is on the merchant's balance.
/// payment.failed: it failed, or its session expired unpaid.
#[derive(ToSchema)]
enum PaymentEventType {
    #[schema(rename = "payment.success")]
    Success,
    #[schema(rename = "payment.failed")]
    Failed,
}

#[derive(ToSchema)]
struct PaymentEventData {
    /// Null where the session expired: each try to pay it had an event of its own.
    #[schema(value_type = Option<schemas::TxIdDisplay>, required = true)]
    tx_id_display: (),
    #[schema(value_type = schemas::SessionId)]
    session_id: (),
    #[schema(value_type = schemas::Amount)]
    amount: (),
    #[schema(value_type = schemas::Currency)]
    currency: (),
    /// Null where the session expired, like tx_id_display.
    #[schema(value_type = Option<schemas::Method>, required = true)]
    method: (),
    status: PaymentOutcome,
    /// Null unless the status is FAILED.
    #[schema(value_type = Option<schemas::FailureReason>, required = true)]
    failure_reason: (),
    /// The same for people; left out unless the status is FAILED.
    #[schema(value_type = String, required = false)]
    failure_message: (),
    /// The session's status once this event is true.
    session_status: SessionOutcome,
    /// What the payer was debited, where that is another currency than the session's; otherwise
    /// left out, like the two that follow.
    #[schema(value_type = schemas::Amount, required = false)]
    settled_amount: (),
    #[schema(value_type = schemas::Currency, required = false)]
    settled_currency: (),
    /// Units of the settled currency for one of the session's.
    #[schema(value_type = schemas::Rate, required = false)]
    rate: (),
}

#[derive(ToSchema)]
#[schema(rename_all = "UPPERCASE")]
enum PaymentOutcome {
    Settled,
    Failed,
}

#[derive(ToSchema)]
#[schema(rename_all = "UPPERCASE")]
enum SessionOutcome {
    Completed,
    Failed,
    Pending,
    Expired,
}

/// A settlement to the merchant's payout account completed, or was declined.
#[derive(ToSchema)]
pub struct PayoutEvent {
    /// The same in every delivery of this event. Ignore an event that you know already.
    #[schema(pattern = "^evt_[0-9A-HJKMNP-TV-Z]{26}$")]
    id: String,
    #[schema(rename = "type")]
    kind: PayoutEventType,
    #[schema(value_type = schemas::Timestamp)]
    created_at: (),
    data: PayoutEventData,
}

/// payout.success: the money arrived. payout.failed: it is back on the merchant's balance.
#[derive(ToSchema)]
enum PayoutEventType {
    #[schema(rename = "payout.success")]
    Success,
    #[schema(rename = "payout.failed")]
    Failed,
}

#[derive(ToSchema)]
struct PayoutEventData {
    #[schema(pattern = "^PO-")]
    payout_id: String,
    #[schema(value_type = schemas::Amount)]
    amount: (),
    #[schema(value_type = schemas::Currency)]
    currency: (),
    #[schema(value_type = schemas::Method)]
    method: (),
    status: PayoutOutcome,
    destination: PayoutDestination,
    /// Null unless the status is FAILED.
    #[schema(required = true)]
    failure_reason: Option<String>,
    #[schema(value_type = schemas::Timestamp)]
    created_at: (),
    /// Null unless the status is COMPLETED.
    #[schema(value_type = Option<schemas::Timestamp>, required = true)]
    completed_at: (),
}

#[derive(ToSchema)]
#[schema(rename_all = "UPPERCASE")]
enum PayoutOutcome {
    Completed,
    Failed,
}

/// Where the money went.
#[derive(ToSchema)]
struct PayoutDestination {
    #[schema(rename = "type")]
    kind: String,
    provider: String,
    /// Masked.
    account: String,
}

/// The events, each with its example.
pub fn all(examples: &Json) -> Json {
    let mut webhooks = Json::Object(Default::default());
    for (name, schema, summary, description) in [
        (
            "payment.success",
            "PaymentEvent",
            "A payment settled",
            "The money is on the merchant's balance. Sent once a charge is SETTLED.",
        ),
        (
            "payment.failed",
            "PaymentEvent",
            "A payment failed or expired",
            "Sent for every charge that ends FAILED, one that was rejected outright included, and \
             for a session that expires unpaid; then failure_reason is SESSION_EXPIRED, and \
             tx_id_display and method are null.",
        ),
        (
            "payout.success",
            "PayoutEvent",
            "A payout completed",
            "A settlement to the merchant's payout account completed.",
        ),
        (
            "payout.failed",
            "PayoutEvent",
            "A payout was declined",
            "A settlement was declined; the money is back on the merchant's balance.",
        ),
    ] {
        let mut body = Json::from(json!({
            "required": true,
            "content": { "application/json": {
                "schema": { "$ref": format!("#/components/schemas/{schema}") },
            } },
        }));
        let example = examples.get(name).expect("every event has an example");
        body.member("content")
            .member("application/json")
            .set("example", example.clone());
        let post = webhooks.member(name).member("post");
        post.set("tags", json!(["Webhooks"]));
        post.set("summary", json!(summary));
        post.set("description", json!(description));
        post.set("operationId", json!(name.replace('.', "_")));
        // Deliveries carry no key: their signature is what authenticates them.
        post.set("security", json!([]));
        post.set("parameters", headers());
        post.set("requestBody", body);
        post.set(
            "responses",
            json!({ "2XX": {
                "description": "Received. Answer within 10 seconds and do the work afterwards. \
                    Anything else, a redirect included, is a failure and is tried again after 1 \
                    and 5 minutes, half an hour, 2, 8 and 24 hours.",
            } }),
        );
    }
    webhooks
}

fn headers() -> Json {
    let header = |name, description, schema| {
        json!({ "name": name, "in": "header", "required": true, "description": description,
            "schema": schema })
    };
    Json::from(json!([
        header(
            "X-Service-Signature",
            "`t=<unix seconds>,v1=<hex>`. `v1` is the HMAC-SHA256 of `<t>.<raw body>`, keyed with \
             your signing secret, in lower-case hex. Compare in constant time, and reject a \
             delivery whose `t` is more than 300 seconds from your clock. For 24 hours after a \
             rotation of the secret there are two `v1`; one that is right is enough.",
            json!({ "type": "string", "pattern": "^t=[0-9]+(,v1=[0-9a-f]{64})+$" }),
        ),
        header(
            "X-Service-Event-Id",
            "The event's `id`.",
            json!({ "type": "string", "pattern": "^evt_" }),
        ),
        header(
            "X-Service-Delivery-Id",
            "The same in every attempt to deliver this event.",
            json!({ "type": "string", "pattern": "^dlv_" }),
        ),
        header(
            "X-Service-Attempt",
            "Number of the attempt, from 1.",
            json!({ "type": "string", "pattern": "^[1-9][0-9]*$" }),
        ),
    ]))
}
