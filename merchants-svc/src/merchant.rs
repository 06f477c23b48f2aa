//! What a merchant and an API key are.

use std::{fmt, str::FromStr};

use chassis::{
    clock::Timestamp,
    ids::{KeyId, MerchantId},
};
use sqlx::FromRow;

/// State of a merchant's KYC record (spec §3.3). No record at all is `None` around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KycStatus {
    Pending,
    InReview,
    Approved,
    Rejected,
    Expired,
}

impl KycStatus {
    /// As it stands in SQL and JSON.
    pub fn code(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::InReview => "IN_REVIEW",
            Self::Approved => "APPROVED",
            Self::Rejected => "REJECTED",
            Self::Expired => "EXPIRED",
        }
    }
}

/// The text is no KYC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a KYC status")]
pub struct UnknownKycStatus;

impl FromStr for KycStatus {
    type Err = UnknownKycStatus;

    fn from_str(code: &str) -> Result<Self, UnknownKycStatus> {
        match code {
            "PENDING" => Ok(Self::Pending),
            "IN_REVIEW" => Ok(Self::InReview),
            "APPROVED" => Ok(Self::Approved),
            "REJECTED" => Ok(Self::Rejected),
            "EXPIRED" => Ok(Self::Expired),
            _ => Err(UnknownKycStatus),
        }
    }
}

chassis::text_column!(KycStatus, |status| status.code().to_owned());

impl fmt::Display for KycStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Who takes payments, and whether it may.
#[derive(Clone, Debug, FromRow)]
pub struct Merchant {
    pub merchant_id: MerchantId,
    pub name: String,
    pub email: String,
    pub email_verified: bool,
    /// `None` while no record was submitted.
    pub kyc_status: Option<KycStatus>,
    pub accepting_payments: bool,
    pub created_at: Timestamp,
}

/// What a new merchant is made of; checked when it is parsed.
#[derive(Clone, Debug)]
pub struct NewMerchant {
    pub name: String,
    pub email: String,
    pub email_verified: bool,
    pub kyc_status: Option<KycStatus>,
    pub accepting_payments: bool,
}

/// What to change; `None` leaves a field as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    pub email_verified: Option<bool>,
    /// `Some(None)` clears the record.
    pub kyc_status: Option<Option<KycStatus>>,
    pub accepting_payments: Option<bool>,
}

/// An API key as people see it; the secret was shown once, at its creation.
#[derive(Clone, Debug, FromRow)]
pub struct Key {
    pub key_id: KeyId,
    pub merchant_id: MerchantId,
    pub label: String,
    pub hint: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}
