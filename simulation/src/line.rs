//! What all kinds of links have in common: a door where callers come in, the connections behind
//! it, what delays them and what ends them.
//!
//! Lives in the simulation's own runtime: doors may be opened only there.

use std::{
    future::{Future, poll_fn},
    io,
    net::{Ipv4Addr, SocketAddr},
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::{
    choice::Choices,
    driver::lock,
    faults::{Fate, Faults},
    time::{Millis, Time},
};

/// Connections that may wait to be let in.
const BACKLOG: u32 = 1_024;

/// The point of a message where a trip-wire lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The message is not forwarded.
    Before,
    /// The message has been forwarded. A database has also carried it out.
    After,
    /// An answer has come and is not delivered; a database's is.
    AfterAnswer,
}

/// One link, apart from what it forwards and where.
pub(crate) struct Line {
    pub name: String,
    pub seed: u64,
    pub time: Time,
    pub faults: Faults,
    door: Door,
    /// Counts how often all connections were cut.
    cuts: watch::Sender<u64>,
    frozen_until: AtomicU64,
    away_until: AtomicU64,
    sent: AtomicU64,
    /// Messages that are waiting for virtual time.
    held: AtomicUsize,
    wires: Mutex<Vec<Wire>>,
}

struct Wire {
    message: u64,
    when: When,
    tripped: oneshot::Sender<()>,
}

/// Whether a message's answer reaches the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerFate {
    Delivered,
    Lost,
}

/// Somebody who came in.
pub(crate) struct Caller {
    pub socket: Socket,
    /// Counted from 0.
    pub connection: u64,
}

impl Line {
    pub fn new(name: &str, seed: u64, time: Time, faults: Faults) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            seed,
            time,
            faults,
            door: Door::open()?,
            cuts: watch::Sender::new(0),
            frozen_until: AtomicU64::new(0),
            away_until: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            wires: Mutex::default(),
        })
    }

    /// Lets callers in and carries what they say, until the tasks are dropped.
    pub fn serve<C, F>(self: &Arc<Self>, carry: C) -> JoinSet<()>
    where
        C: Fn(Caller) -> F + Send + 'static,
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let line = Arc::clone(self);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for connection in 0.. {
                let socket = line.door.enter().await;
                let mut cuts = line.cuts.subscribe();
                let carried = carry(Caller { socket, connection });
                connections.spawn(async move {
                    tokio::select! {
                        biased;
                        _ = cuts.changed() => {}
                        // Both sides see how it ended, and nobody else needs to know.
                        _ = carried => {}
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        tasks
    }

    pub fn address(&self) -> SocketAddr {
        self.door.address
    }

    pub fn cut(&self) {
        self.door.close();
        self.end_connections();
    }

    pub fn mend(&self) {
        self.away_until.store(0, Ordering::SeqCst);
        self.frozen_until.store(0, Ordering::SeqCst);
        self.door.reopen();
    }

    fn end_connections(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub fn freeze(&self, length: Millis) {
        self.frozen_until
            .fetch_max(self.time.now() + length, Ordering::SeqCst);
    }

    /// Ends every connection. For this long, new ones are let in only to be refused.
    pub fn go_away(&self, length: Millis) {
        self.away_until
            .fetch_max(self.time.now() + length, Ordering::SeqCst);
        self.end_connections();
    }

    pub fn refuses(&self, choices: &mut Choices) -> bool {
        let is_away = self.away_until.load(Ordering::SeqCst) > self.time.now();
        is_away || self.faults.refuse(choices)
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Counts a message; returns its number.
    pub fn count(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn is_holding(&self) -> bool {
        self.held.load(Ordering::SeqCst) > 0
    }

    /// Waits while nothing passes.
    pub async fn thaw(&self) {
        loop {
            let until = self.frozen_until.load(Ordering::SeqCst);
            if until <= self.time.now() {
                return;
            }
            self.hold_until(until).await;
        }
    }

    pub async fn hold(&self, length: Millis) {
        self.hold_until(self.time.now() + length).await;
    }

    async fn hold_until(&self, due: Millis) {
        let _held = CountGuard::of(&self.held);
        self.time.sleep_until(due).await;
    }

    /// Lets a message suffer its fate, up to the point of being forwarded.
    pub async fn suffer(&self, fate: Fate) -> io::Result<AnswerFate> {
        match fate {
            Fate::Forwarded => {}
            Fate::Delayed(length) => self.hold(length).await,
            // Only a link that can do without its caller lets stragglers arrive.
            Fate::LostBefore | Fate::Straggles(_) => return Err(cut_off()),
            Fate::LostAfter => return Ok(AnswerFate::Lost),
            Fate::Frozen(length) => {
                self.freeze(length);
                self.thaw().await;
            }
            Fate::Away(length) => {
                self.go_away(length);
                return Err(cut_off());
            }
        }
        Ok(AnswerFate::Delivered)
    }

    pub fn lay_wire(&self, passing: u64, when: When, tripped: oneshot::Sender<()>) {
        let message = self.sent() + passing + 1;
        self.wires().push(Wire {
            message,
            when,
            tripped,
        });
    }

    /// Whether a trip-wire lies there that somebody still watches.
    pub fn is_wired(&self, message: u64, when: When) -> bool {
        let mut wires = self.wires();
        wires.retain(|wire| !wire.tripped.is_closed());
        wires.iter().any(|wire| wire.lies(message, when))
    }

    /// Cuts the line if a trip-wire lies at this point of a message, or at an earlier one that
    /// never came this far.
    pub fn pass(&self, message: u64, when: When) -> io::Result<()> {
        if !self.is_wired(message, when) {
            return Ok(());
        }
        self.cut();
        let tripped: Vec<_> = self
            .wires()
            .extract_if(.., |wire| wire.lies(message, when))
            .collect();
        for wire in tripped {
            // A receiver that no longer waits need not be told.
            wire.tripped.send(()).ok();
        }
        Err(cut_off())
    }

    fn wires(&self) -> MutexGuard<'_, Vec<Wire>> {
        lock(&self.wires)
    }
}

impl Wire {
    fn lies(&self, message: u64, when: When) -> bool {
        self.message <= message && self.when == when
    }
}

/// The error of a connection that the simulation ends.
pub(crate) fn cut_off() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// Counts one more of something for as long as it lives.
pub(crate) struct CountGuard<'c>(&'c AtomicUsize);

impl<'c> CountGuard<'c> {
    fn of(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A connection that is reset when dropped, as when a network or a process dies, unless both sides
/// have ended it.
pub(crate) struct Socket {
    stream: TcpStream,
    is_ended: bool,
}

impl Socket {
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).await.and_then(Self::new)
    }

    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            is_ended: false,
        })
    }

    /// Ends it in order: what was written is still delivered.
    pub fn end(mut self) {
        self.is_ended = true;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_ended {
            // It fails only if the connection is already gone.
            self.stream.set_zero_linger().ok();
        }
    }
}

