//! The loop behind all background work.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{
    clock::{Clock, Timestamp},
    shutdown::{Shutdown, Tasks},
    testing::until,
};
use db::{
    Db, Update,
    work::{self, End, EndRecorder, TaskSet, Work},
};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

use crate::database;

const DEADLINE: Duration = Duration::from_secs(10);

/// What each call of `claim` does, in order; after these, nothing is due.
enum Look {
    Starts(Task),
    Errs,
    Panics,
}

enum Task {
    Ends,
    Panics,
    Hangs,
}

#[derive(Clone)]
struct Script {
    looks: Arc<Mutex<VecDeque<Look>>>,
    looked: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Work for Script {
    fn running_max(&self) -> usize {
        2
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Option<Timestamp>> {
        self.looked.fetch_add(1, Ordering::SeqCst);
        assert!(tasks.room() > 0, "it looks only where there is room");
        let look = self.looks.lock().unwrap().pop_front();
        let task = match look {
            Some(Look::Starts(task)) => task,
            Some(Look::Errs) => anyhow::bail!("the store is away"),
            Some(Look::Panics) => panic!("on purpose"),
            None => return Ok(None),
        };
        let ended = self.ended.clone();
        tasks.start(async move {
            match task {
                Task::Ends => {}
                Task::Panics => panic!("on purpose"),
                Task::Hangs => std::future::pending().await,
            }
            ended.fetch_add(1, Ordering::SeqCst);
        });
        Ok(None)
    }
}

struct Loop {
    script: Script,
    clock: Clock,
    shutdown: Shutdown,
    works: JoinSet<()>,
}

impl Loop {
    fn start<const N: usize>(looks: [Look; N]) -> Self {
        let script = Script {
            looks: Arc::new(Mutex::new(looks.into())),
            looked: Arc::default(),
            ended: Arc::default(),
        };
        let (clock, shutdown, mut works) = (Clock::system(), Shutdown::new(), JoinSet::new());
        let worker = clock.worker("script");
        let working = work::run(script.clone(), worker, clock.clone(), shutdown.clone());
        works.spawn(working);
        Self {
            script,
            clock,
            shutdown,
            works,
        }
    }

    async fn until_ended(&self, count: usize) {
        let ended = &self.script.ended;
        let has_ended = async || ended.load(Ordering::SeqCst) == count;
        until("the tasks have ended", has_ended).await;
    }

    async fn stop(self) {
        self.shutdown.begin();
        work::drain(self.works, DEADLINE).await;
    }
}

#[tokio::test]
async fn a_task_that_panics_takes_nothing_with_it() {
    let looks = [Task::Panics, Task::Panics, Task::Panics, Task::Ends];
    let running = Loop::start(looks.map(Look::Starts));
    running.until_ended(1).await;
    let is_quiet = async || !running.clock.is_busy();
    until("nothing keeps time travel waiting", is_quiet).await;
    running.stop().await;
}

#[tokio::test]
async fn a_look_that_fails_or_panics_is_not_the_last() {
    let running = Loop::start([Look::Errs, Look::Panics, Look::Starts(Task::Ends)]);
    running.until_ended(1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_without_room_does_not_look() {
    let looks = [Task::Hangs, Task::Hangs, Task::Ends];
    let running = Loop::start(looks.map(Look::Starts));
    let looked = running.script.looked.clone();
    until("it is full", async || looked.load(Ordering::SeqCst) == 2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(looked.load(Ordering::SeqCst), 2);
    assert!(running.clock.is_busy());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_hangs_holds_up_the_end_no_longer_than_the_deadline() {
    let running = Loop::start([Look::Starts(Task::Hangs), Look::Starts(Task::Ends)]);
    running.until_ended(1).await;
    running.shutdown.begin();
    // Calls are still served: the deadline counts from when none is left.
    tokio::time::sleep(DEADLINE * 2).await;
    assert!(running.clock.is_busy(), "it goes on");
    let (clock, begun) = (running.clock.clone(), Instant::now());
    running.stop().await;
    assert!((DEADLINE..DEADLINE * 2).contains(&begun.elapsed()));
    assert!(!clock.is_busy(), "what hung was cut off");
}

/// An end that is recorded once it may go on, and in no set with a number that is bad.
#[derive(Clone)]
struct Number {
    number: u32,
    sets: Arc<Mutex<Vec<Vec<u32>>>>,
    go_on: Arc<Semaphore>,
}

/// Cannot be recorded.
const BAD: u32 = 13;

/// The database is away when this is to be recorded.
const AWAY: u32 = 14;

impl Number {
    fn new(number: u32, recorded_max: usize) -> Self {
        Self {
            number,
            sets: Arc::default(),
            go_on: Arc::new(Semaphore::new(recorded_max)),
        }
    }

    fn sets(&self) -> Vec<Vec<u32>> {
        self.sets.lock().unwrap().clone()
    }
}

impl End for Number {
    async fn write(_: &Db, set: &[Self]) -> db::Result<Vec<Update>> {
        let numbers: Vec<u32> = set.iter().map(|end| end.number).collect();
        set[0].sets.lock().unwrap().push(numbers.clone());
        if numbers.contains(&BAD) {
            return Err(db::Error::RowNotFound);
        }
        if numbers.contains(&AWAY) {
            return Err(db::Error::PoolTimedOut);
        }
        set[0].go_on.acquire().await.unwrap().forget();
        Ok(vec![Update::Updated; set.len()])
    }
}

#[tokio::test]
async fn what_ends_while_a_set_is_recorded_is_the_next_set() {
    let (_test, db) = database().await;
    let ends = Arc::new(EndRecorder::new(&db));
    let first = Number::new(1, 0);
    let tasks = Tasks::new();
    for number in 1..=4 {
        let end = Number {
            number,
            ..first.clone()
        };
        let ends = ends.clone();
        tasks.spawn(async move {
            assert_eq!(ends.record(end).await.unwrap(), Update::Updated);
        });
        let is_first_seen = async || !first.sets().is_empty();
        until("the first is being recorded", is_first_seen).await;
        // Lets the others start waiting.
        tokio::task::yield_now().await;
    }
    first.go_on.add_permits(1);
    until("the next set", async || first.sets().len() == 2).await;
    first.go_on.add_permits(1);
    tasks.drain(DEADLINE).await;
    assert_eq!(first.sets(), [vec![1], vec![2, 3, 4]]);
}

#[tokio::test]
async fn an_end_is_recorded_although_nobody_waits_for_those_before_it_any_more() {
    let (_test, db) = database().await;
    let recorder = EndRecorder::new(&db);
    let first = Number::new(0, 0);
    let ends = (100..170).map(|number| Number {
        number,
        ..first.clone()
    });
    let mut waiting: Vec<_> = ends.map(|end| Box::pin(recorder.record(end))).collect();
    for end in &mut waiting {
        assert!(futures::poll!(end).is_pending());
    }
    let last = waiting.pop().unwrap();
    drop(waiting);
    first.go_on.add_permits(4);
    assert_eq!(last.await.unwrap(), Update::Updated);
    let sets: Vec<usize> = first.sets().iter().map(Vec::len).collect();
    assert_eq!(
        sets,
        [1, 32, 32, 5],
        "the first was cut off while it was written"
    );
}

/// Checks which of the ends of a set are recorded, and in which sets.
async fn check_recorded(numbers: [u32; 3], recorded: [bool; 3], sets: &[&[u32]]) {
    let (_test, db) = database().await;
    let first = Number::new(1, 2);
    let set = numbers.map(|number| Number {
        number,
        ..first.clone()
    });
    let results = EndRecorder::new(&db).record_set(&set).await;
    let results: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(results, recorded);
    assert_eq!(first.sets(), sets);
}

#[tokio::test]
async fn an_end_that_cannot_be_recorded_holds_up_no_other() {
    let sets: &[&[u32]] = &[&[1, BAD, 2], &[1], &[BAD], &[2]];
    check_recorded([1, BAD, 2], [true, false, true], sets).await;
}

#[tokio::test]
async fn while_the_database_is_away_no_end_waits_for_another() {
    let sets: &[&[u32]] = &[&[1, AWAY, 2], &[1], &[AWAY]];
    check_recorded([1, AWAY, 2], [true, false, false], sets).await;
}
