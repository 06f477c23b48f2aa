//! What waits at the same moment is done as one set.
//!
//! A transaction or a call costs about the same for one as for many, so what arrives while others
//! are in hand forms the next set. Nothing waits for a timer: what comes alone goes alone, once the
//! process has looked for what came with it. One set is in hand at a time, because two would be half
//! as large and cost as much each. Others go on only beside one that stalls, or, where the work says
//! so, a second one once it is large itself.
//!
//! Promise: each item has an outcome of its own. Nobody who stops waiting cuts off the others.

use std::{
    any::type_name,
    collections::VecDeque,
    fmt,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use tokio::{sync::oneshot, time::timeout};
use tracing::{Instrument as _, Span};

use crate::shutdown::Tasks;

/// From here on, a set costs its items little more than a larger one would. As
/// [`SetWork::BESIDE_MIN`], 24 measured a higher rate than 12, 16 or 32.
pub const LARGE_SET: usize = 24;

/// How many times a set's task yields before it forms the set: each time, tasks that are ready run and
/// the sockets are polled. What one set has answered, or one packet has brought, comes to the next
/// queue as a crowd: without this, its first would go alone, and the others would wait for it. Each
/// yield takes the crowd one task further. Six measured no better than three.
const YIELDS: usize = 3;

/// How sets of something are done.
pub trait SetWork: Send + Sync + 'static {
    type Item: Send + 'static;
    type Outcome: Send + 'static;

    /// Most items in a set.
    const SET_MAX: usize;

    /// How many sets are in hand at the same time, all but one or two of them [`Self::STALLED`].
    const IN_HAND_MAX: usize;

    /// How many must wait to form a second set beside one that is in hand and does not stall. A
    /// second set pays where the first mostly waits, and costs where it keeps processors busy.
    const BESIDE_MIN: usize = usize::MAX;

    /// A set that takes longer (real time) waits for something, and the next need not wait with it.
    const STALLED: Duration;

    /// How many items may wait.
    const WAITING_MAX: usize;

    /// Does a set, which is not empty, and returns an outcome for each of its items, in their order;
    /// any other number of outcomes means none for anybody.
    fn run(&self, set: Vec<Self::Item>) -> impl Future<Output = Vec<Self::Outcome>> + Send;
}

/// Why an item has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    #[error("too many others wait")]
    Crowded,
    /// Its set panicked, or the process ends. What it was about may have happened.
    #[error("its set has no outcome")]
    Abandoned,
}

/// Does work in sets. Clones share their queue.
pub struct Sets<W: SetWork>(Arc<Shared<W>>);

struct Shared<W: SetWork> {
    work: W,
    tasks: Tasks,
    queue: Mutex<Queue<W>>,
}

struct Queue<W: SetWork> {
    waiting: VecDeque<Waiting<W>>,
    in_hand: usize,
    /// How many of those in hand have stalled.
    stalled: usize,
}

struct Waiting<W: SetWork> {
    item: W::Item,
    /// The caller's.
    span: Span,
    answer: oneshot::Sender<W::Outcome>,
}

impl<W: SetWork> Clone for Sets<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: SetWork> Sets<W> {
    /// Sets run on `tasks`.
    pub fn new(work: W, tasks: Tasks) -> Self {
        Self(Arc::new(Shared {
            work,
            tasks,
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                in_hand: 0,
                stalled: 0,
            }),
        }))
    }

    pub fn work(&self) -> &W {
        &self.0.work
    }

    /// Does this in a set. It may be done even if the caller stops waiting.
    ///
    /// # Errors
    /// It was not done, or nobody knows.
    pub fn run(&self, item: W::Item) -> impl Future<Output = Result<W::Outcome, SetError>> {
        // Taken here, because the future may be awaited in another.
        let span = Span::current();
        async move {
            let (answer, outcome) = oneshot::channel();
            {
                let mut queue = self.0.queue();
                if queue.waiting.len() >= W::WAITING_MAX {
                    return Err(SetError::Crowded);
                }
                queue.waiting.push_back(Waiting { item, span, answer });
            }
            self.0.start();
            outcome.await.map_err(|_| SetError::Abandoned)
        }
    }
}

