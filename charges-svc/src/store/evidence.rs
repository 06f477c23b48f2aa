//! What rails and operators said about charges and disbursements. The column `transaction_id` has
//! its name from when there were only charges.

use chassis::{clock::Timestamp, ids::ChargeId};
use db::{Conn, Joint, Result, Tx};
use rails::{CallOutcome as _, SendOutcome, TransferOutcome};
use sqlx::FromRow;
use uuid::Uuid;

/// How many different wordings of one action and outcome are stored per charge. More would only
/// repeat.
const KEPT_MAX: i64 = 200;

/// Longest text stored, in characters.
const TEXT_MAX: usize = 500;

chassis::closed_list! {
    /// On what occasion something was said.
    pub enum Action: "an action" {
        RequestPayment = "request_payment",
        SubmitOtp = "submit_otp",
        Query = "query",
        Callback = "callback",
        Operator = "operator",
        /// A disbursement was sent.
        Send = "send",
    }
}

chassis::closed_list! {
    /// What is noted besides the [labels](rails::CallOutcome::label) of a rail's replies.
    pub enum Note: "a note" {
        /// A callback came.
        Received = "received",
        /// The payment request is about to go out a second time.
        SentAgain = "sent_again",
        /// An operator settled the charge, or failed it.
        Succeeded = "succeeded",
        Failed = "failed",
        /// An operator released money all the same.
        ReleasedOverReversal = "released over a reversal",
        ReleasedOverPayment = "released over another payment",
        /// An operator says that money in suspense is back with the payer.
        Refunded = "refunded",
    }
}

/// One thing that a rail, or an operator, said about a charge.
#[derive(Clone, Debug, FromRow)]
pub struct Evidence {
    pub action: String,
    pub outcome: String,
    /// Empty if there were no words.
    pub rail_text: String,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// How often it was said.
    pub times: i64,
}

/// What was said on one occasion.
#[derive(Clone, Debug)]
pub struct Statement {
    pub action: Action,
    pub outcome: &'static str,
    pub rail_text: Option<String>,
    pub at: Timestamp,
}

impl Statement {
    /// That the rail called back.
    pub fn callback(rail_text: Option<String>, at: Timestamp) -> Self {
        Self {
            action: Action::Callback,
            outcome: Note::Received.code(),
            rail_text,
            at,
        }
    }
}

/// Stores statements about charges, as [`keep`] does. Two about one charge differ in their outcome.
///
/// What was said before is looked up for each: PostgreSQL may answer an `exists` for all of them
/// by reading the whole table.
pub(super) fn keep_set<'c>(joint: Joint<'c>, said: &[(ChargeId, &Statement)]) -> Joint<'c> {
    joint
        .sql_set(
            "given (id uuid, said_on text, meaning text, words text, said_at timestamptz)
             insert into rail_evidence
                 (transaction_id, action, outcome, rail_text, first_at, last_at, times)
             select id, said_on, meaning, words, said_at, said_at, 1 from given
             where (select count(*) from rail_evidence
                    where transaction_id = id and action = said_on and outcome = meaning) < $1
                or (select times from rail_evidence
                    where transaction_id = id and action = said_on and outcome = meaning
                        and rail_text = words) is not null
             on conflict (transaction_id, action, outcome, rail_text) do update
                 set times = rail_evidence.times + 1, last_at = excluded.last_at",
            said.len(),
        )
        .bind(KEPT_MAX)
        .column(said.iter().map(|(id, _)| *id))
        .column(said.iter().map(|(_, said)| said.action.code()))
        .column(said.iter().map(|(_, said)| said.outcome))
        .column(said.iter().map(|(_, said)| kept(said.rail_text.as_deref())))
        .column(said.iter().map(|(_, said)| said.at))
}

/// As much of a text as is stored.
fn kept(rail_text: Option<&str>) -> String {
    rail_text
        .unwrap_or_default()
        .chars()
        .take(TEXT_MAX)
        .collect()
}

/// Stores a statement, up to a limit, or counts it if it was made before.
pub async fn keep(
    tx: &mut Tx,
    subject: Uuid,
    (action, outcome): (Action, &'static str),
    rail_text: Option<&str>,
    now: Timestamp,
) -> Result<()> {
    tx.sql(
        "insert into rail_evidence
             (transaction_id, action, outcome, rail_text, first_at, last_at, times)
         select $1, $2, $3, $4, $5, $5, 1
         where (select count(*) from rail_evidence
                where transaction_id = $1 and action = $2 and outcome = $3) < $6
            or exists (select 1 from rail_evidence
                where transaction_id = $1 and action = $2 and outcome = $3 and rail_text = $4)
         on conflict (transaction_id, action, outcome, rail_text) do update
             set times = rail_evidence.times + 1, last_at = excluded.last_at",
    )
    .bind(subject)
    .bind(action.code())
    .bind(outcome)
    .bind(kept(rail_text))
    .bind(now)
    .bind(KEPT_MAX)
    .run()
    .await
}

/// How often a charge has this action and outcome, in any words.
pub async fn times(
    conn: &mut Conn,
    id: ChargeId,
    (action, outcome): (Action, &'static str),
) -> Result<i64> {
    let (times,) = conn
        .sql(
            "select cast(coalesce(sum(times), 0) as bigint) from rail_evidence
             where transaction_id = $1 and action = $2 and outcome = $3",
        )
        .bind(id)
        .bind(action.code())
        .bind(outcome)
        .one::<(i64,)>()
        .await?;
    Ok(times)
}

/// What was said about a charge or a disbursement in any words, told apart by action and outcome.
#[derive(Clone, Debug, FromRow)]
pub struct Summary {
    /// The charge or the disbursement.
    pub subject: Uuid,
    pub action: String,
    pub outcome: String,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub times: i64,
}

impl Summary {
    /// Whether the rail showed by it that it had taken a disbursement.
    pub fn shows_a_transfer(&self) -> bool {
        let taken = [SendOutcome::Accepted, SendOutcome::AlreadyKnown];
        (self.action == Action::Send.code()
            && taken.map(|said| said.label()).contains(&&*self.outcome))
            || (self.action == Action::Query.code()
                && self.outcome == TransferOutcome::Pending.label())
    }
}

/// A summary of what was said about each of these, in no certain order.
pub async fn summarize(conn: &mut Conn, subjects: &[Uuid]) -> Result<Vec<Summary>> {
    conn.sql_set(
        "given (about uuid)
         select transaction_id as subject, action, outcome, min(first_at) as first_at,
             max(last_at) as last_at, cast(sum(times) as bigint) as times
         from rail_evidence where transaction_id = any(array(select about from given))
         group by transaction_id, action, outcome",
        subjects.len(),
    )
    .column(subjects.iter().copied())
    .all()
    .await
}

/// A charge's or a disbursement's evidence, oldest first.
pub async fn list(conn: &mut Conn, subject: Uuid) -> Result<Vec<Evidence>> {
    conn.sql(
        "select action, outcome, rail_text, first_at, last_at, times
         from rail_evidence where transaction_id = $1
         order by first_at, last_at, action, outcome",
    )
    .bind(subject)
    .all()
    .await
}
