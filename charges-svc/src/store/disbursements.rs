//! Disbursements, their leases and their timers.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    ids::{CaseId, ChargeId, DisbursementId, MerchantId, Reference, SessionId},
    limits::LOOKED_AT_MAX,
    money::{Currency, Money},
    page::{PageRequest, Place, Span},
};
use db::{Conn, Insert, KnownRows, Page, Result, Tx, Update};
use rails::RailName;
use uuid::Uuid;

use super::{Backlog, hints::About};
use crate::{
    charge::Lease,
    disbursement::{Disbursement, Kind, State},
};

macro_rules! columns {
    () => {
        "disbursement_id, kind, shown_id, merchant_id, amount_minor, currency, transaction_id,
         reference, session_id, case_id, scheduled, destination_type, provider, account,
         holder_name, rail, rail_reference, callback_token, traceparent, created_at,
         state, version, failure_reason, updated_at, completed_at, reversed_at,
         sent_at, resent_at, next_due_at, hints, lease_until, fence, fee_minor,
         request_id, key_name"
    };
}

/// Writes a new disbursement. Returns [`Insert::AlreadyThere`] if its case has one that has not
/// failed.
pub async fn insert(tx: &mut Tx, new: &Disbursement) -> Result<Insert> {
    let (refunded, to) = (&new.refunded, &new.destination);
    tx.sql(concat!(
        "insert into disbursements (",
        columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
             $19, $20, $21, $22, null, $20, null, null, null, null, $23, 0, null, null, $24,
             $25, $26)
         on conflict do nothing"
    ))
    .bind(new.disbursement_id)
    .bind(new.kind)
    .bind(&new.shown_id)
    .bind(new.merchant_id)
    .bind(new.amount().minor_units())
    .bind(new.amount().currency())
    .bind(refunded.transaction_id)
    .bind(refunded.reference.as_deref())
    .bind(refunded.session_id)
    .bind(refunded.case_id)
    .bind(new.scheduled)
    .bind(to.destination_type)
    .bind(&to.provider)
    .bind(&to.account)
    .bind(to.holder_name.as_deref())
    .bind(&new.rail)
    .bind(new.rail_reference)
    .bind(&new.callback_token)
    .bind(new.traceparent.as_deref())
    .bind(new.created_at)
    .bind(new.progress.state)
    .bind(new.progress.version)
    .bind(new.next_due_at)
    .bind(new.fee().minor_units())
    .bind(new.asked_by.request_id.as_deref())
    .bind(new.asked_by.key_name.as_deref())
    .insert()
    .await
}

/// Writes what became of a disbursement, and releases it if `after` is held by nobody. A callback
/// that came after `before` was read keeps it due. Returns [`Update::NotThere`] if it is no longer
/// as it was, or somebody else holds it.
pub async fn update(tx: &mut Tx, before: &Disbursement, after: &Disbursement) -> Result<Update> {
    let progress = &after.progress;
    tx.sql(
        "update disbursements set
             state = $4, version = $5, failure_reason = $6, updated_at = $7, completed_at = $8,
             reversed_at = $9, sent_at = $10, resent_at = $11,
             next_due_at = case when hints = $12 then $13 else next_due_at end,
             lease_until = $14, fence = $15
         where disbursement_id = $1 and version = $2
             and (fence = $3 or (fence is null and $3 is null))",
    )
    .bind(before.disbursement_id)
    .bind(before.progress.version)
    .bind(before.claim.fence)
    .bind(progress.state)
    .bind(progress.version)
    .bind(progress.failure_reason.as_deref())
    .bind(progress.updated_at)
    .bind(progress.completed_at)
    .bind(progress.reversed_at)
    .bind(after.sent_at)
    .bind(after.resent_at)
    .bind(before.hints)
    .bind(after.next_due_at)
    .bind(after.claim.lease_until)
    .bind(after.claim.fence)
    .update()
    .await
}

pub async fn find(conn: &mut Conn, id: DisbursementId) -> Result<Option<Disbursement>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from disbursements where disbursement_id = $1"
    ))
    .bind(id)
    .optional()
    .await
}

pub async fn find_of_merchant(
    conn: &mut Conn,
    (merchant_id, kind): (MerchantId, Kind),
    shown_id: &str,
) -> Result<Option<Disbursement>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from disbursements where shown_id = $1 and merchant_id = $2 and kind = $3"
    ))
    .bind(shown_id)
    .bind(merchant_id)
    .bind(kind)
    .optional()
    .await
}

