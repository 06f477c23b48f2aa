mod hubtel;

use std::{sync::mpsc, time::Duration};

use axum::{Router, body::Bytes, extract::State, routing::any};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use chassis::{
    clock::Timestamp,
    money::{Currency, Money},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Method, Uri};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use sha2::Sha512;

use super::{
    book::{Book, DebitRequest, RIGHT_CODE},
    life::{EffectTime, Entry, Fare, Life, Outage, PaymentEnd},
    payment::PayerNetwork,
    *,
};
use crate::{
    choice::Choices,
    time::{HOUR, MINUTE, SECOND},
};

const NETWORKS: [PayerNetwork; 4] = [
    PayerNetwork::Momo,
    PayerNetwork::Paystack,
    PayerNetwork::PaystackTelecel,
    PayerNetwork::Hubtel,
];

fn phone(n: u64) -> String {
    format!("+23324{n:07}")
}

/// What becomes of the first request from a phone.
fn drawn(seed: u64, phone: &str, network: PayerNetwork) -> (Life, Fare) {
    let mut choices = Choices::of(seed, &format!("rail {phone} 1"));
    let life = Life::draw(&mut choices, network);
    (life, Fare::of_request(&mut choices))
}

/// The first phone for which this holds.
fn phone_with(seed: u64, network: PayerNetwork, holds: impl Fn(&Life, &Fare) -> bool) -> String {
    let mut phones = (0..).map(phone);
    let found = phones.find(|phone| {
        let (life, fare) = drawn(seed, phone, network);
        holds(&life, &fare)
    });
    found.expect("phones without end")
}

fn seed_without_outages() -> u64 {
    let calm = |seed: &u64| {
        let mut rails = Rail::ALL.iter();
        rails.all(|rail| Outage::draw(*seed, *rail).is_empty())
    };
    (0..).find(calm).expect("seeds without end")
}

fn asked(network: PayerNetwork, phone: &str, reference: &str) -> DebitRequest {
    DebitRequest {
        network,
        reference: reference.to_owned(),
        phone: phone.to_owned(),
        amount: Money::new(2_550, Currency::GHS),
        callback: Some("/rails/momo/token".to_owned()),
    }
}

#[test]
fn calls_are_taken_while_they_are_open_or_never() {
    let mut choices = Choices::of(1, "fares");
    for _ in 0..10_000 {
        for fare in [
            Fare::of_request(&mut choices),
            Fare::of_code(&mut choices),
            Fare::of_query(&mut choices),
        ] {
            match fare.taken {
                EffectTime::Never => assert!(fare.odd.is_some(), "{fare:?}"),
                EffectTime::After(after) => assert!(after <= fare.delay, "{fare:?}"),
                EffectTime::AtHangUp => assert!(fare.delay > 8 * SECOND, "{fare:?}"),
            }
        }
    }
}

#[test]
fn outages_end_within_four_hours_and_most_worlds_have_none() {
    let minutes = (0..6 * 60).map(|minute| minute * MINUTE);
    let mut away = 0;
    for seed in 0..500 {
        let outages = Outage::draw(seed, Rail::Momo);
        let mut lost = minutes
            .clone()
            .filter(|now| outages.iter().any(|outage| outage.fare_at(*now).is_some()));
        away += u64::from(lost.next().is_some());
        assert!(lost.all(|now| now < 4 * HOUR), "{outages:?}");
    }
    assert!((80..200).contains(&away), "{away}");
}

#[test]
fn most_payments_are_ordinary_and_every_payer_keeps_to_the_window() {
    for network in NETWORKS {
        let mut ordinary = 0;
        for n in 0..2_000 {
            let (life, fare) = drawn(7, &phone(n), network);
            let window = network.rail().window();
            match life.ending {
                PaymentEnd::Approved => assert!(life.ends_after < window, "{life:?}"),
                PaymentEnd::Failed(_) => assert!(life.ends_after <= window, "{life:?}"),
            }
            assert!(network != PayerNetwork::Momo || life.reversed_after.is_none());
            let is_told = fare.odd.is_none() && fare.taken != EffectTime::AtHangUp;
            let succeeds = life.ending == PaymentEnd::Approved && life.lag == 0;
            let is_refused = matches!(life.entry, Entry::Refused(_));
            ordinary += u64::from(is_told && succeeds && !is_refused);
        }
        assert!(
            (1_000..1_500).contains(&ordinary),
            "{network:?}: {ordinary}"
        );
    }
}

