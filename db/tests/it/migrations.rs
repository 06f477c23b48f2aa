//! Migrations while services run, on PostgreSQL.

use chassis::testing::until;
use db::{Db, testing::TestDb};
use sqlx::migrate::Migrator;

use crate::{TABLES, migrations};

const COLUMN: &str = "alter table account add column note text";

const INDEX: &str = "-- no-transaction
create unique index concurrently if not exists account_balance on account (balance);";

fn all() -> Migrator {
    migrations([
        (1, "tables", TABLES),
        (2, "column", COLUMN),
        (3, "postgres index", INDEX),
    ])
}

/// A database with its first migration and two accounts of the same balance, or `None` on SQLite.
async fn begun() -> Option<(TestDb, Db)> {
    let test = TestDb::new("db-migrations").await;
    let db = test.connect().await;
    if !db.is_postgres() {
        return None;
    }
    db.migrate(&migrations([(1, "tables", TABLES)]))
        .await
        .unwrap();
    for insert in [
        "insert into account (id, name, balance, is_open)
         values ('00000000-0000-0000-0000-000000000001', 'ama', 0, true)",
        "insert into account (id, name, balance, is_open)
         values ('00000000-0000-0000-0000-000000000002', 'kofi', 0, true)",
    ] {
        run(&db, insert).await;
    }
    Some((test, db))
}

async fn run(db: &Db, statement: &'static str) {
    let mut tx = db.begin().await.unwrap();
    tx.sql(statement).run().await.unwrap();
    tx.commit().await.unwrap();
}

async fn count(db: &Db, sql: &'static str) -> i64 {
    let (count,) = db.read().await.unwrap().sql(sql).one().await.unwrap();
    count
}

#[tokio::test]
async fn a_migration_that_waits_for_a_lock_lets_others_go_first() {
    let Some((_test, db)) = begun().await else {
        return;
    };
    // As pg_dump does.
    let mut dump = db.survey().await.unwrap();
    let accounts = "select count(*) from account";
    let (_accounts,): (i64,) = dump.sql(accounts).one().await.unwrap();
    let migrator = migrations([(1, "tables", TABLES), (2, "column", COLUMN)]);
    let serving = async {
        let waits = "select count(*) from pg_locks
                     where not granted and relation = 'account'::regclass";
        until("it waits", async || count(&db, waits).await == 1).await;
        // Held up for at most a second, which is less than anyone waits for a lock.
        assert_eq!(count(&db, accounts).await, 2);
        until("it lets others go", async || count(&db, waits).await == 0).await;
        let columns = "select count(*) from information_schema.columns
                       where table_name = 'account' and column_name = 'note'";
        assert_eq!(count(&db, columns).await, 0);
        drop(dump);
    };
    let (migrated, ()) = tokio::join!(db.migrate(&migrator), serving);
    migrated.unwrap();
    let written = "select count(*) from account where note is null";
    assert_eq!(count(&db, written).await, 2);
}

#[tokio::test]
async fn an_index_that_broke_off_is_built_anew_and_two_who_migrate_do_not_meet() {
    let Some((_test, db)) = begun().await else {
        return;
    };
    db.migrate(&all()).await.unwrap_err();
    let valid = "select count(*) from pg_index
                 where indexrelid = to_regclass('account_balance') and indisvalid";
    let broken = "select count(*) from pg_index
                  where indexrelid = to_regclass('account_balance') and not indisvalid";
    assert_eq!(count(&db, broken).await, 1);
    run(&db, "delete from account where name = 'kofi'").await;
    let all = all();
    let (one, other) = tokio::join!(db.migrate(&all), db.migrate(&all));
    one.unwrap();
    other.unwrap();
    assert_eq!(count(&db, valid).await, 1);
}
