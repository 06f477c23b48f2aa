//! Connections that never become requests, next to a merchant's. A client is an address, so each
//! address in 127.0.0.0/8 is another client.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use chassis::testing::until;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    gateway::{Gateway, INITIATE},
    http::{Request, connect, read},
    services::{SESSION_ID, session},
};

/// Requests that may run at once in these tests.
const PLACES: usize = 64;

/// The address of merchants and payers who mean well.
const MERCHANT: &str = "127.0.0.2";

const HALF_A_HEAD: &str = "POST /api/v1/payments/initiate HTTP/1.1\r\nhost: gateway\r\n";
const CALLBACK: &str =
    "POST /rails/momo/0123456789abcdef HTTP/1.1\r\nhost: gateway\r\ncontent-length: 1\r\n";

async fn start(flags: &[&str]) -> Gateway {
    let places = PLACES.to_string();
    let flags = [&["--requests-max", &places], flags].concat();
    let gateway = Gateway::start_with(&flags).await;
    let there = || {
        session(proto::sessions::CreateSessionRequest {
            merchant_id: crate::services::merchant().merchant_id,
            amount: crate::services::money(2_550, "GHS"),
            ..Default::default()
        })
    };
    gateway.services.read_session.answers(move |_| Ok(there()));
    gateway.services.get_session.answers(move |_| Ok(there()));
    gateway
}

/// A connection on which only these bytes were sent.
async fn stuck(source: &str, address: SocketAddr, bytes: &str) -> TcpStream {
    let mut stream = connect(source, address).await;
    stream.write_all(bytes.as_bytes()).await.expect("sent");
    stream
}

/// The head of a checkout form whose body never comes.
fn form(path: &str, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway\r\nsec-fetch-site: same-origin\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: 9\r\n{more}\r\n"
    )
}

fn to_checkout(gateway: &Gateway, path: &str) -> Request {
    Request::new(gateway.checkout, "GET", path).from(MERCHANT)
}

