//! Room for requests: how many run at once, in all and for one client or merchant.
//!
//! A request that waits for its body does not run: it gives its place up, and takes one again when
//! more of the body arrives. So a slow or silent sender keeps nobody out.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use axum::body::{Body, HttpBody as _};
use chassis::ids::MerchantId;
use futures::{StreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_address::network;

/// One guest may take 1/`GUEST_SHARE` of the places. That is half, so that others still find places
/// while its requests take long.
const GUEST_SHARE: usize = 2;

/// No place was left when the request's body arrived, or when it had to wait. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[error("no room for the request")]
pub struct NoRoom;

/// Who takes places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guest {
    Network(IpAddr),
    /// From wherever its people ask.
    Merchant(MerchantId),
}

impl From<IpAddr> for Guest {
    fn from(client: IpAddr) -> Self {
        Self::Network(network(client))
    }
}

impl From<MerchantId> for Guest {
    fn from(merchant_id: MerchantId) -> Self {
        Self::Merchant(merchant_id)
    }
}

/// The room of one public address, or of anything else in which requests take places.
#[derive(Debug)]
pub struct Room {
    places: Arc<Semaphore>,
    per_guest_max: usize,
    /// Running requests of each.
    guests: Mutex<HashMap<Guest, usize>>,
}

impl Room {
    /// Room for so many requests at once, of which one guest may have half.
    pub fn of_requests(requests_max: usize) -> Self {
        Self::new(requests_max, requests_max.div_ceil(GUEST_SHARE))
    }

    /// Room for `requests_max` requests at once, of which one guest may have `per_guest_max`.
    pub fn new(requests_max: usize, per_guest_max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(requests_max)),
            per_guest_max,
            guests: Mutex::default(),
        }
    }

    /// Takes a place for a request, or returns `None` if there is no room for it.
    pub fn enter(self: &Arc<Self>, guest: impl Into<Guest>) -> Option<Arc<RequestPlace>> {
        let place = Arc::new(RequestPlace {
            room: self.clone(),
            guest: guest.into(),
            running: Mutex::default(),
        });
        place.take().then_some(place)
    }

    fn run(self: &Arc<Self>, guest: Guest) -> Option<Occupancy> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        let mut guests = self.guests();
        let count = guests.entry(guest).or_default();
        if *count >= self.per_guest_max {
            return None;
        }
        *count += 1;
        drop(guests);
        Some(Occupancy {
            room: self.clone(),
            guest,
            _permit: permit,
        })
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<Guest, usize>> {
        // No code panics while it holds the lock.
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request's place.
#[derive(Debug)]
pub struct RequestPlace {
    room: Arc<Room>,
    guest: Guest,
    running: Mutex<Option<Occupancy>>,
}

impl RequestPlace {
    /// The body, waited for without a place. Fails with [`NoRoom`] if no place is left when more
    /// arrives.
    pub fn without(self: &Arc<Self>, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let place = self.clone();
        let mut chunks = body.into_data_stream();
        Body::from_stream(stream::poll_fn(move |cx| {
            let arrived = chunks.poll_next_unpin(cx);
            if arrived.is_pending() {
                place.leave();
            } else if !place.take() {
                return Poll::Ready(Some(Err(axum::Error::new(NoRoom))));
            }
            arrived
        }))
    }

    /// Takes the place, unless the request has it. Returns whether it now has it.
    pub fn take(&self) -> bool {
        let mut running = self.running();
        if running.is_none() {
            *running = self.room.run(self.guest);
        }
        running.is_some()
    }

    /// Gives the place up while the request does not run.
    pub fn leave(&self) {
        drop(self.running().take());
    }

    fn running(&self) -> MutexGuard<'_, Option<Occupancy>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running request. It counts until it is dropped.
#[derive(Debug)]
struct Occupancy {
    room: Arc<Room>,
    guest: Guest,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Occupancy {
    fn drop(&mut self) {
        let mut guests = self.room.guests();
        if let Some(count) = guests.get_mut(&self.guest) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&self.guest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::BodyExt as _;

    use super::*;

    fn client(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn one_guest_does_not_take_all_of_it() {
        let guests: [Guest; 3] = [
            client(1).into(),
            MerchantId::new().into(),
            MerchantId::new().into(),
        ];
        for [one, other, third] in [guests, [guests[1], guests[2], guests[0]]] {
            let room = Arc::new(Room::new(4, 2));
            let mut places: Vec<_> = (0..2).map(|_| room.enter(one).unwrap()).collect();
            assert!(room.enter(one).is_none());
            places.push(room.enter(other).unwrap());
            places.push(room.enter(other).unwrap());
            assert!(room.enter(third).is_none(), "all of it is taken");
            places.clear();
            assert!(room.enter(one).is_some());
            assert!(room.guests().is_empty(), "nobody is remembered");
        }
    }

    #[tokio::test]
    async fn a_body_that_is_waited_for_takes_no_place() {
        let room = Arc::new(Room::new(1, 1));
        let (send, chunks) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let chunks = stream::unfold(chunks, async |mut chunks| {
            let chunk = chunks.recv().await?;
            Some((Ok::<_, axum::Error>(chunk), chunks))
        });
        let place = room.enter(client(1)).unwrap();
        let mut body = place.without(Body::from_stream(chunks));
        assert!(futures::poll!(Box::pin(body.frame())).is_pending());
        let other = room
            .enter(client(1))
            .expect("the place is free, also for who waits");
        send.send(Bytes::from_static(b"x")).unwrap();
        let refused = body.frame().await.expect("an error").unwrap_err();
        let mut causes = std::iter::successors(
            Some(&refused as &(dyn std::error::Error + 'static)),
            |error| error.source(),
        );
        assert!(causes.any(|cause| cause.is::<NoRoom>()), "{refused}");
        drop(other);
        send.send(Bytes::from_static(b"y")).unwrap();
        assert!(body.frame().await.expect("a frame").is_ok());
        assert!(room.enter(client(2)).is_none(), "it runs again");
    }
}
