//! `GET /api/openapi.json`: the API's contract, `docs/openapi.yaml`, as JSON. The handlers are
//! written to it, and the tests hold them to it.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::{
    HeaderMap, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use sha2::{Digest as _, Sha256};
use yaml_serde::{Mapping, Value};

/// The document, with its members in their original order.
pub static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let source = include_str!("../../../docs/openapi.yaml");
    yaml_serde::from_str(source).expect("the document is YAML")
});

/// The document's text, and the entity tag that changes with it.
static ANSWER: LazyLock<(String, String)> = LazyLock::new(|| {
    let mut text = serde_json::to_string_pretty(&*DOCUMENT).expect("the document is JSON");
    text.push('\n');
    let tag = entity_tag(&text);
    (text, tag)
});

/// A part of the document with every reference replaced by what it names. A description next to a
/// reference precedes the one that it names, and a nullable value has `null` among its types.
pub fn resolved(document: &Value, part: &Value) -> Value {
    let members = match part {
        Value::Mapping(members) => members,
        Value::Sequence(items) => {
            return items.iter().map(|item| resolved(document, item)).collect();
        }
        _ => return part.clone(),
    };
    let (named, wrapping) = match (part["$ref"].as_str(), part["oneOf"].as_sequence()) {
        (Some(pointer), _) => (resolved(document, at(document, pointer)), "$ref"),
        (None, Some(choices)) => {
            let value = choices.iter().find(|choice| choice["type"] != "null");
            let value = value.map(|value| resolved(document, value));
            let mut value = value.unwrap_or_default();
            value["type"] = [value["type"].clone(), "null".into()].into_iter().collect();
            (value, "oneOf")
        }
        (None, None) => (Value::Mapping(Mapping::new()), ""),
    };
    let mut whole = named;
    for (name, member) in members.iter().filter(|(name, _)| *name != wrapping) {
        let general = whole[name].as_str().filter(|_| name == "description");
        whole[name] = match (member.as_str(), general) {
            (Some(told), Some(general)) => format!("{told} {general}").into(),
            _ => resolved(document, member),
        };
    }
    whole
}

/// What a JSON pointer such as `#/components/schemas/Amount` names.
fn at<'a>(document: &'a Value, pointer: &str) -> &'a Value {
    let names = pointer.trim_start_matches("#/").split('/');
    names.fold(document, |part, name| &part[name.replace("~1", "/")])
}

/// Serves the document. Needs no key and does not count towards a rate limit.
pub async fn serve(headers: HeaderMap) -> Response {
    let (text, tag) = &*ANSWER;
    cacheable(&headers, tag, "application/json", text)
}

/// An entity tag: the same for the same content.
pub fn entity_tag(content: &str) -> String {
    let hash = hex::encode(Sha256::digest(content));
    format!("\"{}\"", hash.get(..32).unwrap_or(&hash))
}

