//! How Hubtel describes a payment or a credit: in first answers, in answers to queries, and in
//! callbacks.

use chassis::{clock::Timestamp, money::Money};
use serde_json::{Number, Value, json};
use uuid::Uuid;

use crate::{
    credit::{self, Credit, CreditDetails, Payee, story::Story as PayeeStory},
    payment::{Payment, State},
    rail::Details,
    request::Network,
    story::{Failure, MARKUP, Story},
};

/// The code of an answer or a callback.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Succeeded,
    Accepted,
    /// The payer's failure, or the processor's; the description says which.
    Failed,
    NotRegistered,
    Invalid,
    FeesNotSet,
    FloatEmpty,
    NotAuthorized,
    ChannelNotPermitted,
    /// One that no document has.
    Unheard,
}

impl Code {
    pub fn digits(self) -> &'static str {
        match self {
            Self::Succeeded => "0000",
            Self::Accepted => "0001",
            Self::Failed => "2001",
            Self::NotRegistered => "3050",
            Self::Invalid => "4000",
            Self::FeesNotSet => "4070",
            Self::FloatEmpty => "4075",
            Self::NotAuthorized => "4101",
            Self::ChannelNotPermitted => "4103",
            Self::Unheard => "7099",
        }
    }

    pub fn message(self) -> &'static str {
        match self {
            Self::Succeeded => "success",
            Self::Accepted => "Transaction pending. Expect callback request for final state",
            Self::Failed => "failed",
            Self::NotRegistered => "The number is not registered on the channel",
            Self::Invalid => "The request is not valid",
            Self::FeesNotSet => "Fees are not set for this account",
            Self::FloatEmpty => "The prepaid account holds too little",
            Self::NotAuthorized => "The key or the account is not the one expected",
            Self::ChannelNotPermitted => "The channel is not permitted for this account",
            Self::Unheard => "Deferred",
        }
    }
}

/// The answer to a request to receive money.
pub fn first_answer(payment: &Payment, code: Code) -> Value {
    let mut data = data(payment, payment.asked());
    data["DeliveryFee"] = number(Money::new(0, payment.request.currency));
    let body = json!({"Message": code.message(), "ResponseCode": code.digits(), "Data": data});
    spelt(body, is_spelt_otherwise(payment))
}

/// The answer to a query. It calls unpaid whatever is not paid, for ever.
pub fn status_answer(payment: &Payment) -> Value {
    let request = &payment.request;
    let amount = payment.reported();
    let is_paid = matches!(payment.state, State::Succeeded { .. });
    let body = json!({
        "message": "Successful",
        "responseCode": "0000",
        "data": {
            "date": payment.created_at.to_string(),
            "status": if is_paid { "Paid" } else { "Unpaid" },
            "transactionId": transaction_id(payment.number),
            "externalTransactionId": is_paid.then(|| payment.number.to_string()),
            "paymentMethod": "mobilemoney",
            "clientReference": reference(&request.reference, is_spelt_otherwise(payment)),
            "currencyCode": null,
            "amount": number(amount),
            "charges": number(charges(&request.reference, amount)),
            "amountAfterCharges": number(amount),
            "isFulfilled": null,
        },
    });
    spelt(body, is_spelt_otherwise(payment))
}

/// The body of the callback about what a payment is now.
pub fn callback_body(payment: &Payment) -> Vec<u8> {
    let mut data = data(payment, payment.reported());
    let is_paid = matches!(payment.state, State::Succeeded { .. });
    data["ExternalTransactionId"] = match is_paid {
        true => payment.number.to_string().into(),
        false => "".into(),
    };
    data["OrderId"] = transaction_id(payment.number).into();
    data["PaymentDate"] = payment.updated_at.to_string().into();
    let code = match is_paid {
        true => Code::Succeeded,
        false => Code::Failed,
    };
    let body = json!({"ResponseCode": code.digits(), "Message": code.message(), "Data": data});
    in_bytes(&spelt(body, is_spelt_otherwise(payment)))
}

