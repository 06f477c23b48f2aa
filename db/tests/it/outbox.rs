//! The outbox.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use chassis::clock::Clock;
use db::{
    Db, Grouped as _, Schema, Update,
    outbox::{self, Row, RowEnd},
    testing::TestDb,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{MIGRATOR, database, migrations, relayed};

const LEASE: Duration = Duration::from_secs(60);
/// A lease that has expired as soon as it is taken.
const NO_LEASE: Duration = Duration::ZERO;

async fn put(db: &Db, clock: &Clock, subject: &str) -> Uuid {
    let mut tx = db.begin().await.unwrap();
    let id = outbox::put(&mut tx, subject, Some("evt_1"), clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    id
}

#[tokio::test]
async fn a_row_is_seen_once_its_transaction_is_committed() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let mut tx = db.begin().await.unwrap();
    outbox::put(&mut tx, "charge-1", None, clock.now())
        .await
        .unwrap();
    drop(tx);
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
    assert_eq!(outbox::next_due(&db, &clock).await.unwrap(), None);
    let now = clock.now();
    let mut tx = db.begin().await.unwrap();
    outbox::put(&mut tx, "charge-1", None, now).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(outbox::next_due(&db, &clock).await.unwrap(), Some(now));
    let rows = outbox::claim(&db, &clock, 10, LEASE).await.unwrap();
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (&*row.subject, row.attempts, row.created_at))
        .collect();
    assert_eq!(seen, [("charge-1", 1, now)]);
    assert_eq!(rows[0].event_id, None);
    assert_eq!(outbox::next_due(&db, &clock).await.unwrap(), None);
    assert_eq!(
        RowEnd::run_set(&db, &[relayed(&rows[0])]).await.unwrap(),
        [Update::Updated]
    );
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
}

#[tokio::test]
async fn a_hundred_rows_are_claimed_once_each_by_8_claimers() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let mut tx = db.begin().await.unwrap();
    for number in 0..100 {
        outbox::put(&mut tx, &number.to_string(), None, clock.now())
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let mut claimers = JoinSet::new();
    for _ in 0..8 {
        let (db, clock) = (db.clone(), clock.clone());
        claimers.spawn(async move {
            let mut taken = Vec::new();
            while outbox::next_due(&db, &clock).await.unwrap().is_some() {
                taken.extend(outbox::claim(&db, &clock, 7, LEASE).await.unwrap());
            }
            taken
        });
    }
    let taken: Vec<Row> = claimers.join_all().await.into_iter().flatten().collect();
    let subjects: HashSet<&str> = taken.iter().map(|row| &*row.subject).collect();
    assert_eq!((taken.len(), subjects.len()), (100, 100));
    assert!(taken.iter().all(|row| row.attempts == 1));
}

#[tokio::test]
async fn a_test_that_leaves_a_row_fails_unless_it_says_so() {
    for says_so in [false, true] {
        let mut test = TestDb::new("db-outbox").await;
        let db = test.connect().await;
        db.migrate(&MIGRATOR).await.unwrap();
        put(&db, &Clock::system(), "charge-1").await;
        db.close().await;
        if says_so {
            test.leave_work();
        }
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(test)));
        assert_eq!(dropped.is_ok(), says_so);
    }
}

#[tokio::test]
async fn a_claim_takes_the_oldest_first_and_no_more_than_asked() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let now = clock.now();
    let mut tx = db.begin().await.unwrap();
    for age in [3, 1, 5, 2, 4_u64] {
        let created_at = now - Duration::from_secs(age);
        outbox::put(&mut tx, &age.to_string(), None, created_at)
            .await
            .unwrap();
    }
    outbox::put(&mut tx, "later", None, now + Duration::from_secs(60))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for expected in [vec!["5", "4", "3"], vec!["2", "1"], vec![]] {
        let rows = outbox::claim(&db, &clock, 3, LEASE).await.unwrap();
        let subjects: Vec<&str> = rows.iter().map(|row| &*row.subject).collect();
        assert_eq!(subjects, expected);
    }
}

