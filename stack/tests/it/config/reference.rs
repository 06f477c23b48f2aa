//! docs/operators/configuration.md has a table of each binary's settings, generated from the
//! binaries' own definitions. Regenerate it with
//! `UPDATE_DOCS=1 cargo test -p stack --test it -- configuration_reference`.

use std::{fmt::Write as _, path::Path};

use chassis::config::{flag, settable};
use clap::Arg;

use super::{BINARIES, definition};

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/operators/configuration.md"
);

/// Everything above this marker is written by hand.
const MARKER: &str = "<!-- From here on made from the binaries' own definitions: see stack/tests/it/config/reference.rs -->\n";

#[test]
fn configuration_reference_is_what_the_binaries_take() {
    let kept = std::fs::read_to_string(FILE).unwrap();
    let (by_hand, tables) = kept.split_once(MARKER).expect("the marker line");
    let made: String = BINARIES.iter().map(|name| table(name)).collect();
    if update() {
        std::fs::write(FILE, format!("{by_hand}{MARKER}{made}")).unwrap();
        return;
    }
    assert!(
        tables == made,
        "{} is not what the binaries take; write it anew: \
         UPDATE_DOCS=1 cargo test -p stack --test it -- configuration_reference",
        Path::new(FILE).display()
    );
}

#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn update() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

fn table(name: &str) -> String {
    let definition = definition(name);
    let about = definition.get_about().map(ToString::to_string);
    let mut text = format!("\n## {name}\n\n{}.\n\n", about.unwrap_or_default());
    text.push_str("| Variable | Flag | Default | Meaning |\n|---|---|---|---|\n");
    for arg in settable(&definition) {
        let variable = arg.get_env().map(|name| format!("`{}`", name.display()));
        let variable = variable.unwrap_or_default();
        let flag = flag(arg);
        let (default, meaning) = (default(arg), meaning(arg));
        writeln!(text, "| {variable} | `{flag}` | {default} | {meaning} |").unwrap();
    }
    text
}

fn default(arg: &Arg) -> String {
    let values = arg.get_default_values().iter();
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    match values.join(",") {
        _ if arg.is_required_set() => "**required**".to_owned(),
        values if values.is_empty() => String::new(),
        values => format!("`{values}`"),
    }
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut meaning = format!("{}.", help.trim_end_matches('.'));
    let possible = arg.get_possible_values();
    let names: Vec<_> = possible
        .iter()
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !names.is_empty() {
        write!(meaning, " One of {}.", names.join(", ")).unwrap();
    }
    if arg.is_hide_env_values_set() {
        meaning.push_str(" Never shown.");
    }
    meaning.replace('|', "\\|").replace('\n', " ")
}
