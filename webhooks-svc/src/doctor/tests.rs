//! At least one of every kind of broken signature.

use proptest::prelude::*;

use super::*;
use crate::{endpoint::SigningSecrets, secret};

const NOW: i64 = 1_790_000_000;

/// A body as it is sent.
fn event(amount: &str) -> KnownEvent {
    let event_id = EventId::new();
    let data = format!(r#"{{"session_id":"s","amount":{amount},"currency":"GHS"}}"#);
    let body = format!(r#"{{"id":"{event_id}","type":"payment.success","data":{data}}}"#);
    KnownEvent { event_id, body }
}

fn secrets() -> Secrets {
    Secrets {
        current: secret::generate(),
        previous: Some(secret::generate()),
    }
}

fn header(secret: &SecretString, seconds: i64, body: &str) -> String {
    let secrets = SigningSecrets {
        current: secret.clone(),
        previous: None,
    };
    signature::header(&secrets, seconds, body)
}

fn find(header: &str, body: &[u8], secrets: &Secrets, events: &[KnownEvent]) -> Diagnosis {
    let suspect = Suspect {
        header,
        body,
        now: NOW,
    };
    diagnose(suspect, secrets, events)
}

#[test]
fn a_right_signature_is_valid_with_and_without_its_name() {
    let (secrets, event) = (secrets(), event("25.50"));
    let header = header(&secrets.current, NOW - 300, &event.body);
    for header in [
        header.clone(),
        format!("X-Service-Signature: {header}\r\n"),
        header.replace(',', ", "),
        format!("{header},v0=1"),
    ] {
        let found = find(&header, event.body.as_bytes(), &secrets, &[]);
        assert_eq!(found.finding, Finding::Valid, "{header}");
        assert_eq!(found.signed, Some(event.event_id.clone()));
        assert!(found.is_fresh() && !found.is_by_previous);
    }
}

#[test]
fn the_previous_secret_is_told_from_the_current_one() {
    let (secrets, event) = (secrets(), event("25.50"));
    let previous = secrets.previous.as_ref().unwrap();
    let found = find(
        &header(previous, NOW, &event.body),
        event.body.as_bytes(),
        &secrets,
        &[],
    );
    assert_eq!(found.finding, Finding::ValidWithPrevious);
    let both = SigningSecrets {
        current: secrets.current.clone(),
        previous: secrets.previous.clone(),
    };
    let both = signature::header(&both, NOW, &event.body);
    let found = find(&both, event.body.as_bytes(), &secrets, &[]);
    assert_eq!(found.finding, Finding::Valid);
}

#[test]
fn a_malformed_header_is_told_by_its_fault() {
    let signature = "ab".repeat(32);
    for (header, fault) in [
        (String::new(), HeaderFault::Empty),
        ("X-Service-Signature:".to_owned(), HeaderFault::Empty),
        (signature.clone(), HeaderFault::Part),
        (format!("v1={signature}"), HeaderFault::Time),
        (format!("t=now,v1={signature}"), HeaderFault::Time),
        (format!("t=1234567890123,v1={signature}"), HeaderFault::Time),
        (format!("t=-1,v1={signature}"), HeaderFault::Time),
        ("t=1,v2=1".to_owned(), HeaderFault::NoSignature),
        ("t=1,v1=abc".to_owned(), HeaderFault::Signature),
        ("t=1,v1=abcd".to_owned(), HeaderFault::Signature),
        (
            format!("t=1,v1={}zz", "ab".repeat(31)),
            HeaderFault::Signature,
        ),
    ] {
        let found = find(&header, b"{}", &secrets(), &[]);
        assert_eq!(found.finding, Finding::Malformed(fault), "{header}");
    }
}

#[test]
fn a_clock_that_is_off_is_told_by_how_much() {
    let (secrets, event) = (secrets(), event("25.50"));
    for (seconds, age) in [(NOW - 301, 301), (NOW + 301, -301)] {
        let header = header(&secrets.current, seconds, &event.body);
        let found = find(&header, event.body.as_bytes(), &secrets, &[]);
        assert_eq!(found.finding, Finding::ClockOff);
        assert_eq!(found.age_seconds, Some(age));
    }
}

#[test]
fn blanks_that_came_or_went_are_told() {
    let secrets = secrets();
    let body = event("25.50").body;
    let header_of = |body: &str| header(&secrets.current, NOW, body);
    let check = |signed: &str, got: String, change| {
        let found = find(&header_of(signed), got.as_bytes(), &secrets, &[]);
        assert_eq!(found.finding, Finding::LineBreaks(change), "{got:?}");
    };
    check(&body, format!("{body}\n"), BodyChange::NewlineAdded);
    check(&body, format!("{body}\r\n"), BodyChange::CrlfAdded);
    let line = format!("{body}\n");
    check(&line, body.clone(), BodyChange::NewlineRemoved);
    let line = format!("{body}\r\n");
    check(&line, body.clone(), BodyChange::CrlfRemoved);
    check("a\nb\nc", "a\r\nb\r\nc".to_owned(), BodyChange::LineEndings);
    check("a\r\nb\r\nc", "a\nb\nc".to_owned(), BodyChange::LineEndings);
    check(&body, format!(" {body}\t\n"), BodyChange::BlanksAround);
    check(&body, format!("\u{feff}{body}"), BodyChange::BlanksAround);
}

#[test]
fn the_same_json_written_otherwise_is_reserialised() {
    let secrets = secrets();
    for (sent, parsed) in [("25.50", "25.5"), ("25.00", "25"), ("25.00", "25.0")] {
        let event = event(sent);
        let header = header(&secrets.current, NOW, &event.body);
        let value: Value = serde_json::from_str(&event.body).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let compact = event.body.replace(sent, parsed);
        for body in [pretty, compact] {
            let found = find(
                &header,
                body.as_bytes(),
                &secrets,
                std::slice::from_ref(&event),
            );
            assert_eq!(found.finding, Finding::Reserialised, "{body}");
            assert_eq!(found.signed, Some(event.event_id.clone()));
        }
    }
}

#[test]
fn a_changed_body_and_that_of_another_event_are_told_apart() {
    let secrets = secrets();
    let (event, other) = (event("25.50"), event("3.00"));
    let header = header(&secrets.current, NOW, &event.body);
    let events = [other.clone(), event.clone()];
    let changed = event.body.replace("25.50", "2550.00");
    for (body, finding) in [
        (changed.as_str(), Finding::BodyChanged),
        ("not JSON", Finding::BodyChanged),
        (other.body.as_str(), Finding::OtherEvent),
    ] {
        let found = find(&header, body.as_bytes(), &secrets, &events);
        assert_eq!(found.finding, finding, "{body}");
        assert_eq!(found.signed, Some(event.event_id.clone()));
    }
}

#[test]
fn no_body_and_a_wrong_secret_are_told() {
    let (secrets, event) = (secrets(), event("25.50"));
    let right = header(&secrets.current, NOW, &event.body);
    let found = find(&right, b"", &secrets, std::slice::from_ref(&event));
    assert_eq!(found.finding, Finding::EmptyBody);
    let wrong = header(&secret::generate(), NOW, &event.body);
    let found = find(
        &wrong,
        event.body.as_bytes(),
        &secrets,
        std::slice::from_ref(&event),
    );
    assert_eq!(found.finding, Finding::WrongSecret);
    assert_eq!(found.age_seconds, Some(0));
}

#[test]
fn nothing_that_is_told_contains_a_secret() {
    use secrecy::ExposeSecret as _;
    let (secrets, event) = (secrets(), event("25.50"));
    let found = find(
        "t=1,v1=x",
        event.body.as_bytes(),
        &secrets,
        std::slice::from_ref(&event),
    );
    let told = format!("{found:?} {secrets:?}");
    assert!(!told.contains(secrets.current.expose_secret()));
}

proptest! {
    #[test]
    fn any_header_and_body_get_a_diagnosis(header in ".{0,200}", body: Vec<u8>) {
        let found = find(&header, &body, &secrets(), &[event("1.00")]);
        prop_assert!(!matches!(found.finding, Finding::Valid | Finding::ValidWithPrevious));
    }

    #[test]
    fn a_body_that_differs_by_a_byte_is_never_valid(at: prop::sample::Index, by in 1_u8..) {
        let (secrets, event) = (secrets(), event("25.50"));
        let header = header(&secrets.current, NOW, &event.body);
        let mut body = event.body.clone().into_bytes();
        let index = at.index(body.len());
        body[index] = body[index].wrapping_add(by);
        let found = find(&header, &body, &secrets, &[event]);
        prop_assert!(matches!(
            found.finding,
            Finding::BodyChanged | Finding::Reserialised | Finding::OtherEvent
        ));
    }
}
