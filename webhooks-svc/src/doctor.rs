//! What is wrong with a signature that a receiver refuses. No I/O.
//!
//! Promise: tells neither a secret nor what the signature should have been, and compares in constant
//! time. Every finding but [`Finding::WrongSecret`] is proved by a signature that matches something.

use chassis::ids::EventId;
use secrecy::SecretString;
use serde_json::{Number, Value};

use crate::signature::{self, TOLERANCE_SECONDS};

/// Most digits of `t` that receivers take.
const TIME_DIGITS_MAX: usize = 12;

/// Bytes of an HMAC-SHA256.
const SIGNATURE_BYTES: usize = 32;

const HEADER_NAME: &str = "x-service-signature:";

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// What a receiver has refused.
#[derive(Clone, Copy, Debug)]
pub struct Suspect<'a> {
    /// The header's value, with or without its name.
    pub header: &'a str,
    pub body: &'a [u8],
    /// Unix seconds.
    pub now: i64,
}

/// The secrets that may have signed, the previous one even if it no longer does.
#[derive(Clone, Debug)]
pub struct Secrets {
    pub current: SecretString,
    pub previous: Option<SecretString>,
}

/// An event that we sent.
#[derive(Clone, Debug)]
pub struct KnownEvent {
    pub event_id: EventId,
    pub body: String,
}

/// What is wrong, the deepest cause first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing.
    Valid,
    ValidWithPrevious,
    Malformed(HeaderFault),
    /// Too old, or in the future.
    ClockOff,
    LineBreaks(BodyChange),
    /// The same JSON, written otherwise.
    Reserialised,
    BodyChanged,
    OtherEvent,
    EmptyBody,
    WrongSecret,
}

/// Why a header is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    Empty,
    /// A part is not `name=value`.
    Part,
    Time,
    NoSignature,
    Signature,
}

/// What was done to a body's blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyChange {
    NewlineAdded,
    CrlfAdded,
    NewlineRemoved,
    CrlfRemoved,
    LineEndings,
    BlanksAround,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    pub finding: Finding,
    /// Negative if it was signed in the future.
    pub age_seconds: Option<i64>,
    pub is_by_previous: bool,
    /// The event that was signed, if it is known.
    pub signed: Option<EventId>,
}

impl Diagnosis {
    pub fn is_fresh(&self) -> bool {
        self.age_seconds.is_some_and(is_fresh)
    }
}

fn is_fresh(age_seconds: i64) -> bool {
    (-TOLERANCE_SECONDS..=TOLERANCE_SECONDS).contains(&age_seconds)
}

/// The event that a body says it is.
pub fn event_of(body: &[u8]) -> Option<EventId> {
    let value: Value = serde_json::from_slice(trimmed(body)).ok()?;
    value.get("id")?.as_str()?.parse().ok()
}

/// `events`: those that may have been signed, the likeliest first.
pub fn diagnose(suspect: Suspect<'_>, secrets: &Secrets, events: &[KnownEvent]) -> Diagnosis {
    let header = match Header::parse(suspect.header) {
        Ok(header) => header,
        Err(fault) => {
            return Diagnosis {
                finding: Finding::Malformed(fault),
                age_seconds: None,
                is_by_previous: false,
                signed: None,
            };
        }
    };
    let age_seconds = suspect.now.saturating_sub(header.seconds);
    let told = |finding, signer, signed| Diagnosis {
        finding,
        age_seconds: Some(age_seconds),
        is_by_previous: signer == Some(Signer::Previous),
        signed,
    };
    let signer = |body: &[u8]| header.signer(secrets, body);
    let said = event_of(suspect.body);
    if let Some(by) = signer(suspect.body) {
        let finding = match by {
            _ if !is_fresh(age_seconds) => Finding::ClockOff,
            Signer::Current => Finding::Valid,
            Signer::Previous => Finding::ValidWithPrevious,
        };
        return told(finding, Some(by), said);
    }
    if suspect.body.is_empty() {
        return told(Finding::EmptyBody, None, None);
    }
    for (change, body) in before_changes(suspect.body) {
        if let Some(by) = signer(&body) {
            return told(Finding::LineBreaks(change), Some(by), said);
        }
    }
    for event in events {
        if let Some(by) = signer(event.body.as_bytes()) {
            let finding = difference(suspect.body, said.as_ref(), event);
            return told(finding, Some(by), Some(event.event_id.clone()));
        }
    }
    told(Finding::WrongSecret, None, None)
}

