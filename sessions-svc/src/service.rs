//! What sessions-svc does. Owns the transactions.

use std::time::Duration;

use chassis::{
    charge_status::ChargeStatus,
    clock::{Alarm, Clock, Timestamp},
    ids::{CustomerId, MerchantId, SessionId},
};
use db::{
    Conn, Db, Insert, Tx,
    idempotency::{self, IdempotencyKey, KeyUse},
};

use crate::{
    customer::{Customer, Payer},
    directory,
    error::Error,
    fingerprint::fingerprint,
    report::{Report, ReportOutcome, ReportReply, Step},
    session::{DirectSession, NewSession, Origin, Session, SessionStatus, ShownSession},
    store::{
        self,
        customers::{self, PageStart},
    },
};

#[derive(Clone, Debug)]
pub struct Service {
    pub db: Db,
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
            let (session_id, now) = (SessionId::new(), self.clock.now());
            let mut tx = self.db.begin().await?;
            match store::KEYS.take(&mut tx, &key, session_id, now).await {
                Ok(KeyUse::First) => {
                    let session = self.create(tx, session_id, new, now).await?;
                    return Ok((session, false));
                }
                Ok(KeyUse::Repeat((session_id,))) => {
                    return Ok((replay(&mut tx, session_id).await?, true));
                }
                Ok(KeyUse::Reuse) => return Err(Error::IdempotencyKeyReused),
                Ok(KeyUse::Freed) => {}
                // It waited in vain for the transaction that is taking the key.
                Err(error) if db::is_retryable(&error) => return Err(Error::IdempotencyInProgress),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Creates the session for which the transaction has taken the key.
    async fn create(
        &self,
        mut tx: Tx,
        session_id: SessionId,
        new: NewSession,
        created_at: Timestamp,
    ) -> Result<Session, Error> {
        let customer_id =
            directory::identify(&mut tx, new.merchant_id, &new.payer, created_at).await?;
        let session = Session {
            session_id,
            merchant_id: new.merchant_id,
            origin: Origin::Hosted,
            amount_minor: new.amount.minor_units(),
            currency: new.amount.currency(),
            description: new.description,
            redirect_url: new.redirect_url,
            payer: new.payer,
            customer_id,
            status: SessionStatus::Pending,
            created_at,
            expires_at: created_at + self.session_lifetime,
        };
        store::insert_session(&mut tx, &session).await?;
        tx.commit().await?;
        tracing::info!(session.id = %session_id, "session created");
        self.wake.ring_at(session.expires_at);
        Ok(session)
    }

    /// `merchant` is `None` if the id itself is the right to see the session (the checkout).
    pub async fn get_session(
        &self,
        id: SessionId,
        merchant: Option<MerchantId>,
    ) -> Result<ShownSession, Error> {
        store::find_shown(&self.db, id, self.clock.now())
            .await?
            .filter(|shown| merchant.is_none_or(|merchant| merchant == shown.session.merchant_id))
            .ok_or(Error::SessionNotFound)
    }

    /// Records what became of a charge.
    pub async fn record(&self, report: &Report) -> Result<ReportReply, Error> {
        let recorded = self.try_record(report).await?;
        let outcome = match recorded.outcome {
            ReportOutcome::Recorded => "recorded",
            ReportOutcome::Refused => "refused",
        };
        let step = report.step.name();
        metrics::counter!("charge_reports_total", "step" => step, "outcome" => outcome)
            .increment(1);
        Ok(recorded)
    }

    async fn try_record(&self, report: &Report) -> Result<ReportReply, Error> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        if store::record(&mut tx, report).await? == Insert::AlreadyThere {
            return self.already_recorded(&mut tx, report, now).await;
        }
        let found = store::lock_session(&mut tx, report.session_id).await?;
        let session = match (found, &report.step, &report.direct) {
            (Some(session), _, _) => session,
            // Keeps the tombstone, so that an Open that is still on its way is refused.
            (None, Step::Withdraw, _) => {
                tx.commit().await?;
                return Ok(recorded(None));
            }
            (None, _, Some(direct)) => self.bring_session(&mut tx, report, direct).await?,
            (None, Step::Open { .. }, None) => return Ok(refused(None)),
            (None, Step::Update { .. }, None) => return Err(Error::SessionNotFound),
        };
        if let Some(refusal) = check(&session, report, now)? {
            return Ok(refusal);
        }
        let status = self.follow(&mut tx, &session, report, now).await?;
        tx.commit().await?;
        match status {
            Some(SessionStatus::Pending | SessionStatus::Expired) => {
                self.wake.ring_at(session.expires_at);
            }
            Some(SessionStatus::Completed) => self.wake.ring_at(now + idempotency::KEPT),
            Some(SessionStatus::Processing | SessionStatus::Failed) | None => {}
        }
        Ok(recorded(status))
    }

