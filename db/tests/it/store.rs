//! Transactions, statements, migrations.

use std::time::Duration;

use chassis::{
    clock::{Clock, Timestamp},
    testing::until,
};
use db::{Conn, Db, Insert, Tx, Update, testing::TestDb};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{MIGRATOR, database, migrations};

#[derive(Debug, PartialEq, sqlx::FromRow)]
struct Account {
    id: Uuid,
    name: String,
    balance: i64,
    is_open: bool,
    seen_at: Option<Timestamp>,
}

async fn open_account(tx: &mut Tx, id: Uuid, name: &str, seen_at: Option<Timestamp>) {
    let inserted = insert_account(tx, id, name, seen_at).await;
    assert_eq!(inserted, Insert::Inserted);
}

async fn insert_account(tx: &mut Tx, id: Uuid, name: &str, seen_at: Option<Timestamp>) -> Insert {
    tx.sql(
        "insert into account (id, name, balance, is_open, seen_at) values ($1, $2, $3, $4, $5)
         on conflict (name) do nothing",
    )
    .bind(id)
    .bind(name)
    .bind(100_i64)
    .bind(true)
    .bind(seen_at)
    .insert()
    .await
    .unwrap()
}

async fn find_account(conn: &mut Conn, name: &str) -> Option<Account> {
    conn.sql("select id, name, balance, is_open, seen_at from account where name = $1")
        .bind(name)
        .optional()
        .await
        .unwrap()
}

async fn committed_account(db: &Db, name: &str) -> Option<Account> {
    find_account(&mut db.read().await.unwrap(), name).await
}

async fn with_account(db: &Db, name: &str) -> Uuid {
    let id = Uuid::now_v7();
    let mut tx = db.begin().await.unwrap();
    open_account(&mut tx, id, name, None).await;
    tx.commit().await.unwrap();
    id
}

#[tokio::test]
async fn a_row_reads_back_as_it_was_written() {
    let (_test, db) = database().await;
    let seen_at = Some(Clock::system().now());
    let id = Uuid::now_v7();
    let mut tx = db.begin().await.unwrap();
    open_account(&mut tx, id, "ama", seen_at).await;
    let name = "ama".to_owned();
    let expected = Account {
        id,
        name,
        balance: 100,
        is_open: true,
        seen_at,
    };
    assert_eq!(find_account(&mut tx, "ama").await, Some(expected));
    tx.commit().await.unwrap();
    assert_eq!(
        committed_account(&db, "ama").await.unwrap().seen_at,
        seen_at
    );
    let mut conn = db.read().await.unwrap();
    let missing = conn
        .sql("select name from account where id = $1")
        .bind(Uuid::new_v4());
    let missing = missing.one::<(String,)>().await;
    assert!(
        matches!(missing, Err(db::Error::RowNotFound)),
        "{missing:?}"
    );
}

chassis::closed_list! {
    pub enum Tone: "a tone" {
        High = "HIGH",
        Low = "LOW",
    }
}

chassis::text_column!(Tone);

#[derive(Debug, sqlx::FromRow)]
struct NameRow {
    name: Tone,
}

#[tokio::test]
async fn a_row_with_a_value_of_a_newer_version_is_left_out_and_counted() {
    chassis::metrics::render();
    let (_test, db) = database().await;
    for name in ["HIGH", "NEWER", "LOW"] {
        with_account(&db, name).await;
    }
    let mut tx = db.begin().await.unwrap();
    let names = tx.sql("select name from account order by name");
    let known = names.known::<NameRow>().await.unwrap();
    assert!(known.rows.iter().map(|row| &row.name).eq(Tone::ALL));
    assert_eq!(known.unknown, 1);
    tx.commit().await.unwrap();
    let metrics = chassis::metrics::render();
    let counted = r#"unknown_values_total{column="name"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    // Any other value that cannot be decoded is still an error.
    let mut conn = db.read().await.unwrap();
    let broken = conn.sql("select balance as name from account");
    assert!(broken.known::<NameRow>().await.is_err());
}

#[tokio::test]
async fn an_insert_repeated_inserts_once() {
    let (_test, db) = database().await;
    let first = with_account(&db, "ama").await;
    let mut tx = db.begin().await.unwrap();
    let again = insert_account(&mut tx, Uuid::now_v7(), "ama", None).await;
    assert_eq!(again, Insert::AlreadyThere);
    tx.commit().await.unwrap();
    assert_eq!(committed_account(&db, "ama").await.unwrap().id, first);
}

