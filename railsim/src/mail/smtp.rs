//! The SMTP side: takes mail for anybody from anybody who can reach the address.
//!
//! Promise: whatever a client sends, it holds one of [`CONNECTIONS_MAX`] places for at most
//! [`SESSION_MAX`], and a bounded amount of memory.

use std::{io, slice, sync::Arc, time::Duration};

use chassis::{
    clock::Clock,
    error_chain::chain,
    shutdown::{Shutdown, Tasks},
};
use smtp_proto::{
    Error, Request,
    request::receiver::{DataReceiver, DummyDataReceiver, RequestReceiver},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::{Envelope, Mail, Mailbox};

/// Clients at the same time. More are turned away.
const CONNECTIONS_MAX: usize = 64;

/// How long a client may say nothing, or not read an answer.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How long a connection lasts at most.
const SESSION_MAX: Duration = Duration::from_secs(300);

/// Largest mail.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// RFC 5321 wants room for this many.
const RECIPIENTS_MAX: usize = 100;

/// Longest address (RFC 5321).
const ADDRESS_BYTES_MAX: usize = 254;

/// How many commands may be refused before the client is turned away.
const REFUSALS_MAX: u32 = 50;

/// How much is read at once.
const READ_BYTES: usize = 8 * 1024;

/// How long accepting pauses when the system has no sockets left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a stopping process waits for mail that is being kept.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Takes mail until the process stops.
pub async fn serve(
    mailbox: Arc<Mailbox>,
    listener: TcpListener,
    clock: Clock,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let (connections, places) = (Tasks::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "a mail client was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            turn_away(&stream);
            continue;
        };
        let session = Session::new(mailbox.clone(), clock.clone());
        let shutdown = shutdown.clone();
        connections.spawn(async move {
            let ended = tokio::select! {
                () = shutdown.wait() => return,
                ended = timeout(SESSION_MAX, session.run(stream)) => ended,
            };
            if let Ok(Err(error)) = ended {
                tracing::debug!(error = %chain(&error), "a mail client has gone");
            }
            drop(place);
        });
    }
    connections.drain(DRAIN_MAX).await;
    Ok(())
}

fn turn_away(stream: &TcpStream) {
    if let Err(error) = stream.try_write(b"421 too many connections\r\n") {
        tracing::debug!(error = %chain(&error), "a mail client has gone");
    }
}

/// What a connection has said so far.
struct Session {
    mailbox: Arc<Mailbox>,
    clock: Clock,
    has_greeted: bool,
    envelope: Option<Envelope>,
    refusals: u32,
    listens_for: Input,
}

/// What the next bytes are.
enum Input {
    Commands,
    Content(DataReceiver, Vec<u8>),
    /// The rest of a mail that is too large.
    Excess(DummyDataReceiver),
    /// Nothing more.
    Nothing,
}

impl Session {
    fn new(mailbox: Arc<Mailbox>, clock: Clock) -> Self {
        Self {
            mailbox,
            clock,
            has_greeted: false,
            envelope: None,
            refusals: 0,
            listens_for: Input::Commands,
        }
    }

    async fn run(mut self, mut stream: TcpStream) -> io::Result<()> {
        say(&mut stream, "220 railsim ESMTP\r\n").await?;
        let (mut requests, mut buffer) = (RequestReceiver::default(), vec![0; READ_BYTES]);
        while !matches!(self.listens_for, Input::Nothing) {
            let Ok(read) = timeout(IDLE_MAX, stream.read(&mut buffer)).await else {
                return say(&mut stream, "421 nothing was said for too long\r\n").await;
            };
            let mut bytes = buffer.iter();
            bytes = bytes.as_slice().get(..read?).unwrap_or_default().iter();
            if bytes.len() == 0 {
                return Ok(());
            }
            let answers = self.hear(&mut requests, bytes).await;
            say(&mut stream, &answers).await?;
        }
        stream.shutdown().await
    }