impl<W: SetWork> Queue<W> {
    /// Whether a set may begin beside so many that do not stall.
    fn may_begin(&self, beside: usize) -> bool {
        match beside {
            0 => !self.waiting.is_empty(),
            1 => self.waiting.len() >= W::BESIDE_MIN,
            _ => false,
        }
    }
}

impl<W: SetWork> Shared<W> {
    /// Starts a task if something waits for one.
    fn start(self: &Arc<Self>) {
        {
            let mut queue = self.queue();
            let beside = queue.in_hand - queue.stalled;
            if queue.in_hand >= W::IN_HAND_MAX || !queue.may_begin(beside) {
                return;
            }
            queue.in_hand += 1;
        }
        let shared = Arc::clone(self);
        self.tasks
            .spawn_apart(async move { shared.run_sets().await });
    }

    /// Does sets until nothing waits, or until other tasks do them.
    async fn run_sets(self: &Arc<Self>) {
        loop {
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
            let set = self.next_set();
            if set.is_empty() {
                return;
            }
            let mut running = pin!(self.run_and_answer(set));
            if timeout(W::STALLED, &mut running).await.is_ok() {
                continue;
            }
            self.queue().stalled += 1;
            self.start();
            running.await;
            self.queue().stalled -= 1;
        }
    }

    async fn run_and_answer(&self, set: Vec<Waiting<W>>) {
        let span = span_of(&set);
        let (set, answers): (Vec<_>, Vec<_>) =
            set.into_iter().map(|one| (one.item, one.answer)).unzip();
        let outcomes = AssertUnwindSafe(async { self.work.run(set).await }).catch_unwind();
        let outcomes = outcomes.instrument(span).await.unwrap_or_else(|_| {
            tracing::error!(work = type_name::<W>(), "a set panicked");
            Vec::new()
        });
        if outcomes.len() != answers.len() {
            // Nobody can tell whose they are. All learn that they have none, because their senders
            // are dropped.
            return;
        }
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // Its caller may have stopped waiting.
            answer.send(outcome).ok();
        }
    }

    /// Leaves out those whose callers have gone: after a stall they would only make the others
    /// late. If the set is empty, the task ends.
    fn next_set(&self) -> Vec<Waiting<W>> {
        let mut queue = self.queue();
        let mut set = Vec::new();
        let others = queue.in_hand - queue.stalled - 1;
        let may_begin = queue.may_begin(others);
        while may_begin
            && set.len() < W::SET_MAX
            && let Some(waiting) = queue.waiting.pop_front()
        {
            if !waiting.answer.is_closed() {
                set.push(waiting);
            }
        }
        if set.is_empty() {
            queue.in_hand -= 1;
        }
        set
    }

    fn queue(&self) -> MutexGuard<'_, Queue<W>> {
        // No code panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: SetWork> fmt::Debug for Sets<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sets").finish_non_exhaustive()
    }
}

/// A set of one is done in its caller's trace, a larger one in a trace of its own, which follows
/// those of its callers.
fn span_of<W: SetWork>(set: &[Waiting<W>]) -> Span {
    if let [one] = set {
        return one.span.clone();
    }
    let span = tracing::debug_span!(parent: None, "set", items = set.len());
    if !span.is_disabled() {
        for one in set {
            span.follows_from(&one.span);
        }
    }
    span
}

#[cfg(test)]
mod tests {
    use futures::{
        future::{BoxFuture, join_all},
        poll,
    };
    use tokio::sync::Semaphore;

    use super::*;

    const NEVER: usize = usize::MAX;
    const STALLED: Duration = Duration::from_secs(1);

    /// Doubles numbers, a set for each permit. 0 panics, and a set with 9 is one outcome short.
    struct Doubling<const BESIDE_MIN: usize> {
        permits: Semaphore,
        sets: Mutex<Vec<usize>>,
    }

    impl<const BESIDE_MIN: usize> SetWork for Doubling<BESIDE_MIN> {
        type Item = u32;
        type Outcome = u32;

        const SET_MAX: usize = 3;
        const IN_HAND_MAX: usize = 2;
        const BESIDE_MIN: usize = BESIDE_MIN;
        const STALLED: Duration = STALLED;
        const WAITING_MAX: usize = 5;