/// A text that callers may cache for five minutes and then revalidate by its tag.
pub fn cacheable(
    headers: &HeaderMap,
    tag: &'static str,
    content_type: &'static str,
    text: &'static str,
) -> Response {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let known = known.filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(','));
    let is_known = known.any(|one| {
        let one = one.trim();
        one == "*" || one.trim_start_matches("W/") == tag
    });
    let kept = [(ETAG, tag), (CACHE_CONTROL, "public, max-age=300")];
    if is_known {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(CONTENT_TYPE, content_type)], text).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use chassis::{
        failure::FailureReason,
        money::{Currency, Money},
        rate_bucket::RateBucket,
    };
    use proto::{
        charges::{
            ChargeStatus, DisbursementStatus, Provider, TimelineKind, TimelineOutcome, WalletState,
        },
        merchants::KycStatus,
        sessions::{SessionStatus, TransactionStatus},
        webhooks::EventType,
    };
    use serde_json::json;

    use super::*;
    use crate::{
        api::{initiate::WarningCode, timeline},
        error::{DisbursementRefusal, Error},
        field_error::{FieldCode, FieldError},
        limits::Quota,
    };

    /// The values of an enum in the document.
    fn documented(schema: &str) -> BTreeSet<&'static str> {
        let values = DOCUMENT["components"]["schemas"][schema]["enum"].as_sequence();
        let values = values.expect(schema).iter();
        values
            .map(|value| value.as_str().unwrap_or("null"))
            .collect()
    }

    #[test]
    fn closed_lists_are_those_of_the_contracts() {
        let providers = Provider::all().filter_map(Provider::code);
        assert_eq!(documented("Provider"), providers.collect());
        let sessions = SessionStatus::all().filter_map(SessionStatus::code);
        assert_eq!(documented("SessionStatus"), sessions.collect());
        let transactions = TransactionStatus::all().filter_map(TransactionStatus::code);
        assert_eq!(documented("TransactionStatus"), transactions.collect());
        let charges: BTreeSet<_> = ChargeStatus::all().filter_map(ChargeStatus::code).collect();
        assert_eq!(documented("TransactionStatus"), charges);
        // A POST answers before the payer can have paid.
        let answered = charges.into_iter().filter(|status| *status != "SETTLED");
        assert_eq!(documented("ChargeReplyStatus"), answered.collect());
        let disbursements = DisbursementStatus::all().filter_map(DisbursementStatus::code);
        assert_eq!(documented("DisbursementStatus"), disbursements.collect());
        let kyc = KycStatus::all().filter_map(KycStatus::code);
        assert_eq!(documented("KycStatus"), kyc.chain(["null"]).collect());
    }

    #[test]
    fn events_are_those_of_the_contracts() {
        let events: BTreeSet<_> = EventType::all().filter_map(EventType::name).collect();
        let webhooks = DOCUMENT["webhooks"].as_mapping().expect("webhooks");
        let described = webhooks.keys().filter_map(Value::as_str);
        assert_eq!(
            described.map(str::to_owned).collect::<BTreeSet<_>>(),
            events
        );
        let typed = [
            "PaymentEventType",
            "PayoutEventType",
            "RefundEventType",
            "TestEventType",
        ]
        .into_iter()
        .flat_map(documented);
        assert_eq!(typed.map(str::to_owned).collect::<BTreeSet<_>>(), events);
    }

    #[test]
    fn closed_lists_are_those_of_the_code() {
        let fields = FieldCode::ALL.iter().map(|one| one.code());
        assert_eq!(documented("FieldCode"), fields.collect());
        let of_charges = FailureReason::ALL.iter();
        let of_charges = of_charges.filter(|reason| !reason.is_of_disbursements());
        let failures = of_charges.map(|one| one.code());
        assert_eq!(documented("FailureReason"), failures.collect());
        let outcomes = TimelineOutcome::all().filter_map(TimelineOutcome::code);
        assert_eq!(documented("TimelineOutcome"), outcomes.collect());
        let kinds = TimelineKind::all().filter_map(TimelineKind::code);
        let kinds = kinds.chain([timeline::DELIVERY_ATTEMPT]);
        assert_eq!(documented("TimelineKind"), kinds.collect());
        let wallets = WalletState::all().filter_map(WalletState::code);
        assert_eq!(documented("WalletState"), wallets.collect());
        let warnings = WarningCode::ALL.iter().map(|one| one.code());
        assert_eq!(documented("WarningCode"), warnings.collect());
    }

    #[test]
    fn every_currency_that_is_taken_is_documented() {
        let letters = || 'A'..='Z';
        let codes = letters().flat_map(|first| {
            letters().flat_map(move |second| {
                letters().map(move |third| String::from_iter([first, second, third]))
            })
        });
        let taken: Vec<String> = codes
            .filter(|code| code.parse::<Currency>().is_ok())
            .collect();
        let documented: Vec<&str> = documented("Currency").into_iter().collect();
        assert_eq!(taken, documented);
    }

    /// Whether the document lists this error with its own text.
    fn is_documented(error: &Error) -> bool {
        match error {
            Error::NotFound
            | Error::NoWebhookEndpoint
            | Error::InvalidApiKey
            | Error::RateLimited(_)
            | Error::EmailNotVerified
            | Error::KycNotApproved(_)
            | Error::MerchantNotAcceptingPayments
            | Error::UnsupportedMediaType
            | Error::PayloadTooLarge
            | Error::RequestTimeout
            | Error::MalformedJson
            | Error::Validation(_)
            | Error::ChargeNotAwaitingOtp
            | Error::DisbursementRefused { .. }
            | Error::StatementNotReady
            | Error::IdempotencyInProgress
            | Error::IdempotencyKeyReused
            | Error::NothingStarted
            | Error::OutcomeUnknown
            | Error::Internal(_)
            | Error::Panicked => true,
            // The Allow header says what an address takes.
            Error::MethodNotAllowed => false,
            // A documented code, with a text for those who attack or break off.
            Error::TooManyGuesses { .. } | Error::BodyCutOff => false,
            // Only for pages and the rails' callbacks.
            Error::AtDashboard { .. } => false,
            Error::CrossSite | Error::SessionNotPayable | Error::CallbackSignatureInvalid => false,
        }
    }

    fn disbursement_refusals() -> [Error; 5] {
        let amount = |minor| Money::new(minor, Currency::GHS);
        [
            DisbursementRefusal::PayoutsNotEnabled,
            DisbursementRefusal::PayoutAccountOnHold("2026-11-23T09:30:00.000Z".to_owned()),
            DisbursementRefusal::InsufficientBalance(amount(125_075)),
            DisbursementRefusal::ChargeNotSettled,
            DisbursementRefusal::RefundExceedsCharge(amount(2_025)),
        ]
        .map(|why| Error::DisbursementRefused {
            why,
            replayed: false,
        })
    }

    #[test]
    fn documented_errors_are_those_that_are_answered() {
        let missing = |field: &'static str| {
            Error::Validation(vec![FieldError {
                field: field.into(),
                code: FieldCode::Required,
                message: "is required".into(),
            }])
        };
        let answered = [
            Error::NotFound,
            Error::NoWebhookEndpoint,
            Error::InvalidApiKey,
            Error::RateLimited(Quota {
                bucket: RateBucket::Payments,
                counted: None,
            }),
            Error::EmailNotVerified,
            Error::KycNotApproved(Some("IN_REVIEW")),
            Error::MerchantNotAcceptingPayments,
            Error::UnsupportedMediaType,
            Error::PayloadTooLarge,
            Error::RequestTimeout,
            Error::MalformedJson,
            missing("amount"),
            missing("otp"),
            missing("mobile_number"),
            Error::Validation(vec![FieldError {
                field: "limit".into(),
                code: FieldCode::OutOfRange,
                message: "must be from 1 to 100".into(),
            }]),
            Error::StatementNotReady,
            Error::Validation(vec![FieldError {
                field: "day".into(),
                code: FieldCode::InvalidFormat,
                message: "must be a day such as 2026-11-24".into(),
            }]),
            Error::ChargeNotAwaitingOtp,
            Error::IdempotencyInProgress,
            Error::IdempotencyKeyReused,
            Error::NothingStarted,
            Error::OutcomeUnknown,
            Error::Panicked,
        ];
        let answered = [&answered[..], &disbursement_refusals()].concat();
        assert!(answered.iter().all(is_documented));
        let answered = answered.iter().map(|error| {
            let body = json!(error.body("019aa5c2-7b4f-7d32-a1c9-5e8d0f2b6a41"));
            (error.status().as_str().to_owned(), body.to_string())
        });
        let mut documented = BTreeSet::new();
        let document = resolved(&DOCUMENT, &DOCUMENT);
        let paths = document["paths"].as_mapping().expect("paths").values();
        for operation in paths.flat_map(|path| path.as_mapping().expect("methods").values()) {
            for (status, response) in operation["responses"].as_mapping().expect("responses") {
                let media = &response["content"]["application/json"];
                if media["schema"]["allOf"].is_null() {
                    continue;
                }
                let status = status.as_str().expect("a status").to_owned();
                let examples = media["examples"].as_mapping().into_iter().flatten();
                let bodies = examples.map(|(_, example)| json!(example["value"]).to_string());
                documented.extend(bodies.map(|body| (status.clone(), body)));
            }
        }
        assert_eq!(documented, answered.collect());
    }
}
