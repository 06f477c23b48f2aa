//! Steps of charges: what one event makes true of a charge, for many charges in one round trip.
//!
//! Promise: a step is written whole or not at all, and only if the charge is still as it was when
//! the step was decided: locked since then, or held by this process and found to be the same.
//!
//! Everybody locks in one order: charges, each session's or each set's by a fixed order; then what
//! belongs to one charge alone, such as its key and its cases; then merchants' balances, by account
//! and currency. Nobody asks for a charge while holding a balance, so no two wait for each other.

use chassis::{clock::Timestamp, ids::ChargeId};
use db::{Db, Joint, Result, Tx, UntoldRow, idempotency::KEPT, is_incomplete, outbox};

use super::{
    blocks, cases,
    evidence::{self, Statement},
    idempotency::{self, Answer},
    postings,
};
use crate::{
    charge::{Charge, Lease},
    ledger::Posting,
};

/// What an event makes true of a charge.
#[derive(Debug)]
pub struct Step {
    /// The charge as it was when the step was decided, or nothing is written.
    pub before: Charge,
    /// What it becomes: its progress, timer and claim.
    pub after: Charge,
    pub hint: HintEnd,
    /// What the network now asks of the payer. `None` leaves what it asked before.
    pub instruction: Option<Option<String>>,
    pub evidence: Option<Statement>,
    pub answer: Option<Answer>,
    pub postings: Vec<Posting>,
    /// Tells others of the change, unless it is none for them.
    pub outbox_row: Option<UntoldRow<Charge>>,
    /// When the rail is to be queried next, callbacks included, as far as it is known here.
    pub due: Option<Timestamp>,
    pub at: Timestamp,
}

/// What a step means for the callbacks that wait, see [`super::hints`].
#[derive(Clone, Debug)]
pub enum HintEnd {
    /// They wait as before.
    NotYet,
    /// Another has come, and the rail is now queried for it.
    Received(ReceivedCallback),
    /// The rail is queried for them then.
    At(Timestamp),
    /// The rail has answered.
    Answered,
}

/// A callback that is recorded with a step of its charge.
#[derive(Clone, Debug)]
pub struct ReceivedCallback {
    pub at: Timestamp,
    /// The rail's words, for operators.
    pub rail_text: Option<String>,
    /// By which the charge is held while the rail is queried.
    pub lease: Lease,
    /// When the callback is due again if that query has no end.
    pub asked_until: Timestamp,
}

/// Whether steps were written.
#[must_use = "only what was written may be committed"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    All,
    /// A charge is no longer as it was. The transaction must not be committed.
    NotAsBefore,
    /// The ledger has one of the postings already. The transaction must not be committed.
    PostedBefore,
}

impl Step {
    /// Makes `after` of a charge, and nothing else true.
    pub fn new(before: &Charge, after: Charge, at: Timestamp) -> Self {
        Self {
            before: before.clone(),
            after,
            hint: HintEnd::NotYet,
            instruction: None,
            evidence: None,
            answer: None,
            postings: Vec::new(),
            outbox_row: None,
            due: None,
            at,
        }
    }

    /// Whether it changes the charge's state, rather than its timer alone.
    pub fn is_change(&self) -> bool {
        self.after.progress.version != self.before.progress.version
    }

    /// Sets what it means for the callbacks that wait, of which the latest came at `hinted_at`.
    pub fn end_hint(&mut self, hint: HintEnd, hinted_at: Option<Timestamp>) {
        let hint_due_at = match &hint {
            HintEnd::NotYet => hinted_at,
            HintEnd::Received(callback) => Some(callback.asked_until),
            HintEnd::At(due) => Some(*due),
            HintEnd::Answered => None,
        };
        let next_query_at = self.after.timer.next_query_at;
        self.due = next_query_at.into_iter().chain(hint_due_at).min();
        self.hint = hint;
    }

    /// Records a callback with it. The charge is then held.
    pub fn receive(&mut self, callback: ReceivedCallback) {
        self.after.timer.hints += 1;
        self.after.claim = callback.lease.into();
        self.end_hint(HintEnd::Received(callback), None);
    }

    /// The callback that is recorded with it.
    pub fn received(&self) -> Option<&ReceivedCallback> {
        match &self.hint {
            HintEnd::Received(callback) => Some(callback),
            HintEnd::NotYet | HintEnd::At(_) | HintEnd::Answered => None,
        }
    }

