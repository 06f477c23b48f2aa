//! What time it is, and waiting for it. The only place that asks.
//!
//! There are two times. *Moved* time ([`Clock::now`]) is what records and due times are written
//! in; the local stack can move it forward. *Real* time ([`Clock::real_now`]) never moves and
//! serves leases and signatures. Outside the stack the two are the same.
//!
//! **Time travel.** [`Clock::advance`] goes from due time to due time. Before each step it waits
//! until the process is quiet: no [`Activity`] lives (a request, a rail call, a relay, a
//! delivery), every [`Worker`] rests, no [`Alarm`] is waiting to be heard, and nothing is due.
//! For that to hold, whoever hands work to a worker rings its alarm before dropping its own
//! activity.

use std::{
    collections::HashMap,
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use time::{
    OffsetDateTime, PrimitiveDateTime, format_description::BorrowedFormatItem,
    macros::format_description,
};
use tokio::sync::Notify;

/// Fixed width, so that the order of texts is the order of times.
const RFC_3339_MILLISECONDS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// The longest a worker rests without looking, so that rows of other replicas are found.
const REST_AT_MOST: Duration = Duration::from_secs(1);

/// How long [`Clock::advance`] sleeps between two looks when nothing tells it to look sooner.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A moment, in UTC and whole milliseconds. Prints as `2026-01-31T09:00:00.000Z`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(OffsetDateTime);

/// The text is not a moment in the one form that we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a timestamp of the form 2026-01-31T09:00:00.000Z")]
pub struct TimestampError;

impl Timestamp {
    /// Cuts off what is finer than a millisecond.
    pub fn from_datetime(moment: OffsetDateTime) -> Self {
        let whole = moment.to_offset(time::UtcOffset::UTC);
        let nanosecond = whole.nanosecond() / 1_000_000 * 1_000_000;
        Self(whole.replace_nanosecond(nanosecond).unwrap_or(whole))
    }

    pub fn from_unix_millis(millis: i64) -> Result<Self, TimestampError> {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000)
            .map(Self)
            .map_err(|_| TimestampError)
    }

    pub fn unix_millis(self) -> i64 {
        self.0.unix_timestamp() * 1_000 + i64::from(self.0.millisecond())
    }

    /// Whole seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.0.unix_timestamp()
    }

    pub fn datetime(self) -> OffsetDateTime {
        self.0
    }

    /// Time from `earlier` to this moment; zero where that is the later one.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::try_from(self.0 - earlier.0).unwrap_or_default()
    }
}

/// Adding past the end of time stops there.
impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let duration = time::Duration::try_from(duration).unwrap_or(time::Duration::MAX);
        Self::from_datetime(self.0.saturating_add(duration))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        let duration = time::Duration::try_from(duration).unwrap_or(time::Duration::MAX);
        Self::from_datetime(self.0.saturating_sub(duration))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            &self
                .0
                .format(RFC_3339_MILLISECONDS)
                .map_err(|_| fmt::Error)?,
        )
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        PrimitiveDateTime::parse(text, RFC_3339_MILLISECONDS)
            .map(|moment| Self(moment.assume_utc()))
            .map_err(|_| TimestampError)
    }
}

/// The clock that a process is given. Clones show the same time.
#[derive(Clone)]
pub struct Clock(Arc<Shared>);

struct Shared {
    /// Milliseconds by which moved time is ahead of real time.
    ahead_ms: AtomicI64,
    /// Requests, rail calls, relays and deliveries that run now.
    activities: AtomicUsize,
    workers: Mutex<HashMap<u64, WorkerState>>,
    next_worker: AtomicU64,
    /// Time has moved: resting workers look again.
    moved: Notify,
    /// An activity ended or a worker went to rest.
    quieter: Notify,
    /// Held through one [`Clock::advance`].
    travel: tokio::sync::Mutex<()>,
    /// Where the offset is kept; `None` where this clock does not travel.
    kept_in: Option<PathBuf>,
}

struct WorkerState {
    name: &'static str,
    resting: bool,
    /// When it wants to be woken; `None`: only by its alarm.
    due: Option<Timestamp>,
    /// Its alarm has rung and it has not yet looked.
    rung: bool,
}