fn data(payment: &Payment, amount: Money) -> Value {
    let request = &payment.request;
    let charges = charges(&request.reference, amount);
    let charged = amount.minor_units().saturating_add(charges.minor_units());
    let description = match (payment.state, &request.details) {
        (State::Failed { failure, .. }, _) => words(failure),
        (_, Details::Hubtel { description }) => description,
        (_, Details::Momo { .. } | Details::Paystack { .. }) => "",
    };
    json!({
        "TransactionId": transaction_id(payment.number),
        "Description": description,
        "ClientReference": reference(&request.reference, is_spelt_otherwise(payment)),
        "Amount": number(amount),
        "Charges": number(charges),
        "AmountAfterCharges": number(amount),
        "AmountCharged": number(Money::new(charged, amount.currency())),
    })
}

fn is_spelt_otherwise(payment: &Payment) -> bool {
    payment.story == Story::SpeltOtherwise
}

/// What the payer pays on top: 2 % or nothing, by the reference's last character. The book is about
/// the amount without it.
fn charges(reference: &str, amount: Money) -> Money {
    let is_odd = reference.bytes().last().is_some_and(|byte| byte & 1 == 1);
    let minor_units = if is_odd { amount.minor_units() / 50 } else { 0 };
    Money::new(minor_units, amount.currency())
}

/// Why a payment failed, in Hubtel's words.
fn words(failure: Failure) -> &'static str {
    match failure {
        Failure::InsufficientFunds => "The payer has insufficient funds",
        Failure::Declined => "The payer declined the transaction",
        Failure::TimedOut => "USSD session timeout: the request timed out",
        Failure::PayerNotFound => "The account holder with this number was not found",
        Failure::LimitReached => "The amount exceeds the payer's transaction limit",
        Failure::CodeExpired => "The transaction failed",
        Failure::InMarkup => MARKUP,
    }
}

/// The answer to a request to send money. It has no message.
pub fn first_answer_of_credit(credit: &Credit) -> Value {
    let mut data = data_of_credit(credit, credit.request.amount_minor);
    data["AmountDebited"] = number(Money::new(0, credit.request.currency));
    data["ExternalTransactionId"] = "".into();
    let body = json!({"ResponseCode": Code::Accepted.digits(), "Data": data});
    spelt(body, is_credit_spelt_otherwise(credit))
}

/// The answer to a query about a credit.
pub fn status_answer_of_credit(credit: &Credit) -> Value {
    let request = &credit.request;
    let otherwise = is_credit_spelt_otherwise(credit);
    let (code, word, failure) = match credit.state {
        credit::State::Untaken | credit::State::Pending => ("pending", "pending", None),
        credit::State::Credited | credit::State::Reversed => ("success", "success", None),
        credit::State::Failed(failure) => {
            let (code, words) = failed(failure);
            (code.digits(), "failed", Some(words))
        }
    };
    let channel = match request.payee {
        Payee::Wallet { network, .. } => channel(network),
        Payee::Bank { .. } => "",
    };
    let mut body = json!({
        "ResponseCode": code,
        "Data": {
            "TransactionId": transaction_id(credit.number),
            "networkTransactionId": credit.number.to_string(),
            "Amount": number(credit.reported()),
            "Fees": number(Money::new(credit.fee_minor(), request.currency)),
            "ClientReference": reference(&request.reference, otherwise),
            "Channel": channel,
            "CustomerNumber": request.payee.account().trim_start_matches('+'),
            "transactionStatus": word,
            "CreatedAt": without_zone(credit.created_at),
        },
    });
    // Documented nowhere. Without these words, the stories of payees would all end for one reason.
    if let Some(words) = failure {
        body["Message"] = words.into();
    }
    spelt(body, otherwise)
}

