//! What the services' databases hold at the end of a run, read without the services.

use chassis::clock::Timestamp;
use db::Db;
use sqlx::FromRow;
use uuid::Uuid;

use crate::store::Store;

#[derive(Debug)]
pub struct Records {
    pub charges: Vec<Charge>,
    pub postings: Vec<Posting>,
    pub balances: Vec<Balance>,
    pub cases: Vec<Case>,
    pub disbursements: Vec<Disbursement>,
    pub evidence: Vec<RailEvidence>,
    pub sessions: Vec<Session>,
    pub transactions: Vec<Transaction>,
    pub events: Vec<Event>,
    pub deliveries: Vec<Delivery>,
    /// Rows left in the outboxes of sessions-svc and charges-svc.
    pub outboxes: [i64; 2],
}

#[derive(Clone, Debug, FromRow)]
pub struct Charge {
    pub transaction_id: Uuid,
    pub merchant_id: Uuid,
    pub session_id: Uuid,
    pub tx_id_display: String,
    pub reference: String,
    pub rail: String,
    pub rail_reference: Uuid,
    pub phone: String,
    pub amount_minor: i64,
    pub state: String,
    pub failure_reason: Option<String>,
    pub otp_tries: i64,
    pub updated_at: Timestamp,
}

impl Charge {
    pub fn is_open(&self) -> bool {
        !matches!(self.state.as_str(), "SETTLED" | "FAILED" | "VOID")
    }
}

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
    pub currency: String,
    pub amount_minor: i64,
}

#[derive(Clone, Debug, FromRow)]
pub struct Disbursement {
    pub disbursement_id: Uuid,
    pub kind: String,
    pub shown_id: String,
    pub merchant_id: Uuid,
    pub amount_minor: i64,
    pub fee_minor: i64,
    /// The charge that a refund refunds.
    pub transaction_id: Option<Uuid>,
    pub reference: Option<String>,
    /// The case whose suspense a refund pays out.
    pub case_id: Option<Uuid>,
    pub scheduled: bool,
    pub account: String,
    pub rail: String,
    pub rail_reference: Uuid,
    pub created_at: Timestamp,
    pub state: String,
    pub failure_reason: Option<String>,
    pub updated_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub reversed_at: Option<Timestamp>,
}

impl Disbursement {
    pub fn is_open(&self) -> bool {
        !matches!(self.state.as_str(), "COMPLETED" | "FAILED")
    }

    /// When it ended, if it has.
    pub fn ended_at(&self) -> Timestamp {
        self.completed_at.unwrap_or(self.updated_at)
    }
}

#[derive(Debug, FromRow)]
pub struct Case {
    pub case_id: Uuid,
    /// The charge or the disbursement.
    pub transaction_id: Uuid,
    pub kind: String,
    pub suspense_minor: Option<i64>,
    pub closed_at: Option<Timestamp>,
}

/// What the services heard from the rails.
#[derive(Debug, FromRow)]
pub struct RailEvidence {
    pub transaction_id: Uuid,
    pub outcome: String,
    pub first_at: Timestamp,
}

#[derive(Debug, FromRow)]
pub struct Session {
    pub session_id: Uuid,
    pub amount_minor: i64,
    pub description: Option<String>,
    pub status: String,
    pub expires_at: Timestamp,
}

#[derive(Debug, FromRow)]
pub struct Transaction {
    pub session_id: Uuid,
    pub status: String,
    pub transaction_id: Option<Uuid>,
}

#[derive(Debug, FromRow)]
pub struct Event {
    pub event_id: String,
    pub event_type: String,
    pub body: String,
}

#[derive(Debug, FromRow)]
pub struct Delivery {
    pub event_id: String,
    pub status: String,
}

impl Records {
    /// # Errors
    /// A database cannot be read.
    pub async fn read(store: &Store) -> anyhow::Result<Self> {
        let charges = Db::connect(&store.url_aside("charges"), 2).await?;
        let sessions = Db::connect(&store.url_aside("sessions"), 2).await?;
        let webhooks = Db::connect(&store.url_aside("webhooks"), 2).await?;
        let outbox = async |db: &Db| {
            let mut conn = db.read().await?;
            let (rows,) = conn
                .sql("select count(*) from outbox")
                .one::<(i64,)>()
                .await?;
            anyhow::Ok(rows)
        };
        let outboxes = [outbox(&sessions).await?, outbox(&charges).await?];
        let mut conn = charges.read().await?;
        let sql = "select transaction_id, merchant_id, session_id, tx_id_display, reference,
                       rail, rail_reference, phone, amount_minor, state, failure_reason, otp_tries,
                       updated_at
                   from charges order by created_at";
        let charge_rows = conn.sql(sql).all().await?;
        let sql = "select kind, subject, account, amount_minor, currency from postings";
        let postings = conn.sql(sql).all().await?;
        let sql = "select account, currency, amount_minor from balances";
        let balances = conn.sql(sql).all().await?;
        let sql = "select case_id, transaction_id, kind, suspense_minor, closed_at from cases";
        let cases = conn.sql(sql).all().await?;
        let sql = "select disbursement_id, kind, shown_id, merchant_id, amount_minor, fee_minor,
                       transaction_id, reference, case_id, scheduled, account, rail, rail_reference,
                       created_at, state, failure_reason, updated_at, completed_at, reversed_at
                   from disbursements order by created_at";
        let disbursements = conn.sql(sql).all().await?;
        let sql = "select transaction_id, outcome, first_at from rail_evidence";
        let evidence = conn.sql(sql).all().await?;
        drop(conn);
        let mut conn = sessions.read().await?;
        let session_rows = conn
            .sql("select session_id, amount_minor, description, status, expires_at from sessions")
            .all()
            .await?;
        let sql = "select session_id, status, transaction_id from transactions";
        let transactions = conn.sql(sql).all().await?;
        drop(conn);
        let mut conn = webhooks.read().await?;
        let events = conn
            .sql("select event_id, event_type, body from events")
            .all()
            .await?;
        let deliveries = conn
            .sql("select event_id, status from deliveries")
            .all()
            .await?;
        drop(conn);
        for db in [charges, sessions, webhooks] {
            db.close().await;
        }
        Ok(Self {
            charges: charge_rows,
            postings,
            balances,
            cases,
            disbursements,
            evidence,
            sessions: session_rows,
            transactions,
            events,
            deliveries,
            outboxes,
        })
    }
}
