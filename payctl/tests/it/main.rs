//! payctl's arguments and errors. What it does to running services is tested with the stack.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod listen;
mod proof;
mod reconcile;

use std::{
    io::{Read as _, Seek as _, Write as _},
    net::TcpListener,
    process::{Command, Output, Stdio},
};

/// Runs payctl without any address in its environment.
fn payctl(words: &[&str]) -> Output {
    payctl_given(words, b"")
}

/// Runs it with this as its standard input.
fn payctl_given(words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payctl"));
    for variable in [
        "MERCHANTS_GRPC_URL",
        "CHARGES_GRPC_URL",
        "WEBHOOKS_GRPC_URL",
        "CLOCK_URL",
        "API_URL",
        "API_KEY",
    ] {
        command.env_remove(variable);
    }
    let mut input_file = tempfile::tempfile().unwrap();
    input_file.write_all(input).unwrap();
    input_file.rewind().unwrap();
    command.args(words).stdin(input_file).output().unwrap()
}

#[track_caller]
fn check_fails(words: &[&str], code: i32, says: &str) {
    check_refused(&payctl(words), code, says);
}

/// Checks that this is how it failed.
#[track_caller]
fn check_refused(output: &Output, code: i32, says: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(says), "{said}");
    assert!(
        output.stdout.is_empty(),
        "nothing that a program could take for an answer"
    );
}

#[test]
fn an_address_that_is_not_set_is_named() {
    check_fails(&["merchant", "show", "x"], 1, "MERCHANTS_GRPC_URL");
    check_fails(&["cases"], 1, "CHARGES_GRPC_URL");
    check_fails(&["webhook", "deliveries", "x"], 1, "WEBHOOKS_GRPC_URL");
    check_fails(&["clock", "advance", "1h"], 1, "CLOCK_URL");
    check_fails(&["trigger", "payment.failed"], 1, "API_URL");
    let listen = ["listen", "--forward-to", "http://127.0.0.1:1"];
    check_fails(&listen, 1, "API_URL");
    check_fails(
        &[&listen[..], &["--api-url", "http://127.0.0.1:1"]].concat(),
        1,
        "API_KEY",
    );
}

#[test]
fn a_service_that_does_not_answer_is_an_error_and_no_wait() {
    let words = [
        "--merchants-grpc-url",
        "http://127.0.0.1:1",
        "merchant",
        "show",
        "x",
    ];
    check_fails(&words, 1, "Unavailable");
}

#[test]
fn an_outcome_must_be_chosen() {
    check_fails(
        &["charge", "resolve", "TX-1", "--evidence", "x"],
        2,
        "--settled",
    );
    check_fails(&["case", "close", "x"], 2, "--refund");
    check_fails(
        &["case", "close", "x", "--refund", "--release"],
        2,
        "--release",
    );
    check_fails(
        &["case", "close", "x", "--refund", "--override", "y"],
        2,
        "--override",
    );
}

#[test]
fn a_decision_on_a_business_is_one_of_four_and_somebodys() {
    let decide = ["kyc", "decide", "x", "--version", "1"];
    let decide = |words: &[&'static str]| [&decide[..], words].concat();
    check_fails(&decide(&["--by", "Kofi"]), 2, "--approve");
    check_fails(&decide(&["--approve"]), 2, "--by");
    let both = ["--by", "Kofi", "--approve", "--reject", "tin=x"];
    check_fails(&decide(&both), 2, "cannot be used with");
    let later = ["--by", "Kofi", "--expire", "--expires-on", "2999-01-01"];
    check_fails(&decide(&later), 2, "--expires-on");
    check_fails(
        &decide(&["--by", "Kofi", "--reject", "tin"]),
        2,
        "FIELD=REASON",
    );
    check_fails(&["kyc", "list", "--status", "none"], 2, "APPROVED");
    check_fails(&["kyc", "list"], 1, "MERCHANTS_GRPC_URL");
}

#[test]
fn an_unknown_event_type_is_refused_before_anything_is_sent() {
    let words = [
        "--webhooks-grpc-url",
        "http://127.0.0.1:1",
        "webhook",
        "set",
        "x",
        "--url",
        "http://x",
        "--events",
        "payment.succeeded",
    ];
    check_fails(&words, 1, "payment.success");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let clock = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", clock.local_addr().unwrap());
    let mut payctl = Command::new(env!("CARGO_BIN_EXE_payctl"))
        .args(["--clock-url", &url, "clock", "advance", "1s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut connection, _) = clock.accept().unwrap();
    connection.read_exact(&mut [0; 4]).unwrap();
    // As `head` does, and certainly before there is anything to print.
    drop(payctl.stdout.take());
    connection
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        .unwrap();
    let output = payctl.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