/// The body of the callback about what a credit is now. A failed one says an amount debited too,
/// which is evidence of nothing.
pub fn callback_body_of_credit(credit: &Credit) -> Vec<u8> {
    let amount = credit.reported();
    let mut data = data_of_credit(credit, amount.minor_units());
    data["AmountDebited"] = number(amount);
    data["ExternalTransactionId"] = credit.number.to_string().into();
    let code = match credit.state {
        credit::State::Failed(failure) => {
            let (code, words) = failed(failure);
            data["Description"] = words.into();
            code
        }
        _ => Code::Succeeded,
    };
    let body = json!({"ResponseCode": code.digits(), "Data": data});
    in_bytes(&spelt(body, is_credit_spelt_otherwise(credit)))
}

fn is_credit_spelt_otherwise(credit: &Credit) -> bool {
    credit.story == PayeeStory::SpeltOtherwise
}

fn data_of_credit(credit: &Credit, amount_minor: i64) -> Value {
    let request = &credit.request;
    let otherwise = is_credit_spelt_otherwise(credit);
    let description = match &request.details {
        CreditDetails::Hubtel { description } => &**description,
        CreditDetails::Momo { .. } | CreditDetails::Paystack { .. } => "",
    };
    json!({
        "TransactionId": transaction_id(credit.number),
        "Description": description,
        "ClientReference": reference(&request.reference, otherwise),
        "Amount": number(Money::new(amount_minor, request.currency)),
        "Charges": number(Money::new(credit.fee_minor(), request.currency)),
        "Meta": null,
        "RecipientName": null,
    })
}

/// The code and the words of a credit's failure.
fn failed(failure: credit::story::Failure) -> (Code, &'static str) {
    use credit::story::Failure;
    match failure {
        Failure::PayeeNotFound => (Code::Failed, "The recipient's account was not found"),
        Failure::PayeeLimitReached => (Code::Failed, "The recipient's wallet limit was reached"),
        Failure::FloatEmpty => (Code::FloatEmpty, Code::FloatEmpty.message()),
        Failure::GaveUp => (Code::Failed, "The provider gave no definite answer"),
    }
}

fn channel(network: Network) -> &'static str {
    match network {
        Network::Mtn => "mtn-gh",
        Network::Telecel => "vodafone-gh",
        Network::At => "tigo-gh",
    }
}

/// Hubtel's own id, of 32 hexadecimal digits.
fn transaction_id(number: u64) -> String {
    Uuid::from_u64_pair(0x7fd0_1221_0000_4000, number)
        .simple()
        .to_string()
}

/// Such as `2021-08-23 11:31:06`.
fn without_zone(at: Timestamp) -> String {
    let text = at.to_string().replacen('T', " ", 1);
    text.split('.').next().unwrap_or_default().to_owned()
}

/// A client's reference as it comes back. Spelt otherwise, a UUID has upper-case digits and dashes.
fn reference(given: &str, otherwise: bool) -> String {
    if !otherwise {
        return given.to_owned();
    }
    let uuid = Uuid::try_parse(given).map(|uuid| uuid.hyphenated().to_string());
    uuid.unwrap_or_else(|_| given.to_owned()).to_uppercase()
}

/// A body with its keys as documented or, otherwise, with every other letter large.
fn spelt(body: Value, otherwise: bool) -> Value {
    match body {
        Value::Object(members) if otherwise => {
            let members = members.into_iter();
            let spelt = members.map(|(key, value)| (other_cases(&key), spelt(value, otherwise)));
            Value::Object(spelt.collect())
        }
        body => body,
    }
}

fn other_cases(key: &str) -> String {
    let letters = key.chars().enumerate();
    let letters = letters.map(|(index, letter)| match index % 2 {
        0 => letter.to_ascii_lowercase(),
        _ => letter.to_ascii_uppercase(),
    });
    letters.collect()
}

/// An amount as a JSON number.
pub fn number(money: Money) -> Value {
    let text = money.to_major().to_string();
    let number: Number = text.parse().expect("a decimal is a JSON number");
    Value::Number(number)
}

fn in_bytes(body: &Value) -> Vec<u8> {
    serde_json::to_vec(body).expect("a body has string keys only")
}
