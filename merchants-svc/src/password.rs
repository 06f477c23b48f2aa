//! Passwords: which are good enough, and how they are hashed.
//!
//! Hashing one takes 19 MiB and a core for tens of milliseconds, so a few threads of low priority do
//! it, and rest nearly all of the time while many strangers come: a flood of logins must not slow
//! down what else the machine does. Those whom we know have a queue of their own, which strangers do
//! not fill. Who comes when too many wait is refused at once.

use std::{
    convert::Infallible,
    fmt,
    num::NonZeroUsize,
    panic::{self, AssertUnwindSafe},
    str::FromStr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use argon2::{
    ARGON2ID_IDENT, Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{self, Output, ParamsString, Salt},
};
use chassis::error_chain::chain;
use crossbeam_channel::{Receiver, Sender, after, never, select_biased, unbounded};
use rustix::time::{ClockId, clock_gettime};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

/// OWASP's least for argon2id: 19 MiB, twice over, by one thread.
const MEMORY_KIB: u32 = 19 * 1_024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Threads hash on one core in so many, and on one at least. However low its priority, a thread that
/// is never done holds up what wakes on its core: on Linux, priorities only count within a group of
/// processes, which every container is, and not towards Redis, PostgreSQL or the kernel's own threads.
const CORES_PER_THREAD: usize = 2;

/// Most threads that hash, because each keeps its memory.
const THREADS_MAX: usize = 4;

/// What a thread hashes for one lane without a rest, in its own processor time: more passwords than
/// people send at once.
const BURST: Duration = Duration::from_secs(2);

/// How many may wait in each lane, for each thread.
const WAITING_PER_THREAD: usize = 7;

/// How long a password waits to be hashed. Its caller gives up after five seconds.
const WAIT_MAX: Duration = Duration::from_secs(4);

/// How much nicer those threads are to the rest of the process than it is to them. A core
/// that is wanted by both gives one of them a seventieth of what it gives to a request.
const NICENESS: i32 = 19;

const CHARACTERS_MIN: usize = 12;
const CHARACTERS_MAX: usize = 200;

/// What must be left of a password without the words that anybody would try.
const OWN_CHARACTERS_MIN: usize = 6;

/// Different characters of a password.
const DIFFERENT_MIN: usize = 5;

/// Characters of a word that others might guess. Shorter ones are parts of any text.
const WORD_CHARACTERS_MIN: usize = 4;

/// The passwords that people use most, in lower case and without punctuation.
const COMMON: &str = include_str!("common_passwords.txt");

/// Refuses a password that is too short, too long, or easily guessed by somebody who knows these
/// names of its owner.
///
/// # Errors
/// What it must be.
pub fn check(password: &SecretString, names: &[&str]) -> Result<(), &'static str> {
    let password = password.expose_secret();
    let characters = password.chars().count();
    if !(CHARACTERS_MIN..=CHARACTERS_MAX).contains(&characters) {
        return Err("must be 12 to 200 characters");
    }
    let mut different: Vec<char> = password.chars().collect();
    different.sort_unstable();
    different.dedup();
    if different.len() < DIFFERENT_MIN || own_characters(password, names) < OWN_CHARACTERS_MIN {
        return Err(
            "must not be easy to guess: not a common password, your e-mail address or your business's name",
        );
    }
    Ok(())
}

/// How many characters are left without the words that anybody would try.
fn own_characters(password: &str, names: &[&str]) -> usize {
    let mut left = squashed(password);
    let parts = names
        .iter()
        .flat_map(|name| name.split(|c: char| !c.is_alphanumeric()));
    // The whole, an address's two halves, and each word.
    let halves = names.iter().flat_map(|name| name.split('@'));
    let of_owner = names.iter().copied().chain(halves).chain(parts);
    let of_owner = of_owner.map(squashed);
    let mut words: Vec<String> = of_owner.chain(COMMON.lines().map(str::to_owned)).collect();
    words.retain(|word| word.chars().count() >= WORD_CHARACTERS_MIN);
    words.sort_unstable_by_key(|word| std::cmp::Reverse(word.len()));
    for word in &words {
        // A mark, so that what stood around it does not become a word.
        left = left.replace(word.as_str(), " ");
    }
    left.chars().filter(|c| c.is_alphanumeric()).count()
}