    fn id(&self) -> ChargeId {
        self.after.facts.transaction_id
    }

    /// When the charge ended, if this step ends it.
    fn ended_at(&self) -> Option<Timestamp> {
        let is_end = self.is_change() && self.after.progress.state.is_terminal();
        is_end.then_some(self.at)
    }
}

/// Writes these steps of charges that the transaction has locked, each of another charge.
pub async fn write(tx: &mut Tx, steps: &[&Step]) -> Result<Written> {
    let posted = posted(steps);
    let sums = sums(&posted)?;
    let joint = what_follows(change(tx.joint(), steps), steps, &posted);
    let joint = postings::add_set(joint, &sums);
    let [changed, _, _, _, _, lines, _] = joint.rows_affected().await?;
    if changed != steps.len() as u64 {
        return Ok(Written::NotAsBefore);
    }
    if lines != 2 * posted.len() as u64 {
        return Ok(Written::PostedBefore);
    }
    if !tx.is_postgres() {
        // On PostgreSQL a trigger queues them, whoever posts.
        for (posting, at) in posted {
            blocks::queue(tx, posting.kind.code(), posting.subject, at).await?;
        }
    }
    Ok(Written::All)
}

/// Like [`write`], in one statement of PostgreSQL that commits by itself. This process holds the charges,
/// but a callback may come, a lease end, or somebody lock one: then it returns `false` and nothing is
/// written.
pub async fn write_at_once(db: &Db, steps: &[&Step]) -> Result<bool> {
    let posted = posted(steps);
    let sums = sums(&posted)?;
    let joint = change_held(db.joint(), steps).whole();
    let joint = what_follows(joint, steps, &posted).whole();
    match postings::add_set(joint, &sums).run().await {
        Ok(()) => Ok(true),
        Err(error) if is_incomplete(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

type Posted<'s> = Vec<(&'s Posting, Timestamp)>;

fn posted<'s>(steps: &[&'s Step]) -> Posted<'s> {
    let posted = steps
        .iter()
        .flat_map(|step| step.postings.iter().map(|posting| (posting, step.at)));
    posted.collect()
}

fn sums(posted: &Posted<'_>) -> Result<postings::Sums> {
    postings::sums(posted.iter().map(|(posting, _)| *posting))
}

/// What these steps make true besides the change of their charges and of balances, their postings last.
fn what_follows<'c>(joint: Joint<'c>, steps: &[&Step], posted: &Posted<'_>) -> Joint<'c> {
    let callbacks: Vec<_> = steps
        .iter()
        .filter_map(|step| {
            let came = step.received()?;
            let said = Statement::callback(came.rail_text.clone(), came.at);
            Some((step.id(), said))
        })
        .collect();
    let said: Vec<_> = steps
        .iter()
        .filter_map(|step| Some((step.id(), step.evidence.as_ref()?)))
        .chain(callbacks.iter().map(|(id, said)| (*id, said)))
        .collect();
    let keys: Vec<_> = steps
        .iter()
        .filter(|step| step.answer.is_some() || step.ended_at().is_some())
        .map(|step| {
            let forget_at = step.ended_at().map(|ended| ended + KEPT);
            (step.id(), step.answer.as_ref(), forget_at)
        })
        .collect();
    let ended: Vec<_> = steps
        .iter()
        .filter_map(|step| Some((step.id(), step.ended_at()?)))
        .collect();
    let rows: Vec<_> = steps
        .iter()
        .filter_map(|step| step.outbox_row.as_deref())
        .collect();
    let joint = evidence::keep_set(joint, &said);
    let joint = idempotency::answer_set(joint, &keys);
    let joint = cases::close_set(joint, &ended);
    let joint = outbox::put_set(joint, &rows);
    postings::post_set(joint, posted)
}

