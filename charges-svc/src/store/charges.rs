//! Charges, their leases and their timers.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    ids::{ChargeId, MerchantId, RailReference, Reference, SessionId},
};
use db::{Conn, Insert, KnownRows, Result, Tx, Update};
use rails::RailName;
use sqlx::FromRow;
use uuid::Uuid;

use super::Backlog;
use crate::{
    case::Closing,
    charge::{Charge, Claim, Facts, Lease, Progress, ShownCharge, Timer},
};

/// Every column of a [`Charge`], in one place, so that every statement names them all.
macro_rules! columns {
    () => {
        "transaction_id, merchant_id, merchant_name, session_id, hosted, charge_number,
         tx_id_display, reference, rail, rail_reference, callback_token, amount_minor, currency,
         session_amount_minor, session_currency, rate, provider, phone, description, payer_email,
         payer_name, traceparent, created_at,
         state, version, failure_reason, otp_tries, seen_at_rail, mismatched, updated_at,
         submitted_at, taken_by, resent_at, otp_expires_at, next_query_at, hints,
         lease_until, fence"
    };
}

/// Writes a new charge. Returns [`Insert::AlreadyThere`] if its session has an open charge or is
/// being given one.
pub async fn insert(tx: &mut Tx, charge: &Charge) -> Result<Insert> {
    let Charge {
        facts,
        progress,
        timer,
        claim,
    } = charge;
    tx.sql(concat!(
        "insert into charges (",
        columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
            $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34,
            $35, $36, $37, $38)
         on conflict do nothing"
    ))
    .bind(facts.transaction_id)
    .bind(facts.merchant_id)
    .bind(&facts.merchant_name)
    .bind(facts.session_id)
    .bind(facts.hosted)
    .bind(facts.charge_number)
    .bind(&facts.tx_id_display)
    .bind(&facts.reference)
    .bind(&facts.rail)
    .bind(facts.rail_reference)
    .bind(&facts.callback_token)
    .bind(facts.amount().minor_units())
    .bind(facts.amount().currency())
    .bind(facts.session_amount().minor_units())
    .bind(facts.session_amount().currency())
    .bind(&facts.rate)
    .bind(facts.provider)
    .bind(&facts.phone)
    .bind(&facts.description)
    .bind(&facts.payer_email)
    .bind(&facts.payer_name)
    .bind(&facts.traceparent)
    .bind(facts.created_at)
    .bind(progress.state)
    .bind(progress.version)
    .bind(&progress.failure_reason)
    .bind(progress.otp_tries)
    .bind(progress.seen_at_rail)
    .bind(progress.mismatched)
    .bind(progress.updated_at)
    .bind(timer.submitted_at)
    .bind(timer.taken_by)
    .bind(timer.resent_at)
    .bind(timer.otp_expires_at)
    .bind(timer.next_query_at)
    .bind(timer.hints)
    .bind(claim.lease_until)
    .bind(claim.fence)
    .insert()
    .await
}

/// The number of a session's next charge. Void charges keep theirs.
pub async fn next_number(tx: &mut Tx, session_id: SessionId) -> Result<i64> {
    let (latest,): (i64,) = tx
        .sql("select coalesce(max(charge_number), 0) from charges where session_id = $1")
        .bind(session_id)
        .one()
        .await?;
    Ok(latest + 1)
}

/// A charge by its id, void or not.
pub async fn find(conn: &mut Conn, id: ChargeId) -> Result<Option<Charge>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from charges where transaction_id = $1"
    ))
    .bind(id)
    .optional()
    .await
}

/// Like [`find`], and locks the charge against every other writer until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: ChargeId) -> Result<Option<Charge>> {
    tx.sql(concat!(
        "select ",
        columns!(),
        " from charges where transaction_id = $1 for update"
    ))
    .bind(id)
    .optional()
    .await
}

/// Every charge of this one's session, locked in the same way and in an order that is the same for
/// all.
pub async fn lock_session(tx: &mut Tx, id: ChargeId) -> Result<Vec<Charge>> {
    tx.sql(concat!(
        "select ",
        columns!(),
        " from charges
          where session_id = (select session_id from charges where transaction_id = $1)
          order by charge_number for update"
    ))
    .bind(id)
    .all()
    .await
}

/// Another charge of the session for which the merchant was credited: one that settled, or whose
/// money was released.
pub async fn find_credited_beside(tx: &mut Tx, charge: &Facts) -> Result<Option<Reference>> {
    let found: Option<(Reference,)> = tx
        .sql(
            "select reference from charges
             where session_id = $1 and transaction_id <> $2 and (state = 'SETTLED' or exists (
                 select 1 from cases
                 where cases.transaction_id = charges.transaction_id
                     and cases.closing = $3 and cases.suspense_minor is not null
             ))
             order by charge_number limit 1",
        )
        .bind(charge.session_id)
        .bind(charge.transaction_id)
        .bind(Closing::Release)
        .optional()
        .await?;
    Ok(found.map(|(reference,)| reference))
}

