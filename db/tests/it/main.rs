//! The store, on SQLite, or on PostgreSQL if `TEST_DATABASE_URL` names a server.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod clock;
mod group_commit;
mod idempotency;
mod migrations;
mod oldest;
mod outbox;
mod plans;
mod relay;
mod roles;
mod set;
mod store;
mod work;

use std::sync::LazyLock;

use db::{
    Db,
    outbox::{Row, RowEnd},
    testing::TestDb,
};
use sqlx::{
    SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
};

const TABLES: &str = "
    create table account (
        id uuid not null primary key,
        name text not null unique,
        balance bigint not null,
        is_open boolean not null,
        seen_at timestamptz
    );
";

static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    migrations([
        (1, "outbox", db::outbox::DDL),
        (2, "tables", TABLES),
        (
            3,
            "postgres only",
            "alter table account set (fillfactor = 90)",
        ),
    ])
});

fn migrations<const N: usize>(scripts: [(i64, &'static str, &'static str); N]) -> Migrator {
    let scripts = scripts.map(|(version, name, sql)| {
        let (kind, no_tx) = (MigrationType::Simple, sql.starts_with("-- no-transaction"));
        Migration::new(version, name.into(), kind, sql.into_sql_str(), no_tx)
    });
    Migrator::with_migrations(scripts.into())
}

/// A fresh database with its tables, on which no service works.
async fn database() -> (TestDb, Db) {
    let mut test = TestDb::new("db-test").await;
    test.leave_work();
    let db = test.connect().await;
    db.migrate(&MIGRATOR).await.unwrap();
    (test, db)
}

fn relayed(row: &Row) -> RowEnd {
    RowEnd {
        row: row.clone(),
        due: None,
    }
}
