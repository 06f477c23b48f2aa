//! What becomes of a call, of a payment and of a whole rail, drawn before it happens.
//!
//! Promise: nothing is drawn that the rails' own documents do not allow. A rail never debits what
//! it refused in a documented way, and never calls a debited payment failed.

use crate::{
    choice::Choices,
    rails::payment::{Failure, PayerNetwork, Rail},
    time::{HOUR, MINUTE, Millis, SECOND},
};

/// What one call goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fare {
    pub taken: EffectTime,
    /// Delay of the answer.
    pub delay: Millis,
    /// What replaces the answer, if anything.
    pub odd: Option<Odd>,
}

/// When a call takes effect, or its query is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectTime {
    Never,
    After(Millis),
    /// When the client closes the connection, or else with the answer.
    AtHangUp,
}

/// Undocumented answers, which say nothing about the payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// No answer: the connection ends.
    Cut,
    InternalError,
    BadGateway,
    /// A firewall's page, with a 200.
    Rejected,
    TooMany,
    /// A proxy's error page, with a 503.
    Unavailable,
    /// A proxy's error page, with a 404.
    Missing,
    /// Paystack's 400 to a submitted code.
    InvalidReference,
}

#[derive(Clone, Copy)]
enum Way {
    Well,
    Slow,
    Endless,
    Cut,
    Odd,
}

impl Fare {
    /// A call to a healthy rail.
    pub const PROMPT: Self = Self {
        taken: EffectTime::After(0),
        delay: 0,
        odd: None,
    };

    pub fn of_request(choices: &mut Choices) -> Self {
        let ways = [
            (780, Way::Well),
            (110, Way::Slow),
            (25, Way::Endless),
            (45, Way::Cut),
            (40, Way::Odd),
        ];
        let odds = [
            (4, Odd::InternalError),
            (2, Odd::BadGateway),
            (2, Odd::Rejected),
            (1, Odd::TooMany),
        ];
        Self::draw(choices, &ways, &odds)
    }

    pub fn of_code(choices: &mut Choices) -> Self {
        let ways = [
            (720, Way::Well),
            (110, Way::Slow),
            (40, Way::Endless),
            (70, Way::Cut),
            (60, Way::Odd),
        ];
        let odds = [
            (3, Odd::InvalidReference),
            (2, Odd::InternalError),
            (1, Odd::BadGateway),
            (1, Odd::Rejected),
        ];
        Self::draw(choices, &ways, &odds)
    }

    /// For queries, and for calls that get a token.
    pub fn of_query(choices: &mut Choices) -> Self {
        let ways = [
            (850, Way::Well),
            (70, Way::Slow),
            (15, Way::Endless),
            (30, Way::Cut),
            (35, Way::Odd),
        ];
        let odds = [
            (3, Odd::InternalError),
            (2, Odd::BadGateway),
            (1, Odd::Rejected),
            (1, Odd::TooMany),
            (2, Odd::Missing),
        ];
        Self::draw(choices, &ways, &odds)
    }

    fn draw(choices: &mut Choices, ways: &[(u64, Way)], odds: &[(u64, Odd)]) -> Self {
        let way = choices.weighted(ways);
        let odd = choices.weighted(odds);
        let delay = match way {
            // Most answers come at once: every wait is a step of time, and steps make a run slow.
            Way::Well if choices.chance(700) => 0,
            Way::Well => choices.between(10, 400),
            Way::Slow => choices.between(400, 7 * SECOND),
            Way::Endless => choices.between(9 * SECOND, 20 * SECOND),
            Way::Cut | Way::Odd => choices.between(0, 3 * SECOND),
        };
        let midway = EffectTime::After(choices.between(0, delay));
        let or_never = choices.weighted(&[(1, midway), (1, EffectTime::Never)]);
        let endless = [
            (2, EffectTime::After(0)),
            (2, midway),
            (1, EffectTime::After(delay)),
            (3, EffectTime::AtHangUp),
            (2, EffectTime::Never),
        ];
        let (taken, odd) = match way {
            Way::Well | Way::Slow => (midway, None),
            Way::Endless => match choices.weighted(&endless) {
                EffectTime::Never => (EffectTime::Never, Some(Odd::Cut)),
                taken => (taken, None),
            },
            Way::Cut => (or_never, Some(Odd::Cut)),
            Way::Odd => (or_never, Some(odd)),
        };
        Self { taken, delay, odd }
    }
}

