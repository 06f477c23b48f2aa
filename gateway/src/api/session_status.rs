//! `GET /api/v1/payments/{session_id}/status`: the state of a session (spec §4.2).

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
};
use chassis::{ids::SessionId, money::Money};
use proto::sessions::{GetSessionRequest, Session, Settlement, Transaction};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::value::RawValue;

use super::amount;
use crate::{backend, edge::Edge, error::Error, merchant::Merchant};

/// `SessionShown` of the contract.
#[derive(Debug, Serialize)]
pub struct SessionShown {
    session_id: String,
    status: &'static str,
    amount: Box<RawValue>,
    currency: &'static str,
    description: Option<String>,
    expires_at: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction: Option<TransactionShown>,
}

/// `TransactionShown` of the contract.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_amount: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_currency: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Box<RawValue>>,
    /// Of the wallet that is debited, as the next; left out where it was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payer_last_four: Option<String>,
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
        .session_reads
        .read(backend::DEADLINE, request, |sessions, request| async move {
            sessions.call(request).await
        })
        .await?;
    Ok(Json(session.try_into()?))
}

impl TryFrom<Session> for SessionShown {
    type Error = Error;

    fn try_from(session: Session) -> Result<Self, Error> {
        let status = session.status().code();
        let status = status.ok_or_else(|| Error::internal("a session without status"))?;
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
        let status = transaction.status().code();
        let status = status.ok_or_else(|| Error::internal("a transaction without status"))?;
        let amount = transaction.amount.unwrap_or_default();
        let amount = Money::try_from(&amount).map_err(Error::internal)?;
        let settled = transaction.settlement.map(settled).transpose()?;
        let (settled, rate) = settled.unzip();
        let wallet = transaction.wallet;
        let (provider, payer_last_four) = wallet
            .map(|wallet| (wallet.provider, wallet.last_four))
            .unzip();
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
            provider,
            payer_last_four,
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
