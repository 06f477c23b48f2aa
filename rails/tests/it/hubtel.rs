//! Hubtel over the wire: payments, and what they share with [transfers].

mod transfers;

use chassis::{
    failure::FailureReason,
    ids::RailReference,
    money::{Currency, Money},
    phone::Phone,
    provider::Provider,
    testing::fake_server::{
        FakeServer, Reaction, answer, closed_port, empty, html, json, redirect,
    },
};
use rails::{
    Callback, CallbackSubject, Destination, FloatOutcome, HolderOutcome, QueryOutcome, Rail,
    RailName, RequestOutcome, SendOutcome, TransferOutcome, TransferRequest, WalletOutcome,
};

use super::{ACCEPTED, Logged, payment, query, rails, refused};

const API_KEY: &str = "hubtel-key-5e7d2c";

/// What takes payments over Hubtel.
const ACCOUNT: [(&str, &str); 5] = [
    ("hubtel-api-id", "shop1"),
    ("hubtel-api-key", API_KEY),
    ("hubtel-pos-sales-id", "2000001"),
    ("hubtel-prepaid-deposit-id", "3000001"),
    ("callback-base-url", "https://pay.example.com"),
];

const RECEIVE: &str = "POST /merchantaccount/merchants/2000001/receive/mobilemoney";
const SEND: &str = "POST /api/merchants/3000001/send/mobilemoney";

fn cedis(minor_units: i64) -> Money {
    Money::new(minor_units, Currency::GHS)
}

fn at(address: &str, flags: &[(&str, &str)]) -> Rail {
    let base = [("hubtel-base-url", address)];
    let all = [&ACCOUNT[..], &base, flags].concat();
    rails(&all).unwrap().get(RailName::Hubtel).clone()
}

fn hubtel(network: &FakeServer) -> Rail {
    at(&network.address(), &[])
}

async fn always(reaction: Reaction) -> FakeServer {
    FakeServer::start(move |_| reaction.clone()).await
}

fn transfer() -> TransferRequest {
    TransferRequest {
        rail_reference: RailReference::new(),
        shown_id: "PO-ABCDEFGHJK".to_owned(),
        amount: cedis(2550),
        destination: Destination::Wallet {
            provider: Provider::Telecel,
            phone: Phone::parse_ghana_mobile("0201234567").unwrap(),
            holder_name: Some("Ama Mensah".to_owned()),
        },
        may_be_known: false,
        callback_token: "callback-token-of-this-transfer".to_owned(),
    }
}

async fn requested(reaction: Reaction) -> RequestOutcome {
    let network = always(reaction).await;
    let request = payment(Provider::At);
    let outcome = hubtel(&network).request_payment(&request).await.outcome;
    assert_eq!(network.calls(), [RECEIVE]);
    outcome
}

async fn sent(reaction: Reaction, may_be_known: bool) -> SendOutcome {
    let network = always(reaction).await;
    let request = TransferRequest {
        may_be_known,
        ..transfer()
    };
    let outcome = hubtel(&network).send(&request).await.outcome;
    assert_eq!(network.calls(), [SEND]);
    outcome
}

/// What became of this payment, if the query is answered so.
async fn found(reference: RailReference, reaction: Reaction) -> QueryOutcome {
    let network = always(reaction).await;
    hubtel(&network).query(&query(reference)).await.outcome
}

async fn transferred(reference: RailReference, reaction: Reaction) -> TransferOutcome {
    let network = always(reaction).await;
    let rail = hubtel(&network);
    rail.query_transfer(reference, cedis(2550)).await.outcome
}

/// A first reply with this code and text.
fn coded(status: u16, code: &str, text: &str) -> Reaction {
    json(
        status,
        format!(
            r#"{{"ResponseCode":"{code}","Message":"failed","Data":{{"Description":"{text}"}}}}"#
        ),
    )
}

fn paid(reference: &str, amounts: &str) -> Reaction {
    json(
        200,
        format!(
            r#"{{"message":"Successful","responseCode":"0000","data":{{"date":"2026-11-26","status":"Paid",
            "transactionId":"x","externalTransactionId":"y","clientReference":"{reference}",
            "currencyCode":null,{amounts},"isFulfilled":null}}}}"#
        ),
    )
}

