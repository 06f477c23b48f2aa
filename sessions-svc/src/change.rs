//! What a report changes: its charge, and the session that follows its charges. No I/O.

use chassis::{
    charge_status::ChargeStatus,
    clock::Timestamp,
    ids::{ChargeId, CustomerId},
    phone::Phone,
};
use db::idempotency;

use crate::{
    customer::Payer,
    error::Error,
    report::{Report, ReportOutcome, ReportReply, Step},
    session::{Session, SessionStatus, Tally},
};

/// What is recorded of a report's charge and of its session; nothing by default.
#[derive(Debug, Default)]
pub struct Found {
    pub session: Option<Session>,
    /// Whether the session's customer, if it has one, lacks a phone, and nobody else of the merchant's
    /// has that of the wallet.
    pub customer_may_learn: bool,
    /// The charge, if a report of it was recorded before.
    pub charge: Option<RecordedCharge>,
    /// The session's other charges.
    pub others: Tally,
    /// The sum of their versions, which grows whenever one of them changes.
    pub others_versions: i64,
}

#[derive(Debug)]
pub struct RecordedCharge {
    pub version: i64,
    pub is_settled: bool,
    /// The charge that holds the number, unless it was withdrawn.
    pub holder: Option<ChargeId>,
}

/// What follows from a report.
#[derive(Debug)]
pub enum Decision<'a> {
    /// Nothing changes.
    Answer(ReportReply),
    Change(Change<'a>),
}

/// What a report changes.
#[derive(Debug)]
pub struct Change<'a> {
    pub report: &'a Report,
    pub now: Timestamp,
    /// The charge's recorded version; `None` if it is new.
    pub was: Option<i64>,
    pub others_versions: i64,
    pub session: SessionChange,
    /// The session ended, and its idempotency key is forgotten some time from now on.
    pub frees_key: bool,
    pub payment: Option<Payment>,
    pub reply: ReportReply,
    /// When the sweeper has something to do because of it.
    pub due: Option<Timestamp>,
}

/// What becomes of a session.
#[derive(Debug)]
pub enum SessionChange {
    /// It stays as it is, or there is none.
    None,
    Insert(Box<Session>),
    Status(SessionStatus),
    /// The charge that brought it is void.
    Delete,
}

impl SessionChange {
    pub fn inserted(&self) -> Option<&Session> {
        match self {
            Self::Insert(session) => Some(session),
            Self::None | Self::Status(_) | Self::Delete => None,
        }
    }

    pub fn status(&self) -> Option<SessionStatus> {
        match self {
            Self::Status(status) => Some(*status),
            Self::None | Self::Insert(_) | Self::Delete => None,
        }
    }
}

/// A payment to be counted, once for each charge: a settled one is never recorded again.
#[derive(Debug)]
pub struct Payment {
    pub by: PaidBy,
    pub settled_at: Timestamp,
}

#[derive(Debug)]
pub enum PaidBy {
    /// The customer whom the merchant named when it created the session, and the wallet, if the
    /// customer may learn it.
    Customer(CustomerId, Option<Phone>),
    Payer(Payer),
}

/// `brought`: the session that a direct charge creates.
pub fn decide<'a>(
    report: &'a Report,
    brought: Option<&Session>,
    found: Found,
    now: Timestamp,
) -> Result<Decision<'a>, Error> {
    if let Some(charge) = &found.charge
        && (charge.is_settled || charge.version >= i64::from(report.version))
    {
        let reply = already_recorded(report, charge, found.session.as_ref(), now);
        return Ok(Decision::Answer(reply));
    }
    let (session, is_new) = match (&found.session, &report.step, brought) {
        (Some(session), _, _) => (session, false),
        // Keeps the tombstone, so that an Open that is still on its way is refused.
        (None, Step::Withdraw, _) => return Ok(Decision::Change(tombstone(report, &found, now))),
        (None, _, Some(brought)) => (brought, true),
        (None, Step::Open { .. }, None) => return Ok(Decision::Answer(refused(None))),
        (None, Step::Update { .. }, None) => return Err(Error::SessionNotFound),
    };
    if let Some(refusal) = check(session, report, now)? {
        return Ok(Decision::Answer(refusal));
    }
    let change = follow(session, is_new, report, &found, now);
    Ok(Decision::Change(change))
}

