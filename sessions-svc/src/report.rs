//! The reports that charges-svc makes about its charges, and their answers. No I/O.

use chassis::{
    ids::{MerchantId, SessionId},
    money::Money,
};

use crate::{
    customer::Payer,
    session::{DirectSession, SessionStatus},
    transaction::Transaction,
};

/// What charges-svc reports about one charge.
#[derive(Clone, Debug)]
pub struct Report {
    pub merchant_id: MerchantId,
    pub session_id: SessionId,
    /// Number of the charge within its session, from 1.
    pub charge_number: u32,
    /// Higher with each change of the charge.
    pub version: u32,
    pub step: Step,
    /// The session to create for a direct charge.
    pub direct: Option<DirectSession>,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// The charge is about to start. Nothing is sent to a rail before this has been accepted.
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
    /// The step's name in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Update { .. } => "update",
            Self::Withdraw => "withdraw",
        }
    }
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportReply {
    pub outcome: ReportOutcome,
    /// The session as it stands, if there is one.
    pub session_status: Option<SessionStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    Recorded,
    /// Only for an Open. Nothing was changed.
    Refused,
}
