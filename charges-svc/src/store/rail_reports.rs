//! The lines and periods of rails' reports, and our records that they are compared with.

use chassis::{
    clock::Timestamp,
    ids::RailReference,
    money::{Currency, Money},
};
use db::{Conn, Result, Tx};
use rails::RailName;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{
    ledger::Account,
    rail_report::{Direction, Period, RailReport, Said},
};

/// A charge or a disbursement.
#[derive(Clone, Debug, FromRow)]
pub struct Record {
    pub rail_reference: RailReference,
    pub subject: Uuid,
    pub shown: String,
    pub direction: Direction,
    pub state: String,
}

/// The records with these references at the rail.
pub async fn find_records(
    conn: &mut Conn,
    rail: RailName,
    references: &[RailReference],
) -> Result<Vec<Record>> {
    conn.sql_set(
        "given (sought uuid)
         select rail_reference, transaction_id as subject, reference as shown, 'IN' as direction,
             state
         from given join charges on rail_reference = sought
         where rail_reference = any(array(select sought from given)) and rail = $1
         union all
         select rail_reference, disbursement_id, shown_id, 'OUT', state
         from given join disbursements on rail_reference = sought
         where rail_reference = any(array(select sought from given)) and rail = $1",
        references.len(),
    )
    .bind(rail)
    .column(references.iter().copied())
    .all()
    .await
}

/// What moved at the rail for these records, by the ledger.
pub async fn booked(conn: &mut Conn, subjects: &[Uuid]) -> Result<Vec<(Uuid, Money)>> {
    // Each of these kinds has one line in an account of the rail: a debit in clearing, a credit in
    // the float.
    let rows: Vec<(Uuid, i64, Currency)> = conn
        .sql_set(
            "given (about uuid)
             select subject, abs(amount_minor), currency from given
             join postings on subject = about
             where subject = any(array(select about from given)) and account like 'rail:%'
                 and kind in ('SETTLEMENT', 'SUSPENSE', 'DISBURSEMENT', 'LATE_DISBURSEMENT')",
            subjects.len(),
        )
        .column(subjects.iter().copied())
        .all()
        .await?;
    let booked = rows.into_iter();
    Ok(booked
        .map(|(subject, minor, currency)| (subject, Money::new(minor, currency)))
        .collect())
}

/// Which of these records the rail took back, as far as we know. Of a charge that is a case: the
/// rail's word (`REVERSED`), or an operator's, who saw that its suspense went back. A payout that was
/// paid late stays paid, whoever bears it.
pub async fn taken_back(conn: &mut Conn, subjects: &[Uuid]) -> Result<Vec<Uuid>> {
    let rows: Vec<(Uuid,)> = conn
        .sql_set(
            "given (about uuid)
             select about from given where exists (
                 select 1 from postings where subject = about
                     and kind in ('REVERSAL', 'DISBURSEMENT_REVERSAL', 'LATE_REVERSAL')
             ) or exists (
                 select 1 from cases where cases.transaction_id = about
                     and cases.kind <> 'PAID_LATE'
                     and (cases.kind = 'REVERSED' or cases.closing = 'REFUND')
                     and not exists (
                         select 1 from disbursements where disbursements.case_id = cases.case_id
                     )
             )",
            subjects.len(),
        )
        .column(subjects.iter().copied())
        .all()
        .await?;
    Ok(rows.into_iter().map(|(about,)| about).collect())
}

/// A line to keep.
#[derive(Clone, Debug)]
pub struct NewLine {
    pub line_id: Uuid,
    pub number: i64,
    pub subject: Option<Uuid>,
    pub shown: String,
    pub said: Said,
    /// Whether it is the first of its set that says so of its subject.
    pub leads_set: bool,
}

/// Keeps the lines that are new, and where this report has them first. No two of them may be the
/// same. Two transactions that keep lines about one record at once violate a unique key.
pub async fn keep_lines(
    tx: &mut Tx,
    report: &RailReport,
    lines: &[NewLine],
    now: Timestamp,
) -> Result<()> {
    tx.sql_set(
        "given (id uuid, about uuid, name text, says text, leads boolean)
         insert into rail_report_lines (line_id, rail, subject, shown, said, is_first, kept_at)
         select id, $1, about, name, says,
             leads and about is not null and (
                 select count(*) from rail_report_lines as other
                 where other.subject = about and other.said = says and other.is_first
             ) = 0, $2
         from given where true
         on conflict (line_id) do nothing",
        lines.len(),
    )
    .bind(report.rail)
    .bind(now)
    .column(lines.iter().map(|line| line.line_id))
    .column(lines.iter().map(|line| line.subject))
    .column(lines.iter().map(|line| line.shown.as_str()))
    .column(lines.iter().map(|line| line.said.code()))
    .column(lines.iter().map(|line| line.leads_set))
    .run()
    .await?;
    tx.sql_set(
        "given (id uuid, place bigint)
         insert into rail_report_places (line_id, report, number)
         select id, $1, place from given where true
         on conflict (line_id, report) do nothing",
        lines.len(),
    )
    .bind(&report.hash)
    .column(lines.iter().map(|line| line.line_id))
    .column(lines.iter().map(|line| line.number))
    .run()
    .await
}

/// A line as it is kept.
#[derive(Clone, Debug, FromRow)]
pub struct KeptLine {
    pub line_id: Uuid,
    /// Where the report has it first.
    pub number: i64,
    /// Whether it is the first in any report that says so of its subject.
    pub is_first: bool,
}

