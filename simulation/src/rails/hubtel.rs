//! Hubtel's Receive Money on the wire, and what its products share. Everything has a code: 4xx too.

pub mod transfers;

use axum::{
    Router,
    body::Bytes,
    extract::{Path, Query, State},
    response::Response,
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::money::{Currency, Money};
use http::{HeaderMap, Uri};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};
use uuid::Uuid;

use super::{
    Rail, RailReply, Rails, Word,
    book::{DebitRequest, View},
    life::Odd,
    payment::PayerNetwork,
    wire,
};

const CHANNELS: [&str; 3] = ["mtn-gh", "vodafone-gh", "tigo-gh"];

pub fn routes(rails: Rails) -> Router {
    let receive_path = "/merchantaccount/merchants/{account}/receive/mobilemoney";
    Router::new()
        .route(receive_path, post(receive))
        .route("/transactions/{account}/status", get(status))
        .merge(transfers::routes())
        .with_state(rails)
}

/// How one message spells keys, which nobody may rely on, and our reference.
#[derive(Clone, Copy)]
struct Spelling {
    keys: KeySpelling,
    reference: u64,
}

#[derive(Clone, Copy)]
enum KeySpelling {
    AsDocumented,
    FirstLower,
    FirstUpper,
    Lower,
    Upper,
}

impl Spelling {
    fn draw(rails: &Rails) -> Self {
        let mut choices = rails.credits_mut().draw("spellings");
        Self {
            keys: choices.weighted(&[
                (4, KeySpelling::AsDocumented),
                (1, KeySpelling::FirstLower),
                (1, KeySpelling::FirstUpper),
                (1, KeySpelling::Lower),
                (1, KeySpelling::Upper),
            ]),
            reference: choices.below(6),
        }
    }

    fn key(self, key: &str) -> String {
        let (first, rest) = key.split_at(key.len().min(1));
        match self.keys {
            KeySpelling::AsDocumented => key.to_owned(),
            KeySpelling::FirstLower => first.to_ascii_lowercase() + rest,
            KeySpelling::FirstUpper => first.to_ascii_uppercase() + rest,
            KeySpelling::Lower => key.to_ascii_lowercase(),
            KeySpelling::Upper => key.to_ascii_uppercase(),
        }
    }

    fn body(self, value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let spelled = fields.map(|(key, value)| (self.key(&key), self.body(value)));
                Value::Object(spelled.collect::<Map<_, _>>())
            }
            value => value,
        }
    }

    /// Our reference, which the book spells with dashes.
    fn reference(self, reference: &str) -> String {
        let bare = reference.replace('-', "");
        match self.reference {
            0 => reference.to_owned(),
            1 => bare.to_ascii_uppercase(),
            2 => reference.to_ascii_uppercase(),
            _ => bare,
        }
    }
}

/// A reference as the book spells it. `None` if it is not one that we have ever sent: 32 hexadecimal
/// digits in lower case.
fn reference(sent: &str) -> Option<String> {
    let is_ours = sent.len() == 32 && !sent.contains(|c: char| c.is_ascii_uppercase());
    let reference: Option<Uuid> = sent.parse().ok().filter(|_| is_ours);
    reference.map(|reference| reference.to_string())
}

/// An amount in major units, as a JSON number.
fn number(minor: i64) -> Value {
    let major = Money::new(minor, Currency::GHS).to_major().to_string();
    serde_json::from_str(&major).expect("digits are JSON")
}

/// The amount of a request. `None` if it has parts of a pesewa, or is not positive.
fn amount(sent: &Number) -> Option<Money> {
    let amount = Decimal::from_str_exact(&sent.to_string()).ok()?;
    let amount = Money::from_major(amount, Currency::GHS).ok()?;
    amount.is_positive().then_some(amount)
}

/// A wallet's number in E.164.
fn phone(sent: &str) -> Option<String> {
    let is_number = sent.starts_with("233") && sent.len() == 12;
    let is_number = is_number && sent.chars().all(|c| c.is_ascii_digit());
    is_number.then(|| format!("+{sent}"))
}

