//! What the actors did and were told, which the checker holds the services to.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use rust_decimal::{Decimal, prelude::ToPrimitive as _};
use serde_json::Value;
use uuid::Uuid;

use crate::{driver::lock, time::Millis};

/// Everything that happened, as the actors saw it. Clones share it.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<HistoryRecord>>);

#[derive(Clone, Debug, Default)]
pub struct HistoryRecord {
    pub orders: Vec<Order>,
    pub codes: Vec<CodeEntry>,
    pub links: Vec<PaymentLink>,
    pub sessions: Vec<SessionTold>,
    pub reads: Vec<Read>,
    pub acts: Vec<Act>,
    pub spendings: Vec<Spending>,
    pub balances: Vec<BalanceRead>,
    /// Where payouts of a merchant were said to go, each with the merchant's number.
    pub payout_accounts: Vec<(usize, String)>,
    pub float_moves: Vec<FloatMove>,
}

/// One intention to debit one wallet. No two orders have the same number.
#[derive(Clone, Debug)]
pub struct Order {
    pub merchant: usize,
    pub phone: String,
    /// In GHS. `None` means whatever the checkout's page quoted.
    pub amount_minor: Option<i64>,
    /// Every attempt carries the same Idempotency-Key (of the API, or of the checkout's form).
    pub keyed: bool,
    /// Paid at the checkout of this session.
    pub session: Option<String>,
    pub tries: Vec<Try>,
}

/// One request for an order.
#[derive(Clone, Debug)]
pub struct Try {
    pub sent_at: Millis,
    pub told: RequestEnd,
}

/// One intention to send money out. No two of a merchant have the same amount of the same kind.
#[derive(Clone, Debug)]
pub struct Spending {
    pub merchant: usize,
    /// The charge that is refunded. `None` for a payout.
    pub refunds: Option<String>,
    /// In GHS. `None` means all that is left.
    pub amount_minor: Option<i64>,
    /// Every attempt carries the same Idempotency-Key.
    pub keyed: bool,
    pub tries: Vec<Try>,
}

/// What a merchant was told that it has.
#[derive(Clone, Copy, Debug)]
pub struct BalanceRead {
    pub at: Millis,
    pub merchant: usize,
    pub available_minor: i64,
}

/// What treasury paid into a float, as it was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct FloatMove {
    pub at: Millis,
    pub move_id: Uuid,
    pub amount_minor: i64,
}

/// How a request ended for its sender.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestEnd {
    /// No answer, or none yet.
    Nothing,
    /// An answer, with its body if that was JSON.
    Answer {
        at: Millis,
        status: u16,
        body: Value,
        retry_after: bool,
    },
}

/// A code that was entered for a charge, through the API or the checkout.
#[derive(Clone, Debug)]
pub struct CodeEntry {
    pub sent_at: Millis,
    pub reference: String,
    pub told: RequestEnd,
}

/// One intention to create a payment link. No two have the same description.
#[derive(Clone, Debug)]
pub struct PaymentLink {
    pub begun_at: Millis,
    pub description: String,
    pub keyed: bool,
    pub told: Vec<RequestEnd>,
}

/// A session that a merchant learnt of.
#[derive(Clone, Debug)]
pub struct SessionTold {
    pub merchant: usize,
    pub session_id: String,
}

/// A charge or a session as somebody read it.
#[derive(Clone, Debug)]
pub struct Read {
    pub asked_at: Millis,
    pub at: Millis,
    pub of: ReadSubject,
    pub status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadSubject {
    Charge(String),
    Session(String),
    /// A payout or a refund.
    Disbursement(String),
}

/// What an operator did, or may have done if the answer was lost.
#[derive(Clone, Debug)]
pub struct Act {
    pub at: Millis,
    pub reference: String,
    pub what: CaseDecision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseDecision {
    Settled,
    Failed,
    Refund,
    Release,
    /// Released although the session was credited otherwise too.
    Override,
}

/// Where an order's attempt is recorded.
#[derive(Clone, Copy, Debug)]
pub struct TryId(usize, usize);

impl History {
    pub fn order(&self, order: Order) -> usize {
        let mut record = lock(&self.0);
        record.orders.push(order);
        record.orders.len() - 1
    }

    pub fn sent(&self, order: usize, now: Millis) -> TryId {
        let mut record = lock(&self.0);
        let tries = record.orders.get_mut(order).map(|order| &mut order.tries);
        let tries = tries.expect("the order was written before");
        tries.push(Try {
            sent_at: now,
            told: RequestEnd::Nothing,
        });
        TryId(order, tries.len() - 1)
    }

    pub fn told(&self, TryId(order, number): TryId, told: RequestEnd) {
        let mut record = lock(&self.0);
        let order = record.orders.get_mut(order);
        let found = order.and_then(|order| order.tries.get_mut(number));
        found.expect("the try was written before").told = told;
    }

    pub fn code(&self, code: CodeEntry) {
        lock(&self.0).codes.push(code);
    }

    pub fn link(&self, link: PaymentLink) {
        lock(&self.0).links.push(link);
    }

    pub fn session(&self, told: SessionTold) {
        lock(&self.0).sessions.push(told);
    }

