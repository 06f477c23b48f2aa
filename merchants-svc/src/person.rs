//! People, and the merchants that they belong to.

use std::{fmt, str::FromStr};

use chassis::{
    clock::Timestamp,
    ids::{MerchantId, PersonId},
    limits::EMAIL_CHARACTERS_MAX,
    sealed::SealedSecret,
};
use sqlx::FromRow;

use crate::password::PasswordHash;

chassis::closed_list! {
    /// What a person may do for a merchant.
    pub enum Role: "a role" {
        /// Everything.
        Owner = "OWNER",
    }
}

chassis::text_column!(Role);

/// An address that mail can be sent to, in lower case. Prints masked.
#[derive(Clone, PartialEq, Eq)]
pub struct EmailAddress(String);

/// The text is not an e-mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an e-mail address")]
pub struct EmailError;

impl EmailAddress {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EmailAddress {
    type Err = EmailError;

    fn from_str(text: &str) -> Result<Self, EmailError> {
        let text = text.trim().to_ascii_lowercase();
        let is_address = text.len() <= EMAIL_CHARACTERS_MAX
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'[')
            && text.parse::<lettre::Address>().is_ok();
        is_address.then_some(Self(text)).ok_or(EmailError)
    }
}

chassis::text_column!(EmailAddress, |email| email.0.clone());

impl fmt::Display for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, host) = self.0.split_once('@').unwrap_or_default();
        let first = name.chars().next().unwrap_or('*');
        write!(f, "{first}***@{host}")
    }
}

impl fmt::Debug for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Somebody who may log in.
#[derive(Clone, Debug, FromRow)]
pub struct Person {
    pub person_id: PersonId,
    pub email: EmailAddress,
    pub verified_at: Option<Timestamp>,
    pub password_hash: PasswordHash,
    /// The secret of the authenticator that counts.
    pub totp_secret: Option<SealedSecret>,
    /// One that a right code must still confirm.
    pub totp_pending: Option<SealedSecret>,
    /// The time step of the last code that was taken.
    pub totp_last_step: Option<i64>,
    /// An address that they have asked for, and that a link has not confirmed.
    pub email_pending: Option<EmailAddress>,
    pub created_at: Timestamp,
}

/// A person's place at a merchant.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Membership {
    pub person_id: PersonId,
    pub merchant_id: MerchantId,
    pub role: Role,
    pub created_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_that_mail_can_be_sent_to() {
        let email: EmailAddress = " Ama@Example.COM ".parse().unwrap();
        assert_eq!(email.as_str(), "ama@example.com");
        assert_eq!(
            format!("{email} {email:?}"),
            "a***@example.com a***@example.com"
        );
        for text in [
            "",
            "ama",
            "@example.com",
            "ama@",
            "a b@example.com",
            "ama@example.com, esi@example.com",
            "ama@example.com\r\nBcc: esi@example.com",
            "<ama@example.com>",
            "amá@example.com",
            "ama@[127.0.0.1]",
            &format!("{}@example.com", "a".repeat(250)),
        ] {
            assert_eq!(text.parse::<EmailAddress>(), Err(EmailError), "{text}");
        }
    }
}
