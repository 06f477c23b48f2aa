//! Requests that are wrong before their bodies are read, and hostile connections.

use std::time::Duration;

use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{POSTS, close_untouched, good_body};
use crate::{
    shop::{NO_LIMITS, Shop},
    wire::{ALIAS, CHARGE, INITIATE, Reply, SUBMIT_OTP, Wire, exchange, read},
};

const SESSION: &str = "/api/v1/payments/7c0e4d3e-5a0b-4a4f-9d53-0a1b2c3d4e5f/status";
const READ_CHARGE: &str = "/api/v1/payments/charge/TX-0000000000-000000";

const LARGEST: usize = 64 * 1024;

/// The head of a POST with a key and more header lines.
fn head(wire: &Wire, path: &str, more: &str) -> String {
    let key = &wire.key;
    format!(
        "POST {path} HTTP/1.1\r\nhost: api\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{more}\r\n"
    )
}

/// The only answer that the server gave before it closed the connection.
async fn only_answer(wire: &Wire, bytes: &[u8]) -> Reply {
    let answer = exchange(&wire.address, bytes).await;
    let text = String::from_utf8_lossy(&answer);
    assert_eq!(text.matches("HTTP/1.").count(), 1, "{text}");
    Reply::parse(&answer)
}

#[tokio::test]
async fn an_unknown_address_is_not_found_whoever_asks() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let long = format!("/api/v1/payments/{}", "a".repeat(8_000));
    let paths = [
        "/",
        "/api",
        "/api/v1",
        "/api/v1/payment",
        "/api/v1/payments/",
        "/api/v2/payments/initiate",
        "/api/v1/payments/initiate/",
        "/api/v1/payments/charge/",
        "/api/v1/payments/charge/submit-otp/",
        "/api/v1//payments/initiate",
        "//api/v1/payments/initiate",
        "/API/V1/PAYMENTS/INITIATE",
        "/api/v1/payments/initiate%2f",
        "/api/v1/payments/%69nitiate/x",
        "/api/v1/../v1/payments/initiate",
        "/api/v1/payments/a/b/status",
        "/api/v1/payments/a/status/",
        "/api/payments/charge",
        "/api/v1/payments/charge/a/b",
        "/rails",
        "/healthz",
        "/metrics",
        "/.env",
        "/%00",
        "/%ff",
        "/api/v1/payments/initiate;a=b",
        "/favicon.ico",
        &long,
    ];
    for path in paths {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            for request in [wire.request(method, path), wire.keyless(method, path)] {
                request.send().await.assert_error(404, "NOT_FOUND");
            }
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn a_wrong_method_is_told_which_are_right() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let posts = POSTS.map(|path| (path, "POST"));
    let gets = [SESSION, READ_CHARGE].map(|path| (path, "GET,HEAD"));
    for (path, allow) in posts.into_iter().chain(gets) {
        for method in [
            "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "post",
        ] {
            if allow.split(',').any(|allowed| allowed == method) {
                continue;
            }
            let reply = wire.request(method, path).json("{}").send().await;
            reply.assert_error(405, "METHOD_NOT_ALLOWED");
            assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
        }
    }
    for path in POSTS {
        let reply = wire.request("HEAD", path).send().await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
        assert!(reply.body.is_empty() && reply.header("x-request-id").is_some());
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn a_head_request_is_answered_like_a_get_without_its_body() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let created = wire.post(INITIATE, good_body(INITIATE).to_string()).await;
    let found = created.assert_done(201).field("session_id");
    let found = format!("/api/v1/payments/{found}/status");
    for (path, status) in [(&*found, 200), (SESSION, 404), (READ_CHARGE, 404)] {
        let (head, get) = (
            wire.request("HEAD", path).send().await,
            wire.get(path).await,
        );
        assert!(head.body.is_empty());
        let (head, get) = (head.without_its_moment(), get.without_its_moment());
        assert_eq!((head.0, head.1), (status, get.1));
    }
    shop.close().await;
}

#[tokio::test]
async fn ids_that_are_none_are_not_found() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let long = "a".repeat(8_000);
    let ids = [
        "1",
        "-1",
        "null",
        "undefined",
        "{session_id}",
        "*",
        "%20",
        "%00",
        "%ff",
        "%2e%2e",
        "%2F",
        "..",
        "'%20or%201=1",
        "%c0%ae",
        "a%0d%0ab",
        "00000000-0000-0000-0000-000000000000",
        &long,
        "7c0e4d3e5a0b4a4f9d530a1b2c3d4e5f",
        "{7c0e4d3e-5a0b-4a4f-9d53-0a1b2c3d4e5f}",
        "TX-0000000000",
        "TX-0000000000-000000%20",
        "tx-0000000000-000000",
        "TX-OOOOOOOOOO-IIIIII",
        "%F0%9F%98%80",
        "initiate",
        "charge",
    ];
    for id in ids {
        for path in [
            format!("/api/v1/payments/{id}/status"),
            format!("/api/v1/payments/charge/{id}"),
        ] {
            wire.get(&path).await.assert_error(404, "NOT_FOUND");
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn a_body_is_taken_as_json_only() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let json: &[(&str, &str)] = &[("content-type", "application/json")];
    let not_json: [&[(&str, &str)]; 10] = [
        &[],
        &[("content-type", "")],
        &[("content-type", "application/jsonp")],
        &[("content-type", "application/json, text/plain")],
        &[("content-type", "text/plain; application/json")],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "multipart/form-data; boundary=a")],
        &[json[0], json[0]],
        &[json[0], ("content-encoding", "gzip")],
    ];
    for path in POSTS {
        for headers in not_json {
            let mut request = wire.request("POST", path);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let reply = request.body(good_body(path).to_string()).send().await;
            reply.assert_error(415, "UNSUPPORTED_MEDIA_TYPE");
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn a_body_of_64_kib_is_taken_and_one_byte_more_is_not() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    for path in POSTS {
        let good = good_body(path).to_string();
        let padded = |length: usize| format!("{good}{}", " ".repeat(length - good.len()));
        let reply = wire.post(path, padded(LARGEST + 1)).await;
        reply.assert_error(413, "PAYLOAD_TOO_LARGE");
        let reply = wire.post(path, padded(LARGEST)).await;
        assert_ne!(reply.status, 413);
        // The server does not wait for a hundred announced megabytes.
        let head = head(&wire, path, "content-length: 104857600\r\n");
        let reply = only_answer(&wire, head.as_bytes()).await;
        reply.assert_error(413, "PAYLOAD_TOO_LARGE");
    }
    shop.close().await;
}

#[tokio::test]
async fn a_body_in_chunks_is_one_body() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let chunked = "connection: close\r\ntransfer-encoding: chunked\r\n";
    let send = async |chunks: &str| {
        let bytes = format!("{}{chunks}", head(&wire, INITIATE, chunked));
        only_answer(&wire, bytes.as_bytes()).await
    };
    for good in [
        "c\r\n{\"amount\":1}\r\n0\r\n\r\n",
        "1\r\n{\r\nb;a=b\r\n\"amount\":1}\r\n000\r\n\r\n",
        "C\r\n{\"amount\":1}\r\n0\r\namount: 2\r\n\r\n",
    ] {
        send(good).await.assert_done(201);
    }
    for broken in [
        "zz\r\n",
        "-1\r\n",
        "ffffffffffffffffff\r\n",
        "c\r\n{\"amount\":1}0\r\n\r\n",
        "c\r\n{\"amount\":1}\r\nx",
    ] {
        send(broken).await.assert_error(400, "MALFORMED_JSON");
    }
    send("0\r\n\r\n").await.assert_error(400, "MALFORMED_JSON");
    let huge = format!("11000\r\n{}\r\n0\r\n\r\n", " ".repeat(0x11000));
    send(&huge).await.assert_error(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(super::rows(&shop).await[4], 3, "sessions");
    shop.close().await;
}

#[tokio::test]
async fn a_second_request_cannot_be_smuggled_into_a_first() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let smuggled = format!(
        "{}{{\"amount\":1}}",
        head(&wire, INITIATE, "content-length: 12\r\n")
    );
    let length = smuggled.len() + 5;
    for framing in [
        format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n"),
        format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
    ] {
        let head = head(&wire, INITIATE, &framing);
        let reply = only_answer(&wire, format!("{head}0\r\n\r\n{smuggled}").as_bytes()).await;
        reply.assert_error(400, "MALFORMED_JSON");
    }
    close_untouched(shop).await;
}

/// What is not HTTP is refused below the layer that writes error bodies, so only the status says
/// so.
#[tokio::test]
async fn what_is_no_http_is_refused_and_the_connection_ends() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let flood: String = (0..200).map(|n| format!("x-{n}: a\r\n")).collect();
    let with = |more: &str| head(&wire, INITIATE, more) + r#"{"amount":1}"#;
    for (bytes, status) in [
        (with("transfer-encoding: gzip, identity\r\n"), 400),
        (with("content-length: 12\r\ncontent-length: 13\r\n"), 400),
        (with("content-length: -12\r\n"), 400),
        (with("content-length: +12\r\n"), 400),
        (with("content-length: 12, 12\r\n"), 400),
        (with("content-length: 18446744073709551614\r\n"), 431),
        (with("a\u{0}b: c\r\ncontent-length: 12\r\n"), 400),
        (with("a: b\u{0}c\r\ncontent-length: 12\r\n"), 400),
        (with(" folded\r\ncontent-length: 12\r\n"), 400),
        (with("no colon\r\ncontent-length: 12\r\n"), 400),
        (with(&format!("{flood}content-length: 12\r\n")), 431),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n".to_owned(), 400),
    ] {
        let reply = only_answer(&wire, bytes.as_bytes()).await;
        assert_eq!(reply.status, status, "{bytes:?}");
        assert!(reply.body.is_empty(), "{bytes:?}");
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let long = "a".repeat(1024 * 1024);
    for bytes in [
        head(&wire, INITIATE, &format!("x-wide: {long}\r\n")),
        format!("GET /{long} HTTP/1.1\r\n\r\n"),
        long,
    ] {
        let answer = exchange(&wire.address, bytes.as_bytes()).await;
        // A connection's reset may overtake the answer.
        if !answer.is_empty() {
            assert_eq!(Reply::parse(&answer).status, 431);
        }
    }
    let reply = wire.get(READ_CHARGE).await;
    reply.assert_error(404, "NOT_FOUND");
    close_untouched(shop).await;
}

#[tokio::test]
async fn unusual_forms_of_the_first_line_are_answered_like_any_other() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    for line in [
        "OPTIONS * HTTP/1.1",
        "CONNECT example.com:443 HTTP/1.1",
        "GET http://evil.example/ HTTP/1.1",
        "GET / HTTP/1.0",
        "GET /?a=%zz HTTP/1.1",
    ] {
        let bytes = format!("{line}\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
        let reply = only_answer(&wire, bytes.as_bytes()).await;
        reply.assert_error(404, "NOT_FOUND");
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn one_connection_serves_on_after_a_refusal() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let first = head(&wire, INITIATE, "content-length: 2\r\n") + "{}";
    let closing = "connection: close\r\ncontent-length: 12\r\n";
    let second = head(&wire, ALIAS, closing) + r#"{"amount":1}"#;
    let answers = exchange(&wire.address, format!("{first}{second}").as_bytes()).await;
    let answers = String::from_utf8(answers).unwrap();
    assert!(answers.starts_with("HTTP/1.1 400 "), "{answers}");
    let second = answers.rfind("HTTP/1.1 ").unwrap();
    Reply::parse(&answers.as_bytes()[second..]).assert_done(201);
    shop.close().await;
}

#[tokio::test]
async fn whoever_sends_slowly_or_nothing_is_not_waited_for() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let unfinished = [
        "",
        "POST",
        "POST /api/v1/payments/initiate HTTP/1.1\r\nhost: a\r\nx",
    ];
    let unfinished = unfinished.map(|bytes| exchange(&wire.address, bytes.as_bytes()));
    let slow = [INITIATE, CHARGE, SUBMIT_OTP].map(|path| {
        let bytes = head(&wire, path, "content-length: 12\r\n") + "{\"amount\":1";
        let wire = &wire;
        async move { Reply::parse(&exchange(&wire.address, bytes.as_bytes()).await) }
    });
    let (unfinished, slow) = tokio::join!(join_all(unfinished), join_all(slow));
    for answer in unfinished {
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    for reply in slow {
        reply.assert_error(408, "REQUEST_TIMEOUT");
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn whoever_leaves_before_the_body_is_whole_has_done_nothing() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    for path in POSTS {
        let good = good_body(path).to_string();
        let length = format!("content-length: {}\r\n", good.len() + 1);
        let head = head(&wire, path, &length);
        let mut stream = TcpStream::connect(&wire.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(good.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read(&mut stream).await;
        if !answer.is_empty() {
            Reply::parse(&answer).assert_error(400, "MALFORMED_JSON");
        }
    }
    close_untouched(shop).await;
}

#[tokio::test]
async fn chunks_without_end_are_cut_off() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let stream = TcpStream::connect(&wire.address).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let head = head(&wire, INITIATE, "transfer-encoding: chunked\r\n");
    writing.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let sending = async {
        while writing.write_all(chunk.as_bytes()).await.is_ok() {}
        std::future::pending::<()>().await
    };
    let mut start = [0; 12];
    let answered = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::select! {
            () = sending => {}
            answered = reading.read_exact(&mut start) => { answered.unwrap(); }
        }
    });
    answered.await.expect("an answer");
    assert_eq!(&start, b"HTTP/1.1 413");
    close_untouched(shop).await;
}
