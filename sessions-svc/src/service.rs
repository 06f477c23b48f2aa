//! What sessions-svc does. The transactions are in `creation.rs` and `recording.rs`.

use std::time::Duration;

use chassis::{
    clock::{Alarm, Clock},
    ids::{MerchantId, SessionId},
};
use db::{Db, GroupCommit, Searches, idempotency::IdempotencyKey};

use crate::{
    creation::{Creation, CreationOutcome},
    error::Error,
    fingerprint::fingerprint,
    reading::Reading,
    recording::{Recorded, Recording},
    report::{Report, ReportOutcome, ReportReply},
    session::{NewSession, Origin, Session, SessionStatus, ShownSession},
};

#[derive(Clone, Debug)]
pub struct Service {
    pub db: Db,
    pub creations: GroupCommit<Creation>,
    pub readings: GroupCommit<Reading>,
    pub recordings: GroupCommit<Recording>,
    pub searches: Searches,
    pub clock: Clock,
    /// From a session's creation to its expiry.
    pub session_lifetime: Duration,
    /// Tells the sweeper when something will be due.
    pub wake: Alarm,
}

impl Service {
    /// Creates a session, or returns the one that this key created. The flag says whether it was
    /// replayed.
    pub async fn create_session(
        &self,
        new: NewSession,
        idempotency_key: &str,
    ) -> Result<(Session, bool), Error> {
        let (session, replayed) = self.create_or_replay(new, idempotency_key).await?;
        let outcome = if replayed { "replayed" } else { "created" };
        metrics::counter!("sessions_created_total", "outcome" => outcome).increment(1);
        Ok((session, replayed))
    }

    async fn create_or_replay(
        &self,
        new: NewSession,
        idempotency_key: &str,
    ) -> Result<(Session, bool), Error> {
        let key = IdempotencyKey {
            merchant_id: new.merchant_id,
            key: idempotency_key.to_owned(),
            fingerprint: fingerprint(&new),
        };
        loop {
            let session = self.session(&new);
            let creation = Creation {
                key: key.clone(),
                session: session.clone(),
            };
            match self.creations.run(creation).await? {
                CreationOutcome::Created => {
                    tracing::info!(session.id = %session.session_id, "session created");
                    self.wake.ring_at(session.expires_at);
                    return Ok((session, false));
                }
                CreationOutcome::Replayed(session) => return Ok((*session, true)),
                CreationOutcome::Reused => return Err(Error::IdempotencyKeyReused),
                CreationOutcome::InProgress => return Err(Error::IdempotencyInProgress),
                CreationOutcome::Gone => return Err(Error::SessionNotFound),
                CreationOutcome::Freed => {}
            }
        }
    }

    /// A hosted session that begins now.
    fn session(&self, new: &NewSession) -> Session {
        let created_at = self.clock.now();
        Session {
            session_id: SessionId::new(),
            merchant_id: new.merchant_id,
            origin: Origin::Hosted,
            amount_minor: new.amount.minor_units(),
            currency: new.amount.currency(),
            description: new.description.clone(),
            redirect_url: new.redirect_url.clone(),
            payer: new.payer.clone(),
            customer_id: None,
            status: SessionStatus::Pending,
            created_at,
            expires_at: created_at + self.session_lifetime,
        }
    }

    /// `merchant` is `None` if the id itself is the right to see the session (the checkout).
    pub async fn get_session(
        &self,
        id: SessionId,
        merchant: Option<MerchantId>,
    ) -> Result<ShownSession, Error> {
        let reading = Reading {
            session_id: id,
            now: self.clock.now(),
        };
        self.readings
            .run(reading)
            .await?
            .filter(|shown| merchant.is_none_or(|merchant| merchant == shown.session.merchant_id))
            .ok_or(Error::SessionNotFound)
    }

    /// Records what became of a charge.
    pub async fn record(&self, report: Report) -> Result<ReportReply, Error> {
        let step = report.step.name();
        let recording = Recording {
            report,
            now: self.clock.now(),
            session_lifetime: self.session_lifetime,
        };
        let Recorded { reply, due } = self.recordings.run(recording).await??;
        if let Some(due) = due {
            self.wake.ring_at(due);
        }
        let outcome = match reply.outcome {
            ReportOutcome::Recorded => "recorded",
            ReportOutcome::Refused => "refused",
        };
        metrics::counter!("charge_reports_total", "step" => step, "outcome" => outcome)
            .increment(1);
        Ok(reply)
    }
}