    pub fn read(&self, read: Read) {
        lock(&self.0).reads.push(read);
    }

    pub fn act(&self, act: Act) {
        lock(&self.0).acts.push(act);
    }

    pub fn spending(&self, spending: Spending) {
        lock(&self.0).spendings.push(spending);
    }

    pub fn balance(&self, read: BalanceRead) {
        lock(&self.0).balances.push(read);
    }

    pub fn payout_account(&self, merchant: usize, account: String) {
        lock(&self.0).payout_accounts.push((merchant, account));
    }

    pub fn float_move(&self, moved: FloatMove) {
        lock(&self.0).float_moves.push(moved);
    }

    /// The direct charges that merchants were told of: merchant, reference, amount.
    pub fn charges_told(&self) -> Vec<(usize, String, i64)> {
        let record = lock(&self.0);
        let told = record.orders.iter().filter_map(|order| {
            let told = order.tries.iter().map(|made| &made.told);
            let mut told = told.filter(|told| told.status() == Some(202));
            let reference = told.next()?.field("reference")?.to_owned();
            Some((order.merchant, reference, order.amount_minor?))
        });
        told.collect()
    }

    /// Whether somebody has read a charge as SETTLED.
    pub fn is_settled(&self, reference: &str) -> bool {
        let record = lock(&self.0);
        record.reads.iter().any(|read| {
            let is_it = matches!(&read.of, ReadSubject::Charge(of) if of == reference);
            is_it && read.status == "SETTLED"
        })
    }

    pub fn record(&self) -> HistoryRecord {
        lock(&self.0).clone()
    }
}

/// One line per event, in the order in which they happened.
impl fmt::Display for HistoryRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for order in &self.orders {
            let of = match &order.session {
                Some(session) => format!("of session {session}"),
                None => format!("of {:?} hundredths", order.amount_minor),
            };
            for made in &order.tries {
                let keyed = if order.keyed { "with" } else { "without" };
                let what = format!("order {} {of}, {keyed} a key: {}", order.phone, made.told);
                lines.push((made.sent_at, what));
            }
        }
        for code in &self.codes {
            lines.push((
                code.sent_at,
                format!("code for {}: {}", code.reference, code.told),
            ));
        }
        for link in &self.links {
            let told: Vec<String> = link.told.iter().map(ToString::to_string).collect();
            lines.push((
                link.begun_at,
                format!("{}: {}", link.description, told.join("; ")),
            ));
        }
        for read in &self.reads {
            lines.push((
                read.asked_at,
                format!("{:?} is read as {}", read.of, read.status),
            ));
        }
        for spending in &self.spendings {
            let what = match &spending.refunds {
                Some(reference) => format!("refund of {reference}"),
                None => format!("payout to merchant {}", spending.merchant),
            };
            for made in &spending.tries {
                let what = format!(
                    "{what}, {:?} hundredths: {}",
                    spending.amount_minor, made.told
                );
                lines.push((made.sent_at, what));
            }
        }
        for read in &self.balances {
            let what = format!(
                "merchant {} has {} hundredths",
                read.merchant, read.available_minor
            );
            lines.push((read.at, what));
        }
        for moved in &self.float_moves {
            let what = format!(
                "treasury pays {} hundredths into a float",
                moved.amount_minor
            );
            lines.push((moved.at, what));
        }
        for act in &self.acts {
            lines.push((
                act.at,
                format!("operator: {:?} of {}", act.what, act.reference),
            ));
        }
        lines.sort();
        for (at, what) in lines {
            writeln!(f, "{at:>9} ms  {what}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RequestEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Answer {
            at,
            status,
            retry_after,
            ..
        } = self
        else {
            return f.write_str("no answer");
        };
        write!(f, "{status}")?;
        for name in ["status", "code", "reference", "payout_id", "refund_id"] {
            if let Some(value) = self.field(name) {
                write!(f, " {value}")?;
            }
        }
        if *retry_after {
            f.write_str(", to be tried again")?;
        }
        write!(f, " (at {at} ms)")
    }
}

impl RequestEnd {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Nothing => None,
            Self::Answer { status, .. } => Some(*status),
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Answer { body, .. } => body.get(name)?.as_str(),
        }
    }

    /// Whether it says that this request started nothing (a 503 that may be retried at once; a
    /// refusal of the input, the key, or the rate).
    pub fn says_nothing_started(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Answer {
                status: 503,
                retry_after,
                ..
            } => *retry_after,
            Self::Answer { status, .. } => matches!(status, 400 | 401 | 403 | 429),
        }
    }
}

/// An amount in hundredths of the major unit in which it was told.
pub fn hundredths(amount: &Value) -> Option<i64> {
    let amount: Decimal = amount.to_string().parse().ok()?;
    (amount * Decimal::ONE_HUNDRED).to_i64()
}

/// A wallet's number that no other order has.
pub fn phone(number: u64) -> String {
    format!("024{:07}", number % 10_000_000)
}

/// A key that the same seed creates again.
pub fn key(drawn: u64) -> String {
    Uuid::from_u64_pair(drawn, !drawn).to_string()
}
