//! What the services' databases hold, read without the services; and a watch over balances.

use chassis::clock::Timestamp;
use db::Db;
use sqlx::FromRow;
use uuid::Uuid;

/// The databases of the services that keep what is checked.
pub struct Store {
    charges: Db,
    sessions: Db,
    webhooks: Db,
}

#[derive(Debug, FromRow)]
pub struct Charge {
    pub transaction_id: Uuid,
    pub merchant_id: Uuid,
    pub reference: String,
    pub tx_id_display: String,
    pub rail: String,
    pub rail_reference: Uuid,
    pub callback_token: String,
    pub amount_minor: i64,
    pub state: String,
}

#[derive(Debug, FromRow)]
pub struct Disbursement {
    pub disbursement_id: Uuid,
    pub kind: String,
    /// `PO-…` or `RF-…`.
    pub shown_id: String,
    pub merchant_id: Uuid,
    /// The charge that a refund refunds.
    pub transaction_id: Option<Uuid>,
    pub rail: String,
    pub rail_reference: Uuid,
    pub callback_token: String,
    pub amount_minor: i64,
    pub fee_minor: i64,
    pub state: String,
    pub sent_at: Option<Timestamp>,
    pub resent_at: Option<Timestamp>,
    pub reversed_at: Option<Timestamp>,
}

/// A line of the ledger.
#[derive(Debug, FromRow)]
pub struct Posting {
    pub kind: String,
    pub subject: Uuid,
    pub account: String,
    pub amount_minor: i64,
    pub currency: String,
}

#[derive(Debug, FromRow)]
pub struct Balance {
    pub account: String,
    pub amount_minor: i64,
    pub currency: String,
}

/// A case's kind, and what it is about.
#[derive(Debug, FromRow)]
pub struct Case {
    pub subject: Uuid,
    pub kind: String,
}

/// What the services recorded about money.
pub struct Records {
    pub charges: Vec<Charge>,
    pub disbursements: Vec<Disbursement>,
    pub postings: Vec<Posting>,
    pub balances: Vec<Balance>,
    pub cases: Vec<Case>,
    /// Every value below zero that a merchant's balance ever had.
    pub overdrafts: Vec<Balance>,
    /// Rows that wait to be told to others.
    pub untold: u64,
    /// Charges of which nothing was ever sent.
    pub void: u64,
}

impl Store {
    /// Opens the databases at these URLs, which must have been migrated.
    pub async fn open(charges: &str, sessions: &str, webhooks: &str) -> anyhow::Result<Self> {
        Ok(Self {
            charges: Db::connect(charges, 2).await?,
            sessions: Db::connect(sessions, 1).await?,
            webhooks: Db::connect(webhooks, 1).await?,
        })
    }

    /// From now on keeps each balance below zero, in the transaction that makes it so: in whatever
    /// order movements are posted, none goes unseen.
    pub async fn watch_balances(&self) -> anyhow::Result<()> {
        let mut tx = self.charges.begin().await?;
        tx.sql(
            "create table storm_overdrafts (
                 account text not null, currency text not null, amount_minor bigint not null)",
        )
        .run()
        .await?;
        if tx.is_postgres() {
            tx.sql(
                "create function storm_overdraft() returns trigger language plpgsql as $$
                 begin
                     insert into storm_overdrafts
                     values (new.account, new.currency, new.amount_minor);
                     return null;
                 end $$",
            )
            .run()
            .await?;
            tx.sql(
                "create trigger storm_overdraft after insert or update on balances
                 for each row when (new.amount_minor < 0) execute function storm_overdraft()",
            )
            .run()
            .await?;
        } else {
            tx.sql(
                "create trigger storm_overdraft_first after insert on balances
                 when new.amount_minor < 0 begin
                     insert into storm_overdrafts
                     values (new.account, new.currency, new.amount_minor);
                 end",
            )
            .run()
            .await?;
            tx.sql(
                "create trigger storm_overdraft after update on balances
                 when new.amount_minor < 0 begin
                     insert into storm_overdrafts
                     values (new.account, new.currency, new.amount_minor);
                 end",
            )
            .run()
            .await?;
        }
        Ok(tx.commit().await?)
    }

    /// How many movements the ledger holds.
    pub async fn movements(&self) -> anyhow::Result<u64> {
        count(
            &self.charges,
            "select count(*) from postings where line = 1",
        )
        .await
    }

    pub async fn records(&self) -> anyhow::Result<Records> {
        let mut conn = self.charges.read().await?;
        let charges = conn.sql(
            "select transaction_id, merchant_id, reference, tx_id_display, rail, rail_reference,
                    callback_token, amount_minor, state
             from charges where state <> 'VOID'",
        );
        let charges = charges.all().await?;
        let disbursements = conn.sql(
            "select disbursement_id, kind, shown_id, merchant_id, transaction_id, rail,
                    rail_reference, callback_token, amount_minor, fee_minor, state,
                    sent_at, resent_at, reversed_at
             from disbursements",
        );
        let disbursements = disbursements.all().await?;
        let postings =
            conn.sql("select kind, subject, account, amount_minor, currency from postings");
        let postings = postings.all().await?;
        let balances = conn.sql("select account, amount_minor, currency from balances");
        let balances = balances.all().await?;
        let cases = conn.sql("select transaction_id as subject, kind from cases");
        let cases = cases.all().await?;
        let overdrafts = conn.sql("select account, amount_minor, currency from storm_overdrafts");
        let overdrafts = overdrafts.all().await?;
        drop(conn);
        let untold = "select count(*) from outbox";
        let void = "select count(*) from charges where state = 'VOID'";
        Ok(Records {
            charges,
            disbursements,
            postings,
            balances,
            cases,
            overdrafts,
            untold: count(&self.charges, untold).await? + count(&self.sessions, untold).await?,
            void: count(&self.charges, void).await?,
        })
    }

    /// How many events webhooks-svc has accepted.
    pub async fn events(&self) -> anyhow::Result<u64> {
        count(&self.webhooks, "select count(*) from events").await
    }
}

async fn count(db: &Db, text: &'static str) -> anyhow::Result<u64> {
    let (rows,) = db.read().await?.sql(text).one::<(i64,)>().await?;
    Ok(u64::try_from(rows)?)
}
