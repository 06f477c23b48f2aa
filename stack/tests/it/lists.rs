//! Closed lists that no compiler checks: the values that migrations allow in a column, and those
//! that the guides explain. A new value of a contract that either lacks fails here.

use std::{fs, path::PathBuf};

use charges_svc::charge::State;
use chassis::failure::FailureReason;
use proto::{
    charges::CaseKind,
    merchants::KycStatus,
    sessions::{SessionStatus, TransactionStatus},
    webhooks::{DeliveryStatus, EventType},
};

/// A file or folder of the repository.
fn in_repository(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", path].iter().collect()
}

/// All migrations of a service.
fn migrations(service: &str) -> String {
    let folder = in_repository(service).join("migrations");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

#[test]
fn columns_may_hold_each_value_of_their_list() {
    let kyc = KycStatus::all().filter_map(KycStatus::code);
    let session = SessionStatus::all().filter_map(SessionStatus::code);
    let transaction = TransactionStatus::all().filter_map(TransactionStatus::code);
    let delivery = DeliveryStatus::all().filter_map(DeliveryStatus::code);
    let state = State::ALL.iter().map(|state| state.code());
    for (service, column, words) in [
        ("charges-svc", "state", state.collect::<Vec<_>>()),
        ("merchants-svc", "kyc_status", kyc.collect()),
        ("sessions-svc", "status", session.collect()),
        (
            "sessions-svc",
            "status",
            transaction.chain(["WITHDRAWN"]).collect(),
        ),
        ("webhooks-svc", "status", delivery.collect()),
    ] {
        let check = format!("{column} in ('{}')", words.join("', '"));
        assert!(migrations(service).contains(&check), "{service}: {check}");
    }
}

#[test]
fn guides_tell_of_each_value_of_their_list() {
    let reasons = FailureReason::ALL
        .iter()
        .map(|reason| reason.code().to_owned());
    let sessions = SessionStatus::all().filter_map(SessionStatus::code);
    let cases = CaseKind::all().filter_map(CaseKind::code);
    let events = EventType::all().filter_map(EventType::name);
    for (guide, words) in [
        ("docs/merchants/charges.md", reasons.collect::<Vec<_>>()),
        (
            "docs/merchants/checkout.md",
            sessions.map(str::to_owned).collect(),
        ),
        ("docs/merchants/webhooks.md", events.collect()),
        (
            "docs/operators/cases.md",
            cases.map(str::to_owned).collect(),
        ),
    ] {
        let text = fs::read_to_string(in_repository(guide)).unwrap();
        // The first cell of each table row.
        let rows = text
            .lines()
            .filter_map(|line| line.strip_prefix('|')?.split('|').next());
        let rows: String = rows.collect();
        for word in words {
            assert!(rows.contains(&format!("`{word}`")), "{guide}: {word}");
        }
    }
}
