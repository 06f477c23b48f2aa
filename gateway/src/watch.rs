//! Waits for charges to change, over one stream to each replica of charges-svc. Each watch is on
//! one of them, which tells at once what it commits itself and soon what the others do.
//!
//! Promise: no change is missed. What a stream leaves without an answer when it ends goes to
//! another, or to the next that opens, with what its caller knows of the charge: charges-svc looks
//! whether that has changed since.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chassis::{
    error_chain::chain,
    grpc::{Connection, Replicas},
};
use futures::stream;
use proto::charges::{Charge, ChargeWatch, WatchChargesRequest, charges_client::ChargesClient};
use tokio::{
    sync::{
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::Status;

use crate::backend;

/// How long after its end a stream is opened again.
const OPENED_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The most changes that are sent in one message.
const CHANGES_MAX: usize = 1_000;

/// All charges that somebody waits for. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct ChargeWatches(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Those without an answer.
    watches: HashMap<u64, Watch>,
    /// The open streams.
    streams: BTreeMap<u64, UnboundedSender<Change>>,
    /// Whether it was said that somebody waits while none is open.
    is_lack_told: bool,
    /// The last watch or stream.
    last_id: u64,
}

#[derive(Debug)]
struct Watch {
    wanted: ChargeWatch,
    answer: oneshot::Sender<Charge>,
    /// `None` while none is open.
    stream: Option<u64>,
}

#[derive(Debug)]
enum Change {
    Begin(ChargeWatch),
    End(u64),
}

impl ChargeWatches {
    /// Watches a charge from now on: as the caller knows it, whenever that was read.
    pub fn begin(&self, known: &Charge) -> ChargeWaiter {
        let (answer, told) = oneshot::channel();
        let mut state = self.state();
        let id = state.next_id();
        let wanted = ChargeWatch {
            watch_id: id,
            merchant_id: known.merchant_id.clone(),
            reference: known.reference.clone(),
            status: known.status,
            version: known.version,
        };
        let watch = Watch {
            wanted,
            answer,
            stream: None,
        };
        state.watches.insert(id, watch);
        state.place([id]);
        if state.streams.is_empty() && !state.is_lack_told {
            state.is_lack_told = true;
            tracing::warn!("no stream is open on which charges-svc could tell those who wait");
        }
        drop(state);
        ChargeWaiter {
            watches: self.clone(),
            id,
            told,
        }
    }

    /// Keeps a stream to each replica, until their service is no longer called.
    pub async fn keep(self, mut replicas: Replicas) {
        let mut streams = JoinSet::new();
        let mut kept = BTreeMap::new();
        while let Some(now) = replicas.next().await {
            kept.retain(
                |address: &SocketAddr, task: &mut tokio::task::AbortHandle| {
                    let stays = now.contains_key(address);
                    if !stays {
                        task.abort();
                    }
                    stays
                },
            );
            for (address, connection) in now {
                let keeping = || streams.spawn(self.clone().keep_stream(address, connection));
                kept.entry(address).or_insert_with(keeping);
            }
            while streams.try_join_next().is_some() {}
        }
    }

    async fn keep_stream(self, address: SocketAddr, connection: Connection) {
        loop {
            if let Err(error) = self.run_stream(connection.clone()).await {
                tracing::debug!(%address, error = %chain(&error), "charges are not watched here");
            }
            sleep(OPENED_AGAIN_AFTER).await;
        }
    }

    /// Opens a stream, and runs it to its end.
    async fn run_stream(&self, connection: Connection) -> Result<(), Status> {
        let (tell, changes) = mpsc::unbounded_channel();
        let mut charges = ChargesClient::new(connection);
        let opening = charges.watch_charges(requests(changes));
        let opened = timeout(backend::DEADLINE, opening).await;
        let opened = opened.map_err(|_| Status::deadline_exceeded("no answer in time"))??;
        let mut answers = opened.into_inner();
        let _open = OpenStream::new(self, tell);
        while let Some(answer) = answers.message().await? {
            let mut state = self.state();
            for told in answer.told {
                if let (Some(watch), Some(charge)) =
                    (state.watches.remove(&told.watch_id), told.charge)
                {
                    // Who waited may have gone just now.
                    watch.answer.send(charge).ok();
                }
            }
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends changes as they come, in few messages if they come fast.
fn requests(
    changes: UnboundedReceiver<Change>,
) -> impl stream::Stream<Item = WatchChargesRequest> + Send {
    stream::unfold(changes, async |mut changes| {
        let mut some = Vec::new();
        if changes.recv_many(&mut some, CHANGES_MAX).await == 0 {
            return None;
        }
        let mut request = WatchChargesRequest::default();
        for change in some {
            match change {
                Change::Begin(watch) => request.begin.push(watch),
                Change::End(id) => request.end.push(id),
            }
        }
        Some((request, changes))
    })
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Puts each of these watches on an open stream, if there is one, in turn.
    fn place(&mut self, ids: impl IntoIterator<Item = u64>) {
        let streams: Vec<_> = self.streams.iter().collect();
        for id in ids {
            let turn = usize::try_from(id).unwrap_or_default();
            let turn = turn.checked_rem(streams.len()).unwrap_or_default();
            if let (Some(watch), Some((stream, tell))) =
                (self.watches.get_mut(&id), streams.get(turn))
            {
                watch.stream = Some(**stream);
                // If the stream is ending, its watches are placed again.
                tell.send(Change::Begin(watch.wanted.clone())).ok();
            }
        }
    }

    /// The watches on this stream.
    fn on(&self, stream: Option<u64>) -> Vec<u64> {
        let on_it = self
            .watches
            .iter()
            .filter(|(_, watch)| watch.stream == stream);
        on_it.map(|(id, _)| *id).collect()
    }
}

/// A stream among those that take watches, until it is dropped.
struct OpenStream<'w> {
    watches: &'w ChargeWatches,
    id: u64,
}

impl<'w> OpenStream<'w> {
    fn new(watches: &'w ChargeWatches, tell: UnboundedSender<Change>) -> Self {
        let mut state = watches.state();
        let id = state.next_id();
        state.streams.insert(id, tell);
        state.is_lack_told = false;
        metrics::gauge!("gateway_watch_streams").increment(1);
        let left_over = state.on(None);
        state.place(left_over);
        drop(state);
        Self { watches, id }
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        let mut state = self.watches.state();
        state.streams.remove(&self.id);
        metrics::gauge!("gateway_watch_streams").decrement(1);
        let left_over = state.on(Some(self.id));
        for id in &left_over {
            if let Some(watch) = state.watches.get_mut(id) {
                watch.stream = None;
            }
        }
        state.place(left_over);
    }
}

/// Who waits for a charge to change. Dropped, it is no longer watched.
#[derive(Debug)]
pub struct ChargeWaiter {
    watches: ChargeWatches,
    id: u64,
    told: oneshot::Receiver<Charge>,
}

impl ChargeWaiter {
    /// The charge with another status, or as it is when its service stops; `None` if nobody can
    /// tell.
    pub async fn changed(mut self) -> Option<Charge> {
        (&mut self.told).await.ok()
    }
}

impl Drop for ChargeWaiter {
    fn drop(&mut self) {
        let mut state = self.watches.state();
        let Some(watch) = state.watches.remove(&self.id) else {
            return;
        };
        let stream = watch.stream.and_then(|stream| state.streams.get(&stream));
        if let Some(tell) = stream {
            tell.send(Change::End(self.id)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_can_tell_is_said_once_until_somebody_can() {
        let watches = ChargeWatches::default();
        let is_said = || watches.state().is_lack_told;
        assert!(!is_said(), "nobody waits");
        let waiting = watches.begin(&Charge::default());
        assert!(is_said());
        let (tell, mut told) = mpsc::unbounded_channel();
        let open = OpenStream::new(&watches, tell);
        assert!(!is_said(), "it is said again of the next lack");
        assert!(matches!(told.try_recv(), Ok(Change::Begin(_))));
        drop(open);
        assert!(!is_said(), "only of who asks");
        drop(waiting);
        let _waiting = watches.begin(&Charge::default());
        assert!(is_said());
    }
}
