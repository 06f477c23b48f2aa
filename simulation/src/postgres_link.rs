//! A link between one caller and a PostgreSQL server. It understands enough of the protocol to
//! delay, lose and cut whole exchanges: what a caller sends until the server is ready again.

mod transactions;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::tcp::{ReadHalf, WriteHalf},
    sync::{
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    task::JoinSet,
};

use crate::{
    choice::Choices,
    driver::lock,
    faults::{Faults, Rates},
    line::{AnswerFate, Caller, Line, Socket, When, cut_off},
    time::{Millis, Time},
};
use transactions::Transactions;

/// Codes in place of the protocol version, in a connection's first message.
const CANCEL: u32 = 80_877_102;
const USE_TLS: u32 = 80_877_103;
const USE_GSS: u32 = 80_877_104;

const SYNC: u8 = b'S';
const QUERY: u8 = b'Q';
const FUNCTION_CALL: u8 = b'F';
const TERMINATE: u8 = b'X';
const READY: u8 = b'Z';

/// Messages that are forwarded at once rather than with the end of an exchange: the server asked
/// for them, or is asked to flush.
const AT_ONCE: &[u8] = b"pdcfH";

/// A longer message means that the stream is out of step.
const MESSAGE_MAX: u32 = 1 << 30;

/// Clones are the same link, which ends with the last clone.
#[derive(Clone)]
pub struct PostgresLink {
    line: Arc<Line>,
    /// Aborted when dropped.
    _tasks: Arc<JoinSet<()>>,
}

