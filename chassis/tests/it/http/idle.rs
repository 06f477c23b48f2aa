//! Idle connections, and clients that do not read.

use std::{net::IpAddr, sync::Arc, time::Duration};

use chassis::{
    http::{Limits, client},
    shutdown::Tasks,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::{HUGE_BYTES, PATIENCE, Running, SHORT, soon, start, until_closed};

/// Limits under which no deadline ends what a test holds open.
fn patient() -> Limits {
    let hour = Duration::from_secs(3_600);
    Limits {
        head_max: hour,
        body_max: hour,
        ..Limits::default()
    }
}

/// Connects from a local address and sends these bytes.
async fn connect(server: &Running, source: &str, bytes: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream
}

/// Sends one request on a new connection.
async fn ask(server: &Running, source: &str) -> String {
    let request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    until_closed(&mut connect(server, source, request).await).await
}

const SILENT: &str = "";
const HALF_A_HEAD: &str = "GET / HTTP/1.1\r\nHost: x\r\n";
const NO_BODY: &str = "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n";

#[tokio::test]
async fn of_too_many_idle_ones_the_oldest_is_evicted_whatever_it_has_sent() {
    for sent in [SILENT, HALF_A_HEAD, NO_BODY] {
        let server = start(Limits {
            connections_max: 3,
            ..patient()
        })
        .await;
        let mut first = connect(&server, "127.0.0.3", sent).await;
        let mut others = Vec::new();
        for source in ["127.0.0.4", "127.0.0.5"] {
            others.push(connect(&server, source, sent).await);
        }
        assert!(ask(&server, "127.0.0.2").await.ends_with("hello"));
        assert_eq!(until_closed(&mut first).await, "", "{sent:?}");
        let mut byte = [0; 1];
        for other in &mut others {
            let read = tokio::time::timeout(SHORT, other.read(&mut byte)).await;
            assert!(read.is_err(), "the others stay");
        }
    }
}

#[tokio::test]
async fn an_address_that_has_too_many_idle_ones_loses_its_own() {
    let server = start(Limits {
        waiting_per_address_max: 2,
        ..patient()
    })
    .await;
    let mut other = connect(&server, "127.0.0.2", HALF_A_HEAD).await;
    let mut flood = Vec::new();
    for sent in [SILENT, HALF_A_HEAD, NO_BODY, SILENT, NO_BODY] {
        flood.push(connect(&server, "127.0.0.3", sent).await);
    }
    for gone in &mut flood[..3] {
        assert_eq!(until_closed(gone).await, "");
    }
    assert!(ask(&server, "127.0.0.3").await.ends_with("hello"), "heard");
    other.write_all(b"Connection: close\r\n\r\n").await.unwrap();
    assert!(until_closed(&mut other).await.ends_with("hello"));
}

#[tokio::test]
async fn more_idle_ones_than_there_may_be_lose_the_oldest() {
    let server = start(Limits {
        waiting_max: 1,
        ..patient()
    })
    .await;
    let mut first = connect(&server, "127.0.0.2", HALF_A_HEAD).await;
    // Any of them closes one that has been silent for a quarter of a second.
    let crowd = async {
        let mut others = Vec::new();
        loop {
            others.push(connect(&server, "127.0.0.3", SILENT).await);
            tokio::time::sleep(SHORT).await;
        }
    };
    tokio::select! {
        read = until_closed(&mut first) => assert_eq!(read, ""),
        () = crowd => {}
    }
    assert!(ask(&server, "127.0.0.4").await.ends_with("hello"), "heard");
}

#[tokio::test]
async fn what_counts_for_no_address_may_have_many_idle_ones() {
    let proxy: IpAddr = "127.0.0.3".parse().unwrap();
    let server = start(Limits {
        waiting_per_address_max: 1,
        counted_as: Arc::new(move |peer| (peer != proxy).then_some(peer)),
        ..patient()
    })
    .await;
    let mut first = connect(&server, "127.0.0.3", HALF_A_HEAD).await;
    for _ in 0..3 {
        assert!(ask(&server, "127.0.0.3").await.ends_with("hello"));
    }
    let second = connect(&server, "127.0.0.3", HALF_A_HEAD).await;
    assert!(ask(&server, "127.0.0.2").await.ends_with("hello"));
    first.write_all(b"Connection: close\r\n\r\n").await.unwrap();
    assert!(until_closed(&mut first).await.ends_with("hello"));
    drop(second);
}

#[tokio::test]
async fn a_connection_whose_request_runs_is_not_evicted() {
    let server = start(Limits {
        connections_max: 2,
        waiting_per_address_max: 1,
        ..patient()
    })
    .await;
    let request = "GET /wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut running = connect(&server, "127.0.0.3", request).await;
    soon(server.begun.notified()).await;
    for _ in 0..5 {
        drop(connect(&server, "127.0.0.3", SILENT).await);
        assert!(ask(&server, "127.0.0.3").await.ends_with("hello"));
    }
    server.go_on.notify_one();
    assert!(until_closed(&mut running).await.ends_with("waited"));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let server = start(Limits {
        stalled_max: SHORT,
        ..patient()
    })
    .await;
    let request = "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n";
    let stream = connect(&server, "127.0.0.1", request).await;
    soon(server.given_up.notified()).await;
    drop(stream);
    // So is a client that sends requests without end.
    let mut stream = connect(&server, "127.0.0.1", "").await;
    let request = "GET /long HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1_000);
    let tasks = Tasks::new();
    let asking = async move { while stream.write_all(request.as_bytes()).await.is_ok() {} };
    tasks.spawn(asking);
    soon(tasks.drain(Duration::MAX)).await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_served_to_the_end() {
    let stalled_max = Duration::from_secs(2);
    let server = start(Limits {
        stalled_max,
        ..patient()
    })
    .await;
    let client = client(PATIENCE * 3).unwrap();
    let mut answer = soon(client.get(server.url("/huge")).send()).await.unwrap();
    let (mut read, mut pauses) = (0, 0);
    while let Some(chunk) = soon(answer.chunk()).await.unwrap() {
        read += chunk.len();
        // The pauses add up to more than a stalled write may take.
        if read > (pauses + 1) * HUGE_BYTES / 12 {
            pauses += 1;
            tokio::time::sleep(stalled_max / 4).await;
        }
    }
    assert_eq!(read, HUGE_BYTES);
    assert!(stalled_max / 4 * u32::try_from(pauses).unwrap() > stalled_max);
}