/// Any merchant's, for operators.
pub async fn find_shown(conn: &mut Conn, shown_id: &str) -> Result<Option<Disbursement>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from disbursements where shown_id = $1"
    ))
    .bind(shown_id)
    .optional()
    .await
}

/// Like [`find`], and locks it until the transaction ends.
pub async fn find_locked(tx: &mut Tx, id: DisbursementId) -> Result<Option<Disbursement>> {
    tx.sql(concat!(
        "select ",
        columns!(),
        " from disbursements where disbursement_id = $1 for update"
    ))
    .bind(id)
    .optional()
    .await
}

/// Which payouts or refunds to list: those that have everything that is given.
#[derive(Clone, Debug)]
pub struct WantedDisbursements {
    pub merchant_id: MerchantId,
    pub kind: Kind,
    /// Of a refund's charge.
    pub reference: Option<Reference>,
    /// Of a refund's session.
    pub session_id: Option<SessionId>,
    pub state: Option<State>,
}

impl WantedDisbursements {
    /// Whether there is something that no index finds among what may be many.
    pub fn is_searched(&self) -> bool {
        self.reference.is_none() && self.session_id.is_none() && self.state.is_some()
    }
}

macro_rules! within_span {
    () => {
        "(created_at, disbursement_id) < ($3, $4) and (created_at, disbursement_id) >= ($5, $6)"
    };
}

/// The text's head names the rows by an index; the rest is the same for all.
macro_rules! listing {
    ($with:literal, $from:literal) => {
        concat!(
            $with,
            " select created_at as place_at, disbursement_id as place_id, ",
            columns!(),
            $from,
            " and ",
            within_span!(),
            " and (cast($8 as text) is null or reference = $8)
              and (cast($9 as text) is null or state = $9)
              and (cast($10 as uuid) is null or session_id = $10)
              order by created_at desc, disbursement_id desc limit $7"
        )
    };
}

const BY_TIME: &str = listing!(
    "",
    " from disbursements where merchant_id = $1 and kind = $2"
);

// A charge has few refunds, and a session few charges: all of them are read, so that no store prefers
// the index of all the merchant's.
const BY_REFERENCE: &str = listing!(
    "with found as materialized (
         select * from disbursements
         where transaction_id = (select transaction_id from charges where reference = $8)
     )",
    " from found where merchant_id = $1 and kind = $2"
);

const BY_SESSION: &str = listing!(
    "with found as materialized (
         select * from disbursements
         where transaction_id in (select transaction_id from charges where session_id = $10)
     )",
    " from found where merchant_id = $1 and kind = $2"
);

/// A page of what is wanted, newest first.
pub async fn list(
    conn: &mut Conn,
    wanted: &WantedDisbursements,
    page: &PageRequest<Uuid>,
) -> Result<Page<Disbursement, Uuid>> {
    let text = match (&wanted.reference, wanted.session_id) {
        (Some(_), _) => BY_REFERENCE,
        (None, Some(_)) => BY_SESSION,
        (None, None) => BY_TIME,
    };
    let Span { from, before } = page.span;
    conn.sql(text)
        .bind(wanted.merchant_id)
        .bind(wanted.kind)
        .bind(before.at)
        .bind(before.id)
        .bind(from.at)
        .bind(from.id)
        .bind(i64::from(page.size) + 1)
        .bind(wanted.reference.as_ref().map(Reference::as_str))
        .bind(wanted.state)
        .bind(wanted.session_id)
        .page(page.size)
        .await
}

const STOP: &str = concat!(
    "select created_at, disbursement_id from disbursements
     where merchant_id = $1 and kind = $2 and ",
    within_span!(),
    " order by created_at desc, disbursement_id desc limit 1 offset $7"
);

/// Where a page that looks at [`LOOKED_AT_MAX`] rows has to stop; `None` if there are fewer, or an
/// index finds what is wanted.
pub async fn stop(
    conn: &mut Conn,
    wanted: &WantedDisbursements,
    span: Span<Uuid>,
) -> Result<Option<Place<Uuid>>> {
    if !wanted.is_searched() {
        return Ok(None);
    }
    let found: Option<(Timestamp, Uuid)> = conn
        .sql(STOP)
        .bind(wanted.merchant_id)
        .bind(wanted.kind)
        .bind(span.before.at)
        .bind(span.before.id)
        .bind(span.from.at)
        .bind(span.from.id)
        .bind(LOOKED_AT_MAX - 1)
        .optional()
        .await?;
    Ok(found.map(|(at, id)| Place { at, id }))
}

