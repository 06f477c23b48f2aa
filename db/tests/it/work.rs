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
    shutdown::Shutdown,
    testing::until,
};
use db::work::{self, TaskSet, Work};
use tokio::{task::JoinSet, time::Instant};

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
