//! Merchants and their API keys.

use chassis::{
    clock::Timestamp,
    ids::{KeyId, MerchantId},
};
use sqlx::FromRow;

chassis::closed_list! {
    /// State of a merchant's KYC record (spec §3.3). A merchant without a record has `None`.
    pub enum KycStatus: "a KYC status" {
        Pending = "PENDING",
        InReview = "IN_REVIEW",
        Approved = "APPROVED",
        Rejected = "REJECTED",
        Expired = "EXPIRED",
    }
}

chassis::text_column!(KycStatus);

/// A merchant, and what decides whether it may take payments.
#[derive(Clone, Debug, FromRow)]
pub struct Merchant {
    pub merchant_id: MerchantId,
    pub name: String,
    pub email: String,
    pub email_verified: bool,
    /// `None` if no record was submitted.
    pub kyc_status: Option<KycStatus>,
    pub accepting_payments: bool,
    pub created_at: Timestamp,
}

/// The fields of a new merchant, checked when they are parsed.
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

/// An API key as people see it. The secret was shown once, when the key was created.
#[derive(Clone, Debug, FromRow)]
pub struct ApiKeyRecord {
    pub key_id: KeyId,
    pub merchant_id: MerchantId,
    pub label: String,
    pub hint: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

impl ApiKeyRecord {
    /// Enough for its owner to recognise it: its name, and how it ends.
    pub fn shown(&self) -> String {
        format!("{} (…{})", self.label, self.hint)
            .trim_start()
            .to_owned()
    }
}

/// A key as its merchant's people see it.
#[derive(Clone, Debug, FromRow)]
pub struct OwnKey {
    #[sqlx(flatten)]
    pub record: ApiKeyRecord,
    /// The e-mail address of the person who made it; `None` if an operator did.
    pub created_by: Option<String>,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
}

/// A key to write.
#[derive(Debug)]
pub struct NewKey {
    pub record: ApiKeyRecord,
    /// Of the whole key, in hex.
    pub sha256: String,
}

/// When a key was last used.
#[derive(Clone, Copy, Debug)]
pub struct KeyUse {
    pub key_id: KeyId,
    pub at: Timestamp,
}

/// The merchant of a key.
#[derive(Clone, Debug, FromRow)]
pub struct KeyHolder {
    pub key_id: KeyId,
    label: String,
    hint: String,
    #[sqlx(flatten)]
    pub merchant: Merchant,
}

impl KeyHolder {
    /// What the merchant calls the key: by its label, or else by how it ends.
    pub fn key_name(&self) -> String {
        match self.label.as_str() {
            "" => format!("…{}", self.hint),
            label => label.to_owned(),
        }
    }
}
