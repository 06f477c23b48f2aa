//! All SQL of the bare paths: prepared statements that commit by themselves, on connections that
//! are not pinged before use.

use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::{Clock, Timestamp};
use proto::{
    money::Money,
    sessions::{CreateSessionRequest, Session},
};
use sqlx::{Executor as _, PgPool, postgres::PgPoolOptions};
use uuid::Uuid;

/// As many as each of our services has by default.
const CONNECTIONS_MAX: u32 = 16;

/// How long a session can be paid.
const LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// A session, without the indexes that ours have.
const TABLE: &str = "create table if not exists bare_sessions (
    session_id uuid not null primary key,
    merchant_id uuid not null,
    origin text not null,
    amount_minor bigint not null,
    currency text not null,
    description text,
    redirect_url text,
    payer_phone text,
    payer_email text,
    payer_name text,
    status text not null,
    created_at timestamptz not null,
    expires_at timestamptz not null
)";

/// One INSERT at a time, as `pgbench -M prepared` sends it.
pub const PGBENCH: &str = "insert into bare_sessions
    (session_id, merchant_id, origin, amount_minor, currency, description, redirect_url, status,
     created_at, expires_at)
    values (gen_random_uuid(), '01928c5e-2b6d-7a4f-8c3e-5d1f9a7b2c4d', 'HOSTED', 2550, 'GHS',
            'Order 17', 'https://shop.example.com/thanks', 'PENDING', now(),
            now() + interval '1 day');";

#[derive(Clone)]
pub struct Store {
    pool: PgPool,
    clock: Clock,
}

/// Makes an empty table in a database, which is created if it is missing.
pub async fn prepare(url: &str) -> anyhow::Result<()> {
    db::create_database_if_missing(url).await?;
    let pool = PgPoolOptions::new().max_connections(1).connect(url).await?;
    pool.execute(TABLE).await?;
    pool.execute("truncate table bare_sessions").await?;
    pool.close().await;
    Ok(())
}

impl Store {
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .test_before_acquire(false)
            .connect(url)
            .await
            .context("PostgreSQL cannot be reached")?;
        Ok(Self {
            pool,
            clock: Clock::system(),
        })
    }

    pub async fn insert(&self, request: CreateSessionRequest) -> anyhow::Result<Session> {
        let session_id = Uuid::new_v4();
        let amount = request.amount.clone().unwrap_or_default();
        let payer = request.payer.unwrap_or_default();
        let created_at = self.clock.host_now();
        let expires_at = created_at + LIFETIME;
        sqlx::query(
            "insert into bare_sessions
                 (session_id, merchant_id, origin, amount_minor, currency, description,
                  redirect_url, payer_phone, payer_email, payer_name, status,
                  created_at, expires_at)
             values ($1, $2, 'HOSTED', $3, $4, $5, $6, $7, $8, $9, 'PENDING', $10, $11)",
        )
        .bind(session_id)
        .bind(request.merchant_id.parse::<Uuid>()?)
        .bind(amount.minor_units)
        .bind(&amount.currency)
        .bind(&request.description)
        .bind(&request.redirect_url)
        .bind(&payer.phone)
        .bind(&payer.email)
        .bind(&payer.name)
        .bind(created_at)
        .bind(expires_at)
        .execute(&self.pool)
        .await?;
        Ok(Session {
            session_id: session_id.to_string(),
            merchant_id: request.merchant_id,
            amount: request.amount,
            description: request.description,
            redirect_url: request.redirect_url,
            created_at: created_at.to_string(),
            expires_at: expires_at.to_string(),
            ..Session::default()
        })
    }

    pub async fn find(&self, session_id: &str) -> anyhow::Result<Session> {
        type Row = (Uuid, i64, String, Option<String>, Timestamp, Timestamp);
        let row: Row = sqlx::query_as(
            "select merchant_id, amount_minor, currency, description, created_at, expires_at
             from bare_sessions where session_id = $1",
        )
        .bind(session_id.parse::<Uuid>()?)
        .fetch_one(&self.pool)
        .await?;
        let (merchant_id, minor_units, currency, description, created_at, expires_at) = row;
        Ok(Session {
            session_id: session_id.to_owned(),
            merchant_id: merchant_id.to_string(),
            amount: Some(Money {
                minor_units,
                currency,
            }),
            description,
            created_at: created_at.to_string(),
            expires_at: expires_at.to_string(),
            ..Session::default()
        })
    }

    pub async fn update(&self, session_id: &str) -> anyhow::Result<()> {
        sqlx::query("update bare_sessions set status = 'PROCESSING' where session_id = $1")
            .bind(session_id.parse::<Uuid>()?)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
