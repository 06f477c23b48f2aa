//! Charges, their leases and their timers.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    ids::{ChargeId, Reference, SessionId},
    phone::Phone,
    provider::Provider,
};
use db::{Conn, Insert, Joint, KnownRows, Result, Tx, Update};
use rails::RailName;
use sqlx::FromRow;
use uuid::Uuid;

use super::Backlog;
use crate::{
    case::Closing,
    charge::{Charge, Claim, Facts, Lease, ShownCharge, Timer},
};

/// Every column of a [`Charge`], in one place, so that every statement names them all.
macro_rules! columns {
    () => {
        "transaction_id, merchant_id, merchant_name, session_id, hosted, charge_number,
         tx_id_display, reference, rail, rail_reference, callback_token, amount_minor, currency,
         session_amount_minor, session_currency, rate, provider, phone, description, payer_email,
         payer_name, traceparent, created_at, request_id, key_name,
         state, version, failure_reason, otp_tries, seen_at_rail, mismatched, updated_at,
         submitted_at, taken_by, resent_at, otp_expires_at, next_query_at, hints,
         lease_until, fence"
    };
}

pub mod list;

/// Writes a new charge. Returns [`Insert::AlreadyThere`] if its session has an open charge or is
/// being given one.
pub async fn insert(tx: &mut Tx, charge: &Charge) -> Result<Insert> {
    let number = Some(charge.facts.charge_number);
    Ok(
        match insert_set(tx, &[(charge, number)]).await?.is_empty() {
            true => Insert::AlreadyThere,
            false => Insert::Inserted,
        },
    )
}

/// A number that is not given is the next of its session.
macro_rules! insert {
    () => {
        concat!(
            "given (new_id uuid, payee uuid, payee_name text, session uuid, is_hosted boolean,
                 number bigint, shown_id text, shown_reference text, at_rail text,
                 rail_id uuid, token text, minor bigint, in_currency text, session_minor bigint,
                 in_session_currency text, at_rate text, network text, number_called text,
                 about text, email text, payer text, trace text, at timestamptz,
                 asked_in text, asked_with text,
                 in_state text, in_version bigint, reason text, tries bigint, seen boolean,
                 is_mismatched boolean, changed_at timestamptz,
                 sent_at timestamptz, taken timestamptz, sent_again_at timestamptz,
                 expires_at timestamptz, query_at timestamptz, hinted bigint,
                 held_until timestamptz, held_by uuid)
             insert into charges (",
            columns!(),
            ")
             select new_id, payee, payee_name, session, is_hosted,
                 coalesce(number, (select coalesce(max(charge_number), 0) + 1 from charges
                                   where session_id = session)),
                 shown_id, shown_reference, at_rail, rail_id, token, minor, in_currency,
                 session_minor, in_session_currency, at_rate, network, number_called, about,
                 email, payer, trace, at, asked_in, asked_with,
                 in_state, in_version, reason, tries, seen, is_mismatched, changed_at,
                 sent_at, taken, sent_again_at, expires_at, query_at, hinted,
                 held_until, held_by
             from given where true order by session
             on conflict do nothing"
        )
    };
}