#[tokio::test]
async fn an_update_tells_whether_its_row_was_there() {
    let (_test, db) = database().await;
    let id = with_account(&db, "ama").await;
    let mut tx = db.begin().await.unwrap();
    for statement in [
        "update account set balance = 0 where id = $1 and is_open",
        "delete from account where id = $1 and is_open",
    ] {
        let mut update = async |id: Uuid| tx.sql(statement).bind(id).update().await.unwrap();
        assert_eq!(update(Uuid::now_v7()).await, Update::NotThere);
        assert_eq!(update(id).await, Update::Updated);
    }
}

#[tokio::test]
async fn a_second_row_of_one_key_is_told_as_such() {
    let (_test, db) = database().await;
    let id = with_account(&db, "ama").await;
    let mut tx = db.begin().await.unwrap();
    let refused = tx
        .sql("insert into account (id, name, balance, is_open) values ($1, 'kofi', 0, true)")
        .bind(id)
        .run()
        .await
        .unwrap_err();
    assert!(db::is_unique_violation(&refused), "{refused}");
    assert!(!db::is_retryable(&refused) && !db::is_unavailable(&refused));
}

#[tokio::test]
async fn a_transaction_with_a_failed_statement_cannot_be_committed() {
    let (_test, db) = database().await;
    let id = Uuid::now_v7();
    let mut tx = db.begin().await.unwrap();
    open_account(&mut tx, id, "ama", None).await;
    let same_id = "insert into account (id, name, balance, is_open) values ($1, 'kofi', 0, true)";
    tx.sql(same_id).bind(id).run().await.unwrap_err();
    tx.commit().await.unwrap_err();
    assert_eq!(committed_account(&db, "ama").await, None);
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back() {
    let (_test, db) = database().await;
    let mut tx = db.begin().await.unwrap();
    open_account(&mut tx, Uuid::now_v7(), "ama", None).await;
    drop(tx);
    let mut panicking = JoinSet::new();
    let panics_in = db.clone();
    panicking.spawn(async move {
        let mut tx = panics_in.begin().await.unwrap();
        open_account(&mut tx, Uuid::now_v7(), "ama", None).await;
        panic!("on purpose");
    });
    assert!(panicking.join_next().await.unwrap().unwrap_err().is_panic());
    assert!(committed_account(&db, "ama").await.is_none());
    with_account(&db, "ama").await;
}

#[tokio::test]
async fn a_transaction_cancelled_at_any_point_leaves_nothing_behind() {
    let (test, observer) = database().await;
    let db = Db::connect(&test.url, 1).await.unwrap();
    for round in 0..120 {
        let change = async {
            let mut tx = db.begin().await.unwrap();
            open_account(&mut tx, Uuid::now_v7(), "ama", None).await;
            std::future::pending::<()>().await;
            tx.commit().await.unwrap();
        };
        cut_off_after(1 << (round / 10), change).await;
        assert!(committed_account(&observer, "ama").await.is_none());
        assert!(
            !is_left_in_a_transaction(&db, &observer).await,
            "round {round}"
        );
    }
    with_account(&db, "ama").await;
}

/// Polls a future up to `polls` times and drops it.
async fn cut_off_after(polls: u32, future: impl Future<Output = ()>) {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        left -= 1;
        context.waker().wake_by_ref();
        match future.as_mut().poll(context).is_ready() || left == 0 {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

/// Whether the connection that the pool hands out is still in a transaction.
async fn is_left_in_a_transaction(db: &Db, observer: &Db) -> bool {
    let mut conn = db.read().await.unwrap();
    if !db.is_postgres() {
        // If it were, the only writer could not begin another.
        return db.begin().await.is_err();
    }
    let (pid,): (i32,) = conn.sql("select pg_backend_pid()").one().await.unwrap();
    let mut observing = observer.read().await.unwrap();
    let state = observing.sql("select state from pg_stat_activity where pid = $1");
    let (state,): (String,) = state.bind(pid).one().await.unwrap();
    state != "idle"
}

#[tokio::test]
async fn a_read_does_not_wait_for_a_writer() {
    let (_test, db) = database().await;
    let mut tx = db.begin().await.unwrap();
    open_account(&mut tx, Uuid::now_v7(), "ama", None).await;
    assert_eq!(committed_account(&db, "ama").await, None);
    tx.commit().await.unwrap();
    assert!(committed_account(&db, "ama").await.is_some());
}

#[tokio::test]
async fn of_16_racers_one_wins() {
    let (_test, db) = database().await;
    let id = with_account(&db, "ama").await;
    let mut racers = JoinSet::new();
    for _ in 0..16 {
        let db = db.clone();
        racers.spawn(async move {
            let mut tx = db.begin().await.unwrap();
            let closed = "update account set is_open = $2 where id = $1 and is_open = $3";
            let won = tx
                .sql(closed)
                .bind(id)
                .bind(false)
                .bind(true)
                .update()
                .await
                .unwrap();
            tx.commit().await.unwrap();
            won
        });
    }
    let won = racers.join_all().await.into_iter();
    assert_eq!(won.filter(|won| *won == Update::Updated).count(), 1);
}

#[tokio::test]
async fn no_update_under_a_row_lock_is_lost() {
    let (test, db) = database().await;
    let other_process = test.connect().await;
    let id = with_account(&db, "ama").await;
    let mut writers = JoinSet::new();
    for number in 0..16 {
        let db = [&db, &other_process][number % 2].clone();
        writers.spawn(async move {
            for _ in 0..5 {
                let mut tx = db.begin().await.unwrap();
                let locked = "select balance from account where id = $1 for update";
                let (balance,): (i64,) = tx.sql(locked).bind(id).one().await.unwrap();
                let changed = "update account set balance = $2 where id = $1";
                tx.sql(changed)
                    .bind(id)
                    .bind(balance + 1)
                    .run()
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
        });
    }
    writers.join_all().await;
    assert_eq!(committed_account(&db, "ama").await.unwrap().balance, 180);
}

#[tokio::test]
async fn every_row_lock_is_understood() {
    let (_test, db) = database().await;
    with_account(&db, "ama").await;
    let mut tx = db.begin().await.unwrap();
    for locking in [
        "select name from account order by name for update",
        "select name from account order by name limit 5\nfor update skip locked",
        "select name from account order by name for no key update",
        "select name from account order by name for no key update skip locked",
        "select name from account order by name for share",
    ] {
        for _ in 0..2 {
            let names: Vec<(String,)> = tx.sql(locking).all().await.unwrap();
            assert_eq!(names, [("ama".to_owned(),)], "{locking}");
        }
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn times_keep_their_order_and_their_milliseconds() {
    let (_test, db) = database().await;
    let millis = [
        0,
        1,
        999,
        1_000,
        951_782_400_000,
        1_700_000_000_007,
        253_402_300_799_999_i64,
    ];
    let mut tx = db.begin().await.unwrap();
    for (number, millis) in millis.iter().enumerate().rev() {
        let seen_at = Timestamp::from_unix_millis(*millis).unwrap();
        open_account(&mut tx, Uuid::now_v7(), &number.to_string(), Some(seen_at)).await;
    }
    let ordered = "select seen_at from account where seen_at >= $1 order by seen_at";
    let from = Timestamp::from_unix_millis(1).unwrap();
    let seen: Vec<(Timestamp,)> = tx.sql(ordered).bind(from).all().await.unwrap();
    let seen: Vec<i64> = seen
        .iter()
        .map(|(seen_at,)| seen_at.unix_millis())
        .collect();
    assert_eq!(seen, millis[1..]);
    let latest = "select max(seen_at), cast(sum(balance) as bigint) from account";
    let (latest, sum): (Option<Timestamp>, i64) = tx.sql(latest).one().await.unwrap();
    assert_eq!(latest.unwrap().unix_millis(), 253_402_300_799_999);
    assert_eq!(sum, 700);
}

#[tokio::test]
async fn eight_migrators_at_once_all_succeed() {
    for _ in 0..3 {
        let test = TestDb::new("db-test").await;
        let mut migrators = JoinSet::new();
        for _ in 0..8 {
            let url = test.url.clone();
            migrators.spawn(async move {
                let db = Db::connect(&url, 2).await.unwrap();
                db.migrate(&MIGRATOR).await.unwrap();
                db.close().await;
            });
        }
        migrators.join_all().await;
        let db = test.connect().await;
        with_account(&db, "ama").await;
        let mut conn = db.read().await.unwrap();
        let applied = "select count(*) from _sqlx_migrations";
        let (applied,): (i64,) = conn.sql(applied).one().await.unwrap();
        assert_eq!(applied, if db.is_postgres() { 3 } else { 2 });
    }
}

#[tokio::test]
async fn an_older_version_starts_on_a_newer_schema() {
    let (_test, db) = database().await;
    let older = migrations([(1, "outbox", db::outbox::DDL)]);
    db.migrate(&older).await.unwrap();
    let changed = migrations([(1, "outbox", "select 1")]);
    db.migrate(&changed).await.unwrap_err();
}

#[tokio::test]
async fn what_was_committed_outlives_the_process() {
    let (test, db) = database().await;
    with_account(&db, "ama").await;
    db.close().await;
    let again = test.connect().await;
    again.migrate(&MIGRATOR).await.unwrap();
    again.ping().await.unwrap();
    assert!(committed_account(&again, "ama").await.is_some());
}

#[tokio::test]
async fn a_database_in_memory_is_one_database() {
    let db = Db::connect("sqlite::memory:", 8).await.unwrap();
    db.migrate(&MIGRATOR).await.unwrap();
    with_account(&db, "ama").await;
    let mut readers = JoinSet::new();
    for _ in 0..8 {
        let db = db.clone();
        readers.spawn(async move { committed_account(&db, "ama").await.is_some() });
    }
    assert!(readers.join_all().await.into_iter().all(|found| found));
}

#[tokio::test]
async fn sqlite_is_a_version_that_does_not_corrupt_its_log() {
    let db = Db::connect("sqlite::memory:", 1).await.unwrap();
    let mut conn = db.read().await.unwrap();
    let (version,): (String,) = conn.sql("select sqlite_version()").one().await.unwrap();
    let version: Vec<u32> = version
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect();
    assert!(version.as_slice() >= [3, 51, 3].as_slice(), "{version:?}");
}

#[tokio::test]
async fn a_file_syncs_every_commit_and_checks_foreign_keys() {
    let (_test, db) = database().await;
    if db.is_postgres() {
        return;
    }
    let mut tx = db.begin().await.unwrap();
    let (synchronous,): (i64,) = tx.sql("pragma synchronous").one().await.unwrap();
    let (foreign_keys,): (i64,) = tx.sql("pragma foreign_keys").one().await.unwrap();
    let (journal,): (String,) = tx.sql("pragma journal_mode").one().await.unwrap();
    assert_eq!((synchronous, foreign_keys, journal.as_str()), (2, 1, "wal"));
    let mut reader = db.read().await.unwrap();
    reader.sql("delete from account").run().await.unwrap_err();
}

#[tokio::test]
async fn a_server_keeps_the_limits() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    let mut conn = db.read().await.unwrap();
    for (setting, limit) in [
        ("statement_timeout", "5s"),
        ("lock_timeout", "2s"),
        ("idle_in_transaction_session_timeout", "10s"),
    ] {
        let current = conn.sql("select current_setting($1)").bind(setting);
        let (value,): (String,) = current.one().await.unwrap();
        assert_eq!(value, limit, "{setting}");
    }
}

#[tokio::test]
async fn after_the_server_cut_every_connection_the_next_transaction_succeeds() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(db.read().await.unwrap());
    }
    drop(open);
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid()";
    let mut killer = db.begin().await.unwrap();
    let (ended,): (i64,) = killer.sql(cut).one().await.unwrap();
    assert!(ended >= 7, "{ended}");
    killer.commit().await.unwrap();
    with_account(&db, "ama").await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_left_at_once() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    // Keeps its connection, which still writes.
    let mut operator = db.write().await.unwrap();
    for statement in [
        "do $$ begin
            execute format('alter database %I set default_transaction_read_only = on', current_database());
        end $$",
        "select count(pg_terminate_backend(pid)) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()",
    ] {
        operator.sql(statement).run().await.unwrap();
    }
    let write = "update account set balance = 0";
    let mut refused = db.begin().await.unwrap();
    let refusal = refused.sql(write).run().await.unwrap_err();
    let code = refusal.as_database_error().and_then(|error| error.code());
    assert_eq!(code.as_deref(), Some("25006"), "{refusal}");
    assert!(db::is_unavailable(&refusal));
    drop(refused);
    let reset = "do $$ begin
        execute format('alter database %I reset default_transaction_read_only', current_database());
    end $$";
    operator.sql(reset).run().await.unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.sql(write).run().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_held_is_not_waited_for_without_end() {
    let (_test, db) = database().await;
    let id = with_account(&db, "ama").await;
    let lock = "select balance from account where id = $1 for update";
    let mut holder = db.begin().await.unwrap();
    let _: (i64,) = holder.sql(lock).bind(id).one().await.unwrap();
    let second = async {
        let mut tx = db.begin().await?;
        tx.sql(lock).bind(id).one::<(i64,)>().await
    };
    let refused = second.await.unwrap_err();
    assert!(db::is_unavailable(&refused), "{refused}");
    holder.commit().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_within_seconds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The listener accepts connections and never answers.
    let url = format!("postgres://nobody@127.0.0.1:{port}/nothing");
    let connecting = tokio::time::timeout(Duration::from_secs(10), Db::connect(&url, 1));
    let error = connecting.await.unwrap().unwrap_err();
    assert!(db::is_unavailable(&error), "{error}");
}

#[tokio::test]
async fn a_test_database_is_removed() {
    let (test, db) = database().await;
    let url = test.url.clone();
    db.close().await;
    drop(test);
    if let Some(path) = url.strip_prefix("sqlite://") {
        assert!(!std::path::Path::new(path).exists());
        return;
    }
    until("the database is gone", || async {
        Db::connect(&url, 1).await.is_err()
    })
    .await;
}
