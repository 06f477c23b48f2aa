//! Refunds: what was collected for a charge goes back to the wallet that paid. Additive.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use chassis::{
    ids::{DisbursementId, Reference, RefundId},
    money::{Currency, Money},
};
use http::{HeaderMap, StatusCode};
use proto::charges::{
    CreateRefundRequest, DisbursementStatus, GetRefundRequest, ListRefundsRequest, Refund,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    amount,
    body::Object,
    fields::{self, Fields},
    idempotency::{self, IdempotencyKey},
    list::{Page, Parameters},
    payouts::DestinationShown,
};
use crate::{backend, edge::Edge, error::Error, front::RequestId, merchant::Merchant};

/// `RefundShown` of the contract.
#[derive(Debug, Serialize)]
pub struct RefundShown {
    refund_id: String,
    reference: String,
    tx_id_display: String,
    session_id: String,
    status: &'static str,
    amount: Box<RawValue>,
    currency: &'static str,
    method: String,
    destination: DestinationShown,
    failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_message: Option<String>,
    created_at: String,
    updated_at: String,
    completed_at: Option<String>,
    reversed_at: Option<String>,
    /// Whether it is paid from the merchant's balance, and not from what never got there.
    from_balance: bool,
}

/// A validated request.
#[derive(Debug)]
struct RefundOrder {
    /// Absent: all that is left.
    amount: Option<Money>,
    key: IdempotencyKey,
}

pub async fn create(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    Extension(request_id): Extension<RequestId>,
    reference: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Object,
) -> Result<Response, Error> {
    let order = RefundOrder::parse(body, &headers)?;
    let Path(reference) = reference.map_err(|_| Error::NotFound)?;
    let reference: Reference = reference.parse().map_err(|_| Error::NotFound)?;
    let request = CreateRefundRequest {
        merchant_id: merchant.id.to_string(),
        reference: reference.to_string(),
        amount: order.amount.map(Into::into),
        idempotency_key: order.key.marked(),
        asked_by: Some(merchant.asked_by(request_id)),
    };
    let answer = edge
        .disbursements
        .keyed(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.create_refund(request).await },
        )
        .await
        .map_err(|error| error.seen_by(&order.key))?;
    let shown = RefundShown::try_from(answer.refund.unwrap_or_default())?;
    let mut response = (StatusCode::ACCEPTED, Json(shown)).into_response();
    let headers = response.headers_mut();
    order.key.write_replayed(answer.replayed, headers);
    Ok(response)
}

pub async fn read(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    refund_id: Result<Path<String>, PathRejection>,
) -> Result<Json<RefundShown>, Error> {
    let Path(refund_id) = refund_id.map_err(|_| Error::NotFound)?;
    let refund_id: RefundId = refund_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetRefundRequest {
        merchant_id: merchant.id.to_string(),
        refund_id: refund_id.to_string(),
    };
    let refund = edge
        .disbursements
        .read(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.get_refund(request).await },
        )
        .await?;
    Ok(Json(refund.try_into()?))
}

pub async fn list(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<RefundShown>>, Error> {
    let mut parameters = Parameters::new(query.as_deref());
    let (from, to) = parameters.span();
    let (reference, session_id) = (parameters.reference(), parameters.session_id());
    let status = parameters.status(DisbursementStatus::from_code);
    let request = ListRefundsRequest {
        merchant_id: merchant.id.to_string(),
        page_size: parameters.limit(),
        page_token: parameters.cursor::<DisbursementId>(),
        reference: reference.map_or_else(String::new, |reference| reference.to_string()),
        from,
        to,
        status: status.unwrap_or_default().into(),
        session_id: session_id.map(|session| session.to_string()),
    };
    parameters.finish()?;
    let mut listed = edge
        .disbursements
        .read(
            backend::DEADLINE,
            request,
            |mut disbursements, request| async move { disbursements.list_refunds(request).await },
        )
        .await?;
    if let Some(session_id) = session_id {
        // An older charges-svc does not know this filter.
        let wanted = session_id.to_string();
        let is_wanted = |refund: &Refund| refund.session_id == wanted;
        listed.refunds.retain(is_wanted);
    }
    let page = Page::new("refunds", listed.refunds, listed.next_page_token);
    Ok(Json(page))
}

impl RefundOrder {
    fn parse(body: Object, headers: &HeaderMap) -> Result<Self, Error> {
        let mut fields = Fields::new(body);
        // Under another name, an amount would be ignored and everything refunded.
        fields.only(&["amount", "currency"]);
        let amount = fields.optional("amount", |value| {
            Money::from_major(amount::parse(value)?, Currency::GHS).map_err(amount::fault)
        });
        fields.optional("currency", fields::cedis_only);
        let key = fields.checked(idempotency::HEADER, IdempotencyKey::of(headers));
        fields.finish(key.map(|key| Self { amount, key }))
    }
}

impl TryFrom<Refund> for RefundShown {
    type Error = Error;

    fn try_from(refund: Refund) -> Result<Self, Error> {
        let status = refund.status().code();
        let status = status.ok_or_else(|| Error::internal("a refund without status"))?;
        let amount = refund.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        Ok(Self {
            refund_id: refund.refund_id,
            reference: refund.reference,
            tx_id_display: refund.tx_id_display,
            session_id: refund.session_id,
            status,
            amount: amount::to_json(amount),
            currency: amount.currency().code(),
            method: refund.method,
            destination: refund.destination.unwrap_or_default().try_into()?,
            failure_reason: refund.failure_reason,
            failure_message: refund.failure_message,
            created_at: refund.created_at,
            updated_at: refund.updated_at,
            completed_at: refund.completed_at,
            reversed_at: refund.reversed_at,
            from_balance: !refund.from_suspense,
        })
    }
}
