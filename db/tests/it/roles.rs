//! Two roles on PostgreSQL: one that owns the tables and migrates, one that serves.

use std::{sync::LazyLock, time::Duration};

use chassis::{
    config::{Mode, SettingsError},
    shutdown::Shutdown,
    testing::until,
};
use db::{Db, Schema, config::Database, testing::TestDb};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::{TABLES, migrations};

const LOG: &str = "create table log (line bigint not null primary key);";

const APPEND_ONLY: &str = "
    create function refuse_change() returns trigger language plpgsql as $$
    begin
        raise exception '% is append-only', tg_table_name;
    end
    $$;
    create trigger log_append_only before update or delete on log
        for each row execute function refuse_change();
";

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema {
    migrations: migrations([
        (1, "tables", TABLES),
        (2, "log", LOG),
        (3, "postgres append only", APPEND_ONLY),
    ]),
    release_leases: &[],
});

async fn open(settings: &Database, mode: Mode, shutdown: &Shutdown) -> anyhow::Result<Db> {
    Db::open(
        settings,
        mode,
        &SCHEMA,
        &chassis::clock::Clock::system(),
        shutdown,
    )
    .await
}

/// A database with both roles, or `None` on SQLite, which has no roles.
async fn with_roles() -> Option<(TestDb, Database)> {
    let mut test = TestDb::new("db-roles").await;
    let settings = test.settings().await;
    let has_roles = settings.migrate_database_url.is_some();
    has_roles.then_some((test, settings))
}

async fn runs(db: &Db, statement: &'static str) -> db::Result<u64> {
    let mut tx = db.begin().await?;
    let done = tx.sql(statement).rows_affected().await?;
    tx.commit().await?;
    Ok(done)
}

/// Checks that a statement fails with PostgreSQL's "insufficient privilege".
async fn check_forbidden(db: &Db, statement: &'static str) {
    let refused = runs(db, statement).await.unwrap_err();
    let code = refused.as_database_error().and_then(|error| error.code());
    assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused}");
}

#[tokio::test]
async fn the_running_role_changes_rows_but_no_table_and_nothing_that_is_append_only() {
    let Some((test, settings)) = with_roles().await else {
        return;
    };
    db::migrate(&settings, Mode::Production, &SCHEMA)
        .await
        .unwrap();
    // A second time, as with every new version.
    db::migrate(&settings, Mode::Production, &SCHEMA)
        .await
        .unwrap();
    let db = open(&settings, Mode::Production, &Shutdown::new())
        .await
        .unwrap();
    for allowed in [
        "insert into account (id, name, balance, is_open)
         values ('00000000-0000-0000-0000-000000000001', 'ama', 0, true)",
        "update account set balance = 1",
        "delete from account",
        "insert into log (line) values (1)",
    ] {
        assert_eq!(runs(&db, allowed).await.unwrap(), 1, "{allowed}");
    }
    for forbidden in [
        "update log set line = 2",
        "delete from log",
        "truncate log",
        "drop table log",
        "alter table log add column more bigint",
        "alter table log disable trigger all",
        "create trigger own before insert on log execute function suppress_redundant_updates_trigger()",
        "truncate account",
        "alter table account add column more bigint",
        "create table own (id bigint)",
        "delete from _sqlx_migrations",
        "set session_replication_role = replica",
    ] {
        check_forbidden(&db, forbidden).await;
    }
    db.close().await;
    drop(test);
}

#[tokio::test]
async fn a_service_that_may_not_migrate_waits_until_another_has() {
    let Some((test, settings)) = with_roles().await else {
        return;
    };
    let owner = test.connect().await;
    let count = async |sql: &'static str| {
        let mut conn = owner.read().await.unwrap();
        let (count,): (i64,) = conn.sql(sql).one().await.unwrap();
        count
    };
    let migrating = async {
        // It has looked for the tables, and created none.
        let looks = "select count(*) from pg_stat_activity
             where datname = current_database() and query like '%to_regclass%'
                 and pid <> pg_backend_pid()";
        until("it waits", async || count(looks).await > 0).await;
        let tables = "select count(*) from pg_tables where schemaname = 'public'";
        assert_eq!(count(tables).await, 0);
        db::migrate(&settings, Mode::Development, &SCHEMA).await
    };
    let shutdown = Shutdown::new();
    let opening = open(&settings, Mode::Development, &shutdown);
    let (opened, migrated) = tokio::join!(opening, migrating);
    migrated.unwrap();
    let db = opened.unwrap();
    runs(&db, "insert into log (line) values (1)")
        .await
        .unwrap();
    db.close().await;
    owner.close().await;
}

