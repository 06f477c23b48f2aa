//! Records reports in sets: those that wait at the same moment share a transaction, and each keeps
//! its own outcome.
//!
//! A direct charge brings a session that nobody has heard of. So a set of such charges is first
//! opened by one statement that commits by itself, and that writes nothing if anything was there
//! before. Only then does a transaction, with a round trip for each step, look at what is there.

use std::{collections::HashSet, time::Duration};

use chassis::{clock::Timestamp, ids::SessionId};
use db::{Db, Grouped, Tx, is_incomplete, is_unique_violation};

use crate::{
    change::{Change, Decision, Found, PaidBy, decide},
    contention::{ATTEMPTS_MAX, Attempt, Interruption, out_of_attempts},
    customer::NamedPayer,
    directory,
    error::Error,
    report::{Report, ReportOutcome, ReportReply},
    store::{customers::PaymentCount, reports},
};

/// A report that has arrived.
#[derive(Debug)]
pub struct Recording {
    pub report: Report,
    pub now: Timestamp,
    /// From a session's creation to its expiry.
    pub session_lifetime: Duration,
}

#[derive(Debug)]
pub struct Recorded {
    pub reply: ReportReply,
    /// When the sweeper has something to do because of it.
    pub due: Option<Timestamp>,
}

impl Grouped for Recording {
    type Outcome = Result<Recorded, Error>;

    async fn run_set(db: &Db, set: &[Self]) -> db::Result<Vec<Self::Outcome>> {
        if let Some(outcomes) = open_at_once(db, set).await? {
            return Ok(outcomes);
        }
        let mut is_again = false;
        for _ in 0..ATTEMPTS_MAX {
            match record(db, set, is_again).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(Interruption::Contended) => is_again = true,
                Err(Interruption::Failed(error)) => return Err(error),
            }
        }
        Err(out_of_attempts())
    }
}

type Outcome = <Recording as Grouped>::Outcome;

/// Opens all of them by one statement, with the sessions that they bring. `None`: nothing was written,
/// because not all of them are new, or one is refused.
async fn open_at_once(db: &Db, set: &[Recording]) -> db::Result<Option<Vec<Outcome>>> {
    let mut sessions = HashSet::new();
    let mut changes = Vec::with_capacity(set.len());
    for Recording {
        report,
        now,
        session_lifetime,
    } in set
    {
        if !report.opens_session() || !sessions.insert(report.session_id) {
            return Ok(None);
        }
        let brought = report.session(*session_lifetime);
        match decide(report, brought.as_ref(), Found::default(), *now) {
            Ok(Decision::Change(change)) => changes.push(change),
            Ok(Decision::Answer(_)) | Err(_) => return Ok(None),
        }
    }
    match reports::open(db, &changes).await {
        Err(error) if is_incomplete(&error) || is_unique_violation(&error) => return Ok(None),
        opened => opened?,
    }
    let opened = changes.into_iter();
    let opened = opened.map(|Change { reply, due, .. }| Ok(Recorded { reply, due }));
    Ok(Some(opened.collect()))
}

async fn record(db: &Db, set: &[Recording], is_again: bool) -> Attempt<Vec<Outcome>> {
    let mut tx = db.begin().await?;
    let mut outcomes: Vec<Option<Outcome>> = Vec::new();
    outcomes.resize_with(set.len(), || None);
    let mut changes = 0;
    for turn in turns(set) {
        changes += record_turn(&mut tx, set, &turn, is_again, &mut outcomes).await?;
    }
    if changes > 0 {
        tx.commit().await?;
    }
    let outcomes: Option<Vec<Outcome>> = outcomes.into_iter().collect();
    Ok(outcomes.ok_or(db::Error::RowNotFound)?)
}

/// The places of these reports, in turns that have one report of each session: those of one
/// session follow each other.
fn turns(set: &[Recording]) -> Vec<Vec<usize>> {
    let mut turns = Vec::new();
    let mut left: Vec<usize> = (0..set.len()).collect();
    while !left.is_empty() {
        let mut sessions = HashSet::new();
        let (turn, later) = left
            .into_iter()
            .partition(|place| sessions.insert(set[*place].report.session_id));
        turns.push(turn);
        left = later;
    }
    turns
}