/// In lower case, without punctuation.
fn squashed(text: &str) -> String {
    let kept = text.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// An argon2id hash, as a PHC string. Does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

impl FromStr for PasswordHash {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

chassis::text_column!(PasswordHash, |hash| hash.0.clone());

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

impl PasswordHash {
    /// A hash of nothing: comparing with it takes as long as with any other.
    fn nobodys() -> Self {
        let salt = "A".repeat(22);
        let hash = "A".repeat(43);
        Self(format!(
            "$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${salt}${hash}"
        ))
    }
}

/// Whether a password was right.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Wrong,
    /// Carries the hash to store from now on if the old one was made with other parameters.
    Right(Option<PasswordHash>),
}

/// Why there is no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HasherError {
    /// Nothing was changed. It may have been hashed, but too late for its caller.
    #[error("too many passwords wait to be hashed")]
    Busy,
    #[error("a password could not be hashed")]
    Failed,
}

/// Who a password is hashed for. Each lane has a queue and a share of the time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Somebody who is logged in, logged in last in this browser, or has a link that we mailed; and
    /// whom an operator invites.
    Known,
    /// Anybody else, and so as many as a flood wants.
    Stranger,
}

impl Lane {
    /// Once the [`BURST`] is used up, a thread hashes for the lane for one part in so many of its
    /// time. At a hundredth, a p99 does not see it.
    fn share_denominator(self) -> u32 {
        match self {
            Self::Known => 8,
            Self::Stranger => 100,
        }
    }
}

type Job = Box<dyn FnOnce(&mut Memory) + Send>;

/// What a thread hashes in. It is kept from one password to the next: getting and returning it would
/// take a lock that every thread of the process needs for memory of its own, and one that is as nice
/// as these may hold it for long.
struct Memory(Vec<Block>);

/// The threads that hash passwords. Clones share them.
#[derive(Clone)]
pub struct Hasher {
    known: Queue,
    strangers: Queue,
}

#[derive(Clone)]
struct Queue {
    jobs: Sender<Job>,
    places: Arc<Semaphore>,
}

/// A place among those who wait.
#[must_use = "it is for one password"]
pub struct Turn {
    /// Whole, so that no thread ends while somebody waits.
    hasher: Hasher,
    lane: Lane,
    /// Free again once the caller is answered, or gone.
    _place: OwnedSemaphorePermit,
}

impl Hasher {
    /// Starts the threads. They end with the last clone.
    pub fn start() -> anyhow::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = (cores / CORES_PER_THREAD).clamp(1, THREADS_MAX);
        let places = threads + threads * WAITING_PER_THREAD;
        let queue = || {
            let (jobs, waiting) = unbounded();
            let places = Arc::new(Semaphore::new(places));
            (Queue { jobs, places }, waiting)
        };
        let ((known, known_waiting), (strangers, strangers_waiting)) = (queue(), queue());
        for _ in 0..threads {
            let (known, strangers) = (known_waiting.clone(), strangers_waiting.clone());
            let hashing = thread::Builder::new().name("password hasher".to_owned());
            hashing.spawn(move || hash_all(&known, &strangers))?;
        }
        Ok(Self { known, strangers })
    }

    /// # Errors
    /// [`HasherError::Busy`] if too many wait.
    pub fn turn(&self, lane: Lane) -> Result<Turn, HasherError> {
        let place = Arc::clone(&self.queue(lane).places).try_acquire_owned();
        Ok(Turn {
            hasher: self.clone(),
            lane,
            _place: place.map_err(|_| HasherError::Busy)?,
        })
    }

    fn queue(&self, lane: Lane) -> &Queue {
        match lane {
            Lane::Known => &self.known,
            Lane::Stranger => &self.strangers,
        }
    }
}