/// Queries again and again until nothing happens any more. Returns everything that was said.
fn live_through(book: &mut Book, asked: &DebitRequest, life: Life) -> Vec<Word> {
    let key = asked.key();
    let mut said = vec![book.take(asked, life, 10).0];
    let mut now = 10;
    for code in ["000000", "111111", RIGHT_CODE, RIGHT_CODE] {
        said.push(book.submit_code(&key, code, now).0);
    }
    while let Some(due) = book.next_due() {
        for moment in [due - 1, due] {
            now = moment.max(now);
            book.pass(now);
            let (choices, _) = book.query_arrives(&key);
            said.push(book.look(&key, true, choices, now).0);
        }
    }
    said
}

#[test]
fn money_and_words_agree_in_every_life() {
    let mut debited = 0;
    for n in 0..6_000_u64 {
        let network = NETWORKS[usize::try_from(n % 4).unwrap()];
        let mut book = Book::new(n);
        let asked = asked(network, &phone(n), "reference");
        let (mut life, _) = book.arrive(&asked, 0);
        // Forgetting could hide the only moment at which money is shown.
        life.forgotten = 0;
        life.debits_again = false;
        let refused = matches!(life.entry, Entry::Refused(_));
        let said = live_through(&mut book, &asked, life.clone());

        let again = book.take(&asked, life, 20).0;
        let payment = book.payments().remove(0);
        let success = said.iter().position(|word| *word == Word::Success);
        // Hubtel has one word for what is not paid, and for what it does not yet show as paid.
        let is_open = |word: &Word| *word == Word::Abandoned && network == PayerNetwork::Hubtel;
        let is_failure =
            |word: &Word| matches!(word, Word::Failed(_) | Word::Abandoned) && !is_open(word);
        if network == PayerNetwork::Hubtel {
            let is_told = |word: &Word| matches!(word, Word::Failed(_) | Word::Pending);
            assert!(!said.iter().any(is_told), "{said:?}");
        }
        if let Some(success) = success {
            let after = &said[success..];
            assert!(!after.iter().any(is_failure), "{said:?}");
        }
        assert_eq!(
            payment.debits.len(),
            usize::from(success.is_some()),
            "{said:?}"
        );
        assert!(payment.taken_at.len() <= 1, "{payment:?}");
        assert_eq!(refused, payment.taken_at.is_empty(), "{payment:?}");
        assert!(!refused || payment.debits.is_empty(), "{payment:?}");
        assert!(refused || again == Word::Duplicate409, "{again:?}");
        debited += payment.debits.len();
    }
    assert!(debited > 3_000, "{debited}");
}

/// Both rails, somebody to call back, and a time that moves while a test waits.
struct World {
    rails: Rails,
    time: Time,
    client: Client,
    called: mpsc::Receiver<(Method, Uri, HeaderMap, Bytes)>,
}

impl World {
    async fn new(seed: u64) -> Self {
        let start = Timestamp::from_unix_millis(1_800_000_000_000).unwrap();
        let time = Time::starting_at(start);
        let settings = RailCredentials {
            momo_subscription_key: "subscription".to_owned(),
            momo_api_user: "user".to_owned(),
            momo_api_key: "key".to_owned(),
            momo_disbursement_subscription_key: "disbursement".to_owned(),
            momo_disbursement_api_user: "user".to_owned(),
            momo_disbursement_api_key: "key".to_owned(),
            momo_target_environment: "mtnghana".to_owned(),
            paystack_secret_key: "secret".to_owned(),
            paystack_callback_token: "hook".to_owned(),
            ..RailCredentials::simulated()
        };
        let rails = Rails::start(seed, time.clone(), settings).await.unwrap();
        let (calls, called) = mpsc::channel();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        rails.call_back_to(format!("http://{}", gateway.local_addr().unwrap()));
        let note = |State(calls): State<mpsc::Sender<_>>, method, uri, headers, body| async move {
            let call: (Method, Uri, HeaderMap, Bytes) = (method, uri, headers, body);
            calls.send(call).expect("somebody looks");
        };
        let routes = Router::new().fallback(any(note)).with_state(calls);
        Tasks::new().spawn(serve(gateway, routes));
        Self {
            rails,
            time,
            client: chassis::http::client(Duration::from_secs(60)).unwrap(),
            called,
        }
    }

