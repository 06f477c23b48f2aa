//! A link between one caller and a service: a TCP proxy that forwards, delays, loses or cuts what
//! it is given, whatever the protocol.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::tcp::{ReadHalf, WriteHalf},
    sync::oneshot,
    task::JoinSet,
};

use crate::{
    choice::Choices,
    driver::lock,
    faults::{Fate, Faults, Rates},
    line::{AnswerFate, Caller, Line, Socket, When, cut_off},
    time::{Millis, Time},
};

/// How much is read from a socket at once, and so shares a fate.
const CHUNK: usize = 64 * 1_024;

/// How long the connection stays open after a straggler, so that the service can act on it.
const STRAGGLER_HEARD: Millis = 10_000;

/// The replicas behind a link. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Targets(Arc<Mutex<BTreeMap<usize, SocketAddr>>>);

impl Targets {
    /// None of them is up yet.
    pub fn none() -> Self {
        Self::default()
    }

    /// One that is always up.
    pub fn fixed(address: SocketAddr) -> Self {
        let targets = Self::none();
        targets.set(0, address);
        targets
    }

    /// Records that a replica is up at this address.
    pub fn set(&self, replica: usize, address: SocketAddr) {
        lock(&self.0).insert(replica, address);
    }

    pub fn down(&self, replica: usize) {
        lock(&self.0).remove(&replica);
    }

    fn choose(&self, choices: &mut Choices) -> Option<SocketAddr> {
        let up: Vec<_> = lock(&self.0)
            .values()
            .map(|address| (1, *address))
            .collect();
        (!up.is_empty()).then(|| choices.weighted(&up))
    }
}

/// Clones are the same link, which ends with the last clone.
#[derive(Clone)]
pub struct Link {
    line: Arc<Line>,
    /// Aborted when dropped.
    _tasks: Arc<JoinSet<()>>,
}

impl Link {
    /// Opens a link. Each new connection goes to one of the replicas that are up.
    ///
    /// Belongs to the runtime that it is opened in.
    ///
    /// # Errors
    /// No port is free.
    pub async fn open(
        name: &str,
        seed: u64,
        time: Time,
        faults: Faults,
        to: Targets,
    ) -> anyhow::Result<Self> {
        let line = Arc::new(Line::new(name, seed, time, faults.or(Rates::NETWORK))?);
        let carrying = Arc::clone(&line);
        let tasks = line.serve(move |caller| carry(Arc::clone(&carrying), to.clone(), caller));
        Ok(Self {
            line,
            _tasks: Arc::new(tasks),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.line.address()
    }

    /// Resets every connection now, and refuses new ones until it is mended.
    pub fn cut(&self) {
        self.line.cut();
    }

    pub fn mend(&self) {
        self.line.mend();
    }

    /// Lets nothing pass for this long, without telling anybody.
    pub fn freeze(&self, length: Millis) {
        self.line.freeze(length);
    }

    /// Chunks that the caller has sent.
    pub fn sent(&self) -> u64 {
        self.line.sent()
    }

    /// Whether it is holding bytes back until their time comes.
    pub fn is_holding(&self) -> bool {
        self.line.is_holding()
    }

    /// Lays a trip-wire at the chunk after the next `passing` ones. Whoever trips it finds the
    /// link cut, and the receiver is told. Once the receiver is dropped, nothing is cut.
    pub fn trip(&self, passing: u64, when: When, tripped: oneshot::Sender<()>) {
        self.line.lay_wire(passing, when, tripped);
    }
}

async fn carry(line: Arc<Line>, to: Targets, mut caller: Caller) -> io::Result<()> {
    let name = format!("link {} {}", line.name, caller.connection);
    let mut choices = Choices::of(line.seed, &name);
    let target = to
        .choose(&mut choices)
        .filter(|_| !line.refuses(&mut choices));
    let mut service = Socket::connect(target.ok_or_else(cut_off)?).await?;
    let connection = Connection {
        line: &line,
        last: AtomicU64::new(0),
        is_answer_lost: AtomicBool::new(false),
        straggler: Mutex::default(),
    };
    let answer_choices = Choices::of(line.seed, &format!("{name} back"));
    let (caller_reads, caller_writes) = caller.socket.split();
    let (service_reads, service_writes) = service.split();
    let carried = futures::future::try_join(
        connection.forward(caller_reads, service_writes, choices),
        connection.answer(service_reads, caller_writes, answer_choices),
    )
    .await;
    let straggler = lock(&connection.straggler).take();
    if let Some(straggler) = straggler {
        drop(caller);
        line.hold(straggler.after).await;
        line.thaw().await;
        service.write_all(&straggler.bytes).await?;
        line.time.sleep(STRAGGLER_HEARD).await;
        return Err(cut_off());
    }
    carried?;
    caller.socket.end();
    service.end();
    Ok(())
}

/// One connection through a link.
struct Connection<'l> {
    line: &'l Line,
    /// The number of the last chunk that was forwarded.
    last: AtomicU64,
    is_answer_lost: AtomicBool,
    straggler: Mutex<Option<Straggler>>,
}

/// A message that arrives although its caller was told that it may not have.
struct Straggler {
    bytes: Vec<u8>,
    after: Millis,
}

impl Connection<'_> {
    async fn forward(
        &self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        mut choices: Choices,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = from.read(&mut chunk).await?;
            self.line.thaw().await;
            let Some(bytes) = chunk.get(..length).filter(|bytes| !bytes.is_empty()) else {
                return to.shutdown().await;
            };
            let number = self.line.count();
            self.line.pass(number, When::Before)?;
            let fate = self.line.faults.fate(&mut choices);
            if let Fate::Straggles(after) = fate {
                let bytes = bytes.to_vec();
                *lock(&self.straggler) = Some(Straggler { bytes, after });
                return Err(cut_off());
            }
            let answer = self.line.suffer(fate).await?;
            self.is_answer_lost
                .fetch_or(answer == AnswerFate::Lost, Ordering::SeqCst);
            self.last.store(number, Ordering::SeqCst);
            to.write_all(bytes).await?;
            self.line.pass(number, When::After)?;
        }
    }

    async fn answer(
        &self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        mut choices: Choices,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = from.read(&mut chunk).await?;
            self.line.thaw().await;
            let Some(bytes) = chunk.get(..length).filter(|bytes| !bytes.is_empty()) else {
                return to.shutdown().await;
            };
            self.line
                .pass(self.last.load(Ordering::SeqCst), When::AfterAnswer)?;
            if self.is_answer_lost.load(Ordering::SeqCst) {
                return Err(cut_off());
            }
            if let Some(delay) = self.line.faults.delay(&mut choices) {
                self.line.hold(delay).await;
            }
            to.write_all(bytes).await?;
        }
    }
}
