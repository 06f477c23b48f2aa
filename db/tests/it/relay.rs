//! The relay of the outbox.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{
    clock::Clock,
    shutdown::{Shutdown, Tasks},
    testing::until,
};
use db::{
    Db, Relay, RelayOutcome, Telling,
    outbox::{self, NewRow, Row},
    work,
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::database;

const LEASE: Duration = Duration::from_secs(60);

/// What a writer knows about the subject.
type Known = &'static str;

/// A clock that can be moved.
fn travelling() -> Clock {
    let file = std::env::temp_dir().join(format!("clock-{}", Uuid::new_v4()));
    Clock::travelling(file).unwrap()
}

async fn put(db: &Db, clock: &Clock, subject: &str) -> Uuid {
    let mut tx = db.begin().await.unwrap();
    let put = outbox::put(&mut tx, subject, Some("evt_1"), clock.now()).await;
    tx.commit().await.unwrap();
    put.unwrap()
}

/// Commits a row that the relay holds, and tells it.
async fn tell(db: &Db, clock: &Clock, relay: &Relay<Known>) -> Telling {
    let row = relay.row("charge-1", Some("evt_1"), clock.now());
    let mut tx = db.begin().await.unwrap();
    row.put(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    relay.tell(row, "known")
}

/// A relay whose loop runs until it is stopped.
struct RelayLoop {
    db: Db,
    relay: Relay<Known>,
    shutdown: Shutdown,
    tasks: Tasks,
}

impl RelayLoop {
    fn start<H, F>(db: &Db, clock: &Clock, lease: Duration, handler: H) -> Self
    where
        H: Fn(Row, Option<Known>) -> F + Send + Sync + 'static,
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
    let running = RelayLoop::start(&db, &clock, LEASE, move |row, _| {
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
    let running = RelayLoop::start(&db, &clock, lease, |row, _| async move {
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
async fn a_writer_tells_its_own_row_from_memory() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let (tasks, worker) = (Tasks::new(), clock.worker("relay"));
    let relay = Relay::new(
        &db,
        &clock,
        &worker,
        &tasks,
        LEASE,
        |row, known| async move {
            anyhow::ensure!(row.attempts == 1 && row.event_id.as_deref() == Some("evt_1"));
            anyhow::ensure!(known == Some("known"), "it was read from the store");
            Ok(())
        },
    );
    let telling = tell(&db, &clock, &relay).await;
    assert_eq!(telling.within(LEASE).await, RelayOutcome::Acknowledged);
    tasks.drain(LEASE).await;
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
}

#[tokio::test]
async fn a_row_that_failed_is_due_for_the_loop_before_the_request_ends() {
    let (_test, db) = database().await;
    let clock = travelling();
    let running = RelayLoop::start(&db, &clock, LEASE, |row, known| async move {
        anyhow::ensure!(row.attempts > 1, "not yet");
        anyhow::ensure!(known.is_none(), "the loop reads what is so now");
        Ok(())
    });
    let request = clock.activity();
    let telling = tell(&db, &clock, &running.relay).await;
    assert_eq!(telling.within(LEASE).await, RelayOutcome::Later);
    assert_eq!(outbox::len(&db).await.unwrap(), 1);
    drop(request);
    clock.advance(Duration::from_secs(1)).await.unwrap();
    assert!(running.is_empty().await);
    running.stop().await;
}

/// A relay whose receiver acknowledges nothing before it may go on.
fn waiting_relay(db: &Db, clock: &Clock, tasks: &Tasks, go_on: &Arc<Notify>) -> Relay<Known> {
    let waits = Arc::clone(go_on);
    let worker = clock.worker("relay");
    Relay::new(db, clock, &worker, tasks, LEASE, move |_row, _| {
        let go_on = waits.clone();
        async move {
            go_on.notified().await;
            Ok(())
        }
    })
}

#[tokio::test]
async fn a_relay_goes_on_after_its_request_stopped_waiting() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let (tasks, go_on) = (Tasks::new(), Arc::default());
    let relay = waiting_relay(&db, &clock, &tasks, &go_on);
    let telling = tell(&db, &clock, &relay).await;
    let told = telling.within(Duration::from_millis(1)).await;
    assert_eq!(told, RelayOutcome::Later);
    assert_eq!(outbox::len(&db).await.unwrap(), 1);
    go_on.notify_one();
    tasks.drain(LEASE).await;
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
}

/// Somebody else has the row locked, so that it cannot leave the outbox.
#[tokio::test]
async fn whoever_waits_learns_that_it_is_acknowledged_before_it_is_recorded() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let (tasks, go_on) = (Tasks::new(), Arc::default());
    let relay = waiting_relay(&db, &clock, &tasks, &go_on);
    let telling = tell(&db, &clock, &relay).await;
    let mut tx = db.begin().await.unwrap();
    let lock = tx.sql("update outbox set attempts = attempts");
    assert_eq!(lock.rows_affected().await.unwrap(), 1);
    go_on.notify_one();
    assert_eq!(telling.within(LEASE).await, RelayOutcome::Acknowledged);
    drop(tx);
    tasks.drain(LEASE).await;
    assert_eq!(outbox::len(&db).await.unwrap(), 0);
}

#[tokio::test]
async fn a_row_whose_writer_died_after_the_commit_is_told_by_another() {
    let (test, db) = database().await;
    let others_db = test.connect().await;
    let clock = Clock::system();
    let (tasks, worker) = (Tasks::new(), clock.worker("relay"));
    let dying = Relay::new(
        &db,
        &clock,
        &worker,
        &tasks,
        Duration::from_millis(300),
        |_row, _: Option<Known>| std::future::ready(Ok(())),
    );
    let row = dying.row("charge-1", Some("evt_1"), clock.now());
    let mut tx = db.begin().await.unwrap();
    row.put(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    std::mem::forget(row);
    let told = Arc::new(AtomicBool::new(false));
    let tells = told.clone();
    let other = RelayLoop::start(&others_db, &clock, LEASE, move |row, known| {
        let is_as_written = (row.attempts, row.event_id.as_deref()) == (2, Some("evt_1"));
        tells.store(is_as_written && known.is_none(), Ordering::SeqCst);
        std::future::ready(Ok(()))
    });
    until("another has told it", || other.is_empty()).await;
    assert!(told.load(Ordering::SeqCst));
    other.stop().await;
}

#[tokio::test]
async fn a_row_that_its_writer_does_not_tell_is_left_to_the_loop() {
    let (_test, db) = database().await;
    let clock = travelling();
    let running = RelayLoop::start(&db, &clock, LEASE, |_row, known| async move {
        anyhow::ensure!(known.is_none(), "nobody told it");
        Ok(())
    });
    for is_committed in [false, true] {
        let request = clock.activity();
        let row = running.relay.row("charge-1", None, clock.now());
        let mut tx = db.begin().await.unwrap();
        row.put(&mut tx).await.unwrap();
        if is_committed {
            tx.commit().await.unwrap();
        } else {
            drop(tx);
        }
        // The answer to the commit was lost, say.
        drop((row, request));
        clock.advance(Duration::ZERO).await.unwrap();
        assert!(running.is_empty().await, "{is_committed}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_writer_holds_no_more_rows_than_it_may_and_the_loop_finds_the_rest() {
    const WRITTEN: usize = 300;
    let (_test, db) = database().await;
    let clock = Clock::system();
    let from_memory = Arc::new(AtomicUsize::new(0));
    let go_on = Arc::new(Notify::new());
    let (counts, waits) = (from_memory.clone(), go_on.clone());
    let running = RelayLoop::start(&db, &clock, LEASE, move |_row, known| {
        let (from_memory, go_on) = (counts.clone(), waits.clone());
        async move {
            if known.is_some() {
                from_memory.fetch_add(1, Ordering::SeqCst);
                go_on.notified().await;
            }
            Ok(())
        }
    });
    for _ in 0..WRITTEN {
        drop(tell(&db, &clock, &running.relay).await);
    }
    until("the loop has told the rest", async || {
        outbox::len(&db).await.unwrap() == 256
    })
    .await;
    assert_eq!(from_memory.load(Ordering::SeqCst), 256);
    go_on.notify_waiters();
    until("everything is told", || running.is_empty()).await;
    let again = tell(&db, &clock, &running.relay).await;
    go_on.notify_one();
    assert_eq!(again.within(LEASE).await, RelayOutcome::Acknowledged);
    running.stop().await;
}

#[tokio::test]
async fn a_backlog_is_relayed_in_sets() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    // SQLite commits each set with a sync.
    let written = if db.is_postgres() { 20_000 } else { 2_000 };
    let rows = (0..written).map(|_| NewRow::new("charge-1", None, clock.now()));
    let rows: Vec<NewRow> = rows.collect();
    for rows in rows.chunks(1_000) {
        let mut tx = db.begin().await.unwrap();
        let rows: Vec<&NewRow> = rows.iter().collect();
        outbox::put_set(tx.joint(), &rows).run().await.unwrap();
        tx.commit().await.unwrap();
    }
    let seen = Arc::new(Mutex::new((0, HashSet::new())));
    let sees = seen.clone();
    let running = RelayLoop::start(&db, &clock, LEASE, move |row, _| {
        let mut seen = sees.lock().unwrap();
        seen.0 += 1;
        seen.1.insert(row.claim);
        std::future::ready(Ok(()))
    });
    let is_seen = async || seen.lock().unwrap().0 == written;
    tokio::time::timeout(Duration::from_secs(120), async {
        while !is_seen().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    let (told, claims) = (written, seen.lock().unwrap().1.len());
    assert!(claims <= told / 4, "{claims} claims for {told} rows");
    until("everything is deleted", || running.is_empty()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_row_whose_lease_is_over_is_not_handed_on() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let handed_on = Arc::new(AtomicBool::new(false));
    let (worker, seen) = (clock.worker("relay"), handed_on.clone());
    let over = Duration::ZERO;
    let relay = Relay::new(&db, &clock, &worker, &Tasks::new(), over, move |_row, _| {
        seen.store(true, Ordering::SeqCst);
        async { Ok(()) }
    });
    let telling = tell(&db, &clock, &relay).await;
    let wait = Duration::from_secs(10);
    assert_eq!(telling.within(wait).await, RelayOutcome::Later);
    assert!(!handed_on.load(Ordering::SeqCst));
    assert_eq!(outbox::len(&db).await.unwrap(), 1, "it waits for another");
}

#[tokio::test]
async fn a_relay_that_stops_ends_what_it_began() {
    let (_test, db) = database().await;
    let clock = Clock::system();
    let begun = Arc::new(Notify::new());
    let go_on = Arc::new(Notify::new());
    let (begins, waits) = (begun.clone(), go_on.clone());
    put(&db, &clock, "charge-1").await;
    let running = RelayLoop::start(&db, &clock, LEASE, move |_row, _| {
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