/// These lines, as this report has them.
pub async fn kept_lines(
    conn: &mut Conn,
    report: &RailReport,
    lines: &[NewLine],
) -> Result<Vec<KeptLine>> {
    conn.sql_set(
        "given (id uuid)
         select rail_report_lines.line_id, rail_report_places.number, rail_report_lines.is_first
         from given
         join rail_report_lines on rail_report_lines.line_id = id
         join rail_report_places on rail_report_places.line_id = id and rail_report_places.report = $1
         where rail_report_lines.line_id = any(array(select id from given))",
        lines.len(),
    )
    .bind(&report.hash)
    .column(lines.iter().map(|line| line.line_id))
    .all()
    .await
}

/// Whether the record that a line is about has not ended.
pub async fn is_record_open(conn: &mut Conn, line_id: Uuid) -> Result<bool> {
    let found: Option<(i64,)> = conn
        .sql(
            "select cast(1 as bigint) from rail_report_lines
             left join charges on charges.transaction_id = rail_report_lines.subject
             left join disbursements on disbursements.disbursement_id = rail_report_lines.subject
             where rail_report_lines.line_id = $1
                 and coalesce(charges.state, disbursements.state)
                     not in ('SETTLED', 'COMPLETED', 'FAILED', 'VOID')",
        )
        .bind(line_id)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Whether something that was posted before `to` is in no block yet.
pub async fn is_unsealed(conn: &mut Conn, to: Timestamp) -> Result<bool> {
    let found: Option<(i64,)> = conn
        .sql(
            "select cast(1 as bigint) from unsealed_postings where since < $1
             union all
             select cast(1 as bigint) from ledger_works where name = 'QUEUE' and ended_at is null
             limit 1",
        )
        .bind(to)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// The first block that was sealed at `since` or later.
pub async fn first_block(conn: &mut Conn, since: Timestamp) -> Result<Option<i64>> {
    let found: Option<(i64,)> = conn
        .sql("select number from blocks where sealed_at >= $1 order by sealed_at, number limit 1")
        .bind(since)
        .optional()
        .await?;
    Ok(found.map(|(number,)| number))
}

/// Something that moved at a rail by the ledger, and that no line of a report is about.
#[derive(Clone, Debug, FromRow)]
pub struct Unreported {
    pub subject: Uuid,
    pub shown: String,
    pub direction: Direction,
    amount_minor: i64,
    currency: Currency,
    pub created_at: Timestamp,
    pub posted_at: Timestamp,
}

impl Unreported {
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }
}

/// What the blocks after `from`, up to `to`, hold of the rail's movements posted at `since` or
/// later that no line is about.
pub async fn unreported(
    conn: &mut Conn,
    rail: RailName,
    (from, to): (i64, i64),
    since: Timestamp,
) -> Result<Vec<Unreported>> {
    let rail = || rail.code().to_owned();
    conn.sql(
        "select postings.subject, charges.reference as shown, 'IN' as direction,
             abs(postings.amount_minor) as amount_minor, postings.currency, charges.created_at,
             postings.posted_at
         from sealed_postings
         join postings on postings.kind = sealed_postings.kind
             and postings.subject = sealed_postings.subject
         join charges on charges.transaction_id = postings.subject
         where sealed_postings.block > $1 and sealed_postings.block <= $2
             and sealed_postings.kind in ('SETTLEMENT', 'SUSPENSE')
             and postings.account = $3 and postings.posted_at >= $5
             and not exists (
                 select 1 from rail_report_lines
                 where rail_report_lines.subject = postings.subject and rail_report_lines.is_first
             )
         union all
         select postings.subject, disbursements.shown_id, 'OUT', abs(postings.amount_minor),
             postings.currency, disbursements.created_at, postings.posted_at
         from sealed_postings
         join postings on postings.kind = sealed_postings.kind
             and postings.subject = sealed_postings.subject
         join disbursements on disbursements.disbursement_id = postings.subject
         where sealed_postings.block > $1 and sealed_postings.block <= $2
             and sealed_postings.kind in ('DISBURSEMENT', 'LATE_DISBURSEMENT')
             and postings.account = $4 and postings.posted_at >= $5
             and not exists (
                 select 1 from rail_report_lines
                 where rail_report_lines.subject = postings.subject and rail_report_lines.is_first
             )",
    )
    .bind(from)
    .bind(to)
    .bind(Account::Clearing { rail: rail() }.to_string())
    .bind(Account::Float { rail: rail() }.to_string())
    .bind(since)
    .all()
    .await
}

/// The periods of the rail's reports in this direction that meet `around`.
pub async fn periods(
    conn: &mut Conn,
    rail: RailName,
    direction: Direction,
    around: Period,
) -> Result<Vec<Period>> {
    let rows: Vec<(Timestamp, Timestamp)> = conn
        .sql(
            "select from_at, to_at from rail_report_periods
             where rail = $1 and direction = $2 and to_at >= $3 and from_at <= $4
             order by from_at limit 10000",
        )
        .bind(rail)
        .bind(direction)
        .bind(around.from)
        .bind(around.to)
        .all()
        .await?;
    Ok(rows
        .into_iter()
        .map(|(from, to)| Period { from, to })
        .collect())
}

/// Records that everything which the report has of a period was compared.
pub async fn keep_period(
    tx: &mut Tx,
    (rail, report): (RailName, &str),
    direction: Direction,
    period: Period,
    now: Timestamp,
) -> Result<()> {
    tx.sql(
        "insert into rail_report_periods (rail, direction, from_at, to_at, report, ended_at)
         values ($1, $2, $3, $4, $5, $6)
         on conflict (rail, direction, from_at, to_at) do nothing",
    )
    .bind(rail)
    .bind(direction)
    .bind(period.from)
    .bind(period.to)
    .bind(report)
    .bind(now)
    .run()
    .await
}
