//! What a merchant and an API key are.

use chassis::{
    clock::Timestamp,
    ids::{KeyId, MerchantId},
};
use sqlx::FromRow;

chassis::closed_list! {
    /// State of a merchant's KYC record (spec §3.3). No record at all is `None` around it.
    pub enum KycStatus: "a KYC status" {
        Pending = "PENDING",
        InReview = "IN_REVIEW",
        Approved = "APPROVED",
        Rejected = "REJECTED",
        Expired = "EXPIRED",
    }
}

chassis::text_column!(KycStatus);

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
