//! `GET /api/v1/payments/charge/{reference}`: the state of a charge (spec §4.5), with `?wait=` once
//! it is shown with another status.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, RawQuery, State, rejection::PathRejection},
};
use chassis::{ids::Reference, money::Money};
use proto::charges::{Charge, ChargeStatus, GetChargeRequest};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{amount, list::Parameters};
use crate::{
    backend, edge::Edge, error::Error, in_hand::RequestInHand, merchant::Merchant, room::NoRoom,
};

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
    Extension(in_hand): Extension<RequestInHand>,
    reference: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<ChargeShown>, Error> {
    let mut parameters = Parameters::new(query.as_deref());
    let longest = parameters.wait();
    parameters.finish_ignoring_others()?;
    let Path(reference) = reference.map_err(|_| Error::NotFound)?;
    let reference: Reference = reference.parse().map_err(|_| Error::NotFound)?;
    let charge = read(&edge, &merchant, &reference).await?;
    let Some(longest) = longest.filter(|_| !has_ended(&charge)) else {
        return Ok(Json(charge.try_into()?));
    };
    let changed = async { edge.charge_watches.begin(&charge).changed().await };
    let charge = match in_hand.wait(timeout(longest, changed)).await {
        Ok(Some(Ok(Some(changed)))) => changed,
        Err(NoRoom) => charge,
        Ok(_) => read(&edge, &merchant, &reference).await?,
    };
    Ok(Json(charge.try_into()?))
}

pub async fn read(
    edge: &Edge,
    merchant: &Merchant,
    reference: &Reference,
) -> Result<Charge, Error> {
    let request = GetChargeRequest {
        merchant_id: merchant.id.to_string(),
        reference: reference.to_string(),
    };
    let read = edge
        .charge_reads
        .read(backend::DEADLINE, request, |charges, request| async move {
            charges.call(request).await
        });
    read.await
}

/// Whether its status is the last that it will have.
fn has_ended(charge: &Charge) -> bool {
    match charge.status() {
        ChargeStatus::Settled | ChargeStatus::Failed => true,
        ChargeStatus::Unspecified | ChargeStatus::Initiated | ChargeStatus::OtpRequired => false,
    }
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