/// What becomes of a payment if its request is accepted.
#[derive(Clone, Debug)]
pub struct Life {
    pub entry: Entry,
    pub code: CodeRule,
    pub ending: PaymentEnd,
    /// From the acceptance, or the right code, until the end.
    pub ends_after: Millis,
    /// How long queries still show the state before the end.
    pub lag: Millis,
    /// How long after the acceptance queries still know nothing of it.
    pub unseen: Millis,
    /// How many of a thousand queries reach a part of the rail that has not heard of it.
    pub forgotten: u64,
    pub debited: DebitedAmount,
    /// How long after a failure was shown the payer is debited after all.
    pub late_after: Option<Millis>,
    /// How long after success was shown the payer gets the money back.
    pub reversed_after: Option<Millis>,
    /// A later request with the same reference is accepted too, and debits once more: Hubtel does
    /// not say that it refuses one.
    pub debits_again: bool,
    /// Calls back as soon as the request is accepted.
    pub calls_early: bool,
    /// After the end.
    pub calls: Vec<Millis>,
    /// After late money.
    pub late_calls: Vec<Millis>,
    pub strays: Vec<Stray>,
    /// Bits that decide what the contracts leave open: strings or numbers, PUT or POST, which
    /// word.
    pub shape: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Prompt,
    /// Debited at once.
    Instant,
    Code,
    /// With one of the documented reasons.
    Refused(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRule {
    /// How long the network waits for it.
    pub window: Millis,
    /// The first wrong code is treated as expired.
    pub expires: bool,
    /// How many wrong codes end the payment.
    pub wrong_max: Option<u64>,
    /// The right code debits at once.
    pub is_instant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentEnd {
    Approved,
    Failed(Failure),
}

/// How much the payer pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebitedAmount {
    Asked,
    Less,
    More,
}

/// Callbacks that mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    UnknownReference,
    BadSignature,
}

/// MTN's refusals, each documented.
const MOMO_REFUSALS: &[(u64, &str)] = &[
    (3, "PAYER_NOT_FOUND"),
    (2, "SERVICE_UNAVAILABLE"),
    (1, "NOT_ALLOWED"),
];

/// Paystack's 400. With anything else it fails a charge at once.
pub const PROCESSOR_ERROR: &str = "processor_error";

const PAYSTACK_REFUSALS: &[(u64, &str)] = &[
    (2, PROCESSOR_ERROR),
    (2, "The mobile money account was not found"),
    (1, "The payer has insufficient funds"),
];

/// Hubtel's, each with its code first. A code of three digits is an HTTP status.
const HUBTEL_REFUSALS: &[(u64, &str)] = &[
    (3, "2001 The payer has insufficient funds"),
    (2, "2001 The account holder was not found"),
    (1, "2051 The number is not registered"),
    (1, "4000 Validation errors"),
    (1, "4070 The fees are not set"),
    (1, "4101 The keys or the scope are wrong"),
    (1, "4103 The channel is not permitted"),
    (1, "4105 The account does not match"),
    (1, "401 Unauthorized"),
    (1, "403 Forbidden"),
];

impl Life {
    /// Draws the life of a payment over `network`.
    pub fn draw(choices: &mut Choices, network: PayerNetwork) -> Self {
        let rail = network.rail();
        let (entry, code) = (entry(choices, network), code(choices));
        let ending = choices.weighted(&[
            (820, PaymentEnd::Approved),
            (55, PaymentEnd::Failed(Failure::Declined)),
            (45, PaymentEnd::Failed(Failure::Funds)),
            (15, PaymentEnd::Failed(Failure::Limit)),
            (65, PaymentEnd::Failed(Failure::TimedOut)),
        ]);
        let ends_after = ends_after(choices, ending, rail.window());
        let lag = match choices.below(1_000) {
            0..900 => 0,
            900..985 => choices.between(SECOND, 10 * MINUTE),
            _ => choices.between(HOUR, 20 * HOUR),
        };
        // For a while Hubtel may not know what it has just accepted.
        let is_unseen = choices.chance(if rail == Rail::Hubtel { 150 } else { 30 });
        let unseen = choices.between(SECOND, 20 * SECOND);
        let late_after = choices.between(HOUR / 10, 3 * HOUR);
        let late_after = choices.weighted(&[(1, late_after), (1, 32 * late_after)]);
        // Queries never say that it failed, so the money may also follow a callback at once.
        let soon_after = choices.between(SECOND, 5 * MINUTE);
        let late_after = match rail {
            Rail::Hubtel => choices.weighted(&[(1, soon_after), (1, late_after)]),
            Rail::Momo | Rail::Paystack => late_after,
        };
        let reversed_after = choices.between(HOUR / 2, 72 * HOUR);
        // MTN has no word for it.
        let is_reversed = rail != Rail::Momo && choices.chance(30);
        Self {
            entry,
            code,
            ending,
            ends_after,
            lag,
            unseen: if is_unseen { unseen } else { 0 },
            forgotten: choices.weighted(&[(92, 0), (8, 400)]),
            debited: choices.weighted(&[
                (985, DebitedAmount::Asked),
                (8, DebitedAmount::Less),
                (7, DebitedAmount::More),
            ]),
            late_after: choices.chance(150).then_some(late_after),
            reversed_after: is_reversed.then_some(reversed_after),
            debits_again: rail == Rail::Hubtel && choices.chance(500),
            calls_early: rail == Rail::Momo && choices.chance(40),
            calls: calls(choices),
            late_calls: calls(choices),
            strays: strays(choices),
            shape: choices.below(u64::MAX),
        }
    }
}

fn entry(choices: &mut Choices, network: PayerNetwork) -> Entry {
    let refusals = match network.rail() {
        Rail::Momo => MOMO_REFUSALS,
        Rail::Paystack => PAYSTACK_REFUSALS,
        Rail::Hubtel => HUBTEL_REFUSALS,
    };
    let refused = Entry::Refused(choices.weighted(refusals));
    match network {
        PayerNetwork::Momo => choices.weighted(&[(960, Entry::Prompt), (40, refused)]),
        PayerNetwork::Paystack => {
            choices.weighted(&[(860, Entry::Prompt), (100, Entry::Instant), (40, refused)])
        }
        PayerNetwork::PaystackTelecel => {
            choices.weighted(&[(910, Entry::Code), (50, Entry::Prompt), (40, refused)])
        }
        PayerNetwork::Hubtel => {
            choices.weighted(&[(910, Entry::Prompt), (30, Entry::Instant), (60, refused)])
        }
    }
}

fn code(choices: &mut Choices) -> CodeRule {
    CodeRule {
        window: choices.between(5 * MINUTE, 30 * MINUTE),
        expires: choices.chance(60),
        wrong_max: choices.weighted(&[(1, Some(3)), (1, None)]),
        is_instant: choices.chance(150),
    }
}

/// A payer may take until the network gives up, and some do.
fn ends_after(choices: &mut Choices, ending: PaymentEnd, window: Millis) -> Millis {
    let quick = choices.between(SECOND, 30 * SECOND);
    let slow = choices.between(30 * SECOND, window * 5 / 6);
    let last = choices.between(window - 5 * SECOND, window - 1);
    match ending {
        PaymentEnd::Failed(Failure::TimedOut) => window,
        _ => choices.weighted(&[(70, quick), (22, slow), (8, last)]),
    }
}

/// When a rail calls back, counted from what it calls about: never, once, or several times.
pub fn calls(choices: &mut Choices) -> Vec<Millis> {
    let soon = choices.between(0, 5 * SECOND);
    let late = choices.between(MINUTE, 6 * HOUR);
    let many = choices.between(2, 4);
    let many = (0..many).map(|_| choices.weighted(&[(3, 4 * SECOND), (1, 3 * MINUTE), (1, HOUR)]));
    let many: Vec<Millis> = many.collect();
    match choices.below(100) {
        0..25 => Vec::new(),
        25..75 => vec![soon],
        75..85 => vec![late],
        _ => many.iter().map(|pause| pause + soon).collect(),
    }
}

fn strays(choices: &mut Choices) -> Vec<Stray> {
    let stray = choices.weighted(&[(1, Stray::UnknownReference), (1, Stray::BadSignature)]);
    if choices.chance(30) {
        vec![stray]
    } else {
        Vec::new()
    }
}

/// A time during which a whole rail is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    from: Millis,
    to: Millis,
    fare: Fare,
}