/// A merchant's charge, unless it is void.
pub async fn find_shown(
    conn: &mut Conn,
    merchant_id: MerchantId,
    reference: &Reference,
) -> Result<Option<Charge>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from charges where reference = $1 and merchant_id = $2 and state <> 'VOID'"
    ))
    .bind(reference)
    .bind(merchant_id)
    .optional()
    .await
}

/// Any merchant's charge, for operators, unless it is void.
pub async fn find_by_reference(conn: &mut Conn, reference: &Reference) -> Result<Option<Charge>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from charges where reference = $1 and state <> 'VOID'"
    ))
    .bind(reference)
    .optional()
    .await
}

/// A charge at the hosted checkout, with the network's words to its payer.
#[derive(Clone, Debug, FromRow)]
pub struct HostedCharge {
    #[sqlx(flatten, try_from = "Charge")]
    pub charge: ShownCharge,
    pub instruction: Option<String>,
}

/// The newest hosted charge of a session that is not void.
pub async fn find_hosted(conn: &mut Conn, session_id: SessionId) -> Result<Option<HostedCharge>> {
    conn.sql(concat!(
        "select instruction, ",
        columns!(),
        " from charges where session_id = $1 and hosted and state <> 'VOID'
          order by charge_number desc limit 1"
    ))
    .bind(session_id)
    .optional()
    .await
}

/// Stores what the network asks of the payer. `None` removes it.
pub async fn keep_instruction(tx: &mut Tx, id: ChargeId, instruction: Option<&str>) -> Result<()> {
    tx.sql("update charges set instruction = $2 where transaction_id = $1")
        .bind(id)
        .bind(instruction)
        .run()
        .await
}

/// Changes a charge from `before` to `after` and ends any claim on it. Returns [`Update::NotThere`]
/// if it is no longer as in `before`. Leaves waiting callbacks alone, see [`super::hints`].
pub async fn change(tx: &mut Tx, before: &Progress, after: &Charge) -> Result<Update> {
    let (progress, timer) = (&after.progress, &after.timer);
    tx.sql(
        "update charges set
             state = $5, version = $6, failure_reason = $7, otp_tries = $8, seen_at_rail = $9,
             updated_at = $10, submitted_at = $11, taken_by = $12, otp_expires_at = $13,
             next_query_at = $14, lease_until = null, fence = null
         where transaction_id = $1 and state = $2 and version = $3 and mismatched = $4",
    )
    .bind(after.facts.transaction_id)
    .bind(before.state)
    .bind(before.version)
    .bind(before.mismatched)
    .bind(progress.state)
    .bind(progress.version)
    .bind(&progress.failure_reason)
    .bind(progress.otp_tries)
    .bind(progress.seen_at_rail)
    .bind(progress.updated_at)
    .bind(timer.submitted_at)
    .bind(timer.taken_by)
    .bind(timer.otp_expires_at)
    .bind(timer.next_query_at)
    .update()
    .await
}

/// Records that the rail has shown that it knows our reference.
pub async fn mark_seen(tx: &mut Tx, id: ChargeId) -> Result<()> {
    tx.sql("update charges set seen_at_rail = true where transaction_id = $1")
        .bind(id)
        .run()
        .await
}

/// Writes a lease on a charge, which keeps everybody else away.
pub async fn claim(tx: &mut Tx, id: ChargeId, lease: Lease) -> Result<Claim> {
    let claim = Claim::from(lease);
    tx.sql("update charges set lease_until = $2, fence = $3 where transaction_id = $1")
        .bind(id)
        .bind(claim.lease_until)
        .bind(claim.fence)
        .run()
        .await?;
    Ok(claim)
}

/// Releases a charge that somebody else has changed meanwhile, without touching their timer.
pub async fn release(tx: &mut Tx, id: ChargeId, fence: Option<Uuid>) -> Result<()> {
    tx.sql(
        "update charges set lease_until = null, fence = null
         where transaction_id = $1 and fence = $2",
    )
    .bind(id)
    .bind(fence)
    .run()
    .await
}

/// Releases a charge whose state stays, and sets when the rail is queried next. Leaves waiting
/// callbacks alone. Returns [`Update::NotThere`] if somebody else holds the charge now.
pub async fn release_until(
    tx: &mut Tx,
    id: ChargeId,
    fence: Option<Uuid>,
    timer: &Timer,
) -> Result<Update> {
    tx.sql(
        "update charges set
             next_query_at = $3, taken_by = $4, lease_until = null, fence = null
         where transaction_id = $1 and fence = $2",
    )
    .bind(id)
    .bind(fence)
    .bind(timer.next_query_at)
    .bind(timer.taken_by)
    .update()
    .await
}

/// Records that the payment request goes out a second time. Returns [`Update::NotThere`] if
/// somebody else holds the charge now or it must not be sent any more.
pub async fn mark_resent(
    tx: &mut Tx,
    id: ChargeId,
    fence: Option<Uuid>,
    timer: &Timer,
) -> Result<Update> {
    tx.sql(
        "update charges set resent_at = $3, taken_by = $4
         where transaction_id = $1 and fence = $2 and state = 'SUBMITTING'
             and resent_at is null",
    )
    .bind(id)
    .bind(fence)
    .bind(timer.resent_at)
    .bind(timer.taken_by)
    .update()
    .await
}

