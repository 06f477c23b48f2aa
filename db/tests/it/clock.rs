//! Replicas whose hosts' clocks differ, on one database.

use std::time::Duration;

use chassis::{clock::Clock, testing::until};
use db::{
    Db, Grouped as _, Update,
    outbox::{self, RowEnd},
};

use crate::{database, relayed};

const LEASE: Duration = Duration::from_secs(30);

/// The clock of a replica on this database, whose host's clock is off by `skew_ms`.
async fn replica(db: &Db, skew_ms: i64) -> Clock {
    let clock = Clock::simulated(Clock::system().host_now(), skew_ms, 0);
    db.align(&clock).await.unwrap();
    clock
}

#[tokio::test]
async fn replicas_with_clocks_apart_do_not_steal_each_others_leases() {
    let (test, db) = database().await;
    if !db.is_postgres() {
        // SQLite has one host and one clock.
        return;
    }
    let others_db = test.connect().await;
    for (skew_ms, others_ms) in [(-60_000, 60_000), (60_000, -60_000)] {
        let clock = replica(&db, skew_ms).await;
        let others = replica(&others_db, others_ms).await;
        let mut tx = db.begin().await.unwrap();
        outbox::put(&mut tx, "charge-1", None, clock.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let held = outbox::claim(&db, &clock, 10, LEASE).await.unwrap();
        assert_eq!(held.len(), 1);
        let stolen = outbox::claim(&others_db, &others, 10, LEASE).await.unwrap();
        assert!(stolen.is_empty(), "{skew_ms}");
        assert_eq!(outbox::next_due(&others_db, &others).await.unwrap(), None);
        let end = relayed(&held[0]);
        assert_eq!(
            RowEnd::run_set(&db, &[end]).await.unwrap(),
            [Update::Updated]
        );
    }
}

#[tokio::test]
async fn replicas_with_clocks_apart_agree_on_what_is_due() {
    let (test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    let others_db = test.connect().await;
    for (skew_ms, others_ms) in [(-60_000, 60_000), (60_000, -60_000)] {
        let clock = replica(&db, skew_ms).await;
        let others = replica(&others_db, others_ms).await;
        let (now, later) = (clock.now(), clock.now() + Duration::from_secs(30));
        let mut tx = db.begin().await.unwrap();
        outbox::put(&mut tx, "due", None, now).await.unwrap();
        outbox::put(&mut tx, "not due", None, later).await.unwrap();
        tx.commit().await.unwrap();
        // The two clocks agree only to within the duration of a reading.
        until("what is due is claimed", || async {
            let rows = outbox::claim(&others_db, &others, 10, LEASE).await.unwrap();
            assert!(rows.iter().all(|row| row.subject == "due"), "{skew_ms}");
            for row in &rows {
                let recorded = RowEnd::run_set(&others_db, &[relayed(row)]).await;
                assert_eq!(recorded.unwrap(), [Update::Updated]);
            }
            !rows.is_empty()
        })
        .await;
        assert_eq!(outbox::len(&db).await.unwrap(), 1);
        let rest = outbox::claim(&db, &clock, 10, LEASE).await.unwrap();
        assert!(rest.is_empty(), "{skew_ms}");
        let mut tx = db.begin().await.unwrap();
        tx.sql("delete from outbox").run().await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn on_sqlite_the_hosts_time_is_the_stores() {
    let db = Db::connect("sqlite::memory:", 1).await.unwrap();
    let clock = replica(&db, 60_000).await;
    assert_eq!(clock.offset(), Duration::ZERO);
    assert!(clock.real_now() <= clock.host_now());
    assert!(clock.agrees_with_store());
}

#[tokio::test]
async fn a_host_that_goes_wrong_later_is_noticed() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    // Runs 50% fast.
    let clock = Clock::simulated(Clock::system().host_now(), 0, 500_000);
    db.align(&clock).await.unwrap();
    assert!(clock.agrees_with_store());
    let noticed = async {
        while clock.agrees_with_store() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let noticed = tokio::time::timeout(Duration::from_secs(30), noticed).await;
    assert!(noticed.is_ok());
    db.close().await;
}

#[tokio::test]
async fn a_hosts_leap_moves_nothing_and_is_followed_by_a_look() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    for leap_ms in [26 * 3_600_000, -26 * 3_600_000] {
        let (clock, others) = (replica(&db, 0).await, replica(&db, 0).await);
        let is_moved = || {
            let (now, expected) = (clock.now(), others.now());
            now.since(expected).max(expected.since(now)) > Duration::from_secs(2)
        };
        clock.step_host(leap_ms);
        assert!(clock.has_leapt() && !is_moved(), "{leap_ms}");
        assert!(!clock.agrees_with_store(), "its host is wrong");
        until("the store's clock is looked at again", || async {
            assert!(!is_moved(), "{leap_ms}");
            !clock.has_leapt()
        })
        .await;
        assert!(!clock.agrees_with_store(), "its host is still wrong");
    }
    db.close().await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_leaves_the_clock_as_it_is() {
    let (_test, db) = database().await;
    let clock = replica(&db, 60_000).await;
    let offset = clock.offset();
    let again = db.clone();
    db.close().await;
    if again.is_postgres() {
        assert!(again.align(&clock).await.is_err());
    }
    assert_eq!(clock.offset(), offset);
}