fn is_description(sent: &str) -> bool {
    !sent.is_empty() && !sent.contains(['&', '%', '^'])
}

/// Where to call back.
fn callback(sent: &str) -> Option<String> {
    let uri: Uri = sent.parse().ok()?;
    uri.host()?;
    Some(uri.path_and_query()?.to_string())
}

fn answer(rails: &Rails, status: u16, body: Value) -> Response {
    wire::json(status, Spelling::draw(rails).body(body).to_string())
}

/// The refusal of a call that is not ours, or is about an account that is not.
fn refusal(rails: &Rails, headers: &HeaderMap, is_account: bool) -> Option<Response> {
    let settings = &rails.0.settings;
    let (id, key) = (&settings.hubtel_api_id, &settings.hubtel_api_key);
    let expected = BASE64_STANDARD.encode(format!("{id}:{key}"));
    if wire::credentials(headers, "Basic ") != expected {
        return Some(refused(rails, "401 Unauthorized", 0));
    }
    (!is_account).then(|| refused(rails, "4101 The account does not match", 0))
}

/// A documented refusal: a code, or an HTTP status, and words. `shape` decides what the document
/// leaves open.
fn refused(rails: &Rails, words: &str, shape: u64) -> Response {
    let (code, description) = words.split_once(' ').unwrap_or((words, ""));
    match code {
        "401" => answer(rails, 401, json!({"Message": description})),
        "403" => wire::json(403, String::new()),
        _ => {
            let status = if shape & 64 == 0 { 200 } else { 400 };
            let body = if shape & 128 == 0 {
                json!({"Message": description, "ResponseCode": code, "Data": null})
            } else {
                let data = json!({"Description": description});
                json!({"Message": "failed", "ResponseCode": code, "Data": data})
            };
            answer(rails, status, body)
        }
    }
}

