//! The rules of the house that no compiler holds: who may depend on whom, and one version of what
//! everything stands on (docs/architecture.md, "Invariants of the code").

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

const SERVICES: [&str; 5] = [
    "merchants-svc",
    "sessions-svc",
    "charges-svc",
    "webhooks-svc",
    "ratelimit-svc",
];

/// Crates that must exist once, because their types meet.
const ONE_VERSION: [&str; 6] = [
    "axum",
    "sqlx",
    "tonic",
    "prost",
    "opentelemetry",
    "libsqlite3-sys",
];

/// Abandoned or replaced: a dependency that drags one in needs another choice.
const BANNED: [&str; 9] = [
    "aws-lc-rs",
    "backoff",
    "bincode",
    "dotenv",
    "native-tls",
    "opentelemetry-jaeger",
    "openssl",
    "rustls-pemfile",
    "serde_yml",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("the workspace's metadata")
}

/// Every (name, version) of the lock file.
fn locked() -> BTreeSet<(String, String)> {
    let root = metadata().workspace_root;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).expect("a lock file");
    let value = |line: &str, key: &str| {
        let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        Some(rest.trim_end_matches('"').to_owned())
    };
    let mut found = BTreeSet::new();
    let mut name = String::new();
    for line in lock.lines() {
        if let Some(text) = value(line, "name") {
            name = text;
        } else if let Some(version) = value(line, "version") {
            found.insert((name.clone(), version));
        }
    }
    found
}

/// Each member with the members that it depends on, outside tests.
fn members(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata.workspace_packages();
    let names: BTreeSet<String> = packages.iter().map(|p| p.name.to_string()).collect();
    let inner = |package: &&cargo_metadata::Package| {
        let used = package.dependencies.iter();
        used.filter(|used| used.kind == DependencyKind::Normal && names.contains(&used.name))
            .map(|used| used.name.clone())
            .collect()
    };
    packages
        .iter()
        .map(|p| (p.name.to_string(), inner(p)))
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let metadata = metadata();
    let members = members(&metadata);
    let only = |name: &str, allowed: &[&str]| {
        let used = &members[name];
        let allowed = allowed.iter().map(ToString::to_string).collect();
        let more: Vec<_> = used.difference(&allowed).collect();
        assert!(more.is_empty(), "{name} must not depend on {more:?}");
    };
    only("proto", &[]);
    only("chassis", &["proto"]);
    only("db", &["chassis"]);
    only("rails", &["chassis"]);
    for service in SERVICES {
        let rails: &[_] = match service {
            "charges-svc" => &["rails"],
            _ => &[],
        };
        only(service, &[&["proto", "chassis", "db"], rails].concat());
    }
    only("gateway", &["proto", "chassis"]);
    only("payctl", &["proto", "chassis"]);
    only("railsim", &["chassis"]);
    for (name, used) in &members {
        for nobodys in ["stack", "simulation"] {
            assert!(
                !used.contains(nobodys),
                "{name} must not depend on {nobodys}"
            );
        }
    }
}

#[test]
fn members_choose_no_versions_and_no_features() {
    let root = metadata().workspace_root;
    for package in metadata().workspace_packages() {
        let manifest = std::fs::read_to_string(&package.manifest_path).expect("a manifest");
        let chosen: Vec<_> = manifest
            .lines()
            .filter(|line| line.contains("version = \"") || line.contains("path = \""))
            .filter(|line| !line.contains("tests/it/main.rs") && !line.contains("src/main.rs"))
            .collect();
        assert!(
            chosen.is_empty(),
            "{} belongs into {root}/Cargo.toml: {chosen:?}",
            package.name
        );
    }
}

#[test]
fn what_everything_stands_on_exists_once() {
    let locked = locked();
    for name in ONE_VERSION {
        let versions = locked.iter().filter(|(found, _)| found == name);
        let versions: Vec<_> = versions.map(|(_, version)| version).collect();
        assert_eq!(versions.len(), 1, "{name}: {versions:?}");
    }
}

#[test]
fn nothing_banned_is_dragged_in() {
    let locked = locked();
    let dragged: Vec<_> = locked
        .iter()
        .filter(|(name, _)| BANNED.contains(&name.as_str()))
        .collect();
    assert!(dragged.is_empty(), "{dragged:?}");
}
