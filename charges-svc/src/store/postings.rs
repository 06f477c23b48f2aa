//! The ledger's postings, and merchants' balances.

use std::collections::BTreeMap;

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, MerchantId},
    money::{Currency, Money},
};
use db::{Conn, Error, Insert, Joint, Result, Tx};
use sqlx::FromRow;
use uuid::Uuid;

use super::blocks;
use crate::ledger::{Account, Posting, PostingKind};

/// A line of the ledger as it was written.
#[derive(Clone, Debug, FromRow)]
pub struct LedgerLine {
    pub kind: String,
    pub account: String,
    amount_minor: i64,
    currency: Currency,
    pub posted_at: Timestamp,
}

impl LedgerLine {
    /// Positive for a credit, negative for a debit.
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }
}

/// Writes a posting and queues it to be sealed. Returns [`Insert::AlreadyThere`] if the
/// subject already has one of this kind.
pub async fn post(tx: &mut Tx, posting: &Posting, now: Timestamp) -> Result<Insert> {
    let kind = posting.kind.code();
    let [debit, credit] = posting.lines();
    let written = tx
        .sql(
            "insert into postings
                 (kind, subject, line, account, amount_minor, currency, posted_at)
             values ($1, $2, 1, $3, $4, $5, $9), ($1, $2, 2, $6, $7, $8, $9)
             on conflict (kind, subject, line) do nothing",
        )
        .bind(kind)
        .bind(posting.subject)
        .bind(debit.account.to_string())
        .bind(debit.amount.minor_units())
        .bind(debit.amount.currency())
        .bind(credit.account.to_string())
        .bind(credit.amount.minor_units())
        .bind(credit.amount.currency())
        .bind(now)
        .insert()
        .await?;
    if written == Insert::AlreadyThere {
        return Ok(written);
    }
    // On PostgreSQL a trigger queues it, whoever posts.
    if !tx.is_postgres() {
        blocks::queue(tx, kind, posting.subject, now).await?;
    }
    for ((account, currency), amount_minor) in sums([posting])? {
        tx.sql(
            "insert into balances (account, currency, amount_minor) values ($1, $2, $3)
             on conflict (account, currency) do update
                 set amount_minor = balances.amount_minor + excluded.amount_minor",
        )
        .bind(account)
        .bind(currency)
        .bind(amount_minor)
        .run()
        .await?;
    }
    Ok(written)
}

/// Writes several postings, two lines each, of which none is there yet.
pub(super) fn post_set<'c>(joint: Joint<'c>, posted: &[(&Posting, Timestamp)]) -> Joint<'c> {
    let lines: Vec<_> = posted
        .iter()
        .flat_map(|(posting, at)| {
            let lines = (1_i64..).zip(posting.lines());
            lines.map(move |(number, line)| (posting, number, line, *at))
        })
        .collect();
    joint
        .sql_set(
            "given (of_kind text, about uuid, number bigint, on_account text, minor bigint,
                 in_currency text, at timestamptz)
             insert into postings
                 (kind, subject, line, account, amount_minor, currency, posted_at)
             select of_kind, about, number, on_account, minor, in_currency, at from given
             where true
             on conflict (kind, subject, line) do nothing",
            lines.len(),
        )
        .column(lines.iter().map(|(posting, ..)| posting.kind.code()))
        .column(lines.iter().map(|(posting, ..)| posting.subject))
        .column(lines.iter().map(|(_, number, ..)| *number))
        .column(lines.iter().map(|(_, _, line, _)| line.account.to_string()))
        .column(
            lines
                .iter()
                .map(|(_, _, line, _)| line.amount.minor_units()),
        )
        .column(
            lines
                .iter()
                .map(|(_, _, line, _)| line.amount.currency().code()),
        )
        .column(lines.iter().map(|(.., at)| *at))
}