#[tokio::test]
async fn whole_heads_without_bodies_keep_nobody_out() {
    let gateway = start(&[]).await;
    let callback = format!("{CALLBACK}\r\n");
    let form = form(&format!("/pay/{SESSION_ID}"), "");
    let mut flood = Vec::new();
    for _ in 0..2 * PLACES {
        flood.push(stuck("127.0.0.3", gateway.address, &callback).await);
        flood.push(stuck("127.0.0.4", gateway.checkout, &form).await);
    }
    let made = gateway.post(INITIATE, r#"{"amount":1}"#).from(MERCHANT);
    assert_eq!(made.send().await.status, 201);
    let page = to_checkout(&gateway, &format!("/pay/{SESSION_ID}/state"));
    assert_ne!(page.send().await.status, 503);
}

#[tokio::test]
async fn the_checkout_has_places_of_its_own() {
    let gateway = start(&[]).await;
    // Every place of the API is held by a request that waits for a service, from enough clients.
    let authenticate = &gateway.services.authenticate;
    authenticate.answers_late(|_| std::future::pending());
    let mut waiting = Vec::new();
    for number in 0..PLACES {
        let source = format!("127.0.1.{}", number % 8 + 1);
        let key = chassis::api_key::ApiKey::generate();
        let head = format!(
            "GET /api/v1/payments/{SESSION_ID}/status HTTP/1.1\r\nhost: gateway\r\n\
             authorization: Bearer {}\r\n\r\n",
            key.expose()
        );
        waiting.push(stuck(&source, gateway.address, &head).await);
    }
    until("all run", async || authenticate.asked().len() == PLACES).await;
    let full = gateway.get("/docs").from(MERCHANT).send().await;
    full.assert_error(503, "UNAVAILABLE");
    assert_eq!(full.header("retry-after"), Some("1"));
    let page = to_checkout(&gateway, &format!("/pay/{SESSION_ID}/state"));
    assert_ne!(page.send().await.status, 503);
}

#[tokio::test]
async fn one_client_behind_a_trusted_proxy_leaves_places_to_others() {
    let gateway = start(&["--trusted-proxies", "127.0.0.0/8"]).await;
    let authenticate = &gateway.services.authenticate;
    authenticate.answers_late(|_| std::future::pending());
    let of = |client: &str| {
        let key = chassis::api_key::ApiKey::generate();
        format!(
            "POST {INITIATE} HTTP/1.1\r\nhost: gateway\r\nx-forwarded-for: {client}\r\n\
             authorization: Bearer {}\r\ncontent-length: 0\r\n\r\n",
            key.expose()
        )
    };
    let share = PLACES / 2;
    let mut waiting = Vec::new();
    for _ in 0..share {
        let head = of("198.51.100.7");
        waiting.push(stuck("127.0.0.1", gateway.address, &head).await);
    }
    until("its share runs", async || {
        authenticate.asked().len() == share
    })
    .await;
    let docs = async |client: &str| {
        let request = gateway.request("GET", "/docs");
        request.header("x-forwarded-for", client).send().await
    };
    docs("198.51.100.7").await.assert_error(503, "UNAVAILABLE");
    assert_eq!(docs("198.51.100.8").await.status, 200);
    drop(waiting);
    until("its places are free again", async || {
        docs("198.51.100.7").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_body_that_comes_late_is_read_whole() {
    let gateway = start(&[]).await;
    let key = gateway.key.expose();
    let head = format!(
        "POST {INITIATE} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: 12\r\n\r\n"
    );
    let mut stream = stuck(MERCHANT, gateway.address, &head).await;
    let authenticate = &gateway.services.authenticate;
    until("begun", async || !authenticate.asked().is_empty()).await;
    for part in [&b"{\"amou"[..], b"nt\":1", b"}"] {
        stream.write_all(part).await.expect("sent");
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&mut stream).await.status, 201);
}

#[tokio::test]
async fn an_address_that_names_no_session_is_refused_before_its_body_is_there() {
    let gateway = start(&[]).await;
    for path in ["/pay/none", "/pay/none/code", "/pay/%00", "/pay/1/code"] {
        let form = form(path, "connection: close\r\n");
        let mut stream = stuck(MERCHANT, gateway.checkout, &form).await;
        let answer = tokio::time::timeout(Duration::from_secs(5), read(&mut stream));
        assert_eq!(answer.await.expect("at once").status, 404, "{path}");
    }
    assert!(gateway.services.read_session.asked().is_empty());
}

/// One more connection of the flood.
async fn one_more(gateway: &Gateway, number: usize) -> TcpStream {
    let source = format!("127.0.2.{}", number % 5 + 1);
    let address = match number % 2 {
        0 => gateway.address,
        _ => gateway.checkout,
    };
    let bytes = match number % 6 {
        0 | 1 => String::new(),
        2 | 3 => HALF_A_HEAD.to_owned(),
        4 => format!("{CALLBACK}\r\n"),
        _ => form(&format!("/pay/{SESSION_ID}"), ""),
    };
    stuck(&source, address, &bytes).await
}

#[tokio::test]
async fn no_merchant_request_fails_during_a_flood() {
    /// Connections that the flood holds at any time, many more than there are places.
    const FLOOD: usize = 600;
    const ROUNDS: usize = 50;
    /// New connections that the flood opens in each round.
    const ANEW: usize = 12;
    let gateway = start(&[]).await;
    let mut flood = VecDeque::new();
    for number in 0..FLOOD {
        flood.push_back(one_more(&gateway, number).await);
    }
    for round in 0..ROUNDS {
        for number in round * ANEW..(round + 1) * ANEW {
            flood.push_back(one_more(&gateway, number).await);
            flood.pop_front();
        }
        let made = gateway.post(INITIATE, r#"{"amount":1}"#).from(MERCHANT);
        assert_eq!(made.send().await.status, 201, "round {round}");
        let status = gateway.get(&format!("/api/v1/payments/{SESSION_ID}/status"));
        let status = status.from(MERCHANT).send().await;
        assert_eq!(status.status, 200, "round {round}");
        let state = to_checkout(&gateway, &format!("/pay/{SESSION_ID}/state"));
        assert_eq!(state.send().await.status, 200, "round {round}");
    }
}
