//! Networks that are slow, contradict themselves or leave things out, controlled by the test; and
//! what must still get done when services disagree.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use chassis::{
    clock::{Clock, Timestamp},
    http,
    shutdown::{Shutdown, Tasks},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use proto::{
    charges::{
        Case, CaseKind, CloseCaseRequest, CreateChargeRequest, HostedSession, Provider,
        ReceiveCallbackRequest, ResolveChargeRequest, ShowChargeRequest,
        close_case_request::Action, resolve_charge_request::Outcome,
    },
    money::Money,
};
use serde_json::{Value, json};
use sha2::Sha512;
use stack::demo::{Api, Receiver};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    processes::Processes,
    shop::{Shop, WAIT_MAX},
};

const SECRET_KEY: &str = "sk_test_led";
const CALLBACK_TOKEN: &str = "led-callback-token";

/// An AT number, whose digits do not matter here.
const NUMBER: &str = "0270000001";

const LOOK_AGAIN: Duration = Duration::from_millis(20);

const HOUR: Duration = Duration::from_secs(3_600);

/// A Paystack that the test controls.
struct Led {
    url: String,
    hand: Arc<Hand>,
    shutdown: Shutdown,
}

struct Hand {
    /// While true, the respective answers wait.
    charge_is_held: watch::Sender<bool>,
    verify_is_held: watch::Sender<bool>,
    charge: Mutex<(StatusCode, Value)>,
    verify: Mutex<(StatusCode, Value)>,
    /// The reference of the last payment request.
    reference: Mutex<Option<String>>,
    verified: AtomicUsize,
}