    /// Takes everything that arrived, and returns all answers to it.
    async fn hear(
        &mut self,
        requests: &mut RequestReceiver,
        mut bytes: slice::Iter<'_, u8>,
    ) -> String {
        let mut answers = String::new();
        while bytes.len() > 0 {
            let answer = match &mut self.listens_for {
                Input::Commands => match requests.ingest(&mut bytes) {
                    Ok(request) => self.answer(request.into_owned()),
                    Err(Error::NeedsMoreData { .. }) => break,
                    Err(error) => self.refuse(&error),
                },
                Input::Content(receiver, content) => {
                    let is_whole = receiver.ingest(&mut bytes, content);
                    match (is_whole, content.len() > MESSAGE_BYTES_MAX) {
                        (true, false) => {
                            let content = std::mem::take(content);
                            self.keep(&content).await
                        }
                        (true, true) => self.drop_excess(),
                        (false, false) => break,
                        (false, true) => {
                            self.listens_for = Input::Excess(DummyDataReceiver::new_data(receiver));
                            break;
                        }
                    }
                }
                Input::Excess(receiver) => match receiver.ingest(&mut bytes) {
                    true => self.drop_excess(),
                    false => break,
                },
                Input::Nothing => break,
            };
            self.add(answer, &mut answers);
        }
        answers
    }

    /// Adds an answer, and the last one if too many commands were refused.
    fn add(&mut self, answer: &str, answers: &mut String) {
        answers.push_str(answer);
        answers.push_str("\r\n");
        // 4xx and 5xx.
        if answer.starts_with(['4', '5']) {
            self.refusals += 1;
        }
        if self.refusals > REFUSALS_MAX && !matches!(self.listens_for, Input::Nothing) {
            answers.push_str("421 too many errors\r\n");
            self.listens_for = Input::Nothing;
        }
    }

    fn answer(&mut self, request: Request<String>) -> &'static str {
        match request {
            Request::Ehlo { .. } => {
                self.greet();
                concat!(
                    "250-railsim\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n",
                    "250 SIZE 262144"
                )
            }
            Request::Helo { .. } => {
                self.greet();
                "250 railsim"
            }
            Request::Mail { from } => match (self.has_greeted, &self.envelope) {
                (false, _) => "503 say EHLO first",
                (true, Some(_)) => "503 one mail at a time",
                (true, None) if from.size > MESSAGE_BYTES_MAX => TOO_LARGE,
                (true, None) if from.address.len() > ADDRESS_BYTES_MAX => TOO_LONG,
                (true, None) => {
                    self.envelope = Some(Envelope {
                        from: from.address,
                        to: Vec::new(),
                    });
                    OK
                }
            },
            Request::Rcpt { to } => match &mut self.envelope {
                None => "503 say MAIL first",
                Some(envelope) if envelope.to.len() >= RECIPIENTS_MAX => "452 too many recipients",
                Some(_) if to.address.len() > ADDRESS_BYTES_MAX => TOO_LONG,
                Some(envelope) => {
                    envelope.to.push(to.address);
                    OK
                }
            },
            Request::Data => match &self.envelope {
                Some(envelope) if !envelope.to.is_empty() => {
                    self.listens_for = Input::Content(DataReceiver::new(), Vec::new());
                    "354 end it with a line that is only a dot"
                }
                _ => "503 say MAIL and RCPT first",
            },
            Request::Rset => {
                self.envelope = None;
                OK
            }
            Request::Noop { .. } => OK,
            Request::Quit => {
                self.listens_for = Input::Nothing;
                "221 goodbye"
            }
            _ => "502 not here",
        }
    }

    fn greet(&mut self) {
        self.has_greeted = true;
        self.envelope = None;
    }

    fn refuse(&mut self, error: &Error) -> &'static str {
        match error {
            Error::ResponseTooLong => {
                self.listens_for = Input::Nothing;
                "500 the line is too long"
            }
            Error::UnknownCommand => "500 unknown command",
            Error::UnsupportedParameter { .. } => "555 unknown parameter",
            _ => "501 malformed",
        }
    }

    /// Keeps the mail that has arrived.
    async fn keep(&mut self, content: &[u8]) -> &'static str {
        self.listens_for = Input::Commands;
        // Time travel waits for it.
        let _activity = self.clock.activity();
        let envelope = self.envelope.take().unwrap_or_default();
        let mail = Mail::read(envelope, content, self.clock.now());
        match self.mailbox.keep(mail).await {
            Ok(()) => OK,
            Err(error) => {
                tracing::error!(error = %chain(&error), "a mail was not kept");
                "451 the mail was not kept"
            }
        }
    }

    fn drop_excess(&mut self) -> &'static str {
        self.listens_for = Input::Commands;
        self.envelope = None;
        TOO_LARGE
    }
}

const OK: &str = "250 OK";
const TOO_LARGE: &str = "552 the mail is too large";
const TOO_LONG: &str = "501 the address is too long";

async fn say(stream: &mut TcpStream, answers: &str) -> io::Result<()> {
    timeout(IDLE_MAX, stream.write_all(answers.as_bytes())).await?
}
