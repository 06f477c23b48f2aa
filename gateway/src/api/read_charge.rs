//! `GET /api/v1/payments/charge/{reference}`: the state of a charge (spec §4.5).

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
};
use chassis::{ids::Reference, money::Money};
use proto::charges::{Charge, GetChargeRequest};
use serde::Serialize;
use serde_json::value::RawValue;

use super::amount;
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

/// `ChargeShown` of the contract.
#[derive(Debug, Serialize)]
pub struct ChargeShown {
    reference: String,
    transaction_id: String,
    session_id: String,
    status: &'static str,
    amount: Box<RawValue>,
    currency: &'static str,
    method: String,
    failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_message: Option<String>,
    created_at: String,
    updated_at: String,
}

pub async fn read_charge(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    reference: Result<Path<String>, PathRejection>,
) -> Result<Json<ChargeShown>, Error> {
    let Path(reference) = reference.map_err(|_| Error::NotFound)?;
    let reference: Reference = reference.parse().map_err(|_| Error::NotFound)?;
    let request = GetChargeRequest {
        merchant_id: merchant.id.to_string(),
        reference: reference.to_string(),
    };
    let charge = edge
        .charges
        .read(
            backend::DEADLINE,
            request,
            |mut charges, request| async move { charges.get_charge(request).await },
        )
        .await?;
    Ok(Json(charge.try_into()?))
}

impl TryFrom<Charge> for ChargeShown {
    type Error = Error;

    fn try_from(charge: Charge) -> Result<Self, Error> {
        let status = charge.status().code();
        let status = status.ok_or_else(|| Error::internal("a charge without status"))?;
        let amount = charge.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        Ok(Self {
            reference: charge.reference,
            transaction_id: charge.transaction_id,
            session_id: charge.session_id,
            status,
            amount: amount::to_json(amount),
            currency: amount.currency().code(),
            method: charge.method,
            failure_reason: charge.failure_reason,
            failure_message: charge.failure_message,
            created_at: charge.created_at,
            updated_at: charge.updated_at,
        })
    }
}
