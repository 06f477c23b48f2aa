//! `GET /api/v1/payments/charge/{reference}`: how a charge stands (spec §4.5).

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
};
use chassis::{ids::Reference, money::Money};
use proto::charges::{Charge, ChargeStatus, GetChargeRequest};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{amount, openapi::schemas};
use crate::{Edge, backend, error::Error, merchant::Merchant};

/// A charge as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChargeShown {
    #[schema(value_type = schemas::Reference)]
    reference: String,
    #[schema(value_type = schemas::TransactionId)]
    transaction_id: String,
    #[schema(value_type = schemas::SessionId)]
    session_id: String,
    status: StatusShown,
    #[schema(value_type = schemas::CediAmount)]
    amount: Box<RawValue>,
    /// GHS.
    #[schema(value_type = schemas::Currency)]
    currency: &'static str,
    #[schema(value_type = schemas::Method)]
    method: String,
    /// Null unless the status is FAILED.
    #[schema(value_type = Option<schemas::FailureReason>, required = true)]
    failure_reason: Option<String>,
    /// The same for people; left out unless the status is FAILED.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    failure_message: Option<String>,
    #[schema(value_type = schemas::Timestamp)]
    created_at: String,
    #[schema(value_type = schemas::Timestamp)]
    updated_at: String,
}

/// INITIATED: the payer still has the prompt. OTP_REQUIRED: a code is waited for. SETTLED and
/// FAILED are final.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TransactionStatus)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StatusShown {
    Initiated,
    OtpRequired,
    Settled,
    Failed,
}

/// Read a charge
///
/// Tells how a charge stands. Prefer webhooks; where you must poll, do it every 3 to 5 seconds
/// and stop after about five minutes.
#[utoipa::path(
    get,
    path = "/api/v1/payments/charge/{reference}",
    tag = "Charges",
    params(("reference" = inline(schemas::Reference), Path, description = "The `reference` of the charge.")),
    responses((status = 200, description = "The charge.", body = ChargeShown)),
)]
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
        let status = match charge.status() {
            ChargeStatus::Initiated => StatusShown::Initiated,
            ChargeStatus::OtpRequired => StatusShown::OtpRequired,
            ChargeStatus::Failed => StatusShown::Failed,
            ChargeStatus::Settled => StatusShown::Settled,
            ChargeStatus::Unspecified => return Err(Error::internal("a charge without status")),
        };
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
