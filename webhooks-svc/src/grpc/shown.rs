//! What the people of a merchant are shown, as it is on the wire.

use chassis::ids::EventId;
use proto::webhooks::{
    self as wire, ConformanceResult, ConformanceRun, EndpointHealth, EndpointSecrets,
    MerchantDelivery, SendTestResponse, SentHeader, SentRequest, SignatureDiagnosis, TryResult,
};
use secrecy::ExposeSecret as _;

use super::{count, stored_cause};
use crate::{
    conformance::{Case, CaseResult, RunState, Tried},
    conformance_run::OpenRun,
    delivery::Attempt,
    doctor::{BodyChange, Diagnosis, Finding, HeaderFault},
    listing::Health,
    replay::Replay,
    replaying::COUNTED_MAX,
    send::{Message, shown_headers},
    service::OpenEndpoint,
    store::listing::{ListedDelivery, WholeDelivery},
    trial::Trial,
};

chassis::proto_list! {
    Case = wire::ConformanceCase {
        Valid, Duplicate, OlderAfterNewer, TwoSignatures, UnknownType, WrongSignature, OldTimestamp,
        ChangedBody,
    }
}

impl From<Health> for EndpointHealth {
    fn from(health: Health) -> Self {
        let ended = health.delivered + health.exhausted;
        Self {
            endpoint: Some(health.endpoint.into()),
            previous_signs_until: health.previous_signs_until.map(|until| until.to_string()),
            since: health.since.to_string(),
            ended: count(ended),
            delivered: count(health.delivered),
            exhausted: count(health.exhausted),
            failing: count(health.failing),
            median_ms: health.median_ms.map(count),
            p95_ms: health.p95_ms.map(count),
        }
    }
}

impl From<OpenEndpoint> for EndpointSecrets {
    fn from(open: OpenEndpoint) -> Self {
        let OpenEndpoint { endpoint, secrets } = open;
        let previous = secrets.previous.as_ref();
        let until = endpoint.previous_signs_until.filter(|_| previous.is_some());
        Self {
            current: secrets.current.expose_secret().to_owned(),
            previous: previous.map(|previous| previous.expose_secret().to_owned()),
            previous_signs_until: until.map(|until| until.to_string()),
        }
    }
}

impl From<ListedDelivery> for wire::Delivery {
    fn from(listed: ListedDelivery) -> Self {
        let cause = stored_cause(
            listed.last_cause.as_deref(),
            listed.last_succeeded != Some(false),
            listed.last_http_status,
        );
        Self {
            last_http_status: listed.last_http_status.map(count),
            last_cause: cause.into(),
            ..listed.delivery.into()
        }
    }
}

pub fn whole_delivery(whole: WholeDelivery, attempts: Vec<Attempt>) -> MerchantDelivery {
    let delivery = &whole.listed.delivery;
    let message = Message {
        event_id: &delivery.event_id,
        delivery_id: &delivery.delivery_id,
        // Before the first attempt, what that will send.
        attempt: delivery.attempts_count.max(1),
        body: &whole.body,
        signature: whole.sent_signature.as_deref().unwrap_or_default(),
    };
    let headers = shown_headers(whole.sent_url.as_deref(), &message);
    MerchantDelivery {
        request: Some(sent_request(whole.sent_url, headers, whole.body)),
        delivery: Some(wire::Delivery {
            attempts: attempts.into_iter().map(wire::Attempt::from).collect(),
            ..whole.listed.into()
        }),
        is_running: whole.is_running,
        is_asked_for: whole.is_asked_for,
    }
}

