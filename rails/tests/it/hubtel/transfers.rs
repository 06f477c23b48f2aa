//! What goes out over Hubtel.

use super::*;

#[tokio::test]
async fn a_transfer_goes_out_as_hubtel_wants_it() {
    let network = always(coded(200, "0001", "")).await;
    let mut request = transfer();
    let rail = hubtel(&network);
    assert_eq!(rail.send(&request).await.outcome, SendOutcome::Accepted);
    request.destination = Destination::Wallet {
        provider: Provider::Mtn,
        phone: Phone::parse_ghana_mobile("0241234567").unwrap(),
        holder_name: None,
    };
    assert_eq!(rail.send(&request).await.outcome, SendOutcome::Accepted);

    let [named, nameless] = network.seen().try_into().unwrap();
    assert_eq!(named.call, SEND);
    let expected = serde_json::json!({
        "RecipientName": "Ama Mensah",
        "RecipientMsisdn": "233201234567",
        "Channel": "vodafone-gh",
        "Amount": 25.5,
        "PrimaryCallbackURL": "https://pay.example.com/rails/hubtel/callback-token-of-this-transfer",
        "Description": "PO-ABCDEFGHJK",
        "ClientReference": request.rail_reference.uuid().simple().to_string(),
    });
    assert_eq!(named.json(), expected);
    assert_eq!(nameless.json()["RecipientName"], "233241234567");
}

#[tokio::test]
async fn a_transfer_is_refused_by_documented_codes_alone() {
    use SendOutcome::{FloatEmpty, NotSent, Refused};
    let unconfigured = || NotSent(FailureReason::RailConfiguration);
    for (reaction, expected) in [
        (
            coded(200, "3050", ""),
            Refused(FailureReason::PayeeNotFound),
        ),
        (
            coded(400, "3050", ""),
            Refused(FailureReason::PayeeNotFound),
        ),
        (
            coded(200, "4000", "Amount is not valid"),
            Refused(FailureReason::RailError),
        ),
        (coded(200, "4075", ""), FloatEmpty),
        (coded(200, "4101", ""), unconfigured()),
        (coded(200, "4103", ""), unconfigured()),
        (coded(400, "4105", ""), unconfigured()),
        (html(403), unconfigured()),
        (coded(401, "0001", ""), unconfigured()),
    ] {
        let shown = format!("{reaction:?}");
        assert_eq!(sent(reaction, false).await, expected, "{shown}");
    }
}

#[tokio::test]
async fn a_query_tells_what_became_of_a_transfer() {
    let reference = RailReference::new();
    let state = |code: &str, status: &str, text: &str| {
        let body = format!(
            r#"{{"ResponseCode":"{code}","Data":{{"transactionStatus":"{status}","Description":"{text}",
            "clientReference":"{reference}"}}}}"#
        );
        json(200, body)
    };
    let failed = TransferOutcome::Failed;
    for (reaction, expected) in [
        (state("success", "pending", ""), TransferOutcome::Pending),
        (
            state("success", "failed", "Number not registered"),
            failed(FailureReason::PayeeNotFound),
        ),
        (
            state("2001", "Failed", "?"),
            failed(FailureReason::RailError),
        ),
        (
            state("failed", "failed", "limit exceeded"),
            failed(FailureReason::PayeeLimitReached),
        ),
        (
            state("3050", "failed", ""),
            failed(FailureReason::PayeeNotFound),
        ),
        (state("4075", "failed", ""), TransferOutcome::FloatEmpty),
        (
            state("success", "failed", "4075: low balance"),
            TransferOutcome::FloatEmpty,
        ),
        // Numbers that only look like the code.
        (
            state("success", "failed", "account 233244075123 not found"),
            failed(FailureReason::PayeeNotFound),
        ),
        (coded(404, "5000", ""), TransferOutcome::Unknown),
        (coded(400, "4101", ""), TransferOutcome::Unknown),
        (state("0005", "failed", ""), TransferOutcome::Unknown),
        (state("success", "reversed", ""), TransferOutcome::Unknown),
        // A code that nobody knows.
        (
            state("7099", "failed", "not registered"),
            TransferOutcome::Unknown,
        ),
        (state("7099", "success", ""), TransferOutcome::Unknown),
        (
            json(
                200,
                r#"{"ResponseCode":"success","Data":{"transactionStatus":"failed",
                "clientReference":"a0eebc999c0b4ef8bb6d6bb9bd380a11"}}"#,
            ),
            TransferOutcome::Unknown,
        ),
        // Nobody knows of which transfer.
        (
            json(
                200,
                r#"{"ResponseCode":"success","Data":{"transactionStatus":"failed"}}"#,
            ),
            TransferOutcome::Unknown,
        ),
        (
            json(404, r#"{"ResponseCode":"4040"}"#),
            TransferOutcome::ReferenceUnknown,
        ),
        (html(200), TransferOutcome::Unknown),
        (html(403), TransferOutcome::Unknown),
    ] {
        let shown = format!("{reaction:?}");
        assert_eq!(transferred(reference, reaction).await, expected, "{shown}");
    }
}