        async fn run(&self, set: Vec<u32>) -> Vec<u32> {
            self.sets.lock().unwrap().push(set.len());
            self.permits.acquire().await.unwrap().forget();
            assert!(!set.contains(&0));
            let short = usize::from(set.contains(&9));
            set.into_iter()
                .skip(short)
                .map(|number| number * 2)
                .collect()
        }
    }

    fn doubling<const BESIDE_MIN: usize>(permits: usize) -> Sets<Doubling<BESIDE_MIN>> {
        let work = Doubling {
            permits: Semaphore::new(permits),
            sets: Mutex::default(),
        };
        Sets::new(work, Tasks::new())
    }

    /// Hands these in one after the other, and lets a set begin in between.
    async fn waiting<const BESIDE_MIN: usize>(
        sets: &Sets<Doubling<BESIDE_MIN>>,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Vec<BoxFuture<'_, Result<u32, SetError>>> {
        let mut waiting = Vec::new();
        for number in numbers {
            let mut outcome = sets.run(number).boxed();
            assert!(poll!(&mut outcome).is_pending());
            for _ in 0..=YIELDS {
                tokio::task::yield_now().await;
            }
            waiting.push(outcome);
        }
        waiting
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_as_a_crowd_forms_the_first_set() {
        let sets = doubling::<NEVER>(3);
        let crowd = (1..=3).map(async |number| {
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            sets.run(number).await.unwrap()
        });
        assert_eq!(join_all(crowd).await, [2, 4, 6]);
        assert_eq!(*sets.work().sets.lock().unwrap(), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_meanwhile_forms_the_next_set() {
        let sets = doubling::<NEVER>(0);
        let all = waiting(&sets, 1..=5).await;
        sets.work().permits.add_permits(3);
        let outcomes = join_all(all).await;
        let outcomes: Vec<u32> = outcomes.into_iter().map(Result::unwrap).collect();
        assert_eq!(outcomes, [2, 4, 6, 8, 10]);
        assert_eq!(*sets.work().sets.lock().unwrap(), [1, 3, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_set_begins_only_once_it_is_large() {
        let sets = doubling::<2>(0);
        let mut all = waiting(&sets, 1..=4).await;
        assert_eq!(*sets.work().sets.lock().unwrap(), [1, 2]);
        sets.work().permits.add_permits(1);
        assert_eq!(all.remove(0).await.unwrap(), 2);
        assert_eq!(*sets.work().sets.lock().unwrap(), [1, 2], "one waits");
        sets.work().permits.add_permits(2);
        for outcome in join_all(all).await {
            outcome.unwrap();
        }
        assert_eq!(*sets.work().sets.lock().unwrap(), [1, 2, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_set_that_stalls_lets_others_go_on() {
        let sets = doubling::<NEVER>(0);
        let all = waiting(&sets, 1..=3).await;
        tokio::time::sleep(STALLED / 2).await;
        assert_eq!(*sets.work().sets.lock().unwrap(), [1]);
        tokio::time::sleep(STALLED).await;
        assert_eq!(*sets.work().sets.lock().unwrap(), [1, 2]);
        sets.work().permits.add_permits(2);
        for outcome in join_all(all).await {
            outcome.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_that_panics_or_is_an_outcome_short_has_none_and_leaves_the_others_alone() {
        for bad in [0, 9] {
            let sets = doubling::<NEVER>(0);
            let all = waiting(&sets, [1, 2, bad, 3, 4]).await;
            sets.work().permits.add_permits(3);
            let outcomes = join_all(all).await.into_iter().map(Result::ok);
            let expected = [Some(2), None, None, None, Some(8)];
            assert_eq!(outcomes.collect::<Vec<_>>(), expected, "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_gone_is_left_out_and_too_many_are_told() {
        let sets = doubling::<NEVER>(0);
        let mut all = waiting(&sets, 1..=6).await;
        // One is in hand, and five wait.
        assert!(matches!(sets.run(7).await, Err(SetError::Crowded)));
        drop(all.remove(1));
        sets.work().permits.add_permits(3);
        for outcome in join_all(all).await {
            outcome.unwrap();
        }
        assert_eq!(*sets.work().sets.lock().unwrap(), [1, 3, 1]);
    }
}