/// This clock does not travel, or could not keep its offset.
#[derive(Debug, thiserror::Error)]
pub enum TravelError {
    #[error("this clock cannot be moved")]
    NotTravelling,
    #[error("the clock's offset cannot be kept")]
    NotKept(#[source] io::Error),
}

impl Clock {
    /// Real time. The clock of every binary but the local stack.
    pub fn system() -> Self {
        Self::new(0, None)
    }

    /// A clock that can be moved. Its offset is kept in `file` and taken up again from there.
    pub fn travelling(file: PathBuf) -> io::Result<Self> {
        let ahead_ms = match std::fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(Self::new(ahead_ms, Some(file)))
    }

    fn new(ahead_ms: i64, kept_in: Option<PathBuf>) -> Self {
        Self(Arc::new(Shared {
            ahead_ms: AtomicI64::new(ahead_ms),
            activities: AtomicUsize::new(0),
            workers: Mutex::default(),
            next_worker: AtomicU64::new(0),
            moved: Notify::new(),
            quieter: Notify::new(),
            travel: tokio::sync::Mutex::default(),
            kept_in,
        }))
    }

    /// Moved time: for records and due times.
    pub fn now(&self) -> Timestamp {
        let ahead_ms = self.0.ahead_ms.load(Ordering::SeqCst);
        let ahead = Duration::from_millis(u64::try_from(ahead_ms).unwrap_or_default());
        self.real_now() + ahead
    }

    /// Real time: for leases and signatures.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    pub fn real_now(&self) -> Timestamp {
        Timestamp::from_datetime(OffsetDateTime::now_utc())
    }

    /// Says that something runs which time travel must wait for, until it is dropped.
    pub fn activity(&self) -> Activity {
        self.0.activities.fetch_add(1, Ordering::SeqCst);
        Activity(self.clone())
    }

    /// Registers a loop that does what is due and then rests. It counts as busy until it rests.
    pub fn worker(&self, name: &'static str) -> Worker {
        let id = self.0.next_worker.fetch_add(1, Ordering::SeqCst);
        let state = WorkerState {
            name,
            resting: false,
            due: None,
            rung: false,
        };
        self.0.workers().insert(id, state);
        let alarm = Alarm {
            clock: self.clone(),
            worker: id,
            heard: Arc::new(Notify::new()),
        };
        Worker {
            clock: self.clone(),
            alarm,
        }
    }

    /// Moves time forward by `by`, stopping at every due time on the way so that what is due then
    /// happens then. Returns the new time, once everything is quiet.
    pub async fn advance(&self, by: Duration) -> Result<Timestamp, TravelError> {
        if self.0.kept_in.is_none() {
            return Err(TravelError::NotTravelling);
        }
        let _one_at_a_time = self.0.travel.lock().await;
        let target = self.now() + by;
        loop {
            let next = self.quiet_until().await;
            match next.filter(|due| *due < target) {
                Some(due) => self.move_to(due)?,
                None => break,
            }
        }
        self.move_to(target)?;
        self.quiet_until().await;
        Ok(self.now())
    }

    /// Waits until nothing runs and nothing is due; returns what is due next.
    async fn quiet_until(&self) -> Option<Timestamp> {
        loop {
            let quieter = self.0.quieter.notified();
            tokio::pin!(quieter);
            quieter.as_mut().enable();
            if let Ok(next) = self.look() {
                return next;
            }
            if tokio::time::timeout(LOOK_AGAIN, quieter).await.is_err() {
                tracing::trace!("still waiting for work to end");
            }
        }
    }

    /// What is due next, or the name of something that is not quiet.
    fn look(&self) -> Result<Option<Timestamp>, &'static str> {
        let workers = self.0.workers();
        let now = self.now();
        for worker in workers.values() {
            let is_due = worker.due.is_some_and(|due| due <= now);
            if !worker.resting || worker.rung || is_due {
                return Err(worker.name);
            }
        }
        // After the workers: whoever wakes one rings first and ends its activity later.
        if self.0.activities.load(Ordering::SeqCst) > 0 {
            return Err("an activity");
        }
        Ok(workers.values().filter_map(|worker| worker.due).min())
    }

    fn move_to(&self, target: Timestamp) -> Result<(), TravelError> {
        let step = target.since(self.now()).as_millis();
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let ahead_ms = self.0.ahead_ms.load(Ordering::SeqCst).saturating_add(step);
        if let Some(file) = &self.0.kept_in {
            // Kept before it is shown: time must not run backwards over a crash.
            keep(file, ahead_ms).map_err(TravelError::NotKept)?;
        }
        self.0.ahead_ms.store(ahead_ms, Ordering::SeqCst);
        self.0.moved.notify_waiters();
        Ok(())
    }
}

