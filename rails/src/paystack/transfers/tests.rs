use chassis::phone::Phone;

use super::*;

fn request() -> TransferRequest {
    TransferRequest {
        rail_reference: RailReference::new(),
        shown_id: "PO-0123456789".to_owned(),
        amount: Money::new(2550, Currency::GHS),
        destination: Destination::Wallet {
            provider: Provider::Telecel,
            phone: Phone::parse_ghana_mobile("0201234567").unwrap(),
            holder_name: None,
        },
        may_be_known: false,
        callback_token: "token".to_owned(),
    }
}

fn transfer(request: &TransferRequest, status: &str) -> String {
    let reference = request.rail_reference;
    format!(
        r#"{{"status":true,"message":"x","data":{{"reference":"{reference}","amount":2550,"currency":"GHS","status":"{status}","fee_charged":100}}}}"#
    )
}

#[test]
fn a_transfer_is_what_paystack_wants() {
    let request = request();
    let recipient = serde_json::to_value(Recipient::new(&request)).unwrap();
    let expected = serde_json::json!({
        "type": "mobile_money",
        "name": "PO-0123456789",
        "account_number": "0201234567",
        "bank_code": "VOD",
        "currency": "GHS",
    });
    assert_eq!(recipient, expected);
    let sent = serde_json::to_value(Transfer::new(&request, "RCP_1")).unwrap();
    let expected = serde_json::json!({
        "source": "balance",
        "amount": 2550,
        "currency": "GHS",
        "recipient": "RCP_1",
        "reference": request.rail_reference.to_string(),
        "reason": "PO-0123456789",
    });
    assert_eq!(sent, expected);
    let path = resolve_path(&request.destination);
    assert_eq!(
        path,
        "/bank/resolve?account_number=0201234567&bank_code=VOD"
    );
}

