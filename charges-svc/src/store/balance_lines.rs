//! The lines of a merchant's accounts, newest first.

use chassis::{
    clock::Timestamp,
    ids::MerchantId,
    money::{Currency, Money},
    page::{PageRequest, Place},
};
use db::{Conn, Result};
use sqlx::FromRow;

use crate::{
    ledger::{Account, PostingKind},
    line_id::LineId,
};

/// How many newer lines are added up, so that each line can be shown with the balance after it.
const ADDED_MAX: i64 = 10_000;

/// What a posting did to the account.
#[derive(Clone, Debug, FromRow)]
pub struct PostedLine {
    pub posted_at: Timestamp,
    #[sqlx(flatten)]
    pub id: LineId,
    amount_minor: i64,
    currency: Currency,
    /// The payment, payout or refund that it belongs to, as people call it.
    pub reference: Option<String>,
    /// What the account had after the first line of the page. `None` if there are too many newer
    /// ones.
    balance_minor: Option<i64>,
    /// Of what is in suspense: the kind of its case.
    pub held_for: Option<String>,
    /// Of what is in suspense: the refund that pays it out.
    pub refund_id: Option<String>,
}

impl PostedLine {
    /// Negative if it was taken away.
    pub fn amount(&self) -> Money {
        Money::new(self.amount_minor, self.currency)
    }

    pub fn balance_of_first(&self) -> Option<Money> {
        let minor = self.balance_minor?;
        Some(Money::new(minor, self.currency))
    }

    pub fn place(&self) -> Place<LineId> {
        Place {
            at: self.posted_at,
            id: self.id.clone(),
        }
    }
}

/// The balance and its lines are read in one statement, so that they agree. What is newer is read by
/// the same index as the page.
const LIST: &str = "with newer as (
         select count(*) as lines, cast(coalesce(sum(amount_minor), 0) as bigint) as minor from (
             select amount_minor from postings
             where account = $1 and currency = $2 and posted_at >= $3
                 and (posted_at, subject, kind) >= ($3, $4, $5)
             order by posted_at desc limit $9 + 1
         ) as added
     )
     select posted_at, kind, subject, amount_minor, currency, coalesce(
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
         ) as reference,
         case when (select lines from newer) <= $9 then (
             select balances.amount_minor from balances
             where balances.account = $1 and balances.currency = $2
         ) - (select minor from newer) end as balance_minor,
         cast(null as text) as held_for, cast(null as text) as refund_id
     from postings
     where account = $1 and currency = $2 and posted_at <= $3 and posted_at >= $6
         and (posted_at, subject, kind) < ($3, $4, $5)
         and (posted_at, subject, kind) >= ($6, $7, $8)
     order by posted_at desc, subject desc, kind desc limit $10";

/// Up to one line more than the page has.
pub async fn list(
    conn: &mut Conn,
    (account, currency): (&Account, Currency),
    page: &PageRequest<LineId>,
) -> Result<Vec<PostedLine>> {
    let (from, before) = (&page.span.from, &page.span.before);
    conn.sql(LIST)
        .bind(account.to_string())
        .bind(currency)
        .bind(before.at)
        .bind(before.id.subject)
        .bind(&before.id.kind)
        .bind(from.at)
        .bind(from.id.subject)
        .bind(&from.id.kind)
        .bind(ADDED_MAX)
        .bind(i64::from(page.size) + 1)
        .all()
        .await
}

/// Open cases are few, and each names its money, which came when it was posted to suspense.
const LIST_HELD: &str = "with held as materialized (
         select (
                 select posted_at from postings
                 where postings.kind = $9 and postings.subject = cases.transaction_id
                     and postings.line = 1
             ) as posted_at, cast($9 as text) as kind, cases.transaction_id as subject,
             cases.suspense_minor as amount_minor, cases.suspense_currency as currency,
             charges.reference, cases.kind as held_for, refunds.shown_id as refund_id
         from cases
         join charges on charges.transaction_id = cases.transaction_id
         left join disbursements as refunds on refunds.case_id = cases.case_id
             and refunds.state <> 'FAILED' and refunds.reversed_at is null
         where cases.closed_at is null and cases.suspense_minor is not null
             and charges.merchant_id = $1 and cases.suspense_currency = $2
     )
     select posted_at, kind, subject, amount_minor, currency, reference, held_for, refund_id, (
             select cast(sum(amount_minor) as bigint) from held
             where (posted_at, subject, kind) < ($3, $4, $5)
         ) as balance_minor
     from held
     where (posted_at, subject, kind) < ($3, $4, $5) and (posted_at, subject, kind) >= ($6, $7, $8)
     order by posted_at desc, subject desc, kind desc limit $10";

/// What came into suspense with a merchant's charges and is not decided: up to one line more than the
/// page has.
pub async fn list_held(
    conn: &mut Conn,
    (merchant_id, currency): (MerchantId, Currency),
    page: &PageRequest<LineId>,
) -> Result<Vec<PostedLine>> {
    let (from, before) = (&page.span.from, &page.span.before);
    conn.sql(LIST_HELD)
        .bind(merchant_id)
        .bind(currency)
        .bind(before.at)
        .bind(before.id.subject)
        .bind(&before.id.kind)
        .bind(from.at)
        .bind(from.id.subject)
        .bind(&from.id.kind)
        .bind(PostingKind::Suspense.code())
        .bind(i64::from(page.size) + 1)
        .all()
        .await
}

#[cfg(test)]
mod tests {
    use db::testing::{TestDb, plan};

    use super::*;

    #[tokio::test]
    async fn lines_are_found_by_the_index_of_their_account() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        let plan = plan(&db, LIST).await;
        let found = plan.matches("postings_account").count();
        assert_eq!(found, 2, "{plan}");
        for costly in ["SCAN postings", "Seq Scan on postings"] {
            assert!(!plan.contains(costly), "{costly}:\n{plan}");
        }
        db.close().await;
    }

    #[tokio::test]
    async fn what_is_held_is_found_by_the_open_cases() {
        let database = TestDb::new("charges-svc").await;
        let db = database.connect().await;
        db.migrate(&crate::SCHEMA.migrations).await.unwrap();
        let plan = plan(&db, LIST_HELD).await;
        assert!(plan.contains("cases_open"), "{plan}");
        for table in ["charges", "postings", "disbursements", "refunds"] {
            for costly in [format!("SCAN {table}"), format!("Seq Scan on {table}")] {
                assert!(!plan.contains(&costly), "{costly}:\n{plan}");
            }
        }
        db.close().await;
    }
}
