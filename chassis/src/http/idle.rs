//! A listener's idle connections: clients that send nothing, stop in the middle or do not read
//! must not cost others anything.
//!
//! A connection is idle while it waits for its client. Nobody is refused for want of room: the
//! connection that has been idle longest is evicted instead, so that a client that sends is
//! served, even from an address that floods us. Promise: no connection is evicted while its
//! request runs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a client has to send something before its connection may be evicted for another: many
/// clients at once are not a flood yet.
const HEARING: Duration = Duration::from_millis(250);

/// The idle connections of one listener.
pub(super) struct IdleConnections {
    /// In all, not counting those that have not been idle for long.
    waiting_max: usize,
    per_address_max: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// The next turn. A lower turn means idle for longer.
    next: u64,
    connections: BTreeMap<u64, Entry>,
    turns: HashMap<IpAddr, BTreeSet<u64>>,
}

struct Entry {
    address: Option<IpAddr>,
    since: Instant,
    evicted: CancellationToken,
}

impl Queue {
    fn add(&mut self, address: Option<IpAddr>, evicted: CancellationToken) -> u64 {
        let turn = self.next;
        self.next += 1;
        let since = Instant::now();
        let entry = Entry {
            address,
            since,
            evicted,
        };
        self.connections.insert(turn, entry);
        if let Some(address) = address {
            self.turns.entry(address).or_default().insert(turn);
        }
        turn
    }

    /// Returns `None` if the connection was already evicted.
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
        Some(entry.evicted)
    }

    /// Evicts the connection that has been idle longest, if that is long enough.
    fn evict_oldest(&mut self) {
        if let Some((&turn, oldest)) = self.connections.first_key_value()
            && oldest.since.elapsed() >= HEARING
        {
            self.evict(turn);
        }
    }

    fn evict(&mut self, turn: u64) {
        if let Some(evicted) = self.remove(turn) {
            metrics::counter!("http_connections_evicted_total").increment(1);
            evicted.cancel();
        }
    }
}

impl IdleConnections {
    pub(super) fn new(waiting_max: usize, per_address_max: usize) -> Self {
        Self {
            waiting_max,
            per_address_max,
            queue: Mutex::default(),
        }
    }

    /// Adds a new connection, which is idle. Without an address it counts towards none.
    pub(super) fn add(self: &Arc<Self>, address: Option<IpAddr>) -> Connection {
        let connection = Connection {
            idle: self.clone(),
            address,
            evicted: CancellationToken::new(),
            turn: Mutex::default(),
        };
        connection.mark_idle();
        connection
    }

    /// Makes room for another connection, if any has been idle for long enough.
    pub(super) fn evict_oldest(&self) {
        self.queue().evict_oldest();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, which waits for its client or runs its request.
pub(super) struct Connection {
    idle: Arc<IdleConnections>,
    address: Option<IpAddr>,
    evicted: CancellationToken,
    /// Its turn while it is idle.
    turn: Mutex<Option<u64>>,
}

impl Connection {
    /// The connection now waits for its client.
    pub(super) fn mark_idle(&self) {
        let mut turn = self.turn();
        if turn.is_some() {
            return;
        }
        let mut queue = self.idle.queue();
        *turn = Some(queue.add(self.address, self.evicted.clone()));
        let turns = self.address.and_then(|address| queue.turns.get(&address));
        if let Some(turns) = turns.filter(|turns| turns.len() > self.idle.per_address_max)
            && let Some(&oldest) = turns.first()
        {
            queue.evict(oldest);
        }
        if queue.connections.len() > self.idle.waiting_max {
            queue.evict_oldest();
        }
    }

    /// The connection no longer waits for its client. Returns false if it was already evicted.
    pub(super) fn mark_active(&self) -> bool {
        if let Some(turn) = self.turn().take() {
            self.idle.queue().remove(turn);
        }
        !self.evicted.is_cancelled()
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    fn turn(&self) -> MutexGuard<'_, Option<u64>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.mark_active();
    }
}