/// An answer that says nothing: also a code that nobody knows, at any status.
fn odd(rails: &Rails, odd: Odd) -> Response {
    let mut choices = rails.credits_mut().draw("odd codes");
    let is_coded = match odd {
        Odd::InternalError => true,
        Odd::BadGateway => choices.chance(500),
        _ => false,
    };
    if !is_coded {
        return wire::odd(odd, "");
    }
    let coded = [(500, "5000"), (200, "0005"), (400, "0005"), (200, "7042")];
    let coded = coded.into_iter().chain([(400, "7042"), (200, "5000")]);
    let coded: Vec<_> = coded.map(|said| (1, said)).collect();
    let (status, code) = choices.weighted(&coded);
    let body = json!({"Message": "Please contact support", "ResponseCode": code, "Data": null});
    answer(rails, status, body)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Receive {
    customer_msisdn: String,
    channel: String,
    amount: Number,
    #[serde(alias = "PrimaryCallbackURL")]
    primary_callback_url: String,
    description: String,
    client_reference: String,
}

async fn receive(
    State(rails): State<Rails>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let is_account = account == rails.0.settings.hubtel_pos_sales_id;
    if let Some(refusal) = refusal(&rails, &headers, is_account) {
        return refusal;
    }
    let Some(asked) = read(&body) else {
        return refused(&rails, "4000 Validation errors", 0);
    };
    let (word, view) = match rails.request(asked).await {
        RailReply::Odd(said) => return odd(&rails, said),
        RailReply::Says(word, view) => (word, view),
    };
    let code = match word {
        Word::Refused(words) => return refused(&rails, words, view.shape),
        Word::Duplicate409 => return refused(&rails, "4000 Validation errors", view.shape),
        Word::Success => "0000",
        _ => "0001",
    };
    let spelling = Spelling::draw(&rails);
    let data = receipt(spelling, "The request is being processed", &view);
    let body = json!({"Message": "Transaction pending", "ResponseCode": code, "Data": data});
    wire::json(200, spelling.body(body).to_string())
}

/// `None` if it is not a request that this rail accepts.
fn read(body: &[u8]) -> Option<DebitRequest> {
    let request: Receive = serde_json::from_slice(body).ok()?;
    let is_fine =
        CHANNELS.contains(&request.channel.as_str()) && is_description(&request.description);
    if !is_fine {
        return None;
    }
    Some(DebitRequest {
        network: PayerNetwork::Hubtel,
        reference: reference(&request.client_reference)?,
        phone: phone(&request.customer_msisdn)?,
        amount: amount(&request.amount)?,
        callback: Some(callback(&request.primary_callback_url)?),
    })
}

/// What it charges, which comes on top of the amount or out of it.
fn charges(view: &View) -> (i64, bool) {
    (view.amount_minor / 100, view.shape & 4 == 0)
}

/// What the reply and the callback hold.
fn receipt(spelling: Spelling, description: &str, view: &View) -> Value {
    let (charges, is_on_top) = charges(view);
    let (charged, left) = match is_on_top {
        true => (view.amount_minor + charges, view.amount_minor),
        false => (view.amount_minor, view.amount_minor - charges),
    };
    json!({
        "TransactionId": format!("{:x}", view.shape),
        "ClientReference": spelling.reference(&view.reference),
        "Amount": number(view.amount_minor),
        "Charges": number(charges),
        "AmountAfterCharges": number(left),
        "AmountCharged": number(charged),
        "Description": description,
        "ExternalTransactionId": (view.shape >> 40).to_string(),
        "OrderId": null,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    client_reference: String,
}

async fn status(
    State(rails): State<Rails>,
    Path(account): Path<String>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Response {
    let is_account = account == rails.0.settings.hubtel_pos_sales_id;
    if let Some(refusal) = refusal(&rails, &headers, is_account) {
        return refusal;
    }
    let Some(reference) = reference(&wanted.client_reference) else {
        return unknown(&rails);
    };
    let (word, view) = match rails.query((Rail::Hubtel, reference), false).await {
        RailReply::Odd(said) => return odd(&rails, said),
        RailReply::Says(Word::Unknown404, _) => return unknown(&rails),
        RailReply::Says(word, view) => (word, view),
    };
    let status = match word {
        Word::Success => "Paid",
        Word::Reversed => "Refunded",
        _ => "Unpaid",
    };
    let spelling = Spelling::draw(&rails);
    let (charges, is_on_top) = charges(&view);
    let left = view.amount_minor - if is_on_top { 0 } else { charges };
    let currency = (view.shape & 8 == 0).then_some(&view.currency);
    let data = json!({
        "date": "2026-01-31T09:00:00Z",
        "status": status,
        "transactionId": format!("{:x}", view.shape),
        "externalTransactionId": (view.shape >> 40).to_string(),
        "paymentMethod": "mobilemoney",
        "clientReference": spelling.reference(&view.reference),
        "currencyCode": currency,
        "amount": number(view.amount_minor),
        "charges": number(charges),
        "amountAfterCharges": number(left),
        "isFulfilled": null,
    });
    let body = json!({"message": "Successful", "responseCode": "0000", "data": data});
    wire::json(200, spelling.body(body).to_string())
}

fn unknown(rails: &Rails) -> Response {
    let body = json!({"message": "No transaction found", "responseCode": "4004", "data": null});
    answer(rails, 404, body)
}

/// A code and words of a callback.
fn told(word: Word) -> (&'static str, &'static str) {
    match word {
        Word::Success => ("0000", "Success"),
        Word::Failed(words) => words.split_once(' ').unwrap_or((words, "")),
        _ => ("0001", "Pending"),
    }
}

/// The body of a callback about a payment. Whatever it says, nobody believes it.
pub fn callback_body(rails: &Rails, word: Word, view: &View) -> String {
    let (code, description) = match view.shape >> 8 & 15 {
        0 => return String::new(),
        1 => return "{}".to_owned(),
        2 => ("0000", "Success"),
        3 => ("2001", "The payer declined the request"),
        _ => told(word),
    };
    let spelling = Spelling::draw(rails);
    let message = if code == "0000" { "success" } else { "failed" };
    let data = receipt(spelling, description, view);
    let body = json!({"ResponseCode": code, "Message": message, "Data": data});
    spelling.body(body).to_string()
}
