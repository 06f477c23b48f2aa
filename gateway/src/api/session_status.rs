//! `GET /api/v1/payments/{session_id}/status`: how a session stands (spec §4.2).

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
};
use chassis::{ids::SessionId, money::Money};
use proto::sessions::{
    GetSessionRequest, Session, SessionStatus, Settlement, Transaction, TransactionStatus,
};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;

use super::amount;
use crate::{Edge, backend, error::Error, merchant::Merchant};

#[derive(Debug, Serialize)]
pub struct SessionShown {
    session_id: String,
    status: &'static str,
    amount: Box<RawValue>,
    currency: &'static str,
    description: Option<String>,
    expires_at: String,
    created_at: String,
    /// The latest; left out before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<TransactionShown>,
}

#[derive(Debug, Serialize)]
struct TransactionShown {
    transaction_id: String,
    tx_id_display: String,
    status: &'static str,
    method: String,
    amount: Box<RawValue>,
    currency: &'static str,
    failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_message: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    settlement: Option<SettlementShown>,
}

/// What the payer was debited, where that is another currency than the session's.
#[derive(Debug, Serialize)]
struct SettlementShown {
    settled_amount: Box<RawValue>,
    settled_currency: &'static str,
    /// Units of the settled currency for one of the session's.
    rate: Box<RawValue>,
}

pub async fn session_status(
    State(edge): State<Arc<Edge>>,
    Extension(merchant): Extension<Arc<Merchant>>,
    session_id: Result<Path<String>, PathRejection>,
) -> Result<Json<SessionShown>, Error> {
    let Path(session_id) = session_id.map_err(|_| Error::NotFound)?;
    let session_id: SessionId = session_id.parse().map_err(|_| Error::NotFound)?;
    let request = GetSessionRequest {
        session_id: session_id.to_string(),
        merchant_id: merchant.id.to_string(),
    };
    let session = edge
        .sessions
        .read(
            backend::DEADLINE,
            request,
            |mut sessions, request| async move { sessions.get_session(request).await },
        )
        .await?;
    Ok(Json(session.try_into()?))
}

impl TryFrom<Session> for SessionShown {
    type Error = Error;

    fn try_from(session: Session) -> Result<Self, Error> {
        let status = match session.status() {
            SessionStatus::Pending => "PENDING",
            SessionStatus::Processing => "PROCESSING",
            SessionStatus::Completed => "COMPLETED",
            SessionStatus::Failed => "FAILED",
            SessionStatus::Expired => "EXPIRED",
            SessionStatus::Unspecified => return Err(Error::internal("a session without status")),
        };
        let amount = session.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        Ok(Self {
            session_id: session.session_id,
            status,
            amount: amount::to_json(amount),
            currency: amount.currency().code(),
            description: session.description,
            expires_at: session.expires_at,
            created_at: session.created_at,
            transaction: session.transaction.map(TryInto::try_into).transpose()?,
        })
    }
}

impl TryFrom<Transaction> for TransactionShown {
    type Error = Error;

    fn try_from(transaction: Transaction) -> Result<Self, Error> {
        let status = match transaction.status() {
            TransactionStatus::Initiated => "INITIATED",
            TransactionStatus::OtpRequired => "OTP_REQUIRED",
            TransactionStatus::Settled => "SETTLED",
            TransactionStatus::Failed => "FAILED",
            TransactionStatus::Unspecified => {
                return Err(Error::internal("a transaction without status"));
            }
        };
        let amount = transaction.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        Ok(Self {
            transaction_id: transaction.transaction_id,
            tx_id_display: transaction.tx_id_display,
            status,
            method: transaction.method,
            amount: amount::to_json(amount),
            currency: amount.currency().code(),
            failure_reason: transaction.failure_reason,
            failure_message: transaction.failure_message,
            settlement: transaction.settlement.map(TryInto::try_into).transpose()?,
        })
    }
}

impl TryFrom<Settlement> for SettlementShown {
    type Error = Error;

    fn try_from(settlement: Settlement) -> Result<Self, Error> {
        let amount = settlement.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        let rate: Decimal = settlement.rate.parse().map_err(Error::internal)?;
        Ok(Self {
            settled_amount: amount::to_json(amount),
            settled_currency: amount.currency().code(),
            rate: amount::number(rate),
        })
    }
}
