//! `payctl listen` and `payctl trigger` with an API and a receiver that answer as the test says. With
//! the real API they are tested with the stack.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use chassis::api_key::ApiKey;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::net::TcpSocket;

/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(60);

const SECRET: &str = "whsec_dGVzdA==";

/// As nobody who parses and writes it again would write it.
const EVENT: &str = r#"{"id":"evt_1","type":"payment.failed","data":{"amount":25.50, "b":1e2}}"#;

/// A request as it arrived.
struct Asked {
    head: String,
    body: String,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(given, _)| given.eq_ignore_ascii_case(name));
        found
            .unwrap_or_else(|| panic!("no {name}: {}", self.head))
            .1
    }
}

fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Gives these answers, one to each connection.
fn serve(listener: TcpListener, answers: Vec<String>) -> mpsc::Receiver<Asked> {
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            tell.send(read(&stream)).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    asked
}

fn read(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "cut off: {head}");
    }
    let mut asked = Asked {
        head,
        body: String::new(),
    };
    if asked.head.to_lowercase().contains("\r\ncontent-length: ") {
        let mut body = vec![0; asked.header("content-length").parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        asked.body = String::from_utf8(body).unwrap();
    }
    asked
}

fn api(answers: Vec<String>) -> (String, mpsc::Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (url, serve(listener, answers))
}

fn payctl(api: &str, key: &ApiKey, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payctl"));
    command.env_remove("WEBHOOK_SECRET");
    spawn(&mut command, api, key, words)
}