/// Keeps the charge from ever settling, because money came that is not what we asked for.
pub async fn mark_mismatched(tx: &mut Tx, id: ChargeId) -> Result<()> {
    tx.sql("update charges set mismatched = true where transaction_id = $1")
        .bind(id)
        .run()
        .await
}

/// The charge with this callback address, unless it is void.
pub async fn find_by_callback_token(
    conn: &mut Conn,
    rail: RailName,
    token: &str,
) -> Result<Option<ChargeId>> {
    let found: Option<(ChargeId,)> = conn
        .sql(
            "select transaction_id from charges
             where callback_token = $2 and rail = $1 and state <> 'VOID'",
        )
        .bind(rail)
        .bind(token)
        .optional()
        .await?;
    Ok(found.map(|(id,)| id))
}

/// Whether a charge with this callback address, or any that is due to be queried, is on this rail.
/// Others are not looked for, because no index leads to them and anybody can ask.
pub async fn has_rail(conn: &mut Conn, rail: &str, token: &str) -> Result<bool> {
    let found: Option<(String,)> = conn
        .sql(
            "select rail from charges where callback_token = $2 and rail = $1
             union all
             select rail from (
                 select rail from charges where rail = $1 and next_query_at is not null
                 order by next_query_at limit 1
             ) as due
             limit 1",
        )
        .bind(rail)
        .bind(token)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// The charge with this reference at its rail, unless it is void.
pub async fn find_by_rail_reference(
    conn: &mut Conn,
    rail: RailName,
    rail_reference: RailReference,
) -> Result<Option<ChargeId>> {
    let found: Option<(ChargeId,)> = conn
        .sql(
            "select transaction_id from charges
             where rail_reference = $2 and rail = $1 and state <> 'VOID'",
        )
        .bind(rail)
        .bind(rail_reference)
        .optional()
        .await?;
    Ok(found.map(|(id,)| id))
}

/// The statement that claims by the named one of the two timers.
macro_rules! claim_by {
    ($timer:literal) => {
        concat!(
            "with due as materialized (
                 select transaction_id from charges
                 where rail = $1 and ",
            $timer,
            " <= $2 and (lease_until is null or lease_until <= $3)
                 order by ",
            $timer,
            " limit $4
                 for update skip locked
             )
             update charges set lease_until = $5, fence = $6,
                 hint_due_at = case when hinted_at is null then null else $7 end
             where transaction_id = any(array(select transaction_id from due))
             returning ",
            columns!()
        )
    };
}

/// Claims up to `limit` charges that nobody holds and that this rail is due to be queried about:
/// first those with a callback, then those due by the schedule, each the most overdue first.
pub async fn claim_due(
    tx: &mut Tx,
    clock: &Clock,
    rail: RailName,
    limit: i64,
    lease: Duration,
) -> Result<KnownRows<Charge>> {
    let (now, real_now) = (clock.now(), clock.real_now());
    let asked_until = now + lease;
    let lease = Lease::new(clock, lease);
    let mut claimed = KnownRows {
        rows: Vec::new(),
        unknown: 0,
    };
    for claim in [claim_by!("hint_due_at"), claim_by!("next_query_at")] {
        let count = claimed.rows.len() + claimed.unknown;
        let left = limit - i64::try_from(count).unwrap_or(i64::MAX);
        if left <= 0 {
            break;
        }
        let more = tx
            .sql(claim)
            .bind(rail)
            .bind(now)
            .bind(real_now)
            .bind(left)
            .bind(lease.term.until)
            .bind(lease.fence)
            .bind(asked_until);
        let more = more.known::<Charge>().await?;
        claimed.rows.extend(more.rows);
        claimed.unknown += more.unknown;
    }
    Ok(claimed)
}

/// When this rail is next due to be queried about a charge that nobody holds.
pub async fn next_due(
    conn: &mut Conn,
    rail: RailName,
    real_now: Timestamp,
) -> Result<Option<Timestamp>> {
    let (due,): (Option<Timestamp>,) = conn
        .sql(
            "select min(due) from (
                 select min(hint_due_at) as due from charges
                 where rail = $1 and hint_due_at is not null
                   and (lease_until is null or lease_until <= $2)
                 union all
                 select min(next_query_at) as due from charges
                 where rail = $1 and next_query_at is not null
                   and (lease_until is null or lease_until <= $2)
             ) as timers",
        )
        .bind(rail)
        .bind(real_now)
        .one()
        .await?;
    Ok(due)
}

/// Releases every charge ([`db::Schema::release_leases`]).
pub const RELEASE_LEASES: &str =
    "update charges set lease_until = null, fence = null, hint_due_at = hinted_at
     where fence is not null";

/// Open charges, counted up to `limit`.
pub async fn backlog(conn: &mut Conn, limit: i64) -> Result<Backlog> {
    conn.sql(
        "select count(*) as count, min(created_at) as oldest from (
             select created_at from charges where state not in ('SETTLED', 'FAILED', 'VOID')
             order by created_at limit $1
         ) as counted",
    )
    .bind(limit)
    .one()
    .await
}
