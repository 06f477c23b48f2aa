//! A merchant's backend that sends money out: payouts of what it has, and refunds of its charges,
//! some at the same time, which together would overdraw its balance or exceed a charge.

use futures::future::join_all;

use super::{
    MERCHANTS, Stage,
    merchant::{major, read},
};
use crate::{
    choice::Choices,
    history::{BalanceRead, ReadSubject, RequestEnd, Spending, Try, hundredths, key},
    time::{MINUTE, Millis, SECOND},
};

/// Attempts that a careful client makes.
const TRIES_MAX: usize = 8;

/// Asks for payouts: of everything, or of a part, by one request or by two with keys of their own.
pub async fn pay_out(stage: Stage, number: u64) {
    let mut choices = Choices::of(stage.world.seed, &format!("payout {number}"));
    let time = &stage.world.time;
    time.sleep(choices.between(40 * SECOND, 12 * MINUTE)).await;
    let merchant = usize::try_from(number).unwrap_or_default() % MERCHANTS;
    let Some(available) = read_balance(&stage, merchant).await else {
        return;
    };
    let part = choices.weighted(&[(45, 100), (45, 60), (10, 5)]);
    let count = choices.weighted(&[(65, 1), (35, 2)]);
    let payouts = (0..count).map(|twin| {
        let spending = Spending {
            merchant,
            refunds: None,
            amount_minor: Some(alone(available * part / 100, number * 2 + twin)),
            keyed: choices.chance(800),
            tries: Vec::new(),
        };
        spend(&stage, spending, format!("payout {number} {twin}"))
    });
    join_all(payouts).await;
    read_balance(&stage, merchant).await;
}

/// Refunds a charge: whole, or in parts, which may be too many.
pub async fn refund(stage: Stage, number: u64) {
    let mut choices = Choices::of(stage.world.seed, &format!("refund {number}"));
    let time = &stage.world.time;
    time.sleep(choices.between(40 * SECOND, 12 * MINUTE)).await;
    // Most wait until they have read that the charge is settled.
    let is_impatient = choices.chance(150);
    let mut told = stage.history.charges_told();
    told.retain(|(_, reference, _)| is_impatient || stage.history.is_settled(reference));
    let chosen = choices.below(told.len().try_into().unwrap_or_default());
    let chosen = told.get(usize::try_from(chosen).unwrap_or_default());
    let Some((merchant, reference, amount_minor)) = chosen.cloned() else {
        return;
    };
    let parts: &[Option<i64>] = choices.weighted::<&[Option<i64>]>(&[
        (30, &[None]),
        (20, &[Some(50)]),
        (25, &[Some(60), Some(60)]),
        (15, &[Some(30), Some(30), Some(30)]),
        (10, &[None, Some(70)]),
    ]);
    let refunds = (0..).zip(parts).map(|(place, part)| {
        let spending = Spending {
            merchant,
            refunds: Some(reference.clone()),
            amount_minor: part.map(|part| alone(amount_minor * part / 100, number * 3 + place)),
            keyed: choices.chance(800),
            tries: Vec::new(),
        };
        spend(&stage, spending, format!("refund {number} {place}"))
    });
    join_all(refunds).await;
}

/// About this amount, and unlike that of any other `number` below 100.
fn alone(amount_minor: i64, number: u64) -> i64 {
    let number = i64::try_from(number).unwrap_or_default();
    (amount_minor / 100 - 1).max(0) * 100 + number
}

/// What the merchant has available, in GHS.
async fn read_balance(stage: &Stage, merchant: usize) -> Option<i64> {
    let account = &stage.merchants[merchant];
    let request = stage.client.get(stage.api("/api/v1/balance"));
    let told = stage.ask(request.bearer_auth(&account.api_key), 20 * SECOND);
    let RequestEnd::Answer { at, body, .. } = told.await else {
        return None;
    };
    let available = body.pointer("/balances/0/available")?;
    let available_minor = hundredths(available)?;
    stage.history.balance(BalanceRead {
        at,
        merchant,
        available_minor,
    });
    Some(available_minor)
}

/// Asks until it learns what became of it, or may not ask again, and then reads that once or twice.
async fn spend(stage: &Stage, spending: Spending, name: String) {
    let mut choices = Choices::of(stage.world.seed, &name);
    let key = spending.keyed.then(|| key(choices.below(u64::MAX)));
    let twins = match spending.keyed && choices.chance(300) {
        true => 2,
        false => 1,
    };
    let clients = (0..twins).map(|twin| {
        let mut client = SpendingCall {
            stage: stage.clone(),
            choices: Choices::of(stage.world.seed, &format!("{name} client {twin}")),
            spending: spending.clone(),
            key: key.clone(),
        };
        async move {
            client.run().await;
            client.spending.tries
        }
    });
    let tries = join_all(clients).await.concat();
    stage.history.spending(Spending { tries, ..spending });
}

struct SpendingCall {
    stage: Stage,
    choices: Choices,
    spending: Spending,
    key: Option<String>,
}

impl SpendingCall {
    async fn run(&mut self) {
        let Some(told) = self.begin().await else {
            return;
        };
        let id = ["payout_id", "refund_id"].iter();
        let Some(id) = id.filter_map(|name| told.field(name)).next() else {
            return;
        };
        let id = id.to_owned();
        for _ in 0..self.choices.between(1, 2) {
            let wait = self.choices.between(SECOND, 6 * MINUTE);
            self.stage.world.time.sleep(wait).await;
            let path = match self.spending.refunds {
                Some(_) => format!("/api/v1/refunds/{id}"),
                None => format!("/api/v1/payouts/{id}"),
            };
            let of = ReadSubject::Disbursement(id.clone());
            read(&self.stage, self.spending.merchant, &path, of).await;
        }
        if self.key.is_some() && self.choices.chance(200) {
            // Long afterwards the same request must get the same answer.
            self.try_once().await;
        }
    }

    async fn begin(&mut self) -> Option<RequestEnd> {
        for _ in 0..TRIES_MAX {
            let told = self.try_once().await;
            let may_ask_again = self.key.is_some() || told.says_nothing_started();
            match told.status() {
                Some(202) => return Some(told),
                Some(409 | 429 | 500..) | None if may_ask_again => {
                    let wait = self.choices.between(SECOND, 20 * SECOND);
                    self.stage.world.time.sleep(wait).await;
                }
                Some(422) if self.key.is_some() && self.choices.chance(500) => {
                    // What was refused stays refused, also when the money is there.
                    let wait = self.choices.between(SECOND, 6 * MINUTE);
                    self.stage.world.time.sleep(wait).await;
                }
                _ => return None,
            }
        }
        None
    }

    async fn try_once(&mut self) -> RequestEnd {
        let stage = &self.stage;
        let path = match &self.spending.refunds {
            Some(reference) => format!("/api/v1/payments/charge/{reference}/refunds"),
            None => "/api/v1/payouts".to_owned(),
        };
        let body = match self.spending.amount_minor {
            Some(minor) => format!(r#"{{"amount": {}}}"#, major(minor)),
            None => "{}".to_owned(),
        };
        let account = &stage.merchants[self.spending.merchant];
        let mut request = stage
            .client
            .post(stage.api(&path))
            .bearer_auth(&account.api_key)
            .header("content-type", "application/json")
            .body(body);
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        let patience: Millis = self
            .choices
            .weighted(&[(15, 2 * SECOND), (85, 30 * SECOND)]);
        let sent_at = stage.world.time.now();
        let told = stage.ask(request, patience).await;
        self.spending.tries.push(Try {
            sent_at,
            told: told.clone(),
        });
        told
    }
}
