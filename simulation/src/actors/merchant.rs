//! A merchant's backend: charges wallets and creates payment links, and after a failure does what
//! a careful client would do with the answer it got.

use futures::future::join_all;
use serde_json::json;

use super::Stage;
use crate::{
    choice::Choices,
    history::{CodeEntry, Order, PaymentLink, Read, ReadSubject, RequestEnd, SessionTold, key},
    time::{MINUTE, Millis, SECOND},
};

/// All orders start within this time.
const BEGIN: Millis = 2 * MINUTE;

/// Attempts that a careful client makes.
const TRIES_MAX: usize = 8;

/// Providers that orders are charged to, with their weights.
const PROVIDERS: [(u64, &str); 3] = [(45, "MTN"), (40, "TELECEL"), (15, "AT")];

/// The code that the simulated Telecel accepts.
const RIGHT_CODE: &str = "123456";

/// Charges one wallet, by one request or by two at the same time.
pub async fn charge(stage: Stage, number: u64) {
    let mut choices = Choices::of(stage.world.seed, &format!("order {number}"));
    stage.world.time.sleep(choices.below(BEGIN)).await;
    let merchant = usize::from(choices.chance(500));
    let amount_minor = i64::try_from(choices.between(100, 99_999)).unwrap_or(100);
    let order = Order {
        merchant,
        phone: crate::history::phone(number * 100),
        amount_minor: Some(amount_minor),
        keyed: choices.chance(700),
        session: None,
        tries: Vec::new(),
    };
    let provider = choices.weighted(&PROVIDERS);
    let key = order.keyed.then(|| key(choices.below(u64::MAX)));
    let twins = if order.keyed && choices.chance(300) {
        2
    } else {
        1
    };
    let (amount, phone) = (major(amount_minor), &order.phone);
    let body = format!(
        r#"{{"amount": {amount}, "mobile_number": "{phone}", "provider": "{provider}", "description": "Order {number}"}}"#
    );
    let id = stage.history.order(order);
    let requests = (0..twins).map(|twin| {
        let charging = ChargeCall {
            stage: stage.clone(),
            choices: Choices::of(stage.world.seed, &format!("order {number} client {twin}")),
            order: id,
            merchant,
            key: key.clone(),
            body: body.clone(),
        };
        charging.run()
    });
    join_all(requests).await;
}

/// Minor units as a JSON number of major units.
pub fn major(minor: i64) -> String {
    format!("{}.{:02}", minor / 100, minor % 100)
}

struct ChargeCall {
    stage: Stage,
    choices: Choices,
    order: usize,
    merchant: usize,
    key: Option<String>,
    body: String,
}

impl ChargeCall {
    async fn run(mut self) {
        let Some(told) = self.begin().await else {
            return;
        };
        let Some(reference) = told.field("reference").map(str::to_owned) else {
            return;
        };
        let again = self.key.is_some() && self.choices.chance(150);
        if told.field("status") == Some("OTP_REQUIRED") {
            self.give_code(&reference).await;
        }
        self.follow(&reference).await;
        if again {
            // Long afterwards the same request must get the same answer.
            self.stage
                .world
                .time
                .sleep(self.choices.below(20 * MINUTE))
                .await;
            self.try_once().await;
        }
    }

    /// Asks until it learns what became of the order, or may not ask again.
    async fn begin(&mut self) -> Option<RequestEnd> {
        // Some leave as soon as they are told that nothing was started, so that no later attempt
        // can account for a charge that was.
        let leaves = self.choices.chance(400);
        for _ in 0..TRIES_MAX {
            let told = self.try_once().await;
            if leaves && told.says_nothing_started() {
                return None;
            }
            let may_ask_again = self.key.is_some() || told.says_nothing_started();
            match told.status() {
                Some(202 | 422) => return Some(told),
                Some(409 | 429 | 500..) | None if may_ask_again => {
                    let wait = self.choices.between(SECOND, 20 * SECOND);
                    self.stage.world.time.sleep(wait).await;
                }
                _ => return None,
            }
        }
        None
    }

    async fn try_once(&mut self) -> RequestEnd {
        let stage = &self.stage;
        let mut request = stage
            .client
            .post(stage.api("/api/v1/payments/charge"))
            .bearer_auth(&stage.merchants[self.merchant].api_key)
            .header("content-type", "application/json")
            .body(self.body.clone());
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        let patience =
            self.choices
                .weighted(&[(10, 2 * SECOND), (20, 8 * SECOND), (70, 30 * SECOND)]);
        let sent = stage.history.sent(self.order, stage.world.time.now());
        let told = stage.ask(request, patience).await;
        stage.history.told(sent, told.clone());
        told
    }

    async fn follow(&mut self, reference: &str) {
        for _ in 0..self.choices.between(1, 5) {
            let wait = self.choices.between(4 * SECOND, 150 * SECOND);
            self.stage.world.time.sleep(wait).await;
            if matches!(
                self.read(reference).await.as_deref(),
                Some("SETTLED" | "FAILED")
            ) {
                return;
            }
        }
    }

    async fn read(&self, reference: &str) -> Option<String> {
        read_charge(&self.stage, self.merchant, reference).await
    }

