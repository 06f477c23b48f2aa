//! What a rail is asked, and what it answers.

use chassis::{
    failure::FailureReason,
    ids::{RailReference, Reference},
    money::Money,
    phone::Phone,
    provider::Provider,
};

/// What a rail is asked to debit.
#[derive(Clone, Debug)]
pub struct PaymentRequest {
    pub rail_reference: RailReference,
    /// For the merchant's and payer's statements.
    pub reference: Reference,
    pub amount: Money,
    pub phone: Phone,
    pub provider: Provider,
    pub payer_email: Option<String>,
    pub merchant_name: String,
    pub description: Option<String>,
    /// The secret last segment of this charge's callback address, for rails that take an address
    /// with each request.
    pub callback_token: String,
}

/// The payment that a rail is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub rail_reference: RailReference,
    /// The rail may be waiting for a code from the payer.
    pub may_want_code: bool,
}

/// What a rail's answer means, and its own words for operators (without secrets and whole phone
/// numbers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailAnswer<T> {
    pub outcome: T,
    pub rail_text: Option<String>,
}

/// The outcome of a payment request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The payer has the prompt. `instruction`: the rail's own words to the payer, if it gave any.
    Accepted { instruction: Option<String> },
    /// The rail says that the payer was debited already. A query will tell.
    Succeeded,
    /// The rail wants a code from the payer.
    OtpRequired { instruction: Option<String> },
    /// Nothing was or will be debited: the rail refused, or nothing was sent.
    Refused(FailureReason),
    /// The rail has the reference already. A query will tell the rest.
    AlreadyKnown,
    /// It may have been submitted: only a query can tell.
    Unknown,
}

/// The outcome of submitting an OTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtpOutcome {
    Accepted {
        instruction: Option<String>,
    },
    /// The rail says that the payer was debited already. A query will tell.
    Succeeded,
    WrongCode {
        instruction: Option<String>,
    },
    /// The code, and with it the payment, has expired.
    Expired,
    Failed(FailureReason),
    /// The code was not tried: nothing was sent, or the rail refused our credentials.
    NotSent,
    /// It may have been submitted: only a query can tell.
    Unknown,
}

/// What a query found: the only truth about a debit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryOutcome {
    Pending,
    /// The rail waits for a code from the payer.
    OtpRequired,
    /// The payer has not paid so far, which is final only once the payer's time is over.
    /// Paystack's `abandoned`, Hubtel's `Unpaid`. `code_wanted`: the rail would still take a code.
    Abandoned {
        code_wanted: bool,
    },
    /// Debited. The caller compares reference and amount with its own. `fee`: what the rail keeps
    /// of the amount, if it says so.
    Succeeded {
        rail_reference: String,
        amount: Option<Money>,
        fee: Option<Money>,
    },
    Failed(FailureReason),
    /// A success that the rail took back.
    Reversed,
    /// The rail knows no such reference.
    ReferenceUnknown,
    /// The rail could not be asked, or its answer cannot be trusted.
    Unknown,
}

/// What a rail says of a payer's wallet. It never says whether an amount would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalletOutcome {
    Active,
    /// It knows no active wallet under the number.
    NotActive,
    /// It does not tell, could not be asked, or its answer cannot be trusted.
    Unknown,
}

impl<T> RailAnswer<T> {
    /// An outcome without words from the rail.
    pub(crate) fn silent(outcome: T) -> Self {
        Self {
            outcome,
            rail_text: None,
        }
    }
}

/// What all outcomes have in common.
pub trait CallOutcome {
    /// Its name in metrics and spans.
    fn label(&self) -> &'static str;

    /// Why the payment failed, if it did.
    fn reason(&self) -> Option<FailureReason>;

    /// The rail's words to the payer, if the outcome can hold any.
    fn instruction_mut(&mut self) -> Option<&mut Option<String>>;
}

impl CallOutcome for RequestOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Succeeded => "succeeded",
            Self::OtpRequired { .. } => "otp_required",
            Self::Refused(_) => "refused",
            Self::AlreadyKnown => "already_known",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Refused(reason) => Some(*reason),
            Self::Accepted { .. }
            | Self::Succeeded
            | Self::OtpRequired { .. }
            | Self::AlreadyKnown
            | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::Accepted { instruction } | Self::OtpRequired { instruction } => Some(instruction),
            Self::Succeeded | Self::Refused(_) | Self::AlreadyKnown | Self::Unknown => None,
        }
    }
}

impl CallOutcome for OtpOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Succeeded => "succeeded",
            Self::WrongCode { .. } => "wrong_code",
            Self::Expired => "expired",
            Self::Failed(_) => "failed",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Failed(reason) => Some(*reason),
            Self::Expired => Some(FailureReason::OtpExpired),
            Self::Accepted { .. }
            | Self::Succeeded
            | Self::WrongCode { .. }
            | Self::NotSent
            | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        match self {
            Self::Accepted { instruction } | Self::WrongCode { instruction } => Some(instruction),
            Self::Succeeded | Self::Expired | Self::Failed(_) | Self::NotSent | Self::Unknown => {
                None
            }
        }
    }
}

impl CallOutcome for QueryOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::OtpRequired => "otp_required",
            Self::Abandoned { .. } => "abandoned",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed(_) => "failed",
            Self::Reversed => "reversed",
            Self::ReferenceUnknown => "reference_unknown",
            Self::Unknown => "unknown",
        }
    }

    fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Failed(reason) => Some(*reason),
            Self::Pending
            | Self::OtpRequired
            | Self::Abandoned { .. }
            | Self::Succeeded { .. }
            | Self::Reversed
            | Self::ReferenceUnknown
            | Self::Unknown => None,
        }
    }

    fn instruction_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }
}

impl CallOutcome for WalletOutcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::NotActive => "not_active",
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
