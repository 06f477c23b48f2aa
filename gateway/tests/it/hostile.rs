//! Malicious and broken bodies and connections.

use std::time::Duration;

use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    gateway::{CHARGE, Gateway, INITIATE, SUBMIT_OTP},
    http::{Answer, exchange, read},
};

const POSTS: [&str; 3] = [INITIATE, CHARGE, SUBMIT_OTP];

#[tokio::test]
async fn what_is_not_one_json_object_is_malformed() {
    let gateway = Gateway::start().await;
    let bodies: [&[u8]; 12] = [
        b" ",
        b"{",
        b"[]",
        b"null",
        b"\"amount\"",
        b"{\"amount\":1}{}",
        b"{\"amount\":1,\"amount\":2}",
        b"{\"amount\":1,\"\\u0061mount\":2}",
        b"{\"amount\":NaN}",
        b"{\"amount\":1,}",
        b"{\"description\":\"\xff\"}",
        b"amount=1",
    ];
    for path in POSTS {
        for body in bodies {
            gateway
                .post(path, body)
                .send()
                .await
                .assert_error(400, "MALFORMED_JSON");
        }
        let nothing = gateway
            .request("POST", path)
            .key(gateway.key.expose())
            .send()
            .await;
        nothing.assert_error(400, "MALFORMED_JSON");
    }
}

#[tokio::test]
async fn nesting_without_end_does_no_harm() {
    let gateway = Gateway::start().await;
    for path in POSTS {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
            let unknown = gateway
                .post(path, format!("{{\"x\":{nested}}}"))
                .send()
                .await;
            unknown.assert_error(400, "VALIDATION_ERROR");
            let known = gateway
                .post(path, format!("{{\"amount\":{nested}}}"))
                .send()
                .await;
            known.assert_error(400, "VALIDATION_ERROR");
            let unclosed = gateway.post(path, open.repeat(10_000)).send().await;
            unclosed.assert_error(400, "MALFORMED_JSON");
        }
    }
}

