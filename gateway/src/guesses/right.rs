//! The right guesses of the last hour: a few bytes for each, because every payment's callback is one.

use std::{
    collections::HashSet,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Right guesses are remembered for at least this long and at most twice as long, unless more than
/// [`GENERATION_MAX`] come meanwhile.
const GENERATION: Duration = Duration::from_secs(60 * 60);
const GENERATION_MAX: usize = 50_000;

/// Hashes of right guesses. They are forgotten by generations.
#[derive(Debug)]
pub(super) struct RightGuesses(Mutex<Generations>);

#[derive(Debug)]
struct Generations {
    young: HashSet<u64>,
    /// The generation before.
    old: HashSet<u64>,
    young_since: Instant,
}

impl Default for RightGuesses {
    fn default() -> Self {
        Self(Mutex::new(Generations {
            young: HashSet::new(),
            old: HashSet::new(),
            young_since: Instant::now(),
        }))
    }
}

impl RightGuesses {
    pub(super) fn remember(&self, guess: u64) {
        let mut generations = self.current();
        if generations.young.len() >= GENERATION_MAX && !generations.young.contains(&guess) {
            generations.turn();
        }
        generations.young.insert(guess);
    }

    pub(super) fn contains(&self, guess: u64) -> bool {
        let generations = self.current();
        generations.young.contains(&guess) || generations.old.contains(&guess)
    }

    pub(super) fn forget(&self, guess: u64) {
        let mut generations = self.current();
        generations.young.remove(&guess);
        generations.old.remove(&guess);
    }

    fn current(&self) -> MutexGuard<'_, Generations> {
        // No code panics while it holds the lock.
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = generations.young_since.elapsed();
        if age >= GENERATION {
            generations.turn();
        }
        if age >= GENERATION * 2 {
            generations.old.clear();
        }
        generations
    }
}

impl Generations {
    fn turn(&mut self) {
        self.old = mem::take(&mut self.young);
        self.young_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_right_guess_is_remembered_for_an_hour() {
        let right = RightGuesses::default();
        advance(GENERATION / 2).await;
        right.remember(1);
        advance(GENERATION).await;
        assert!(right.contains(1));
        advance(GENERATION).await;
        assert!(!right.contains(1));
        right.remember(1);
        advance(GENERATION * 2).await;
        assert!(!right.contains(1));
    }

    #[tokio::test]
    async fn one_that_turned_wrong_is_forgotten() {
        let right = RightGuesses::default();
        right.remember(1);
        right.forget(1);
        assert!(!right.contains(1));
    }

    #[tokio::test]
    async fn many_make_the_oldest_forgotten() {
        let right = RightGuesses::default();
        let count = |guesses: std::ops::Range<usize>| {
            for guess in guesses {
                right.remember(u64::try_from(guess).unwrap_or(u64::MAX));
            }
        };
        count(0..GENERATION_MAX);
        count(0..GENERATION_MAX + 1);
        assert!(right.contains(0));
        count(GENERATION_MAX + 1..GENERATION_MAX * 2 + 1);
        assert!(!right.contains(0));
    }
}