/// What is added to merchants' balances, by account and currency.
pub(super) type Sums = BTreeMap<(String, &'static str), i64>;

/// What these postings add to merchants' balances.
pub(super) fn sums<'p>(postings: impl IntoIterator<Item = &'p Posting>) -> Result<Sums> {
    let mut sums = Sums::new();
    for line in postings.into_iter().flat_map(Posting::lines) {
        if let Account::Merchant(_) | Account::Reserved(_) = line.account {
            let balance = (line.account.to_string(), line.amount.currency().code());
            let sum = sums.entry(balance).or_default();
            let added = sum.checked_add(line.amount.minor_units());
            *sum = added.ok_or_else(|| Error::Protocol("no balance can hold this sum".into()))?;
        }
    }
    Ok(sums)
}

/// Adds to balances, in the order in which everybody locks them.
pub(super) fn add_set<'c>(joint: Joint<'c>, sums: &Sums) -> Joint<'c> {
    joint
        .sql_set(
            "given (of_account text, in_currency text, added bigint)
             insert into balances (account, currency, amount_minor)
             select of_account, in_currency, added from given
             where true order by of_account, in_currency
             on conflict (account, currency) do update
                 set amount_minor = balances.amount_minor + excluded.amount_minor",
            sums.len(),
        )
        .column(sums.keys().map(|(account, _)| account.as_str()))
        .column(sums.keys().map(|(_, currency)| *currency))
        .column(sums.values().copied())
}

/// What a merchant has.
#[derive(Clone, Debug, Default)]
pub struct Balances {
    /// What was collected and has not been paid out or reserved, with an entry for each currency
    /// ever held.
    pub available: Vec<Money>,
    /// What is reserved for disbursements on their way, with an entry for each currency ever
    /// reserved.
    pub reserved: Vec<Money>,
    /// What is in suspense because of its charges, if that was asked for.
    pub suspense: Vec<Money>,
}

/// What a merchant has, as of one moment: one statement, so that money which leaves suspense
/// meanwhile is counted once. Open cases are few, and each names its money.
pub async fn balances(
    conn: &mut Conn,
    merchant_id: MerchantId,
    with_suspense: bool,
) -> Result<Balances> {
    let available = Account::Merchant(merchant_id).to_string();
    let reserved = Account::Reserved(merchant_id).to_string();
    let rows: Vec<(String, i64, Currency)> = conn
        .sql(
            "select account, amount_minor, currency from balances
             where account = $1 or account = $2
             union all
             select 'suspense', cast(sum(suspense_minor) as bigint), suspense_currency from cases
             join charges on charges.transaction_id = cases.transaction_id
             where $3 and cases.closed_at is null and suspense_minor is not null
                 and charges.merchant_id = $4
             group by suspense_currency
             order by currency",
        )
        .bind(&available)
        .bind(&reserved)
        .bind(with_suspense)
        .bind(merchant_id)
        .all()
        .await?;
    let mut balances = Balances::default();
    for (account, minor, currency) in rows {
        let of_account = match account {
            account if account == available => &mut balances.available,
            account if account == reserved => &mut balances.reserved,
            _ => &mut balances.suspense,
        };
        of_account.push(Money::new(minor, currency));
    }
    Ok(balances)
}

/// What a merchant has available, locked against every other posting until the transaction ends.
pub async fn lock_available(
    tx: &mut Tx,
    merchant_id: MerchantId,
    currency: Currency,
) -> Result<Money> {
    let found: Option<(i64,)> = tx
        .sql(
            "select amount_minor from balances where account = $1 and currency = $2
             for update",
        )
        .bind(Account::Merchant(merchant_id).to_string())
        .bind(currency)
        .optional()
        .await?;
    let minor = found.map_or(0, |(minor,)| minor);
    Ok(Money::new(minor, currency))
}

/// Everything posted for a charge and its cases, oldest first.
pub async fn list(conn: &mut Conn, id: ChargeId) -> Result<Vec<LedgerLine>> {
    conn.sql(
        "select kind, account, amount_minor, currency, posted_at from postings
         where subject = any(array(
             select transaction_id from charges where transaction_id = $1
             union all
             select case_id from cases where transaction_id = $1
         ))
         order by posted_at, kind, line",
    )
    .bind(id)
    .all()
    .await
}