#[tokio::test]
async fn a_claim_whose_lease_ran_out_cannot_complete() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let id = put(&db, &clock, "charge-1").await;
    let late = outbox::claim(&db, &clock, 1, NO_LEASE)
        .await
        .unwrap()
        .remove(0);
    let holder = outbox::claim(&db, &clock, 1, LEASE)
        .await
        .unwrap()
        .remove(0);
    assert_eq!((holder.id, holder.attempts), (id, 2));
    let again = RowEnd {
        due: Some(clock.now()),
        ..relayed(&late)
    };
    assert_eq!(
        RowEnd::run_set(&db, &[relayed(&late)]).await.unwrap(),
        [Update::NotThere]
    );
    assert_eq!(
        RowEnd::run_set(&db, &[again]).await.unwrap(),
        [Update::NotThere]
    );
    assert!(
        outbox::claim(&db, &clock, 1, LEASE)
            .await
            .unwrap()
            .is_empty()
    );
    let set = [relayed(&late), relayed(&holder)];
    assert_eq!(
        RowEnd::run_set(&db, &set).await.unwrap(),
        [Update::NotThere, Update::Updated]
    );
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
    assert!(
        outbox::claim(&db, &clock, 1, LEASE)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn in_a_set_each_row_is_completed_under_its_own_claim() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    for subject in ["relayed", "lost", "failed", "lost and failed"] {
        put(&db, &clock, subject).await;
    }
    let late = outbox::claim(&db, &clock, 4, NO_LEASE).await.unwrap();
    let held = outbox::claim(&db, &clock, 4, LEASE).await.unwrap();
    let due = clock.now() + Duration::from_secs(60);
    let end = |row: &Row, due| RowEnd {
        due,
        ..relayed(row)
    };
    let set = [
        end(&held[0], None),
        end(&late[1], None),
        end(&held[2], Some(due)),
        end(&late[3], Some(due)),
    ];
    assert_eq!(
        RowEnd::run_set(&db, &set).await.unwrap(),
        [
            Update::Updated,
            Update::NotThere,
            Update::Updated,
            Update::NotThere
        ]
    );
    assert_eq!(outbox::len(&db).await.unwrap(), 3);
    assert_eq!(outbox::next_due(&db, &clock).await.unwrap(), Some(due));
    let set = [relayed(&held[1]), relayed(&held[2]), relayed(&held[3])];
    assert_eq!(
        RowEnd::run_set(&db, &set).await.unwrap(),
        [Update::Updated, Update::NotThere, Update::Updated]
    );
}

#[tokio::test]
async fn one_of_16_claims_of_one_row_wins() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    put(&db, &clock, "charge-1").await;
    let mut claimers = JoinSet::new();
    for _ in 0..16 {
        let (db, clock) = (db.clone(), clock.clone());
        claimers.spawn(async move { outbox::claim(&db, &clock, 1, LEASE).await.unwrap().len() });
    }
    assert_eq!(claimers.join_all().await.into_iter().sum::<usize>(), 1);
}

#[tokio::test]
async fn a_row_let_go_waits_until_it_is_due_again() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    put(&db, &clock, "charge-1").await;
    let row = outbox::claim(&db, &clock, 1, LEASE)
        .await
        .unwrap()
        .remove(0);
    let due = clock.now() + Duration::from_secs(60);
    let again = RowEnd {
        due: Some(due),
        ..relayed(&row)
    };
    assert_eq!(
        RowEnd::run_set(&db, &[again]).await.unwrap(),
        [Update::Updated]
    );
    assert_eq!(outbox::next_due(&db, &clock).await.unwrap(), Some(due));
    assert!(
        outbox::claim(&db, &clock, 1, LEASE)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        RowEnd::run_set(&db, &[relayed(&row)]).await.unwrap(),
        [Update::NotThere]
    );
    assert_eq!(outbox::len(&db).await.unwrap(), 1);
}

#[tokio::test]
async fn leases_of_the_process_before_end_at_start_where_there_is_one_process() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    put(&db, &clock, "charge-1").await;
    let before = outbox::claim(&db, &clock, 1, LEASE)
        .await
        .unwrap()
        .remove(0);
    let schema = Schema {
        migrations: migrations([(1, "outbox", outbox::DDL)]),
        release_leases: &[outbox::RELEASE_LEASES],
    };
    db.release_leases(&schema).await.unwrap();
    let claimed = outbox::claim(&db, &clock, 1, LEASE).await.unwrap();
    assert_eq!(claimed.len(), usize::from(!db.is_postgres()));
    let kept = if db.is_postgres() {
        Update::Updated
    } else {
        Update::NotThere
    };
    let recorded = RowEnd::run_set(&db, &[relayed(&before)]).await;
    assert_eq!(recorded.unwrap(), [kept]);
}

#[test]
fn the_wait_between_tries_doubles_up_to_half_a_minute() {
    let waits = [1, 2, 3, 4, 8, 9, 10, i64::MAX].map(|n| outbox::backoff(n).as_millis());
    assert_eq!(
        waits,
        [200, 400, 800, 1_600, 25_600, 30_000, 30_000, 30_000]
    );
}