/// Records one report of each session. Returns how many of them change something.
async fn record_turn(
    tx: &mut Tx,
    set: &[Recording],
    turn: &[usize],
    is_again: bool,
    outcomes: &mut [Option<Outcome>],
) -> Attempt<usize> {
    let reports: Vec<&Report> = turn.iter().map(|place| &set[*place].report).collect();
    if is_again {
        // What is read from now on is as new as the sessions.
        let sessions: Vec<SessionId> = reports.iter().map(|report| report.session_id).collect();
        reports::lock_sessions(tx, &sessions).await?;
    }
    let mut changes = Vec::new();
    for (place, found) in turn.iter().zip(reports::look(tx, &reports).await?) {
        let Recording {
            report,
            now,
            session_lifetime,
        } = &set[*place];
        let brought = report.session(*session_lifetime);
        let decided = decide(report, brought.as_ref(), found, *now);
        if !is_again && is_refusal(&decided) {
            // The session may be newer than what was read beside it, its own charge among that.
            return Err(Interruption::Contended);
        }
        outcomes[*place] = Some(match decided {
            Ok(Decision::Answer(reply)) => Ok(Recorded { reply, due: None }),
            Ok(Decision::Change(change)) => {
                let (reply, due) = (change.reply, change.due);
                changes.push(change);
                Ok(Recorded { reply, due })
            }
            Err(error) => Err(error),
        });
    }
    if changes.is_empty() {
        return Ok(0);
    }
    let payments = count_payments(tx, &changes).await?;
    if !reports::write(tx, &changes, &payments).await? {
        return Err(Interruption::Contended);
    }
    Ok(changes.len())
}

fn is_refusal(decided: &Result<Decision<'_>, Error>) -> bool {
    match decided {
        Ok(Decision::Answer(reply)) => reply.outcome == ReportOutcome::Refused,
        Ok(Decision::Change(_)) => false,
        Err(_) => true,
    }
}

/// What each customer paid: the one whom the merchant named when it created the session, else the
/// payer. The one whom the merchant named without a phone learns the wallet's.
async fn count_payments(tx: &mut Tx, changes: &[Change<'_>]) -> Attempt<Vec<PaymentCount>> {
    let mut named = Vec::new();
    let mut paid: Vec<PaymentCount> = Vec::new();
    let mut paid_by_named = Vec::new();
    let mut learning = Vec::new();
    let mut learned = HashSet::new();
    for change in changes {
        let Some(payment) = &change.payment else {
            continue;
        };
        match &payment.by {
            PaidBy::Customer(customer, wallet) => {
                let merchant = change.report.merchant_id;
                let wallet = wallet.clone();
                // Each once: a statement about a set does not see what it writes itself.
                let wallet = wallet.filter(|wallet| learned.insert((merchant, wallet.clone())));
                if wallet.is_some() {
                    learning.push(merchant);
                }
                paid.push(PaymentCount {
                    wallet,
                    ..PaymentCount::one(customer.clone(), payment.settled_at)
                });
            }
            PaidBy::Payer(payer) => {
                named.push(NamedPayer {
                    merchant_id: change.report.merchant_id,
                    payer: payer.clone(),
                    named_at: change.now,
                });
                paid_by_named.push(payment.settled_at);
            }
        }
    }
    let customers = directory::identify(tx, &named, &learning).await?;
    let identified = customers.into_iter().zip(paid_by_named);
    paid.extend(identified.filter_map(|(customer, at)| Some(PaymentCount::one(customer?, at))));
    Ok(by_customer(paid))
}

/// The payments of each customer together.
fn by_customer(mut paid: Vec<PaymentCount>) -> Vec<PaymentCount> {
    let mut counts: Vec<PaymentCount> = Vec::new();
    // In one order everywhere, so that two sets never wait for each other.
    paid.sort_by(|one, other| {
        (&one.customer_id, one.settled_at).cmp(&(&other.customer_id, other.settled_at))
    });
    for payment in paid {
        match counts.last_mut() {
            Some(count) if count.customer_id == payment.customer_id => {
                count.payments += payment.payments;
                count.settled_at = payment.settled_at;
                count.wallet = count.wallet.take().or(payment.wallet);
            }
            _ => counts.push(payment),
        }
    }
    counts
}

#[cfg(test)]
mod tests;
