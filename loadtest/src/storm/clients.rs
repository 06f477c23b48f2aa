//! Clients of a few merchants: they charge, refund and ask for payouts, each with its key, and repeat
//! what was not answered.

use std::sync::Arc;

use super::{
    choices::Choices,
    wallets,
    world::{Acknowledged, Answer, Ask, Merchant, World},
};

/// What a client does next, by weight.
const ACTS: [(u64, Act); 5] = [
    (50, Act::Charge),
    (16, Act::Refund),
    (6, Act::RefundTwice),
    (16, Act::Payout),
    (6, Act::PayoutsAndRefund),
];

/// How many times in a hundred the same request is sent twice at once, or once more after its answer.
const TWICE: u64 = 10;

#[derive(Clone, Copy)]
enum Act {
    Charge,
    Refund,
    /// Two different refunds of one charge at once.
    RefundTwice,
    Payout,
    /// Two payouts and a refund at once, of one balance.
    PayoutsAndRefund,
}

/// One client until the storm calms down.
pub async fn run(world: Arc<World>, number: u16) {
    let mut client = Client {
        choices: Choices::of(world.seed, &format!("client {number}")),
        world,
        number,
        asked: 0,
    };
    while !client.world.calm.has_begun() {
        client.act().await;
    }
}

struct Client {
    world: Arc<World>,
    choices: Choices,
    number: u16,
    asked: u64,
}

impl Client {
    async fn act(&mut self) {
        let world = Arc::clone(&self.world);
        let Some(merchant) = self.choices.one_of(&world.merchants) else {
            return;
        };
        match self.choices.weighted(&ACTS) {
            Act::Charge => self.charge(&world, merchant).await,
            Act::Refund => {
                if let Some((ask, minor)) = self.refund(merchant) {
                    self.disburse(&world, &ask, minor).await;
                }
            }
            Act::RefundTwice => {
                let Some(charged) = merchant.one_charged(&mut self.choices) else {
                    return;
                };
                let first = self.refund_of(merchant, &charged);
                let second = self.refund_of(merchant, &charged);
                tokio::join!(
                    disburse(&world, &first.0, first.1, false),
                    disburse(&world, &second.0, second.1, false)
                );
            }
            Act::Payout => {
                let (ask, minor) = self.payout(merchant);
                self.disburse(&world, &ask, Some(minor)).await;
            }
            Act::PayoutsAndRefund => {
                let Some((refund, minor)) = self.refund(merchant) else {
                    return;
                };
                let (first, second) = (self.payout(merchant), self.payout(merchant));
                tokio::join!(
                    disburse(&world, &first.0, Some(first.1), false),
                    disburse(&world, &second.0, Some(second.1), false),
                    disburse(&world, &refund, minor, false)
                );
            }
        }
    }

    fn key(&mut self) -> String {
        self.asked += 1;
        format!("{}-{}", self.number, self.asked)
    }

    async fn charge(&mut self, world: &World, merchant: &Merchant) {
        let payer = wallets::payer(&mut self.choices, self.number);
        let minor = self.choices.between(100, 3_000);
        let ask = Ask {
            what: "charge",
            merchant,
            path: "/api/v1/payments/charge".to_owned(),
            body: format!(
                r#"{{"amount": {}, "mobile_number": "{}", "provider": "{}"}}"#,
                major(minor),
                payer.number,
                payer.provider
            ),
            key: self.key(),
        };
        let is_twice = self.choices.chance(TWICE);
        let Some(answer) = ask_once(world, &ask, is_twice).await else {
            return;
        };
        let reference = answer.text("reference");
        match (answer.status.as_u16(), reference) {
            (status @ (202 | 422), Some(reference)) => {
                world.told().charges.push(Acknowledged {
                    merchant_id: merchant.merchant_id.clone(),
                    id: reference.to_owned(),
                    amount_minor: Some(minor),
                });
                if status == 202 {
                    merchant.add_charged(reference, minor);
                }
            }
            _ => undocumented(world, &ask, &answer),
        }
    }