/// Answers a report that brings nothing new. An Open is accepted only if its own charge holds the
/// number and was not withdrawn, because the rail may be called once it is accepted.
fn already_recorded(
    report: &Report,
    charge: &RecordedCharge,
    session: Option<&Session>,
    now: Timestamp,
) -> ReportReply {
    let session = session.filter(|session| session.merchant_id == report.merchant_id);
    let status = session.map(|session| session.status_at(now));
    let Step::Open { transaction, .. } = &report.step else {
        return recorded(status);
    };
    let is_accepted = status.is_some() && charge.holder == Some(transaction.transaction_id);
    if is_accepted {
        recorded(status)
    } else {
        refused(status)
    }
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

fn tombstone<'a>(report: &'a Report, found: &Found, now: Timestamp) -> Change<'a> {
    Change {
        report,
        now,
        was: found.charge.as_ref().map(|charge| charge.version),
        others_versions: found.others_versions,
        session: SessionChange::None,
        frees_key: false,
        payment: None,
        reply: recorded(None),
        due: None,
    }
}

/// Brings the session in line with its charges.
fn follow<'a>(
    session: &Session,
    is_new: bool,
    report: &'a Report,
    found: &Found,
    now: Timestamp,
) -> Change<'a> {
    let tally = found
        .others
        .with(report.step.transaction().map(|charge| charge.status));
    let Some(status) = session.status_after(tally) else {
        return Change {
            session: match is_new {
                true => SessionChange::None,
                false => SessionChange::Delete,
            },
            ..tombstone(report, found, now)
        };
    };
    let changed = match (is_new, status == session.status) {
        (true, _) => SessionChange::Insert(Box::new(Session {
            status,
            ..session.clone()
        })),
        (false, true) => SessionChange::None,
        (false, false) => SessionChange::Status(status),
    };
    let shown = Session {
        status,
        ..session.clone()
    }
    .status_at(now);
    // A direct session has no key here.
    let frees_key = status != session.status && status.is_terminal() && !session.is_direct();
    let due = match shown {
        SessionStatus::Pending | SessionStatus::Expired => Some(session.expires_at),
        SessionStatus::Completed => frees_key.then(|| now + idempotency::KEPT),
        SessionStatus::Processing | SessionStatus::Failed => None,
    };
    log(session, status, tally);
    Change {
        session: changed,
        frees_key,
        payment: payment(session, report, found.customer_may_learn),
        reply: recorded(Some(shown)),
        due,
        ..tombstone(report, found, now)
    }
}

fn log(session: &Session, status: SessionStatus, tally: Tally) {
    let id = session.session_id;
    if tally.settled > 1 {
        tracing::error!(session.id = %id, "a session was paid more than once");
    }
    let is_expected = session.status == SessionStatus::Processing || session.status == status;
    if status == SessionStatus::Completed && !is_expected {
        tracing::warn!(session.id = %id, was = session.status.code(), "paid unexpectedly");
    }
}

fn payment(session: &Session, report: &Report, customer_may_learn: bool) -> Option<Payment> {
    let Step::Update {
        transaction, payer, ..
    } = &report.step
    else {
        return None;
    };
    (transaction.status == ChargeStatus::Settled).then(|| Payment {
        by: match &session.customer_id {
            Some(customer) => {
                let wallet = report.step.paid_from().cloned();
                let wallet = wallet.filter(|_| customer_may_learn);
                PaidBy::Customer(customer.clone(), wallet)
            }
            None => PaidBy::Payer(payer.clone().or(session.payer.clone())),
        },
        settled_at: transaction.updated_at,
    })
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
