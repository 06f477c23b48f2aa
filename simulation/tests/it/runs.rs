//! Whole runs of the simulation's command: on SQLite, and on PostgreSQL if a server is named.

use std::process::Command;

#[test]
fn a_seed_breaks_no_promise() {
    search(&["--seeds", "1"], None);
}

#[test]
fn a_seed_breaks_no_promise_on_postgres() {
    if let Some(server) = server_url() {
        search(&["--seeds", "1"], Some(&server));
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
fn server_url() -> Option<String> {
    let url = std::env::var("TEST_DATABASE_URL").ok();
    url.filter(|url| !url.is_empty())
}

fn search(args: &[&str], server: Option<&str>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulation"));
    command
        .args(args)
        .env_remove("TEST_DATABASE_URL")
        .env_remove("RUST_LOG");
    if let Some(server) = server {
        command.env("TEST_DATABASE_URL", server);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    // Something happened that could have broken a promise.
    let counts = said
        .lines()
        .rev()
        .find(|line| line.contains("seeds in"))
        .unwrap();
    assert!(!counts.contains(" 0 settled"), "{counts}");
}
