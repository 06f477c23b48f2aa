//! How MTN describes a payment or a credit in its answer to a query and in its callback.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    credit::{self, Credit, CreditDetails},
    payment::{Payment, State},
    rail::Details,
    story::{Failure, Story},
};

/// The answer to a status query, and the body of a callback.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusBody<'p> {
    amount: Box<RawValue>,
    currency: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    financial_transaction_id: Option<Box<RawValue>>,
    external_id: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payer: Option<Party>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payee: Option<Party>,
    payer_message: &'p str,
    payee_note: &'p str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Party {
    pub party_id_type: String,
    pub party_id: String,
}

impl<'p> StatusBody<'p> {
    pub fn of(payment: &'p Payment) -> Self {
        let variant = Variant::of(payment);
        let (external_id, payer_message, payee_note) = if let Details::Momo {
            external_id,
            payer_message,
            payee_note,
        } = &payment.request.details
        {
            (
                external_id.as_str(),
                payer_message.as_str(),
                payee_note.as_str(),
            )
        } else {
            ("", "", "")
        };
        let (status, reason, transaction) = match payment.state {
            State::Succeeded { .. } => (
                "SUCCESSFUL",
                None,
                Some(variant.number(&payment.number.to_string())),
            ),
            State::Failed { failure, .. } => (
                "FAILED",
                Some(variant.reason(code(failure, payment.story))),
                None,
            ),
            State::Prompted { .. } | State::AwaitingCode | State::Refused => {
                ("PENDING", None, None)
            }
        };
        Self {
            amount: variant.number(&payment.reported().to_major().to_string()),
            currency: payment.request.currency.code(),
            financial_transaction_id: transaction,
            external_id,
            payer: Some(Party::wallet(&payment.request.phone)),
            payee: None,
            payer_message,
            payee_note,
            status,
            reason,
        }
    }
}

impl<'c> StatusBody<'c> {
    /// The same about a credit.
    pub fn of_credit(credit: &'c Credit) -> Self {
        let variant = Variant::of_reference(&credit.request.reference);
        let (external_id, payer_message, payee_note) = match &credit.request.details {
            CreditDetails::Momo {
                external_id,
                payer_message,
                payee_note,
            } => (&**external_id, &**payer_message, &**payee_note),
            CreditDetails::Paystack { .. } | CreditDetails::Hubtel { .. } => ("", "", ""),
        };
        let (status, reason, transaction) = match credit.state {
            credit::State::Credited | credit::State::Reversed => (
                "SUCCESSFUL",
                None,
                Some(variant.number(&credit.number.to_string())),
            ),
            credit::State::Failed(failure) => {
                let code = variant.code_of_credit(failure);
                ("FAILED", Some(variant.reason(code)), None)
            }
            credit::State::Pending | credit::State::Untaken => ("PENDING", None, None),
        };
        Self {
            amount: variant.number(&credit.reported().to_major().to_string()),
            currency: credit.request.currency.code(),
            financial_transaction_id: transaction,
            external_id,
            payer: None,
            payee: Some(Party::wallet(credit.request.payee.account())),
            payer_message,
            payee_note,
            status,
            reason,
        }
    }
}

impl Party {
    /// A wallet, with `phone` in E.164 form.
    fn wallet(phone: &str) -> Self {
        Self {
            party_id_type: "MSISDN".to_owned(),
            party_id: phone.trim_start_matches('+').to_owned(),
        }
    }
}

/// The `reason` code. MTN has two codes for a prompt that timed out; both are used.
fn code(failure: Failure, story: Story) -> &'static str {
    match failure {
        Failure::InsufficientFunds => "NOT_ENOUGH_FUNDS",
        Failure::Declined => "APPROVAL_REJECTED",
        Failure::TimedOut if story == Story::LateMoney => "EXPIRED",
        Failure::TimedOut | Failure::CodeExpired | Failure::InMarkup => {
            "COULD_NOT_PERFORM_TRANSACTION"
        }
        Failure::PayerNotFound => "PAYER_NOT_FOUND",
        Failure::LimitReached => "PAYER_LIMIT_REACHED",
    }
}

/// The choices that the published contract leaves open, made by the reference's last byte.
pub struct Variant(u8);

impl Variant {
    pub fn of(payment: &Payment) -> Self {
        Self::of_reference(&payment.request.reference)
    }

    pub fn of_reference(reference: &str) -> Self {
        let last = reference.get(34..).unwrap_or_default();
        Self(u8::from_str_radix(last, 16).unwrap_or_default())
    }

    /// Whether a callback is a PUT rather than a POST.
    pub fn calls_by_put(&self) -> bool {
        self.0 & 1 == 1
    }

    /// The `reason` code of a credit. MTN has two codes for a payee's limit, one of which may also
    /// mean the float.
    fn code_of_credit(&self, failure: credit::story::Failure) -> &'static str {
        use credit::story::Failure;
        match failure {
            Failure::PayeeNotFound => "PAYEE_NOT_FOUND",
            Failure::PayeeLimitReached if self.0 & 8 == 0 => "PAYEE_LIMIT_REACHED",
            Failure::PayeeLimitReached => "LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED",
            Failure::FloatEmpty => "NOT_ENOUGH_FUNDS",
            Failure::GaveUp => "EXPIRED",
        }
    }

    /// A reason, as a string or an object.
    fn reason(&self, code: &str) -> serde_json::Value {
        if self.0 & 2 == 0 {
            return code.into();
        }
        serde_json::json!({"code": code, "message": "The payment was not completed."})
    }

    /// An amount or a number, as a string or a JSON number.
    fn number(&self, digits: &str) -> Box<RawValue> {
        let token = if self.0 & 4 == 0 {
            format!("\"{digits}\"")
        } else {
            digits.to_owned()
        };
        RawValue::from_string(token).expect("digits and a dot are a JSON token")
    }
}
