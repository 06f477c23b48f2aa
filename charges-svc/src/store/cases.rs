//! Operators' cases.

use chassis::{
    clock::Timestamp,
    ids::{CaseId, ChargeId},
    money::{Currency, Money},
};
use db::{Conn, Joint, Result, Tx, Update};
use uuid::Uuid;

use crate::{
    case::{Case, CaseKind, Closing},
    charge::Facts,
};

/// Longest list of cases. Operators work on the oldest first.
const LISTED_MAX: i64 = 1_000;

macro_rules! columns {
    () => {
        "cases.case_id, cases.transaction_id,
         cases.kind,
         coalesce(charges.reference, disbursements.shown_id, rail_report_lines.shown, '') as reference,
         cases.detail,
         cases.suspense_minor, cases.suspense_currency, cases.opened_at, cases.closed_at,
         refunds.shown_id as refund_id"
    };
}

/// Opens a case, or changes the existing one of its kind and reopens it if it was closed: adds the
/// missing money, or tells another contradiction than it told. `None` if nothing was changed.
pub async fn open(tx: &mut Tx, case: &Case) -> Result<Option<CaseId>> {
    let suspense = case.suspense();
    let opened: Option<(CaseId,)> = tx
        .sql(
            "insert into cases (case_id, transaction_id, kind, detail, suspense_minor,
                 suspense_currency, opened_at)
             values ($1, $2, $3, $4, $5, $6, $7)
             on conflict (transaction_id, kind) do update
                 set suspense_minor = excluded.suspense_minor,
                     suspense_currency = excluded.suspense_currency,
                     detail = excluded.detail, closed_at = null, closing = null
                 where cases.suspense_minor is null and (
                     excluded.suspense_minor is not null
                     or (cases.kind = 'MISMATCH' and cases.detail <> excluded.detail)
                 )
             returning case_id",
        )
        .bind(case.case_id)
        .bind(case.subject)
        .bind(case.kind)
        .bind(&case.detail)
        .bind(suspense.map(|money| money.minor_units()))
        .bind(suspense.map(|money| money.currency()))
        .bind(case.opened_at)
        .optional()
        .await?;
    Ok(opened.map(|(case_id,)| case_id))
}

/// Opens those of these cases, which hold no money, whose subject never had one of their kind.
/// Returns which.
pub async fn open_new(tx: &mut Tx, cases: &[&Case]) -> Result<Vec<CaseId>> {
    let opened: Vec<(CaseId,)> = tx
        .sql_set(
            "given (id uuid, about uuid, of_kind text, what text, at timestamptz)
             insert into cases (case_id, transaction_id, kind, detail, opened_at)
             select id, about, of_kind, what, at from given where true
             on conflict (transaction_id, kind) do nothing
             returning case_id",
            cases.len(),
        )
        .column(cases.iter().map(|case| case.case_id))
        .column(cases.iter().map(|case| case.subject))
        .column(cases.iter().map(|case| case.kind.code()))
        .column(cases.iter().map(|case| case.detail.as_str()))
        .column(cases.iter().map(|case| case.opened_at))
        .all()
        .await?;
    Ok(opened.into_iter().map(|(case_id,)| case_id).collect())
}

/// Open cases, oldest first.
pub async fn list_open(conn: &mut Conn) -> Result<Vec<Case>> {
    let open = conn.sql(concat!(
        "select ",
        columns!(),
        " from cases
         left join charges on charges.transaction_id = cases.transaction_id
         left join disbursements on disbursements.disbursement_id = cases.transaction_id
         left join rail_report_lines on rail_report_lines.line_id = cases.transaction_id
         left join disbursements as refunds on refunds.case_id = cases.case_id
             and refunds.state <> 'FAILED' and refunds.reversed_at is null
         where cases.closed_at is null order by cases.opened_at, cases.case_id limit $1"
    ));
    Ok(open.bind(LISTED_MAX).known().await?.rows)
}

pub async fn find(conn: &mut Conn, id: CaseId) -> Result<Option<Case>> {
    conn.sql(concat!(
        "select ",
        columns!(),
        " from cases
         left join charges on charges.transaction_id = cases.transaction_id
         left join disbursements on disbursements.disbursement_id = cases.transaction_id
         left join rail_report_lines on rail_report_lines.line_id = cases.transaction_id
         left join disbursements as refunds on refunds.case_id = cases.case_id
             and refunds.state <> 'FAILED' and refunds.reversed_at is null
         where cases.case_id = $1"
    ))
    .bind(id)
    .optional()
    .await
}

