//! `/api/v1/payouts`: what a merchant has collected goes to its payout account. Additive.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use chassis::{
    ids::{DisbursementId, PayoutId},
    money::{Currency, Money},
};
use http::{HeaderMap, StatusCode};
use proto::charges::{
    CreatePayoutRequest, Destination, DisbursementStatus, GetPayoutRequest, ListPayoutsRequest,
    Payout,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    amount,
    body::Object,
    fields::{self, Fields},
    idempotency::{self, IdempotencyKey},
    list::{Page, Parameters},
};
use crate::{backend, edge::Edge, error::Error, front::RequestId, merchant::Merchant};

/// `PayoutShown` of the contract.
#[derive(Debug, Serialize)]
pub struct PayoutShown {
    payout_id: String,
    status: &'static str,
    amount: Box<RawValue>,
    fee: Box<RawValue>,
    currency: &'static str,
    method: String,
    destination: DestinationShown,
    scheduled: bool,
    failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_message: Option<String>,
    created_at: String,
    updated_at: String,
    completed_at: Option<String>,
    reversed_at: Option<String>,
}

/// `PayoutDestination` of the contract.
#[derive(Debug, Serialize)]
pub struct DestinationShown {
    r#type: &'static str,
    provider: String,
    /// Masked.
    account: String,
}

/// A validated request.
#[derive(Debug)]
struct PayoutOrder {
    amount: Money,
    key: IdempotencyKey,
}

pub async fn create(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    body: Object,
) -> Result<Response, Error> {
    let order = PayoutOrder::parse(body, &headers)?;
    let request = CreatePayoutRequest {
        merchant_id: merchant.id.to_string(),
        amount: Some(order.amount.into()),
        idempotency_key: order.key.marked(),
        asked_by: Some(merchant.asked_by(request_id)),
        // A program has seen nothing.
        seen: None,
    };
    let answer = edge
        .disbursements
        .keyed(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.create_payout(request).await },
        )
        .await
        .map_err(|error| error.seen_by(&order.key))?;
    let shown = PayoutShown::try_from(answer.payout.unwrap_or_default())?;
    let mut response = (StatusCode::ACCEPTED, Json(shown)).into_response();
    let headers = response.headers_mut();
    order.key.write_replayed(answer.replayed, headers);
    Ok(response)
}

pub async fn read(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    payout_id: Result<Path<String>, PathRejection>,
) -> Result<Json<PayoutShown>, Error> {
    let Path(payout_id) = payout_id.map_err(|_| Error::NotFound)?;
    let payout_id: PayoutId = payout_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetPayoutRequest {
        merchant_id: merchant.id.to_string(),
        payout_id: payout_id.to_string(),
    };
    let payout = edge
        .disbursements
        .read(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.get_payout(request).await },
        )
        .await?;
    Ok(Json(payout.try_into()?))
}

pub async fn list(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<PayoutShown>>, Error> {
    let mut parameters = Parameters::new(query.as_deref());
    let (from, to) = parameters.span();
    let status = parameters.status(DisbursementStatus::from_code);
    let request = ListPayoutsRequest {
        merchant_id: merchant.id.to_string(),
        page_size: parameters.limit(),
        page_token: parameters.cursor::<DisbursementId>(),
        from,
        to,
        status: status.unwrap_or_default().into(),
    };
    parameters.finish()?;
    let listed = edge
        .disbursements
        .read(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.list_payouts(request).await },
        )
        .await?;
    let page = Page::new("payouts", listed.payouts, listed.next_page_token);
    Ok(Json(page))
}

impl PayoutOrder {
    fn parse(body: Object, headers: &HeaderMap) -> Result<Self, Error> {
        let mut fields = Fields::new(body);
        let amount = fields.required("amount", |value| {
            Money::from_major(amount::parse(value)?, Currency::GHS).map_err(amount::fault)
        });
        fields.optional("currency", fields::cedis_only);
        let key = fields.checked(idempotency::HEADER, IdempotencyKey::of(headers));
        let order = amount.zip(key).map(|(amount, key)| Self { amount, key });
        fields.finish(order)
    }
}

impl TryFrom<Payout> for PayoutShown {
    type Error = Error;

    fn try_from(payout: Payout) -> Result<Self, Error> {
        let status = payout.status().code();
        let status = status.ok_or_else(|| Error::internal("a payout without status"))?;
        let amount = payout.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        let fee = payout.fee.as_ref().map(Money::try_from);
        let fee = fee.transpose().map_err(Error::internal)?;
        // A charges-svc that names none takes none.
        let fee = fee.unwrap_or_else(|| Money::new(0, amount.currency()));
        Ok(Self {
            payout_id: payout.payout_id,
            status,
            amount: amount::to_json(amount),
            fee: amount::to_json(fee),
            currency: amount.currency().code(),
            method: payout.method,
            destination: payout.destination.unwrap_or_default().try_into()?,
            scheduled: payout.scheduled,
            failure_reason: payout.failure_reason,
            failure_message: payout.failure_message,
            created_at: payout.created_at,
            updated_at: payout.updated_at,
            completed_at: payout.completed_at,
            reversed_at: payout.reversed_at,
        })
    }
}

impl TryFrom<Destination> for DestinationShown {
    type Error = Error;

    fn try_from(destination: Destination) -> Result<Self, Error> {
        let r#type = destination.r#type().code();
        Ok(Self {
            r#type: r#type.ok_or_else(|| Error::internal("a destination without type"))?,
            provider: destination.provider,
            account: destination.account_masked,
        })
    }
}
