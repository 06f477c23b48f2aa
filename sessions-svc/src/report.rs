//! The reports that charges-svc makes about its charges, and their answers. No I/O.

use std::time::Duration;

use chassis::{
    charge_status::ChargeStatus,
    ids::{MerchantId, SessionId},
    money::Money,
    phone::Phone,
};

use crate::{
    customer::Payer,
    session::{DirectSession, Origin, Session, SessionStatus},
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

impl Report {
    /// Whether it opens a direct charge. Nobody has heard of its session yet, unless this report is a
    /// repeat or comes late.
    pub fn opens_session(&self) -> bool {
        self.direct.is_some() && matches!(self.step, Step::Open { .. })
    }

    /// The session that a direct charge brings.
    pub fn session(&self, lifetime: Duration) -> Option<Session> {
        let direct = self.direct.as_ref()?;
        Some(Session {
            session_id: self.session_id,
            merchant_id: self.merchant_id,
            origin: Origin::Direct,
            amount_minor: direct.amount.minor_units(),
            currency: direct.amount.currency(),
            description: direct.description.clone(),
            redirect_url: None,
            payer: direct.payer.clone(),
            customer_id: None,
            status: SessionStatus::Processing,
            created_at: direct.created_at,
            expires_at: direct.created_at + lifetime,
        })
    }
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
    /// The charge as it becomes; `None` if it is withdrawn.
    pub fn transaction(&self) -> Option<&Transaction> {
        match self {
            Self::Open { transaction, .. } | Self::Update { transaction, .. } => Some(transaction),
            Self::Withdraw => None,
        }
    }

    /// The phone of the wallet that has paid.
    pub fn paid_from(&self) -> Option<&Phone> {
        match self {
            Self::Update {
                transaction, payer, ..
            } if transaction.status == ChargeStatus::Settled => payer.phone.as_ref(),
            Self::Update { .. } | Self::Open { .. } | Self::Withdraw => None,
        }
    }

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
