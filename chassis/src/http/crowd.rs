//! The connections of a listener that wait for their clients: clients who say nothing, stop in the
//! middle or do not listen cost others nothing.
//!
//! Nobody is refused for being one too many. The connection that has waited longest goes instead,
//! so that whoever does speak is heard, also from an address that is flooding us. Promise: no
//! connection goes while its request runs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a client is given to speak before its connection may go for any other: many who come at
/// once are no flood.
const HEARING: Duration = Duration::from_millis(250);

/// Those of one listener.
pub(super) struct Crowd {
    per_address_max: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The turn of the next: who has a lower one has waited longer.
    next: u64,
    connections: BTreeMap<u64, Entry>,
    turns: HashMap<IpAddr, BTreeSet<u64>>,
}

struct Entry {
    address: Option<IpAddr>,
    since: Instant,
    gone: CancellationToken,
}

impl Waiting {
    fn add(&mut self, address: Option<IpAddr>, gone: CancellationToken) -> u64 {
        let turn = self.next;
        self.next += 1;
        let since = Instant::now();
        let entry = Entry {
            address,
            since,
            gone,
        };
        self.connections.insert(turn, entry);
        if let Some(address) = address {
            self.turns.entry(address).or_default().insert(turn);
        }
        turn
    }

    /// Nothing where that connection was sent away before.
    fn remove(&mut self, turn: u64) -> Option<CancellationToken> {
        let entry = self.connections.remove(&turn)?;
        if let Some(address) = entry.address
            && let Some(turns) = self.turns.get_mut(&address)
        {
            turns.remove(&turn);
            if turns.is_empty() {
                self.turns.remove(&address);
            }
        }
        Some(entry.gone)
    }

    fn send_away(&mut self, turn: u64) {
        if let Some(gone) = self.remove(turn) {
            metrics::counter!("http_connections_sent_away_total").increment(1);
            gone.cancel();
        }
    }
}

impl Crowd {
    pub(super) fn new(per_address_max: usize) -> Self {
        Self {
            per_address_max,
            waiting: Mutex::default(),
        }
    }

    /// A new connection, which waits. Without an address it counts for none.
    pub(super) fn join(self: &Arc<Self>, address: Option<IpAddr>) -> Member {
        let member = Member {
            crowd: self.clone(),
            address,
            gone: CancellationToken::new(),
            turn: Mutex::default(),
        };
        member.wait();
        member
    }

    /// Makes room for another connection, where any has waited for long enough.
    pub(super) fn send_one_away(&self) {
        let mut waiting = self.waiting();
        if let Some((&turn, longest)) = waiting.connections.first_key_value()
            && longest.since.elapsed() >= HEARING
        {
            waiting.send_away(turn);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // No code panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection: it waits for its client, or runs the client's request.
pub(super) struct Member {
    crowd: Arc<Crowd>,
    address: Option<IpAddr>,
    gone: CancellationToken,
    /// While it waits.
    turn: Mutex<Option<u64>>,
}

impl Member {
    /// From now on it is the client's move.
    pub(super) fn wait(&self) {
        let mut turn = self.turn();
        if turn.is_some() {
            return;
        }
        let mut waiting = self.crowd.waiting();
        *turn = Some(waiting.add(self.address, self.gone.clone()));
        let turns = self.address.and_then(|address| waiting.turns.get(&address));
        if let Some(turns) = turns.filter(|turns| turns.len() > self.crowd.per_address_max)
            && let Some(&longest) = turns.first()
        {
            waiting.send_away(longest);
        }
    }

    /// From now on it is ours; false where the connection was sent away before that.
    pub(super) fn run(&self) -> bool {
        if let Some(turn) = self.turn().take() {
            self.crowd.waiting().remove(turn);
        }
        !self.gone.is_cancelled()
    }

    /// Waits until the connection is sent away.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    fn turn(&self) -> MutexGuard<'_, Option<u64>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.run();
    }
}
