//! The ledger's days: which blocks are a day's, and what each account had before and after it.

use std::collections::BTreeMap;

use chassis::{
    clock::{Day, Timestamp},
    money::{Currency, Money},
};
use db::{Conn, Insert, Result, Tx};
use sqlx::FromRow;
use uuid::Uuid;

/// How many balances one statement writes.
const BALANCES_AT_ONCE: usize = 1_000;

/// A day that is over, and its blocks: those after `after_block`, up to `last_block`.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct ClosedDay {
    pub day: Day,
    /// The last block of the days before it, or 0.
    pub after_block: i64,
    /// The same number if nothing was sealed that day.
    pub last_block: i64,
}

/// Locks the sealing of blocks until the transaction ends.
pub async fn lock_sealing(tx: &mut Tx) -> Result<()> {
    tx.sql("select name from ledger_works where name = 'SEAL' for update")
        .one::<(String,)>()
        .await?;
    Ok(())
}

/// The last closed day.
pub async fn last_closed(conn: &mut Conn) -> Result<Option<ClosedDay>> {
    conn.sql("select day, after_block, last_block from closed_days order by day desc limit 1")
        .optional()
        .await
}

/// When the first block was sealed.
pub async fn first_sealed_at(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let found: Option<(Timestamp,)> = conn
        .sql("select sealed_at from blocks order by number limit 1")
        .optional()
        .await?;
    Ok(found.map(|(at,)| at))
}

/// The first block after this one that was sealed at this time or later.
pub async fn block_since(conn: &mut Conn, after: i64, since: Timestamp) -> Result<Option<i64>> {
    let found: Option<(i64,)> = conn
        .sql(
            "select number from blocks where number > $1 and sealed_at >= $2
             order by number limit 1",
        )
        .bind(after)
        .bind(since)
        .optional()
        .await?;
    Ok(found.map(|(number,)| number))
}

pub async fn close(tx: &mut Tx, day: &ClosedDay, now: Timestamp) -> Result<Insert> {
    tx.sql(
        "insert into closed_days (day, after_block, last_block, closed_at) values ($1, $2, $3, $4)
         on conflict (day) do nothing",
    )
    .bind(day.day)
    .bind(day.after_block)
    .bind(day.last_block)
    .bind(now)
    .insert()
    .await
}

/// The first closed day that is not proven. Days are proven in their order.
pub async fn first_unproven(conn: &mut Conn) -> Result<Option<ClosedDay>> {
    conn.sql(
        "select day, after_block, last_block from closed_days
         where day > coalesce((select max(day) from proven_days), '')
         order by day limit 1",
    )
    .optional()
    .await
}

/// The day, if it is proven.
pub async fn find_proven(conn: &mut Conn, day: Day) -> Result<Option<ClosedDay>> {
    conn.sql(
        "select closed_days.day, closed_days.after_block, closed_days.last_block
         from closed_days join proven_days on proven_days.day = closed_days.day
         where closed_days.day = $1",
    )
    .bind(day)
    .optional()
    .await
}

/// The last day that is proven.
pub async fn last_proven(conn: &mut Conn) -> Result<Option<Day>> {
    let found: Option<(Day,)> = conn
        .sql("select day from proven_days order by day desc limit 1")
        .optional()
        .await?;
    Ok(found.map(|(day,)| day))
}

/// The first closed day.
pub async fn first_closed(conn: &mut Conn) -> Result<Option<Day>> {
    let found: Option<(Day,)> = conn
        .sql("select day from closed_days order by day limit 1")
        .optional()
        .await?;
    Ok(found.map(|(day,)| day))
}

pub async fn prove(tx: &mut Tx, day: Day, now: Timestamp) -> Result<()> {
    tx.sql("insert into proven_days (day, proven_at) values ($1, $2) on conflict (day) do nothing")
        .bind(day)
        .bind(now)
        .run()
        .await
}

/// What a day's lines did to one account.
#[derive(Clone, Copy, Debug)]
pub struct Movement {
    pub sum_minor: i64,
    pub first_posted_at: Timestamp,
    pub last_posted_at: Timestamp,
}

/// By account and currency.
pub type Movements = BTreeMap<(String, String), Movement>;

/// Writes what each account had before and after the day. Every day before it must be written.
pub async fn write_balances(tx: &mut Tx, day: Day, movements: &Movements) -> Result<()> {
    let movements: Vec<_> = movements.iter().collect();
    for movements in movements.chunks(BALANCES_AT_ONCE) {
        tx.sql_set(
            "given (of_account text, in_currency text, moved bigint, first_at timestamptz,
                 last_at timestamptz)
             insert into day_balances (account, currency, day, opening_minor, closing_minor,
                 first_posted_at, last_posted_at)
             select of_account, in_currency, $1, had, had + moved, first_at, last_at from (
                 select of_account, in_currency, moved, first_at, last_at, coalesce((
                     select closing_minor from day_balances
                     where account = of_account and currency = in_currency and day < $1
                     order by day desc limit 1
                 ), 0) as had from given
             ) as moving
             where true
             on conflict (account, currency, day) do nothing",
            movements.len(),
        )
        .bind(day)
        .column(movements.iter().map(|((account, _), _)| account.as_str()))
        .column(movements.iter().map(|((_, currency), _)| currency.as_str()))
        .column(movements.iter().map(|(_, movement)| movement.sum_minor))
        .column(
            movements
                .iter()
                .map(|(_, movement)| movement.first_posted_at),
        )
        .column(
            movements
                .iter()
                .map(|(_, movement)| movement.last_posted_at),
        )
        .run()
        .await?;
    }
    Ok(())
}

