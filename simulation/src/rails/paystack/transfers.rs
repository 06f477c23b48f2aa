//! Paystack's transfers on the wire.

use axum::{
    Router,
    body::Bytes,
    extract::{Path, Query, State},
    response::Response,
    routing::{get, post},
};
use chassis::{
    money::{Currency, Money},
    phone::Phone,
};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{INTERNAL_ERROR, is_us, problem, stranger};
use crate::rails::{
    Rail, RailReply, Rails, Word,
    book::View,
    credits::{
        CreditRequest,
        life::{NO_RECIPIENT, PAYSTACK_ENDS},
    },
    wire,
};

/// What a recipient's code begins with. The rest is its account, in hex.
const RECIPIENT: &str = "RCP_";

pub fn routes() -> Router<Rails> {
    Router::new()
        .route("/transferrecipient", post(recipient))
        .route("/transfer", post(transfer))
        .route("/transfer/verify/{reference}", get(verify))
        .route("/balance", get(balance))
        .route("/bank/resolve", get(resolve))
}

fn refused(status: u16, message: &str, code: &str) -> Response {
    problem(status, "validation_error", message, code)
}

#[derive(Deserialize)]
struct Recipient {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    account_number: String,
    bank_code: String,
    currency: String,
}

impl Recipient {
    /// The account as the book names it. `None` if this rail pays no such account.
    fn account(&self) -> Option<String> {
        let is_named = !self.name.is_empty() && self.currency == "GHS";
        match self.kind.as_str() {
            _ if !is_named => None,
            "mobile_money" if matches!(self.bank_code.as_str(), "MTN" | "VOD" | "ATL") => {
                let phone = Phone::parse_ghana_mobile(&self.account_number).ok()?;
                Some(phone.as_e164().to_owned())
            }
            "ghipss" => Some(self.account_number.clone()),
            _ => None,
        }
    }
}

/// The same account is the same recipient.
async fn recipient(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    let recipient: Option<Recipient> = serde_json::from_slice(&body).ok();
    let Some(account) = recipient.and_then(|recipient| recipient.account()) else {
        return refused(400, "Invalid request", "invalid_params");
    };
    let is_known = !rails.credits_mut().draw("recipients").chance(20);
    match rails
        .tell(Rail::Paystack, "recipients at", || is_known)
        .await
    {
        Err(odd) => wire::odd(odd, INTERNAL_ERROR),
        Ok(false) => refused(400, "Account number is invalid", "invalid_bank_code"),
        Ok(true) => {
            let code = format!("{RECIPIENT}{}", hex::encode(account));
            let data = json!({"recipient_code": code, "active": true, "currency": "GHS"});
            let body = json!({"status": true, "message": "Recipient created", "data": data});
            wire::json(201, body.to_string())
        }
    }
}

#[derive(Deserialize)]
struct Transfer {
    source: String,
    amount: i64,
    currency: String,
    recipient: String,
    reference: String,
}

async fn transfer(State(rails): State<Rails>, headers: HeaderMap, body: Bytes) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    match read(&body) {
        Some(asked) => render(rails.transfer(asked).await),
        None => refused(400, "Invalid request", "invalid_params"),
    }
}

/// `None` if it is not a transfer that this rail accepts.
fn read(body: &[u8]) -> Option<CreditRequest> {
    let transfer: Transfer = serde_json::from_slice(body).ok()?;
    let currency: Currency = transfer.currency.parse().ok()?;
    let account = hex::decode(transfer.recipient.strip_prefix(RECIPIENT)?).ok()?;
    let account = String::from_utf8(account).ok()?;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    let is_fine = transfer.source == "balance"
        && transfer.amount > 0
        && (16..=50).contains(&transfer.reference.len())
        && transfer.reference.chars().all(allowed);
    is_fine.then(|| CreditRequest {
        rail: Rail::Paystack,
        reference: transfer.reference,
        account,
        amount: Money::new(transfer.amount, currency),
        callback: None,
    })
}