impl PostgresLink {
    /// `statements` counts the exchanges at the server over every link that shares it, without
    /// those that a fault holds back.
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
        server: SocketAddr,
        statements: Arc<AtomicUsize>,
    ) -> anyhow::Result<Self> {
        let line = Arc::new(Line::new(name, seed, time, faults.or(Rates::DATABASE))?);
        let carrying = Arc::clone(&line);
        let tasks = line.serve(move |caller| {
            carry(
                Arc::clone(&carrying),
                server,
                Arc::clone(&statements),
                caller,
            )
        });
        Ok(Self {
            line,
            _tasks: Arc::new(tasks),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.line.address()
    }

    /// Resets every connection now, so that the server rolls back, and refuses new ones until the
    /// link is mended.
    pub fn cut(&self) {
        self.line.cut();
    }

    pub fn mend(&self) {
        self.line.mend();
    }

    /// The server answers nobody for this long.
    pub fn freeze(&self, length: Millis) {
        self.line.freeze(length);
    }

    /// The server restarts for this long: connections end, and new ones are told that it is
    /// starting up.
    pub fn restart(&self, length: Millis) {
        self.line.go_away(length);
    }

    /// Exchanges that the caller has started.
    pub fn sent(&self) -> u64 {
        self.line.sent()
    }

    /// Whether it is holding an exchange or its answer back until its time comes.
    pub fn is_holding(&self) -> bool {
        self.line.is_holding()
    }

    /// Lays a trip-wire at the exchange after the next `passing` ones. Whoever trips it finds the
    /// link cut, and the receiver is told. Once the receiver is dropped, nothing is cut.
    pub fn trip(&self, passing: u64, when: When, tripped: oneshot::Sender<()>) {
        self.line.lay_wire(passing, when, tripped);
    }
}

async fn carry(
    line: Arc<Line>,
    server: SocketAddr,
    statements: Arc<AtomicUsize>,
    mut caller: Caller,
) -> io::Result<()> {
    let name = format!("postgres {} {}", line.name, caller.connection);
    let mut choices = Choices::of(line.seed, &name);
    let (code, startup) = read_startup(&mut caller.socket).await?;
    line.thaw().await;
    if line.refuses(&mut choices) {
        caller.socket.write_all(&starting_up()).await?;
        caller.socket.shutdown().await?;
        caller.socket.end();
        return Ok(());
    }
    let mut server = Socket::connect(server).await?;
    server.write_all(&startup).await?;
    let connection = Connection {
        line: &line,
        under_way: UnderWay {
            statements: &statements,
            exchanges: Mutex::default(),
        },
    };
    if code != CANCEL {
        connection.under_way.begin(Exchange {
            number: 0,
            answer: AnswerFate::Delivered,
            then_away: 0,
        });
    }
    let answer_choices = Choices::of(line.seed, &format!("{name} back"));
    let (caller_reads, caller_writes) = caller.socket.split();
    let (server_reads, server_writes) = server.split();
    let (said, to_deliver) = mpsc::unbounded_channel();
    futures::future::try_join3(
        connection.forward(caller_reads, server_writes, choices),
        connection.listen(server_reads, said),
        connection.deliver(to_deliver, caller_writes, answer_choices),
    )
    .await?;
    caller.socket.end();
    server.end();
    Ok(())
}

/// The first message and its code. Encryption is declined: the server is next door.
async fn read_startup(caller: &mut Socket) -> io::Result<(u32, Vec<u8>)> {
    loop {
        let length = caller.read_u32().await?;
        let code = caller.read_u32().await?;
        if matches!(code, USE_TLS | USE_GSS) {
            caller.write_all(b"N").await?;
            continue;
        }
        let mut message = [length.to_be_bytes(), code.to_be_bytes()].concat();
        read_rest(&mut **caller, length.checked_sub(8), &mut message).await?;
        return Ok((code, message));
    }
}

/// Reads the rest of a message, appending to what has been read. A message's length counts all but
/// its type.
async fn read_rest<R: AsyncRead + Unpin>(
    from: &mut R,
    rest: Option<u32>,
    message: &mut Vec<u8>,
) -> io::Result<()> {
    let rest = rest
        .filter(|rest| *rest < MESSAGE_MAX)
        .ok_or(io::ErrorKind::InvalidData)?;
    let read = from.take(rest.into()).read_to_end(message).await?;
    match u32::try_from(read) == Ok(rest) {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The next message with its type, or `None` at the end.
async fn read_message(from: &mut BufReader<ReadHalf<'_>>) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut kind = [0; 1];
    if from.read(&mut kind).await? == 0 {
        return Ok(None);
    }
    let length = from.read_u32().await?;
    let mut message = [&kind[..], &length.to_be_bytes()].concat();
    read_rest(from, length.checked_sub(4), &mut message).await?;
    let [kind] = kind;
    Ok(Some((kind, message)))
}

/// What a server that is starting up says: error 57P03.
fn starting_up() -> Vec<u8> {
    let fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
    let length = u32::try_from(fields.len() + 4).expect("it is short");
    [b"E", &length.to_be_bytes()[..], fields].concat()
}

/// What a caller sends until the server is ready again.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    /// 0 for the start of a connection.
    number: u64,
    answer: AnswerFate,
    /// How long the server is down after this exchange.
    then_away: Millis,
}

/// What the server said.
struct ServerMessage {
    message: Vec<u8>,
    during: Option<Exchange>,
    /// Whether this ends the exchange.
    is_last: bool,
}

/// One connection through a link.
struct Connection<'l> {
    line: &'l Line,
    under_way: UnderWay<'l>,
}

impl Connection<'_> {
    async fn forward(
        &self,
        from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        mut choices: Choices,
    ) -> io::Result<()> {
        let mut from = BufReader::new(from);
        let mut batch = Vec::new();
        let mut transactions = Transactions::default();
        while let Some((kind, message)) = read_message(&mut from).await? {
            batch.extend_from_slice(&message);
            let is_commit = transactions.take_in(kind, &message);
            match kind {
                QUERY | SYNC | FUNCTION_CALL => {
                    let exchange = self.prepare(is_commit, &mut choices).await?;
                    self.under_way.begin(exchange);
                }
                TERMINATE => self.line.thaw().await,
                kind if AT_ONCE.contains(&kind) => {}
                _ => continue,
            }
            to.write_all(&batch).await?;
            batch.clear();
        }
        self.line.thaw().await;
        to.shutdown().await
    }

    /// Waits until the exchange may be forwarded.
    async fn prepare(&self, is_commit: bool, choices: &mut Choices) -> io::Result<Exchange> {
        self.line.thaw().await;
        let number = self.line.count();
        self.line.pass(number, When::Before)?;
        let faults = &self.line.faults;
        let mut answer = self.line.suffer(faults.fate(choices)).await?;
        let unconfirmed = is_commit.then(|| faults.unconfirmed(choices)).flatten();
        if self.line.is_wired(number, When::After) || unconfirmed.is_some() {
            answer = AnswerFate::Lost;
        }
        Ok(Exchange {
            number,
            answer,
            then_away: unconfirmed.unwrap_or_default(),
        })
    }

    /// Reads what the server says at once, whatever delays its delivery: from then on the server
    /// no longer works on the exchange.
    async fn listen(
        &self,
        from: ReadHalf<'_>,
        said: UnboundedSender<ServerMessage>,
    ) -> io::Result<()> {
        let mut from = BufReader::new(from);
        while let Some((kind, message)) = read_message(&mut from).await? {
            let is_last = kind == READY;
            let during = match is_last {
                true => self.under_way.end(),
                false => self.under_way.first(),
            };
            said.send(ServerMessage {
                message,
                during,
                is_last,
            })
            .map_err(|_| cut_off())?;
        }
        self.under_way.abandon();
        Ok(())
    }

    async fn deliver(
        &self,
        mut to_deliver: UnboundedReceiver<ServerMessage>,
        mut to: WriteHalf<'_>,
        mut choices: Choices,
    ) -> io::Result<()> {
        let mut answer = Vec::new();
        while let Some(said) = to_deliver.recv().await {
            self.line.thaw().await;
            let Some(exchange) = said.during else {
                to.write_all(&said.message).await?;
                continue;
            };
            if exchange.answer == AnswerFate::Lost {
                if said.is_last {
                    self.line.pass(exchange.number, When::After)?;
                    if exchange.then_away > 0 {
                        self.line.go_away(exchange.then_away);
                    }
                    return Err(cut_off());
                }
                continue;
            }
            answer.extend_from_slice(&said.message);
            // More is already there, or the caller can do nothing with it yet.
            if !said.is_last && !to_deliver.is_empty() {
                continue;
            }
            if said.is_last
                && let Some(delay) = self.line.faults.delay(&mut choices)
            {
                self.line.hold(delay).await;
            }
            to.write_all(&answer).await?;
            answer.clear();
            if said.is_last {
                self.line.pass(exchange.number, When::AfterAnswer)?;
            }
        }
        to.shutdown().await
    }
}

/// The exchanges of one connection that are at the server, in the order in which it answers them.
struct UnderWay<'s> {
    statements: &'s AtomicUsize,
    exchanges: Mutex<VecDeque<Exchange>>,
}

impl UnderWay<'_> {
    fn begin(&self, exchange: Exchange) {
        lock(&self.exchanges).push_back(exchange);
        self.statements.fetch_add(1, Ordering::SeqCst);
    }

    fn first(&self) -> Option<Exchange> {
        lock(&self.exchanges).front().copied()
    }

    fn end(&self) -> Option<Exchange> {
        let ended = lock(&self.exchanges).pop_front()?;
        self.statements.fetch_sub(1, Ordering::SeqCst);
        Some(ended)
    }

    /// No answer will come any more.
    fn abandon(&self) {
        let unanswered = lock(&self.exchanges).drain(..).count();
        self.statements.fetch_sub(unanswered, Ordering::SeqCst);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.abandon();
    }
}