    /// Answers a report that brings nothing new. An Open is accepted only if its own charge holds
    /// the number and was not withdrawn, because the rail may be called once it is accepted.
    async fn already_recorded(
        &self,
        tx: &mut Tx,
        report: &Report,
        now: Timestamp,
    ) -> Result<ReportReply, Error> {
        let session = store::find_session(tx, report.session_id).await?;
        let session = session.filter(|session| session.merchant_id == report.merchant_id);
        let status = session.map(|session| session.status_at(now));
        let Step::Open { transaction, .. } = &report.step else {
            return Ok(recorded(status));
        };
        let holder = store::find_holder(tx, report).await?;
        let is_accepted = status.is_some() && holder == Some(transaction.transaction_id);
        Ok(if is_accepted {
            recorded(status)
        } else {
            refused(status)
        })
    }

    /// Creates the session of a direct charge.
    async fn bring_session(
        &self,
        tx: &mut Tx,
        report: &Report,
        direct: &DirectSession,
    ) -> Result<Session, Error> {
        let session = Session {
            session_id: report.session_id,
            merchant_id: report.merchant_id,
            origin: Origin::Direct,
            amount_minor: direct.amount.minor_units(),
            currency: direct.amount.currency(),
            description: direct.description.clone(),
            redirect_url: None,
            payer: direct.payer.clone(),
            customer_id: None,
            status: SessionStatus::Processing,
            created_at: direct.created_at,
            expires_at: direct.created_at + self.session_lifetime,
        };
        store::insert_session(tx, &session).await?;
        Ok(session)
    }

    /// Brings the session in line with its charges, and returns the status to show. `None`: the
    /// session was deleted.
    async fn follow(
        &self,
        tx: &mut Tx,
        session: &Session,
        report: &Report,
        now: Timestamp,
    ) -> Result<Option<SessionStatus>, Error> {
        let id = session.session_id;
        let tally = store::tally(tx, id).await?;
        let Some(status) = session.status_after(tally) else {
            store::delete_session(tx, id).await?;
            return Ok(None);
        };
        if tally.settled > 1 {
            tracing::error!(session.id = %id, "a session was paid more than once");
        }
        if status != session.status {
            if status == SessionStatus::Completed && session.status != SessionStatus::Processing {
                tracing::warn!(session.id = %id, was = session.status.code(), "paid unexpectedly");
            }
            store::update_status(tx, id, status).await?;
            if status.is_terminal() {
                store::KEYS.forget_later(tx, id, now).await?;
            }
        }
        if let Step::Update {
            transaction, payer, ..
        } = &report.step
            && transaction.status == ChargeStatus::Settled
        {
            // Once per charge: a settled charge is never recorded again.
            self.count_payment(tx, session, payer, transaction.updated_at)
                .await?;
        }
        let shown = Session {
            status,
            ..session.clone()
        };
        Ok(Some(shown.status_at(now)))
    }

    /// Counts a payment for the customer whom the merchant named when it created the session, else
    /// for the payer.
    async fn count_payment(
        &self,
        tx: &mut Tx,
        session: &Session,
        payer: &Payer,
        settled_at: Timestamp,
    ) -> Result<(), Error> {
        let payer = payer.clone().or(session.payer.clone());
        let customer: Option<CustomerId> = match &session.customer_id {
            Some(customer) => Some(customer.clone()),
            None => directory::identify(tx, session.merchant_id, &payer, self.clock.now()).await?,
        };
        if let Some(customer) = customer {
            customers::count_payment(tx, &customer, settled_at).await?;
        }
        Ok(())
    }

    /// Up to `limit` of a merchant's customers after a place, last paid first.
    pub async fn list_customers(
        &self,
        merchant: MerchantId,
        place: &PageStart,
        limit: u32,
    ) -> Result<Vec<Customer>, Error> {
        let listed = customers::list_after(&self.db, merchant, place, i64::from(limit));
        Ok(listed.await?)
    }
}

/// The session that a key created, as it was then.
async fn replay(conn: &mut Conn, id: SessionId) -> Result<Session, Error> {
    let session = store::find_session(conn, id).await?;
    Ok(Session {
        status: SessionStatus::Pending,
        ..session.ok_or(Error::SessionNotFound)?
    })
}

/// Checks whether a report may change the session. `Some`: the answer to an Open that is refused.
fn check(session: &Session, report: &Report, now: Timestamp) -> Result<Option<ReportReply>, Error> {
    let is_ours = session.merchant_id == report.merchant_id;
    let status = session.status_at(now);
    let is_same = |amount| {
        is_ours && amount == session.amount() && report.direct.is_some() == session.is_direct()
    };
    match &report.step {
        Step::Open { amount, .. } if !is_same(*amount) => {
            Ok(Some(refused(is_ours.then_some(status))))
        }
        Step::Open { .. } if report.direct.is_none() && status != SessionStatus::Pending => {
            Ok(Some(refused(Some(status))))
        }
        Step::Update { amount, .. } if !is_same(*amount) => Err(Error::SessionMismatch),
        Step::Withdraw if !is_ours => Err(Error::SessionMismatch),
        Step::Open { .. } | Step::Update { .. } | Step::Withdraw => Ok(None),
    }
}

fn recorded(session_status: Option<SessionStatus>) -> ReportReply {
    ReportReply {
        outcome: ReportOutcome::Recorded,
        session_status,
    }
}

fn refused(session_status: Option<SessionStatus>) -> ReportReply {
    ReportReply {
        outcome: ReportOutcome::Refused,
        session_status,
    }
}