#[test]
fn the_first_reply_only_says_whether_it_was_taken() {
    let request = request();
    let says = |reply: &Reply| sent(reply, &request).outcome;
    for status in [
        "success", "pending", "otp", "received", "failed", "reversed",
    ] {
        let reply = Reply::json(200, &transfer(&request, status));
        assert_eq!(says(&reply), SendOutcome::Accepted, "{status}");
    }
    let duplicate = r#"{"status":false,"message":"Please provide a unique reference","code":"duplicate_transfer_reference"}"#;
    for status in [200, 400, 404] {
        let reply = Reply::json(status, duplicate);
        assert_eq!(says(&reply), SendOutcome::AlreadyKnown, "{status}");
    }
    let refusal = |message: &str, code: &str| {
        let body = format!(r#"{{"status":false,"message":"{message}","code":"{code}"}}"#);
        says(&Reply::json(400, &body))
    };
    let poor = "Your balance is not enough to fulfil this request";
    assert_eq!(refusal(poor, ""), SendOutcome::FloatEmpty);
    let starter = "You cannot initiate third party payouts as a starter business";
    let ours = SendOutcome::NotSent(FailureReason::RailConfiguration);
    assert_eq!(refusal(starter, ""), ours);
    let no_payee = SendOutcome::Refused(FailureReason::PayeeNotFound);
    assert_eq!(refusal("Recipient", "invalid_transfer_recipient"), no_payee);
    let limit = r#"{"status":false,"message":"Too many requests"}"#;
    for reply in [Reply::json(429, limit), Reply::html(429)] {
        assert_eq!(says(&reply), SendOutcome::Unknown, "{reply:?}");
    }
    let other = self::request();
    for reply in [
        Reply::json(200, &transfer(&request, "new_word")),
        Reply::json(200, &transfer(&other, "pending")),
        Reply::json(200, "{}"),
        Reply::html(200),
        Reply::html(400),
        // A proxy's word, after the request may have gone through.
        Reply::json(408, r#"{"error":"timeout"}"#),
        Reply::json(400, r#"{"status":"400","title":"Bad Request"}"#),
        Reply::empty(500),
        Reply::html(503),
    ] {
        assert_eq!(says(&reply), SendOutcome::Unknown, "{reply:?}");
    }
}

#[test]
fn a_query_tells_what_became_of_a_transfer() {
    let request = request();
    let reference = request.rail_reference;
    let amount = request.amount;
    let says = |status: &str| {
        let reply = Reply::json(200, &transfer(&request, status));
        found(&reply, reference, amount).outcome
    };
    let fee = Some(Money::new(100, Currency::GHS));
    let succeeded = TransferOutcome::Succeeded {
        rail_reference: reference.to_string(),
        amount: Some(request.amount),
        fee,
    };
    assert_eq!(says("success"), succeeded);
    for status in ["pending", "otp", "received"] {
        assert_eq!(says(status), TransferOutcome::Pending, "{status}");
    }
    assert_eq!(
        says("failed"),
        TransferOutcome::Failed(FailureReason::RailError)
    );
    assert_eq!(says("reversed"), TransferOutcome::Reversed { fee });
    for status in ["abandoned", "blocked", "rejected"] {
        let failed = TransferOutcome::Failed(FailureReason::RailConfiguration);
        assert_eq!(says(status), failed, "{status}");
    }
    assert_eq!(says("new_word"), TransferOutcome::Unknown);
    let none = Reply::json(404, r#"{"status":false,"message":"Transfer not found"}"#);
    assert_eq!(
        found(&none, reference, amount).outcome,
        TransferOutcome::ReferenceUnknown
    );
    for reply in [
        Reply::html(404),
        Reply::json(404, r#"{"error":"no such route"}"#),
    ] {
        assert_eq!(
            found(&reply, reference, amount).outcome,
            TransferOutcome::Unknown
        );
    }
}

#[test]
fn the_end_of_another_transfer_is_not_the_end_of_ours() {
    let (request, other) = (request(), request());
    for status in ["failed", "reversed", "abandoned", "blocked", "rejected"] {
        let reply = Reply::json(200, &transfer(&other, status));
        let outcome = found(&reply, request.rail_reference, request.amount).outcome;
        assert_eq!(outcome, TransferOutcome::Unknown, "{status}");
        let reply = Reply::json(200, &transfer(&request, status));
        let more = Money::new(2551, Currency::GHS);
        let outcome = found(&reply, request.rail_reference, more).outcome;
        assert_eq!(outcome, TransferOutcome::Unknown, "{status}");
    }
}

#[test]
fn a_payee_that_paystack_does_not_take_costs_nothing() {
    let known = Reply::json(201, r#"{"status":true,"data":{"recipient_code":"RCP_1"}}"#);
    assert_eq!(recipient(&known), Ok("RCP_1".to_owned()));
    let why = |reply: &Reply| recipient(reply).unwrap_err().outcome;
    let refused = Reply::json(
        400,
        r#"{"status":false,"message":"Account number is invalid"}"#,
    );
    assert_eq!(
        why(&refused),
        SendOutcome::Refused(FailureReason::PayeeNotFound)
    );
    let ours = Reply::json(
        403,
        r#"{"status":false,"message":"Your IP address is not allowed to make this call"}"#,
    );
    let waits = SendOutcome::NotSent(FailureReason::RailConfiguration);
    assert_eq!(why(&ours), waits);
    for reply in [
        Reply::html(200),
        Reply::empty(500),
        Reply::html(400),
        Reply::json(408, r#"{"error":"timeout"}"#),
    ] {
        let unavailable = SendOutcome::NotSent(FailureReason::RailUnavailable);
        assert_eq!(why(&reply), unavailable, "{reply:?}");
    }
}

#[test]
fn the_balance_is_that_of_cedis() {
    let body = r#"{"status":true,"data":[{"currency":"NGN","balance":5},{"currency":"GHS","balance":1700000}]}"#;
    let held = FloatOutcome::Held(Money::new(1_700_000, Currency::GHS));
    assert_eq!(float(&Reply::json(200, body)).outcome, held);
    assert_eq!(float(&Reply::html(200)).outcome, FloatOutcome::Unknown);
}