/// Hashes what waits until the queues close, which they do together. Those whom we know come first.
fn hash_all(known: &Receiver<Job>, strangers: &Receiver<Job>) {
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(error = %chain(&error), "hashing is no nicer than the rest");
    }
    let mut memory = Memory(Vec::new());
    let mut known_pace = Pace::starting(Lane::Known, Instant::now());
    let mut strangers_pace = Pace::starting(Lane::Stranger, Instant::now());
    let nothing = never();
    loop {
        let now = Instant::now();
        let rests = [known_pace.rest(now), strangers_pace.rest(now)];
        let [known_rests, strangers_rest] = rests.map(|rest| !rest.is_zero());
        let next_end = rests.into_iter().filter(|rest| !rest.is_zero()).min();
        let rested = next_end.map_or_else(never, after);
        let (next, pace) = select_biased! {
            recv(if known_rests { &nothing } else { known }) -> next => (next, &mut known_pace),
            recv(if strangers_rest { &nothing } else { strangers }) -> next => {
                (next, &mut strangers_pace)
            }
            recv(rested) -> _ => continue,
        };
        let Ok(job) = next else { return };
        let (began, used) = (Instant::now(), processor_time());
        let hashing = AssertUnwindSafe(|| job(&mut memory));
        if panic::catch_unwind(hashing).is_err() {
            // Whoever asked is told that it failed; the next one has a thread all the same.
            tracing::error!("hashing a password panicked");
            memory = Memory(Vec::new());
        }
        pace.hashed(began, processor_time().saturating_sub(used));
    }
}

/// What this thread has used. Waits for a core, of which a thread of low priority has many, are not
/// in it.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// Keeps one lane of a thread to its share of the time, once it has used up its [`BURST`].
struct Pace {
    lane: Lane,
    /// When all that it has hashed will have taken no more than the share. In the past if it took less.
    even: Instant,
}

impl Pace {
    fn starting(lane: Lane, now: Instant) -> Self {
        Self { lane, even: now }
    }

    /// How long to hash nothing more.
    fn rest(&self, now: Instant) -> Duration {
        let allowed = now + BURST * (self.lane.share_denominator() - 1);
        self.even.saturating_duration_since(allowed)
    }

    fn hashed(&mut self, began: Instant, took: Duration) {
        self.even = self.even.max(began) + took.min(BURST) * self.lane.share_denominator();
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [known, strangers] =
            [&self.known, &self.strangers].map(|queue| queue.places.available_permits());
        f.debug_struct("Hasher")
            .field("known_places", &known)
            .field("strangers_places", &strangers)
            .finish()
    }
}

impl Turn {
    pub async fn hash(self, password: SecretString) -> Result<PasswordHash, HasherError> {
        self.run(move |memory| memory.hash(&password)).await
    }

    /// Compares the password with a hash, or with nobody's in the same time.
    pub async fn verify(
        self,
        password: SecretString,
        stored: Option<PasswordHash>,
    ) -> Result<Verdict, HasherError> {
        self.run(move |memory| memory.verify(&password, stored))
            .await
    }

    async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut Memory) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T, HasherError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |memory| {
            if answer.is_closed() {
                // Whoever asked is gone.
                return;
            }
            match work(memory) {
                // They may also go meanwhile.
                Ok(done) => drop(answer.send(done)),
                Err(error) => {
                    tracing::error!(error = %chain(error.as_ref()), "a password was not hashed");
                }
            }
        });
        let jobs = &self.hasher.queue(self.lane).jobs;
        jobs.send(job).map_err(|_| HasherError::Failed)?;
        let answered = timeout(WAIT_MAX, answered).await;
        let answered = answered.map_err(|_| HasherError::Busy)?;
        answered.map_err(|_| HasherError::Failed)
    }
}

impl Memory {
    fn hash(&mut self, password: &SecretString) -> anyhow::Result<PasswordHash> {
        let params = Params::new(MEMORY_KIB, PASSES, LANES, None)?;
        let salt = Salt::generate();
        let hash = phc::PasswordHash {
            algorithm: ARGON2ID_IDENT,
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(&params)?,
            salt: Some(salt),
            hash: Some(self.output(password, &salt, params, Version::V0x13)?),
        };
        Ok(PasswordHash(hash.to_string()))
    }

