//! Links to a service that echoes what it hears.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use simulation::{
    faults::{Faults, Rates},
    line::When,
    link::{Link, Targets},
    time::Time,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};

use crate::world::{faults, is_err, soon, step, time, until};

/// Echoes what it hears, with its name before each connection's first word.
struct Echo {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
    _tasks: JoinSet<()>,
}

impl Echo {
    async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let hearing = Arc::clone(&heard);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let hearing = Arc::clone(&hearing);
                connections.spawn(async move { echo(name, stream, &hearing).await.ok() });
            }
        });
        Self {
            address,
            heard,
            _tasks: tasks,
        }
    }

    fn heard(&self) -> String {
        String::from_utf8(self.heard.lock().unwrap().clone()).unwrap()
    }
}

async fn echo(name: &str, mut stream: TcpStream, heard: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut chunk = [0; 1024];
    let mut prefix = name;
    loop {
        let length = stream.read(&mut chunk).await?;
        if length == 0 {
            stream.write_all(b".").await?;
            return stream.shutdown().await;
        }
        heard.lock().unwrap().extend_from_slice(&chunk[..length]);
        stream
            .write_all(&[prefix.as_bytes(), &chunk[..length]].concat())
            .await?;
        prefix = "";
    }
}

async fn open(time: &Time, faults: Faults, to: Targets) -> Link {
    Link::open("gateway-0 charges", 7, time.clone(), faults, to)
        .await
        .unwrap()
}

async fn connect(link: &Link) -> TcpStream {
    TcpStream::connect(link.address()).await.unwrap()
}

/// Sends a word and returns the answer.
async fn ask(stream: &mut TcpStream, word: &str) -> io::Result<String> {
    stream.write_all(word.as_bytes()).await?;
    hear(stream, word.len()).await
}