fn spawn(command: &mut Command, api: &str, key: &ApiKey, words: &[&str]) -> Child {
    command
        .args(["--api-url", api, "--api-key", key.expose()])
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// An address that refuses connections until it is listened on.
fn bound() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn check_delivery(delivery: &Asked) {
    let head = &delivery.head;
    assert!(head.starts_with("POST /hook "), "{head}");
    assert_eq!(delivery.body, EVENT);
    assert_eq!(delivery.header("content-type"), "application/json");
    assert_eq!(delivery.header("x-service-event-id"), "evt_1");
    check_signature(delivery);
}

fn check_signature(asked: &Asked) {
    let signature = asked.header("x-service-signature");
    let (t, v1) = signature.split_once(",v1=").unwrap();
    let t = t.strip_prefix("t=").unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{t}.{}", asked.body).as_bytes());
    mac.verify_slice(&hex::decode(v1).unwrap()).unwrap();
}

#[tokio::test]
async fn events_are_forwarded_in_order_whatever_is_away_and_none_is_skipped() {
    let page = |numbers: &[u64]| {
        let events = numbers.iter();
        let events = events.map(|number| format!(r#"{{"sequence":{number},"event":{EVENT}}}"#));
        let events = events.collect::<Vec<_>>().join(",");
        answer(
            200,
            "",
            &format!(r#"{{"data":[{events}],"last_sequence":21}}"#),
        )
    };
    let away = answer(503, "retry-after: 1\r\n", r#"{"code":"UNAVAILABLE"}"#);
    let (api, asked) = api(vec![away, page(&[18, 19]), page(&[21])]);
    let (socket, address) = bound();
    let key = ApiKey::generate();
    let to = format!("http://{address}/hook");
    let words = [
        "listen",
        "--after",
        "17",
        "--secret",
        SECRET,
        "--forward-to",
        &to,
    ];
    let mut listening = payctl(&api, &key, &words);
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines();
    let mut line = || lines.next().map(Result::unwrap);
    let begins = format!("Events after 17 go to {to}, signed with");
    assert_eq!(line(), Some(begins));
    assert_eq!(line(), Some("the secret that was given".to_owned()));
    let first = line().unwrap();
    assert!(
        first.starts_with("18 payment.failed evt_1 attempt 1: not reachable"),
        "{first}"
    );
    let listener = socket.listen(8).unwrap().into_std().unwrap();
    listener.set_nonblocking(false).unwrap();
    let statuses = [500, 204, 400, 400, 400];
    let answers = statuses.map(|status| answer(status, "", "")).to_vec();
    let received = serve(listener, answers);
    let deliveries = statuses.map(|_| received.recv_timeout(WAIT_MAX).unwrap());
    deliveries.iter().for_each(check_delivery);
    let ids = deliveries
        .each_ref()
        .map(|one| one.header("x-service-delivery-id"));
    assert_eq!(ids[0], ids[1], "one delivery");
    assert_ne!(ids[1], ids[2], "another event");
    let said = listening.wait_with_output().unwrap();
    let errors = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1), "{errors}");
    assert!(errors.contains("trying again in 1 s"), "{errors}");
    assert!(
        errors.contains("go on with --after 19: 21 follows 19"),
        "{errors}"
    );
    let rest: Vec<String> = std::iter::from_fn(line).collect();
    let shown = |number: usize, end: &str| {
        let line = rest.iter().rev().nth(number).unwrap();
        assert!(line.contains(end), "{rest:?}");
    };
    shown(0, "19 payment.failed evt_1 given up");
    shown(1, "19 payment.failed evt_1 attempt 3: 400 in ");
    shown(4, "18 payment.failed evt_1 attempt ");
    shown(4, ": 204 in ");
    for after in ["after=17&", "after=17&", "after=19&"] {
        let asked = asked.recv_timeout(WAIT_MAX).unwrap();
        assert!(asked.head.contains(after), "{}", asked.head);
        let bearer = format!("Bearer {}", key.expose());
        assert_eq!(asked.header("authorization"), bearer);
    }
}

#[test]
fn it_begins_after_the_newest_event_and_ends_where_waiting_does_not_help() {
    let newest = answer(200, "", r#"{"data":[],"last_sequence":41}"#);
    let refused = answer(401, "", r#"{"code":"INVALID_API_KEY","error":"No."}"#);
    let (api, asked) = api(vec![newest, refused]);
    let words = ["listen", "--forward-to", "http://127.0.0.1:9"];
    let said = payctl(&api, &ApiKey::generate(), &words)
        .wait_with_output()
        .unwrap();
    let errors = String::from_utf8(said.stderr).unwrap();
    assert!(errors.contains("INVALID_API_KEY: No."), "{errors}");
    assert_eq!(said.status.code(), Some(1));
    let shown = String::from_utf8(said.stdout).unwrap();
    let secret = shown.lines().nth(1).unwrap();
    assert!(
        secret.starts_with("whsec_") && secret.len() == 50,
        "{shown}"
    );
    asked.recv_timeout(WAIT_MAX).unwrap();
    let second = asked.recv_timeout(WAIT_MAX).unwrap();
    assert!(second.head.contains("after=41&"), "{}", second.head);
}

#[test]
fn a_place_after_the_newest_event_is_told_and_not_waited_at() {
    let page = answer(200, "", r#"{"data":[],"last_sequence":41}"#);
    let (api, _asked) = api(vec![page]);
    let words = [
        "listen",
        "--after",
        "42",
        "--forward-to",
        "http://127.0.0.1:9",
    ];
    let listening = payctl(&api, &ApiKey::generate(), &words);
    let said = listening.wait_with_output().unwrap();
    let errors = String::from_utf8(said.stderr).unwrap();
    assert!(errors.contains("the newest event is 41"), "{errors}");
    assert_eq!(said.status.code(), Some(1));
}

/// What it says with this secret in its environment, before an API that knows no key: to stdout and
/// stderr.
fn listens_with(secret: &str) -> (String, String) {
    let refused = answer(401, "", r#"{"code":"INVALID_API_KEY","error":"No."}"#);
    let (api, _asked) = api(vec![refused]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_payctl"));
    command.env("WEBHOOK_SECRET", secret);
    let words = [
        "listen",
        "--after",
        "0",
        "--forward-to",
        "http://127.0.0.1:9",
    ];
    let listening = spawn(&mut command, &api, &ApiKey::generate(), &words);
    let said = listening.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    let [shown, errors] = [said.stdout, said.stderr].map(|text| String::from_utf8(text).unwrap());
    (shown, errors)
}

#[test]
fn a_secret_need_not_stand_in_the_list_of_processes_and_is_not_shown() {
    let (shown, errors) = listens_with(SECRET);
    assert_eq!(shown.lines().nth(1), Some("the secret that was given"));
    assert!(errors.contains("INVALID_API_KEY"), "{errors}");
    assert!(!errors.contains("whsec_"), "{errors}");
}

#[test]
fn what_is_no_signing_secret_is_refused_and_not_shown() {
    for given in ["", "whsec_", "other_dGVzdA=="] {
        let (shown, errors) = listens_with(given);
        assert_eq!(shown, "", "{given}");
        assert!(errors.contains("not a signing secret"), "{errors}");
        assert!(!errors.contains("dGVzdA"), "{errors}");
    }
}

#[test]
fn what_a_refusal_says_is_shown_in_one_short_line() {
    let event = format!(r#"{{"sequence":1,"event":{EVENT}}}"#);
    let page = format!(r#"{{"data":[{event}],"last_sequence":1}}"#);
    let refused = answer(401, "", r#"{"code":"INVALID_API_KEY","error":"No."}"#);
    let (api, _asked) = api(vec![answer(200, "", &page), refused]);
    let long = "é".repeat(3_000);
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/hook", receiver.local_addr().unwrap());
    let answers = vec![
        answer(500, "", "out of\r\n\tmemory \u{1b}[2J"),
        answer(404, "", &long),
        answer(200, "", "taken"),
    ];
    let _received = serve(receiver, answers);
    let words = ["listen", "--after", "0", "--forward-to", &to];
    let listening = payctl(&api, &ApiKey::generate(), &words);
    let said = listening.wait_with_output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let lines: Vec<&str> = said.lines().skip(2).collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].ends_with(" ms: out of memory [2J"), "{said}");
    assert!(lines[1].contains("attempt 2: 404 in "), "{said}");
    assert_eq!(lines[1].matches('é').count(), 200, "{said}");
    assert!(lines[2].ends_with(" ms"), "{said}");
}

#[test]
fn a_payout_that_ends_otherwise_names_the_number_that_its_event_needs() {
    const PAYOUT: &str =
        r#"{"payout_id":"PO-1","status":"PENDING","destination":{"account":"024 ••• 0001"}}"#;
    let paid = PAYOUT.replace("PENDING", "COMPLETED");
    for (event, says) in [
        (
            "payout.failed",
            "ends in 203 for this event, instead of 024 ••• 0001",
        ),
        ("payout.success", ""),
    ] {
        let (api, asked) = api(vec![answer(202, "", PAYOUT), answer(200, "", &paid)]);
        let payctl = payctl(&api, &ApiKey::generate_test(), &["trigger", event]);
        let said = payctl.wait_with_output().unwrap();
        let errors = String::from_utf8(said.stderr).unwrap();
        assert!(errors.contains(says), "{errors}");
        assert_eq!(said.status.success(), says.is_empty(), "{errors}");
        let ordered = asked.recv_timeout(WAIT_MAX).unwrap();
        assert!(ordered.head.starts_with("POST /api/v1/payouts "));
        let read = asked.recv_timeout(WAIT_MAX).unwrap();
        assert!(read.head.starts_with("GET /api/v1/payouts/PO-1 "));
    }
}

#[test]
fn only_a_test_key_triggers_events() {
    for (key, says) in [
        (ApiKey::generate(), "only a test key"),
        (ApiKey::generate_test(), "does not answer"),
    ] {
        let payctl = payctl("http://127.0.0.1:9", &key, &["trigger", "payment.failed"]);
        let said = payctl.wait_with_output().unwrap();
        let errors = String::from_utf8(said.stderr).unwrap();
        assert!(errors.contains(says), "{errors}");
        assert_eq!(said.status.code(), Some(1));
    }
}
