//! What a receiver must do, as requests that show whether it does. No I/O.

use chassis::{
    clock::Timestamp,
    ids::{DeliveryId, EventId, MerchantId, SessionId, TxIdDisplay},
    money::{Currency, Money},
    sealed::SealedSecret,
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use std::time::Duration;
use uuid::Uuid;

use crate::{
    delivery::{AttemptOutcome, AttemptVerdict},
    endpoint::SigningSecrets,
    event::{Data, Event, EventType, Payment},
    secret,
    send::Message,
    signature::{self, TOLERANCE_SECONDS},
};

chassis::closed_list! {
    /// What a run tries, in its order.
    pub enum Case: "a conformance case" {
        Valid = "VALID",
        Duplicate = "DUPLICATE",
        OlderAfterNewer = "OLDER_AFTER_NEWER",
        TwoSignatures = "TWO_SIGNATURES",
        UnknownType = "UNKNOWN_TYPE",
        WrongSignature = "WRONG_SIGNATURE",
        OldTimestamp = "OLD_TIMESTAMP",
        ChangedBody = "CHANGED_BODY",
    }
}

/// A request of a case.
#[derive(Clone, Debug)]
pub struct Request {
    event_id: EventId,
    delivery_id: DeliveryId,
    attempt: i64,
    body: String,
    signature: String,
}

impl Request {
    pub fn message(&self) -> Message<'_> {
        Message {
            event_id: &self.event_id,
            delivery_id: &self.delivery_id,
            attempt: self.attempt,
            body: &self.body,
            signature: &self.signature,
        }
    }

    /// A command that repeats it in a shell, byte for byte.
    pub fn curl(&self, url: &str) -> String {
        let mut command = format!("curl --include --globoff --max-time 10 {}", quoted(url));
        for (name, value) in self.message().headers() {
            command.push_str(&format!(
                " \\\n  --header {}",
                quoted(&format!("{name}: {value}"))
            ));
        }
        command.push_str(&format!(" \\\n  --data-binary {}", quoted(&self.body)));
        command
    }
}

/// One word for a POSIX shell, whatever it contains.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Case {
    /// Whether the receiver must answer with a 2xx; otherwise with anything else.
    pub fn wants_success(self) -> bool {
        match self {
            Self::Valid
            | Self::Duplicate
            | Self::OlderAfterNewer
            | Self::TwoSignatures
            | Self::UnknownType => true,
            Self::WrongSignature | Self::OldTimestamp | Self::ChangedBody => false,
        }
    }

    /// Whether a receiver that answered like this did what it must. One that does not answer
    /// refuses nothing.
    pub fn is_met_by(self, outcome: &AttemptOutcome) -> bool {
        match self.wants_success() {
            true => outcome.verdict == AttemptVerdict::Succeeded,
            false => outcome.verdict == AttemptVerdict::Failed && outcome.http_status.is_some(),
        }
    }

    /// Its requests, to be sent one after the other.
    pub fn requests(self, signer: &Signer<'_>) -> Vec<Request> {
        let now = signer.now;
        let right = |body: &str| signer.sign(body, signer.unix_seconds);
        let one = |event: &Event, body: String, signature: String| Request {
            event_id: event.event_id.clone(),
            delivery_id: DeliveryId::new(),
            attempt: 1,
            body,
            signature,
        };
        let event = signer.payment(now);
        let body = event.body();
        let valid = one(&event, body.clone(), right(&body));
        match self {
            Self::Valid => vec![valid],
            Self::Duplicate => vec![
                valid.clone(),
                Request {
                    attempt: 2,
                    ..valid
                },
            ],
            Self::OlderAfterNewer => {
                let older = signer.payment(now - AN_HOUR);
                let older_body = older.body();
                let signature = right(&older_body);
                vec![valid, one(&older, older_body, signature)]
            }
            Self::TwoSignatures => {
                let second = signer.payment(now);
                let second_body = second.body();
                let other = secret::generate();
                vec![
                    one(
                        &event,
                        body.clone(),
                        signer.sign_twice(&other, signer.secret, &body),
                    ),
                    one(
                        &second,
                        second_body.clone(),
                        signer.sign_twice(signer.secret, &other, &second_body),
                    ),
                ]
            }
            Self::UnknownType => {
                let body = body.replacen(event.event_type.code(), UNKNOWN_TYPE, 1);
                let signature = right(&body);
                vec![one(&event, body, signature)]
            }
            Self::WrongSignature => {
                let other = Signer {
                    secret: &secret::generate(),
                    ..*signer
                };
                let signature = other.sign(&body, signer.unix_seconds);
                vec![one(&event, body, signature)]
            }
            Self::OldTimestamp => {
                let then = signer.unix_seconds - TOLERANCE_SECONDS - 1;
                let signature = signer.sign(&body, then);
                vec![one(&event, body, signature)]
            }
            Self::ChangedBody => {
                let changed = body.replacen("25.50", "2550.00", 1);
                vec![one(&event, changed, valid.signature)]
            }
        }
    }
}

