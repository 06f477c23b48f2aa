//! The list of planted faults fits the code.

use std::{fs, path::Path};

use serde::Deserialize;

#[derive(Deserialize)]
struct Planted {
    fault: String,
    file: String,
    from: String,
    to: String,
}

#[test]
fn every_planted_fault_has_its_place_in_the_code() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(here.join("planted/faults.json")).expect("the list");
    let planted: Vec<Planted> = serde_json::from_str(&list).expect("the list is JSON");
    assert!(planted.len() >= 20, "twenty at least");
    for Planted {
        fault,
        file,
        from,
        to,
    } in planted
    {
        let code = fs::read_to_string(here.join("..").join(&file)).expect("its file");
        assert_eq!(code.matches(&from).count(), 1, "{fault}: {file}");
        assert_ne!(from, to, "{fault}");
    }
}
