//! The loop behind all background work.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{
    clock::{Alarm, Clock, Timestamp},
    shutdown::Shutdown,
    testing::until,
};
use db::work::{self, Claimed, TaskSet, Work};
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
    clock: Clock,
    looks: Arc<Mutex<VecDeque<Look>>>,
    looked: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Work for Script {
    fn running_max(&self) -> usize {
        2
    }

    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let is_due = !self.looks.lock().unwrap().is_empty();
        Ok(is_due.then(|| self.clock.now()))
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        self.looked.fetch_add(1, Ordering::SeqCst);
        assert!(tasks.room() > 0, "it looks only where there is room");
        let look = self.looks.lock().unwrap().pop_front();
        let task = match look {
            Some(Look::Starts(task)) => task,
            Some(Look::Errs) => anyhow::bail!("the store is away"),
            Some(Look::Panics) => panic!("on purpose"),
            None => return Ok(Claimed::All),
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
        Ok(Claimed::Part(self.clock.now()))
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
        let (clock, shutdown, mut works) = (Clock::system(), Shutdown::new(), JoinSet::new());
        let script = Script {
            clock: clock.clone(),
            looks: Arc::new(Mutex::new(looks.into())),
            looked: Arc::default(),
            ended: Arc::default(),
        };
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

/// Items that are claimed once they are due, each for a task that takes this long.
#[derive(Clone)]
struct Shelf {
    clock: Clock,
    /// Whether a look finds when they are due, or only what is told counts.
    is_looked_at: bool,
    places: usize,
    /// The items with their due times.
    items: Arc<Mutex<BTreeSet<(Timestamp, u64)>>>,
    takes: fn(u64) -> Duration,
    /// How many items each claim took.
    claims: Arc<Mutex<Vec<usize>>>,
    done: Arc<Mutex<Vec<(u64, Timestamp)>>>,
}

impl Shelf {
    fn new(clock: &Clock, places: usize, takes: fn(u64) -> Duration) -> Self {
        Self {
            clock: clock.clone(),
            is_looked_at: false,
            places,
            items: Arc::default(),
            takes,
            claims: Arc::default(),
            done: Arc::default(),
        }
    }

    fn put(&self, number: u64, due: Timestamp) {
        self.items.lock().unwrap().insert((due, number));
    }

    fn start(&self) -> (Alarm, Shutdown, JoinSet<()>) {
        let (shutdown, mut works) = (Shutdown::new(), JoinSet::new());
        let worker = self.clock.worker("shelf");
        let alarm = worker.alarm();
        let (work, clock) = (self.clone(), self.clock.clone());
        works.spawn(work::run(work, worker, clock, shutdown.clone()));
        (alarm, shutdown, works)
    }

    fn done(&self) -> usize {
        self.done.lock().unwrap().len()
    }

    fn claims(&self) -> Vec<usize> {
        self.claims.lock().unwrap().clone()
    }
}

impl Work for Shelf {
    fn running_max(&self) -> usize {
        self.places
    }

    async fn next_due(&mut self) -> anyhow::Result<Option<Timestamp>> {
        let first = self.items.lock().unwrap().first().map(|(due, _)| *due);
        Ok(first.filter(|_| self.is_looked_at))
    }

    async fn claim(&mut self, tasks: &mut TaskSet) -> anyhow::Result<Claimed> {
        let now = self.clock.now();
        let mut claimed = Vec::new();
        while claimed.len() < tasks.room() {
            let mut items = self.items.lock().unwrap();
            let Some(first) = items.first().copied().filter(|(due, _)| *due <= now) else {
                break;
            };
            items.remove(&first);
            claimed.push(first.1);
        }
        self.claims.lock().unwrap().push(claimed.len());
        // Whoever puts something here now has to ring for it.
        tokio::task::yield_now().await;
        let is_all = claimed.len() < tasks.room();
        for number in claimed {
            let (done, clock, takes) = (self.done.clone(), self.clock.clone(), self.takes);
            tasks.start(async move {
                if !takes(number).is_zero() {
                    tokio::time::sleep(takes(number)).await;
                }
                done.lock().unwrap().push((number, clock.now()));
            });
        }
        Ok(if is_all {
            Claimed::All
        } else {
            Claimed::Part(now)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_work_claims_sets_and_not_single_tasks() {
    let clock = Clock::system();
    let shelf = Shelf::new(&clock, 16, |number| Duration::from_millis(number + 1));
    for number in 0..160 {
        shelf.put(number, clock.now());
    }
    let (alarm, _shutdown, _works) = shelf.start();
    alarm.ring_at(clock.now());
    until("all is done", async || shelf.done() == 160).await;
    let claims = shelf.claims();
    assert!(claims.len() <= 160 / 4 + 2, "{claims:?}");
}

#[tokio::test(start_paused = true)]
async fn a_free_place_does_not_wait_for_tasks_that_hang() {
    let clock = Clock::system();
    let hangs_or_not = |number| Duration::from_secs(if number < 15 { 60 } else { 0 });
    let shelf = Shelf::new(&clock, 16, hangs_or_not);
    for number in 0..35 {
        shelf.put(number, clock.now());
    }
    let (alarm, _shutdown, _works) = shelf.start();
    let begun = Instant::now();
    alarm.ring_at(clock.now());
    until("the others are done", async || shelf.done() == 20).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_told_comes_at_its_time_as_time_is_moved() {
    let file = std::env::temp_dir().join(format!("clock-{}", uuid::Uuid::new_v4()));
    let clock = Clock::travelling(file).unwrap();
    let start = clock.now();
    let shelf = Shelf {
        is_looked_at: true,
        ..Shelf::new(&clock, 16, |_| Duration::ZERO)
    };
    let (alarm, _shutdown, _works) = shelf.start();
    clock.advance(Duration::ZERO).await.unwrap();
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let request = clock.activity();
    shelf.put(1, start + hours(1));
    alarm.ring_at(start + hours(1));
    drop(request);
    clock.advance(hours(2)).await.unwrap();
    let request = clock.activity();
    for number in [6, 4, 5] {
        shelf.put(number, start + hours(number));
        alarm.ring_at(start + hours(number));
    }
    drop(request);
    clock.advance(hours(1)).await.unwrap();
    assert_eq!(shelf.done(), 1, "nothing is early");
    clock.advance(hours(2)).await.unwrap();
    let done = shelf.done.lock().unwrap().clone();
    let done: Vec<_> = done
        .iter()
        .map(|(number, at)| (*number, at.since(start).as_secs() / 3_600))
        .collect();
    assert_eq!(done, [(1, 1), (4, 4), (5, 5)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ring_is_lost() {
    const ROUNDS: u64 = 2_000;
    let clock = Clock::system();
    let shelf = Shelf::new(&clock, 16, |_| Duration::ZERO);
    let (alarm, shutdown, works) = shelf.start();
    for number in 0..ROUNDS {
        let now = clock.now();
        shelf.put(number, now);
        alarm.ring_at(now);
        if number % 3 == 0 {
            tokio::task::yield_now().await;
        }
        if number % 100 == 0 {
            let so_far = usize::try_from(number).unwrap() + 1;
            until("all so far is done", async || shelf.done() == so_far).await;
        }
    }
    let all = usize::try_from(ROUNDS).unwrap();
    until("all is done", async || shelf.done() == all).await;
    shutdown.begin();
    work::drain(works, DEADLINE).await;
}
