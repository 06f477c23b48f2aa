//! What a charge looks like in its session. No I/O.

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{ChargeId, SessionId, TxIdDisplay},
    money::Money,
};
use sqlx::FromRow;

/// A charge as its session shows it. Its amount is the session's.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub transaction_id: ChargeId,
    pub tx_id_display: TxIdDisplay,
    pub status: ChargeStatus,
    pub method: String,
    /// Only on FAILED.
    pub failure_reason: Option<String>,
    pub failure_message: Option<String>,
    /// Present if the debit was in another currency than the session's.
    pub settlement: Option<Settlement>,
    /// Absent if a version recorded the charge that was not told.
    pub wallet: Option<Wallet>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What is shown of the wallet that is debited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wallet {
    pub provider: String,
    /// The last four digits of its number.
    pub last_four: String,
}

/// Which transaction: by its session, and its number there.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct TransactionPlace {
    pub session_id: SessionId,
    pub charge_number: i64,
    pub transaction_id: ChargeId,
}

/// A debit in another currency than the session's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub amount: Money,
    /// Units of the debited currency for one of the session's, as a decimal string.
    pub rate: String,
}