#[tokio::test]
async fn a_role_that_may_make_no_tables_waits_without_being_told_to() {
    let Some((_test, mut settings)) = with_roles().await else {
        return;
    };
    let all = settings.clone();
    settings.migrate_database_url = None;
    let shutdown = Shutdown::new();
    let (opened, migrated) = tokio::join!(
        open(&settings, Mode::Development, &shutdown),
        db::migrate(&all, Mode::Development, &SCHEMA)
    );
    migrated.unwrap();
    let db = opened.unwrap();
    runs(&db, "insert into log (line) values (1)")
        .await
        .unwrap();
    // It starts again with everything in place.
    open(&settings, Mode::Development, &shutdown).await.unwrap();
}

#[tokio::test]
async fn a_service_that_waits_for_its_tables_stops_when_it_is_told_to() {
    let Some((_test, settings)) = with_roles().await else {
        return;
    };
    let shutdown = Shutdown::new();
    shutdown.begin();
    let opened = open(&settings, Mode::Development, &shutdown);
    let opened = tokio::time::timeout(Duration::from_secs(20), opened).await;
    let error = opened.expect("at once").unwrap_err();
    assert!(error.to_string().contains("told to stop"), "{error:#}");
}

#[tokio::test]
async fn tables_of_another_version_are_not_waited_for() {
    let Some((_test, settings)) = with_roles().await else {
        return;
    };
    let other = Schema {
        migrations: migrations([(1, "tables", "select 1"), (2, "log", LOG)]),
        release_leases: &[],
    };
    db::migrate(&settings, Mode::Development, &other)
        .await
        .unwrap();
    let opened = open(&settings, Mode::Development, &Shutdown::new()).await;
    let error = format!("{:#}", opened.unwrap_err());
    assert!(error.contains("not this version's"), "{error}");
}

#[tokio::test]
async fn while_the_next_version_migrates_this_one_can_start() {
    let Some((_test, settings)) = with_roles().await else {
        return;
    };
    db::migrate(&settings, Mode::Production, &SCHEMA)
        .await
        .unwrap();
    let append_only = "create table seal (line bigint not null primary key);
        create trigger seal_append_only before update or delete on seal
            for each row execute function refuse_change();";
    let next = Schema {
        migrations: migrations([
            (1, "tables", TABLES),
            (2, "log", LOG),
            (3, "postgres append only", APPEND_ONLY),
            (4, "postgres seal", append_only),
            (5, "breaks off", "select 1 / 0"),
        ]),
        release_leases: &[],
    };
    let broken = db::migrate(&settings, Mode::Production, &next).await;
    assert!(format!("{:#}", broken.unwrap_err()).contains("division by zero"));
    let db = open(&settings, Mode::Production, &Shutdown::new()).await;
    check_forbidden(&db.unwrap(), "delete from seal").await;
}

#[tokio::test]
async fn production_serves_with_no_role_that_owns_its_tables() {
    let Some((test, settings)) = with_roles().await else {
        return;
    };
    db::migrate(&settings, Mode::Production, &SCHEMA)
        .await
        .unwrap();
    let mut as_owner = settings.clone();
    as_owner.database_url = settings.migrate_database_url.clone().unwrap();
    as_owner.migrate_database_url = None;
    let alone = db::migrate(&as_owner, Mode::Production, &SCHEMA).await;
    let alone = alone.unwrap_err().downcast::<SettingsError>().unwrap();
    assert!(
        alone.to_string().contains("MIGRATE_DATABASE_URL"),
        "{alone}"
    );
    for url in [as_owner.database_url.clone(), test.url.clone()] {
        as_owner.database_url = url;
        let opened = open(&as_owner, Mode::Production, &Shutdown::new()).await;
        let refused = opened.unwrap_err().downcast::<SettingsError>().unwrap();
        assert!(refused.to_string().contains("DATABASE_URL"), "{refused}");
    }
}