#[tokio::test]
async fn a_payment_goes_out_as_hubtel_wants_it() {
    for (provider, channel) in [
        (Provider::Mtn, "mtn-gh"),
        (Provider::Telecel, "vodafone-gh"),
        (Provider::At, "tigo-gh"),
    ] {
        let network = always(coded(200, "0001", "")).await;
        let mut payment = payment(provider);
        payment.description = Some("50% off & more".to_owned());
        let outcome = hubtel(&network).request_payment(&payment).await.outcome;
        assert_eq!(outcome, ACCEPTED);

        let [seen] = network.seen().try_into().unwrap();
        assert_eq!(seen.call, RECEIVE);
        let basic = "Basic c2hvcDE6aHVidGVsLWtleS01ZTdkMmM=";
        assert_eq!(seen.header("authorization"), Some(basic));
        assert!(seen.body.contains(r#""Amount":25.50,"#), "{}", seen.body);
        let expected = serde_json::json!({
            "CustomerMsisdn": "233241234567",
            "Channel": channel,
            "Amount": 25.5,
            "PrimaryCallbackUrl":
                "https://pay.example.com/rails/hubtel/callback-token-of-this-charge",
            "Description": "50 off more",
            "ClientReference": payment.rail_reference.uuid().simple().to_string(),
        });
        assert_eq!(seen.json(), expected);
    }
}

#[tokio::test]
async fn a_payment_is_refused_by_documented_codes_alone() {
    use FailureReason as Reason;
    for (reaction, reason) in [
        (
            coded(200, "2001", "Customer has insufficient funds"),
            Reason::InsufficientFunds,
        ),
        (
            coded(400, "2001", "Customer has insufficient funds"),
            Reason::InsufficientFunds,
        ),
        (coded(200, "2001", "Wrong PIN entered"), Reason::InvalidPin),
        (
            coded(200, "2001", "USSD session timeout"),
            Reason::PayerTimeout,
        ),
        (
            coded(200, "2001", "Ensure the number matches the channel"),
            Reason::NumberNetworkMismatch,
        ),
        (
            coded(200, "2001", "Account holder with MSISDN not found"),
            Reason::PayerNotFound,
        ),
        (
            coded(200, "2001", "Daily limit reached"),
            Reason::PayerLimitReached,
        ),
        (coded(200, "2001", "Payer declined"), Reason::PayerDeclined),
        (
            coded(200, "2001", "Mercury is in retrograde"),
            Reason::RailError,
        ),
        (coded(200, "2050", ""), Reason::InsufficientFunds),
        (coded(200, "2101", ""), Reason::InvalidPin),
        (coded(200, "4000", "Amount is not valid"), Reason::RailError),
        (coded(400, "4000", "Amount is not valid"), Reason::RailError),
        (coded(200, "4070", ""), Reason::RailConfiguration),
        (coded(400, "4101", ""), Reason::RailConfiguration),
        (coded(200, "4103", ""), Reason::PayeeAccountBlocked),
        (
            coded(401, "2001", "insufficient"),
            Reason::RailConfiguration,
        ),
        (
            coded(403, "2001", "insufficient"),
            Reason::RailConfiguration,
        ),
        (html(403), Reason::RailConfiguration),
        (empty(401), Reason::RailConfiguration),
        // Whatever the keys look like.
        (
            json(
                200,
                r#"{"responsecode":"2001","data":{"DESCRIPTION":"Insufficient"}}"#,
            ),
            Reason::InsufficientFunds,
        ),
    ] {
        let shown = format!("{reaction:?}");
        assert_eq!(requested(reaction).await, refused(reason), "{shown}");
    }
    let instant = coded(200, "0000", "");
    assert_eq!(requested(instant).await, RequestOutcome::Succeeded);
}

/// What the merchant wrote and Hubtel repeats says nothing.
#[tokio::test]
async fn our_own_words_are_no_reason() {
    let ours = "Limited edition shirt - not found elsewhere";
    let network = always(coded(200, "2001", ours)).await;
    let mut payment = payment(Provider::At);
    payment.description = Some(ours.to_owned());
    let outcome = hubtel(&network).request_payment(&payment).await.outcome;
    assert_eq!(outcome, refused(FailureReason::RailError));
}

/// Each with a refusal in it.
fn undocumented() -> Vec<Reaction> {
    let refusal = r#"{"ResponseCode":"4000","Message":"x"}"#;
    let long = "x".repeat(256 * 1024);
    vec![
        coded(200, "0005", "insufficient"),
        coded(200, "5000", "insufficient"),
        coded(200, "9999", "insufficient"),
        coded(400, "0001", ""),
        coded(429, "4000", ""),
        coded(500, "4000", ""),
        coded(503, "2001", "insufficient"),
        json(200, r#"{"Message":"failed","Data":null}"#),
        json(200, r#"{"ResponseCode":"4000","responseCode":"0001"}"#),
        json(200, format!("[{refusal}]")),
        json(400, format!(r#"{{"pad":"{long}",{}"#, &refusal[1..])),
        answer(400, "text/html", refusal),
        html(200),
        html(502),
        empty(200),
        redirect("https://example.com/"),
        Reaction::Cut,
        Reaction::CutInBody { status: 200 },
    ]
}

#[tokio::test]
async fn everything_else_is_unknown_and_sent_once() {
    for reaction in undocumented() {
        let shown = format!("{reaction:.200?}");
        let outcome = requested(reaction.clone()).await;
        assert_eq!(outcome, RequestOutcome::Unknown, "{shown}");
        assert_eq!(sent(reaction, true).await, SendOutcome::Unknown, "{shown}");
    }
    // A processor's failure of a transfer is final only once the status agrees.
    let failed = sent(coded(200, "2001", "not registered"), false).await;
    assert_eq!(failed, SendOutcome::Unknown);
    // About somebody else's money.
    let other =
        r#"{"ResponseCode":"4000","Data":{"ClientReference":"a0eebc999c0b4ef8bb6d6bb9bd380a11"}}"#;
    let outcome = requested(json(200, other)).await;
    assert_eq!(outcome, RequestOutcome::Unknown);
    assert_eq!(sent(json(200, other), false).await, SendOutcome::Unknown);
}

#[tokio::test]
async fn silence_is_unknown_and_no_connection_is_not() {
    let network = always(Reaction::Silence).await;
    let short = [
        ("hubtel-request-timeout", "1s"),
        ("hubtel-query-timeout", "1s"),
    ];
    let rail = at(&network.address(), &short);
    let request = payment(Provider::Mtn);
    let outcome = rail.request_payment(&request).await.outcome;
    assert_eq!(outcome, RequestOutcome::Unknown);
    assert_eq!(rail.send(&transfer()).await.outcome, SendOutcome::Unknown);
    let found = rail.query(&query(RailReference::new())).await.outcome;
    assert_eq!(found, QueryOutcome::Unknown);
    assert_eq!(network.calls().len(), 3);

    let (_socket, address) = closed_port();
    let rail = at(&address, &[]);
    let outcome = rail.request_payment(&request).await.outcome;
    assert_eq!(outcome, refused(FailureReason::RailUnavailable));
    let unavailable = SendOutcome::NotSent(FailureReason::RailUnavailable);
    assert_eq!(rail.send(&transfer()).await.outcome, unavailable);
}

#[tokio::test]
async fn a_reference_is_ours_however_it_is_spelled() {
    let reference = RailReference::new();
    let id = reference.uuid();
    for spelled in [
        id.simple().to_string(),
        id.simple().to_string().to_uppercase(),
        id.hyphenated().to_string(),
        id.hyphenated().to_string().to_uppercase(),
    ] {
        let reaction = paid(
            &spelled,
            r#""amount":25.5,"charges":0.25,"amountAfterCharges":25.25"#,
        );
        let succeeded = QueryOutcome::Succeeded {
            rail_reference: reference.to_string(),
            amount: Some(cedis(2550)),
            fee: Some(cedis(25)),
        };
        assert_eq!(found(reference, reaction).await, succeeded, "{spelled}");
        let reaction = json(
            200,
            format!(
                r#"{{"ResponseCode":"success","Data":{{"transactionStatus":"success",
                "ClientReference":"{spelled}","Amount":25.50,"Fees":0.5}}}}"#
            ),
        );
        let succeeded = TransferOutcome::Succeeded {
            rail_reference: reference.to_string(),
            amount: Some(cedis(2550)),
            fee: Some(cedis(50)),
        };
        assert_eq!(
            transferred(reference, reaction).await,
            succeeded,
            "{spelled}"
        );
    }
}

#[tokio::test]
async fn another_reference_or_amount_is_told_as_it_is() {
    let (reference, other) = (RailReference::new(), RailReference::new());
    let told = |rail_reference: String, amount, fee| QueryOutcome::Succeeded {
        rail_reference,
        amount,
        fee,
    };
    for (spelled, amounts, expected) in [
        (
            other.to_string(),
            r#""amount":25.5"#,
            told(other.to_string(), Some(cedis(2550)), None),
        ),
        (
            "order-17".to_owned(),
            r#""amount":25.5"#,
            told("order-17".to_owned(), Some(cedis(2550)), None),
        ),
        (
            reference.to_string(),
            r#""amount":26.5"#,
            told(reference.to_string(), Some(cedis(2650)), None),
        ),
        (
            reference.to_string(),
            r#""amount":2.55e1"#,
            told(reference.to_string(), None, None),
        ),
        (
            reference.to_string(),
            r#""amount":null"#,
            told(reference.to_string(), None, None),
        ),
        // More than the amount is nothing that was kept of it.
        (
            reference.to_string(),
            r#""amount":25.5,"amountAfterCharges":26.0"#,
            told(reference.to_string(), Some(cedis(2550)), None),
        ),
    ] {
        assert_eq!(
            found(reference, paid(&spelled, amounts)).await,
            expected,
            "{spelled} {amounts}"
        );
    }
    let in_naira = json(
        200,
        format!(
            r#"{{"responseCode":"0000","data":{{"status":"Paid","clientReference":"{reference}",
            "amount":25.5,"currencyCode":"NGN"}}}}"#
        ),
    );
    assert_ne!(
        found(reference, in_naira).await,
        told(reference.to_string(), Some(cedis(2550)), None)
    );
}

