//! Sends requests at a pace and measures how long they take.
//!
//! In a closed loop, a new request follows each answer. In an open loop, requests start at times
//! that are fixed beforehand, and their latency counts from then: a server that stalls delays every
//! request that should have started meanwhile, and all of that shows (no coordinated omission).

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use chassis::shutdown::Tasks;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{sleep, sleep_until, timeout},
};

use crate::{
    plan::{Code, Outcome, Pace, Plan},
    report::Report,
    tally::Tally,
    usage::Meter,
};

/// Longest wait for the answer to a request, as for the last answers at the end.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Most requests of an open loop that run at once. Any more wait, and their latency grows. Lives
/// that wait for their webhooks cost nothing, and must not hold up those that are to be refused.
const IN_FLIGHT_MAX: usize = 65_536;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// What is measured.
pub trait Load: Send + Sync + 'static {
    /// Sends the `n`th request and waits for its end.
    fn request(&self, n: u64) -> impl Future<Output = Outcome> + Send;
}

/// The `n`th of those who take turns.
///
/// # Panics
/// If there are none.
pub fn turn<T>(all: &[T], n: u64) -> &T {
    let turns = u64::try_from(all.len()).unwrap_or(u64::MAX);
    &all[usize::try_from(n % turns).unwrap_or(0)]
}

/// The measurement while it runs.
struct Measurement<L> {
    load: Arc<L>,
    pace: Pace,
    /// The first request is sent then. What is sent before `begin` is the warm-up.
    started: Instant,
    begin: Instant,
    end: Instant,
    /// The number of the next request.
    next: AtomicU64,
    tally: Mutex<Tally>,
}

/// Runs a measurement: sends requests as planned, and reads the meter at both ends of the measured
/// time.
pub async fn measure<L: Load>(load: Arc<L>, plan: &Plan, meter: &Meter) -> anyhow::Result<Report> {
    ensure!(plan.duration > Duration::ZERO, "a measurement takes time");
    let started = Instant::now();
    let begin = started + plan.warm_up;
    let end = begin + plan.duration;
    let measurement = Arc::new(Measurement {
        load,
        pace: plan.pace,
        started,
        begin,
        end,
        next: AtomicU64::new(0),
        tally: Mutex::new(Tally::new()?),
    });
    let metered = async {
        sleep_until(begin.into()).await;
        let before = meter.read().await?;
        sleep_until(end.into()).await;
        let after = meter.read().await?;
        anyhow::Ok(before.until(&after))
    };
    let sent = async {
        match plan.pace {
            Pace::InFlight(requests) => measurement.closed_loop(requests).await,
            Pace::Rate(rate) => measurement.open_loop(rate).await,
        }
    };
    let told = measurement.tell_progress(&plan.name);
    let ((), usage, ()) = tokio::join!(sent, metered, told);
    let tally = measurement.tally();
    let elapsed = match plan.pace {
        Pace::InFlight(_) => plan.duration,
        Pace::Rate(_) => plan.duration.max(
            tally
                .last_end
                .unwrap_or(end)
                .saturating_duration_since(begin),
        ),
    };
    Ok(Report::new(plan, elapsed, &tally, usage?))
}

impl<L: Load> Measurement<L> {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        // No code panics while it holds the lock.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn closed_loop(self: &Arc<Self>, requests: usize) {
        let tasks = Tasks::new();
        for _ in 0..requests {
            let measurement = self.clone();
            tasks.spawn(async move {
                while Instant::now() < measurement.end {
                    let n = measurement.next.fetch_add(1, Ordering::Relaxed);
                    measurement.request(n, Instant::now()).await;
                }
            });
        }
        tasks
            .drain(self.end.saturating_duration_since(Instant::now()) + ANSWER_MAX)
            .await;
    }

    async fn open_loop(self: &Arc<Self>, rate: u64) {
        let tasks = Tasks::new();
        let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let mut starts = starts(self.started, self.end, rate);
        while let Some((n, intended)) = starts.recv().await {
            let Ok(place) = places.clone().acquire_owned().await else {
                break;
            };
            let measurement = self.clone();
            tasks.spawn(async move {
                measurement.request(n, intended).await;
                drop(place);
            });
        }
        tasks.drain(ANSWER_MAX + ANSWER_MAX).await;
    }

    async fn request(&self, n: u64, intended: Instant) {
        let outcome = timeout(ANSWER_MAX, self.load.request(n)).await;
        let outcome = outcome.unwrap_or(Err(Code::Borrowed("no answer")));
        let ended = Instant::now();
        let counted_at = match self.pace {
            Pace::InFlight(_) => ended,
            Pace::Rate(_) => intended,
        };
        if (self.begin..self.end).contains(&counted_at) {
            let mut tally = self.tally();
            tally.record(ended - intended, outcome);
            tally.last_end = tally.last_end.max(Some(ended));
        }
    }

    async fn tell_progress(&self, name: &str) {
        let mut told = 0;
        while Instant::now() < self.end {
            sleep(PROGRESS_EVERY).await;
            let (done, failed, p99) = {
                let tally = self.tally();
                (tally.done(), tally.failed(), tally.latency().p99)
            };
            if done + failed == 0 {
                eprint!("\r{name}: warming up          ");
            } else {
                eprint!(
                    "\r{name}: {done} done, {}/s, p99 {p99:.1} ms, {failed} failed          ",
                    done - told
                );
            }
            told = done;
        }
        eprintln!();
    }
}

/// The intended starts, each as it comes. A thread of its own keeps time, because the runtime's
/// timers are only exact to a millisecond.
fn starts(begin: Instant, end: Instant, rate: u64) -> mpsc::UnboundedReceiver<(u64, Instant)> {
    let (sender, starts) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for n in 0.. {
            let since_begin = (n * NANOS_PER_SECOND).checked_div(rate).unwrap_or(0);
            let intended = begin + Duration::from_nanos(since_begin);
            if intended >= end {
                return;
            }
            thread::sleep(intended.saturating_duration_since(Instant::now()));
            if sender.send((n, intended)).is_err() {
                return;
            }
        }
    });
    starts
}
