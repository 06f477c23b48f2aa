//! Each target runs for a moment on embedded stores, with the services' own binaries.

use std::{fs, process::Command};

use serde_json::Value;
use tempfile::TempDir;

/// Runs the load tester and returns what it reports.
pub fn reported(target: &[&str], more: &[&str]) -> Value {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .args(target)
        .args(more)
        .arg("--json")
        .arg(&file)
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success(), "{target:?}: {told}");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Asserts that the target's requests succeed.
pub fn check(target: &[&str]) {
    let brief = [
        "--duration=1s",
        "--warm-up=0s",
        "--in-flight=2",
        "--merchants=2",
    ];
    let reports = reported(target, &brief);
    let report = &reports[0];
    assert!(
        report["requests"].as_u64() > Some(0),
        "{target:?}: {report}"
    );
    assert_eq!(report["errors"], serde_json::json!({}), "{target:?}");
    let processes = report["processes"].as_array().unwrap();
    assert!(processes.len() > 1, "{target:?}: {report}");
}

#[test]
fn the_gateway_is_asked_for_each_kind_of_work() {
    for work in [
        "initiate",
        "charge",
        "status",
        "read-charge",
        "unknown-path",
        "life",
    ] {
        check(&["gateway", "--work", work]);
    }
}

#[test]
fn sessions_are_created_for_each_kind_of_payer() {
    for payers in ["new", "returning", "none"] {
        check(&["sessions", "--payers", payers]);
        check(&["gateway", "--payers", payers]);
    }
}

#[test]
fn each_service_is_asked_alone() {
    for service in ["charges", "webhooks", "ratelimit", "merchants"] {
        check(&[service]);
    }
}

#[test]
fn a_soak_follows_memory_and_queues() {
    let soak = reported(
        &["soak", "--rate=5"],
        &["--duration=3s", "--warm-up=0s", "--merchants=2"],
    );
    assert_eq!(soak["report"]["requests"], 15);
    assert_eq!(soak["refused_webhooks"], 0);
    for series in [
        "gateway MiB",
        "charges-svc MiB",
        "open charges",
        "due deliveries",
    ] {
        let values = soak["series"][series]["values"].as_array();
        assert_eq!(values.map(Vec::len), Some(30), "{series}");
    }
}

#[test]
fn an_overload_offers_three_times_the_rate() {
    let reports = reported(
        &["overload", "--rate=5"],
        &["--duration=1s", "--warm-up=0s", "--merchants=2"],
    );
    assert_eq!(reports[0]["offered"], 5);
    assert_eq!(reports[1]["offered"], 15);
}

#[test]
fn a_running_service_is_used_only_with_every_address_that_is_called() {
    let output = Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .args(["gateway", "--gateway-url=http://127.0.0.1:9"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("the address of merchants-svc for operators is needed"),
        "{told}"
    );
}
