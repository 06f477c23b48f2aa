//! A request in hand, and how it waits for something that may not happen for long.
//!
//! While it waits it does not run: it gives up its place among the running requests, and time
//! travel does not wait for it. Those that wait have places of their own.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chassis::{
    clock::{Activity, Clock},
    shutdown::Shutdown,
};
use tokio::time::Instant;

use crate::room::{NoRoom, RequestPlace, Room};

/// Where the requests of this process wait. Clones share the places.
#[derive(Clone, Debug)]
pub struct WaitingRoom {
    places: Arc<Room>,
    clock: Clock,
    shutdown: Shutdown,
}

impl WaitingRoom {
    pub fn new(waits_max: usize, clock: &Clock, shutdown: &Shutdown) -> Self {
        Self {
            places: Arc::new(Room::of_requests(waits_max)),
            clock: clock.clone(),
            shutdown: shutdown.clone(),
        }
    }
}

/// A request in hand, among its extensions. Clones are the same request. Time travel waits for it
/// until the last is dropped, except while it waits itself.
#[derive(Clone, Debug)]
pub struct RequestInHand {
    place: Arc<RequestPlace>,
    waiting: WaitingRoom,
    client: IpAddr,
    state: Arc<Mutex<InHand>>,
}

#[derive(Debug)]
struct InHand {
    /// None while the request waits.
    activity: Option<Activity>,
    waited: Duration,
}

impl RequestInHand {
    /// Takes a place in the room for a client's request, or returns `None` if there is none.
    pub fn enter(room: &Arc<Room>, client: IpAddr, waiting: &WaitingRoom) -> Option<Self> {
        let state = InHand {
            activity: Some(waiting.clock.activity()),
            waited: Duration::ZERO,
        };
        Some(Self {
            place: room.enter(client)?,
            waiting: waiting.clone(),
            client,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// The place in which it runs.
    pub fn place(&self) -> &Arc<RequestPlace> {
        &self.place
    }

    /// Waits for something that may not happen for long. Returns `None` once the process stops: the
    /// caller is then to be answered with what there is. Fails at once if no place is left among
    /// those that wait.
    pub async fn wait<T>(&self, happening: impl Future<Output = T>) -> Result<Option<T>, NoRoom> {
        let Some(_waiting) = self.waiting.places.enter(self.client) else {
            metrics::counter!("gateway_waits_refused_total").increment(1);
            return Err(NoRoom);
        };
        let _counted = CountedWait::new();
        let begun = Instant::now();
        self.place.leave();
        self.state().activity = None;
        let happened = tokio::select! {
            biased;
            // What is waited for may fail because it stops, too.
            () = self.waiting.shutdown.wait() => None,
            happened = happening => Some(happened),
        };
        let activity = self.waiting.clock.activity();
        let mut state = self.state();
        state.activity = Some(activity);
        state.waited += begun.elapsed();
        // If none is free it goes on without: only its answer is left to write, and it comes from a
        // bounded number of places.
        self.place.take();
        Ok(happened)
    }

    /// How long it has waited: no part of how long it took.
    pub fn waited(&self) -> Duration {
        self.state().waited
    }

    fn state(&self) -> MutexGuard<'_, InHand> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait, which counts among the process's until it is dropped.
struct CountedWait;

impl CountedWait {
    fn new() -> Self {
        metrics::gauge!("gateway_waits").increment(1);
        Self
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        metrics::gauge!("gateway_waits").decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, net::Ipv4Addr, pin::pin};

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn enter(room: &Arc<Room>, waiting: &WaitingRoom) -> RequestInHand {
        RequestInHand::enter(room, CLIENT, waiting).expect("a place")
    }

    #[tokio::test]
    async fn who_waits_holds_no_place_and_no_clock() {
        let (clock, shutdown) = (Clock::system(), Shutdown::new());
        let (room, waiting) = (
            Arc::new(Room::of_requests(1)),
            WaitingRoom::new(1, &clock, &shutdown),
        );
        let waits = enter(&room, &waiting);
        assert!(clock.is_busy());
        let (happen, happens) = tokio::sync::oneshot::channel();
        let mut wait = Box::pin(waits.wait(happens));
        assert!(futures::poll!(&mut wait).is_pending());
        assert!(!clock.is_busy());
        let runs = enter(&room, &waiting);
        let refused = runs.wait(pending::<()>()).await;
        assert!(refused.is_err(), "all places of those that wait are taken");
        drop(runs);
        happen.send(7).expect("somebody waits");
        assert_eq!(wait.await.expect("a place"), Some(Ok(7)));
        assert!(clock.is_busy(), "it runs again");
        assert!(room.enter(CLIENT).is_none(), "in its place");
    }

    #[tokio::test]
    async fn a_process_that_stops_ends_every_wait() {
        let (clock, shutdown) = (Clock::system(), Shutdown::new());
        let (room, waiting) = (
            Arc::new(Room::of_requests(1)),
            WaitingRoom::new(1, &clock, &shutdown),
        );
        let waits = enter(&room, &waiting);
        let mut wait = pin!(waits.wait(pending::<()>()));
        assert!(futures::poll!(&mut wait).is_pending());
        shutdown.begin();
        assert_eq!(wait.await.expect("a place"), None);
    }
}