const AN_HOUR: Duration = Duration::from_secs(3_600);

/// A type that no version has.
const UNKNOWN_TYPE: &str = "conformance.unknown";

/// Who signs a case's requests, and when.
#[derive(Clone, Copy, Debug)]
pub struct Signer<'a> {
    pub merchant_id: MerchantId,
    pub secret: &'a SecretString,
    pub now: Timestamp,
    /// Of the host, which is what is signed.
    pub unix_seconds: i64,
}

impl Signer<'_> {
    fn sign(&self, body: &str, unix_seconds: i64) -> String {
        let secrets = SigningSecrets {
            current: self.secret.clone(),
            previous: None,
        };
        signature::header(&secrets, unix_seconds, body)
    }

    fn sign_twice(&self, first: &SecretString, second: &SecretString, body: &str) -> String {
        let secrets = SigningSecrets {
            current: first.clone(),
            previous: Some(second.clone()),
        };
        signature::header(&secrets, self.unix_seconds, body)
    }

    /// An event that looks like any other.
    fn payment(&self, at: Timestamp) -> Event {
        let amount = Money::new(2_550, Currency::GHS);
        Event {
            event_id: EventId::new(),
            merchant_id: self.merchant_id,
            event_type: EventType::PaymentSuccess,
            created_at: at,
            data: Data::Payment(Payment {
                tx_id_display: Some(TxIdDisplay::new().to_string()),
                session_id: SessionId::new().to_string(),
                amount: amount.into(),
                currency: amount.currency().code(),
                method: Some("MOBILE_MONEY".to_owned()),
                status: "SETTLED".to_owned(),
                failure_reason: None,
                failure_message: None,
                session_status: "COMPLETED".to_owned(),
                settled_amount: None,
                settled_currency: None,
                rate: None,
            }),
        }
    }
}

/// A merchant's run, as it is stored.
#[derive(Clone, Debug, FromRow)]
pub struct Run {
    pub merchant_id: MerchantId,
    pub run_id: Uuid,
    pub secret: SealedSecret,
    pub url: Option<String>,
    /// JSON of [`CaseResult`]s.
    pub results: String,
    /// Real time.
    pub lease_until: Option<Timestamp>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Waiting,
    Running,
    Done,
    /// The process that ran it died.
    Interrupted,
}

impl Run {
    pub fn state(&self, real_now: Timestamp) -> RunState {
        match (self.finished_at, self.lease_until) {
            (Some(_), _) => RunState::Done,
            (None, None) => RunState::Waiting,
            (None, Some(until)) if until > real_now => RunState::Running,
            (None, Some(_)) => RunState::Interrupted,
        }
    }
}

/// How a case ended, as it is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// Its code: a newer version may have others.
    pub case: String,
    pub wants_success: bool,
    pub passed: bool,
    /// `None` if no time was left for it.
    pub tried: Option<Tried>,
    pub curl: String,
}

/// What became of one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tried {
    pub succeeded: bool,
    pub http_status: Option<u16>,
    pub cause: Option<String>,
    pub error: Option<String>,
    pub duration_ms: u64,
    pub response_excerpt: Option<String>,
}

impl From<AttemptOutcome> for Tried {
    fn from(outcome: AttemptOutcome) -> Self {
        Self {
            succeeded: outcome.verdict == AttemptVerdict::Succeeded,
            http_status: outcome.http_status,
            cause: outcome.cause.map(|cause| cause.code().to_owned()),
            error: outcome.error,
            duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            response_excerpt: outcome.response_excerpt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{self, Finding, Secrets, Suspect};

    fn found(case: Case) -> Vec<Finding> {
        let (secret, now) = (secret::generate(), 1_790_000_000);
        let signer = Signer {
            merchant_id: MerchantId::new(),
            secret: &secret,
            now: Timestamp::EPOCH + AN_HOUR,
            unix_seconds: now,
        };
        let secrets = Secrets {
            current: secret.clone(),
            previous: None,
        };
        let requests = case.requests(&signer).into_iter();
        requests
            .map(|request| {
                let suspect = Suspect {
                    header: &request.signature,
                    body: request.body.as_bytes(),
                    now,
                };
                doctor::diagnose(suspect, &secrets, &[]).finding
            })
            .collect()
    }

    #[test]
    fn what_must_be_taken_is_signed_right_and_what_must_be_refused_is_not() {
        for case in Case::ALL {
            let valid = |finding: &Finding| *finding == Finding::Valid;
            assert_eq!(
                found(*case).iter().all(valid),
                case.wants_success(),
                "{case:?}"
            );
        }
        assert_eq!(found(Case::OldTimestamp), [Finding::ClockOff]);
        assert_eq!(found(Case::ChangedBody), [Finding::WrongSecret]);
        assert_eq!(found(Case::TwoSignatures).len(), 2);
    }

    #[test]
    fn a_shell_gets_one_word_whatever_it_contains() {
        assert_eq!(quoted("it's $(a) `b` \"c\""), r#"'it'\''s $(a) `b` "c"'"#);
        assert_eq!(quoted(""), "''");
    }
}
