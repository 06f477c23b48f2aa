use chassis::money::{Currency, Money};

use super::*;

fn problem(status: u16, code: &str) -> Reply {
    let body = format!(r#"{{"code":"{code}","message":"as they say"}}"#);
    Reply::json(status, &body)
}

fn ended(status: &str, reason: &str) -> TransferOutcome {
    let reference = RailReference::new();
    ended_as(reference, reference, status, reason)
}

/// What is said of `reference` if the answer calls it `external_id`.
fn ended_as(
    external_id: RailReference,
    reference: RailReference,
    status: &str,
    reason: &str,
) -> TransferOutcome {
    let body = format!(
        r#"{{"amount":"25.50","currency":"GHS","externalId":"{external_id}","status":"{status}","reason":{reason}}}"#
    );
    found(&Reply::json(200, &body), reference).outcome
}

fn cedis(minor: i64) -> Money {
    Money::new(minor, Currency::GHS)
}

#[test]
fn a_transfer_is_refused_only_where_mtn_documents_it() {
    use FailureReason as Why;
    for (reply, outcome) in [
        (Reply::empty(202), SendOutcome::Accepted),
        (Reply::empty(400), SendOutcome::Refused(Why::RailError)),
        (
            problem(400, "PAYEE_NOT_FOUND"),
            SendOutcome::Refused(Why::PayeeNotFound),
        ),
        (
            problem(400, "PAYEE_NOT_ALLOWED_TO_RECEIVE"),
            SendOutcome::Refused(Why::PayeeAccountBlocked),
        ),
        (
            problem(400, "PAYEE_LIMIT_REACHED"),
            SendOutcome::Refused(Why::PayeeLimitReached),
        ),
        (problem(400, "NOT_ENOUGH_FUNDS"), SendOutcome::FloatEmpty),
        (
            problem(400, "INVALID_CURRENCY"),
            SendOutcome::NotSent(Why::RailConfiguration),
        ),
        (
            problem(401, "X"),
            SendOutcome::NotSent(Why::RailConfiguration),
        ),
        (
            problem(403, "X"),
            SendOutcome::NotSent(Why::RailConfiguration),
        ),
        (
            problem(500, "NOT_ALLOWED"),
            SendOutcome::NotSent(Why::RailConfiguration),
        ),
        (
            problem(503, "SERVICE_UNAVAILABLE"),
            SendOutcome::NotSent(Why::RailUnavailable),
        ),
        (problem(429, ""), SendOutcome::Unknown),
        (
            problem(409, "RESOURCE_ALREADY_EXIST"),
            SendOutcome::AlreadyKnown,
        ),
    ] {
        assert_eq!(sent(&reply).outcome, outcome, "{reply:?}");
    }
    for reply in [
        Reply::empty(200),
        Reply::html(202),
        Reply::html(400),
        Reply::html(403),
        problem(409, "OTHER"),
        problem(500, "INTERNAL_PROCESSING_ERROR"),
        problem(400, "INTERNAL_PROCESSING_ERROR"),
        Reply::empty(500),
        Reply::html(503),
        problem(503, "OTHER"),
        Reply::empty(504),
    ] {
        assert_eq!(sent(&reply).outcome, SendOutcome::Unknown, "{reply:?}");
    }
}

#[test]
fn a_query_tells_what_became_of_a_transfer() {
    use FailureReason as Why;
    assert_eq!(ended("PENDING", "null"), TransferOutcome::Pending);
    let reference = RailReference::new();
    let succeeded = TransferOutcome::Succeeded {
        rail_reference: reference.to_string(),
        amount: Some(cedis(2550)),
        fee: None,
    };
    let success = ended_as(reference, reference, "SUCCESSFUL", "null");
    assert_eq!(success, succeeded);
    let of_another = ended_as(RailReference::new(), reference, "FAILED", "null");
    assert_eq!(of_another, TransferOutcome::Unknown);
    for (reason, why) in [
        ("PAYEE_NOT_FOUND", Why::PayeeNotFound),
        ("PAYEE_NOT_ALLOWED_TO_RECEIVE", Why::PayeeAccountBlocked),
        ("PAYEE_LIMIT_REACHED", Why::PayeeLimitReached),
        (AMBIGUOUS, Why::PayeeLimitReached),
        ("EXPIRED", Why::RailError),
        ("COULD_NOT_PERFORM_TRANSACTION", Why::RailError),
        ("INTERNAL_PROCESSING_ERROR", Why::RailError),
        ("SOMETHING_NEW", Why::RailError),
    ] {
        let failed = TransferOutcome::Failed(why);
        assert_eq!(
            ended("FAILED", &format!(r#""{reason}""#)),
            failed,
            "{reason}"
        );
        let object = format!(r#"{{"code":"{reason}","message":"x"}}"#);
        assert_eq!(ended("FAILED", &object), failed, "{reason}");
    }
    for reason in FLOAT {
        let outcome = ended("FAILED", &format!(r#""{reason}""#));
        assert_eq!(outcome, TransferOutcome::FloatEmpty, "{reason}");
    }
    assert_eq!(ended("ELSE", "null"), TransferOutcome::Unknown);
    let unknown = found(&problem(404, "RESOURCE_NOT_FOUND"), reference).outcome;
    assert_eq!(unknown, TransferOutcome::ReferenceUnknown);
    for reply in [
        Reply::html(404),
        Reply::empty(404),
        problem(400, "X"),
        Reply::html(200),
    ] {
        let outcome = found(&reply, reference).outcome;
        assert_eq!(outcome, TransferOutcome::Unknown, "{reply:?}");
    }
}

#[test]
fn a_balance_is_read_exactly_or_not_at_all() {
    let said = |body: &str| float(&Reply::json(200, body)).outcome;
    let held = FloatOutcome::Held(cedis(100_050));
    assert_eq!(
        said(r#"{"availableBalance":"1000.50","currency":"GHS"}"#),
        held
    );
    assert_eq!(
        said(r#"{"availableBalance":1000.50,"currency":"GHS"}"#),
        held
    );
    for body in [
        r#"{"availableBalance":"1.005","currency":"GHS"}"#,
        "{}",
        "[]",
    ] {
        assert_eq!(said(body), FloatOutcome::Unknown, "{body}");
    }
}

#[test]
fn only_a_clear_answer_says_whose_wallet_it_is() {
    let says = |status, body| active(&Reply::json(status, body)).outcome;
    assert_eq!(says(200, r#"{"result":true}"#), HolderOutcome::Active);
    assert_eq!(says(200, r#"{"result":false}"#), HolderOutcome::NotThere);
    assert_eq!(active(&Reply::empty(200)).outcome, HolderOutcome::Unknown);
    assert_eq!(active(&Reply::html(404)).outcome, HolderOutcome::Unknown);
    let name = |body| named(&Reply::json(200, body)).outcome;
    let ama = HolderOutcome::Named("Ama Mensah".to_owned());
    assert_eq!(
        name(r#"{"name":"Ama Mensah","birthdate":"1990-01-01"}"#),
        ama
    );
    assert_eq!(name(r#"{"given_name":"Ama","family_name":"Mensah"}"#), ama);
    assert_eq!(name("{}"), HolderOutcome::Active);
}