    fn verify(
        &mut self,
        password: &SecretString,
        stored: Option<PasswordHash>,
    ) -> anyhow::Result<Verdict> {
        let is_somebodys = stored.is_some();
        let stored = stored.unwrap_or_else(PasswordHash::nobodys);
        let stored = phc::PasswordHash::new(&stored.0)?;
        ensure!(
            stored.algorithm == ARGON2ID_IDENT,
            "the hash is of another kind"
        );
        let version = stored.version.context("the hash has no version")?;
        let (salt, expected) = stored
            .salt
            .zip(stored.hash)
            .context("the hash is not whole")?;
        let params = Params::try_from(&stored)?;
        let made_with = (params.m_cost(), params.t_cost(), params.p_cost());
        // Compared in the same time whatever differs.
        let is_right = self.output(password, &salt, params, version.try_into()?)? == expected;
        if !(is_right && is_somebodys) {
            return Ok(Verdict::Wrong);
        }
        let is_current = made_with == (MEMORY_KIB, PASSES, LANES);
        let renewed = match is_current {
            true => None,
            false => Some(self.hash(password)?),
        };
        Ok(Verdict::Right(renewed))
    }

    fn output(
        &mut self,
        password: &SecretString,
        salt: &Salt,
        params: Params,
        version: Version,
    ) -> anyhow::Result<Output> {
        let Self(blocks) = self;
        let needed = params.block_count();
        if let Some(missing) = needed.checked_sub(blocks.len()) {
            blocks.try_reserve_exact(missing)?;
            blocks.resize(needed, Block::new());
        }
        let size = params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN);
        let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
        let password = password.expose_secret().as_bytes();
        let mut buffer = [0; Output::MAX_LENGTH];
        let output = buffer.get_mut(..size).context("the hash is too long")?;
        let hashed = argon2.hash_password_into_with_memory(password, salt, output, &mut *blocks);
        // From what is left in them, a password would be guessed without any of the work.
        blocks.fill(Block::new());
        hashed?;
        Ok(Output::new(output)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::mpsc, time::Duration};

    use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
    use futures::future::join_all;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn what_is_easily_guessed_is_refused() {
        let names = ["ama.mensah@example.com", "Ama's Fine Shop"];
        for password in [
            "short",
            &"x1Y2z3".repeat(34),
            "aaaaaaaaaaaaaaa",
            "password1234",
            "PassWord-1234!",
            "iloveyou-2024!",
            "123456789012",
            "1qaz2wsx3edc",
            "ama.mensah@example.com",
            "AmaMensah2026!",
            "ama's fine shop 1",
        ] {
            assert!(check(&password.into(), &names).is_err(), "{password}");
        }
        for password in [
            "plantain at the harbour",
            "xK4-vv9-qT2p",
            "ɛyɛ me dɛ paa ara",
        ] {
            assert_eq!(check(&password.into(), &names), Ok(()), "{password}");
        }
    }

    #[test]
    fn common_passwords_are_words_as_they_are_compared() {
        for word in COMMON.lines() {
            assert_eq!(squashed(word), word);
        }
    }

    #[tokio::test]
    async fn only_the_right_password_matches_and_nobodys_never_does() {
        let hasher = Hasher::start().unwrap();
        let hashed = hasher
            .turn(Lane::Known)
            .unwrap()
            .hash("right".into())
            .await
            .unwrap();
        let verify = async |password: &str, stored: Option<&PasswordHash>| {
            let turn = hasher.turn(Lane::Known).unwrap();
            turn.verify(password.into(), stored.cloned()).await.unwrap()
        };
        assert_eq!(verify("right", Some(&hashed)).await, Verdict::Right(None));
        assert_eq!(verify("wrong", Some(&hashed)).await, Verdict::Wrong);
        assert_eq!(verify("right", None).await, Verdict::Wrong);
        assert!(!format!("{hashed:?}").contains("argon2"));
    }

    #[tokio::test]
    async fn a_hash_of_other_parameters_matches_and_is_made_anew() {
        let hasher = Hasher::start().unwrap();
        let verify = async |stored: &PasswordHash| {
            let turn = hasher.turn(Lane::Known).unwrap();
            turn.verify("right".into(), Some(stored.clone()))
                .await
                .unwrap()
        };
        for memory_kib in [MEMORY_KIB / 2, MEMORY_KIB * 2] {
            let params = Params::new(memory_kib, 1, 2, Some(64)).unwrap();
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            // By the library, in memory of its own.
            let hashed = argon2.hash_password(b"right").unwrap().to_string();
            let Verdict::Right(Some(renewed)) = verify(&hashed.parse().unwrap()).await else {
                panic!("{memory_kib}");
            };
            assert_eq!(verify(&renewed).await, Verdict::Right(None));
            let argon2 = Argon2::default();
            assert_eq!(argon2.verify_password(b"right", renewed.0.as_str()), Ok(()));
        }
    }