    /// A refund of one of the merchant's charges, whole or in part.
    fn refund<'m>(&mut self, merchant: &'m Merchant) -> Option<(Ask<'m>, Option<u64>)> {
        let charged = merchant.one_charged(&mut self.choices)?;
        Some(self.refund_of(merchant, &charged))
    }

    fn refund_of<'m>(
        &mut self,
        merchant: &'m Merchant,
        (reference, charged_minor): &(String, u64),
    ) -> (Ask<'m>, Option<u64>) {
        let is_part = self.choices.chance(60);
        let part = self.choices.between(100, *charged_minor);
        let minor = is_part.then_some(part);
        let body = match minor {
            Some(minor) => format!(r#"{{"amount": {}}}"#, major(minor)),
            None => "{}".to_owned(),
        };
        let ask = Ask {
            what: "refund",
            merchant,
            path: format!("/api/v1/payments/charge/{reference}/refunds"),
            body,
            key: self.key(),
        };
        (ask, minor)
    }

    /// A payout of about what a charge or two bring.
    fn payout<'m>(&mut self, merchant: &'m Merchant) -> (Ask<'m>, u64) {
        let minor = self.choices.between(100, 4_000);
        let ask = Ask {
            what: "payout",
            merchant,
            path: "/api/v1/payouts".to_owned(),
            body: format!(r#"{{"amount": {}, "currency": "GHS"}}"#, major(minor)),
            key: self.key(),
        };
        (ask, minor)
    }

    async fn disburse(&mut self, world: &World, ask: &Ask<'_>, minor: Option<u64>) {
        let is_twice = self.choices.chance(TWICE);
        disburse(world, ask, minor, is_twice).await;
    }
}

/// Asks for a payout or a refund.
async fn disburse(world: &World, ask: &Ask<'_>, amount_minor: Option<u64>, is_twice: bool) {
    let Some(answer) = ask_once(world, ask, is_twice).await else {
        return;
    };
    match (answer.status.as_u16(), id(&answer)) {
        (202, Some(id)) => world.told().disbursements.push(Acknowledged {
            merchant_id: ask.merchant.merchant_id.clone(),
            id: id.to_owned(),
            amount_minor,
        }),
        // Not enough there, not settled (yet), more than is left, or too small a part of it.
        (400 | 409 | 422, None) => {}
        _ => undocumented(world, ask, &answer),
    }
}

/// Asks for something that may happen once, however often it is sent: sometimes twice at the same
/// time, and then once more.
async fn ask_once(world: &World, ask: &Ask<'_>, is_twice: bool) -> Option<Answer> {
    if !is_twice {
        return world.answered(ask, "first").await;
    }
    let (first, second) = tokio::join!(world.answered(ask, "first"), world.answered(ask, "second"));
    let third = world.answered(ask, "third").await;
    let answers = [first, second, third].into_iter().flatten();
    let mut ids: Vec<String> = answers
        .filter_map(|answer| id(&answer).map(str::to_owned))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() > 1 {
        let what = format!("{} {} made {ids:?}", ask.what, ask.key);
        world.told().contradictions.push(what);
    }
    // Whatever it has become by now: only an answer with an identifier tells.
    world.answered(ask, "last").await
}

/// What the thing is called that an answer tells of.
fn id(answer: &Answer) -> Option<&str> {
    let fields = ["payout_id", "refund_id", "reference"];
    fields.into_iter().find_map(|field| answer.text(field))
}

fn undocumented(world: &World, ask: &Ask<'_>, answer: &Answer) {
    let Ask {
        what, path, key, ..
    } = ask;
    let (status, body) = (answer.status, &answer.body);
    let told = format!("{what} {key} at {path} was answered {status} {body}");
    world.told().contradictions.push(told);
}

/// An amount of pesewas in cedis.
fn major(minor: u64) -> String {
    format!("{}.{:02}", minor / 100, minor % 100)
}