/// What a step changes of its charge, from `given`. The state, the version and whether money came that
/// is not what we asked for must be as before. What the rail has shown stays shown, whoever saw it.
macro_rules! changing {
    ($more_columns:literal, $ids:literal) => {
        concat!(
            "given (id uuid, from_state text, from_version bigint, from_mismatched boolean,
                 to_state text, to_version bigint, reason text, tries bigint, seen boolean,
                 changed_at timestamptz, sent_at timestamptz, taken timestamptz,
                 expires_at timestamptz, query_at timestamptz, held_until timestamptz,
                 held_by uuid, is_answered boolean, came_at timestamptz, hint_at timestamptz,
                 is_asked boolean, words text",
            $more_columns,
            ")
             update charges set
                 state = given.to_state, version = given.to_version,
                 failure_reason = given.reason, otp_tries = given.tries,
                 seen_at_rail = seen_at_rail or given.seen, updated_at = given.changed_at,
                 submitted_at = given.sent_at, taken_by = given.taken,
                 otp_expires_at = given.expires_at, next_query_at = given.query_at,
                 lease_until = given.held_until, fence = given.held_by,
                 hints = hints + case when given.came_at is null then 0 else 1 end,
                 hinted_at = case when given.is_answered then null
                     else coalesce(given.came_at, hinted_at) end,
                 hint_due_at = case when given.is_answered then null
                     else coalesce(given.hint_at, hint_due_at) end,
                 instruction = case when given.is_asked then given.words else instruction end
             from given
             where transaction_id = any(array(",
            $ids,
            "))
                 and transaction_id = given.id and state = given.from_state
                 and version = given.from_version and mismatched = given.from_mismatched"
        )
    };
}

const CHANGE: &str = changing!("", "select id from given");

/// For charges that are not locked: locks them in the order in which everybody does, waits for nobody,
/// and leaves out what is held by another or has changed without a new version.
const CHANGE_HELD: &str = changing!(
    ", holder uuid, was_resent_at timestamptz, hints_count bigint",
    "select held.transaction_id from given join charges held
         on held.transaction_id = given.id and held.fence = given.holder
             and held.resent_at is not distinct from given.was_resent_at
             and held.hints = given.hints_count
     where held.transaction_id = any(array(select id from given))
     order by held.transaction_id for update of held skip locked"
);

/// Changes each charge, and ends or keeps the claim on it, if it is as before.
fn change<'c>(joint: Joint<'c>, steps: &[&Step]) -> Joint<'c> {
    change_columns(joint.sql_set(CHANGE, steps.len()), steps)
}

/// The same for charges that this process holds and that nobody has locked.
fn change_held<'c>(joint: Joint<'c>, steps: &[&Step]) -> Joint<'c> {
    let before = || steps.iter().map(|step| &step.before);
    change_columns(joint.sql_set(CHANGE_HELD, steps.len()), steps)
        .column(before().map(|before| before.claim.fence))
        .column(before().map(|before| before.timer.resent_at))
        .column(before().map(|before| before.timer.hints))
}

fn change_columns<'c>(joint: Joint<'c>, steps: &[&Step]) -> Joint<'c> {
    let steps = || steps.iter().copied();
    let before = || steps().map(|step| &step.before.progress);
    let progress = || steps().map(|step| &step.after.progress);
    let timer = || steps().map(|step| &step.after.timer);
    joint
        .column(steps().map(Step::id))
        .column(before().map(|before| before.state))
        .column(before().map(|before| before.version))
        .column(before().map(|before| before.mismatched))
        .column(progress().map(|progress| progress.state))
        .column(progress().map(|progress| progress.version))
        .column(progress().map(|progress| progress.failure_reason.as_deref()))
        .column(progress().map(|progress| progress.otp_tries))
        .column(progress().map(|progress| progress.seen_at_rail))
        .column(progress().map(|progress| progress.updated_at))
        .column(timer().map(|timer| timer.submitted_at))
        .column(timer().map(|timer| timer.taken_by))
        .column(timer().map(|timer| timer.otp_expires_at))
        .column(timer().map(|timer| timer.next_query_at))
        .column(steps().map(|step| step.after.claim.lease_until))
        .column(steps().map(|step| step.after.claim.fence))
        .column(steps().map(|step| matches!(step.hint, HintEnd::Answered)))
        .column(steps().map(|step| step.received().map(|callback| callback.at)))
        .column(steps().map(|step| match &step.hint {
            HintEnd::Received(callback) => Some(callback.asked_until),
            HintEnd::At(due) => Some(*due),
            HintEnd::NotYet | HintEnd::Answered => None,
        }))
        .column(steps().map(|step| step.instruction.is_some()))
        .column(steps().map(|step| step.instruction.as_ref()?.as_deref()))
}
