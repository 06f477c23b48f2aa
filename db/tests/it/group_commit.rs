//! Writes that share a transaction.

use std::{
    io,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use chassis::{shutdown::Tasks, testing::until};
use db::{Db, GroupCommit, Grouped, testing::TestDb};
use futures::future::join_all;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::database;

const DEADLINE: Duration = Duration::from_secs(10);

/// A number that is written once it may go on, and in no set with one that is bad.
#[derive(Clone)]
struct Number {
    number: u32,
    sets: Arc<Mutex<Vec<Vec<u32>>>>,
    go_on: Arc<Semaphore>,
}

/// Cannot be written.
const BAD: u32 = 13;

/// The database stalls when this is to be written.
const AWAY: u32 = 14;

/// There is no connection when this is to be written.
const NO_CONNECTION: u32 = 16;

/// The connection on which this is first to be written is dead.
const LOST: u32 = 17;

/// Writing this panics.
const PANICS: u32 = 15;

impl Number {
    fn new(written_max: usize) -> Self {
        Self {
            number: 0,
            sets: Arc::default(),
            go_on: Arc::new(Semaphore::new(written_max)),
        }
    }

    fn with(&self, number: u32) -> Self {
        Self {
            number,
            ..self.clone()
        }
    }

    fn sets(&self) -> Vec<Vec<u32>> {
        self.sets.lock().unwrap().clone()
    }
}

impl Grouped for Number {
    type Outcome = u32;

    async fn run_set(_: &Db, set: &[Self]) -> db::Result<Vec<u32>> {
        let numbers: Vec<u32> = set.iter().map(|item| item.number).collect();
        let sets = {
            let mut sets = set[0].sets.lock().unwrap();
            sets.push(numbers.clone());
            sets.len()
        };
        if numbers.contains(&LOST) && sets == 1 {
            return Err(db::Error::Io(io::ErrorKind::ConnectionReset.into()));
        }
        if numbers.contains(&BAD) {
            return Err(db::Error::RowNotFound);
        }
        if numbers.contains(&AWAY) {
            return Err(db::Error::Io(io::ErrorKind::TimedOut.into()));
        }
        if numbers.contains(&NO_CONNECTION) {
            return Err(db::Error::PoolTimedOut);
        }
        assert!(!numbers.contains(&PANICS), "as it must");
        set[0].go_on.acquire().await.unwrap().forget();
        Ok(numbers)
    }
}

async fn group() -> (TestDb, Tasks, GroupCommit<Number>) {
    let (test, db) = database().await;
    let tasks = Tasks::new();
    let group = GroupCommit::new(&db, &tasks);
    (test, tasks, group)
}

#[tokio::test]
async fn what_arrives_while_a_set_is_written_is_the_next_set() {
    let (_test, _tasks, group) = group().await;
    let any = Number::new(0);
    let mut first = Box::pin(group.run(any.with(1)));
    assert!(futures::poll!(&mut first).is_pending());
    until("it is being written", async || any.sets().len() == 1).await;
    let mut waiting = vec![first];
    for number in 2..=6 {
        let mut write = Box::pin(group.run(any.with(number)));
        assert!(futures::poll!(&mut write).is_pending());
        waiting.push(write);
    }
    any.go_on.add_permits(2);
    let written = join_all(waiting).await;
    let written: Vec<u32> = written.into_iter().map(Result::unwrap).collect();
    assert_eq!(written, [1, 2, 3, 4, 5, 6]);
    assert_eq!(any.sets(), [vec![1], vec![2, 3, 4, 5, 6]]);
}

#[tokio::test]
async fn a_set_that_stalls_holds_up_none_after_it() {
    let (_test, _tasks, group) = group().await;
    let stalled = Number::new(0);
    let mut first = Box::pin(group.run(stalled.clone()));
    assert!(futures::poll!(&mut first).is_pending());
    until("it is being written", async || stalled.sets().len() == 1).await;
    let any = Number::new(2);
    for number in 1..=2 {
        assert_eq!(group.run(any.with(number)).await.unwrap(), number);
    }
    stalled.go_on.add_permits(1);
    assert_eq!(first.await.unwrap(), 0);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_left_out() {
    let (_test, tasks, group) = group().await;
    let any = Number::new(0);
    let writes = (100..240).map(|number| group.run(any.with(number)));
    let mut waiting: Vec<_> = writes.map(Box::pin).collect();
    for write in &mut waiting {
        assert!(futures::poll!(write).is_pending());
    }
    until("two sets are being written", async || any.sets().len() == 2).await;
    let last = waiting.pop().unwrap();
    drop(waiting);
    any.go_on.add_permits(140);
    assert_eq!(last.await.unwrap(), 239);
    tasks.drain(DEADLINE).await;
    let sets: Vec<usize> = any.sets().iter().map(Vec::len).collect();
    assert_eq!(sets, [64, 64, 1], "whoever goes cuts off no set");
}

#[tokio::test]
async fn more_than_may_wait_are_refused_at_once() {
    let (_test, _tasks, group) = group().await;
    let any = Number::new(0);
    let mut waiting = Vec::new();
    let refused = loop {
        let mut write = Box::pin(group.run(any.with(1)));
        match futures::poll!(&mut write) {
            Poll::Ready(refused) => break refused,
            Poll::Pending => waiting.push(write),
        }
        assert!(waiting.len() < 2_000);
    };
    assert!(
        matches!(refused, Err(db::Error::PoolTimedOut)),
        "{refused:?}"
    );
    any.go_on.add_permits(waiting.len());
    for written in join_all(waiting).await {
        assert_eq!(written.unwrap(), 1);
    }
}

#[tokio::test]
async fn after_a_panic_the_next_are_written() {
    let (_test, _tasks, group) = group().await;
    let any = Number::new(2);
    for _ in 0..4 {
        let lost = group.run(any.with(PANICS)).await;
        assert!(matches!(lost, Err(db::Error::WorkerCrashed)), "{lost:?}");
    }
    assert_eq!(group.run(any.with(1)).await.unwrap(), 1);
    assert_eq!(group.run(any.with(2)).await.unwrap(), 2);
}

/// Checks which of a set are written, and in which sets.
async fn check_written(numbers: [u32; 3], written: [bool; 3], sets: &[&[u32]]) {
    let (_test, _tasks, group) = group().await;
    let any = Number::new(3);
    let set = numbers.map(|number| any.with(number));
    let outcomes = group.run_set(&set).await;
    let outcomes: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(outcomes, written);
    assert_eq!(any.sets(), sets);
}

#[tokio::test]
async fn one_that_cannot_be_written_holds_up_no_other() {
    let sets: &[&[u32]] = &[&[1, BAD, 2], &[1], &[BAD], &[2]];
    check_written([1, BAD, 2], [true, false, true], sets).await;
}

#[tokio::test]
async fn while_the_database_is_away_none_waits_for_another() {
    let sets: &[&[u32]] = &[&[1, AWAY, 2], &[1], &[AWAY]];
    check_written([1, AWAY, 2], [true, false, false], sets).await;
}

#[tokio::test]
async fn after_a_dead_connection_the_set_is_written_on_another() {
    let sets: &[&[u32]] = &[&[1, LOST, 2], &[1, LOST, 2]];
    check_written([1, LOST, 2], [true; 3], sets).await;
}

#[tokio::test]
async fn without_a_connection_nothing_is_tried_again() {
    let sets: &[&[u32]] = &[&[1, NO_CONNECTION, 2]];
    check_written([1, NO_CONNECTION, 2], [false; 3], sets).await;
}

/// Opens an account in the name of how long its statement waits for a lock.
struct Patience;

impl Grouped for Patience {
    type Outcome = ();

    async fn run_set(db: &Db, set: &[Self]) -> db::Result<Vec<()>> {
        let wait = db.joint().sql(
            "insert into account (id, name, balance, is_open)
             values ($1, current_setting('lock_timeout'), 0, true)",
        );
        wait.bind(Uuid::now_v7()).run().await?;
        Ok(set.iter().map(|_| ()).collect())
    }
}

/// Only PostgreSQL has row locks.
#[tokio::test]
async fn a_statement_of_strangers_waits_for_a_lock_only_for_a_moment() {
    let (_test, db) = database().await;
    if !db.is_postgres() {
        return;
    }
    let group = GroupCommit::new(&db, &Tasks::new());
    for written in group.run_set(&[Patience, Patience]).await {
        written.unwrap();
    }
    group.run(Patience).await.unwrap();
    let mut conn = db.read().await.unwrap();
    let names = conn.sql("select name from account order by name");
    let names: Vec<(String,)> = names.all().await.unwrap();
    assert_eq!(names, [("250ms".to_owned(),), ("2s".to_owned(),)]);
}