/// Statements that give the running role a power, statements that revoke it, and the power's name.
const POWERS: &[(&str, &str, &str)] = &[
    // It inherits nothing, but may become the owner.
    (
        "alter role {running} noinherit; grant {owner} to {running}",
        "revoke {owner} from {running}; alter role {running} inherit",
        "owns the database",
    ),
    (
        "alter database {database} owner to {running}",
        "alter database {database} owner to {owner}",
        "owns the database",
    ),
    (
        "alter schema public owner to {running}",
        "alter schema public owner to pg_database_owner",
        "owns the schema",
    ),
    (
        "alter table account owner to {running}",
        "alter table account owner to {owner}",
        "owns tables or functions",
    ),
    (
        "alter function refuse_change owner to {running}",
        "alter function refuse_change owner to {owner}",
        "owns tables or functions",
    ),
    (
        "grant create on schema public to {running}",
        "revoke create on schema public from {running}",
        "may create in the schema",
    ),
    (
        "alter role {running} superuser",
        "alter role {running} nosuperuser",
        "is a superuser",
    ),
    (
        "alter role {running} createrole",
        "alter role {running} nocreaterole",
        "may make roles",
    ),
    (
        "grant update on log to {running}",
        "revoke update on log from {running}",
        "may change what is append-only",
    ),
    (
        "grant update (line) on log to {running}",
        "revoke update (line) on log from {running}",
        "may change what is append-only",
    ),
    (
        "grant truncate on log to {running}",
        "revoke truncate on log from {running}",
        "may change what is append-only",
    ),
    (
        "grant trigger on log to public",
        "revoke trigger on log from public",
        "may change what is append-only",
    ),
];

