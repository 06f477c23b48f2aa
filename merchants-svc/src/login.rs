//! Logins: one browser's, from a right password until it ends.

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    ids::{LoginId, PersonId},
};
use sqlx::FromRow;

use crate::{
    activity::Origin,
    merchant::Merchant,
    person::{Person, Role},
    token::Token,
};

/// How long a login lasts.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Without use.
    pub idle: Duration,
    /// In all.
    pub most: Duration,
}

/// A login that has not been ended; it may still be [over](Login::is_over).
#[derive(Clone, Debug, FromRow)]
pub struct Login {
    pub login_id: LoginId,
    pub person_id: PersonId,
    /// Whether a code must follow before it is good for anything else.
    pub needs_code: bool,
    #[sqlx(flatten)]
    pub origin: Origin,
    pub created_at: Timestamp,
    /// To the minute.
    pub last_seen_at: Timestamp,
    /// When the password or a code was last taken.
    pub confirmed_at: Timestamp,
}

impl Login {
    /// Begins one now.
    pub fn begin(person_id: PersonId, needs_code: bool, origin: Origin, now: Timestamp) -> Self {
        Self {
            login_id: LoginId::new(),
            person_id,
            needs_code,
            origin,
            created_at: now,
            last_seen_at: now,
            confirmed_at: now,
        }
    }

    /// Whether it has been idle, or there, for too long.
    pub fn is_over(&self, lifetime: Lifetime, now: Timestamp) -> bool {
        now >= self.last_seen_at + lifetime.idle || now >= self.created_at + lifetime.most
    }
}

/// A login that has just begun, with its secret.
#[derive(Debug)]
pub struct BegunLogin {
    pub token: Token,
    pub needs_code: bool,
}

/// A login with who it is and what they look at.
#[derive(Clone, Debug)]
pub struct Identity {
    pub login: Login,
    pub person: Person,
    pub recovery_codes_left: i64,
    pub merchant: Merchant,
    pub role: Role,
}

/// Which of a person's logins to end.
#[derive(Clone, Copy, Debug)]
pub enum Ended {
    One(LoginId),
    AllBut(LoginId),
    All,
}