/// Binds new charges, each with its number: to a statement or to a part of a [`Joint`], which both have
/// a method `column`.
macro_rules! insert_columns {
    ($inserting:expr, $charges:expr) => {{
        let charges = $charges;
        let facts = || charges.iter().map(|(charge, _)| &charge.facts);
        let progress = || charges.iter().map(|(charge, _)| &charge.progress);
        let timer = || charges.iter().map(|(charge, _)| &charge.timer);
        let claim = || charges.iter().map(|(charge, _)| charge.claim);
        $inserting
            .column(facts().map(|facts| facts.transaction_id))
            .column(facts().map(|facts| facts.merchant_id))
            .column(facts().map(|facts| facts.merchant_name.as_deref()))
            .column(facts().map(|facts| facts.session_id))
            .column(facts().map(|facts| facts.hosted))
            .column(charges.iter().map(|(_, number)| *number))
            .column(facts().map(|facts| &facts.tx_id_display))
            .column(facts().map(|facts| &facts.reference))
            .column(facts().map(|facts| facts.rail.as_str()))
            .column(facts().map(|facts| facts.rail_reference))
            .column(facts().map(|facts| facts.callback_token.as_str()))
            .column(facts().map(|facts| facts.amount().minor_units()))
            .column(facts().map(|facts| facts.amount().currency().code()))
            .column(facts().map(|facts| facts.session_amount().minor_units()))
            .column(facts().map(|facts| facts.session_amount().currency().code()))
            .column(facts().map(|facts| facts.rate.as_deref()))
            .column(facts().map(|facts| facts.provider))
            .column(facts().map(|facts| &facts.phone))
            .column(facts().map(|facts| facts.description.as_deref()))
            .column(facts().map(|facts| facts.payer_email.as_deref()))
            .column(facts().map(|facts| facts.payer_name.as_deref()))
            .column(facts().map(|facts| facts.traceparent.as_deref()))
            .column(facts().map(|facts| facts.created_at))
            .column(facts().map(|facts| facts.asked_by.request_id.as_deref()))
            .column(facts().map(|facts| facts.asked_by.key_name.as_deref()))
            .column(progress().map(|progress| progress.state))
            .column(progress().map(|progress| progress.version))
            .column(progress().map(|progress| progress.failure_reason.as_deref()))
            .column(progress().map(|progress| progress.otp_tries))
            .column(progress().map(|progress| progress.seen_at_rail))
            .column(progress().map(|progress| progress.mismatched))
            .column(progress().map(|progress| progress.updated_at))
            .column(timer().map(|timer| timer.submitted_at))
            .column(timer().map(|timer| timer.taken_by))
            .column(timer().map(|timer| timer.resent_at))
            .column(timer().map(|timer| timer.otp_expires_at))
            .column(timer().map(|timer| timer.next_query_at))
            .column(timer().map(|timer| timer.hints))
            .column(claim().map(|claim| claim.lease_until))
            .column(claim().map(|claim| claim.fence))
    }};
}

/// Writes new charges, each with this number of its session, or else the next; void charges keep
/// theirs. Returns the number of each, without those whose session has an open charge or is being
/// given one.
pub async fn insert_set(
    tx: &mut Tx,
    charges: &[(&Charge, Option<i64>)],
) -> Result<Vec<(ChargeId, i64)>> {
    let inserting = tx.sql_set(
        concat!(insert!(), " returning transaction_id, charge_number"),
        charges.len(),
    );
    insert_columns!(inserting, charges).all().await
}

/// Writes new charges, each with this number of its session. If one cannot be, nothing is written and
/// the whole fails with [`is_incomplete`](db::is_incomplete).
pub fn insert_whole<'c>(joint: Joint<'c>, charges: &[(&Charge, i64)]) -> Joint<'c> {
    insert_columns!(joint.sql_set(insert!(), charges.len()), charges).whole()
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

/// A charge that is locked until the transaction ends, as it stands.
#[derive(Clone, Debug, FromRow)]
pub struct Held {
    #[sqlx(flatten)]
    pub charge: Charge,
    /// When the latest waiting callback came, if one waits.
    pub hinted_at: Option<Timestamp>,
}

impl Held {
    /// A charge that this process has claimed, as it stands if nothing has come since. `None` if a
    /// callback came before: the charge does not say when.
    pub fn known(charge: &Charge) -> Option<Self> {
        let is_known = charge.claim.fence.is_some() && charge.timer.hints == 0;
        is_known.then(|| Self {
            charge: charge.clone(),
            hinted_at: None,
        })
    }
}

/// Locks a charge and reads what a step of it depends on.
pub async fn hold(tx: &mut Tx, id: ChargeId) -> Result<Option<Held>> {
    tx.sql(concat!(
        "select hinted_at, ",
        columns!(),
        " from charges where transaction_id = $1 for update"
    ))
    .bind(id)
    .optional()
    .await
}

/// Like [`hold`] for several charges, without those that somebody else has locked, so that nobody
/// here waits for a charge, and without those that only a newer version knows.
pub async fn hold_free(
    tx: &mut Tx,
    ids: impl ExactSizeIterator<Item = ChargeId>,
) -> Result<Vec<Held>> {
    let held = tx.sql_set(
        concat!(
            "given (id uuid)
             select hinted_at, ",
            columns!(),
            " from charges where transaction_id = any(array(select id from given))
              order by transaction_id for update skip locked"
        ),
        ids.len(),
    );
    Ok(held.column(ids).known().await?.rows)
}

