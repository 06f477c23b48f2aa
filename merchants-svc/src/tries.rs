//! What somebody may try only so often, whether or not what they try it on exists.

use std::time::Duration;

use chassis::{clock::Timestamp, ids::PersonId};

use crate::{
    mail::MailKind,
    person::EmailAddress,
    token::{TokenSha256, sha256},
};

chassis::closed_list! {
    /// What is tried.
    pub enum Purpose: "a purpose of tries" {
        /// A password for an address.
        Password = "PASSWORD",
        /// The password of a person who is logged in.
        Confirmation = "CONFIRMATION",
        /// A code of a person.
        Code = "CODE",
        /// A wrong code of a person, whatever right ones come between.
        WrongCode = "WRONG_CODE",
        /// Another password of a person's, which is hashed for nothing if it comes too late.
        NewPassword = "NEW_PASSWORD",
        /// A mail to an address, asked for by somebody who is not logged in as its owner.
        Mail = "MAIL",
        /// Another address of a person's, which is a mail to whoever has it.
        EmailChange = "EMAIL_CHANGE",
        /// A mail of one kind that tells a person what they did.
        Notice = "NOTICE",
    }
}

chassis::text_column!(Purpose);

impl Purpose {
    /// How often before a pause.
    pub fn most(self) -> i64 {
        match self {
            Self::Password
            | Self::Confirmation
            | Self::Code
            | Self::WrongCode
            | Self::NewPassword
            | Self::Mail
            | Self::EmailChange => 5,
            Self::Notice => 20,
        }
    }

    /// How long the last try is remembered, and so how long the pause is.
    pub fn pause(self) -> Duration {
        match self {
            Self::Password | Self::Confirmation | Self::Code => Duration::from_mins(5),
            Self::NewPassword | Self::Mail | Self::EmailChange | Self::Notice => {
                Duration::from_hours(1)
            }
            Self::WrongCode => Duration::from_hours(24),
        }
    }
}

/// Whether a try may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    Allowed,
    /// The next one must wait, unless this one is right.
    LastBeforePause,
    /// Not before this time.
    Paused(Timestamp),
}

/// What something is tried on. Kept as its SHA-256, so that addresses of strangers are not.
#[derive(Clone, Debug)]
pub struct Tried {
    pub purpose: Purpose,
    pub subject: String,
}

impl Tried {
    pub fn password(email: &EmailAddress) -> Self {
        Self::new(Purpose::Password, email.as_str())
    }

    /// In a browser that had this login of the person's before.
    pub fn password_after(email: &EmailAddress, earlier: &TokenSha256) -> Self {
        let subject = format!("{} {}", email.as_str(), earlier.as_str());
        Self::new(Purpose::Password, &subject)
    }

    /// Not by the address: strangers know it.
    pub fn confirmation(person_id: PersonId) -> Self {
        Self::new(Purpose::Confirmation, &person_id.to_string())
    }

    pub fn code(person_id: PersonId) -> Self {
        Self::new(Purpose::Code, &person_id.to_string())
    }

    pub fn wrong_code(person_id: PersonId) -> Self {
        Self::new(Purpose::WrongCode, &person_id.to_string())
    }

    pub fn new_password(person_id: PersonId) -> Self {
        Self::new(Purpose::NewPassword, &person_id.to_string())
    }

    pub fn mail(email: &EmailAddress) -> Self {
        Self::new(Purpose::Mail, email.as_str())
    }

    /// By who asks, so that nobody has strangers mailed one after the other.
    pub fn email_change(person_id: PersonId) -> Self {
        Self::new(Purpose::EmailChange, &person_id.to_string())
    }

    /// By its kind, so that many of one do not hide another.
    pub fn notice(person_id: PersonId, kind: MailKind) -> Self {
        Self::new(Purpose::Notice, &format!("{person_id} {kind}"))
    }

    fn new(purpose: Purpose, subject: &str) -> Self {
        Self {
            purpose,
            subject: sha256(subject),
        }
    }
}
