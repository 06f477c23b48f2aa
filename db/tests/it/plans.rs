//! How PostgreSQL reads the tables: whatever it once believed about their size, by index.

use std::time::Duration;

use chassis::{clock::Clock, testing::until};
use db::{
    Db, Grouped as _, Update,
    outbox::{self, NewRow},
};

use crate::{database, relayed};

const LEASE: Duration = Duration::from_secs(60);

/// Enough for PostgreSQL to keep the plan of a statement, which it does from the sixth time on.
const ROUNDS: usize = 20;

/// Rows of the outbox that PostgreSQL has read: by whole scans, and by index.
async fn rows_read(db: &Db) -> (i64, i64, i64) {
    let mut conn = db.read().await.unwrap();
    let read = conn.sql(
        "select seq_tup_read, coalesce(idx_tup_fetch, 0), n_tup_del
         from pg_stat_user_tables where relname = 'outbox'",
    );
    read.one().await.unwrap()
}

/// Writes, claims and relays a set of rows.
async fn relay_a_set(db: &Db, clock: &Clock) {
    let rows: Vec<NewRow> = (0..8)
        .map(|_| NewRow::new("charge-1", None, clock.now()))
        .collect();
    let mut tx = db.begin().await.unwrap();
    let rows: Vec<&NewRow> = rows.iter().collect();
    outbox::put_set(tx.joint(), &rows).run().await.unwrap();
    tx.commit().await.unwrap();
    let claimed = outbox::claim(db, clock, 8, LEASE).await.unwrap();
    let ends: Vec<_> = claimed.iter().map(relayed).collect();
    let written = db::outbox::RowEnd::run_set(db, &ends).await.unwrap();
    assert_eq!(written, [Update::Updated; 8]);
    outbox::next_due(db, clock).await.unwrap();
}

#[tokio::test]
async fn a_table_that_was_empty_when_its_plans_were_made_is_read_by_index_once_full() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    let clock = Clock::system();
    let mut conn = db.read().await.unwrap();
    conn.sql("analyze outbox").run().await.unwrap();
    drop(conn);
    for _ in 0..ROUNDS {
        relay_a_set(&db, &clock).await;
    }
    let mut tx = db.begin().await.unwrap();
    tx.sql(
        "insert into outbox (id, subject, created_at, due_at, attempts)
         select gen_random_uuid(), 'charge-2', $1, $1, 0 from generate_series(1, 20000)",
    )
    .bind(clock.now())
    .run()
    .await
    .unwrap();
    tx.commit().await.unwrap();
    // PostgreSQL counts what a transaction has read about a second later.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    relay_a_set(&db, &clock).await;
    let before = rows_read(&db).await;
    for _ in 0..ROUNDS {
        relay_a_set(&db, &clock).await;
    }
    until("what was read is counted", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        relay_a_set(&db, &clock).await;
        rows_read(&db).await.2 >= before.2 + 8 * i64::try_from(ROUNDS).unwrap()
    })
    .await;
    let after = rows_read(&db).await;
    assert_eq!(after.0, before.0, "rows were read by whole scans");
    let (read, relayed) = (after.1 - before.1, after.2 - before.2);
    assert!(
        read < relayed * 20,
        "{read} rows were read to relay {relayed}"
    );
}

#[tokio::test]
async fn only_a_survey_reads_whole_tables_where_it_can_choose() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    let settings = "select current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
                           current_setting('enable_hashjoin'), current_setting('enable_mergejoin')";
    type Settings = (String, String, String, String);
    let off_or_on = |state: &str| [(); 4].map(|()| state.to_owned()).into();
    let served: Settings = db.read().await.unwrap().sql(settings).one().await.unwrap();
    let surveyed: Settings = db
        .survey()
        .await
        .unwrap()
        .sql(settings)
        .one()
        .await
        .unwrap();
    assert_eq!((served, surveyed), (off_or_on("off"), off_or_on("on")));
    let served: Settings = db.read().await.unwrap().sql(settings).one().await.unwrap();
    assert_eq!(
        served,
        off_or_on("off"),
        "the survey's connection is as before"
    );
}