/// Locks every charge of this charge's session, in the order in which everybody locks them. Empty if
/// there is no such charge.
pub async fn lock_session(tx: &mut Tx, id: Uuid) -> Result<Vec<Charge>> {
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

/// The charges with these references, of whichever merchant, unless they are void. In no certain
/// order.
pub async fn find_shown(conn: &mut Conn, references: &[&Reference]) -> Result<Vec<Charge>> {
    conn.sql_set(
        concat!(
            "given (wanted text) select ",
            columns!(),
            " from given join charges on reference = wanted where state <> 'VOID'"
        ),
        references.len(),
    )
    .column(references.iter().copied())
    .all()
    .await
}

/// The wallets of these charges, of whichever merchant. Those of a provider that only a newer version
/// knows are left out.
pub async fn wallets(
    conn: &mut Conn,
    ids: &[ChargeId],
) -> Result<Vec<(ChargeId, Provider, Phone)>> {
    let wallets = conn.sql_set(
        "given (id uuid)
         select transaction_id, provider, phone from given join charges on transaction_id = id",
        ids.len(),
    );
    Ok(wallets.column(ids.iter().copied()).known().await?.rows)
}

/// Those of the charges with these references, of whichever merchant, that have a later version than
/// this one, unless they are void. In no certain order.
pub async fn find_changed(
    conn: &mut Conn,
    known: &[(Reference, i64)],
) -> Result<KnownRows<Charge>> {
    conn.sql_set(
        concat!(
            "given (wanted text, known bigint) select ",
            columns!(),
            " from given join charges on reference = wanted
              where version > known and state <> 'VOID'"
        ),
        known.len(),
    )
    .column(known.iter().map(|(reference, _)| reference))
    .column(known.iter().map(|(_, version)| *version))
    .known()
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

/// Whether a charge or a disbursement with this callback address, or any charge that is due to be
/// queried, is on this rail.
/// Others are not looked for, because no index leads to them and anybody can ask.
pub async fn has_rail(conn: &mut Conn, rail: &str, token: &str) -> Result<bool> {
    let found: Option<(String,)> = conn
        .sql(
            "select rail from charges where callback_token = $2 and rail = $1
             union all
             select rail from disbursements where callback_token = $2 and rail = $1
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

/// Claims up to `limit` charges that nobody holds and that this rail is due to be queried about:
/// first those with a callback, then those due by the schedule, each the most overdue first.
pub async fn claim_due(
    conn: &mut Conn,
    clock: &Clock,
    rail: RailName,
    limit: i64,
    lease: Duration,
) -> Result<KnownRows<Charge>> {
    let (now, real_now) = (clock.now(), clock.real_now());
    let asked_until = now + lease;
    let lease = Lease::new(clock, lease);
    conn.sql(concat!(
        "with called_back as materialized (
             select transaction_id from charges
             where rail = $1 and hint_due_at <= $2 and (lease_until is null or lease_until <= $3)
             order by hint_due_at limit $4
             for update skip locked
         ), scheduled as materialized (
             select transaction_id from charges
             where rail = $1 and next_query_at <= $2
                 and (lease_until is null or lease_until <= $3)
                 and transaction_id not in (select transaction_id from called_back)
             order by next_query_at limit $4 - (select count(*) from called_back)
             for update skip locked
         )
         update charges set lease_until = $5, fence = $6,
             hint_due_at = case when hinted_at is null then null else $7 end
         where transaction_id = any(array(
             select transaction_id from called_back
             union all select transaction_id from scheduled
         ))
         returning ",
        columns!()
    ))
    .bind(rail)
    .bind(now)
    .bind(real_now)
    .bind(limit)
    .bind(lease.term.until)
    .bind(lease.fence)
    .bind(asked_until)
    .known()
    .await
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

/// Open charges, counted up to `limit`, and the oldest of them that waits for no person: a case
/// alerts by itself, and would hide behind it that nothing else ends either.
pub async fn backlog(conn: &mut Conn, limit: i64) -> Result<Backlog> {
    conn.sql(
        "select count(*) as count, min(case when has_case then null else created_at end) as oldest
         from (
             select created_at, exists (
                 select 1 from cases
                 where cases.transaction_id = charges.transaction_id and closed_at is null
             ) as has_case
             from charges where state not in ('SETTLED', 'FAILED', 'VOID')
             order by created_at limit $1
         ) as counted",
    )
    .bind(limit)
    .one()
    .await
}
