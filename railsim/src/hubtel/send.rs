//! Money that Hubtel sends, from the prepaid account.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::money::{Currency, Money};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    credit::{CreditDetails, CreditRequest, Payee, story::Story},
    networks::Networks,
    paying::Taking,
    rail::Rail,
};

use super::{
    StatusQuery,
    access::{Asked, Client, HubtelError, check_account, parse},
    body::{Code, first_answer_of_credit, number, status_answer_of_credit},
};

pub fn routes() -> Router<Arc<Networks>> {
    Router::new()
        .route("/api/merchants/{account}/send/mobilemoney", post(send))
        .route("/api/merchants/{account}/transactions/status", get(status))
        .route("/api/inter-transfers/prepaid/{account}", get(balance))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Send {
    recipient_name: String,
    recipient_msisdn: String,
    channel: String,
    amount: Box<RawValue>,
    /// Both spellings are published.
    #[serde(alias = "PrimaryCallbackURL")]
    primary_callback_url: String,
    description: String,
    client_reference: String,
}

async fn send(
    _: Client,
    State(networks): State<Arc<Networks>>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, HubtelError> {
    check_prepaid(&networks, &account)?;
    let send: Send = parse(&headers, &body)?;
    let request = check_send(send)?;
    match networks.request_credit(request).await? {
        Taking::Taken(credit) => match credit.story {
            Story::CutAfter => Err(HubtelError::Cut),
            _ => Ok(Json(first_answer_of_credit(&credit)).into_response()),
        },
        Taking::Again => Err(HubtelError::repeated()),
        Taking::NoPayee => Err(HubtelError::refused(StatusCode::OK, Code::NotRegistered)),
        Taking::NoFloat => Err(HubtelError::refused(StatusCode::OK, Code::FloatEmpty)),
        Taking::Unavailable => Err(HubtelError::Busy),
        Taking::Lost => Err(HubtelError::Cut),
    }
}

fn check_prepaid(networks: &Networks, account: &str) -> Result<(), HubtelError> {
    let ours = &networks.config.accounts.hubtel.hubtel_prepaid_deposit_id;
    check_account(ours, account)
}

fn check_send(send: Send) -> Result<CreditRequest, HubtelError> {
    if send.recipient_name.trim().is_empty() {
        return Err(HubtelError::invalid("RecipientName is required"));
    }
    let asked = Asked {
        msisdn: &send.recipient_msisdn,
        channel: &send.channel,
        amount: &send.amount,
        callback_url: &send.primary_callback_url,
        description: &send.description,
        reference: &send.client_reference,
    };
    let checked = asked.check()?;
    Ok(CreditRequest {
        rail: Rail::Hubtel,
        reference: send.client_reference,
        payee: Payee::Wallet {
            network: checked.network,
            phone: checked.phone,
        },
        amount_minor: checked.amount_minor,
        currency: Currency::GHS,
        details: CreditDetails::Hubtel {
            description: send.description,
        },
        callback_url: Some(send.primary_callback_url),
    })
}

async fn status(
    _: Client,
    State(networks): State<Arc<Networks>>,
    Path(account): Path<String>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Response, HubtelError> {
    check_prepaid(&networks, &account)?;
    let reference = StatusQuery::reference(query)?;
    let Some(credit) = networks.query_credit(Rail::Hubtel, &reference).await? else {
        let body = json!({
            "Message": "Transaction not found",
            "ResponseCode": "404",
            "Data": null,
        });
        return Ok((StatusCode::NOT_FOUND, Json(body)).into_response());
    };
    Ok(Json(status_answer_of_credit(&credit)).into_response())
}

async fn balance(
    _: Client,
    State(networks): State<Arc<Networks>>,
    Path(account): Path<String>,
) -> Result<Response, HubtelError> {
    check_prepaid(&networks, &account)?;
    let held = Money::new(networks.float_minor(Rail::Hubtel).await?, Currency::GHS);
    let body = json!({
        "responseCode": "0000",
        "message": "Success",
        "data": {"amount": number(held)},
    });
    Ok(Json(body).into_response())
}