#[tokio::test]
async fn only_json_is_taken() {
    let gateway = Gateway::start().await;
    let send = async |headers: &[(&str, &str)]| {
        let mut request = gateway.request("POST", INITIATE).key(gateway.key.expose());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(r#"{"amount":1}"#).send().await
    };
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
    ] {
        assert_eq!(
            send(&[("content-type", content_type)]).await.status,
            201,
            "{content_type}"
        );
    }
    for headers in [
        &[][..],
        &[("content-type", "")],
        &[("content-type", "text/json")],
        &[("content-type", "application/jsonp")],
        &[("content-type", "application/problem+json")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[
            ("content-type", "application/json"),
            ("content-type", "application/json"),
        ],
        &[
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
        ],
    ] {
        send(headers)
            .await
            .assert_error(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    assert_eq!(gateway.services.create_session.asked().len(), 3);
}

#[tokio::test]
async fn a_body_of_64_kib_is_read_and_one_byte_more_is_not() {
    let gateway = Gateway::start().await;
    let body = |length: usize| {
        let frame = r#"{"amount":1,"x":""}"#;
        format!(
            r#"{{"amount":1,"x":"{}"}}"#,
            "y".repeat(length - frame.len())
        )
    };
    assert_eq!(gateway.initiate(body(64 * 1024)).await.status, 201);
    let answer = gateway.initiate(body(64 * 1024 + 1)).await;
    answer.assert_error(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(gateway.services.create_session.asked().len(), 1);
}

/// The head of a POST with a key and more headers.
fn head(gateway: &Gateway, more: &str) -> String {
    let key = gateway.key.expose();
    format!(
        "POST {INITIATE} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{more}\r\n"
    )
}

#[tokio::test]
async fn a_body_that_is_said_to_be_huge_is_not_waited_for() {
    let gateway = Gateway::start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = head(&gateway, "content-length: 1073741824\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // Not one byte of the body is sent.
    read(&mut stream)
        .await
        .assert_error(413, "PAYLOAD_TOO_LARGE");
}

#[tokio::test]
async fn chunks_without_end_are_cut_off_at_64_kib() {
    let gateway = Gateway::start().await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let head = head(&gateway, "transfer-encoding: chunked\r\n");
    writing.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let sending = async {
        while writing.write_all(chunk.as_bytes()).await.is_ok() {}
        std::future::pending::<()>().await
    };
    let mut start = [0; 12];
    tokio::select! {
        () = sending => {}
        answered = reading.read_exact(&mut start) => { answered.expect("an answer"); }
    }
    assert_eq!(&start, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_body_that_drips_is_given_up() {
    let gateway = Gateway::start().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = head(&gateway, "connection: close\r\ncontent-length: 12\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"{\"amount\":1").await.unwrap();
    // The last byte never comes.
    let answer = tokio::time::timeout(Duration::from_secs(30), read(&mut stream)).await;
    answer
        .expect("an answer")
        .assert_error(408, "REQUEST_TIMEOUT");
    assert!(gateway.services.create_session.asked().is_empty());
}

#[tokio::test]
async fn a_body_that_breaks_off_creates_nothing() {
    let gateway = Gateway::start().await;
    let head = head(
        &gateway,
        "connection: close\r\ntransfer-encoding: chunked\r\n",
    );
    let answer = exchange(gateway.address, format!("{head}zz\r\n").as_bytes()).await;
    answer.assert_error(400, "MALFORMED_JSON");
    assert!(gateway.services.create_session.asked().is_empty());
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_a_refusal_does_not_end_it() {
    let gateway = Gateway::start().await;
    let first = head(&gateway, "content-length: 2\r\n") + "{}";
    let second = head(&gateway, "connection: close\r\ncontent-length: 12\r\n") + r#"{"amount":1}"#;
    let answer = exchange(gateway.address, format!("{first}{second}").as_bytes()).await;
    assert_eq!(answer.status, 400);
    let rest = String::from_utf8(answer.body).unwrap();
    let (_, second) = rest.split_once("HTTP/1.1 ").expect("a second answer");
    assert!(second.starts_with("201 "), "{second}");
}

#[tokio::test]
async fn a_length_and_chunks_together_are_not_two_requests() {
    let gateway = Gateway::start().await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: gateway\r\n\r\n";
    let more = format!(
        "transfer-encoding: chunked\r\ncontent-length: {}\r\n",
        smuggled.len() + 5
    );
    let head = head(&gateway, &more);
    let answer: Answer = exchange(
        gateway.address,
        format!("{head}0\r\n\r\n{smuggled}").as_bytes(),
    )
    .await;
    assert_eq!(answer.status, 400);
    assert!(gateway.services.create_session.asked().is_empty());
}

/// Every field that the API knows and one that it does not, each with a plausible value.
const FIELDS: [(&str, &str); 14] = [
    ("amount", "25.50"),
    ("currency", "\"GHS\""),
    ("description", "\"Order 17\""),
    ("redirect_url", "\"https://example.com\""),
    ("customer_email", "\"a@example.com\""),
    ("customer_name", "null"),
    ("customer_phone", "\"+442079460958\""),
    ("mobile_number", "\"0241234567\""),
    ("provider", "\"MTN\""),
    ("payer_email", "\"a@example.com\""),
    ("payer_name", "\"Ama\""),
    ("reference", "\"TX-0123456789-ABCDEF\""),
    ("otp", "\"123456\""),
    ("unknown", "{}"),
];

fn nonsense() -> impl Strategy<Value = String> {
    let numbers = "-?(0|[1-9][0-9]{0,35})(\\.[0-9]{1,35})?([eE][+-]?[0-9]{1,12})?";
    let texts = any::<String>().prop_map(|text| serde_json::to_string(&text).expect("JSON"));
    let odd = prop::sample::select(vec![
        "null",
        "true",
        "[]",
        "{}",
        "\"\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\u202e\"",
        "\"https://\\u0000\"",
        "\"https://user@example.com\"",
        "[[[[{\"a\":[]}]]]]",
    ]);
    prop_oneof![numbers, texts, odd.prop_map(str::to_owned)]
}

/// A body with some of the fields, mostly with sensible values, and sometimes with one byte
/// changed.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let fields = FIELDS.map(|(name, sense)| {
        let value = prop_oneof![8 => Just(sense.to_owned()), 1 => nonsense()];
        let field = value.prop_map(move |value| format!("\"{name}\":{value}"));
        prop::option::weighted(0.8, field)
    });
    let fault = prop::option::weighted(0.2, any::<(prop::sample::Index, u8)>());
    (Vec::from(fields), fault).prop_map(|(fields, fault)| {
        let fields: Vec<String> = fields.into_iter().flatten().collect();
        let mut body = format!("{{{}}}", fields.join(",")).into_bytes();
        if let Some((place, byte)) = fault {
            let place = place.index(body.len());
            body[place] = byte;
        }
        body
    })
}

#[tokio::test]
async fn whatever_a_body_says_it_is_taken_or_refused_in_the_one_form() {
    let gateway = Gateway::start().await;
    let mut runner = TestRunner::deterministic();
    let bodies = body();
    let (mut taken, mut refused) = (0, 0);
    for path in POSTS.into_iter().cycle().take(1_500) {
        let body = bodies.new_tree(&mut runner).expect("a body").current();
        let answer = gateway.post(path, &body).send().await;
        match (answer.status, path) {
            (201 | 202, INITIATE | CHARGE) => taken += 1,
            (404, SUBMIT_OTP) => drop(answer.assert_error(404, "NOT_FOUND")),
            (400, _) if answer.json()["code"] == "MALFORMED_JSON" => {}
            _ => {
                refused += 1;
                assert!(!answer.refused_fields().is_empty());
            }
        }
    }
    assert!(
        taken > 50 && refused > 50,
        "{taken} taken, {refused} refused"
    );
}
