//! The ledger's postings, and merchants' balances.

use chassis::{
    clock::Timestamp,
    ids::{ChargeId, MerchantId},
    money::{Currency, Money},
};
use db::{Conn, Result, Tx};
use sqlx::FromRow;

use crate::ledger::{Account, Line, Posting};

/// A line of the ledger as it was written.
#[derive(Clone, Debug, FromRow)]
pub struct Written {
    pub kind: String,
    pub account: String,
    amount_minor: i64,
    currency: Currency,
    pub posted_at: Timestamp,
}

impl Written {
    /// Credit positive, debit negative.
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }
}

/// Posts. False: there is one of this kind for the subject, and nothing was changed.
pub async fn post(tx: &mut Tx, posting: &Posting, now: Timestamp) -> Result<bool> {
    for (number, line) in (1_i64..).zip(posting.lines()) {
        let written = tx
            .sql(
                "insert into postings
                     (kind, subject, line, account, amount_minor, currency, posted_at)
                 values ($1, $2, $3, $4, $5, $6, $7)
                 on conflict (kind, subject, line) do nothing",
            )
            .bind(posting.kind.code())
            .bind(posting.subject)
            .bind(number)
            .bind(line.account.to_string())
            .bind(line.amount.minor_units())
            .bind(line.amount.currency())
            .bind(now)
            .run()
            .await?;
        if written == 0 {
            return Ok(false);
        }
        if let Account::Merchant(_) = line.account {
            add_to_balance(tx, line).await?;
        }
    }
    Ok(true)
}

async fn add_to_balance(tx: &mut Tx, line: &Line) -> Result<()> {
    tx.sql(
        "insert into balances (account, currency, amount_minor) values ($1, $2, $3)
         on conflict (account, currency) do update
             set amount_minor = balances.amount_minor + excluded.amount_minor",
    )
    .bind(line.account.to_string())
    .bind(line.amount.currency())
    .bind(line.amount.minor_units())
    .run()
    .await?;
    Ok(())
}

/// What a merchant has collected and not been paid out, one entry for each currency ever held.
pub async fn balances(conn: &mut Conn, merchant_id: MerchantId) -> Result<Vec<Money>> {
    let rows: Vec<(i64, Currency)> = conn
        .sql("select amount_minor, currency from balances where account = $1 order by currency")
        .bind(Account::Merchant(merchant_id).to_string())
        .all()
        .await?;
    Ok(rows
        .into_iter()
        .map(|(minor, currency)| Money::new(minor, currency))
        .collect())
}

/// Everything posted for a charge and its cases, oldest first.
pub async fn list(conn: &mut Conn, id: ChargeId) -> Result<Vec<Written>> {
    conn.sql(
        "select kind, account, amount_minor, currency, posted_at from postings
         where subject = $1 or subject in (select case_id from cases where transaction_id = $1)
         order by posted_at, kind, line",
    )
    .bind(id)
    .all()
    .await
}

/// Currencies whose postings do not sum to zero, each with its sum. Always none.
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

/// Balances that are not the sum of what was posted to their account, each by its account. Always
/// none.
pub async fn false_balances(conn: &mut Conn) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = conn
        .sql(
            "select balances.account from balances
             left join (
                 select account, currency, cast(sum(amount_minor) as bigint) as total
                 from postings group by account, currency
             ) as posted
             on posted.account = balances.account and posted.currency = balances.currency
             where balances.amount_minor <> coalesce(posted.total, 0)
             order by balances.account limit 100",
        )
        .all()
        .await?;
    Ok(rows.into_iter().map(|(account,)| account).collect())
}