    #[tokio::test]
    async fn nothing_is_hashed_for_who_has_gone() {
        let hasher = Hasher::start().unwrap();
        let (mut busy, mut release) = (Vec::new(), Vec::new());
        for _ in 0..THREADS_MAX {
            let (released, held) = mpsc::channel::<()>();
            release.push(released);
            busy.push(
                hasher
                    .turn(Lane::Known)
                    .unwrap()
                    .run(move |_| Ok(held.recv())),
            );
        }
        let mut busy = pin!(join_all(busy));
        assert!(timeout(Duration::ZERO, &mut busy).await.is_err());
        let (hashed, is_hashed) = mpsc::channel();
        let going = hasher
            .turn(Lane::Known)
            .unwrap()
            .run(move |_| Ok(hashed.send(())?));
        // Asks, and goes.
        assert!(timeout(Duration::ZERO, going).await.is_err());
        drop(release);
        busy.await;
        // Its end of the channel went with the work, undone.
        assert!(is_hashed.recv().is_err());
    }

    #[test]
    fn a_flood_gets_its_share_of_the_time_after_one_burst() {
        for lane in [Lane::Known, Lane::Stranger] {
            let share = lane.share_denominator();
            let took = Duration::from_millis(20);
            let start = Instant::now();
            let mut pace = Pace::starting(lane, start);
            let (mut now, mut without_rest) = (start, Duration::ZERO);
            let mut hash = |now: &mut Instant| {
                pace.hashed(*now, took);
                *now += took;
                let rest = pace.rest(*now);
                *now += rest;
                rest
            };
            while hash(&mut now).is_zero() {
                without_rest += took;
            }
            assert_eq!(without_rest, BURST);
            let began = now;
            for _ in 0..100 {
                assert_eq!(hash(&mut now), took * (share - 1));
            }
            assert_eq!(now - began, took * share * 100);
            // After a quiet while there is another burst, and no more than that.
            now += BURST * share * 10;
            let quick = (0..1_000).take_while(|_| hash(&mut now).is_zero());
            assert_eq!(took * u32::try_from(quick.count()).unwrap(), BURST);
        }
    }

    #[test]
    fn a_wait_for_a_core_takes_nothing_of_the_share() {
        let start = Instant::now();
        let mut pace = Pace::starting(Lane::Stranger, start);
        let ended = start + Duration::from_secs(3_600);
        pace.hashed(start, Duration::from_millis(20));
        assert_eq!(pace.rest(ended), Duration::ZERO);
        assert!(pace.even < ended);
    }

    #[tokio::test]
    async fn those_whom_we_know_do_not_wait_behind_strangers() {
        let hasher = Hasher::start().unwrap();
        let (mut busy, mut release) = (Vec::new(), Vec::new());
        let (begun, has_begun) = mpsc::channel();
        while let Ok(turn) = hasher.turn(Lane::Stranger) {
            let (released, held) = mpsc::channel::<()>();
            release.push(released);
            let begun = begun.clone();
            busy.push(turn.run(move |_| {
                begun.send(())?;
                Ok(held.recv())
            }));
        }
        let mut busy = pin!(join_all(busy));
        assert!(timeout(Duration::ZERO, &mut busy).await.is_err());
        // Every thread is at one, and the rest wait.
        for _ in 0..release.len() / (1 + WAITING_PER_THREAD) {
            has_begun.recv().unwrap();
        }
        let turn = hasher.turn(Lane::Known).unwrap();
        let mut known = pin!(turn.run(|_| Ok(())));
        assert!(timeout(Duration::ZERO, &mut known).await.is_err());
        // One thread is free; the others and all who wait stay as they are.
        release.remove(0);
        known.await.unwrap();
        drop(release);
        busy.await;
    }

    #[tokio::test]
    async fn who_comes_when_too_many_wait_is_refused_at_once() {
        let hasher = Hasher::start().unwrap();
        let mut turns = Vec::new();
        while let Ok(turn) = hasher.turn(Lane::Stranger) {
            turns.push(turn);
        }
        assert_eq!(hasher.turn(Lane::Stranger).err(), Some(HasherError::Busy));
        turns.pop();
        assert!(hasher.turn(Lane::Stranger).is_ok());
    }
}
