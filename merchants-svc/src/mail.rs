//! Mails to people, as they wait to be sent.

use chassis::{clock::Timestamp, ids::PersonId};
use sqlx::FromRow;
use uuid::Uuid;

use crate::person::EmailAddress;

chassis::closed_list! {
    /// What a mail tells.
    pub enum MailKind: "a kind of mail" {
        /// Has a link that verifies the address.
        VerifyEmail = "VERIFY_EMAIL",
        /// Has a link that makes the address that it is sent to the person's.
        ConfirmEmail = "CONFIRM_EMAIL",
        /// Somebody else wants to have the person's address.
        AddressWanted = "ADDRESS_WANTED",
        EmailChangeRequested = "EMAIL_CHANGE_REQUESTED",
        /// To the address before.
        EmailChanged = "EMAIL_CHANGED",
        AlreadyRegistered = "ALREADY_REGISTERED",
        /// Has a link to choose another password.
        ResetPassword = "RESET_PASSWORD",
        /// Has a link to choose the first password.
        Invited = "INVITED",
        BusinessDecided = "BUSINESS_DECIDED",
        /// The approval ends in a month.
        ApprovalEnds = "APPROVAL_ENDS",
        ApprovalEnded = "APPROVAL_ENDED",
        PasswordChanged = "PASSWORD_CHANGED",
        PasswordReset = "PASSWORD_RESET",
        TotpChanged = "TOTP_CHANGED",
        RecoveryCodesRenewed = "RECOVERY_CODES_RENEWED",
        RecoveryCodeUsed = "RECOVERY_CODE_USED",
        WrongCodes = "WRONG_CODES",
        KeyCreated = "KEY_CREATED",
        KeyRevoked = "KEY_REVOKED",
        WebhookChanged = "WEBHOOK_CHANGED",
        WebhookSecretShown = "WEBHOOK_SECRET_SHOWN",
        WebhookSecretRotated = "WEBHOOK_SECRET_ROTATED",
        /// Written by the version before alone.
        PayoutAccountChanged = "PAYOUT_ACCOUNT_CHANGED",
        PayoutRequested = "PAYOUT_REQUESTED",
        RefundRequested = "REFUND_REQUESTED",
        /// It was set, by whoever could: with both accounts.
        PayoutAccountSet = "PAYOUT_ACCOUNT_SET",
        WebhookExhausted = "WEBHOOK_EXHAUSTED",
    }
}

chassis::text_column!(MailKind);

/// A mail to write, due at once.
#[derive(Clone, Debug)]
pub struct NewMail {
    pub person_id: PersonId,
    pub kind: MailKind,
    /// What it tells of, such as a key's name. Never a secret.
    pub about: String,
    /// Where the request came from; empty if it was not the person's.
    pub address: String,
    /// Where it goes; to the person's address at the time if nowhere else.
    pub recipient: Option<EmailAddress>,
    pub at: Timestamp,
}

/// A mail that this process holds.
#[derive(Clone, Debug, FromRow)]
pub struct Mail {
    pub mail_id: Uuid,
    pub person_id: PersonId,
    pub kind: MailKind,
    pub about: String,
    pub address: String,
    pub recipient: Option<EmailAddress>,
    pub created_at: Timestamp,
    /// Claims so far, this one included.
    pub attempts: i64,
    /// Fencing token: only its holder may end the mail.
    pub claim: Uuid,
}