/// Everything posted for a disbursement, oldest first.
pub async fn list_of(conn: &mut Conn, subject: Uuid) -> Result<Vec<LedgerLine>> {
    conn.sql(
        "select kind, account, amount_minor, currency, posted_at from postings
         where subject = $1 order by posted_at, kind, line",
    )
    .bind(subject)
    .all()
    .await
}

/// What was posted to a merchant's accounts for a charge, a disbursement or one of their cases.
#[derive(Clone, Debug, FromRow)]
pub struct BalanceLine {
    /// The charge or the disbursement.
    pub about: Uuid,
    #[sqlx(flatten)]
    pub line: LedgerLine,
}

/// What was posted to a merchant's accounts for any of these charges and disbursements, oldest
/// first.
pub async fn list_of_merchant(
    conn: &mut Conn,
    merchant_id: MerchantId,
    subjects: &[Uuid],
) -> Result<Vec<BalanceLine>> {
    conn.sql_set(
        "given (wanted uuid)
         select coalesce((select transaction_id from cases where case_id = subject), subject)
                 as about,
             kind, account, amount_minor, currency, posted_at
         from postings
         where subject = any(array(
             select wanted from given
             union all
             select case_id from cases
             where transaction_id = any(array(select wanted from given))
         )) and (account = $1 or account = $2)
         order by posted_at, kind, line",
        subjects.len(),
    )
    .bind(Account::Merchant(merchant_id).to_string())
    .bind(Account::Reserved(merchant_id).to_string())
    .column(subjects.iter().copied())
    .all()
    .await
}

/// What a rail holds in one of its accounts, whose debits are what it holds.
pub async fn held(conn: &mut Conn, account: &Account, currency: Currency) -> Result<Money> {
    let (minor,) = conn
        .sql(
            "select cast(coalesce(-sum(amount_minor), 0) as bigint) from postings
             where account = $1 and currency = $2",
        )
        .bind(account.to_string())
        .bind(currency)
        .one::<(i64,)>()
        .await?;
    Ok(Money::new(minor, currency))
}

/// Whether what the merchant was credited for a charge was taken back. Older versions used the case
/// as the subject.
pub async fn is_taken_back(conn: &mut Conn, id: ChargeId) -> Result<bool> {
    let found: Option<(Uuid,)> = conn
        .sql(
            "select subject from postings
             where kind = $2 and line = 1 and subject = any(array(
                 select transaction_id from charges where transaction_id = $1
                 union all
                 select case_id from cases where transaction_id = $1
             ))
             limit 1",
        )
        .bind(id)
        .bind(PostingKind::Reversal.code())
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Whether the ledger holds this subject's posting of this kind.
pub async fn is_posted(conn: &mut Conn, kind: PostingKind, subject: Uuid) -> Result<bool> {
    let found: Option<(i64,)> = conn
        .sql(
            "select cast(1 as bigint) from postings
             where kind = $1 and subject = $2 and line = 1",
        )
        .bind(kind.code())
        .bind(subject)
        .optional()
        .await?;
    Ok(found.is_some())
}

/// Currencies whose postings do not sum to zero, each with its sum. There should be none.
pub async fn imbalances(conn: &mut Conn) -> Result<Vec<Money>> {
    let rows: Vec<(i64, Currency)> = conn
        .sql(
            "select cast(sum(amount_minor) as bigint) as total, currency from postings
             group by currency having sum(amount_minor) <> 0",
        )
        .all()
        .await?;
    Ok(rows
        .into_iter()
        .map(|(minor, currency)| Money::new(minor, currency))
        .collect())
}

/// Merchants' accounts whose balance is missing or is not the sum of their postings, up to 100.
/// There should be none.
pub async fn false_balances(conn: &mut Conn) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = conn
        .sql(
            "select account from (
                 select account, currency, amount_minor, 0 as balances from postings
                 where account like 'merchant:%'
                 union all
                 select account, currency, -amount_minor, 1 from balances
             ) as entries
             group by account, currency
             having sum(amount_minor) <> 0 or sum(balances) <> 1
             order by account limit 100",
        )
        .all()
        .await?;
    Ok(rows.into_iter().map(|(account,)| account).collect())
}
