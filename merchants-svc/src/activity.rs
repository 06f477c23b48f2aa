//! What people did to a merchant. Everyone who belongs to it can see this, and the person is mailed
//! what they would want to know if it was somebody else.

use chassis::{
    clock::Timestamp,
    ids::{ActivityId, MerchantId, PersonId},
};
use sha2::{Digest as _, Sha256};
use sqlx::FromRow;

use crate::mail::MailKind;

chassis::closed_list! {
    /// What a person did.
    pub enum Action: "an action" {
        SignedUp = "SIGNED_UP",
        EmailVerified = "EMAIL_VERIFIED",
        EmailChangeRequested = "EMAIL_CHANGE_REQUESTED",
        EmailChanged = "EMAIL_CHANGED",
        LoggedIn = "LOGGED_IN",
        LoggedOut = "LOGGED_OUT",
        LoginsEnded = "LOGINS_ENDED",
        PasswordChanged = "PASSWORD_CHANGED",
        PasswordReset = "PASSWORD_RESET",
        TotpChanged = "TOTP_CHANGED",
        RecoveryCodesRenewed = "RECOVERY_CODES_RENEWED",
        RecoveryCodeUsed = "RECOVERY_CODE_USED",
        /// Five wrong codes, each within a day of the one before, by somebody who knew the password or was logged in.
        WrongCodes = "WRONG_CODES",
        KeyCreated = "KEY_CREATED",
        KeyRevoked = "KEY_REVOKED",
        BusinessSubmitted = "BUSINESS_SUBMITTED",
        WebhookChanged = "WEBHOOK_CHANGED",
        WebhookSecretShown = "WEBHOOK_SECRET_SHOWN",
        WebhookSecretRotated = "WEBHOOK_SECRET_ROTATED",
        EventsReplayed = "EVENTS_REPLAYED",
        PayoutAccountChanged = "PAYOUT_ACCOUNT_CHANGED",
        PayoutRequested = "PAYOUT_REQUESTED",
        RefundRequested = "REFUND_REQUESTED",
        DailySettlementSwitched = "DAILY_SETTLEMENT_SWITCHED",
    }
}

chassis::text_column!(Action);

impl Action {
    /// Whether another service does it, so that only its caller can tell us.
    pub fn is_told(self) -> bool {
        match self {
            Self::WebhookChanged
            | Self::WebhookSecretShown
            | Self::WebhookSecretRotated
            | Self::EventsReplayed
            | Self::PayoutAccountChanged
            | Self::PayoutRequested
            | Self::RefundRequested
            | Self::DailySettlementSwitched => true,
            Self::SignedUp
            | Self::EmailVerified
            | Self::EmailChangeRequested
            | Self::EmailChanged
            | Self::LoggedIn
            | Self::LoggedOut
            | Self::LoginsEnded
            | Self::PasswordChanged
            | Self::PasswordReset
            | Self::TotpChanged
            | Self::RecoveryCodesRenewed
            | Self::RecoveryCodeUsed
            | Self::WrongCodes
            | Self::KeyCreated
            | Self::KeyRevoked
            | Self::BusinessSubmitted => false,
        }
    }

    /// The mail that tells the person of it.
    pub fn notice(self) -> Option<MailKind> {
        match self {
            Self::PasswordChanged => Some(MailKind::PasswordChanged),
            Self::PasswordReset => Some(MailKind::PasswordReset),
            Self::TotpChanged => Some(MailKind::TotpChanged),
            Self::RecoveryCodesRenewed => Some(MailKind::RecoveryCodesRenewed),
            Self::RecoveryCodeUsed => Some(MailKind::RecoveryCodeUsed),
            Self::WrongCodes => Some(MailKind::WrongCodes),
            Self::KeyCreated => Some(MailKind::KeyCreated),
            Self::KeyRevoked => Some(MailKind::KeyRevoked),
            Self::WebhookChanged => Some(MailKind::WebhookChanged),
            Self::WebhookSecretShown => Some(MailKind::WebhookSecretShown),
            Self::WebhookSecretRotated => Some(MailKind::WebhookSecretRotated),
            Self::PayoutRequested => Some(MailKind::PayoutRequested),
            Self::RefundRequested => Some(MailKind::RefundRequested),
            Self::SignedUp
            | Self::EmailVerified
            // Mailed to the address that the person has or had, whatever becomes of it.
            | Self::EmailChangeRequested
            | Self::EmailChanged
            | Self::LoggedIn
            | Self::LoggedOut
            | Self::LoginsEnded
            | Self::BusinessSubmitted
            | Self::EventsReplayed
            // Once it is set, charges-svc has everybody told: `NoticeKind::PayoutAccountSet`.
            | Self::PayoutAccountChanged
            | Self::DailySettlementSwitched => None,
        }
    }
}

/// Where a request came from.
#[derive(Clone, Debug, FromRow, PartialEq, Eq)]
pub struct Origin {
    pub address: String,
    pub user_agent: String,
}

/// Something that a person is doing.
#[derive(Clone, Debug)]
pub struct Deed {
    pub merchant_id: MerchantId,
    pub person_id: PersonId,
    pub action: Action,
    /// What it is done to. Never a secret.
    pub object: String,
    pub origin: Origin,
    pub at: Timestamp,
}

impl Deed {
    /// The id of what a form does, whose nonce this is: the same form, sent again, does the same.
    pub fn id_by_form(&self, nonce: &str) -> ActivityId {
        let of = format!(
            "{} {} {} {} {nonce}",
            self.merchant_id, self.person_id, self.action, self.object
        );
        let digest = Sha256::digest(of);
        let bytes = digest.first_chunk().copied().unwrap_or_default();
        uuid::Builder::from_custom_bytes(bytes).into_uuid().into()
    }
}

/// What a person did, as it is listed.
#[derive(Clone, Debug, FromRow)]
pub struct Activity {
    pub activity_id: ActivityId,
    pub action: Action,
    pub object: String,
    pub email: String,
    #[sqlx(flatten)]
    pub origin: Origin,
    pub created_at: Timestamp,
}
