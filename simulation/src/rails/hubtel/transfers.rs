//! Hubtel's Direct Send Money on the wire, the prepaid balance and whose wallet a number is.

use axum::{
    Router,
    body::Bytes,
    extract::{Path, Query, State},
    response::Response,
    routing::{get, post},
};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::{
    CHANNELS, Spelling, Wanted, amount, answer, callback, is_description, number, odd, phone,
    reference, refusal, refused, told, unknown,
};
use crate::rails::{Rail, RailReply, Rails, Word, book::View, credits::CreditRequest, wire};

pub fn routes() -> Router<Rails> {
    let merchant = "/api/merchants/{account}";
    let holder = "/v2/merchantaccount/merchants/{account}/mobilemoney/verify";
    Router::new()
        .route(&format!("{merchant}/send/mobilemoney"), post(send))
        .route(&format!("{merchant}/transactions/status"), get(status))
        .route("/api/inter-transfers/prepaid/{account}", get(balance))
        .route(holder, get(verify))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Send {
    recipient_name: String,
    recipient_msisdn: String,
    channel: String,
    amount: Number,
    #[serde(rename = "PrimaryCallbackURL", alias = "PrimaryCallbackUrl")]
    primary_callback_url: String,
    description: String,
    client_reference: String,
}

/// The refusal of a call that is not ours, or is not about the account that pays.
fn refusal_of(rails: &Rails, headers: &HeaderMap, account: &str) -> Option<Response> {
    let is_account = account == rails.0.settings.hubtel_prepaid_deposit_id;
    refusal(rails, headers, is_account)
}

async fn send(
    State(rails): State<Rails>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(refusal) = refusal_of(&rails, &headers, &account) {
        return refusal;
    }
    let Some(asked) = read(&body) else {
        return refused(&rails, "4000 Validation errors", 0);
    };
    let (word, view) = match rails.transfer(asked).await {
        RailReply::Odd(said) => return odd(&rails, said),
        RailReply::Says(word, view) => (word, view),
    };
    match word {
        Word::Refused(words) => return refused(&rails, words, view.shape),
        Word::Duplicate409 => return refused(&rails, "4000 Validation errors", view.shape),
        _ => {}
    }
    // Its first reply is final of no transfer: only the status is.
    let code = match view.shape >> 12 & 15 {
        0 => "0000",
        1 => "2001",
        _ => "0001",
    };
    let spelling = Spelling::draw(&rails);
    let body = json!({"ResponseCode": code, "Data": receipt(spelling, "", &view)});
    wire::json(200, spelling.body(body).to_string())
}

/// `None` if it is not a transfer that this rail accepts.
fn read(body: &[u8]) -> Option<CreditRequest> {
    let transfer: Send = serde_json::from_slice(body).ok()?;
    let is_fine = CHANNELS.contains(&transfer.channel.as_str())
        && is_description(&transfer.description)
        && !transfer.recipient_name.is_empty();
    if !is_fine {
        return None;
    }
    Some(CreditRequest {
        rail: Rail::Hubtel,
        reference: reference(&transfer.client_reference)?,
        account: phone(&transfer.recipient_msisdn)?,
        amount: amount(&transfer.amount)?,
        callback: Some(callback(&transfer.primary_callback_url)?),
    })
}

/// What the reply and the callback hold. `AmountDebited` is there whatever became of it.
fn receipt(spelling: Spelling, description: &str, view: &View) -> Value {
    json!({
        "AmountDebited": number(view.amount_minor),
        "TransactionId": format!("{:x}", view.shape),
        "Description": description,
        "ClientReference": spelling.reference(&view.reference),
        "ExternalTransactionId": "",
        "Amount": number(view.amount_minor),
        "Charges": number(view.fee_minor),
        "Meta": null,
        "RecipientName": null,
    })
}

async fn status(
    State(rails): State<Rails>,
    Path(account): Path<String>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refusal_of(&rails, &headers, &account) {
        return refusal;
    }
    let Some(reference) = reference(&wanted.client_reference) else {
        return unknown(&rails);
    };
    let (word, view) = match rails.query_transfer((Rail::Hubtel, reference)).await {
        RailReply::Odd(said) => return odd(&rails, said),
        RailReply::Says(Word::Unknown404, _) => return unknown(&rails),
        RailReply::Says(word, view) => (word, view),
    };
    let (code, status) = match word {
        Word::Success => ("success", "success"),
        Word::Failed(_) if view.shape >> 9 & 1 == 1 => ("failed", "failed"),
        Word::Failed(_) => (told(word).0, "failed"),
        _ => ("success", "pending"),
    };
    let spelling = Spelling::draw(&rails);
    let data = json!({
        "TransactionId": format!("{:x}", view.shape),
        "networkTransactionId": (view.shape >> 40).to_string(),
        "Amount": number(view.amount_minor),
        "Fees": number(view.fee_minor),
        "ClientReference": spelling.reference(&view.reference),
        "Channel": "mtn-gh",
        "CustomerNumber": view.phone.trim_start_matches('+'),
        "transactionStatus": status,
        "CreatedAt": "2026-01-31 09:00:00",
    });
    let body = json!({"ResponseCode": code, "Data": data});
    wire::json(200, spelling.body(body).to_string())
}

async fn balance(
    State(rails): State<Rails>,
    Path(account): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refusal_of(&rails, &headers, &account) {
        return refusal;
    }
    let held = || rails.float(Rail::Hubtel).held_minor;
    match rails.tell(Rail::Hubtel, "balances of", held).await {
        Err(said) => odd(&rails, said),
        Ok(held) => {
            let data = json!({"amount": number(held)});
            let body = json!({"responseCode": "0000", "message": "success", "data": data});
            answer(&rails, 200, body)
        }
    }
}

/// Some numbers are not registered.
async fn verify(
    State(rails): State<Rails>,
    Path(account): Path<String>,
    headers: HeaderMap,
) -> Response {
    let is_account = account == rails.0.settings.hubtel_pos_sales_id;
    if let Some(refusal) = refusal(&rails, &headers, is_account) {
        return refusal;
    }
    let is_registered = rails.credits_mut().draw("registered").chance(900);
    let told = rails.tell(Rail::Hubtel, "names at", || is_registered).await;
    match told {
        Err(said) => odd(&rails, said),
        Ok(is_registered) => {
            let data = json!({
                "isRegistered": is_registered,
                "name": if is_registered { "AMA MENSAH" } else { "" },
                "status": if is_registered { "active" } else { "inactive" },
                "profile": "Subscriber",
            });
            let body = json!({"message": "success", "responseCode": "0000", "data": data});
            answer(&rails, 200, body)
        }
    }
}

/// The body of a callback about a transfer. Whatever it says, nobody believes it.
pub fn callback_body(rails: &Rails, word: Word, view: &View) -> String {
    let (code, description) = match view.shape >> 8 & 15 {
        0 => return "{}".to_owned(),
        1 => ("0000", "Success"),
        2 => ("2001", "The processor declined the transfer"),
        _ => told(word),
    };
    let spelling = Spelling::draw(rails);
    let body = json!({"ResponseCode": code, "Data": receipt(spelling, description, view)});
    spelling.body(body).to_string()
}
