//! What MTN's answers mean.
//!
//! Promise: only a documented refusal is a refusal. Everything else is unknown until a query
//! tells.

use chassis::{failure::FailureReason, ids::RailReference};
use serde::Deserialize;

use crate::{
    answer::{QueryOutcome, RailAnswer, RequestOutcome, WalletOutcome},
    client::Reply,
    name::RailName,
    telemetry::{misconfigured, unmapped},
    words::Member,
};

/// What a code means in the answer to a request, and on a payment that ended FAILED. Any other code
/// is [`FailureReason::RailError`] and is counted.
const REASONS: &[(&str, FailureReason)] = &[
    ("NOT_ENOUGH_FUNDS", FailureReason::InsufficientFunds),
    (
        "LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED",
        FailureReason::InsufficientFunds,
    ),
    ("APPROVAL_REJECTED", FailureReason::PayerDeclined),
    ("PAYMENT_NOT_APPROVED", FailureReason::PayerDeclined),
    ("EXPIRED", FailureReason::PayerTimeout),
    ("COULD_NOT_PERFORM_TRANSACTION", FailureReason::PayerTimeout),
    ("PAYER_NOT_FOUND", FailureReason::PayerNotFound),
    ("PAYER_LIMIT_REACHED", FailureReason::PayerLimitReached),
    (
        "SENDER_ACCOUNT_NOT_ACTIVE",
        FailureReason::PayerAccountBlocked,
    ),
    ("PAYEE_NOT_FOUND", FailureReason::PayeeAccountBlocked),
    (
        "PAYEE_NOT_ALLOWED_TO_RECEIVE",
        FailureReason::PayeeAccountBlocked,
    ),
    ("NOT_ALLOWED", FailureReason::RailConfiguration),
    (
        "NOT_ALLOWED_TARGET_ENVIRONMENT",
        FailureReason::RailConfiguration,
    ),
    (
        "INVALID_CALLBACK_URL_HOST",
        FailureReason::RailConfiguration,
    ),
    ("INVALID_CURRENCY", FailureReason::RailConfiguration),
    ("SERVICE_UNAVAILABLE", FailureReason::RailUnavailable),
    ("TRANSACTION_CANCELED", FailureReason::RailError),
    ("INTERNAL_PROCESSING_ERROR", FailureReason::RailError),
];

/// The body of an error; also a reason that is an object.
#[derive(Default, Deserialize)]
pub struct Problem {
    #[serde(default)]
    code: Member,
    #[serde(default)]
    message: Member,
}

/// A request to pay, as a query shows it.
#[derive(Deserialize)]
struct Payment {
    #[serde(default)]
    status: Member,
    #[serde(default)]
    amount: Member,
    #[serde(default)]
    currency: Member,
    #[serde(default, rename = "externalId")]
    external_id: Member,
    #[serde(default)]
    reason: Member,
}

/// The answer to the question whether a wallet is active.
#[derive(Deserialize)]
struct Active {
    result: bool,
}

impl Problem {
    /// From the `reason` of a failed payment: an object in the schema, a string in practice.
    pub fn from_reason(reason: Member) -> Self {
        reason.object().unwrap_or_else(|| Self {
            code: reason,
            message: Member::default(),
        })
    }

    pub fn code(&self) -> String {
        self.code.code()
    }

    pub fn words(&self) -> String {
        let message = self.message.text().unwrap_or_default();
        format!("{} {message}", self.code.code()).trim().to_owned()
    }
}

/// Whether a payer's wallet is there. An empty answer says nothing.
pub fn wallet(reply: &Reply) -> RailAnswer<WalletOutcome> {
    let problem = || reply.object::<Problem>().unwrap_or_default();
    let outcome = match (reply.status.as_u16(), reply.object::<Active>()) {
        (200, Some(Active { result: true })) => WalletOutcome::Active,
        (200, Some(Active { result: false })) => WalletOutcome::NotActive,
        (404, _) if problem().code() == "RESOURCE_NOT_FOUND" => WalletOutcome::NotActive,
        (401 | 403, _) if reply.is_trusted() => {
            misconfigured(RailName::Momo, "wallet");
            WalletOutcome::Unknown
        }
        _ => WalletOutcome::Unknown,
    };
    RailAnswer {
        outcome,
        rail_text: reply.describe(""),
    }
}

