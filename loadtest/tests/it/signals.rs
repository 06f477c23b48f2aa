//! A signal ends whatever runs and leaves nothing behind.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use loadtest::store::Server;

use crate::baselines::stores;

const WAIT_MAX: Duration = Duration::from_secs(60);

/// The processes that it has started, each with its command line.
fn children(of: &Child) -> Vec<(String, String)> {
    let id = of.id();
    // Each of its threads may have started some.
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let children = threads.flat_map(|thread| {
        let children = fs::read_to_string(thread.unwrap().path().join("children"));
        let children = children.unwrap_or_default();
        let ids: Vec<String> = children.split_whitespace().map(str::to_owned).collect();
        ids
    });
    let line_of = |id: &str| fs::read_to_string(format!("/proc/{id}/cmdline")).ok();
    let own = line_of(&id.to_string());
    let told = children.filter_map(|child| {
        // Until it runs another program, a child shows its parent's line.
        let line = line_of(&child).filter(|line| own.as_ref() != Some(line))?;
        Some((child, line))
    });
    told.collect()
}

/// The name of the database that one of these is told to use.
fn database(children: &[(String, String)]) -> Option<String> {
    let mut flags = children.iter().flat_map(|(_, line)| line.split('\0'));
    let url = flags.find_map(|flag| flag.strip_prefix("--database-url="))?;
    url.rsplit_once('/').map(|(_, name)| name.to_owned())
}

#[tokio::test]
async fn processes_and_databases_end_with_a_measurement_that_is_stopped() {
    let Some((url, _)) = stores() else {
        return;
    };
    for target in [["growth", "--rows=1000,2000"], ["compare", "--rows=13"]] {
        let mut loadtest = Command::new(env!("CARGO_BIN_EXE_loadtest"))
            .args(target)
            .arg(format!("--database-url={url}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + WAIT_MAX;
        let (started, name) = loop {
            let started = children(&loadtest);
            if let Some(name) = database(&started) {
                break (started, name);
            }
            assert!(Instant::now() < deadline, "{target:?} starts nothing");
            sleep(Duration::from_millis(5));
        };
        let id = loadtest.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.unwrap().success());
        let ended = loop {
            if let Some(ended) = loadtest.try_wait().unwrap() {
                break ended;
            }
            assert!(Instant::now() < deadline, "{target:?} goes on");
            sleep(Duration::from_millis(5));
        };
        assert_eq!(ended.code(), Some(1), "{target:?}");
        for (child, line) in started {
            let running = fs::read_to_string(format!("/proc/{child}/cmdline"));
            assert_ne!(running.ok(), Some(line), "{target:?} left it behind");
        }
        let server = Server::new(&url).unwrap();
        assert!(server.connect(&name).await.is_err(), "{target:?}: {name}");
    }
}