/// Locks a case until the transaction ends. Returns whether it is open.
pub async fn lock_open(tx: &mut Tx, id: CaseId) -> Result<bool> {
    let found: Option<(CaseId,)> = tx
        .sql("select case_id from cases where case_id = $1 and closed_at is null for update")
        .bind(id)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Opens a case again whose refund came back.
pub async fn reopen(tx: &mut Tx, id: CaseId) -> Result<()> {
    tx.sql("update cases set closed_at = null, closing = null where case_id = $1")
        .bind(id)
        .run()
        .await
}

/// How a case was closed, if it was.
pub async fn closing(conn: &mut Conn, id: CaseId) -> Result<Option<Closing>> {
    let found: Option<(Closing,)> = conn
        .sql("select closing from cases where case_id = $1 and closing is not null")
        .bind(id)
        .optional()
        .await?;
    Ok(found.map(|(closing,)| closing))
}

/// How the subject's case of this kind was closed: nothing yet if it is open, `None` if there is
/// none.
pub async fn closing_of(
    conn: &mut Conn,
    subject: Uuid,
    kind: CaseKind,
) -> Result<Option<Option<Closing>>> {
    let found: Option<(Option<Closing>,)> = conn
        .sql("select closing from cases where transaction_id = $1 and kind = $2")
        .bind(subject)
        .bind(kind)
        .optional()
        .await?;
    Ok(found.map(|(closing,)| closing))
}

/// Closes an open case. Returns [`Update::NotThere`] if it was already closed.
pub async fn close(tx: &mut Tx, id: CaseId, closing: Closing, now: Timestamp) -> Result<Update> {
    tx.sql(
        "update cases set closed_at = $2, closing = $3
         where case_id = $1 and closed_at is null",
    )
    .bind(id)
    .bind(now)
    .bind(closing)
    .update()
    .await
}

/// Closes the open case of this kind. Returns [`Update::NotThere`] if there is none.
pub async fn close_of(
    tx: &mut Tx,
    subject: Uuid,
    kind: CaseKind,
    closing: Closing,
    now: Timestamp,
) -> Result<Update> {
    tx.sql(
        "update cases set closed_at = $4, closing = $3
         where transaction_id = $1 and kind = $2 and closed_at is null",
    )
    .bind(subject)
    .bind(kind)
    .bind(closing)
    .bind(now)
    .update()
    .await
}

/// Whether another charge's money was released to the merchant in the same session. Anybody
/// closing such a case at the same time goes entirely before or after this transaction.
pub async fn is_released_beside(tx: &mut Tx, charge: &Facts) -> Result<bool> {
    let closings: Vec<(Option<String>,)> = tx
        .sql(
            "select closing from cases
             where suspense_minor is not null and transaction_id in (
                 select transaction_id from charges where session_id = $1 and transaction_id <> $2
             )
             for share",
        )
        .bind(charge.session_id)
        .bind(charge.transaction_id)
        .all()
        .await?;
    let released = Closing::Release.code();
    Ok(closings
        .iter()
        .any(|(closing,)| closing.as_deref() == Some(released)))
}

/// Whether the rail took the charge's payment back, according to the cases.
pub async fn is_reversed(conn: &mut Conn, id: ChargeId) -> Result<bool> {
    let found: Option<(CaseId,)> = conn
        .sql("select case_id from cases where transaction_id = $1 and kind = $2")
        .bind(id)
        .bind(CaseKind::Reversed)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// What was released to the merchant from the charge's suspense, of which there is at most one.
pub async fn released(tx: &mut Tx, id: ChargeId) -> Result<Option<Money>> {
    let found: Option<(i64, Currency)> = tx
        .sql(
            "select suspense_minor, suspense_currency from cases
             where transaction_id = $1 and closing = $2 and suspense_minor is not null",
        )
        .bind(id)
        .bind(Closing::Release)
        .optional()
        .await?;
    Ok(found.map(|(minor_units, currency)| Money::new(minor_units, currency)))
}

/// Closes these charges' cases of an unknown outcome, which is now known.
pub(super) fn close_set<'c>(joint: Joint<'c>, ended: &[(ChargeId, Timestamp)]) -> Joint<'c> {
    joint
        .sql_set(
            "given (id uuid, ended_at timestamptz)
             update cases set closed_at = given.ended_at, closing = $2
             from given
             where cases.transaction_id = any(array(select id from given))
                 and cases.transaction_id = given.id and cases.kind = $1
                 and cases.closed_at is null",
            ended.len(),
        )
        .bind(CaseKind::UnknownOutcome)
        .bind(Closing::OutcomeKnown)
        .column(ended.iter().map(|(id, _)| *id))
        .column(ended.iter().map(|(_, ended_at)| *ended_at))
}

/// How many cases are open, counted up to `limit`.
pub async fn count_open(conn: &mut Conn, limit: i64) -> Result<i64> {
    let (open,) = conn
        .sql(
            "select count(*) from (
                 select case_id from cases where closed_at is null limit $1
             ) as counted",
        )
        .bind(limit)
        .one::<(i64,)>()
        .await?;
    Ok(open)
}