#[tokio::test]
async fn a_query_knows_no_failure_of_a_payment() {
    let reference = RailReference::new();
    let state = |status: &str| {
        let body = format!(
            r#"{{"responseCode":"0000","data":{{"status":"{status}","clientReference":"{reference}"}}}}"#
        );
        json(200, body)
    };
    let loud = format!(
        r#"{{"RESPONSECODE":"0000","DATA":{{"STATUS":"UNPAID","CLIENTREFERENCE":"{reference}"}}}}"#
    );
    let open = QueryOutcome::Abandoned { code_wanted: false };
    for (reaction, expected) in [
        (state("Unpaid"), open.clone()),
        (json(200, loud), open),
        // Nobody knows of which payment.
        (
            json(200, r#"{"responseCode":"0000","data":{"status":"Unpaid"}}"#),
            QueryOutcome::Unknown,
        ),
        (state("Refunded"), QueryOutcome::Reversed),
        (state("Failed"), QueryOutcome::Unknown),
        (state(""), QueryOutcome::Unknown),
        (coded(200, "2001", "insufficient"), QueryOutcome::Unknown),
        (
            json(200, r#"{"responseCode":"0005","data":{"status":"Unpaid"}}"#),
            QueryOutcome::Unknown,
        ),
        (
            json(
                200,
                r#"{"responseCode":"0000","data":{"status":"Unpaid",
                "clientReference":"a0eebc999c0b4ef8bb6d6bb9bd380a11"}}"#,
            ),
            QueryOutcome::Unknown,
        ),
        (
            json(404, r#"{"responseCode":"4040","message":"not found"}"#),
            QueryOutcome::ReferenceUnknown,
        ),
        (
            json(404, r#"{"statusCode":404,"message":"not found"}"#),
            QueryOutcome::Unknown,
        ),
        (coded(404, "0005", ""), QueryOutcome::Unknown),
        (coded(404, "4101", ""), QueryOutcome::Unknown),
        (html(404), QueryOutcome::Unknown),
        (html(403), QueryOutcome::Unknown),
        (coded(500, "0000", ""), QueryOutcome::Unknown),
        (Reaction::Cut, QueryOutcome::Unknown),
    ] {
        let shown = format!("{reaction:?}");
        assert_eq!(found(reference, reaction).await, expected, "{shown}");
    }
}

#[test]
fn a_callback_is_known_by_its_address_and_read_for_people_alone() {
    let body = br#"{"ResponseCode":"2001","Message":"failed"}"#.to_vec();
    let callback = Callback {
        token: "token".to_owned(),
        headers: [].into(),
        body,
    };
    let rail = at("http://127.0.0.1:9", &[]);
    assert_eq!(rail.read_callback(&callback), Ok(CallbackSubject::Address));
    let text = |body: &str| {
        rail.callback_text(&Callback {
            token: "token".to_owned(),
            headers: [].into(),
            body: body.as_bytes().to_vec(),
        })
    };
    let told =
        text(r#"{"responseCode":"2001","Data":{"DESCRIPTION":"233241234567: no PIN, token"}}"#);
    assert_eq!(told.as_deref(), Some("code 2001: •••: no PIN, •••"));
    for nothing in ["", "[]", "{}", "<html>", r#"{"a":"""#] {
        assert_eq!(text(nothing), None, "{nothing}");
    }
}

#[tokio::test]
async fn without_an_account_nothing_goes_over_hubtel() {
    let rails_without = rails(&[]).unwrap();
    let rail = rails_without.get(RailName::Hubtel);
    let outcome = rail.request_payment(&payment(Provider::Mtn)).await.outcome;
    assert_eq!(outcome, refused(FailureReason::RailConfiguration));
    let unconfigured = SendOutcome::NotSent(FailureReason::RailConfiguration);
    assert_eq!(rail.send(&transfer()).await.outcome, unconfigured);
    let found = rail.query(&query(RailReference::new())).await.outcome;
    assert_eq!(found, QueryOutcome::Unknown);

    // What only collects pays nothing.
    let collects = [&ACCOUNT[..3], &ACCOUNT[4..]].concat();
    let rails = rails(&collects).unwrap();
    let outcome = rails.get(RailName::Hubtel).send(&transfer()).await.outcome;
    assert_eq!(outcome, unconfigured);
}

#[test]
fn a_provider_goes_over_hubtel_only_with_all_that_it_takes() {
    let with = |flags: &[(&str, &str)]| rails(&[&[("rail-mtn", "hubtel")], flags].concat());
    let whole = with(&ACCOUNT).unwrap();
    assert_eq!(whole.for_provider(Provider::Mtn).name, RailName::Hubtel);
    assert!(with(&[]).is_err());
    for left_out in [0, 1, 2, 4] {
        let mut flags = ACCOUNT.to_vec();
        let (name, _) = flags.remove(left_out);
        assert!(with(&flags).is_err(), "without {name}");
        assert!(rails(&flags).is_err(), "not even unused: without {name}");
    }
    for (name, value) in [
        ("hubtel-api-id", "a:b"),
        ("hubtel-api-key", ""),
        ("hubtel-pos-sales-id", "20/../1"),
        ("hubtel-pos-sales-id", ".."),
        ("hubtel-prepaid-deposit-id", "2000001"),
        ("hubtel-base-url", "ftp://example.com"),
        ("hubtel-request-timeout", "9s"),
        ("hubtel-query-timeout", "0s"),
    ] {
        let flags = [&ACCOUNT[..], &[(name, value)]].concat();
        assert!(rails(&flags).is_err(), "{name}={value}");
    }
}

#[tokio::test]
async fn keys_numbers_and_names_are_not_logged() {
    let (logged, _guard) = Logged::from_now_on();
    let basic = "c2hvcDE6aHVidGVsLWtleS01ZTdkMmM=";
    let text = format!("no wallet 233241234567 for Ama Mensah, key {API_KEY} {basic}");
    let network = always(coded(200, "2001", &text)).await;
    let rail = hubtel(&network);
    let refused = rail.request_payment(&payment(Provider::Mtn)).await;
    let sent = rail.send(&transfer()).await;
    let told = format!("{refused:?} {sent:?} {rail:?} {}", logged.text());
    for secret in [
        API_KEY,
        "c2hvcDE6aHVi",
        "241234567",
        "201234567",
        "callback-token-of",
    ] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
    let kept = sent.rail_text.unwrap_or_default();
    assert_eq!(
        kept,
        "HTTP 200 code 2001: failed no wallet ••• for •••, key ••• •••"
    );
}