async fn hear(stream: &mut TcpStream, length: usize) -> io::Result<String> {
    let mut answer = vec![0; length];
    soon(stream.read_exact(&mut answer)).await?;
    Ok(String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn words_pass_both_ways_and_one_side_may_end_first() {
    let (time, echo) = (time(), Echo::start("").await);
    let link = open(&time, Faults::off(), Targets::fixed(echo.address)).await;
    let mut stream = connect(&link).await;
    assert_eq!(ask(&mut stream, "hello").await.unwrap(), "hello");
    assert_eq!(ask(&mut stream, "again").await.unwrap(), "again");
    assert_eq!(link.sent(), 2);

    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    soon(stream.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, ".", "the service speaks after the caller has ended");
}

#[tokio::test]
async fn a_delayed_word_waits_for_the_worlds_time() {
    let (time, echo) = (time(), Echo::start("").await);
    let rates = Rates {
        delayed: 1_000,
        delay_ms_max: 2_000,
        ..Rates::NONE
    };
    let faults = faults(rates);
    let link = open(&time, faults.clone(), Targets::fixed(echo.address)).await;
    let mut stream = connect(&link).await;
    stream.write_all(b"hello").await.unwrap();
    until(|| link.is_holding()).await;
    assert_eq!(echo.heard(), "");

    faults.pause();
    step(&time);
    assert_eq!(hear(&mut stream, 5).await.unwrap(), "hello");
    assert!(!link.is_holding());
    assert_eq!(time.next_due(), None);
}

#[tokio::test]
async fn a_frozen_link_holds_what_comes_until_it_thaws() {
    let (time, echo) = (time(), Echo::start("").await);
    let link = open(&time, Faults::off(), Targets::fixed(echo.address)).await;
    let mut stream = connect(&link).await;
    ask(&mut stream, "hello").await.unwrap();
    link.freeze(15_000);
    stream.write_all(b"again").await.unwrap();
    until(|| link.is_holding()).await;
    assert_eq!(time.next_due(), Some(15_000));
    assert_eq!(echo.heard(), "hello");

    time.step_to(15_000);
    assert_eq!(hear(&mut stream, 5).await.unwrap(), "again");
}

#[tokio::test]
async fn a_cut_ends_both_sides_and_refuses_until_mended() {
    let (time, echo) = (time(), Echo::start("").await);
    let link = open(&time, Faults::off(), Targets::fixed(echo.address)).await;
    let mut stream = connect(&link).await;
    ask(&mut stream, "hello").await.unwrap();
    link.cut();
    is_err(hear(&mut stream, 1).await);
    let refused = TcpStream::connect(link.address()).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );

    link.mend();
    let mut stream = connect(&link).await;
    assert_eq!(ask(&mut stream, "again").await.unwrap(), "again");
    assert_eq!(echo.heard(), "helloagain");
}

#[tokio::test]
async fn a_link_that_is_dropped_ends_its_connections() {
    let (time, echo) = (time(), Echo::start("").await);
    let link = open(&time, Faults::off(), Targets::fixed(echo.address)).await;
    let (mut stream, address) = (connect(&link).await, link.address());
    ask(&mut stream, "hello").await.unwrap();
    drop(link);
    is_err(hear(&mut stream, 1).await);
    is_err(TcpStream::connect(address).await);
}

#[tokio::test]
async fn a_connection_goes_to_a_replica_that_is_up() {
    let (time, first, second) = (time(), Echo::start("1").await, Echo::start("2").await);
    let targets = Targets::none();
    let link = open(&time, Faults::off(), targets.clone()).await;
    is_err(ask(&mut connect(&link).await, "hello").await);
    for (replica, echo, answer) in [(0, &first, "1hello"), (1, &second, "2hello")] {
        targets.set(replica, echo.address);
        let mut stream = connect(&link).await;
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(hear(&mut stream, 6).await.unwrap(), answer);
        targets.down(replica);
    }
}

/// Trips a wire at the second of two words. Returns what the service heard.
async fn tripped(when: When) -> String {
    let (time, echo) = (time(), Echo::start("").await);
    let link = open(&time, Faults::off(), Targets::fixed(echo.address)).await;
    let mut stream = connect(&link).await;
    let (trip, tripped) = oneshot::channel();
    link.trip(1, when, trip);
    assert_eq!(ask(&mut stream, "one").await.unwrap(), "one");
    is_err(ask(&mut stream, "two").await);
    soon(tripped).await.unwrap();
    is_err(TcpStream::connect(link.address()).await);
    if when != When::Before {
        until(|| echo.heard() != "one").await;
    }
    echo.heard()
}

#[tokio::test]
async fn a_wire_before_a_word_keeps_it_from_the_service() {
    assert_eq!(tripped(When::Before).await, "one");
}

#[tokio::test]
async fn a_wire_after_a_word_lets_it_pass_and_no_answer() {
    assert_eq!(tripped(When::After).await, "onetwo");
    assert_eq!(tripped(When::AfterAnswer).await, "onetwo");
}

#[tokio::test]
async fn a_wire_that_nobody_watches_trips_nobody() {
    let (time, echo) = (time(), Echo::start("").await);
    let link = open(&time, Faults::off(), Targets::fixed(echo.address)).await;
    let (trip, tripped) = oneshot::channel();
    link.trip(0, When::Before, trip);
    drop(tripped);
    assert_eq!(ask(&mut connect(&link).await, "one").await.unwrap(), "one");
}

#[tokio::test]
async fn a_lost_answer_is_lost_after_its_effect() {
    let (time, echo) = (time(), Echo::start("").await);
    let faults = faults(Rates {
        lost_after: 1_000,
        ..Rates::NONE
    });
    let link = open(&time, faults, Targets::fixed(echo.address)).await;
    is_err(ask(&mut connect(&link).await, "hello").await);
    assert_eq!(echo.heard(), "hello");
}

#[tokio::test]
async fn a_straggler_arrives_when_its_caller_is_gone() {
    let (time, echo) = (time(), Echo::start("").await);
    let faults = faults(Rates {
        stragglers: 1_000,
        straggler_ms_max: 5_000,
        ..Rates::NONE
    });
    let link = open(&time, faults, Targets::fixed(echo.address)).await;
    is_err(ask(&mut connect(&link).await, "hello").await);
    until(|| link.is_holding()).await;
    assert_eq!(echo.heard(), "");
    step(&time);
    until(|| echo.heard() == "hello").await;
}

#[tokio::test]
async fn a_link_that_went_away_comes_back_with_time() {
    let (time, echo) = (time(), Echo::start("").await);
    let faults = faults(Rates {
        away: 1_000,
        away_ms_max: 5_000,
        ..Rates::NONE
    });
    let link = open(&time, faults.clone(), Targets::fixed(echo.address)).await;
    is_err(ask(&mut connect(&link).await, "hello").await);
    faults.pause();
    is_err(ask(&mut connect(&link).await, "hello").await);
    step(&time);
    assert_eq!(
        ask(&mut connect(&link).await, "again").await.unwrap(),
        "again"
    );
    assert_eq!(echo.heard(), "again");
}

#[tokio::test]
async fn the_same_seed_loses_the_same_words() {
    let first = words_until_lost().await;
    assert_eq!(first, words_until_lost().await);
    assert!(first.iter().any(|words| *words != first[0]), "{first:?}");
}

async fn words_until_lost() -> Vec<u32> {
    let (time, echo) = (time(), Echo::start("").await);
    let faults = faults(Rates {
        lost_before: 200,
        ..Rates::NONE
    });
    let link = open(&time, faults, Targets::fixed(echo.address)).await;
    let mut lost = Vec::new();
    for _ in 0..8 {
        let mut stream = connect(&link).await;
        let mut words = 0;
        while ask(&mut stream, "word").await.is_ok() {
            words += 1;
        }
        lost.push(words);
    }
    lost
}
