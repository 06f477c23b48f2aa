//! Statements are verified without any server, and whatever is wrong with one is found.
//!
//! The statements are those of a running service (`statements/`), signed with the key of the bytes
//! 1 to 32. The tests sign what they change with the same key, as somebody would who has it.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{check_fails, check_refused, payctl, payctl_given};

const MERCHANT: &str = include_str!("statements/merchant.json");
const MERCHANT_CSV: &str = include_str!("statements/merchant.csv");
const HOUSE: &str = include_str!("statements/house.json");
const HOUSE_CSV: &str = include_str!("statements/house.csv");
/// The merchant's and the house's of the next day.
const MERCHANT_NEXT: &str = include_str!("statements/merchant-next.json");
const HOUSE_NEXT: &str = include_str!("statements/house-next.json");

fn pair(first: u8) -> Ed25519KeyPair {
    let seed: Vec<u8> = (first..first + 32).collect();
    Ed25519KeyPair::from_seed_unchecked(&seed).unwrap()
}

fn key() -> String {
    hex::encode(pair(1).public_key())
}

/// The same statement, signed as it is now.
fn signed(text: &str) -> String {
    signed_by(text, &pair(1))
}

fn signed_by(text: &str, pair: &Ed25519KeyPair) -> String {
    let mark = match text.starts_with('{') {
        true => "\"signature\":\"",
        false => "signature,,,,,,,,,,,",
    };
    let (before, after) = text.split_once(mark).unwrap();
    let digest = hex::encode(Sha256::digest(before));
    let signature = pair.sign(format!("payments statement 1 {digest}").as_bytes());
    let end = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "+/=".contains(c));
    format!("{before}{mark}{}{end}", STANDARD.encode(signature))
}

fn written(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn check_good(words: &[&str]) -> serde_json::Value {
    let output = payctl(&[&["proof", "verify"], words].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that a statement is refused with these words.
#[track_caller]
fn check_bad(content: impl AsRef<[u8]>, says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder, "statement", content);
    check_fails(&["proof", "verify", &file, "--key", &key()], 1, says);
}

/// Replaces what must be there.
#[track_caller]
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

/// The text without the first line that has this in it.
#[track_caller]
fn without(text: &str, part: &str) -> String {
    let line = text.lines().find(|line| line.contains(part)).unwrap();
    text.replacen(&format!("{line}\n"), "", 1)
}

#[test]
fn statements_as_they_are_given_out_are_good() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let mut summaries = Vec::new();
    for (name, content) in [
        ("merchant.json", MERCHANT),
        ("merchant.csv", MERCHANT_CSV),
        ("house.json", HOUSE),
        ("house.csv", HOUSE_CSV),
    ] {
        let file = written(&folder, name, content);
        summaries.push(check_good(&[&file, "--key", &key]));
    }
    // CSV and JSON say the same.
    assert_eq!(summaries[0], summaries[1]);
    assert_eq!(summaries[2], summaries[3]);
    assert_eq!(summaries[2]["statement_of"], "house");
}

#[test]
fn a_statement_may_come_by_the_standard_input() {
    let words = ["proof", "verify", "-", "--key", &key()];
    let whole = payctl_given(&words, MERCHANT.as_bytes());
    assert_eq!(whole.status.code(), Some(0), "{whole:?}");
    let (half, _) = MERCHANT.split_at(MERCHANT.len() / 2);
    check_refused(&payctl_given(&words, half.as_bytes()), 1, "- is not good");
}

#[test]
fn the_key_may_be_a_file_of_the_published_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(&folder, "merchant.json", MERCHANT);
    let other = hex::encode(pair(2).public_key());
    let published = format!(
        r#"{{"keys": [{{"key_id": "x", "public_key": "{other}"}}, {{"key_id": "y", "public_key": "{}"}}]}}"#,
        key()
    );
    let keys = written(&folder, "keys.json", published);
    check_good(&[&file, "--key", &keys]);
    let alone = written(&folder, "key.hex", format!("{}\n", key()));
    check_good(&[&file, "--key", &alone]);
    let words = ["proof", "verify", &file, "--key"];
    check_fails(
        &[&words[..], &[&other]].concat(),
        1,
        "another key signed it",
    );
    check_fails(
        &[&words[..], &["nothing.json"]].concat(),
        1,
        "neither 64 hex digits nor a file",
    );
    check_fails(&words[..3], 2, "--key");
}