/// The answer to a request to pay.
pub fn requested(reply: &Reply) -> RailAnswer<RequestOutcome> {
    let problem: Option<Problem> = reply.object();
    let code = problem.as_ref().map(|problem| problem.code.code());
    let outcome = match (reply.status.as_u16(), code.as_deref()) {
        (202, _) if reply.is_trusted() => RequestOutcome::Accepted { instruction: None },
        (401, _) if reply.is_unauthorized() => {
            RequestOutcome::Refused(FailureReason::RailConfiguration)
        }
        (400 | 409, Some("RESOURCE_ALREADY_EXIST")) => RequestOutcome::AlreadyKnown,
        // What became of the payment is not known.
        (400, Some("INTERNAL_PROCESSING_ERROR")) => RequestOutcome::Unknown,
        (400, Some(code)) => RequestOutcome::Refused(reason_of(code)),
        (500, Some(code)) if find_reason(code) == Some(FailureReason::RailConfiguration) => {
            RequestOutcome::Refused(FailureReason::RailConfiguration)
        }
        (503, Some("SERVICE_UNAVAILABLE")) => {
            RequestOutcome::Refused(FailureReason::RailUnavailable)
        }
        _ => RequestOutcome::Unknown,
    };
    let words = problem.unwrap_or_default().words();
    let rail_text = reply.describe(&words);
    RailAnswer { outcome, rail_text }
}

/// The answer to a query.
pub fn found(reply: &Reply, reference: RailReference) -> RailAnswer<QueryOutcome> {
    if let (200, Some(payment)) = (reply.status.as_u16(), reply.object()) {
        return found_payment(reply, payment, reference);
    }
    let problem: Problem = reply.object().unwrap_or_default();
    let outcome = match (reply.status.as_u16(), problem.code.code().as_str()) {
        (404, "RESOURCE_NOT_FOUND" | "TRANSACTION_NOT_FOUND") => QueryOutcome::ReferenceUnknown,
        (401, _) if reply.is_unauthorized() => {
            misconfigured(RailName::Momo, "query");
            QueryOutcome::Unknown
        }
        _ => QueryOutcome::Unknown,
    };
    let rail_text = reply.describe(&problem.words());
    RailAnswer { outcome, rail_text }
}

fn found_payment(
    reply: &Reply,
    payment: Payment,
    reference: RailReference,
) -> RailAnswer<QueryOutcome> {
    let status = payment.status.code();
    let external_id = payment.external_id.text();
    let is_anothers = external_id.is_some_and(|id| id != reference.to_string());
    let reason = Problem::from_reason(payment.reason);
    let outcome = match status.as_str() {
        "PENDING" => QueryOutcome::Pending,
        "SUCCESSFUL" => QueryOutcome::Succeeded {
            rail_reference: payment.external_id.text().unwrap_or_default(),
            amount: payment.amount.major_units(&payment.currency),
            // MTN bills its fees separately.
            fee: None,
        },
        "FAILED" if is_anothers => {
            tracing::error!(%reference, "MTN tells the end of another payment");
            QueryOutcome::Unknown
        }
        "FAILED" => QueryOutcome::Failed(reason_of(&reason.code.code())),
        _ => QueryOutcome::Unknown,
    };
    let words = format!("{status} {}", reason.words());
    let rail_text = reply.describe(words.trim());
    RailAnswer { outcome, rail_text }
}

fn reason_of(code: &str) -> FailureReason {
    find_reason(code).unwrap_or_else(|| unmapped(RailName::Momo))
}