    async fn give_code(&mut self, reference: &str) {
        let plan: &[(Millis, &str)] = self.choices.weighted::<&[(Millis, &str)]>(&[
            (35, &[(20 * SECOND, RIGHT_CODE)]),
            (30, &[(10 * SECOND, "111111"), (30 * SECOND, RIGHT_CODE)]),
            (
                10,
                &[
                    (5 * SECOND, "111111"),
                    (5 * SECOND, "222222"),
                    (5 * SECOND, "333333"),
                ],
            ),
            (
                8,
                &[
                    (5 * SECOND, "111111"),
                    (5 * SECOND, "222222"),
                    (5 * SECOND, RIGHT_CODE),
                ],
            ),
            (7, &[(11 * MINUTE, RIGHT_CODE)]),
            (5, &[(9 * MINUTE + 59 * SECOND, RIGHT_CODE)]),
            (5, &[]),
        ]);
        let is_impatient = self.choices.chance(250);
        for (wait, code) in plan {
            self.stage.world.time.sleep(*wait).await;
            if is_impatient {
                // Two at once, of which one goes to the rail.
                tokio::join!(self.submit(reference, code), self.submit(reference, code));
            } else {
                self.submit(reference, code).await;
            }
        }
    }

    async fn submit(&self, reference: &str, code: &str) {
        let stage = &self.stage;
        let request = stage
            .client
            .post(stage.api("/api/v1/payments/charge/submit-otp"))
            .bearer_auth(&stage.merchants[self.merchant].api_key)
            .header("content-type", "application/json")
            .body(json!({"reference": reference, "otp": code}).to_string());
        let asked_at = stage.world.time.now();
        let told = stage.ask(request, 30 * SECOND).await;
        note(
            stage,
            ReadSubject::Charge(reference.to_owned()),
            asked_at,
            &told,
        );
        stage.history.code(CodeEntry {
            sent_at: asked_at,
            reference: reference.to_owned(),
            told,
        });
    }
}

/// Reads a charge. Returns its status if the answer had one.
pub async fn read_charge(stage: &Stage, merchant: usize, reference: &str) -> Option<String> {
    let path = format!("/api/v1/payments/charge/{reference}");
    read(
        stage,
        merchant,
        &path,
        ReadSubject::Charge(reference.to_owned()),
    )
    .await
}

/// Reads a session's status.
pub async fn read_session(stage: &Stage, merchant: usize, session_id: &str) -> Option<String> {
    let path = format!("/api/v1/payments/{session_id}/status");
    read(
        stage,
        merchant,
        &path,
        ReadSubject::Session(session_id.to_owned()),
    )
    .await
}

pub async fn read(stage: &Stage, merchant: usize, path: &str, of: ReadSubject) -> Option<String> {
    let request = stage
        .client
        .get(stage.api(path))
        .bearer_auth(&stage.merchants[merchant].api_key);
    let asked_at = stage.world.time.now();
    let told = stage.ask(request, 20 * SECOND).await;
    note(stage, of, asked_at, &told);
    told.field("status").map(str::to_owned)
}

fn note(stage: &Stage, of: ReadSubject, asked_at: Millis, told: &RequestEnd) {
    let RequestEnd::Answer { at, .. } = told else {
        return;
    };
    if let Some(status) = told.field("status") {
        let status = status.to_owned();
        stage.history.read(Read {
            asked_at,
            at: *at,
            of,
            status,
        });
    }
}

/// Creates a payment link. Returns the session once the merchant learns of one.
pub async fn make_session(
    stage: &Stage,
    choices: &mut Choices,
    number: u64,
) -> Option<SessionTold> {
    let merchant = usize::from(choices.chance(500));
    let key = choices.chance(600).then(|| key(choices.below(u64::MAX)));
    let currency = choices.weighted(&[(80, "GHS"), (20, "USD")]);
    let amount = major(i64::try_from(choices.between(100, 50_000)).unwrap_or(100));
    let description = format!("Link {number}");
    let body = format!(
        r#"{{"amount": {amount}, "currency": "{currency}", "description": "{description}"}}"#
    );
    let mut link = PaymentLink {
        begun_at: stage.world.time.now(),
        description,
        keyed: key.is_some(),
        told: Vec::new(),
    };
    let mut made = None;
    for _ in 0..TRIES_MAX {
        let mut request = stage
            .client
            .post(stage.api("/api/v1/payments/initiate"))
            .bearer_auth(&stage.merchants[merchant].api_key)
            .header("content-type", "application/json")
            .body(body.clone());
        if let Some(key) = &key {
            request = request.header("idempotency-key", key);
        }
        let told = stage.ask(request, 20 * SECOND).await;
        link.told.push(told.clone());
        if told.status() == Some(201) {
            made = told.field("session_id").map(str::to_owned);
            break;
        }
        let wait = choices.between(SECOND, 10 * SECOND);
        stage.world.time.sleep(wait).await;
    }
    stage.history.link(link);
    let session = SessionTold {
        merchant,
        session_id: made?,
    };
    stage.history.session(session.clone());
    Some(session)
}
