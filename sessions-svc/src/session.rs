//! Payment sessions, and how their status follows from their charges. No I/O.
//!
//! A session's status follows from how many of its charges are in which state, not from the order
//! in which that became known, so reports may arrive late, twice and in any order.

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{CustomerId, MerchantId, SessionId},
    money::{Currency, Money},
};
use sqlx::FromRow;

use crate::{customer::Payer, transaction::Transaction};

chassis::closed_list! {
    /// Who created the session.
    pub enum Origin: "a session's origin" {
        /// A merchant, for the hosted checkout. Can be paid until it expires.
        Hosted = "HOSTED",
        /// A direct charge, with which the session ends. Never expires.
        Direct = "DIRECT",
    }
}

chassis::text_column!(Origin);

chassis::closed_list! {
    /// Session status (spec §3.2; the values beyond COMPLETED are ours).
    pub enum SessionStatus: "a session's status" {
        /// Can be paid.
        Pending = "PENDING",
        /// A charge is in flight.
        Processing = "PROCESSING",
        /// A charge settled.
        Completed = "COMPLETED",
        /// A direct charge's session whose charge failed.
        Failed = "FAILED",
        /// Ended unpaid.
        Expired = "EXPIRED",
    }
}

chassis::text_column!(SessionStatus);

impl SessionStatus {
    /// Whether only money that arrives unexpectedly can still change it.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Processing => false,
            Self::Completed | Self::Failed | Self::Expired => true,
        }
    }
}

#[derive(Clone, Debug, FromRow)]
pub struct Session {
    pub session_id: SessionId,
    pub merchant_id: MerchantId,
    pub origin: Origin,
    pub amount_minor: i64,
    pub currency: Currency,
    pub description: Option<String>,
    pub redirect_url: Option<String>,
    #[sqlx(flatten)]
    pub payer: Payer,
    /// The payer's entry in the directory, if the merchant's data identified one.
    pub customer_id: Option<CustomerId>,
    /// As recorded; [`Session::status_at`] is what is shown.
    pub status: SessionStatus,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A session as it is shown, with its latest charge.
#[derive(Clone, Debug)]
pub struct ShownSession {
    pub session: Session,
    pub status: SessionStatus,
    pub transaction: Option<Transaction>,
}

/// How many of a session's charges are in which state; withdrawn ones do not count.
#[derive(Clone, Copy, Debug, Default, FromRow)]
pub struct Tally {
    pub settled: i64,
    pub in_flight: i64,
    pub failed: i64,
}

impl Tally {
    /// These charges and one with this status; `None` if it was withdrawn.
    pub fn with(mut self, status: Option<ChargeStatus>) -> Self {
        match status {
            Some(ChargeStatus::Settled) => self.settled += 1,
            Some(ChargeStatus::Initiated | ChargeStatus::OtpRequired) => self.in_flight += 1,
            Some(ChargeStatus::Failed) => self.failed += 1,
            None => {}
        }
        self
    }
}

impl Session {
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }

    pub fn is_direct(&self) -> bool {
        self.origin == Origin::Direct
    }

    /// The status at `now`. Expiry counts from its exact moment on, whether or not it has been
    /// recorded.
    pub fn status_at(&self, now: Timestamp) -> SessionStatus {
        match self.status {
            SessionStatus::Pending if self.expires_at <= now => SessionStatus::Expired,
            status => status,
        }
    }

    /// The status that follows from its charges. `None`: the charge of a direct session was
    /// withdrawn, so the session never existed.
    pub fn status_after(&self, tally: Tally) -> Option<SessionStatus> {
        if tally.settled > 0 {
            // Settled money decides, whatever state the session is in.
            return Some(SessionStatus::Completed);
        }
        match self.origin {
            Origin::Direct if tally.in_flight > 0 => Some(SessionStatus::Processing),
            Origin::Direct if tally.failed > 0 => Some(SessionStatus::Failed),
            Origin::Direct => None,
            // Its expiry event is committed.
            Origin::Hosted if self.status == SessionStatus::Expired => Some(SessionStatus::Expired),
            Origin::Hosted if tally.in_flight > 0 => Some(SessionStatus::Processing),
            Origin::Hosted => Some(SessionStatus::Pending),
        }
    }
}

/// What a new hosted session is created from.
#[derive(Clone, Debug)]
pub struct NewSession {
    pub merchant_id: MerchantId,
    pub amount: Money,
    pub description: Option<String>,
    pub redirect_url: Option<String>,
    pub payer: Payer,
}

/// The session that a direct charge creates.
#[derive(Clone, Debug)]
pub struct DirectSession {
    pub amount: Money,
    pub description: Option<String>,
    pub payer: Payer,
    pub created_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(origin: Origin, status: SessionStatus) -> Session {
        let created_at = Timestamp::from_unix_millis(0).unwrap();
        Session {
            session_id: SessionId::new(),
            merchant_id: MerchantId::new(),
            origin,
            amount_minor: 1,
            currency: Currency::GHS,
            description: None,
            redirect_url: None,
            payer: Payer::default(),
            customer_id: None,
            status,
            created_at,
            expires_at: Timestamp::from_unix_millis(1_000).unwrap(),
        }
    }

    fn tally(settled: i64, in_flight: i64, failed: i64) -> Tally {
        Tally {
            settled,
            in_flight,
            failed,
        }
    }

    #[test]
    fn a_pending_session_expires_at_its_very_moment_and_no_other_does() {
        let at = |status, millis| {
            let now = Timestamp::from_unix_millis(millis).unwrap();
            session(Origin::Hosted, status).status_at(now)
        };
        assert_eq!(at(SessionStatus::Pending, 999), SessionStatus::Pending);
        assert_eq!(at(SessionStatus::Pending, 1_000), SessionStatus::Expired);
        for status in [
            SessionStatus::Processing,
            SessionStatus::Completed,
            SessionStatus::Failed,
        ] {
            assert_eq!(at(status, 1_000), status);
        }
    }

    #[test]
    fn charges_make_the_status() {
        use SessionStatus::{Completed, Expired, Failed, Pending, Processing};
        let hosted = |status, tally| session(Origin::Hosted, status).status_after(tally);
        assert_eq!(hosted(Pending, tally(0, 1, 0)), Some(Processing));
        assert_eq!(hosted(Processing, tally(0, 0, 3)), Some(Pending));
        assert_eq!(hosted(Processing, tally(1, 0, 3)), Some(Completed));
        assert_eq!(hosted(Expired, tally(0, 1, 0)), Some(Expired));
        assert_eq!(hosted(Expired, tally(1, 0, 0)), Some(Completed));
        assert_eq!(hosted(Completed, tally(1, 1, 1)), Some(Completed));
        let direct = |tally| session(Origin::Direct, Processing).status_after(tally);
        assert_eq!(direct(tally(0, 1, 0)), Some(Processing));
        assert_eq!(direct(tally(0, 0, 1)), Some(Failed));
        assert_eq!(direct(tally(1, 0, 0)), Some(Completed));
        assert_eq!(direct(tally(0, 0, 0)), None);
    }
}