/// Outages start and end within this time.
const OUTAGES_UNTIL: Millis = 4 * HOUR;

impl Outage {
    /// Draws a rail's outages. Most worlds have none.
    pub fn draw(seed: u64, rail: Rail) -> Vec<Self> {
        let mut choices = Choices::of(seed, &format!("outage {}", rail.name()));
        let count = choices.weighted(&[(75, 0), (20, 1), (5, 2)]);
        (0..count).map(|_| Self::draw_one(&mut choices)).collect()
    }

    fn draw_one(choices: &mut Choices) -> Self {
        let from = choices.below(OUTAGES_UNTIL - 2 * MINUTE);
        let minutes = choices.between(2 * MINUTE, 20 * MINUTE);
        let hours = choices.between(20 * MINUTE, OUTAGES_UNTIL);
        let length = choices.weighted(&[(3, minutes), (1, hours)]);
        let (delay, odd) = choices.weighted(&[
            (2, (2 * MINUTE, Odd::Cut)),
            (1, (50, Odd::Unavailable)),
            (1, (0, Odd::Cut)),
        ]);
        // Some rails still work behind a broken proxy.
        let taken = choices.weighted(&[(4, EffectTime::Never), (1, EffectTime::After(0))]);
        Self {
            from,
            to: (from + length).min(OUTAGES_UNTIL),
            fare: Fare {
                taken,
                delay,
                odd: Some(odd),
            },
        }
    }

    /// What calls go through while it lasts.
    pub fn fare_at(&self, now: Millis) -> Option<Fare> {
        (self.from..self.to).contains(&now).then_some(self.fare)
    }
}
