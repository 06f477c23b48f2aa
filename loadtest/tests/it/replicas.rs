//! Several processes of each service. Those tests that need `pay2.test` run where it is a name.

use std::{
    path::Path,
    process::{Command, Output},
};

use loadtest::processes::{Ground, Host, Processes, Service};

use crate::{baselines::store_flags, targets::reported};

/// The stores' flags, where there are stores and calls to `pay2.test` are spread over two addresses.
fn pair() -> Option<[String; 2]> {
    store_flags().filter(|_| Host::with(2).is_ok())
}

fn refused(flags: &[&str]) -> String {
    let loadtest = Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .args(["gateway"])
        .args(flags)
        .output();
    let Output { status, stderr, .. } = loadtest.unwrap();
    assert!(!status.success(), "{flags:?}");
    String::from_utf8_lossy(&stderr).into_owned()
}

#[tokio::test]
async fn each_replica_listens_at_its_own_address_and_is_revived_with_the_others() {
    let binaries = Path::new(env!("CARGO_BIN_EXE_loadtest")).parent();
    let ground = Ground {
        binaries: binaries.map(Path::to_owned),
        host: Host {
            replicas: 2,
            ..Host::default()
        },
        ..Ground::default()
    };
    let services = [Service::Railsim, Service::Ratelimit];
    let mut processes = Processes::start(&ground, &services).await.unwrap();
    let watched = processes.watched();
    let names = watched.iter().map(|process| process.name.as_str());
    let expected = ["railsim", "ratelimit-svc 1", "ratelimit-svc 2"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let admins = watched.into_iter().filter_map(|process| process.admin);
    let admins: Vec<String> = admins.collect();
    let answers = async |url: &String| reqwest::get(format!("{url}/readyz")).await.is_ok();
    for (url, address) in admins.iter().zip(["127.0.0.1", "127.0.0.2"]) {
        assert!(url.starts_with(&format!("http://{address}:")), "{url}");
        assert!(answers(url).await, "{url}");
    }
    processes.kill(Service::Ratelimit).await.unwrap();
    for url in &admins {
        assert!(!answers(url).await, "{url}");
    }
    processes.revive(Service::Ratelimit).await.unwrap();
    for url in &admins {
        assert!(answers(url).await, "{url}");
    }
    processes.stop().await.unwrap();
}

#[test]
fn a_name_that_is_missing_is_told_with_its_lines() {
    let stores = [
        "--database-url=postgres://nobody",
        "--redis-url=redis://nobody",
    ];
    let told = refused(&["--replicas=9", stores[0], stores[1]]);
    assert!(
        told.contains("/etc/hosts:\n127.0.0.1 pay9.test\n"),
        "{told}"
    );
    assert!(told.ends_with("\n127.0.0.9 pay9.test\n"), "{told}");
}

#[test]
fn replicas_need_stores_and_processes_of_their_own() {
    let told = refused(&["--replicas=2"]);
    assert!(
        told.contains("need --database-url and --redis-url"),
        "{told}"
    );
    let told = refused(&["--replicas=2", "--gateway-url=http://127.0.0.1:9"]);
    assert!(
        told.contains("what runs already gets no replicas"),
        "{told}"
    );
    let told = refused(&["--replicas=1,1"]);
    assert!(told.contains("only growth takes several numbers"), "{told}");
}

#[test]
fn calls_are_spread_over_replicas() {
    let Some([database, redis]) = pair() else {
        return;
    };
    let target = ["gateway", "--work=life", "--replicas=2", &database, &redis];
    let brief = ["--duration=2s", "--warm-up=0s", "--in-flight=16"];
    let reports = reported(&target, &brief);
    let report = &reports[0];
    assert_eq!(report["errors"], serde_json::json!({}));
    let processes = report["processes"].as_array().unwrap();
    for service in ["gateway", "sessions-svc", "charges-svc", "webhooks-svc"] {
        for number in [1, 2] {
            let name = format!("{service} {number}");
            let mut named = processes.iter().filter(|process| process["name"] == *name);
            let cpu_ms = named.next().and_then(|process| process["cpu_ms"].as_f64());
            assert!(cpu_ms > Some(0.0), "{name}: {report}");
        }
    }
}

#[test]
fn growth_compares_numbers_of_replicas() {
    let Some([database, redis]) = pair() else {
        return;
    };
    let target = ["growth", "--rows=3000", "--replicas=1,2", &database, &redis];
    let brief = [
        "--rounds=1",
        "--duration=1s",
        "--warm-up=0s",
        "--settling=0s",
    ];
    let grown = reported(&target, &brief);
    let curve = grown["curve"].as_array().unwrap();
    let replicas = curve.iter().map(|point| &point["replicas"]);
    assert_eq!(replicas.collect::<Vec<_>>(), [1, 2, 1, 2, 1, 2]);
}