impl Led {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hand = Arc::new(Hand {
            charge_is_held: watch::Sender::new(false),
            verify_is_held: watch::Sender::new(false),
            charge: Mutex::new((StatusCode::OK, prompted())),
            verify: Mutex::new((StatusCode::OK, prompted())),
            reference: Mutex::default(),
            verified: AtomicUsize::new(0),
        });
        let router = Router::new()
            .route("/charge", post(charge))
            .route("/charge/submit_otp", post(async || Json(prompted())))
            .route("/transaction/verify/{reference}", get(verify))
            .with_state(hand.clone());
        let shutdown = Shutdown::new();
        let served = http::serve(router, listener, http::Limits::default(), shutdown.clone());
        Tasks::new().spawn(async { served.await.unwrap() });
        Self {
            url,
            hand,
            shutdown,
        }
    }

    /// A stack that uses this Paystack, with more flags: (service, flag).
    async fn open_shop(&self, more: &[(&'static str, &str)]) -> Shop {
        let flags = [
            format!("--paystack-base-url={}", self.url),
            format!("--paystack-secret-key={SECRET_KEY}"),
            format!("--paystack-callback-token={CALLBACK_TOKEN}"),
        ];
        let flags = flags.iter().map(|flag| ("charges-svc", flag.as_str()));
        let flags: Vec<_> = flags.chain(more.iter().copied()).collect();
        Shop::open_with(&flags).await
    }

    fn answer_charges(&self, code: u16, body: Value) {
        *self.hand.charge.lock().unwrap() = (StatusCode::from_u16(code).unwrap(), body);
    }

    fn answer_queries(&self, code: u16, body: Value) {
        *self.hand.verify.lock().unwrap() = (StatusCode::from_u16(code).unwrap(), body);
    }

    /// The rail's reference for the charge, once the rail was called.
    async fn reference(&self) -> String {
        let mut found = None;
        until("the rail is called", async || {
            found = self.hand.reference.lock().unwrap().clone();
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    async fn until_asked(&self, times: usize) {
        until("the rail is asked", async || {
            self.hand.verified.load(Ordering::SeqCst) >= times
        })
        .await;
    }

    /// Delivers a success callback as Paystack does.
    async fn call_back(&self, shop: &Shop, reference: &str) {
        let body = json!({ "event": "charge.success", "data": { "reference": reference } });
        let body = body.to_string().into_bytes();
        let mut mac = Hmac::<Sha512>::new_from_slice(SECRET_KEY.as_bytes()).unwrap();
        mac.update(&body);
        let request = ReceiveCallbackRequest {
            rail: "paystack".to_owned(),
            token: CALLBACK_TOKEN.to_owned(),
            body,
            signature: Some(hex::encode(mac.finalize().into_bytes())),
            ..Default::default()
        };
        shop.charges().receive_callback(request).await.unwrap();
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        self.shutdown.begin();
    }
}

async fn charge(
    State(hand): State<Arc<Hand>>,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let reference = body["reference"].as_str().unwrap().to_owned();
    *hand.reference.lock().unwrap() = Some(reference);
    let mut held = hand.charge_is_held.subscribe();
    held.wait_for(|held| !held).await.unwrap();
    let (code, body) = hand.charge.lock().unwrap().clone();
    (code, Json(body))
}

async fn verify(State(hand): State<Arc<Hand>>, Path(_): Path<String>) -> (StatusCode, Json<Value>) {
    let (code, body) = hand.verify.lock().unwrap().clone();
    hand.verified.fetch_add(1, Ordering::SeqCst);
    let mut held = hand.verify_is_held.subscribe();
    held.wait_for(|held| !held).await.unwrap();
    (code, Json(body))
}

/// The answer that the payer has the prompt.
fn prompted() -> Value {
    json!({ "status": true, "data": { "status": "pay_offline" } })
}

fn success(reference: &str, amount: Option<i64>) -> Value {
    json!({ "status": true, "data": {
        "status": "success", "reference": reference, "amount": amount, "currency": "GHS",
    } })
}

async fn until(claim: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let waited = tokio::time::timeout(WAIT_MAX, waiting).await;
    assert!(waited.is_ok(), "not in time: {claim}");
}

async fn begin(shop: &Shop) -> String {
    let answer = shop.charge(NUMBER, "AT").await;
    answer.expect(202).unwrap();
    answer.text("reference").unwrap().to_owned()
}

/// What an operator says about money that is back with the payer.
fn evidence(action: Action) -> Option<String> {
    (action == Action::Refunded).then(|| "the network's portal, R-1001".to_owned())
}

async fn close(shop: &Shop, case: &Case, action: Action) {
    let request = CloseCaseRequest {
        case_id: case.case_id.clone(),
        action: action.into(),
        override_reason: None,
        evidence: evidence(action),
    };
    shop.operations().close_case(request).await.unwrap();
}

/// A charge's postings: kinds, accounts (merchants' without ids) and amounts.
async fn posted(shop: &Shop, reference: &str) -> Vec<String> {
    let reference = reference.to_owned();
    let request = ShowChargeRequest { reference };
    let shown = shop.operations().show_charge(request).await.unwrap();
    let postings = shown.into_inner().postings.into_iter();
    let mut posted: Vec<_> = postings
        .map(|posting| {
            let account = posting.account.split(':').next().unwrap().to_owned();
            let minor_units = posting.amount.unwrap().minor_units;
            format!("{} {account} {minor_units}", posting.kind)
        })
        .collect();
    posted.sort();
    posted
}

#[tokio::test]
async fn a_callback_that_comes_before_the_networks_answer_makes_the_network_be_asked_at_once() {
    let led = Led::start().await;
    let shop = led.open_shop(&[("stack", "--reconcile-schedule=1h")]).await;
    led.hand.charge_is_held.send_replace(true);
    let paying = async {
        let reference = begin(&shop).await;
        shop.wait_for_end(&reference).await
    };
    let calling_back = async {
        let reference = led.reference().await;
        led.answer_queries(200, success(&reference, Some(2_550)));
        led.call_back(&shop, &reference).await;
        led.hand.charge_is_held.send_replace(false);
    };
    let (charge, ()) = tokio::join!(paying, calling_back);
    assert_eq!(charge["status"], "SETTLED");
    shop.close().await;
}

#[tokio::test]
async fn a_success_without_an_amount_is_a_case_and_the_amount_that_follows_settles() {
    let led = Led::start().await;
    let shop = led.open_shop(&[]).await;
    let reference = begin(&shop).await;
    let rail_reference = led.reference().await;
    led.answer_queries(200, success(&rail_reference, None));
    let case = shop.wait_for_case(&reference).await;
    assert_eq!((case.kind(), &case.suspense), (CaseKind::Mismatch, &None));
    assert_eq!(shop.read_charge(&reference).await["status"], "INITIATED");
    assert_eq!(shop.balance().await, 0);
    led.answer_queries(200, success(&rail_reference, Some(2_550)));
    shop.advance(HOUR).await;
    assert_eq!(shop.read_charge(&reference).await["status"], "SETTLED");
    assert_eq!(shop.balance().await, 2_550);
    close(&shop, &case, Action::Release).await;
    assert_eq!(
        posted(&shop, &reference).await,
        ["SETTLEMENT merchant 2550", "SETTLEMENT rail -2550"]
    );
    shop.wait_for_event(&reference).await;
    shop.close().await;
}

#[tokio::test]
async fn late_money_whose_amount_is_told_later_goes_to_suspense_once() {
    let led = Led::start().await;
    let shop = led.open_shop(&[]).await;
    let reference = begin(&shop).await;
    let rail_reference = led.reference().await;
    led.answer_queries(
        200,
        json!({ "data": { "status": "failed", "message": "Declined" } }),
    );
    assert_eq!(shop.wait_for_end(&reference).await["status"], "FAILED");
    led.answer_queries(200, success(&rail_reference, None));
    shop.advance(2 * HOUR).await;
    let case = shop.wait_for_case(&reference).await;
    assert_eq!((case.kind(), &case.suspense), (CaseKind::LateMoney, &None));
    led.answer_queries(200, success(&rail_reference, Some(2_550)));
    shop.advance(80 * HOUR).await;
    let suspended = shop.wait_for_case(&reference).await;
    assert_eq!(suspended.case_id, case.case_id, "the same case");
    assert_eq!(suspended.suspense.as_ref().unwrap().minor_units, 2_550);
    close(&shop, &suspended, Action::Refunded).await;
    led.call_back(&shop, &rail_reference).await;
    shop.advance(HOUR).await;
    assert!(shop.cases().await.is_empty());
    assert_eq!(
        posted(&shop, &reference).await,
        [
            "REFUND rail 2550",
            "REFUND suspense -2550",
            "SUSPENSE rail -2550",
            "SUSPENSE suspense 2550",
        ]
    );
    assert_eq!(shop.balance().await, 0);
    shop.wait_for_event(&reference).await;
    shop.close().await;
}

#[tokio::test]
async fn a_case_that_was_closed_without_money_opens_again_when_its_money_is_told() {
    let led = Led::start().await;
    let shop = led.open_shop(&[]).await;
    let reference = begin(&shop).await;
    let rail_reference = led.reference().await;
    led.answer_queries(
        200,
        json!({ "data": { "status": "failed", "message": "Declined" } }),
    );
    assert_eq!(shop.wait_for_end(&reference).await["status"], "FAILED");
    led.answer_queries(200, success(&rail_reference, None));
    shop.advance(2 * HOUR).await;
    let case = shop.wait_for_case(&reference).await;
    close(&shop, &case, Action::Refund).await;
    led.answer_queries(200, success(&rail_reference, Some(2_550)));
    shop.advance(80 * HOUR).await;
    let again = shop.wait_for_case(&reference).await;
    close(&shop, &again, Action::Release).await;
    assert_eq!(shop.balance().await, 2_550);
    shop.wait_for_event(&reference).await;
    shop.close().await;
}

/// "Reference unknown" ends a charge only if the query was sent after the payer's time was up.
#[tokio::test]
async fn an_answer_that_comes_late_to_an_early_question_ends_nothing() {
    // The window, its margin, and the time of the reply.
    const OVER_AFTER: Duration = Duration::from_secs(6);
    let led = Led::start().await;
    let flags = [
        ("stack", "--reconcile-schedule=500ms"),
        ("charges-svc", "--approval-window=4s"),
        ("charges-svc", "--paystack-query-timeout=8s"),
    ];
    let shop = led.open_shop(&flags).await;
    // The outcome of the request is unknown.
    led.answer_charges(500, json!({}));
    led.hand.verify_is_held.send_replace(true);
    let unknown = json!({ "status": false, "code": "transaction_not_found" });
    led.answer_queries(400, unknown);
    let reference = begin(&shop).await;
    let rail_reference = led.reference().await;
    led.until_asked(1).await;
    let charge = shop.read_charge(&reference).await;
    let begun: Timestamp = charge["created_at"].as_str().unwrap().parse().unwrap();
    until("the payer's time is over", async || {
        Clock::system().now() > begun + OVER_AFTER
    })
    .await;
    // The request reaches the network after all.
    led.answer_queries(200, success(&rail_reference, Some(2_550)));
    led.hand.verify_is_held.send_replace(false);
    let charge = shop.wait_for_end(&reference).await;
    assert_eq!(charge["status"], "SETTLED", "{charge}");
    assert_eq!(shop.balance().await, 2_550);
    shop.wait_for_event(&reference).await;
    shop.close().await;
}

async fn session(shop: &Shop, currency: &str) -> String {
    let body = json!({ "amount": 10, "currency": currency });
    let path = "/api/v1/payments/initiate";
    let created = shop.api.post(path, &body).await.unwrap();
    created.expect(201).unwrap();
    created.text("session_id").unwrap().to_owned()
}

fn hosted(merchant_id: &str, session_id: &str, rate: Option<&str>) -> CreateChargeRequest {
    let (debited, currency) = match rate {
        Some(_) => (12_345, "USD"),
        None => (1_000, "GHS"),
    };
    let money = |minor_units, currency: &str| Money {
        minor_units,
        currency: currency.to_owned(),
    };
    CreateChargeRequest {
        merchant_id: merchant_id.to_owned(),
        merchant_name: "Demo Shop".to_owned(),
        amount: Some(money(debited, "GHS")),
        mobile_number: "+233241234001".to_owned(),
        provider: Provider::Mtn.into(),
        description: None,
        payer_email: None,
        payer_name: None,
        idempotency_key: format!("p:{}", uuid::Uuid::new_v4()),
        hosted: Some(HostedSession {
            session_id: session_id.to_owned(),
            amount: Some(money(1_000, currency)),
            rate: rate.map(str::to_owned),
        }),
        asked_by: None,
    }
}

/// However a rate is written, the event contains it as a plain number.
#[tokio::test]
async fn a_rate_that_is_written_oddly_is_told_as_a_plain_number() {
    let shop = Shop::open().await;
    let long = format!("12.345{}", "0".repeat(80));
    for rate in ["+12.345", "012.345", "1_2.345", "12.3450", &long] {
        let session_id = session(&shop, "USD").await;
        let request = hosted(&shop.ready.demo.merchant_id, &session_id, Some(rate));
        let created = shop.charges().create_charge(request).await.unwrap();
        let reference = created.into_inner().charge.unwrap().reference;
        let event = shop.wait_for_event(&reference).await;
        assert_eq!(event["data"]["rate"], json!(12.345), "{rate}");
    }
    shop.close().await;
}

/// The claim was refused, so there is nothing to withdraw, and the withdrawal must not be retried
/// for ever.
#[tokio::test]
async fn a_claim_on_anothers_session_is_withdrawn_and_that_is_the_end_of_it() {
    let shop = Shop::open().await;
    let session_id = session(&shop, "GHS").await;
    let other = shop.add_merchant("Other Shop").await;
    let request = hosted(&other, &session_id, None);
    let refused = shop.charges().create_charge(request).await.unwrap_err();
    assert_eq!(
        chassis::grpc::reason(&refused).as_deref(),
        Some("SESSION_NOT_PAYABLE")
    );
    assert_eq!(shop.read_session(&session_id).await["status"], "PENDING");
    // `close` waits until the outbox is empty.
    shop.close().await;
}

/// An operator resolves and closes while the network says something else.
#[tokio::test]
async fn an_operator_and_the_network_decide_at_once_and_the_books_hold() {
    let led = Led::start().await;
    let shop = led.open_shop(&[]).await;
    for round in 0..6 {
        let reference = begin(&shop).await;
        let rail_reference = led.reference().await;
        led.answer_queries(200, success(&rail_reference, Some(2_550)));
        let resolve = ResolveChargeRequest {
            reference: reference.clone(),
            evidence: "statement, line 12".to_owned(),
            outcome: Some(match round % 2 {
                0 => Outcome::Settled(true),
                _ => Outcome::FailedReason("PAYER_DECLINED".to_owned()),
            }),
        };
        let mut operations = shop.operations();
        let resolving = operations.resolve_charge(resolve);
        let (_, resolved) = tokio::join!(led.call_back(&shop, &rail_reference), resolving);
        let charge = shop.wait_for_end(&reference).await;
        if let Ok(shown) = resolved {
            assert_eq!(shown.into_inner().state, charge["status"]);
        }
        led.call_back(&shop, &rail_reference).await;
        if charge["status"] == "FAILED" {
            let case = shop.wait_for_case(&reference).await;
            assert_eq!(case.kind(), CaseKind::LateMoney);
            let request = |action: Action| CloseCaseRequest {
                case_id: case.case_id.clone(),
                action: action.into(),
                override_reason: None,
                evidence: evidence(action),
            };
            let (mut one, mut other) = (shop.operations(), shop.operations());
            let (refunded, released) = tokio::join!(
                one.close_case(request(Action::Refunded)),
                other.close_case(request(Action::Release)),
            );
            assert_ne!(refunded.is_ok(), released.is_ok(), "once, one way");
        }
        shop.wait_for_event(&reference).await;
        led.answer_queries(200, prompted());
        *led.hand.reference.lock().unwrap() = None;
    }
    shop.close().await;
}

/// A query sent before the code was submitted says nothing about the state after it.
#[tokio::test]
async fn an_answer_about_before_the_code_changes_nothing_after_it() {
    let led = Led::start().await;
    let shop = led.open_shop(&[("stack", "--reconcile-schedule=1h")]).await;
    let code_wanted = json!({ "status": true, "data": { "status": "send_otp" } });
    led.answer_charges(200, code_wanted.clone());
    led.answer_queries(200, code_wanted);
    let answer = shop.charge("0200000001", "TELECEL").await;
    answer
        .expect_fields(&[("status", json!("OTP_REQUIRED"))])
        .unwrap();
    let reference = answer.text("reference").unwrap().to_owned();
    let rail_reference = led.reference().await;
    led.hand.verify_is_held.send_replace(true);
    led.call_back(&shop, &rail_reference).await;
    led.until_asked(1).await;
    let submitted = shop.submit_otp(&reference, "123456").await;
    submitted.expect(202).unwrap();
    led.hand.verify_is_held.send_replace(false);
    until("the answer is there", async || {
        let reference = reference.clone();
        let request = ShowChargeRequest { reference };
        let shown = shop.operations().show_charge(request).await.unwrap();
        let mut said = shown.into_inner().evidence.into_iter();
        said.any(|said| said.action == "query" && said.outcome == "otp_required")
    })
    .await;
    assert_eq!(shop.read_charge(&reference).await["status"], "INITIATED");
    led.answer_queries(200, success(&rail_reference, Some(2_550)));
    led.call_back(&shop, &rail_reference).await;
    assert_eq!(shop.wait_for_end(&reference).await["status"], "SETTLED");
    shop.wait_for_event(&reference).await;
    shop.close().await;
}

/// A webhook implies that the session already shows the outcome: nothing is published before
/// sessions-svc acknowledges it.
#[tokio::test]
async fn while_sessions_are_away_nothing_is_published_and_then_all_of_it_once() {
    let mut processes = Processes::start(&[]).await;
    let receiver = Receiver::start().await.unwrap();
    let merchant = processes.merchant(&receiver.url).await;
    let api = Api::new(&processes.gateway.url, &merchant.api_key).unwrap();
    let body = json!({ "amount": 25.5, "mobile_number": "0240000100", "provider": "MTN" });
    let answer = api.post("/api/v1/payments/charge", &body).await.unwrap();
    answer.expect(202).unwrap();
    processes.sessions.kill().await;
    approve(&processes.railsim.url).await;
    let charges = processes.charges_db.connect().await;
    until("it was tried to tell of the settlement", async || {
        let mut conn = charges.read().await.unwrap();
        let (tries,): (i64,) = conn
            .sql("select coalesce(max(attempts), 0) from outbox where event_id is not null")
            .one()
            .await
            .unwrap();
        tries >= 3
    })
    .await;
    assert!(receiver.deliveries().is_empty());
    processes.sessions.start().await;
    let reference = answer.text("reference").unwrap();
    let (display, _) = reference.rsplit_once('-').unwrap();
    let event = receiver.wait_for(display, WAIT_MAX).await.unwrap();
    assert_eq!(event.json().unwrap()["type"], "payment.success");
    let session_id = answer.text("session_id").unwrap();
    let path = format!("/api/v1/payments/{session_id}/status");
    let session = api.get(&path).await.unwrap();
    assert_eq!(session.body["status"], "COMPLETED");
    until("the outbox is empty", async || {
        db::outbox::len(&charges).await.unwrap() == 0
    })
    .await;
    receiver.check_no_event_came_twice().unwrap();
    charges.close().await;
}

/// Approves the only waiting prompt.
async fn approve(handset: &str) {
    let client = http::client(WAIT_MAX).unwrap();
    let prompts = client.get(format!("{handset}/prompts"));
    let prompts: Vec<Value> = prompts.send().await.unwrap().json().await.unwrap();
    let id = prompts[0]["id"].as_str().unwrap();
    let approval = client.post(format!("{handset}/prompts/{id}/approve"));
    let approved = approval.send().await.unwrap();
    assert!(approved.status().is_success() || approved.status().is_redirection());
}