/// A charge's refunds, newest first, up to `limit`.
pub async fn refunds_of(
    conn: &mut Conn,
    charge: ChargeId,
    limit: usize,
) -> Result<KnownRows<Disbursement>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from disbursements where transaction_id = $1 order by disbursement_id desc limit $2"
    ))
    .bind(charge)
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .known()
    .await
}

/// Whether the rail paid what had failed, and did not take that back.
macro_rules! was_paid_late {
    () => {
        "(
            exists (
                select 1 from postings
                where kind = 'LATE_DISBURSEMENT' and subject = disbursement_id
            )
            and not exists (
                select 1 from postings
                where kind = 'LATE_REVERSAL' and subject = disbursement_id
            )
        )"
    };
}

/// The refunds of a charge that have not failed, or were paid all the same, of what its merchant was
/// credited.
#[derive(Clone, Copy, Debug)]
pub struct Refunds {
    pub sum: Money,
    pub count: i64,
    /// Whether some of them may still fail.
    pub are_on_their_way: bool,
}

/// Stable while the charge is locked, except that a rail may pay what had failed.
pub async fn refunds(conn: &mut Conn, charge: ChargeId, currency: Currency) -> Result<Refunds> {
    let (minor, count, open) = conn
        .sql(concat!(
            "select cast(coalesce(sum(amount_minor), 0) as bigint), count(*),
                 cast(coalesce(sum(
                     case when state in ('COMPLETED', 'FAILED') then 0 else 1 end
                 ), 0) as bigint)
             from disbursements
             where transaction_id = $1 and currency = $2 and case_id is null
                 and reversed_at is null
                 and (state <> 'FAILED' or ",
            was_paid_late!(),
            ")"
        ))
        .bind(charge)
        .bind(currency)
        .one::<(i64, i64, i64)>()
        .await?;
    Ok(Refunds {
        sum: Money::new(minor, currency),
        count,
        are_on_their_way: open > 0,
    })
}

/// Whether a case's suspense is on its way to the payer, or has arrived.
pub async fn is_refunding(conn: &mut Conn, case_id: CaseId) -> Result<bool> {
    let found: Option<(DisbursementId,)> = conn
        .sql(
            "select disbursement_id from disbursements
             where case_id = $1 and state <> 'FAILED' and reversed_at is null",
        )
        .bind(case_id)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// What a merchant has twice until an operator decides about it: its rail paid it after it had failed
/// and was on the balance again.
pub async fn undecided_late(
    conn: &mut Conn,
    merchant_id: MerchantId,
    currency: Currency,
) -> Result<Money> {
    let (minor,) = conn
        .sql(
            "select cast(coalesce(sum(amount_minor), 0) as bigint)
             from cases join disbursements on disbursement_id = cases.transaction_id
             where cases.kind = 'PAID_LATE' and closed_at is null
                 and merchant_id = $1 and currency = $2 and disbursements.case_id is null",
        )
        .bind(merchant_id)
        .bind(currency)
        .one::<(i64,)>()
        .await?;
    Ok(Money::new(minor, currency))
}

/// The refund of a case's suspense that its rail paid after it had failed, and did not take back.
pub async fn find_paid_late(conn: &mut Conn, case_id: CaseId) -> Result<Option<DisbursementId>> {
    let found: Option<(DisbursementId,)> = conn
        .sql(concat!(
            "select disbursement_id from disbursements
             where case_id = $1 and state = 'FAILED' and ",
            was_paid_late!(),
            " order by disbursement_id limit 1"
        ))
        .bind(case_id)
        .optional()
        .await?;
    Ok(found.map(|(id,)| id))
}

/// What may still leave a rail's float for other disbursements that are on their way.
pub async fn on_their_way(
    conn: &mut Conn,
    rail: RailName,
    currency: Currency,
    without: DisbursementId,
) -> Result<Money> {
    let (minor,) = conn
        .sql(
            "select cast(coalesce(sum(amount_minor), 0) as bigint) from disbursements
             where rail = $1 and state = 'PROCESSING' and currency = $2
                 and disbursement_id <> $3",
        )
        .bind(rail)
        .bind(currency)
        .bind(without)
        .one::<(i64,)>()
        .await?;
    Ok(Money::new(minor, currency))
}

/// Claims up to `limit` due ones that nobody holds, the most overdue first.
pub async fn claim_due(
    conn: &mut Conn,
    clock: &Clock,
    rail: RailName,
    limit: i64,
    lease: Duration,
) -> Result<KnownRows<Disbursement>> {
    let (now, real_now, lease) = (clock.now(), clock.real_now(), Lease::new(clock, lease));
    conn.sql(concat!(
        "with due as materialized (
             select disbursement_id from disbursements
             where rail = $1 and next_due_at <= $2 and (lease_until is null or lease_until <= $3)
             order by next_due_at limit $4
             for update skip locked
         )
         update disbursements set lease_until = $5, fence = $6
         where disbursement_id = any(array(select disbursement_id from due))
         returning ",
        columns!()
    ))
    .bind(rail)
    .bind(now)
    .bind(real_now)
    .bind(limit)
    .bind(lease.term.until)
    .bind(lease.fence)
    .known()
    .await
}

/// When the next one that nobody holds is due.
pub async fn next_due(
    conn: &mut Conn,
    rail: RailName,
    real_now: Timestamp,
) -> Result<Option<Timestamp>> {
    let (due,) = conn
        .sql(
            "select min(next_due_at) from disbursements
             where rail = $1 and next_due_at is not null
                 and (lease_until is null or lease_until <= $2)",
        )
        .bind(rail)
        .bind(real_now)
        .one::<(Option<Timestamp>,)>()
        .await?;
    Ok(due)
}

/// The disbursement that a callback is about.
pub async fn find_called(
    conn: &mut Conn,
    rail: RailName,
    about: &About,
) -> Result<Option<DisbursementId>> {
    let found: Option<(DisbursementId,)> = conn
        .sql(
            "select disbursement_id from disbursements
             where rail = $1 and (callback_token = $2 or rail_reference = $3)",
        )
        .bind(rail)
        .bind(about.token())
        .bind(about.reference())
        .optional()
        .await?;
    Ok(found.map(|(id,)| id))
}

/// Records a callback: its rail is asked at once, unless nothing was sent.
pub async fn put_hint(tx: &mut Tx, id: DisbursementId, now: Timestamp) -> Result<()> {
    tx.sql(
        "update disbursements set hints = hints + 1,
             next_due_at = case when state = 'PENDING' then next_due_at else $2 end
         where disbursement_id = $1",
    )
    .bind(id)
    .bind(now)
    .run()
    .await
}

/// Releases every disbursement ([`db::Schema::release_leases`]).
pub const RELEASE_LEASES: &str =
    "update disbursements set lease_until = null, fence = null where fence is not null";

/// Those that have not ended, counted up to `limit`, and the oldest of them that waits neither for a
/// person nor for a change of its merchant's account: see [`store::charges::backlog`].
///
/// [`store::charges::backlog`]: super::charges::backlog
pub async fn backlog(conn: &mut Conn, limit: i64, now: Timestamp) -> Result<Backlog> {
    conn.sql(
        "select count(*) as count, min(case when is_held then null else created_at end) as oldest
         from (
             select disbursements.created_at, exists (
                 select 1 from cases
                 where cases.transaction_id = disbursement_id and closed_at is null
             ) or (
                 state = 'PENDING' and disbursements.kind = 'PAYOUT' and exists (
                     select 1 from payout_accounts
                     where payout_accounts.merchant_id = disbursements.merchant_id
                         and held_until > $2
                 )
             ) as is_held
             from disbursements where state in ('PENDING', 'PROCESSING')
             order by disbursements.created_at limit $1
         ) as counted",
    )
    .bind(limit)
    .bind(now)
    .one()
    .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, check_ordered_by_index, plan};

    use super::*;

    #[tokio::test]
    async fn payouts_and_refunds_are_listed_by_an_index_that_is_in_their_order() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        check_ordered_by_index(&db, BY_TIME, "disbursements_newest").await;
        check_ordered_by_index(&db, STOP, "disbursements_newest").await;
        let by_reference = plan(&db, BY_REFERENCE).await;
        assert!(
            by_reference.contains("disbursements_of_charge"),
            "{by_reference}"
        );
        let by_session = plan(&db, BY_SESSION).await;
        for index in ["charges_number", "disbursements_of_charge"] {
            assert!(by_session.contains(index), "{by_session}");
        }
        db.close().await;
    }
}