#[test]
fn every_flipped_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let runner = &mut proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let files = [MERCHANT, MERCHANT_CSV, HOUSE, HOUSE_CSV];
    let flips = (0..files.len(), any::<prop::sample::Index>(), 0..8_u8);
    let found = runner.run(&flips, |(file, at, bit)| {
        let mut bytes = files[file].as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let path = written(&folder, "flipped", &bytes);
        let output = payctl(&["proof", "verify", &path, "--key", &key]);
        prop_assert_eq!(output.status.code(), Some(1), "byte {} bit {}", at, bit);
        Ok(())
    });
    found.unwrap();
}

#[test]
fn the_signature_itself_has_one_form_alone() {
    // The last bits of base64 that mean nothing, other spellings of the end, and more after it.
    for end in 1..=94 {
        let mut bytes = HOUSE.as_bytes().to_vec();
        let at = bytes.len() - end;
        bytes[at] ^= 1;
        check_bad(&bytes, "is not good");
    }
    for changed in [
        format!("{HOUSE}\n"),
        HOUSE.trim_end().to_owned(),
        format!(" {HOUSE}"),
        with(HOUSE, "\"}\n", "\" }\n"),
        HOUSE[..HOUSE.len() / 2].to_owned(),
        String::new(),
    ] {
        check_bad(changed, "is not good");
    }
}

#[test]
fn a_foreign_key_is_found() {
    check_bad(signed_by(MERCHANT, &pair(2)), "another key signed it");
    let named = with(MERCHANT, "\"key_id\":\"", "\"key_id\":\"0");
    check_bad(signed(&named), "names another key");
}

#[test]
fn a_line_that_is_missing_or_twice_is_found_although_it_was_signed() {
    for text in [MERCHANT, MERCHANT_CSV] {
        check_bad(signed(&without(text, "SETTLEMENT")), "the balance after");
    }
    check_bad(
        signed(&without(HOUSE, "SETTLEMENT")),
        "is not as it was sealed",
    );
    check_bad(
        signed(&without(HOUSE_CSV, "SETTLEMENT")),
        "is not as it was sealed",
    );
    let line = HOUSE
        .lines()
        .find(|line| line.contains("SETTLEMENT"))
        .unwrap();
    let twice = with(HOUSE, line, &format!("{line}\n{line}"));
    check_bad(signed(&twice), "is in it twice");
}

#[test]
fn sums_that_do_not_lead_from_one_balance_to_the_other_are_found() {
    let opened = with(MERCHANT, "\"opening\":0.00", "\"opening\":0.01");
    check_bad(signed(&opened), "the balance after");
    let closed = with(MERCHANT, "\"closing\":51.00", "\"closing\":51.01");
    check_bad(signed(&closed), "not to its closing balance 51.01");
    let closed = with(HOUSE, "\"closing\":51.00", "\"closing\":51.01");
    check_bad(signed(&closed), "do not lead to its closing balance 51.01");
    let account = HOUSE
        .lines()
        .find(|line| line.contains("\"closing\":51.00"))
        .unwrap();
    let unlisted = HOUSE.replacen(account, "", 1).replacen("[\n\n", "[\n", 1);
    let unlisted = unlisted.replacen("\n\n", "\n", 1);
    check_bad(signed(&unlisted), "is of an account without balances");
}

