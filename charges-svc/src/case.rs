//! Operators' cases: what only a person can decide.

use std::str::FromStr;

use chassis::{
    clock::Timestamp,
    ids::{CaseId, ChargeId, Reference},
    money::{Currency, Money},
};
use sqlx::FromRow;

/// Why a person must look. A charge has at most one case of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaseKind {
    /// A day has passed and the rail gives no outcome.
    UnknownOutcome,
    /// The rail reports success with another reference, amount or currency than ours.
    Mismatch,
    /// Money arrived for a charge that had failed.
    LateMoney,
    /// The rail took a payment back.
    Reversed,
    /// The charge settled although its session's merchant had been credited by a release.
    CreditedTwice,
}

/// Where the money of a case went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Back to the payer.
    Refund,
    /// To the merchant.
    Release,
}

/// An operator's case.
#[derive(Clone, Debug, FromRow)]
pub struct Case {
    pub case_id: CaseId,
    pub transaction_id: ChargeId,
    pub reference: Reference,
    pub kind: CaseKind,
    /// What happened, for operators.
    pub detail: String,
    suspense_minor: Option<i64>,
    suspense_currency: Option<Currency>,
    pub opened_at: Timestamp,
    pub closed_at: Option<Timestamp>,
}

impl Case {
    pub fn new(
        charge: (ChargeId, &Reference),
        kind: CaseKind,
        detail: String,
        suspense: Option<Money>,
        now: Timestamp,
    ) -> Self {
        Self {
            case_id: CaseId::new(),
            transaction_id: charge.0,
            reference: charge.1.clone(),
            kind,
            detail,
            suspense_minor: suspense.map(Money::minor_units),
            suspense_currency: suspense.map(Money::currency),
            opened_at: now,
            closed_at: None,
        }
    }

    /// Money that was posted to suspense with this case.
    pub fn suspense(&self) -> Option<Money> {
        let (minor_units, currency) = self.suspense_minor.zip(self.suspense_currency)?;
        Some(Money::new(minor_units, currency))
    }
}

/// The text is none that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a kind of case")]
pub struct UnknownKind;

impl CaseKind {
    pub const ALL: [Self; 5] = [
        Self::UnknownOutcome,
        Self::Mismatch,
        Self::LateMoney,
        Self::Reversed,
        Self::CreditedTwice,
    ];

    /// As it stands in SQL.
    pub fn code(self) -> &'static str {
        match self {
            Self::UnknownOutcome => "UNKNOWN_OUTCOME",
            Self::Mismatch => "MISMATCH",
            Self::LateMoney => "LATE_MONEY",
            Self::Reversed => "REVERSED",
            Self::CreditedTwice => "CREDITED_TWICE",
        }
    }
}

impl FromStr for CaseKind {
    type Err = UnknownKind;

    fn from_str(code: &str) -> Result<Self, UnknownKind> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.code() == code).ok_or(UnknownKind)
    }
}

impl Closing {
    /// As it stands in SQL.
    pub fn code(self) -> &'static str {
        match self {
            Self::Refund => "REFUND",
            Self::Release => "RELEASE",
        }
    }
}

chassis::text_column!(CaseKind, |kind| kind.code().to_owned());
