//! Every documented answer, and what it means.

use chassis::{
    ids::RailReference,
    money::{Currency, Money},
};

use super::*;

/// A 200 with `data` as given.
fn reply(data: &str) -> Reply {
    Reply::json(
        200,
        &format!(r#"{{"status":true,"message":"Charge attempted","data":{data}}}"#),
    )
}

/// A 400, or another status, with `type`, `code` and `message`.
fn problem(status: u16, kind: &str, code: &str, message: &str) -> Reply {
    let body = format!(
        r#"{{"status":false,"message":"{message}","meta":{{"nextStep":"x"}},"type":"{kind}","code":"{code}"}}"#
    );
    Reply::json(status, &body)
}

fn with_status(status: &str) -> Reply {
    reply(&format!(r#"{{"status":"{status}"}}"#))
}

/// Replies from which nothing follows, whatever was asked.
fn unclear() -> Vec<Reply> {
    vec![
        reply("null"),
        reply("[]"),
        reply("{}"),
        with_status("timeout"),
        with_status(""),
        reply(r#"{"status":true}"#),
        reply(r#"{"status":"failed","status":"success"}"#),
        Reply::json(200, r#"{"status":"success"}"#),
        Reply::json(200, r#"[{"data":{"status":"success"}}]"#),
        Reply::json(200, r#"{"data":{"status":"success"}"#),
        Reply::json(200, "true"),
        Reply::empty(200),
        Reply::html(200),
        Reply::html(400),
        Reply::empty(400),
        Reply::html(401),
        Reply::empty(302),
        problem(403, "validation_error", "x", "Forbidden"),
        problem(404, "validation_error", "x", "Not found"),
        problem(429, "api_error", "rate_limited", "Slow down"),
        problem(500, "api_error", "unknown", "Something went wrong"),
        problem(503, "processor_error", "x", "declined"),
        Reply::html(502),
        Reply::empty(504),
    ]
}

#[test]
fn a_charge_is_what_its_status_says() {
    let dial = || Some("dial *110# to generate a voucher code".to_owned());
    let said = |status: &str| {
        reply(&format!(
            r#"{{"status":"{status}","display_text":"dial *110# to generate a voucher code"}}"#
        ))
    };
    let refused = |reason| RequestOutcome::Refused(reason);
    for (reply, expected) in [
        (
            said("pay_offline"),
            RequestOutcome::Accepted {
                instruction: dial(),
            },
        ),
        (
            said("pending"),
            RequestOutcome::Accepted {
                instruction: dial(),
            },
        ),
        (
            said("PENDING"),
            RequestOutcome::Accepted {
                instruction: dial(),
            },
        ),
        (
            with_status("ongoing"),
            RequestOutcome::Accepted { instruction: None },
        ),
        (said("success"), RequestOutcome::Succeeded),
        (
            said("send_otp"),
            RequestOutcome::OtpRequired {
                instruction: dial(),
            },
        ),
        (said("send_pin"), refused(FailureReason::RailError)),
        (said("send_phone"), refused(FailureReason::RailError)),
        (said("send_birthday"), refused(FailureReason::RailError)),
        (said("send_address"), refused(FailureReason::RailError)),
        (said("open_url"), refused(FailureReason::RailError)),
        (said("abandoned"), RequestOutcome::Unknown),
        (said("reversed"), RequestOutcome::Unknown),
    ] {
        assert_eq!(requested(&reply).outcome, expected, "{reply:?}");
    }
    for reply in unclear() {
        assert_eq!(
            requested(&reply).outcome,
            RequestOutcome::Unknown,
            "{reply:?}"
        );
    }
}

#[test]
fn a_failure_is_the_first_rule_that_its_words_match() {
    for (words, expected) in [
        (
            r#""message":"Insufficient funds""#,
            FailureReason::InsufficientFunds,
        ),
        (
            r#""message":"INSUFFICIENT balance""#,
            FailureReason::InsufficientFunds,
        ),
        (
            r#""gateway_response":"LOW_BALANCE_OR_PAYEE_LIMIT_REACHED_OR_NOT_ALLOWED""#,
            FailureReason::InsufficientFunds,
        ),
        (
            r#""message":"Declined","gateway_response":"Insufficient funds""#,
            FailureReason::InsufficientFunds,
        ),
        (
            r#""message":"Transaction declined""#,
            FailureReason::PayerDeclined,
        ),
        (
            r#""message":"The request timed out""#,
            FailureReason::PayerTimeout,
        ),
        (
            r#""message":"Wallet not found""#,
            FailureReason::PayerNotFound,
        ),
        (
            r#""gateway_response":"Daily limit exceeded""#,
            FailureReason::PayerLimitReached,
        ),
        (
            r#""message":"Mercury is in retrograde""#,
            FailureReason::RailError,
        ),
        (r#""message":null"#, FailureReason::RailError),
        (r#""message":{"text":"declined"}"#, FailureReason::RailError),
    ] {
        let reply = reply(&format!(r#"{{"status":"failed",{words}}}"#));
        assert_eq!(
            requested(&reply).outcome,
            RequestOutcome::Refused(expected),
            "{words}"
        );
        let outcome = otp_submitted(&reply).outcome;
        assert_eq!(outcome, OtpOutcome::Failed(expected), "{words}");
        assert_eq!(ask(&reply), QueryOutcome::Failed(expected), "{words}");
    }
}

#[test]
fn a_400_is_a_refusal_by_its_type_or_words() {
    for (kind, message, expected) in [
        (
            "processor_error",
            "The network is down",
            FailureReason::RailUnavailable,
        ),
        (
            "processor_error",
            "declined",
            FailureReason::RailUnavailable,
        ),
        (
            "api_error",
            "Merchant is not live",
            FailureReason::RailConfiguration,
        ),
        (
            "validation_error",
            "Mobile number not found",
            FailureReason::PayerNotFound,
        ),
        (
            "validation_error",
            "Amount exceeds limit",
            FailureReason::PayerLimitReached,
        ),
        (
            "validation_error",
            "Invalid amount",
            FailureReason::RailError,
        ),
        ("", "", FailureReason::RailError),
    ] {
        let outcome = requested(&problem(400, kind, "x", message)).outcome;
        assert_eq!(
            outcome,
            RequestOutcome::Refused(expected),
            "{kind} {message}"
        );
    }
    let declined = r#"{"status":false,"message":"Charge attempted",
        "data":{"status":"failed","message":"Declined"}}"#;
    let outcome = requested(&Reply::json(400, declined)).outcome;
    assert_eq!(
        outcome,
        RequestOutcome::Refused(FailureReason::PayerDeclined)
    );
}

#[test]
fn a_duplicate_reference_is_no_failure_but_known_to_the_rail() {
    for reply in [
        problem(
            400,
            "validation_error",
            "",
            "Duplicate Transaction Reference",
        ),
        problem(
            400,
            "validation_error",
            "",
            "duplicate transaction reference.",
        ),
        problem(400, "api_error", "duplicate_reference", "No"),
    ] {
        let outcome = requested(&reply).outcome;
        assert_eq!(outcome, RequestOutcome::AlreadyKnown, "{reply:?}");
    }
    // This one is undocumented.
    let text = "Duplicate Transaction Reference";
    let elsewhere = problem(409, "validation_error", "", text);
    assert_eq!(requested(&elsewhere).outcome, RequestOutcome::Unknown);
}

#[test]
fn a_400_about_a_transaction_that_lives_or_may_live_is_no_failure() {
    let alive = [
        r#""pending""#,
        r#""success""#,
        r#""send_otp""#,
        r#""reversed""#,
    ];
    let unclear = [r#""queued""#, r#""""#, "7", "true", "{}"];
    for status in alive.into_iter().chain(unclear) {
        let body = format!(r#"{{"message":"declined","data":{{"status":{status}}}}}"#);
        let outcome = requested(&Reply::json(400, &body)).outcome;
        assert_eq!(outcome, RequestOutcome::Unknown, "{status}");
    }
}

#[test]
fn a_refused_key_means_that_nothing_was_done() {
    let reply = problem(401, "validation_error", "invalid_Key", "Invalid key");
    let configuration = RequestOutcome::Refused(FailureReason::RailConfiguration);
    assert_eq!(requested(&reply).outcome, configuration);
    assert_eq!(requested(&Reply::empty(401)).outcome, configuration);
    assert_eq!(otp_submitted(&reply).outcome, OtpOutcome::NotSent);
    assert_eq!(ask(&reply), QueryOutcome::Unknown);
}

#[test]
fn a_submitted_code_is_what_the_status_says() {
    let accepted = OtpOutcome::Accepted { instruction: None };
    for (reply, expected) in [
        (with_status("success"), OtpOutcome::Succeeded),
        (with_status("pending"), accepted.clone()),
        (with_status("pay_offline"), accepted),
        (
            reply(r#"{"status":"send_otp","display_text":"Wrong code, or it has expired"}"#),
            OtpOutcome::WrongCode {
                instruction: Some("Wrong code, or it has expired".to_owned()),
            },
        ),
        (
            reply(r#"{"status":"failed","message":"The code has Expired"}"#),
            OtpOutcome::Expired,
        ),
        (
            reply(r#"{"status":"failed","gateway_response":"Voucher expired"}"#),
            OtpOutcome::Expired,
        ),
        (
            with_status("open_url"),
            OtpOutcome::Failed(FailureReason::RailError),
        ),
        (
            with_status("send_pin"),
            OtpOutcome::Failed(FailureReason::RailError),
        ),
        (with_status("abandoned"), OtpOutcome::Unknown),
        (with_status("reversed"), OtpOutcome::Unknown),
        (
            problem(
                400,
                "validation_error",
                "",
                "Transaction reference is invalid",
            ),
            OtpOutcome::Unknown,
        ),
        (
            problem(400, "validation_error", "", "The code has expired"),
            OtpOutcome::Unknown,
        ),
    ] {
        assert_eq!(otp_submitted(&reply).outcome, expected, "{reply:?}");
    }
    for reply in unclear() {
        assert_eq!(
            otp_submitted(&reply).outcome,
            OtpOutcome::Unknown,
            "{reply:?}"
        );
    }
}

fn ask(reply: &Reply) -> QueryOutcome {
    let query = Query {
        rail_reference: RailReference::new(),
        may_want_code: false,
    };
    found(reply, &query).outcome
}

#[test]
fn a_query_is_what_the_status_says() {
    for (status, expected) in [
        ("pending", QueryOutcome::Pending),
        ("ongoing", QueryOutcome::Pending),
        ("pay_offline", QueryOutcome::Pending),
        ("send_pin", QueryOutcome::Pending),
        ("send_phone", QueryOutcome::Pending),
        ("send_birthday", QueryOutcome::Pending),
        ("send_address", QueryOutcome::Pending),
        ("open_url", QueryOutcome::Pending),
        ("send_otp", QueryOutcome::OtpRequired),
        ("abandoned", QueryOutcome::Abandoned { code_wanted: false }),
        ("reversed", QueryOutcome::Reversed),
        ("failed", QueryOutcome::Failed(FailureReason::RailError)),
    ] {
        assert_eq!(ask(&with_status(status)), expected, "{status}");
    }
    for reply in unclear() {
        assert_eq!(ask(&reply), QueryOutcome::Unknown, "{reply:?}");
    }
}

#[test]
fn a_success_carries_their_reference_and_amount() {
    let cedis = |minor| Some(Money::new(minor, Currency::GHS));
    for (data, reference, amount) in [
        (
            r#""reference":"ab-1","amount":2550,"currency":"GHS""#,
            "ab-1",
            cedis(2550),
        ),
        (
            r#""reference":"ab-1","amount":"2550","currency":"GHS""#,
            "ab-1",
            cedis(2550),
        ),
        (
            r#""reference":"ab-1","amount":25.5,"currency":"GHS""#,
            "ab-1",
            None,
        ),
        (
            r#""reference":"ab-1","amount":2550,"currency":"cowrie""#,
            "ab-1",
            None,
        ),
        (r#""reference":"ab-1","amount":2550"#, "ab-1", None),
        (r#""amount":2550,"currency":"GHS""#, "", cedis(2550)),
    ] {
        let reply = reply(&format!(r#"{{"status":"success",{data}}}"#));
        let expected = QueryOutcome::Succeeded {
            rail_reference: reference.to_owned(),
            amount,
            fee: None,
        };
        assert_eq!(ask(&reply), expected, "{data}");
    }
}

/// What a cache or a proxy mixed up ends no payment of ours.
#[test]
fn an_end_of_another_payment_is_not_believed() {
    let query = Query {
        rail_reference: RailReference::new(),
        may_want_code: false,
    };
    let told = |status: &str, reference: RailReference| {
        let told = reply(&format!(
            r#"{{"status":"{status}","reference":"{reference}"}}"#
        ));
        found(&told, &query).outcome
    };
    let (ours, anothers) = (query.rail_reference, RailReference::new());
    assert!(matches!(told("failed", ours), QueryOutcome::Failed(_)));
    assert_eq!(told("reversed", ours), QueryOutcome::Reversed);
    for status in ["failed", "reversed"] {
        assert_eq!(told(status, anothers), QueryOutcome::Unknown);
    }
}

#[test]
fn an_expired_code_is_found_where_the_reply_to_it_was_lost() {
    let expired = reply(r#"{"status":"failed","gateway_response":"The voucher code has expired"}"#);
    let query = Query {
        rail_reference: RailReference::new(),
        may_want_code: true,
    };
    let outcome = found(&expired, &query).outcome;
    assert_eq!(outcome, QueryOutcome::Failed(FailureReason::OtpExpired));
    let without_otp = ask(&expired);
    assert_eq!(without_otp, QueryOutcome::Failed(FailureReason::RailError));
}

#[test]
fn a_reference_is_unknown_only_by_its_code() {
    let code = "transaction_not_found";
    let text = "Transaction reference not found.";
    let unknown = problem(400, "validation_error", code, text);
    assert_eq!(ask(&unknown), QueryOutcome::ReferenceUnknown);
    for reply in [
        problem(400, "validation_error", "", text),
        problem(500, "api_error", code, text),
        Reply::html(404),
    ] {
        assert_eq!(ask(&reply), QueryOutcome::Unknown, "{reply:?}");
    }
}

#[test]
fn operators_read_the_rails_own_words() {
    let failed = reply(r#"{"status":"failed","message":"Declined","gateway_response":"No"}"#);
    assert_eq!(
        requested(&failed).rail_text.as_deref(),
        Some("HTTP 200 failed Declined No")
    );
    let refused = problem(400, "processor_error", "x9", "The network is down");
    assert_eq!(
        requested(&refused).rail_text.as_deref(),
        Some("HTTP 400 processor_error x9 The network is down")
    );
}
