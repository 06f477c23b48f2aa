//! The rules of the code that no compiler checks (docs/architecture.md, "Rules of the code"): who
//! may depend on whom, and what belongs where. `clippy.toml` lists the calls that are banned, and
//! `deny.toml` the crates.

mod imports;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::LazyLock,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

use source::{Source, rust_files, sources};

const SERVICES: [&str; 5] = [
    "merchants-svc",
    "sessions-svc",
    "charges-svc",
    "webhooks-svc",
    "ratelimit-svc",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("the workspace's metadata")
}

fn root() -> PathBuf {
    metadata().workspace_root.into()
}

/// Each member with the members that it depends on outside tests.
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
    only("loadtest", &["proto", "chassis", "db"]);
    for (name, used) in &members {
        for nobodys in ["stack", "simulation", "loadtest"] {
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

/// The sources of each of our crates. `proto` is left out, since its sources are generated.
static CRATES: LazyLock<BTreeMap<String, Vec<Source>>> = LazyLock::new(|| {
    let metadata = metadata();
    let packages = metadata.workspace_packages().into_iter();
    let names = packages.map(|package| package.name.to_string());
    let written = names.filter(|name| name != "proto");
    written
        .map(|name| {
            let sources = sources(&root(), &name);
            assert!(!sources.is_empty(), "{name} has no sources");
            (name, sources)
        })
        .collect()
});

/// Asserts that no file breaks a rule, except those that may.
fn hold(rule: fn(&Source) -> Vec<String>, may: impl Fn(&str, &Source) -> bool) {
    let mut broken = Vec::new();
    for (name, sources) in &*CRATES {
        for source in sources.iter().filter(|source| !may(name, source)) {
            let path = &source.path;
            broken.extend(rule(source).iter().map(|found| format!("{path}: {found}")));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_files_need_each_other() {
    let circles = CRATES
        .values()
        .flat_map(|sources| imports::circles(sources));
    let circles: Vec<String> = circles.collect();
    assert!(circles.is_empty(), "{}", circles.join("\n\n"));
}

#[test]
fn sql_stands_in_stores() {
    hold(sql, |name, source| match name {
        "db" => true,
        "simulation" => source.is_one_of(&["records.rs", "store.rs"]),
        "loadtest" => source.is_one_of(&[
            "store.rs",
            "baseline/store.rs",
            "growth/store.rs",
            "storm/store.rs",
        ]),
        _ => source.is_one_of(&["store.rs", "store/**"]),
    });
}

/// The string literals that are SQL.
fn sql(source: &Source) -> Vec<String> {
    let texts = source.texts.iter().filter(|text| is_sql(text));
    texts.cloned().collect()
}

fn is_sql(text: &str) -> bool {
    let text = text.to_lowercase();
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    match words.as_slice() {
        ["select", rest @ ..] => rest.contains(&"from"),
        ["update", rest @ ..] => rest.contains(&"set"),
        ["with", rest @ ..] => {
            let is_statement = |word: &&str| {
                let word = word.trim_start_matches('(');
                ["select", "values", "insert", "update", "delete"].contains(&word)
            };
            rest.contains(&"as") && rest.iter().any(is_statement)
        }
        ["insert", "into", ..] | ["delete", "from", ..] => true,
        [
            "create" | "alter" | "drop",
            "table" | "index" | "trigger",
            ..,
        ] => true,
        _ => false,
    }
}

#[test]
fn proto_types_stop_at_the_edge() {
    // Clients of the services, and the crates that run or simulate all of them.
    let speak_proto = ["gateway", "payctl", "stack", "simulation", "loadtest"];
    hold(proto, |name, source| match name {
        name if speak_proto.contains(&name) => true,
        "chassis" => source.is_one_of(&[
            "charge_status.rs",
            "grpc.rs",
            "grpc/batch.rs",
            "money.rs",
            "provider.rs",
            "rate_bucket.rs",
        ]),
        "charges-svc" if source.is_one_of(&["tell.rs"]) => true,
        "sessions-svc" if source.is_one_of(&["expiry_event.rs"]) => true,
        "webhooks-svc" if source.is_one_of(&["exhaustion.rs"]) => true,
        _ => source.module.is_empty() || source.is_one_of(&["grpc.rs", "grpc/**"]),
    });
}

/// The paths into `proto`, and imports of all of it, which let it be named otherwise.
fn proto(source: &Source) -> Vec<String> {
    let whole = source.imports.iter().map(|import| import.path.join("::"));
    let whole = whole.filter(|path| path == "proto");
    let paths = source.paths().filter(|path| path.starts_with("proto::"));
    paths.chain(whole).collect()
}

#[test]
fn only_those_who_stand_in_for_operators_call_what_is_theirs() {
    hold(operators, |name, _| {
        ["payctl", "stack", "simulation", "loadtest"].contains(&name)
    });
}

/// The clients of what services do for operators alone.
fn operators(source: &Source) -> Vec<String> {
    // Other services call it.
    const OF_SERVICES: &str = "session_operations_client";
    let is_theirs = |name: &str| {
        let others = ["business_reviews_client", "rail_reports_client"];
        (name.ends_with("_operations_client") && name != OF_SERVICES) || others.contains(&name)
    };
    let paths = source.paths();
    paths
        .filter(|path| path.starts_with("proto::") && path.split("::").any(is_theirs))
        .collect()
}

#[test]
fn whatever_serves_checks_its_settings() {
    for name in SERVICES.into_iter().chain(["gateway", "railsim"]) {
        let mut sources = CRATES[name].iter();
        let root = sources.find(|source| source.module.is_empty());
        let root = root.expect("it is a library");
        assert!(
            checks_settings(root, "serve"),
            "{name}'s serve checks no settings"
        );
    }
    let mut frame = CRATES["db"]
        .iter()
        .filter(|source| source.is_one_of(&["frame.rs"]));
    assert!(frame.any(|source| checks_settings(source, "open")));
}

/// Whether a function checks its settings itself or opens the frame, which does.
fn checks_settings(source: &Source, function: &str) -> bool {
    let mut named = source.named_in(function);
    named.any(|path| path.ends_with("config::check") || path.ends_with("Frame::open"))
}

#[test]
fn only_tests_use_what_is_for_tests() {
    hold(harness, |_, source| {
        source.is_one_of(&["testing.rs", "testing/**"])
    });
}

/// The paths into the tests' harness.
fn harness(source: &Source) -> Vec<String> {
    let paths = source.paths();
    paths
        .filter(|path| path.split("::").any(|name| name == "testing"))
        .collect()
}

#[test]
fn what_clippy_bans_is_done_in_one_place() {
    hold(excepted, |name, source| match name {
        // The time, tasks, HTTP clients, and histograms, which are counted in floats.
        "chassis" => source.is_one_of(&["clock/host.rs", "shutdown.rs", "http.rs", "metrics.rs"]),
        // A test has no settings but the environment.
        "db" => source.is_one_of(&["testing.rs"]),
        _ => false,
    });
}

/// What a file does although clippy.toml bans it.
fn excepted(source: &Source) -> Vec<String> {
    let paths = source.paths();
    paths
        .filter(|path| path.starts_with("clippy::disallowed_"))
        .collect()
}

#[test]
fn settings_stand_in_config() {
    let of_a_rail = |source: &Source| source.module.last().is_some_and(|name| name == "settings");
    hold(settings, |name, source| match name {
        "gateway" if source.is_one_of(&["checkout/abuse.rs"]) => true,
        "simulation" => source.is_one_of(&["main.rs"]),
        "payctl" => source.is_one_of(&["services.rs"]),
        "rails" => of_a_rail(source),
        "railsim" if of_a_rail(source) => true,
        _ => source.is_one_of(&["config.rs", "config/**"]),
    });
}

fn settings(source: &Source) -> Vec<String> {
    source.settings.clone()
}

#[test]
fn errors_are_logged_in_one_way() {
    hold(unchained_errors, |_, _| false);
}

/// The errors that are logged without everything that led to them.
fn unchained_errors(source: &Source) -> Vec<String> {
    let logged = source.logged.iter();
    let unchained = logged.filter(|argument| {
        let (name, value) = argument.split_once('=').unwrap_or((argument, argument));
        let is_error = |text: &str| text.trim_start_matches(['%', '?']) == "error";
        (is_error(name) || is_error(value)) && !value.starts_with("%chain(")
    });
    unchained.cloned().collect()
}

/// A longer test file covers more than one subject.
const TEST_LINES_MAX: usize = 600;

/// SQLite leaves some files out, so two of one number may do harm on PostgreSQL alone.
#[test]
fn no_two_migrations_have_one_number() {
    for package in metadata().workspace_packages() {
        let folder = package.manifest_path.with_file_name("migrations");
        let Ok(files) = std::fs::read_dir(folder) else {
            continue;
        };
        let mut seen = BTreeSet::new();
        for file in files {
            let name = file.unwrap().file_name().into_string().unwrap();
            let (number, _) = name.split_once('_').unwrap();
            assert!(seen.insert(number.to_owned()), "{}: {name}", package.name);
        }
    }
}

#[test]
fn files_of_tests_are_short() {
    let root = root();
    for name in CRATES.keys() {
        let mut files = rust_files(&root.join(name).join("tests"));
        files.extend(rust_files(&root.join(name).join("src")));
        files.retain(|file| {
            file.iter()
                .any(|part| part == "tests" || part == "tests.rs")
        });
        for file in files {
            let text = fs::read_to_string(&file).expect("a test is readable");
            let lines = text.lines().count();
            assert!(lines <= TEST_LINES_MAX, "{}: {lines} lines", file.display());
        }
    }
}

/// Tests that the rules find what breaks them.
mod rules {
    use super::*;

    fn source(path: &str, module: &[&str], text: &str) -> Source {
        Source::parse(path, module, text)
    }

    fn only(text: &str) -> Source {
        source("thing.rs", &["thing"], text)
    }

    #[test]
    fn a_binary_beside_a_library_is_held_to_them_too() {
        let mut sources = CRATES["simulation"].iter();
        assert!(sources.any(|source| source.is_one_of(&["main.rs"])));
    }

    #[test]
    fn two_files_that_need_each_other_are_a_circle() {
        let files = |one: &str, other: &str| {
            let root = source("lib.rs", &[], "mod one; mod other; pub use one::Thing;");
            let files = [
                root,
                source("one.rs", &["one"], one),
                source("other.rs", &["other"], other),
            ];
            imports::circles(&files)
        };
        let one = "use crate::other::Part; pub struct Thing(Part);";
        let told = "one.rs takes Part from other.rs\nother.rs takes Thing from one.rs";
        for other in [
            "use crate::one::Thing; pub struct Part(Box<Thing>);",
            "use super::one; pub struct Part(Box<one::Thing>);",
            "pub struct Part(Box<crate::Thing>);",
            "pub struct Part; fn show() { print!(\"{}\", super::one::Thing); }",
            "pub struct Part; mod inner { use crate::{one::{self, Thing as Whole}}; }",
        ] {
            assert_eq!(files(one, other), [told], "{other}");
        }
        for other in [
            "pub struct Part;",
            "pub struct Part; #[cfg(test)] mod tests { use crate::one::Thing; }",
            "pub struct Part; pub use crate::one::Thing;",
        ] {
            assert!(files(one, other).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_module_is_one_with_its_folder_but_the_crate_is_not_one_with_its_root() {
        let files = |root: &str, inner: &str| {
            let files = [
                source("lib.rs", &[], root),
                source(
                    "thing.rs",
                    &["thing"],
                    "mod part; use part::Part; pub struct Thing(Part);",
                ),
                source("thing/part.rs", &["thing", "part"], inner),
            ];
            imports::circles(&files).len()
        };
        assert_eq!(files("mod thing;", "use super::Thing; pub struct Part;"), 0);
        let root = "mod thing; pub struct Shared; fn make() -> thing::Thing { todo!() }";
        assert_eq!(files(root, "use crate::Shared; pub struct Part;"), 1);
    }

    #[test]
    fn sql_is_told_from_words() {
        for text in [
            "select id from charges where id = $1",
            "\n    insert into charges (id) values ($1)",
            "UPDATE charges SET state = $1",
            "-- forget\ndelete from leases",
            "with due as (select 1) select * from due",
            "with recursive next (n) as (values (1)) select n from next",
        ] {
            let code = format!("const TEXT: &str = {text:?}; fn run() {{ query!({text:?}); }}");
            assert_eq!(sql(&only(&code)).len(), 2, "{text}");
        }
        let code = r#"/// Select one from many.
            const TEXT: &str = "update the settings of a merchant";
            #[cfg(test)] const SQL: &str = "delete from charges";"#;
        assert!(sql(&only(code)).is_empty());
    }

    #[test]
    fn proto_is_found_however_it_is_named() {
        for code in [
            "use proto::money::Money;",
            "fn make() -> proto::money::Money { todo!() }",
            "fn run() { json!(proto::DESCRIPTORS) }",
            "use proto as contracts; fn make() -> contracts::Money { todo!() }",
            "use proto::*;",
        ] {
            assert_eq!(proto(&only(code)).len(), 1, "{code}");
        }
        assert!(proto(&only("use crate::proto_like::Money;")).is_empty());
    }

    #[test]
    fn the_harness_is_found_however_it_is_named() {
        for code in [
            "use chassis::testing::until;",
            "use chassis::testing; fn run() {}",
            "use chassis::testing as harness;",
            "fn run() { db::testing::TestDb::new() }",
        ] {
            assert_eq!(harness(&only(code)).len(), 1, "{code}");
        }
        let code = "use crate::testing_ground; fn run() { testing_ground::run() }";
        assert!(harness(&only(code)).is_empty());
    }

    #[test]
    fn what_is_for_operators_is_found_however_it_is_named() {
        for code in [
            "use proto::charges::charge_operations_client::ChargeOperationsClient;",
            "use proto::merchants::business_reviews_client as reviews; fn run() { reviews::run() }",
            "fn run() { proto::webhooks::webhook_operations_client::WebhookOperationsClient::new() }",
        ] {
            assert!(!operators(&only(code)).is_empty(), "{code}");
        }
        let code = "use proto::sessions::session_operations_client::SessionOperationsClient;";
        assert!(operators(&only(code)).is_empty());
    }

    #[test]
    fn a_check_counts_only_in_serve() {
        for check in [
            "chassis::config::check(&config)?;",
            "Frame::open(&config).await?;",
        ] {
            let code = format!("async fn serve(config: Config) {{ {check} }}");
            assert!(checks_settings(&only(&code), "serve"));
            let elsewhere = format!("fn serve() {{}} async fn main() {{ {check} }}");
            assert!(!checks_settings(&only(&elsewhere), "serve"));
        }
    }

    #[test]
    fn what_clippy_bans_is_found() {
        let code = r#"#[expect(clippy::disallowed_methods, reason = "the one place")]
            fn now() { SystemTime::now() }
            #[expect(clippy::disallowed_types, reason = "a bucket")] type Seconds = f64;"#;
        assert_eq!(excepted(&only(code)).len(), 2);
        let code = r#"#[expect(clippy::too_many_lines, reason = "a table")] fn table() {}"#;
        assert!(excepted(&only(code)).is_empty());
    }

    #[test]
    fn settings_are_found() {
        let code = r#"struct Config { #[arg(long, env = "LISTEN")] listen: String }"#;
        assert_eq!(settings(&only(code)).len(), 1);
        let code = r#"struct Config { #[arg(long)] listen: String } const V: &str = env!("V");"#;
        assert!(settings(&only(code)).is_empty());
    }

    #[test]
    fn errors_without_their_causes_are_found() {
        for logged in [
            "error!(%error, \"it failed\")",
            "tracing::warn!(work, ?error, \"it failed\")",
            "tracing::info!(error, \"it failed\")",
            "tracing::info!(error = %error, \"it failed\")",
            "tracing::info!(error = format!(\"{error:#}\"), \"it failed\")",
            "tracing::debug!(reason = %error, \"it failed\")",
            "select! { _ = end => tracing::error!(%error, \"it failed\") }",
            "tracing::info_span!(\"it\", error = %error)",
        ] {
            let code = format!("fn run() {{ {logged}; }}");
            assert_eq!(unchained_errors(&only(&code)).len(), 1, "{logged}");
        }
        for logged in [
            "tracing::error!(error = %chain(&error), work, \"an error = a failure\")",
            "tracing::info!(error.count = 1, is_error, \"error\")",
            "assert!(error != (%error))",
        ] {
            let code = format!("fn run() {{ {logged}; }}");
            assert!(unchained_errors(&only(&code)).is_empty(), "{logged}");
        }
    }
}
