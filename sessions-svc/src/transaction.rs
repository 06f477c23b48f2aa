//! What a charge looks like in its session, and the reports that charges-svc makes of it. No I/O.

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, MerchantId, SessionId, TxIdDisplay},
    money::Money,
};

use crate::{
    customer::Payer,
    session::{DirectSession, SessionStatus},
};

chassis::closed_list! {
    /// Transaction status (spec §2.2), and the tombstone, which is never shown.
    pub enum TransactionStatus: "a transaction's status" {
        Initiated = "INITIATED",
        OtpRequired = "OTP_REQUIRED",
        Settled = "SETTLED",
        Failed = "FAILED",
        /// Nothing was or will be sent for it.
        Withdrawn = "WITHDRAWN",
    }
}

chassis::text_column!(TransactionStatus);

/// A charge as its session shows it. Its amount is the session's.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub transaction_id: ChargeId,
    pub tx_id_display: TxIdDisplay,
    pub status: TransactionStatus,
    pub method: String,
    /// Only on FAILED.
    pub failure_reason: Option<String>,
    pub failure_message: Option<String>,
    /// Where the debit was in another currency than the session's.
    pub settlement: Option<Settlement>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A debit in another currency than the session's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub amount: Money,
    /// Units of the debited currency for one of the session's, as a decimal text.
    pub rate: String,
}

/// What charges-svc reports of one charge.
#[derive(Clone, Debug)]
pub struct Report {
    pub merchant_id: MerchantId,
    pub session_id: SessionId,
    /// Number of the charge within its session, from 1.
    pub charge_number: u32,
    /// Higher at each change of the charge.
    pub version: u32,
    pub step: Step,
    /// What to create for a direct charge.
    pub direct: Option<DirectSession>,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing is sent to a rail before this was accepted.
    Open {
        transaction: Transaction,
        amount: Money,
    },
    /// The charge changed.
    Update {
        transaction: Transaction,
        amount: Money,
        payer: Payer,
    },
    /// The charge is void.
    Withdraw,
}

impl Step {
    /// For metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Update { .. } => "update",
            Self::Withdraw => "withdraw",
        }
    }
}

/// What a report is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub outcome: Outcome,
    /// The session as it stands, if there is one.
    pub session_status: Option<SessionStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Recorded,
    /// Only for an Open; nothing was changed.
    Refused,
}
