//! Room for requests: how many run at once, and how many of them one client may have here.
//!
//! A request that waits for its body does not run: it gives its place up, and takes one again when
//! more of the body is there. So whoever sends slowly, or nothing, keeps nobody out.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use axum::body::{Body, HttpBody as _};
use futures::{StreamExt as _, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_address::network;

/// There was no place left when the request's body was there. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[error("no room for the request")]
pub struct NoRoom;

/// The room of one public address, or of whatever else requests take their places in.
#[derive(Debug)]
pub struct Room {
    places: Arc<Semaphore>,
    per_client_max: usize,
    /// Requests that are here, running or not.
    clients: Mutex<HashMap<IpAddr, usize>>,
}

impl Room {
    /// For so many requests at once, and of one client.
    pub fn new(requests_max: usize, per_client_max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(requests_max)),
            per_client_max,
            clients: Mutex::default(),
        }
    }

    /// A place for a request; none where there is no room for it.
    pub fn enter(self: &Arc<Self>, client: IpAddr) -> Option<Arc<Place>> {
        let client = network(client);
        {
            let mut clients = self.clients();
            let here = clients.entry(client).or_default();
            if *here >= self.per_client_max {
                return None;
            }
            *here += 1;
        }
        let place = Arc::new(Place {
            room: self.clone(),
            client,
            permit: Mutex::default(),
        });
        place.take().then_some(place)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // No code panics while it holds the lock.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request's.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
    client: IpAddr,
    /// While it runs.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Place {
    /// The body, which is waited for without a place; fails with [`NoRoom`].
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

    fn take(&self) -> bool {
        let mut permit = self.permit();
        if permit.is_none() {
            *permit = self.room.places.clone().try_acquire_owned().ok();
        }
        permit.is_some()
    }

    fn leave(&self) {
        drop(self.permit().take());
    }

    fn permit(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.room.clients();
        if let Some(here) = clients.get_mut(&self.client) {
            *here -= 1;
            if *here == 0 {
                clients.remove(&self.client);
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
    fn one_client_does_not_take_all_of_it() {
        let room = Arc::new(Room::new(4, 2));
        let mut places: Vec<_> = (0..2).map(|_| room.enter(client(1)).unwrap()).collect();
        assert!(room.enter(client(1)).is_none());
        places.push(room.enter(client(2)).unwrap());
        places.push(room.enter(client(2)).unwrap());
        assert!(room.enter(client(3)).is_none(), "all of it is taken");
        places.clear();
        assert!(room.enter(client(1)).is_some());
        assert!(room.clients().is_empty(), "nobody is remembered");
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
        let other = room.enter(client(2)).expect("the place is free");
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