    /// Moves time until the future is done.
    async fn during<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                done = &mut future => return done,
                () = tokio::time::sleep(Duration::from_millis(1)) => self.step(),
            }
        }
    }

    fn step(&self) {
        if let Some(due) = self.time.next_due() {
            self.time.step_to(due.min(self.time.now() + SECOND));
        }
    }

    async fn until(&self, holds: impl Fn(&Rails) -> bool) {
        let waiting = async {
            while !holds(&self.rails) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(30), self.during(waiting));
        in_time.await.expect("it comes to hold");
    }

    async fn momo_token(&self) -> String {
        let address = format!("http://{}/collection/token/", self.rails.momo());
        let basic = format!("Basic {}", BASE64_STANDARD.encode("user:key"));
        let request = self.client.post(address);
        let request = request.header("Ocp-Apim-Subscription-Key", "subscription");
        let request = request.header("Authorization", basic).body("{}");
        let minted = self.during(request.send()).await.unwrap();
        let minted: Value = minted.json().await.unwrap();
        minted["access_token"].as_str().unwrap().to_owned()
    }

    async fn momo(&self, token: &str, reference: &str, phone: Option<&str>) -> Response {
        let path = "collection/v1_0/requesttopay";
        let address = format!("http://{}/{path}", self.rails.momo());
        let request = match phone {
            Some(phone) => self.client.post(address).json(&json!({
                "amount": "25.50",
                "currency": "GHS",
                "externalId": reference,
                "payer": {"partyIdType": "MSISDN", "partyId": &phone[1..]},
            })),
            None => self.client.get(format!("{address}/{reference}")),
        };
        let request = request
            .header("Ocp-Apim-Subscription-Key", "subscription")
            .header("Authorization", format!("Bearer {token}"))
            .header("X-Target-Environment", "mtnghana")
            .header("X-Reference-Id", reference)
            .header("X-Callback-Url", "https://pay.example/rails/momo/abc");
        self.during(request.send()).await.unwrap()
    }

    async fn paystack(&self, path: &str, body: Option<Value>) -> (u16, Value) {
        let address = format!("http://{}/{path}", self.rails.paystack());
        let request = match body {
            Some(body) => self.client.post(address).json(&body),
            None => self.client.get(address),
        };
        let request = request.header("Authorization", "Bearer secret");
        let answer = self.during(request.send()).await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

fn charge(reference: &str, phone: &str, provider: &str) -> Value {
    json!({
        "email": "a@b.example",
        "amount": 2_550,
        "currency": "GHS",
        "reference": reference,
        "mobile_money": {"phone": format!("0{}", &phone[4..]), "provider": provider},
    })
}

fn is_plain(life: &Life, entry: Entry) -> bool {
    life.entry == entry
        && life.ending == PaymentEnd::Approved
        && life.lag + life.unseen + life.forgotten == 0
        && life.ends_after < 30 * SECOND
        && life.debited == life::DebitedAmount::Asked
        && life.reversed_after.is_none()
        && !life.code.expires
        && !life.code.is_instant
        && matches!(life.calls[..], [0..SECOND])
        && !life.calls_early
        && life.strays.is_empty()
}

#[tokio::test]
async fn momo_debits_once_and_calls_back() {
    let world = World::new(3).await;
    world.rails.calm();
    let phone = phone_with(3, PayerNetwork::Momo, |life, _| {
        is_plain(life, Entry::Prompt)
    });
    let reference = uuid::Uuid::new_v4().to_string();
    assert_eq!(
        world.momo("none", &reference, Some(&phone)).await.status(),
        401
    );
    let token = world.momo_token().await;
    assert_eq!(world.momo(&token, &reference, None).await.status(), 404);
    assert_eq!(
        world.momo(&token, &reference, Some(&phone)).await.status(),
        202
    );
    assert_eq!(
        world.momo(&token, &reference, Some(&phone)).await.status(),
        409
    );
    assert!(!world.rails.is_settled());

    world.until(Rails::is_settled).await;
    let found = world.momo(&token, &reference, None).await;
    let found: Value = found.json().await.unwrap();
    assert_eq!(found["status"], "SUCCESSFUL");
    assert_eq!(found["externalId"], reference.as_str());

    let (_, uri, ..) = world.called.try_recv().unwrap();
    assert_eq!(uri.path(), "/rails/momo/abc");
    let book = world.rails.book();
    let [payment] = &book[..] else {
        panic!("{book:?}");
    };
    assert_eq!(payment.phone, phone);
    let debits: Vec<i64> = payment
        .debits
        .iter()
        .map(|debit| debit.amount_minor)
        .collect();
    assert_eq!(debits, [2_550]);
    let said: Vec<(Asker, Word)> = payment
        .said
        .iter()
        .map(|said| (said.to, said.what))
        .collect();
    let expected = [
        (Asker::Query, Word::Unknown404),
        (Asker::Request, Word::Accepted),
        (Asker::Request, Word::Duplicate409),
        (Asker::Callback, Word::Success),
        (Asker::Query, Word::Success),
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn paystack_takes_a_code_debits_once_and_signs_its_call() {
    let world = World::new(5).await;
    world.rails.calm();
    let plain = |life: &Life, _: &Fare| is_plain(life, Entry::Code);
    let phone = phone_with(5, PayerNetwork::PaystackTelecel, plain);
    let body = charge("ref-1", &phone, "vod");
    let (status, wanted) = world.paystack("charge", Some(body.clone())).await;
    assert_eq!(
        (status, &wanted["data"]["status"]),
        (200, &json!("send_otp"))
    );
    let (status, duplicate) = world.paystack("charge", Some(body)).await;
    assert_eq!(status, 400);
    assert_eq!(duplicate["message"], "Duplicate Transaction Reference");

    for (code, expected) in [("000000", "send_otp"), (RIGHT_CODE, "pending")] {
        let body = json!({"otp": code, "reference": "ref-1"});
        let (_, answer) = world.paystack("charge/submit_otp", Some(body)).await;
        assert_eq!(answer["data"]["status"], expected);
    }
    let again = json!({"otp": RIGHT_CODE, "reference": "ref-1"});
    assert_eq!(
        world.paystack("charge/submit_otp", Some(again)).await.0,
        400
    );

    world.until(Rails::is_settled).await;
    let (_, found) = world.paystack("transaction/verify/ref-1", None).await;
    assert_eq!(found["data"]["status"], "success");
    let (method, uri, headers, body) = world.called.try_recv().unwrap();
    assert_eq!((method, uri.path()), (Method::POST, "/rails/paystack/hook"));
    let mut signed = Hmac::<Sha512>::new_from_slice(b"secret").unwrap();
    signed.update(&body);
    let signature = hex::encode(signed.finalize().into_bytes());
    assert_eq!(headers["x-paystack-signature"], signature.as_str());
    assert_eq!(world.rails.book()[0].debits.len(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_request_or_has_it_taken_then() {
    let seed = seed_without_outages();
    let network = PayerNetwork::Paystack;
    let at_hang_up = |life: &Life, fare: &Fare| {
        life.entry == Entry::Prompt && fare.taken == EffectTime::AtHangUp
    };
    let at_last = |_: &Life, fare: &Fare| matches!(fare.taken, EffectTime::After(after) if after == fare.delay && after > 8 * SECOND);
    let taken = phone_with(seed, network, at_hang_up);
    let ended = phone_with(seed, network, at_last);
    let world = World::new(seed).await;
    for (reference, phone) in [("taken", taken), ("ended", ended)] {
        let address = format!("http://{}/charge", world.rails.paystack());
        let request = world
            .client
            .post(address)
            .json(&charge(reference, &phone, "mtn"));
        let request = request.header("Authorization", "Bearer secret");
        let arrives = async {
            let is_there = |rails: &Rails| rails.book().iter().any(|p| p.reference == reference);
            while !is_there(&world.rails) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            answered = request.send() => panic!("{answered:?}"),
            () = arrives => {}
        }
    }
    // Time has not moved, so only the hang-up can have made it take effect.
    let is_over = |rails: &Rails| rails.0.open.load(Ordering::SeqCst) == 0;
    while !is_over(&world.rails) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(world.time.now(), 0);
    let takings = world.rails.book();
    let takings: Vec<usize> = takings
        .iter()
        .map(|payment| payment.taken_at.len())
        .collect();
    assert_eq!(takings, [1, 0]);
}