async fn verify(
    State(rails): State<Rails>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    render(rails.query_transfer((Rail::Paystack, reference)).await)
}

fn render(answer: RailReply) -> Response {
    let (word, view) = match answer {
        RailReply::Odd(odd) => return wire::odd(odd, INTERNAL_ERROR),
        RailReply::Says(word, view) => (word, view),
    };
    match word {
        Word::Unknown404 => refused(404, "Transfer not found", "transfer_not_found"),
        Word::Duplicate409 => {
            let message =
                "Please provide a unique reference. Reference already exists on a transfer";
            let status = if view.shape & 64 == 0 { 400 } else { 404 };
            refused(status, message, "duplicate_transfer_reference")
        }
        Word::Refused(NO_RECIPIENT) => refused(400, "Recipient is invalid", NO_RECIPIENT),
        Word::Refused(message) => refused(400, message, "transfer_refused"),
        word => {
            let data = transfer_data(word, &view);
            let body = json!({"status": true, "message": "Transfer has been queued", "data": data});
            wire::json(200, body.to_string())
        }
    }
}

/// What the first reply says of the status is not to be believed.
fn transfer_data(word: Word, view: &View) -> Value {
    let amount = if view.shape & 4 == 0 {
        Value::from(view.amount_minor)
    } else {
        Value::from(view.amount_minor.to_string())
    };
    let status = match word {
        Word::Accepted if view.shape & 8 == 0 => "success",
        Word::Accepted | Word::Pending if view.shape & 16 == 0 => "received",
        Word::Success => "success",
        Word::Reversed => "reversed",
        Word::Failed(word) if PAYSTACK_ENDS.contains(&word) => word,
        Word::Failed(_) => "failed",
        _ => "pending",
    };
    let mut data = json!({
        "reference": view.reference,
        "amount": amount,
        "currency": view.currency,
        "status": status,
        "transfer_code": format!("TRF_{}", view.shape),
        "failures": null,
    });
    match word {
        Word::Success => data["fee_charged"] = view.fee_minor.into(),
        Word::Failed(words) => data["gateway_response"] = words.into(),
        _ => {}
    }
    data
}

async fn balance(State(rails): State<Rails>, headers: HeaderMap) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    let held = || rails.float(Rail::Paystack).held_minor;
    match rails.tell(Rail::Paystack, "balances of", held).await {
        Err(odd) => wire::odd(odd, INTERNAL_ERROR),
        Ok(held) => {
            let balances = json!([
                {"currency": "NGN", "balance": 9_900_000},
                {"currency": "GHS", "balance": held},
            ]);
            let body = json!({"status": true, "message": "Balances retrieved", "data": balances});
            wire::json(200, body.to_string())
        }
    }
}

#[derive(Deserialize)]
struct Account {
    account_number: String,
}

async fn resolve(
    State(rails): State<Rails>,
    Query(account): Query<Account>,
    headers: HeaderMap,
) -> Response {
    if !is_us(&rails, &headers) {
        return stranger();
    }
    let is_known = rails.credits_mut().draw("resolved").chance(800);
    match rails.tell(Rail::Paystack, "names at", || is_known).await {
        Err(odd) => wire::odd(odd, INTERNAL_ERROR),
        Ok(false) => refused(422, "Could not resolve account name", "invalid_account"),
        Ok(true) => {
            let data = json!({
                "account_number": account.account_number,
                "account_name": "AMA MENSAH",
            });
            let body = json!({"status": true, "message": "Account number resolved", "data": data});
            wire::json(200, body.to_string())
        }
    }
}

/// One of three events. Whatever it says, nobody believes it.
pub fn webhook_body(word: Word, view: &View) -> String {
    let event = match word {
        Word::Reversed => "transfer.reversed",
        Word::Failed(_) => "transfer.failed",
        _ => "transfer.success",
    };
    json!({"event": event, "data": transfer_data(word, view)}).to_string()
}