fn find_reason(code: &str) -> Option<FailureReason> {
    let known = REASONS.iter().find(|(known, _)| *known == code);
    known.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use chassis::money::{Currency, Money};

    use super::*;

    const ACCEPTED: RequestOutcome = RequestOutcome::Accepted { instruction: None };

    fn refused(reason: FailureReason) -> RequestOutcome {
        RequestOutcome::Refused(reason)
    }

    fn problem(status: u16, code: &str) -> Reply {
        Reply::json(
            status,
            &format!(r#"{{"code":"{code}","message":"as they say"}}"#),
        )
    }

    #[test]
    fn only_a_clear_answer_tells_whether_a_wallet_is_there() {
        let active = Reply::json(200, r#"{"result":true}"#);
        assert_eq!(wallet(&active).outcome, WalletOutcome::Active);
        let not_active = [
            Reply::json(200, r#"{"result":false}"#),
            problem(404, "RESOURCE_NOT_FOUND"),
        ];
        for reply in not_active {
            assert_eq!(
                wallet(&reply).outcome,
                WalletOutcome::NotActive,
                "{reply:?}"
            );
        }
        for reply in [
            Reply::empty(200),
            Reply::html(200),
            Reply::json(200, r#"{"result":"true"}"#),
            Reply::json(202, r#"{"result":true}"#),
            Reply::empty(404),
            Reply::html(404),
            problem(404, "NOT_FOUND"),
            problem(401, "ACCESS_DENIED"),
            problem(500, "INTERNAL_PROCESSING_ERROR"),
        ] {
            assert_eq!(wallet(&reply).outcome, WalletOutcome::Unknown, "{reply:?}");
        }
    }

    #[test]
    fn a_request_is_accepted_by_202_alone() {
        assert_eq!(requested(&Reply::empty(202)).outcome, ACCEPTED);
        assert_eq!(requested(&Reply::json(202, "{}")).outcome, ACCEPTED);
        for reply in [
            Reply::html(202),
            Reply::json(202, "<html>"),
            Reply::empty(200),
        ] {
            assert_eq!(
                requested(&reply).outcome,
                RequestOutcome::Unknown,
                "{reply:?}"
            );
        }
    }

    #[test]
    fn every_documented_code_of_a_400_is_its_reason() {
        for (code, reason) in [
            ("PAYER_NOT_FOUND", FailureReason::PayerNotFound),
            ("payer_not_found", FailureReason::PayerNotFound),
            ("Payer not found", FailureReason::PayerNotFound),
            ("NOT_ENOUGH_FUNDS", FailureReason::InsufficientFunds),
            (
                "LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED",
                FailureReason::InsufficientFunds,
            ),
            ("APPROVAL_REJECTED", FailureReason::PayerDeclined),
            ("PAYMENT_NOT_APPROVED", FailureReason::PayerDeclined),
            ("EXPIRED", FailureReason::PayerTimeout),
            ("COULD_NOT_PERFORM_TRANSACTION", FailureReason::PayerTimeout),
            ("PAYER_LIMIT_REACHED", FailureReason::PayerLimitReached),
            (
                "SENDER_ACCOUNT_NOT_ACTIVE",
                FailureReason::PayerAccountBlocked,
            ),
            ("PAYEE_NOT_FOUND", FailureReason::PayeeAccountBlocked),
            (
                "PAYEE_NOT_ALLOWED_TO_RECEIVE",
                FailureReason::PayeeAccountBlocked,
            ),
            ("NOT_ALLOWED", FailureReason::RailConfiguration),
            (
                "NOT_ALLOWED_TARGET_ENVIRONMENT",
                FailureReason::RailConfiguration,
            ),
            (
                "INVALID_CALLBACK_URL_HOST",
                FailureReason::RailConfiguration,
            ),
            ("INVALID_CURRENCY", FailureReason::RailConfiguration),
            ("SERVICE_UNAVAILABLE", FailureReason::RailUnavailable),
            ("TRANSACTION_CANCELED", FailureReason::RailError),
            ("PAYEE_LIMIT_REACHED", FailureReason::RailError),
            ("RESOURCE_NOT_FOUND", FailureReason::RailError),
            ("VALIDATION_ERROR", FailureReason::RailError),
            ("SOMETHING_NEW", FailureReason::RailError),
            ("", FailureReason::RailError),
        ] {
            assert_eq!(
                requested(&problem(400, code)).outcome,
                refused(reason),
                "{code}"
            );
        }
        let other = Reply::json(400, r#"{"statusCode":400,"message":"bad request"}"#);
        assert_eq!(requested(&other).outcome, refused(FailureReason::RailError));
    }

    #[test]
    fn a_duplicate_reference_is_no_failure_but_known_to_the_rail() {
        for status in [400, 409] {
            let reply = problem(status, "RESOURCE_ALREADY_EXIST");
            let outcome = requested(&reply).outcome;
            assert_eq!(outcome, RequestOutcome::AlreadyKnown, "{status}");
        }
        // These are undocumented.
        let elsewhere = problem(500, "RESOURCE_ALREADY_EXIST");
        assert_eq!(requested(&elsewhere).outcome, RequestOutcome::Unknown);
        assert_eq!(
            requested(&Reply::empty(409)).outcome,
            RequestOutcome::Unknown
        );
    }

    #[test]
    fn our_own_mistakes_are_refusals_even_as_a_500() {
        for code in [
            "NOT_ALLOWED",
            "NOT_ALLOWED_TARGET_ENVIRONMENT",
            "INVALID_CALLBACK_URL_HOST",
            "INVALID_CURRENCY",
            "invalid currency",
        ] {
            let outcome = requested(&problem(500, code)).outcome;
            assert_eq!(outcome, refused(FailureReason::RailConfiguration), "{code}");
            let outcome = requested(&problem(503, code)).outcome;
            assert_eq!(outcome, RequestOutcome::Unknown, "{code}");
        }
    }

    #[test]
    fn only_the_documented_503_is_a_refusal() {
        let unavailable = problem(503, "SERVICE_UNAVAILABLE");
        assert_eq!(
            requested(&unavailable).outcome,
            refused(FailureReason::RailUnavailable)
        );
        for reply in [
            problem(503, "OTHER"),
            problem(500, "SERVICE_UNAVAILABLE"),
            problem(502, "SERVICE_UNAVAILABLE"),
            Reply::empty(503),
            Reply::html(503),
        ] {
            assert_eq!(
                requested(&reply).outcome,
                RequestOutcome::Unknown,
                "{reply:?}"
            );
        }
    }

    #[test]
    fn a_dead_token_is_a_refusal_unless_a_firewall_says_so() {
        let configuration = refused(FailureReason::RailConfiguration);
        assert_eq!(requested(&Reply::empty(401)).outcome, configuration);
        let keyed = r#"{"statusCode":401,"message":"Access denied"}"#;
        assert_eq!(requested(&Reply::json(401, keyed)).outcome, configuration);
        assert_eq!(
            requested(&Reply::html(401)).outcome,
            RequestOutcome::Unknown
        );
    }

    #[test]
    fn everything_else_is_unknown() {
        for reply in [
            problem(500, "INTERNAL_PROCESSING_ERROR"),
            problem(400, "INTERNAL_PROCESSING_ERROR"),
            problem(500, "NOT_ENOUGH_FUNDS"),
            problem(403, "NOT_ALLOWED"),
            problem(404, "RESOURCE_NOT_FOUND"),
            Reply::html(200),
            Reply::html(400),
            Reply::json(400, "not json"),
            Reply::json(400, r#""PAYER_NOT_FOUND""#),
            Reply::json(400, r#"["PAYER_NOT_FOUND"]"#),
            Reply::json(400, r#"{"code":"PAYER_NOT_FOUND","code":"EXPIRED"}"#),
            Reply::empty(400),
            Reply::empty(302),
            Reply::empty(429),
            Reply::empty(500),
            Reply::html(502),
            Reply::json(200, r#"{"status":"SUCCESSFUL"}"#),
        ] {
            assert_eq!(
                requested(&reply).outcome,
                RequestOutcome::Unknown,
                "{reply:?}"
            );
        }
    }

    fn query(body: &str) -> QueryOutcome {
        found(&Reply::json(200, body), RailReference::new()).outcome
    }

    #[test]
    fn a_successful_payment_carries_their_reference_and_amount() {
        let succeeded = |reference: &str, amount| QueryOutcome::Succeeded {
            rail_reference: reference.to_owned(),
            amount,
            fee: None,
        };
        let cedis = |minor| Some(Money::new(minor, Currency::GHS));
        for (body, expected) in [
            (
                r#"{"amount":"25.50","currency":"GHS","financialTransactionId":"23503452","externalId":"ab-1",
                    "payer":{"partyIdType":"MSISDN","partyId":"233241234567"},"status":"SUCCESSFUL"}"#,
                succeeded("ab-1", cedis(2550)),
            ),
            (
                r#"{"amount":25.5,"currency":"GHS","externalId":71,"status":"successful","reason":null}"#,
                succeeded("71", cedis(2550)),
            ),
            (
                r#"{"amount":"25.501","currency":"GHS","externalId":"ab-1","status":"SUCCESSFUL"}"#,
                succeeded("ab-1", None),
            ),
            (
                r#"{"amount":"25.50","externalId":"ab-1","status":"SUCCESSFUL"}"#,
                succeeded("ab-1", None),
            ),
            (r#"{"status":"SUCCESSFUL"}"#, succeeded("", None)),
        ] {
            assert_eq!(query(body), expected, "{body}");
        }
    }

    #[test]
    fn a_failed_payment_tells_its_reason_as_text_or_object() {
        for (reason, expected) in [
            (r#""APPROVAL_REJECTED""#, FailureReason::PayerDeclined),
            (r#""approval_rejected""#, FailureReason::PayerDeclined),
            (
                r#"{"code":"APPROVAL_REJECTED","message":"no"}"#,
                FailureReason::PayerDeclined,
            ),
            (r#"{"code":"expired"}"#, FailureReason::PayerTimeout),
            (
                r#""COULD_NOT_PERFORM_TRANSACTION""#,
                FailureReason::PayerTimeout,
            ),
            (r#""INTERNAL_PROCESSING_ERROR""#, FailureReason::RailError),
            (r#""SERVICE_UNAVAILABLE""#, FailureReason::RailUnavailable),
            (r#""NOT_ALLOWED""#, FailureReason::RailConfiguration),
            (r#""SOMETHING_NEW""#, FailureReason::RailError),
            ("{}", FailureReason::RailError),
            ("null", FailureReason::RailError),
            ("[1]", FailureReason::RailError),
        ] {
            let body = format!(r#"{{"status":"FAILED","reason":{reason}}}"#);
            assert_eq!(query(&body), QueryOutcome::Failed(expected), "{reason}");
        }
        assert_eq!(
            query(r#"{"status":"Failed"}"#),
            QueryOutcome::Failed(FailureReason::RailError)
        );
    }

    #[test]
    fn a_query_believes_nothing_else() {
        assert_eq!(query(r#"{"status":"PENDING"}"#), QueryOutcome::Pending);
        assert_eq!(query(r#"{"status":"pending"}"#), QueryOutcome::Pending);
        let unknown_reference =
            found(&problem(404, "RESOURCE_NOT_FOUND"), RailReference::new()).outcome;
        assert_eq!(unknown_reference, QueryOutcome::ReferenceUnknown);
        for reply in [
            Reply::json(200, r#"{"status":"CREATED"}"#),
            Reply::json(200, r#"{"status":["FAILED"]}"#),
            Reply::json(200, r#"{"status":"FAILED","status":"PENDING"}"#),
            Reply::json(200, r#"{"status":"FAILED""#),
            Reply::json(200, "{}"),
            Reply::html(200),
            Reply::empty(200),
            Reply::empty(202),
            Reply::html(404),
            Reply::empty(404),
            Reply::json(404, r#"{"statusCode":404,"message":"Resource not found"}"#),
            problem(400, "RESOURCE_NOT_FOUND"),
            problem(401, "x"),
            problem(500, "INTERNAL_PROCESSING_ERROR"),
            problem(503, "SERVICE_UNAVAILABLE"),
        ] {
            let found = found(&reply, RailReference::new());
            assert_eq!(found.outcome, QueryOutcome::Unknown, "{reply:?}");
        }
    }

    /// What a cache or a proxy mixed up ends no payment of ours.
    #[test]
    fn a_failure_of_another_payment_is_not_believed() {
        let ours = RailReference::new();
        let failed = |reference: RailReference| {
            let body = format!(r#"{{"status":"FAILED","externalId":"{reference}"}}"#);
            found(&Reply::json(200, &body), ours).outcome
        };
        assert!(matches!(failed(ours), QueryOutcome::Failed(_)));
        assert_eq!(failed(RailReference::new()), QueryOutcome::Unknown);
    }

    #[test]
    fn operators_read_the_rails_own_words() {
        let text = |answer: RailAnswer<RequestOutcome>| answer.rail_text.unwrap_or_default();
        let refused = requested(&problem(400, "PAYER_NOT_FOUND"));
        assert_eq!(text(refused), "HTTP 400 PAYER_NOT_FOUND as they say");
        assert_eq!(text(requested(&Reply::html(502))), "HTTP 502 not JSON");
        assert_eq!(text(requested(&Reply::empty(202))), "HTTP 202");
        let failed = found(
            &Reply::json(200, r#"{"status":"FAILED","reason":"EXPIRED"}"#),
            RailReference::new(),
        );
        assert_eq!(failed.rail_text.as_deref(), Some("HTTP 200 FAILED EXPIRED"));
    }
}