/// Replaces the file's content in one step.
fn keep(file: &std::path::Path, ahead_ms: i64) -> io::Result<()> {
    let written = file.with_extension("new");
    std::fs::write(&written, ahead_ms.to_string())?;
    std::fs::rename(written, file)
}

impl Shared {
    fn workers(&self) -> MutexGuard<'_, HashMap<u64, WorkerState>> {
        // No code panics while it holds the lock.
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

/// Something runs that time travel waits for. Ends when it is dropped.
#[derive(Debug)]
pub struct Activity(Clock);

impl Drop for Activity {
    fn drop(&mut self) {
        let shared = &self.0.0;
        if shared.activities.fetch_sub(1, Ordering::SeqCst) == 1 {
            shared.quieter.notify_waiters();
        }
    }
}

/// A loop's place at the clock. Dropped, it is no longer waited for.
#[derive(Debug)]
pub struct Worker {
    clock: Clock,
    alarm: Alarm,
}

impl Worker {
    /// What wakes this worker, for those who give it work.
    pub fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// Rests until `due` (moved time), a ring of the alarm, or one second of real time. May return
    /// early; the caller looks for work and rests again. Dropping the future keeps a ring.
    pub async fn rest(&mut self, due: Option<Timestamp>) {
        let resting = Resting::begin(self, due);
        let cap = tokio::time::sleep(REST_AT_MOST);
        tokio::pin!(cap);
        loop {
            let moved = self.clock.0.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let left = due.map_or(REST_AT_MOST, |due| due.since(self.clock.now()));
            if left.is_zero() {
                break;
            }
            tokio::select! {
                () = self.alarm.heard.notified() => break,
                () = &mut cap => break,
                () = tokio::time::sleep(left) => {}
                () = moved => {}
            }
        }
        drop(resting);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.clock.0.workers().remove(&self.alarm.worker);
        self.clock.0.quieter.notify_waiters();
    }
}

/// The worker counts as resting while this lives.
struct Resting {
    clock: Clock,
    worker: u64,
}

impl Resting {
    fn begin(worker: &Worker, due: Option<Timestamp>) -> Self {
        let id = worker.alarm.worker;
        if let Some(state) = worker.clock.0.workers().get_mut(&id) {
            state.resting = true;
            state.due = due;
        }
        worker.clock.0.quieter.notify_waiters();
        Self {
            clock: worker.clock.clone(),
            worker: id,
        }
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        if let Some(state) = self.clock.0.workers().get_mut(&self.worker) {
            state.resting = false;
            state.rung = false;
        }
    }
}

/// Wakes one worker. Rung while the worker is busy, it makes the next rest end at once.
#[derive(Clone)]
pub struct Alarm {
    clock: Clock,
    worker: u64,
    heard: Arc<Notify>,
}

impl Alarm {
    pub fn ring(&self) {
        if let Some(state) = self.clock.0.workers().get_mut(&self.worker) {
            state.rung = true;
        }
        self.heard.notify_one();
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alarm({})", self.worker)
    }
}

#[cfg(feature = "sql")]
mod sql {
    use sqlx::{
        Decode, Encode, Postgres, Sqlite, Type, encode::IsNull, error::BoxDynError,
        postgres::PgArgumentBuffer, sqlite::SqliteArgumentsBuffer,
    };
    use time::OffsetDateTime;

    use super::Timestamp;