/// An account's sum or balance.
#[derive(Clone, Debug, FromRow)]
pub struct AccountSum {
    pub account: String,
    pub currency: String,
    pub minor: i64,
}

/// What the blocks after `from`, up to `to`, did to each account.
pub async fn sums(conn: &mut Conn, from: i64, to: i64) -> Result<Vec<AccountSum>> {
    conn.sql(
        "select postings.account, postings.currency,
             cast(sum(postings.amount_minor) as bigint) as minor
         from sealed_postings
         join postings on postings.kind = sealed_postings.kind
             and postings.subject = sealed_postings.subject
         where sealed_postings.block > $1 and sealed_postings.block <= $2
         group by postings.account, postings.currency",
    )
    .bind(from)
    .bind(to)
    .all()
    .await
}

/// What each account that ever moved had at the end of a day, in an order of their own, after this
/// one.
pub async fn closings(
    conn: &mut Conn,
    day: Day,
    (account, currency): (&str, &str),
    limit: i64,
) -> Result<Vec<AccountSum>> {
    conn.sql(
        "select latest.account, latest.currency, day_balances.closing_minor as minor
         from (
             select account, currency, max(day) as day from day_balances
             where (account, currency) > ($2, $3) and day <= $1
             group by account, currency order by account, currency limit $4
         ) as latest
         join day_balances on day_balances.account = latest.account
             and day_balances.currency = latest.currency and day_balances.day = latest.day
         order by latest.account, latest.currency",
    )
    .bind(day)
    .bind(account)
    .bind(currency)
    .bind(limit)
    .all()
    .await
}

/// What an account had before and after a day.
#[derive(Clone, Debug, FromRow)]
pub struct DayBalance {
    pub account: String,
    pub currency: Currency,
    /// The day on which the account last moved, up to the day that was asked for.
    pub day: Day,
    opening_minor: i64,
    closing_minor: i64,
    pub first_posted_at: Timestamp,
    pub last_posted_at: Timestamp,
}

impl DayBalance {
    /// Before the day on which it last moved.
    pub fn opening(&self) -> Money {
        Money::new(self.opening_minor, self.currency)
    }

    pub fn closing(&self) -> Money {
        Money::new(self.closing_minor, self.currency)
    }
}

/// What an account last had up to the end of a day, in each currency that it ever had.
pub async fn balances_of(conn: &mut Conn, account: &str, day: Day) -> Result<Vec<DayBalance>> {
    conn.sql(
        "select account, currency, day, opening_minor, closing_minor, first_posted_at,
             last_posted_at
         from day_balances
         where account = $1 and day = (
             select max(latest.day) from day_balances as latest
             where latest.account = day_balances.account
                 and latest.currency = day_balances.currency and latest.day <= $2
         )
         order by currency",
    )
    .bind(account)
    .bind(day)
    .all()
    .await
}

/// The accounts that a day moved, in an order of their own, after this one.
pub async fn moved(
    conn: &mut Conn,
    day: Day,
    (account, currency): (&str, &str),
    limit: i64,
) -> Result<Vec<DayBalance>> {
    conn.sql(
        "select account, currency, day, opening_minor, closing_minor, first_posted_at,
             last_posted_at
         from day_balances
         where day = $1 and (account, currency) > ($2, $3)
         order by account, currency limit $4",
    )
    .bind(day)
    .bind(account)
    .bind(currency)
    .bind(limit)
    .all()
    .await
}

/// A line of an account, with what it is about.
#[derive(Clone, Debug, FromRow)]
pub struct AccountLine {
    pub block: i64,
    pub kind: String,
    pub subject: Uuid,
    pub line: i64,
    pub amount_minor: i64,
    pub posted_at: Timestamp,
    /// The charge's reference, or the id of the payout or refund.
    pub reference: Option<String>,
}

/// How far an account's lines were read.
#[derive(Clone, Debug)]
pub struct Position {
    pub posted_at: Timestamp,
    pub subject: Uuid,
    pub line: i64,
    pub kind: String,
}

/// The lines of an account that a day's blocks hold, by time, after this one.
pub async fn account_lines(
    conn: &mut Conn,
    day: &ClosedDay,
    balance: &DayBalance,
    after: &Position,
    limit: i64,
) -> Result<Vec<AccountLine>> {
    conn.sql(
        "select sealed_postings.block, postings.kind, postings.subject, postings.line,
             postings.amount_minor, postings.posted_at, coalesce(
                 (select charges.reference from charges
                  where charges.transaction_id = postings.subject),
                 (select disbursements.shown_id from disbursements
                  where disbursements.disbursement_id = postings.subject),
                 (select charges.reference from cases
                  join charges on charges.transaction_id = cases.transaction_id
                  where cases.case_id = postings.subject),
                 (select disbursements.shown_id from cases
                  join disbursements on disbursements.disbursement_id = cases.transaction_id
                  where cases.case_id = postings.subject)
             ) as reference
         from postings
         join sealed_postings on sealed_postings.kind = postings.kind
             and sealed_postings.subject = postings.subject
         where postings.account = $1 and postings.currency = $2
             and postings.posted_at >= $5 and postings.posted_at <= $9
             and (postings.posted_at, postings.subject, postings.line, postings.kind)
                 > ($5, $6, $7, $8)
             and sealed_postings.block > $3 and sealed_postings.block <= $4
         order by postings.posted_at, postings.subject, postings.line, postings.kind
         limit $10",
    )
    .bind(&balance.account)
    .bind(balance.currency)
    .bind(day.after_block)
    .bind(day.last_block)
    .bind(after.posted_at)
    .bind(after.subject)
    .bind(after.line)
    .bind(&after.kind)
    .bind(balance.last_posted_at)
    .bind(limit)
    .all()
    .await
}