#[tokio::test]
async fn production_serves_with_no_role_that_could_change_what_is_append_only() {
    let Some((test, settings)) = with_roles().await else {
        return;
    };
    db::migrate(&settings, Mode::Production, &SCHEMA)
        .await
        .unwrap();
    let superuser: PgConnectOptions = test.url.parse().unwrap();
    let database = superuser.get_database().unwrap().to_owned();
    let mut superuser = superuser.connect().await.unwrap();
    for (given, taken, told) in POWERS {
        let named = |statement: &str| {
            let statement = statement.replace("{running}", &format!("{database}_running"));
            let statement = statement.replace("{owner}", &format!("{database}_owner"));
            AssertSqlSafe(statement.replace("{database}", &database))
        };
        superuser.execute(named(given)).await.unwrap();
        let opened = open(&settings, Mode::Production, &Shutdown::new()).await;
        let refused = opened.map(drop).expect_err(given);
        let refused = refused.downcast::<SettingsError>().unwrap().to_string();
        assert!(refused.starts_with("DATABASE_URL"), "{given}: {refused}");
        assert!(refused.contains(told), "{given}: {refused}");
        superuser.execute(named(taken)).await.unwrap();
    }
    open(&settings, Mode::Production, &Shutdown::new())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_schema_that_the_owner_cannot_close_to_the_running_role_is_told() {
    let Some((test, settings)) = with_roles().await else {
        return;
    };
    let superuser: PgConnectOptions = test.url.parse().unwrap();
    let mut superuser = superuser.connect().await.unwrap();
    // As before PostgreSQL 15: the owner of the database does not own its schema.
    let as_before =
        "alter schema public owner to postgres; grant create on schema public to public";
    superuser.execute(as_before).await.unwrap();
    let migrated = db::migrate(&settings, Mode::Production, &SCHEMA).await;
    let error = format!("{:#}", migrated.unwrap_err());
    assert!(error.contains("revoke create on schema"), "{error}");
    let closed = "revoke create on schema public from public";
    superuser.execute(closed).await.unwrap();
    let owner = settings.migrate_database_url.as_ref().unwrap();
    let owner: PgConnectOptions = owner.parse().unwrap();
    let granted = format!("grant create on schema public to {}", owner.get_username());
    superuser.execute(AssertSqlSafe(granted)).await.unwrap();
    db::migrate(&settings, Mode::Production, &SCHEMA)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_older_versions_migrate_opens_nothing_that_a_newer_one_closed() {
    let Some((_test, settings)) = with_roles().await else {
        return;
    };
    db::migrate(&settings, Mode::Production, &SCHEMA)
        .await
        .unwrap();
    let older = Schema {
        migrations: migrations([(1, "tables", TABLES)]),
        release_leases: &[],
    };
    db::migrate(&settings, Mode::Production, &older)
        .await
        .unwrap();
    let db = open(&settings, Mode::Production, &Shutdown::new())
        .await
        .unwrap();
    runs(&db, "insert into log (line) values (1)")
        .await
        .unwrap();
    for forbidden in ["update log set line = 2", "delete from log"] {
        check_forbidden(&db, forbidden).await;
    }
    db.close().await;
}

#[tokio::test]
async fn a_role_that_took_over_from_another_serves_after_an_upgrade() {
    let Some((test, mut settings)) = with_roles().await else {
        return;
    };
    let before = Schema {
        migrations: migrations([(1, "tables", TABLES)]),
        release_leases: &[],
    };
    db::migrate(&settings, Mode::Production, &before)
        .await
        .unwrap();
    // As when passwords are rotated.
    let superuser: PgConnectOptions = test.url.parse().unwrap();
    let mut superuser = superuser.connect().await.unwrap();
    let first: PgConnectOptions = settings.database_url.parse().unwrap();
    let first = first.get_username();
    let next = format!("{first}_next");
    let made = format!(
        "create role {next} login password '{first}' in role {first};
         alter role {next} set role {first}"
    );
    superuser.execute(AssertSqlSafe(made)).await.unwrap();
    settings.database_url = settings
        .database_url
        .replace(&format!("//{first}:"), &format!("//{next}:"));
    let migrated = db::migrate(&settings, Mode::Production, &SCHEMA).await;
    let opened = open(&settings, Mode::Production, &Shutdown::new()).await;
    if let Ok(db) = &opened {
        db.close().await;
    }
    let gone = format!("drop owned by {next}; drop role {next}");
    superuser.execute(AssertSqlSafe(gone)).await.unwrap();
    migrated.unwrap();
    opened.unwrap();
}

#[tokio::test]
async fn with_one_role_a_service_migrates_when_it_starts() {
    let test = TestDb::new("db-roles").await;
    let settings = Database {
        database_url: test.url.clone(),
        migrate_database_url: None,
        database_max_connections: 2,
    };
    let db = open(&settings, Mode::Development, &Shutdown::new())
        .await
        .unwrap();
    runs(&db, "insert into log (line) values (1)")
        .await
        .unwrap();
    db.close().await;
}

#[tokio::test]
async fn a_survey_sees_one_moment_and_changes_nothing() {
    let (_test, db) = crate::database().await;
    let mut survey = db.survey().await.unwrap();
    let count = "select count(*) from account";
    let (before,): (i64,) = survey.sql(count).one().await.unwrap();
    // The survey blocks no writer.
    let mut tx = db.begin().await.unwrap();
    let insert = "insert into account (id, name, balance, is_open) values ($1, 'ama', 0, true)";
    tx.sql(insert).bind(Uuid::now_v7()).run().await.unwrap();
    tx.commit().await.unwrap();
    let (after,): (i64,) = survey.sql(count).one().await.unwrap();
    assert_eq!((before, after), (0, 0));
    survey.sql("delete from account").run().await.unwrap_err();
}

#[tokio::test]
async fn a_survey_takes_longer_than_any_other_statement_may() {
    let (_test, db) = crate::database().await;
    if !db.is_postgres() {
        return;
    }
    let limit = "select current_setting('statement_timeout')";
    let mut survey = db.survey().await.unwrap();
    let (within,): (String,) = survey.sql(limit).one().await.unwrap();
    assert_eq!(within, "10min");
    survey.sql("select pg_sleep(7)").run().await.unwrap();
    drop(survey);
    // The connection's own limit is restored.
    let mut conn = db.read().await.unwrap();
    let (beside,): (String,) = conn.sql(limit).one().await.unwrap();
    assert_eq!(beside, "5s");
}
