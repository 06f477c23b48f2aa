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
#[derive(Debug, Default)]
pub(super) struct RightGuesses(Mutex<Generations>);

#[derive(Debug)]
struct Generations {
    young: HashSet<u64>,
    /// The generation before.
    old: HashSet<u64>,
    young_since: Instant,
}

impl Default for Generations {
    fn default() -> Self {
        Self {
            young: HashSet::new(),
            old: HashSet::new(),
            young_since: Instant::now(),
        }
    }
}

impl RightGuesses {
    pub(super) fn remember(&self, guess: u64) {
        let mut generations = self.current();
        if generations.young.len() >= GENERATION_MAX && !generations.young.contains(&guess) {
            let young = mem::take(&mut generations.young);
            *generations = Generations {
                old: young,
                ..Generations::default()
            };
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
        if age >= GENERATION * 2 {
            *generations = Generations::default();
        } else if age >= GENERATION {
            generations.old = mem::take(&mut generations.young);
            generations.young_since += GENERATION;
        }
        generations
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_right_guess_is_remembered_for_an_hour() {
        let right = RightGuesses::default();
        advance(GENERATION / 2).await;
        right.remember(1);
        advance(GENERATION).await;
        assert!(right.contains(1));
        advance(GENERATION / 2).await;
        assert!(!right.contains(1), "two hours after the generation began");
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
        let remember = |guesses: Range<u64>| guesses.for_each(|guess| right.remember(guess));
        let most = 50_000;
        remember(0..most);
        remember(0..most + 1);
        assert!(right.contains(0));
        remember(most + 1..most * 2 + 1);
        assert!(!right.contains(0));
    }
}
