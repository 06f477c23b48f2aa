//! How Paystack describes a credit: a transfer, in its answers and in its signed webhooks.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    credit::{Credit, CreditDetails, Payee, State, story::Failure},
    request::Network,
};

/// A transfer, as verify and the webhooks tell it.
#[derive(Serialize)]
pub struct TransferBody<'c> {
    amount: i64,
    currency: &'static str,
    domain: &'static str,
    failures: Option<&'static str>,
    id: u64,
    integration: Value,
    reason: &'c str,
    reference: &'c str,
    source: &'static str,
    status: &'static str,
    transfer_code: String,
    transferred_at: Option<String>,
    recipient: Value,
    session: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    fee_charged: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_response: Option<&'static str>,
    #[serde(rename = "createdAt")]
    created_at: String,
    #[serde(rename = "updatedAt")]
    updated_at: String,
}

impl<'c> TransferBody<'c> {
    pub fn of(credit: &'c Credit) -> Self {
        let request = &credit.request;
        let (reason, code, name) = match &request.details {
            CreditDetails::Paystack {
                reason,
                recipient_code,
                recipient_name,
            } => (&**reason, &**recipient_code, &**recipient_name),
            CreditDetails::Momo { .. } | CreditDetails::Hubtel { .. } => ("", "", ""),
        };
        let (status, response) = match credit.state {
            State::Pending | State::Untaken => ("pending", None),
            State::Credited => ("success", Some("Approved")),
            State::Failed(failure) => ("failed", Some(words(failure))),
            State::Reversed => ("reversed", Some("Reversed by the provider")),
        };
        let was_paid = matches!(credit.state, State::Credited | State::Reversed);
        Self {
            amount: credit.reported().minor_units(),
            currency: request.currency.code(),
            domain: "test",
            failures: None,
            id: credit.number,
            integration: json!({"id": 100_073, "is_live": false, "business_name": "Payments"}),
            reason,
            reference: &request.reference,
            source: "balance",
            status,
            transfer_code: transfer_code(credit),
            transferred_at: was_paid.then(|| credit.updated_at.to_string()),
            recipient: json!({
                "recipient_code": code,
                "type": if request.payee.is_bank() { "ghipss" } else { "mobile_money" },
                "name": name,
                "details": recipient_details(&request.payee),
            }),
            session: json!({"provider": null, "id": null}),
            fee_charged: was_paid.then(|| credit.fee_minor()),
            gateway_response: response,
            created_at: credit.created_at.to_string(),
            updated_at: credit.updated_at.to_string(),
        }
    }

    /// The first reply, which settles nothing: the status may read `success` in a message that
    /// says "queued". The recipient is a number here.
    pub fn first(credit: &'c Credit, says_success: bool) -> Self {
        Self {
            status: if says_success { "success" } else { "pending" },
            recipient: json!(credit.number),
            ..Self::of(credit)
        }
    }
}

fn transfer_code(credit: &Credit) -> String {
    format!("TRF_{}", credit.number)
}

/// Why a credit failed, in Paystack's words.
fn words(failure: Failure) -> &'static str {
    match failure {
        Failure::PayeeNotFound => "The recipient's account was not found",
        Failure::PayeeLimitReached => "The recipient's wallet limit was exceeded",
        Failure::FloatEmpty | Failure::GaveUp => "The provider gave no definite answer",
    }
}

/// `details` of a recipient.
pub fn recipient_details(payee: &Payee) -> Value {
    let account = match payee {
        Payee::Wallet { phone, .. } => format!("0{}", phone.trim_start_matches("+233")),
        Payee::Bank { number, .. } => number.clone(),
    };
    json!({
        "account_number": account,
        "account_name": null,
        "bank_code": bank_code(payee),
        "bank_name": bank_name(payee),
    })
}

/// The code of a wallet's network, or of a bank.
pub fn bank_code(payee: &Payee) -> &str {
    match payee {
        Payee::Wallet { network, .. } => match network {
            Network::Mtn => "MTN",
            Network::Telecel => "VOD",
            Network::At => "ATL",
        },
        Payee::Bank { code, .. } => code,
    }
}

fn bank_name(payee: &Payee) -> &str {
    match payee {
        Payee::Wallet { network, .. } => network.name(),
        Payee::Bank { code, .. } => code,
    }
}

/// The body of the webhook about what a credit is now: `transfer.success`, `transfer.failed` or
/// `transfer.reversed`.
pub fn webhook_body(credit: &Credit) -> Vec<u8> {
    #[derive(Serialize)]
    struct Webhook<'c> {
        event: &'static str,
        data: TransferBody<'c>,
    }
    let event = match credit.state {
        State::Failed(_) => "transfer.failed",
        State::Reversed => "transfer.reversed",
        State::Untaken | State::Pending | State::Credited => "transfer.success",
    };
    let data = TransferBody::of(credit);
    serde_json::to_vec(&Webhook { event, data }).expect("a transfer has string keys only")
}