impl Deref for Socket {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl DerefMut for Socket {
    fn deref_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

/// Where callers come in. While closed it keeps its port and refuses them.
struct Door {
    address: SocketAddr,
    /// Bound but not listening, so that nobody else gets the port.
    _port: TcpSocket,
    listening: Mutex<DoorListener>,
}

#[derive(Default)]
struct DoorListener {
    listener: Option<TcpListener>,
    waiting: Option<Waker>,
}

impl Door {
    fn open() -> io::Result<Self> {
        let port = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = port.local_addr()?;
        let listener = Some(bound(address)?.listen(BACKLOG)?);
        let listening = Mutex::new(DoorListener {
            listener,
            waiting: None,
        });
        Ok(Self {
            address,
            _port: port,
            listening,
        })
    }

    fn close(&self) {
        lock(&self.listening).listener = None;
    }

    fn reopen(&self) {
        let mut listening = lock(&self.listening);
        if listening.listener.is_some() {
            return;
        }
        let listener = bound(self.address).and_then(|socket| socket.listen(BACKLOG));
        listening.listener = Some(listener.expect("the port is the link's own"));
        if let Some(waiting) = listening.waiting.take() {
            waiting.wake();
        }
    }

    /// The next caller.
    async fn enter(&self) -> Socket {
        poll_fn(|context| {
            let mut listening = lock(&self.listening);
            listening.waiting = Some(context.waker().clone());
            let Some(listener) = &listening.listener else {
                return Poll::Pending;
            };
            // Somebody who left before being let in is not a caller.
            while let Poll::Ready(accepted) = listener.poll_accept(context) {
                if let Ok(socket) = accepted.and_then(|(stream, _)| Socket::new(stream)) {
                    return Poll::Ready(socket);
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