fn sent_request(
    url: Option<String>,
    headers: Vec<(&'static str, String)>,
    body: String,
) -> SentRequest {
    let headers = headers.into_iter().map(|(name, value)| SentHeader {
        name: name.to_owned(),
        value,
    });
    SentRequest {
        url,
        headers: headers.collect(),
        body,
    }
}

impl From<Replay> for wire::Replay {
    fn from(replay: Replay) -> Self {
        Self {
            replay_id: replay.replay_id.to_string(),
            since: replay.since.to_string(),
            created_at: replay.created_at.to_string(),
            finished_at: replay.finished_at.map(|at| at.to_string()),
            matched: count(replay.matched.min(COUNTED_MAX)),
            is_more: replay.matched > COUNTED_MAX,
            queued: count(replay.queued),
            delivered: count(replay.delivered),
            failed: count(replay.failed),
        }
    }
}

impl From<Trial> for SendTestResponse {
    fn from(trial: Trial) -> Self {
        Self {
            request: Some(sent_request(Some(trial.url), trial.headers, trial.body)),
            result: Some(trial.tried.into()),
        }
    }
}

impl From<Tried> for TryResult {
    fn from(tried: Tried) -> Self {
        let status = tried.http_status.map(i64::from);
        Self {
            succeeded: tried.succeeded,
            http_status: tried.http_status.map(u32::from),
            cause: stored_cause(tried.cause.as_deref(), tried.succeeded, status).into(),
            error: tried.error,
            duration_ms: u32::try_from(tried.duration_ms).unwrap_or(u32::MAX),
            response_excerpt: tried.response_excerpt,
        }
    }
}

/// `said`: the merchant's event that the body says it is.
pub fn diagnosis(diagnosis: &Diagnosis, said: Option<EventId>) -> SignatureDiagnosis {
    use wire::SignatureFinding as Wire;
    let mut header_fault = wire::HeaderFault::Unspecified;
    let mut body_change = wire::BodyChange::Unspecified;
    let finding = match diagnosis.finding {
        Finding::Valid => Wire::Valid,
        Finding::ValidWithPrevious => Wire::ValidWithPrevious,
        Finding::Malformed(fault) => {
            header_fault = match fault {
                HeaderFault::Empty => wire::HeaderFault::Empty,
                HeaderFault::Part => wire::HeaderFault::Part,
                HeaderFault::Time => wire::HeaderFault::Time,
                HeaderFault::NoSignature => wire::HeaderFault::NoSignature,
                HeaderFault::Signature => wire::HeaderFault::Signature,
            };
            Wire::MalformedHeader
        }
        Finding::ClockOff => Wire::ClockOff,
        Finding::LineBreaks(change) => {
            body_change = match change {
                BodyChange::NewlineAdded => wire::BodyChange::NewlineAdded,
                BodyChange::CrlfAdded => wire::BodyChange::CrlfAdded,
                BodyChange::NewlineRemoved => wire::BodyChange::NewlineRemoved,
                BodyChange::CrlfRemoved => wire::BodyChange::CrlfRemoved,
                BodyChange::LineEndings => wire::BodyChange::LineEndings,
                BodyChange::BlanksAround => wire::BodyChange::BlanksAround,
            };
            Wire::LineBreaks
        }
        Finding::Reserialised => Wire::Reserialised,
        Finding::BodyChanged => Wire::BodyChanged,
        Finding::OtherEvent => Wire::OtherEvent,
        Finding::EmptyBody => Wire::EmptyBody,
        Finding::WrongSecret => Wire::WrongSecret,
    };
    SignatureDiagnosis {
        finding: finding.into(),
        header_fault: header_fault.into(),
        body_change: body_change.into(),
        age_seconds: diagnosis.age_seconds,
        is_fresh: diagnosis.is_fresh(),
        is_by_previous: diagnosis.is_by_previous,
        signed_event_id: diagnosis.signed.as_ref().map(ToString::to_string),
        body_event_id: said.map(|said| said.to_string()),
    }
}

impl From<OpenRun> for ConformanceRun {
    fn from(open: OpenRun) -> Self {
        let state = match open.run.state(open.real_now) {
            RunState::Waiting => wire::ConformanceState::Waiting,
            RunState::Running => wire::ConformanceState::Running,
            RunState::Done => wire::ConformanceState::Done,
            RunState::Interrupted => wire::ConformanceState::Interrupted,
        };
        let passed = open.results.iter().filter(|result| result.passed).count();
        Self {
            run_id: open.run.run_id.to_string(),
            secret: open.secret.expose_secret().to_owned(),
            state: state.into(),
            created_at: open.run.created_at.to_string(),
            url: open.run.url,
            passed: u32::try_from(passed).unwrap_or(u32::MAX),
            results: open
                .results
                .into_iter()
                .map(ConformanceResult::from)
                .collect(),
        }
    }
}

impl From<CaseResult> for ConformanceResult {
    fn from(result: CaseResult) -> Self {
        // UNSPECIFIED stands for one that only a newer version knows.
        let case: Result<Case, _> = result.case.parse();
        let case = case.map_or(wire::ConformanceCase::Unspecified, Into::into);
        Self {
            case: case.into(),
            wants_success: result.wants_success,
            passed: result.passed,
            result: result.tried.map(TryResult::from),
            curl: result.curl,
        }
    }
}