/// How a body differs from the event that was signed.
fn difference(body: &[u8], said: Option<&EventId>, event: &KnownEvent) -> Finding {
    let body: Option<Value> = serde_json::from_slice(trimmed(body)).ok();
    let signed: Option<Value> = serde_json::from_str(&event.body).ok();
    match (body, signed) {
        (Some(body), Some(signed)) if is_same(&body, &signed) => Finding::Reserialised,
        _ if said.is_some_and(|said| *said != event.event_id) => Finding::OtherEvent,
        _ => Finding::BodyChanged,
    }
}

/// Whether two values mean the same: 25.50 and 25.5 do, and the order of an object's names does not
/// matter.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => plain(one) == plain(other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has = |(name, value)| other.get(name).is_some_and(|found| is_same(value, found));
            one.len() == other.len() && one.iter().all(has)
        }
        _ => one == other,
    }
}

/// Programs write 25.00 as 25.0 or 25.
fn plain(number: &Number) -> String {
    let text = number.to_string();
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// What a body may have been before somebody changed its blanks.
fn before_changes(body: &[u8]) -> Vec<(BodyChange, Vec<u8>)> {
    let mut before = Vec::new();
    if let Some(rest) = body.strip_suffix(b"\r\n") {
        before.push((BodyChange::CrlfAdded, rest.to_vec()));
    }
    if let Some(rest) = body.strip_suffix(b"\n") {
        before.push((BodyChange::NewlineAdded, rest.to_vec()));
    }
    before.push((BodyChange::NewlineRemoved, [body, b"\n"].concat()));
    before.push((BodyChange::CrlfRemoved, [body, b"\r\n"].concat()));
    let with_newlines = with_newlines(body);
    before.push((BodyChange::LineEndings, with_crlf(&with_newlines)));
    before.push((BodyChange::LineEndings, with_newlines));
    before.push((BodyChange::BlanksAround, trimmed(body).to_vec()));
    before
}

fn with_newlines(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(body.len());
    let mut bytes = body.iter().peekable();
    while let Some(byte) = bytes.next() {
        if !(*byte == b'\r' && bytes.peek() == Some(&&b'\n')) {
            text.push(*byte);
        }
    }
    text
}

fn with_crlf(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(body.len());
    for byte in body {
        if *byte == b'\n' {
            text.push(b'\r');
        }
        text.push(*byte);
    }
    text
}

fn trimmed(body: &[u8]) -> &[u8] {
    let body = body.trim_ascii();
    body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body)
}

/// Whose secret made a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signer {
    Current,
    Previous,
}

/// A header as receivers read it.
#[derive(Debug)]
struct Header<'a> {
    /// `t`, as it was written: that is what is signed.
    time: &'a str,
    seconds: i64,
    signatures: Vec<Vec<u8>>,
}

impl<'a> Header<'a> {
    fn parse(text: &'a str) -> Result<Self, HeaderFault> {
        let text = without_name(text.trim()).trim();
        if text.is_empty() {
            return Err(HeaderFault::Empty);
        }
        let mut time = None;
        let mut signatures = Vec::new();
        for part in text.split(',') {
            let (name, value) = part.trim().split_once('=').ok_or(HeaderFault::Part)?;
            match name {
                "t" => time = time.or(Some(value)),
                "v1" => {
                    let bytes = hex::decode(value).map_err(|_| HeaderFault::Signature)?;
                    if bytes.len() != SIGNATURE_BYTES {
                        return Err(HeaderFault::Signature);
                    }
                    signatures.push(bytes);
                }
                // Receivers ignore what they do not know.
                _ => {}
            }
        }
        let is_time = |time: &&str| {
            (1..=TIME_DIGITS_MAX).contains(&time.len())
                && time.bytes().all(|byte| byte.is_ascii_digit())
        };
        let time = time.filter(is_time).ok_or(HeaderFault::Time)?;
        if signatures.is_empty() {
            return Err(HeaderFault::NoSignature);
        }
        Ok(Self {
            time,
            seconds: time.parse().map_err(|_| HeaderFault::Time)?,
            signatures,
        })
    }

    /// Whose secret signed this body, if anybody's did.
    fn signer(&self, secrets: &Secrets, body: &[u8]) -> Option<Signer> {
        let is_by =
            |secret: &SecretString| signature::is_any_by(secret, self.time, body, &self.signatures);
        if is_by(&secrets.current) {
            return Some(Signer::Current);
        }
        let previous = secrets.previous.as_ref();
        previous.is_some_and(is_by).then_some(Signer::Previous)
    }
}

/// When the signature says that it was made, for finding what was sent then.
pub fn signed_at(header: &str) -> Option<i64> {
    Header::parse(header).ok().map(|header| header.seconds)
}

fn without_name(text: &str) -> &str {
    match text.get(..HEADER_NAME.len()) {
        Some(name) if name.eq_ignore_ascii_case(HEADER_NAME) => {
            text.get(HEADER_NAME.len()..).unwrap_or_default()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests;
