//! What a rail is asked to pay out, and what it answers.

use std::fmt;

use chassis::{
    failure::FailureReason, ids::RailReference, money::Money, phone::Phone, provider::Provider,
};

use crate::answer::CallOutcome;

/// What a rail is asked to pay.
#[derive(Clone, Debug)]
pub struct TransferRequest {
    pub rail_reference: RailReference,
    /// `PO-…` or `RF-…`, for statements.
    pub shown_id: String,
    pub amount: Money,
    pub destination: Destination,
    /// Whether a request under this reference went out before. A rail that takes a reference once may
    /// mean that one when it refuses this.
    pub may_be_known: bool,
    /// The secret last segment of this transfer's callback address, for rails that take an address
    /// with each request.
    pub callback_token: String,
}

/// Where money goes.
#[derive(Clone, PartialEq, Eq)]
pub enum Destination {
    Wallet {
        provider: Provider,
        phone: Phone,
        holder_name: Option<String>,
    },
    Bank {
        bank_code: String,
        account_number: String,
        holder_name: String,
    },
}

impl Destination {
    pub fn holder_name(&self) -> Option<&str> {
        match self {
            Self::Wallet { holder_name, .. } => holder_name.as_deref(),
            Self::Bank { holder_name, .. } => Some(holder_name),
        }
    }
}

/// Neither account nor name reaches a log.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wallet { provider, .. } => write!(f, "a wallet of {provider}"),
            Self::Bank { bank_code, .. } => write!(f, "an account at bank {bank_code}"),
        }
    }
}

/// The outcome of sending a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The rail has taken it. A query will tell what became of it.
    Accepted,
    /// The rail has not taken it, for a reason that is ours or will pass. It may be sent later,
    /// under the same reference.
    NotSent(FailureReason),
    /// The rail has refused it because of the payee. Nothing was or will be paid.
    Refused(FailureReason),
    /// The rail has not taken it, because our float is empty.
    FloatEmpty,
    /// The rail has the reference already. A query will tell the rest.
    AlreadyKnown,
    /// It may have been sent: only a query can tell.
    Unknown,
}

/// What a query found: the only truth about a credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferOutcome {
    Pending,
    /// Paid. The caller compares reference and amount with its own. `fee`: what the rail took
    /// from the float on top, if it says so.
    Succeeded {
        rail_reference: String,
        amount: Option<Money>,
        fee: Option<Money>,
    },
    Failed(FailureReason),
    /// It failed because our float is empty.
    FloatEmpty,
    /// A success that the rail took back. `fee`: as for a success; the rail keeps it.
    Reversed {
        fee: Option<Money>,
    },
    /// The rail knows no such reference.
    ReferenceUnknown,
    /// The rail could not be asked, or its answer cannot be trusted.
    Unknown,
}

/// What a rail holds for transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatOutcome {
    Held(Money),
    Unknown,
}

impl FloatOutcome {
    /// Whether the rail says that it holds less than this.
    pub(crate) fn lacks(self, amount: Money) -> bool {
        matches!(
            self,
            Self::Held(held)
                if held.currency() == amount.currency()
                    && held.minor_units() < amount.minor_units()
        )
    }
}

/// Whose account a rail says it is.
#[derive(Clone, PartialEq, Eq)]
pub enum HolderOutcome {
    Named(String),
    /// The account is there. The rail tells no name.
    Active,
    NotThere,
    Unknown,
}

impl fmt::Debug for HolderOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl CallOutcome for SendOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::NotSent(_) => "not_sent",
            Self::Refused(_) => "refused",
            Self::FloatEmpty => "float_empty",
            Self::AlreadyKnown => "already_known",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::NotSent(reason) | Self::Refused(reason) => Some(*reason),
            Self::Accepted | Self::FloatEmpty | Self::AlreadyKnown | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }
}

impl CallOutcome for TransferOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed(_) => "failed",
            Self::FloatEmpty => "float_empty",
            Self::Reversed { .. } => "reversed",
            Self::ReferenceUnknown => "reference_unknown",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Failed(reason) => Some(*reason),
            Self::Pending
            | Self::Succeeded { .. }
            | Self::FloatEmpty
            | Self::Reversed { .. }
            | Self::ReferenceUnknown
            | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }
}

impl CallOutcome for FloatOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        None
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }
}

impl CallOutcome for HolderOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Named(_) => "named",
            Self::Active => "active",
            Self::NotThere => "not_there",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        None
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }
}