    /// `timestamptz` on PostgreSQL.
    impl Type<Postgres> for Timestamp {
        fn type_info() -> sqlx::postgres::PgTypeInfo {
            <OffsetDateTime as Type<Postgres>>::type_info()
        }
    }
    impl<'q> Encode<'q, Postgres> for Timestamp {
        fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
            Encode::<Postgres>::encode_by_ref(&self.0, buffer)
        }
    }
    impl<'r> Decode<'r, Postgres> for Timestamp {
        fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, BoxDynError> {
            Ok(Self(Decode::<Postgres>::decode(value)?))
        }
    }

    /// Text of fixed width on SQLite.
    impl Type<Sqlite> for Timestamp {
        fn type_info() -> sqlx::sqlite::SqliteTypeInfo {
            <String as Type<Sqlite>>::type_info()
        }
    }
    impl<'q> Encode<'q, Sqlite> for Timestamp {
        fn encode_by_ref(&self, buffer: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
            Encode::<Sqlite>::encode(self.to_string(), buffer)
        }
    }
    impl<'r> Decode<'r, Sqlite> for Timestamp {
        fn decode(value: sqlx::sqlite::SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
            Ok(<&str as Decode<Sqlite>>::decode(value)?.parse()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn travelling() -> Clock {
        let file = std::env::temp_dir().join(format!("clock-{}", uuid::Uuid::new_v4()));
        Clock::travelling(file).expect("a new clock")
    }

    #[test]
    fn a_timestamp_prints_and_parses_in_milliseconds() {
        let moment = Timestamp::from_unix_millis(1_700_000_000_007).unwrap();
        assert_eq!(moment.to_string(), "2023-11-14T22:13:20.007Z");
        assert_eq!(moment.to_string().parse(), Ok(moment));
        assert_eq!(moment.unix_millis(), 1_700_000_000_007);
        assert_eq!(
            "2023-11-14 22:13:20".parse::<Timestamp>(),
            Err(TimestampError)
        );
    }

    #[tokio::test]
    async fn travel_stops_at_every_due_time_in_order() {
        let clock = travelling();
        let start = clock.now();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut worker = clock.worker("ticks");
        let tasks = crate::shutdown::Tasks::new();
        let (ticking, heard) = (clock.clone(), seen.clone());
        tasks.spawn(async move {
            for tick in 1..=3_u64 {
                let due = start + Duration::from_secs(3_600 * tick);
                while ticking.now() < due {
                    worker.rest(Some(due)).await;
                }
                heard
                    .lock()
                    .unwrap()
                    .push(ticking.now().since(start).as_secs() / 3_600);
            }
            loop {
                worker.rest(None).await;
            }
        });
        clock
            .advance(Duration::from_secs(2 * 3_600 + 60))
            .await
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [1, 2]);
        clock
            .advance(Duration::from_secs(24 * 3_600))
            .await
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
        assert!(clock.now().since(start) >= Duration::from_secs(26 * 3_600));
    }

    #[tokio::test]
    async fn travel_waits_for_what_runs_and_for_what_was_rung() {
        let clock = travelling();
        let mut worker = clock.worker("relay");
        let alarm = worker.alarm();
        let done = Arc::new(AtomicBool::new(false));
        let tasks = crate::shutdown::Tasks::new();
        let (relay_clock, relay_done) = (clock.clone(), done.clone());
        tasks.spawn(async move {
            worker.rest(None).await;
            let delivery = relay_clock.activity();
            worker.rest(None).await;
            relay_done.store(true, Ordering::SeqCst);
            drop(delivery);
            loop {
                worker.rest(None).await;
            }
        });
        let request = clock.activity();
        alarm.ring();
        drop(request);
        alarm.ring();
        clock.advance(Duration::from_secs(1)).await.unwrap();
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn the_offset_outlives_the_process() {
        let file = std::env::temp_dir().join(format!("clock-{}", uuid::Uuid::new_v4()));
        let clock = Clock::travelling(file.clone()).unwrap();
        let moved = clock.advance(Duration::from_secs(86_400)).await.unwrap();
        let again = Clock::travelling(file).unwrap();
        assert!(again.now() >= moved);
    }

    #[tokio::test]
    async fn a_real_clock_cannot_be_moved() {
        let moved = Clock::system().advance(Duration::from_secs(1)).await;
        assert!(matches!(moved, Err(TravelError::NotTravelling)));
    }
}
