//! The outbox and its relay.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{
    clock::Clock,
    shutdown::{Shutdown, Tasks},
    testing::until,
};
use db::{
    Db, Grouped as _, Relay, RelayOutcome, Schema, Update,
    outbox::{self, Row, RowEnd},
    testing::TestDb,
    work,
};
use tokio::{sync::Notify, task::JoinSet};
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

/// A clock that can be moved.
fn travelling() -> Clock {
    let file = std::env::temp_dir().join(format!("clock-{}", Uuid::new_v4()));
    Clock::travelling(file).unwrap()
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
        RowEnd::write(&db, &[relayed(&rows[0])]).await.unwrap(),
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
    let late = outbox::claim_one(&db, &clock, id, NO_LEASE)
        .await
        .unwrap()
        .unwrap();
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
        RowEnd::write(&db, &[relayed(&late)]).await.unwrap(),
        [Update::NotThere]
    );
    assert_eq!(
        RowEnd::write(&db, &[again]).await.unwrap(),
        [Update::NotThere]
    );
    assert!(
        outbox::claim_one(&db, &clock, id, LEASE)
            .await
            .unwrap()
            .is_none()
    );
    let set = [relayed(&late), relayed(&holder)];
    assert_eq!(
        RowEnd::write(&db, &set).await.unwrap(),
        [Update::NotThere, Update::Updated]
    );
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
    assert!(
        outbox::claim_one(&db, &clock, id, LEASE)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn one_of_16_claims_of_one_row_wins() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let id = put(&db, &clock, "charge-1").await;
    let mut claimers = JoinSet::new();
    for number in 0..16 {
        let (db, clock) = (db.clone(), clock.clone());
        claimers.spawn(async move {
            if number % 2 == 0 {
                return outbox::claim(&db, &clock, 1, LEASE).await.unwrap().len();
            }
            usize::from(
                outbox::claim_one(&db, &clock, id, LEASE)
                    .await
                    .unwrap()
                    .is_some(),
            )
        });
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
        RowEnd::write(&db, &[again]).await.unwrap(),
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
        RowEnd::write(&db, &[relayed(&row)]).await.unwrap(),
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
    let recorded = RowEnd::write(&db, &[relayed(&before)]).await;
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

/// A relay whose loop runs until it is stopped.
struct RelayLoop {
    db: Db,
    relay: Relay,
    shutdown: Shutdown,
    tasks: Tasks,
}

impl RelayLoop {
    fn start<H, F>(db: &Db, clock: &Clock, lease: Duration, handler: H) -> Self
    where
        H: Fn(Row) -> F + Send + Sync + 'static,
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (shutdown, tasks) = (Shutdown::new(), Tasks::new());
        let worker = clock.worker("relay");
        let relay = Relay::new(db, clock, &worker, &tasks, lease, handler);
        let working = work::run(relay.clone(), worker, clock.clone(), shutdown.clone());
        tasks.spawn(working);
        let db = db.clone();
        Self {
            db,
            relay,
            shutdown,
            tasks,
        }
    }

    async fn is_empty(&self) -> bool {
        outbox::len(&self.db).await.unwrap() == 0
    }

    async fn stop(self) {
        self.shutdown.begin();
        self.tasks.drain(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn a_relay_hands_on_everything_and_tries_again_what_failed() {
    let (_test, db) = database().await;
    let clock = travelling();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let running = RelayLoop::start(&db, &clock, LEASE, move |row| {
        let tries = counted.clone();
        async move {
            tries.fetch_add(1, Ordering::SeqCst);
            anyhow::ensure!(
                row.subject != "fails 3 times" || row.attempts > 3,
                "not yet"
            );
            Ok(())
        }
    });
    for number in 0..40 {
        put(&db, &clock, &number.to_string()).await;
    }
    put(&db, &clock, "fails 3 times").await;
    running.relay.ring();
    // It waits 0.2 + 0.4 + 0.8 s, none of it in real time.
    clock.advance(Duration::from_secs(5)).await.unwrap();
    assert!(running.is_empty().await);
    assert_eq!(tries.load(Ordering::SeqCst), 44);
    running.stop().await;
}

#[tokio::test]
async fn a_handler_that_panics_or_hangs_holds_up_nothing_but_its_row() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    for subject in ["panics", "hangs", "works"] {
        put(&db, &clock, subject).await;
    }
    let lease = Duration::from_millis(300);
    let running = RelayLoop::start(&db, &clock, lease, |row| async move {
        match (&*row.subject, row.attempts) {
            ("panics", 1) => panic!("on purpose"),
            ("hangs", 1) => std::future::pending().await,
            _ => Ok(()),
        }
    });
    until("everything is relayed", || running.is_empty()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_request_relays_its_own_row_at_once() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let (tasks, worker) = (Tasks::new(), clock.worker("relay"));
    let relay = Relay::new(&db, &clock, &worker, &tasks, LEASE, |row| async move {
        anyhow::ensure!(row.attempts > 1, "not yet");
        Ok(())
    });
    let id = put(&db, &clock, "charge-1").await;
    assert_eq!(relay.at_once(id, LEASE).await, RelayOutcome::Later);
    assert_eq!(outbox::len(&db).await.unwrap(), 1);
    assert_eq!(relay.at_once(id, LEASE).await, RelayOutcome::Acknowledged);
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
    assert_eq!(relay.at_once(id, LEASE).await, RelayOutcome::Later);
}

#[tokio::test]
async fn a_row_that_failed_at_once_is_due_for_the_loop_before_the_request_ends() {
    let (_test, db) = database().await;
    let clock = travelling();
    let running = RelayLoop::start(&db, &clock, LEASE, |row| async move {
        anyhow::ensure!(row.attempts > 1, "not yet");
        Ok(())
    });
    let request = clock.activity();
    // Not yet due for the loop, so the request tries it first.
    let mut tx = db.begin().await.unwrap();
    let later = clock.now() + Duration::from_secs(60);
    let id = outbox::put(&mut tx, "charge-1", None, later).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(running.relay.at_once(id, LEASE).await, RelayOutcome::Later);
    drop(request);
    clock.advance(Duration::from_secs(1)).await.unwrap();
    assert!(running.is_empty().await);
    running.stop().await;
}

#[tokio::test]
async fn a_relay_goes_on_after_its_request_stopped_waiting() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let (tasks, worker) = (Tasks::new(), clock.worker("relay"));
    let go_on = Arc::new(Notify::new());
    let waits = go_on.clone();
    let relay = Relay::new(&db, &clock, &worker, &tasks, LEASE, move |_row| {
        let go_on = waits.clone();
        async move {
            go_on.notified().await;
            Ok(())
        }
    });
    let id = put(&db, &clock, "charge-1").await;
    assert_eq!(
        relay.at_once(id, Duration::from_millis(1)).await,
        RelayOutcome::Later
    );
    assert_eq!(outbox::len(&db).await.unwrap(), 1);
    go_on.notify_one();
    tasks.drain(LEASE).await;
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
}

#[tokio::test]
async fn a_relay_that_stops_ends_what_it_began() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let begun = Arc::new(Notify::new());
    let go_on = Arc::new(Notify::new());
    let (begins, waits) = (begun.clone(), go_on.clone());
    put(&db, &clock, "charge-1").await;
    let running = RelayLoop::start(&db, &clock, LEASE, move |_row| {
        let (begun, go_on) = (begins.clone(), waits.clone());
        async move {
            begun.notify_one();
            go_on.notified().await;
            Ok(())
        }
    });
    begun.notified().await;
    running.shutdown.begin();
    go_on.notify_one();
    running.stop().await;
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
}
