//! Searches: pages for which many rows are looked at, because no index finds what is wanted.
//!
//! Promise: however many are asked for at once, connections are left to what is found by an index,
//! unless the database is given fewer than there are places, and a merchant's searches wait for each
//! other before they keep out another's. Whoever stops waiting for a search frees no place: the
//! database goes on with it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chassis::{ids::MerchantId, shutdown::Tasks};
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

use crate::{Error, Result};

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
    tasks: Tasks,
}

/// The right to search, until it is dropped.
#[derive(Debug)]
struct Permit {
    _turn: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

/// Too many run. Nothing was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many searches are running")]
pub struct TooManySearches;

impl Searches {
    /// `tasks` are drained before the process ends.
    pub fn new(tasks: &Tasks) -> Self {
        Self {
            places: Arc::new(Semaphore::new(RUNNING_MAX)),
            turns: Arc::default(),
            tasks: tasks.clone(),
        }
    }

    /// Searches once it is a merchant's turn and there is a place. The search goes on, and keeps
    /// both, even if the caller stops waiting for what it finds.
    pub async fn run<T: Send + 'static>(
        &self,
        merchant: MerchantId,
        search: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<Result<T>, TooManySearches> {
        let permit = self.permit(merchant).await?;
        let (done, found) = oneshot::channel();
        self.tasks.spawn(async move {
            let outcome = search.await;
            drop(permit);
            // Its caller may have stopped waiting.
            done.send(outcome).ok();
        });
        // The sender is gone only after a panic.
        Ok(found.await.unwrap_or(Err(Error::WorkerCrashed)))
    }

    /// Waits for a merchant's turn and then for a place, but not for long.
    async fn permit(&self, merchant: MerchantId) -> Result<Permit, TooManySearches> {
        let waiting = async {
            let turn = self.turn(merchant).acquire_owned().await?;
            let place = Arc::clone(&self.places).acquire_owned().await?;
            Ok::<_, AcquireError>(Permit {
                _turn: turn,
                _place: place,
            })
        };
        match timeout(WAIT_MAX, waiting).await {
            Ok(permit) => Ok(permit.expect("nobody closes them")),
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
        let searches = Searches::new(&Tasks::new());
        let merchants: Vec<MerchantId> = (0..4).map(|_| MerchantId::new()).collect();
        let first = searches.permit(merchants[0]).await.unwrap();
        let again = searches.permit(merchants[0]).await;
        assert_eq!(again.unwrap_err(), TooManySearches);
        let second = searches.permit(merchants[1]).await.unwrap();
        let _third = searches.permit(merchants[2]).await.unwrap();
        let fourth = searches.permit(merchants[3]).await;
        assert_eq!(fourth.unwrap_err(), TooManySearches);
        let (next, ()) = tokio::join!(searches.permit(merchants[0]), async {
            drop(second);
            drop(first);
        });
        next.expect("the next of them goes on");
        searches
            .permit(merchants[3])
            .await
            .expect("a place is free");
        assert!(
            searches.turns.lock().unwrap().len() <= 2,
            "nobody is remembered"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_that_nobody_waits_for_keeps_its_turn_until_it_ends() {
        let searches = Searches::new(&Tasks::new());
        let merchant = MerchantId::new();
        let (end, ended) = oneshot::channel();
        let search = async move { Ok(ended.await.ok()) };
        let left = timeout(Duration::ZERO, searches.run(merchant, search)).await;
        left.expect_err("it has not ended");
        let next = searches.run(merchant, async { Ok(()) }).await;
        assert_eq!(next.unwrap_err(), TooManySearches);
        end.send(()).expect("the search goes on");
        let next = searches.run(merchant, async { Ok(()) }).await;
        next.expect("its turn comes").unwrap();
    }
}
