//! How Paystack describes a payment: a transaction, in its answers and in its signed webhook.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use serde_json::Value;
use sha2::Sha512;

use crate::{
    payment::{Payment, State},
    rail::Details,
    request::Network,
    story::{Failure, MARKUP},
};

/// The full transaction: verify's answer and the webhook's data.
#[derive(Serialize)]
pub struct Transaction<'p> {
    id: u64,
    domain: &'static str,
    status: &'static str,
    reference: &'p str,
    amount: i64,
    currency: &'static str,
    message: Option<&'static str>,
    gateway_response: &'static str,
    paid_at: Option<String>,
    created_at: String,
    channel: &'static str,
    metadata: &'p Value,
    customer: Customer<'p>,
    authorization: Authorization,
}

#[derive(Serialize)]
struct Customer<'p> {
    email: &'p str,
}

#[derive(Serialize)]
struct Authorization {
    channel: &'static str,
    bank: &'static str,
    country_code: &'static str,
}

impl<'p> Transaction<'p> {
    pub fn of(payment: &'p Payment) -> Self {
        let (status, gateway_response, message, paid_at) = match payment.state {
            State::Succeeded { at } => ("success", "Approved", None, Some(at.to_string())),
            State::Failed { failure, .. } => ("failed", words(failure), Some(words(failure)), None),
            State::Prompted { .. } => ("ongoing", "Waiting for the payer", None, None),
            State::AwaitingCode | State::Refused => {
                ("pending", "Waiting for the payer", None, None)
            }
        };
        let details = &payment.request.details;
        let (email, metadata) = if let Details::Paystack { email, metadata } = details {
            (email.as_str(), metadata)
        } else {
            ("", &Value::Null)
        };
        Self {
            id: payment.number,
            domain: "test",
            status,
            reference: &payment.request.reference,
            amount: payment.reported().minor_units(),
            currency: payment.request.currency.code(),
            message,
            gateway_response,
            paid_at,
            created_at: payment.created_at.to_string(),
            channel: "mobile_money",
            metadata,
            customer: Customer { email },
            authorization: Authorization {
                channel: "mobile_money",
                bank: wallet(payment.request.network),
                country_code: "GH",
            },
        }
    }
}

/// Why a payment failed, in Paystack's words.
pub fn words(failure: Failure) -> &'static str {
    match failure {
        Failure::InsufficientFunds => "The payer has insufficient funds",
        Failure::Declined => "The payer declined the request",
        Failure::TimedOut => "The request timed out before the payer answered",
        Failure::PayerNotFound => "The mobile money account was not found",
        Failure::LimitReached => "The payer has reached the transaction limit",
        Failure::CodeExpired => "The voucher code has expired",
        Failure::InMarkup => MARKUP,
    }
}

fn wallet(network: Network) -> &'static str {
    match network {
        Network::Mtn => "MTN Mobile Money",
        Network::Telecel => "Telecel Cash",
        Network::At => "AT Money",
    }
}

/// The body of the only webhook, `charge.success`.
pub fn webhook_body(payment: &Payment) -> Vec<u8> {
    #[derive(Serialize)]
    struct Webhook<'p> {
        event: &'static str,
        data: Transaction<'p>,
    }
    let webhook = Webhook {
        event: "charge.success",
        data: Transaction::of(payment),
    };
    serde_json::to_vec(&webhook).expect("a transaction has string keys only")
}

/// The value of `x-paystack-signature`: hex HMAC-SHA512 of the raw body.
pub fn signature(secret_key: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha512>::new_from_slice(secret_key.as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}
