//! Hubtel in Ghana (<https://developers.hubtel.com>), as strict as the real one: money is received
//! here, and sent in a file of its own.
//!
//! Its status knows only paid, unpaid and refunded: what failed is told by a callback alone. What
//! it charges payers, on top of the amount, is the reference's choice, so that a client meets both.

mod access;
pub mod body;
mod send;
pub mod settings;

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chassis::money::Currency;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    credit::story::Story as PayeeStory,
    networks::{Intake, Networks},
    payment::{self, Payment},
    rail::{Details, Rail},
    request::PaymentRequest,
    story::Story,
};

use access::{Asked, Client, HubtelError, check_account, parse, wallet};
use body::{Code, first_answer, status_answer};

pub fn routes() -> Router<Arc<Networks>> {
    Router::new()
        .route(
            "/merchantaccount/merchants/{account}/receive/mobilemoney",
            post(receive),
        )
        .route("/transactions/{account}/status", get(status))
        .route(
            "/v2/merchantaccount/merchants/{account}/mobilemoney/verify",
            get(name),
        )
        .merge(send::routes())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Receive {
    customer_msisdn: String,
    channel: String,
    amount: Box<RawValue>,
    /// Both spellings are published.
    #[serde(alias = "PrimaryCallbackURL")]
    primary_callback_url: String,
    description: String,
    client_reference: String,
}

async fn receive(
    _: Client,
    State(networks): State<Arc<Networks>>,
    Path(account): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, HubtelError> {
    check_pos(&networks, &account)?;
    let receive: Receive = parse(&headers, &body)?;
    let request = check_receive(receive)?;
    match networks.request(request).await? {
        Intake::New(payment) => answer(&payment),
        Intake::Again(_) => Err(HubtelError::repeated()),
    }
}

fn check_pos(networks: &Networks, account: &str) -> Result<(), HubtelError> {
    let ours = &networks.config.accounts.hubtel.hubtel_pos_sales_id;
    check_account(ours, account)
}

fn check_receive(receive: Receive) -> Result<PaymentRequest, HubtelError> {
    let asked = Asked {
        msisdn: &receive.customer_msisdn,
        channel: &receive.channel,
        amount: &receive.amount,
        callback_url: &receive.primary_callback_url,
        description: &receive.description,
        reference: &receive.client_reference,
    };
    let checked = asked.check()?;
    Ok(PaymentRequest {
        rail: Rail::Hubtel,
        reference: receive.client_reference,
        network: checked.network,
        phone: checked.phone,
        amount_minor: checked.amount_minor,
        currency: Currency::GHS,
        text: receive.description.clone(),
        details: Details::Hubtel {
            description: receive.description,
        },
        callback_url: Some(receive.primary_callback_url),
    })
}

/// The answer to a new payment. Refusals by the network, and of the account, have codes of their
/// own, with HTTP 200 or with 400.
fn answer(payment: &Payment) -> Result<Response, HubtelError> {
    let (status, code) = match (payment.story, payment.state) {
        (Story::CutAtRequest, _) => return Err(HubtelError::Cut),
        (Story::Unavailable, _) => (StatusCode::OK, Code::ChannelNotPermitted),
        (Story::CodeInError, _) => (StatusCode::BAD_REQUEST, Code::FeesNotSet),
        (Story::UnknownCode, _) => (StatusCode::OK, Code::Unheard),
        (_, payment::State::Failed { .. }) => (StatusCode::OK, Code::Failed),
        _ => (StatusCode::OK, Code::Accepted),
    };
    Ok((status, Json(first_answer(payment, code))).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusQuery {
    client_reference: String,
}

impl StatusQuery {
    fn reference(query: Result<Query<Self>, QueryRejection>) -> Result<String, HubtelError> {
        let Query(asked) =
            query.map_err(|_| HubtelError::invalid("clientReference is required"))?;
        Ok(asked.client_reference)
    }
}

async fn status(
    _: Client,
    State(networks): State<Arc<Networks>>,
    Path(account): Path<String>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Response, HubtelError> {
    check_pos(&networks, &account)?;
    let reference = StatusQuery::reference(query)?;
    let Some(payment) = networks.query(Rail::Hubtel, &reference).await? else {
        let body = json!({
            "message": "Transaction not found",
            "responseCode": "404",
            "data": null,
        });
        return Ok((StatusCode::NOT_FOUND, Json(body)).into_response());
    };
    Ok(Json(status_answer(&payment)).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NameQuery {
    channel: String,
    customer_msisdn: String,
}

async fn name(
    _: Client,
    State(networks): State<Arc<Networks>>,
    Path(account): Path<String>,
    query: Result<Query<NameQuery>, QueryRejection>,
) -> Result<Response, HubtelError> {
    check_pos(&networks, &account)?;
    let wants = "channel and customerMsisdn are required";
    let Query(asked) = query.map_err(|_| HubtelError::invalid(wants))?;
    let (network, phone) = wallet(&asked.customer_msisdn, &asked.channel)?;
    let holder = match Story::of(Rail::Hubtel, network, &phone) {
        Story::Unavailable => {
            return Err(HubtelError::refused(
                StatusCode::OK,
                Code::ChannelNotPermitted,
            ));
        }
        Story::UnknownPayer => None,
        _ => PayeeStory::of(Rail::Hubtel, &phone).holder(),
    };
    let body = json!({
        "message": "Success",
        "responseCode": "0000",
        "data": {
            "isRegistered": holder.is_some(),
            "name": holder,
            "status": holder.map(|_| "active"),
            "profile": holder.map(|_| "Subscriber"),
        },
    });
    Ok(Json(body).into_response())
}
