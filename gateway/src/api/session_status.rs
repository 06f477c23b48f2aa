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
use utoipa::ToSchema;

use super::{amount, openapi::schemas, read_charge::StatusShown};
use crate::{Edge, backend, error::Error, merchant::Merchant};

/// A payment session as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionShown {
    #[schema(value_type = schemas::SessionId)]
    session_id: String,
    status: SessionStatusShown,
    #[schema(value_type = schemas::Amount)]
    amount: Box<RawValue>,
    #[schema(value_type = schemas::Currency)]
    currency: &'static str,
    /// Null where there is none.
    #[schema(required = true)]
    description: Option<String>,
    /// 24 hours after its creation.
    #[schema(value_type = schemas::Timestamp)]
    expires_at: String,
    #[schema(value_type = schemas::Timestamp)]
    created_at: String,
    /// The latest; left out before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = TransactionShown, required = false)]
    transaction: Option<TransactionShown>,
}

/// PENDING: can be paid. PROCESSING: a charge is under way. COMPLETED: its transaction has
/// settled. FAILED: a direct charge's session whose charge failed. EXPIRED: ended unpaid.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionStatus)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum SessionStatusShown {
    Pending,
    Processing,
    Completed,
    Failed,
    Expired,
}

/// A charge as its session shows it.
#[derive(Debug, Serialize, ToSchema)]
struct TransactionShown {
    #[schema(value_type = schemas::TransactionId)]
    transaction_id: String,
    #[schema(value_type = schemas::TxIdDisplay)]
    tx_id_display: String,
    status: StatusShown,
    #[schema(value_type = schemas::Method)]
    method: String,
    #[schema(value_type = schemas::Amount)]
    amount: Box<RawValue>,
    #[schema(value_type = schemas::Currency)]
    currency: &'static str,
    /// Null unless the status is FAILED.
    #[schema(value_type = Option<schemas::FailureReason>, required = true)]
    failure_reason: Option<String>,
    /// The same for people; left out unless the status is FAILED.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    failure_message: Option<String>,
    /// What the payer was debited, where that is another currency than the session's; otherwise
    /// left out, like the two that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schemas::Amount, required = false)]
    settled_amount: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schemas::Currency, required = false)]
    settled_currency: Option<&'static str>,
    /// Units of the settled currency for one of the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schemas::Rate, required = false)]
    rate: Option<Box<RawValue>>,
}

/// Check a session's status
///
/// Tells how a payment session stands, with its latest transaction. It is COMPLETED once that
/// has settled. Another merchant's session is 404, like an unknown one.
#[utoipa::path(
    get,
    path = "/api/v1/payments/{session_id}/status",
    tag = "Payment sessions",
    params(("session_id" = inline(schemas::SessionId), Path, description = "The `session_id` of the session.")),
    responses((status = 200, description = "The session.", body = SessionShown)),
)]
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
            SessionStatus::Pending => SessionStatusShown::Pending,
            SessionStatus::Processing => SessionStatusShown::Processing,
            SessionStatus::Completed => SessionStatusShown::Completed,
            SessionStatus::Failed => SessionStatusShown::Failed,
            SessionStatus::Expired => SessionStatusShown::Expired,
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
            TransactionStatus::Initiated => StatusShown::Initiated,
            TransactionStatus::OtpRequired => StatusShown::OtpRequired,
            TransactionStatus::Settled => StatusShown::Settled,
            TransactionStatus::Failed => StatusShown::Failed,
            TransactionStatus::Unspecified => {
                return Err(Error::internal("a transaction without status"));
            }
        };
        let amount = transaction.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        let settled = transaction.settlement.map(settled).transpose()?;
        let (settled, rate) = settled.unzip();
        Ok(Self {
            transaction_id: transaction.transaction_id,
            tx_id_display: transaction.tx_id_display,
            status,
            method: transaction.method,
            amount: amount::to_json(amount),
            currency: amount.currency().code(),
            failure_reason: transaction.failure_reason,
            failure_message: transaction.failure_message,
            settled_amount: settled.map(amount::to_json),
            settled_currency: settled.map(|settled| settled.currency().code()),
            rate: rate.map(amount::number),
        })
    }
}

/// What was debited, and at which rate.
fn settled(settlement: Settlement) -> Result<(Money, Decimal), Error> {
    let amount = settlement.amount.unwrap_or_default();
    let amount = Money::try_from(&amount).map_err(Error::internal)?;
    let rate: Decimal = settlement.rate.parse().map_err(Error::internal)?;
    Ok((amount, rate))
}