#[test]
fn a_broken_chain_is_found() {
    let hash = |name: &str| {
        let (_, rest) = HOUSE.split_once(&format!("\"{name}\":\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let zeros = "0".repeat(64);
    let last = HOUSE.replace(&hash("last_hash"), &zeros);
    check_bad(signed(&last), "is not as it was sealed");
    let head = with(HOUSE, &hash("last_hash"), &zeros);
    check_bad(signed(&head), "do not lead to the last hash");
    let other_start = with(HOUSE, "\"after_hash\":\"", "\"after_hash\":\"00");
    check_bad(signed(&other_start), "does not follow the one before it");
    let amount = HOUSE.replace("25.50", "25.51").replace("51.00", "51.02");
    check_bad(signed(&amount), "is not as it was sealed");
    let renumbered = with(
        HOUSE,
        "{\"block\":1,\"sealed_at\"",
        "{\"block\":2,\"sealed_at\"",
    );
    check_bad(signed(&renumbered), "block 1 is missing");
}

#[test]
fn the_next_days_statement_continues_this_ones() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    for (this, next, balances) in [(MERCHANT, MERCHANT_NEXT, 2), (HOUSE, HOUSE_NEXT, 1)] {
        let this = written(&folder, "this", this);
        let file = written(&folder, "next", next);
        check_good(&[&file, "--key", &key, "--after", &this]);
        let same = ["proof", "verify", &this, "--key", &key, "--after", &this];
        check_fails(&same, 1, "not the day before");
        // Good by itself, but it does not begin where the other ends.
        let other = with(next, "\"opening\":51.00", "\"opening\":50.00");
        let other = other.replacen("76.50", "75.50", balances);
        let other = written(&folder, "other", signed(&other));
        let words = ["proof", "verify", &other, "--key", &key, "--after", &this];
        check_fails(&words, 1, "does not open with");
    }
    let (merchant, house) = (
        written(&folder, "m", MERCHANT_NEXT),
        written(&folder, "h", HOUSE),
    );
    let words = [
        "proof", "verify", &merchant, "--key", &key, "--after", &house,
    ];
    check_fails(&words, 1, "not of the same owner");
}

#[test]
fn a_merchants_statement_is_a_part_of_the_houses() {
    let folder = tempfile::tempdir().unwrap();
    let key = key();
    let house = written(&folder, "house", HOUSE);
    for (name, content) in [("json", MERCHANT), ("csv", MERCHANT_CSV)] {
        let merchant = written(&folder, name, content);
        check_good(&[&merchant, "--key", &key, "--house", &house]);
    }
    // Good by itself, but it says less than the house's.
    let lines: Vec<&str> = MERCHANT
        .lines()
        .filter(|l| l.contains("SETTLEMENT"))
        .collect();
    let last = lines.last().unwrap();
    let less = with(MERCHANT, &format!(",\n{last}"), "");
    let less = with(&less, "\"closing\":51.00", "\"closing\":25.50");
    let less = written(&folder, "less", signed(&less));
    check_good(&[&less, "--key", &key]);
    let words = ["proof", "verify", &less, "--key", &key, "--house", &house];
    check_fails(&words, 1, "it lacks SETTLEMENT");
    let next = written(&folder, "next", HOUSE_NEXT);
    let merchant = written(&folder, "merchant", MERCHANT);
    let words = [
        "proof", "verify", &merchant, "--key", &key, "--house", &next,
    ];
    check_fails(&words, 1, "not those of the house");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let nowhere = Path::new("nowhere.json");
    assert!(!nowhere.exists());
    let words = ["proof", "verify", "nowhere.json", "--key", &key()];
    check_fails(&words, 1, "nowhere.json cannot be read");
}

#[test]
fn a_statement_is_fetched_from_a_service() {
    let words = ["proof", "statement", "--day", "2026-11-24"];
    check_fails(&words, 1, "CHARGES_GRPC_URL");
    check_fails(&["proof", "keys"], 1, "CHARGES_GRPC_URL");
    check_fails(&["proof", "statement", "--day", "2026-02-30"], 2, "--day");
    let merchant = [
        "proof",
        "statement",
        "--day",
        "2026-11-24",
        "--merchant",
        "x",
    ];
    check_fails(&merchant, 2, "--merchant");
}
