//! The list of planted faults matches the code.

use std::{fs, path::Path};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Planted {
    fault: String,
    file: String,
    from: String,
    to: String,
    /// `module::name` of an integration test of any crate.
    test: Option<String>,
    /// It breaks none of the promises that the simulation checks.
    #[serde(default)]
    only_test: bool,
    #[serde(default, rename = "needs_postgres")]
    _needs_postgres: bool,
}

#[test]
fn every_planted_fault_has_its_place_in_the_code_and_its_test() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().expect("the workspace");
    let list = fs::read_to_string(here.join("planted/faults.json")).expect("the list");
    let planted: Vec<Planted> = serde_json::from_str(&list).expect("the list is JSON");
    assert!(planted.len() >= 20, "twenty at least");
    for Planted {
        fault,
        file,
        from,
        to,
        test,
        only_test,
        ..
    } in planted
    {
        let code = fs::read_to_string(root.join(&file)).expect("its file");
        assert_eq!(code.matches(&from).count(), 1, "{fault}: {file}");
        assert_ne!(from, to, "{fault}");
        assert!(!only_test || test.is_some(), "{fault}: nothing finds it");
        let is_there = test.is_none_or(|test| has_test(root, &test));
        assert!(is_there, "{fault}: its test");
    }
}

fn has_test(root: &Path, test: &str) -> bool {
    let (module, name) = test.split_once("::").expect("module::name");
    let file = format!("tests/it/{module}.rs");
    let mut crates = fs::read_dir(root).expect("the workspace");
    crates.any(|entry| {
        let path = entry.expect("an entry").path().join(&file);
        fs::read_to_string(path).is_ok_and(|code| code.contains(&format!("fn {name}(")))
    })
}
