//! Searches: pages for which many rows are looked at, because no index finds what is wanted.
//!
//! Promise: however many are asked for at once, connections are left to what is found by an index,
//! unless the database is given fewer than there are places, and a merchant's searches wait for each other before they keep out another's.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chassis::ids::MerchantId;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Most searches that run at once. An embedded database has four connections for reading.
const RUNNING_MAX: usize = 3;

/// How long a search waits until it may run: many times as long as one takes.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The searches of one process. Clones are the same.
#[derive(Clone, Debug)]
pub struct Searches {
    places: Arc<Semaphore>,
    /// Each merchant's turn, while somebody has it or waits for it.
    turns: Arc<Mutex<HashMap<MerchantId, Arc<Semaphore>>>>,
}

/// A search that runs, until it is dropped.
#[derive(Debug)]
pub struct Search {
    _turn: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

/// Too many run. Nothing was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many searches are running")]
pub struct TooManySearches;

impl Default for Searches {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(RUNNING_MAX)),
            turns: Arc::default(),
        }
    }
}

impl Searches {
    /// Waits for a merchant's turn and then for a place, but not for long.
    pub async fn begin(&self, merchant: MerchantId) -> Result<Search, TooManySearches> {
        let waiting = async {
            let turn = self.turn(merchant).acquire_owned().await?;
            let place = Arc::clone(&self.places).acquire_owned().await?;
            Ok::<_, AcquireError>(Search {
                _turn: turn,
                _place: place,
            })
        };
        match timeout(WAIT_MAX, waiting).await {
            Ok(begun) => Ok(begun.expect("nobody closes them")),
            Err(_) => {
                metrics::counter!("searches_refused_total").increment(1);
                Err(TooManySearches)
            }
        }
    }

    fn turn(&self, merchant: MerchantId) -> Arc<Semaphore> {
        // No code panics while it holds the lock.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let turn = turns.entry(merchant);
        Arc::clone(turn.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_merchants_searches_run_one_at_a_time_and_three_in_all() {
        let searches = Searches::default();
        let merchants: Vec<MerchantId> = (0..4).map(|_| MerchantId::new()).collect();
        let first = searches.begin(merchants[0]).await.unwrap();
        let again = searches.begin(merchants[0]).await;
        assert_eq!(again.unwrap_err(), TooManySearches);
        let second = searches.begin(merchants[1]).await.unwrap();
        let _third = searches.begin(merchants[2]).await.unwrap();
        let fourth = searches.begin(merchants[3]).await;
        assert_eq!(fourth.unwrap_err(), TooManySearches);
        let (next, ()) = tokio::join!(searches.begin(merchants[0]), async {
            drop(second);
            drop(first);
        });
        next.expect("the next of them goes on");
        searches.begin(merchants[3]).await.expect("a place is free");
        assert!(
            searches.turns.lock().unwrap().len() <= 2,
            "nobody is remembered"
        );
    }
}