/// The documented status of a transfer has no words for why it failed.
#[tokio::test]
async fn a_wordless_failure_is_our_floats_if_that_is_too_low() {
    let reference = RailReference::new();
    for (held, expected) in [
        ("25.49", TransferOutcome::FloatEmpty),
        ("25.50", TransferOutcome::Failed(FailureReason::RailError)),
    ] {
        let network = FakeServer::start(move |seen| {
            let float = format!(r#"{{"responseCode":"0000","data":{{"amount":{held}}}}}"#);
            let failed = format!(
                r#"{{"ResponseCode":"success","Data":{{"transactionStatus":"failed",
                "ClientReference":"{reference}"}}}}"#
            );
            match seen.call.contains("inter-transfers") {
                true => json(200, float),
                false => json(200, failed),
            }
        })
        .await;
        let rail = hubtel(&network);
        let found = rail.query_transfer(reference, cedis(2550)).await;
        assert_eq!(found.outcome, expected, "{held}");
    }
}

#[tokio::test]
async fn float_wallets_and_holders_are_asked_of_their_own_apis() {
    let network = FakeServer::start(|seen| match seen.call.as_str() {
        "GET /api/inter-transfers/prepaid/3000001" => json(
            200,
            r#"{"responseCode":"0000","message":"x","data":{"amount":11.50}}"#,
        ),
        "GET /v2/merchantaccount/merchants/2000001/mobilemoney/verify?channel=mtn-gh&customerMsisdn=233241234567" => {
            json(
                200,
                r#"{"responseCode":"0000","data":{"isRegistered":true,"name":"Ama Mensah","status":"active"}}"#,
            )
        }
        _ => json(200, r#"{"responseCode":"0000","data":{"isRegistered":false}}"#),
    })
    .await;
    let rail = hubtel(&network);
    let phone = Phone::parse_ghana_mobile("0241234567").unwrap();
    let wallet = |provider| Destination::Wallet {
        provider,
        phone: phone.clone(),
        holder_name: None,
    };
    assert_eq!(rail.float().await.outcome, FloatOutcome::Held(cedis(1150)));
    for (provider, is_there, named) in [
        (
            Provider::Mtn,
            WalletOutcome::Active,
            HolderOutcome::Named("Ama Mensah".to_owned()),
        ),
        (
            Provider::Telecel,
            WalletOutcome::NotActive,
            HolderOutcome::NotThere,
        ),
    ] {
        assert_eq!(rail.wallet(provider, &phone).await.outcome, is_there);
        assert!(rail.holder(&wallet(provider)).await.outcome == named);
    }
    // An account for which the name check is not enabled.
    let network = always(coded(403, "4103", "")).await;
    let rail = hubtel(&network);
    let unknown = rail.wallet(Provider::Mtn, &phone).await.outcome;
    assert_eq!(unknown, WalletOutcome::Unknown);
    assert!(rail.holder(&wallet(Provider::Mtn)).await.outcome == HolderOutcome::Unknown);
    assert_eq!(rail.float().await.outcome, FloatOutcome::Unknown);
}
