//! Events and the exact bytes that merchants receive (spec §6.1).
//!
//! A body is rendered once, when the event is accepted, and never again. Amounts are JSON numbers
//! with the decimals of their currency, written from integers.

use std::str::FromStr;

use chassis::{
    clock::Timestamp,
    ids::{EventId, MerchantId},
    money::Money,
};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::FromRow;

chassis::closed_list! {
    /// What happened (spec §6.1), with its name in the envelope.
    #[derive(PartialOrd, Ord)]
    pub enum EventType: "an event type" {
        PaymentSuccess = "payment.success",
        PaymentFailed = "payment.failed",
        PayoutSuccess = "payout.success",
        PayoutFailed = "payout.failed",
        /// This and the next one go only to endpoints that name them.
        RefundSuccess = "refund.success",
        RefundFailed = "refund.failed",
        /// Asked for by the merchant, to see whether its endpoint works; sent whatever it names.
        EndpointTest = "endpoint.test",
    }
}

chassis::text_column!(EventType);

impl EventType {
    /// The events of the specification, which an endpoint without a list gets.
    pub const SPECIFIED: [Self; 4] = [
        Self::PaymentSuccess,
        Self::PaymentFailed,
        Self::PayoutSuccess,
        Self::PayoutFailed,
    ];
}

/// An event for a merchant.
#[derive(Debug)]
pub struct Event {
    pub event_id: EventId,
    pub merchant_id: MerchantId,
    pub event_type: EventType,
    pub created_at: Timestamp,
    pub data: Data,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Data {
    Payment(Payment),
    Payout(Payout),
    Refund(Refund),
    Test(Test),
}

/// `data` of payment events. Merchants get the fields in this order.
#[derive(Debug, Serialize)]
pub struct Payment {
    pub tx_id_display: Option<String>,
    pub session_id: String,
    pub amount: Number,
    pub currency: &'static str,
    pub method: Option<String>,
    pub status: String,
    pub failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    pub session_status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_amount: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_currency: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Number>,
}

/// `data` of payout events.
#[derive(Debug, Serialize)]
pub struct Payout {
    pub payout_id: String,
    pub amount: Number,
    pub currency: &'static str,
    pub method: String,
    pub status: String,
    pub destination: Destination,
    pub failure_reason: Option<String>,
    pub created_at: String,
    pub completed_at: Option<String>,
}

/// `data` of refund events.
#[derive(Debug, Serialize)]
pub struct Refund {
    pub refund_id: String,
    pub reference: String,
    pub tx_id_display: String,
    pub session_id: String,
    pub amount: Number,
    pub currency: &'static str,
    pub method: String,
    pub status: String,
    pub failure_reason: Option<String>,
    pub failure_message: Option<String>,
    pub created_at: String,
    pub completed_at: Option<String>,
    /// Whether it was paid from the merchant's balance, and not from what never got there.
    pub from_balance: bool,
}

/// `data` of a test event.
#[derive(Debug, Serialize)]
pub struct Test {
    pub message: &'static str,
}

impl Test {
    /// What every test event says.
    pub const MESSAGE: &'static str = "This is a test event. No money moved.";
}

/// Where a payout goes.
#[derive(Debug, Serialize)]
pub struct Destination {
    #[serde(rename = "type")]
    pub kind: String,
    pub provider: String,
    /// Masked by the sender.
    pub account: String,
}

/// A decimal as a JSON number, digit for digit.
#[derive(Debug, Serialize)]
pub struct Number(Box<RawValue>);

/// The text is not a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a decimal")]
pub struct NotADecimal;

/// Major units with the currency's decimals: 25.50.
impl From<Money> for Number {
    fn from(money: Money) -> Self {
        let text = money.to_major().to_string();
        Self(RawValue::from_string(text).expect("a decimal is a JSON number"))
    }
}

impl FromStr for Number {
    type Err = NotADecimal;

    fn from_str(text: &str) -> Result<Self, NotADecimal> {
        let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        if !text.bytes().all(is_plain) {
            return Err(NotADecimal);
        }
        let number = RawValue::from_string(text.to_owned());
        number.map(Self).map_err(|_| NotADecimal)
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: &'static str,
    created_at: String,
    data: &'a Data,
}

/// An event with the body of every attempt to deliver it.
#[derive(Clone, Debug)]
pub struct AcceptedEvent {
    pub event_id: EventId,
    pub merchant_id: MerchantId,
    pub event_type: EventType,
    pub created_at: Timestamp,
    pub body: String,
    /// The trace in which it was published.
    pub traceparent: Option<String>,
}

/// An event in its merchant's feed.
#[derive(Clone, Debug, FromRow)]
pub struct FeedEvent {
    pub sequence: i64,
    pub event_id: EventId,
    /// The exact bytes of its webhooks.
    pub body: String,
}

/// A part of a merchant's feed.
#[derive(Debug)]
pub struct FeedPage {
    pub events: Vec<FeedEvent>,
    /// The number of its newest event; 0 for none.
    pub last_sequence: i64,
}

impl Event {
    /// Renders its body, once for all attempts.
    pub fn accept(self, traceparent: Option<String>) -> AcceptedEvent {
        AcceptedEvent {
            body: self.body(),
            event_id: self.event_id,
            merchant_id: self.merchant_id,
            event_type: self.event_type,
            created_at: self.created_at,
            traceparent,
        }
    }

    /// The body of every attempt to deliver this event.
    pub fn body(&self) -> String {
        let envelope = Envelope {
            id: self.event_id.as_str(),
            event_type: self.event_type.code(),
            created_at: self.created_at.to_string(),
            data: &self.data,
        };
        serde_json::to_string(&envelope).expect("texts and numbers are JSON")
    }
}
