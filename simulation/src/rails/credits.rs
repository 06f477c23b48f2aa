//! The only true book of credits, each rail's float, and what each transfer will still go through.
//! Pure: time is an argument, and a transfer moves only on request or by its own agenda.

pub mod life;

use std::collections::{BTreeMap, HashMap};

use chassis::money::Money;

use crate::{
    choice::Choices,
    rails::{
        book::{Key, View},
        life::Fare,
        payment::{Rail, RailMessage, Word},
        transfer::{Credit, Float, Transfer},
    },
    time::{Millis, SECOND},
};
use life::{CreditedAmount, TransferEnd, TransferLife};

/// What Paystack takes for a transfer to a wallet, and to a bank.
const WALLET_FEE_MINOR: i64 = 100;
const BANK_FEE_MINOR: i64 = 800;

/// What Hubtel takes for a transfer.
const HUBTEL_FEE_MINOR: i64 = 65;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unknown,
    Pending,
    Paid,
    Failed(&'static str),
    Reversed,
}

/// A request for a transfer.
#[derive(Clone, Debug)]
pub struct CreditRequest {
    pub rail: Rail,
    pub reference: String,
    /// A wallet's number in E.164, or a bank account's.
    pub account: String,
    pub amount: Money,
    /// Path to call back, if the request had one.
    pub callback: Option<String>,
}

impl CreditRequest {
    pub fn key(&self) -> Key {
        (self.rail, self.reference.clone())
    }

    fn fee_minor(&self) -> i64 {
        match self.rail {
            // It bills its fees separately.
            Rail::Momo => 0,
            Rail::Paystack if self.account.starts_with('+') => WALLET_FEE_MINOR,
            Rail::Paystack => BANK_FEE_MINOR,
            Rail::Hubtel => HUBTEL_FEE_MINOR,
        }
    }
}

struct CreditEntry {
    transfer: Transfer,
    /// Its position among all transfers that anybody heard of.
    place: usize,
    life: Option<TransferLife>,
    stage: Stage,
    /// What queries see.
    shown: Stage,
    /// What the rail takes from the float on top if it pays.
    fee_minor: i64,
    callback: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    End,
    Tell,
    Late,
    /// A second request with the same reference pays too.
    Again,
    Reverse,
    Call,
}

pub struct Credits {
    seed: u64,
    records: BTreeMap<Key, CreditEntry>,
    /// How many calls of each kind there have been.
    calls: HashMap<String, u64>,
    floats: BTreeMap<Rail, Float>,
    agenda: BTreeMap<(Millis, u64), (Key, Event)>,
    next_event: u64,
}

impl Credits {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            records: BTreeMap::new(),
            calls: HashMap::new(),
            floats: BTreeMap::new(),
            agenda: BTreeMap::new(),
            next_event: 0,
        }
    }

    /// All transfers that anybody heard of, in order.
    pub fn transfers(&self) -> Vec<Transfer> {
        let mut records: Vec<&CreditEntry> = self.records.values().collect();
        records.sort_by_key(|record| record.place);
        let transfers = records.into_iter().map(|record| record.transfer.clone());
        transfers.collect()
    }

    pub fn float(&self, rail: Rail) -> Float {
        self.floats.get(&rail).copied().unwrap_or_default()
    }

    /// Treasury pays into a float.
    pub fn fill(&mut self, rail: Rail, amount_minor: i64) {
        let float = self.floats.entry(rail).or_default();
        float.filled_minor += amount_minor;
        float.held_minor += amount_minor;
    }

    /// From now on every part of the rails knows every transfer.
    pub fn remember(&mut self) {
        let lives = self.records.values_mut();
        for life in lives.filter_map(|record| record.life.as_mut()) {
            life.forgotten = 0;
            life.unseen = 0;
        }
    }

    /// When something next happens by itself.
    pub fn next_due(&self) -> Option<Millis> {
        self.agenda.first_key_value().map(|((due, _), _)| *due)
    }

    /// Whether something is still planned for a transfer.
    pub fn may_change(&self, key: &Key) -> bool {
        self.agenda.values().any(|(planned, _)| planned == key)
    }

    /// The choices about the next call of this kind.
    pub fn draw(&mut self, kind: &str) -> Choices {
        let calls = self.calls.entry(kind.to_owned()).or_default();
        *calls += 1;
        Choices::of(self.seed, &format!("{kind} {calls}"))
    }

    /// A request has arrived. Draws its effect, which it does not have yet.
    pub fn arrive(&mut self, asked: &CreditRequest, now: Millis) -> (TransferLife, Fare) {
        let mut choices = self.draw(&format!("transfer {}", asked.account));
        let record = self.record(&asked.key());
        if record.stage == Stage::Unknown {
            record.ask(asked);
        }
        record.transfer.asked_at.push(now);
        let life = TransferLife::draw(&mut choices, asked.rail);
        (life, Fare::of_request(&mut choices))
    }

    /// The request takes effect, unless an earlier one with the same reference has.
    pub fn take(&mut self, asked: &CreditRequest, life: TransferLife, now: Millis) -> (Word, View) {
        let key = asked.key();
        let held = self.float(asked.rail).held_minor;
        let record = self.record(&key);
        if record.stage != Stage::Unknown && !life.pays_again {
            return (Word::Duplicate409, record.view());
        }
        if record.stage != Stage::Unknown {
            record.transfer.taken_at.push(now);
            let view = record.view();
            self.plan(now + life.ends_after, &key, Event::Again);
            return (Word::Accepted, view);
        }
        record.ask(asked);
        let wanted = asked.amount.minor_units() + record.fee_minor;
        let is_checked = asked.rail.takes_first() || life.checks_float;
        let refused = match life.refused {
            None if is_checked && held < wanted => Some(asked.rail.float_empty()),
            refused => refused,
        };
        if let Some(words) = refused {
            return (Word::Refused(words), record.view());
        }
        record.transfer.taken_at.push(now);
        record.stage = Stage::Pending;
        record.shown = Stage::Pending;
        let ends_at = now + life.ends_after;
        record.life = Some(life);
        if asked.rail.takes_first() {
            self.withdraw(&key);
        }
        self.plan(ends_at, &key, Event::End);
        (Word::Accepted, self.record(&key).view())
    }

    /// What the rail says about a reference.
    pub fn look(&mut self, key: &Key, mut choices: Choices, now: Millis) -> (Word, View) {
        let record = self.record(key);
        let life = record.life.as_ref();
        let seen_from = record
            .transfer
            .taken_at
            .first()
            .copied()
            .unwrap_or_default()
            + life.map_or(0, |life| life.unseen);
        let forgotten = life.map_or(0, |life| life.forgotten);
        let word = match record.shown {
            Stage::Unknown => Word::Unknown404,
            _ if choices.chance(forgotten) || now < seen_from => Word::Unknown404,
            Stage::Pending => Word::Pending,
            Stage::Paid => Word::Success,
            Stage::Failed(words) => Word::Failed(words),
            Stage::Reversed => Word::Reversed,
        };
        (word, record.view())
    }

    /// What a callback about a transfer says now.
    pub fn call(&mut self, key: &Key) -> (Word, View) {
        let record = self.record(key);
        let word = match record.stage {
            Stage::Unknown | Stage::Pending => Word::Pending,
            Stage::Paid => Word::Success,
            Stage::Failed(words) => Word::Failed(words),
            Stage::Reversed => Word::Reversed,
        };
        (word, record.view())
    }

    pub fn say(&mut self, key: &Key, said: RailMessage) {
        self.record(key).transfer.said.push(said);
    }

    /// Does what is due by itself. Returns the callbacks to make.
    pub fn pass(&mut self, now: Millis) -> Vec<Key> {
        let mut calls = Vec::new();
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (key, event) = entry.remove();
            match event {
                Event::Call => calls.push(key),
                Event::End => self.end(&key, now),
                Event::Tell => {
                    let record = self.record(&key);
                    record.shown = record.stage;
                }
                Event::Late | Event::Again => self.pay_late(&key, now),
                Event::Reverse => self.reverse(&key, now),
            }
        }
        calls
    }

    fn end(&mut self, key: &Key, now: Millis) {
        let held = self.float(key.0).held_minor;
        let record = self.record(key);
        let life = record.life.clone().expect("what ends has lived");
        let wanted = record.transfer.amount_minor + record.fee_minor;
        let ending = match life.ending {
            TransferEnd::Paid if !key.0.takes_first() && held < wanted => {
                TransferEnd::Failed(key.0.float_empty())
            }
            ending => ending,
        };
        let (after, event) = match ending {
            TransferEnd::Paid => {
                if !key.0.takes_first() {
                    self.withdraw(key);
                }
                self.credit(key, now);
                self.record(key).stage = Stage::Paid;
                (life.reversed_after, Event::Reverse)
            }
            TransferEnd::Failed(words) => {
                record.stage = Stage::Failed(words);
                if key.0.takes_first() {
                    self.give_back(key);
                }
                (life.late_after, Event::Late)
            }
        };
        if life.lag == 0 {
            let record = self.record(key);
            record.shown = record.stage;
        } else {
            self.plan(now + life.lag, key, Event::Tell);
        }
        if let Some(after) = after {
            self.plan(now + life.lag + after + SECOND, key, event);
        }
        self.plan_calls(key, &life.calls, now);
    }

    /// The account is credited after a failure, or once more, if the float still covers it.
    fn pay_late(&mut self, key: &Key, now: Millis) {
        let held = self.float(key.0).held_minor;
        let record = self.record(key);
        if held < record.transfer.amount_minor + record.fee_minor {
            return;
        }
        let life = record.life.clone().expect("what comes late has lived");
        self.withdraw(key);
        self.credit(key, now);
        let record = self.record(key);
        record.stage = Stage::Paid;
        record.shown = Stage::Paid;
        self.plan_calls(key, &life.late_calls, now);
        if let Some(after) = life.reversed_after {
            self.plan(now + after + SECOND, key, Event::Reverse);
        }
    }

    /// The money is in the float again. What was taken on top is not.
    fn reverse(&mut self, key: &Key, now: Millis) {
        let record = self.record(key);
        let paid_minor = record.transfer.paid_minor();
        record.transfer.reversed_at = Some(now);
        record.stage = Stage::Reversed;
        record.shown = Stage::Reversed;
        let life = record.life.clone().expect("what is reversed has lived");
        self.floats.entry(key.0).or_default().held_minor += paid_minor;
        self.plan_calls(key, &life.late_calls, now);
    }

    /// Takes a transfer's amount and fee from the float.
    fn withdraw(&mut self, key: &Key) {
        let record = self.record(key);
        record.transfer.fee_minor = record.fee_minor;
        let taken = record.transfer.amount_minor + record.fee_minor;
        self.floats.entry(key.0).or_default().held_minor -= taken;
    }

    /// What was withdrawn for a transfer that failed is in the float again.
    fn give_back(&mut self, key: &Key) {
        let record = self.record(key);
        let given = record.transfer.amount_minor + record.transfer.fee_minor;
        record.transfer.fee_minor = 0;
        self.floats.entry(key.0).or_default().held_minor += given;
    }

    /// The account gets what was withdrawn for it, or less, or more.
    fn credit(&mut self, key: &Key, now: Millis) {
        let held = self.float(key.0).held_minor;
        let record = self.record(key);
        let asked = record.transfer.amount_minor;
        let credited = record.life.as_ref().map(|life| life.credited);
        let amount_minor = match credited {
            Some(CreditedAmount::Less) => (asked / 2).max(1),
            Some(CreditedAmount::More) if held >= 100 => asked + 100,
            _ => asked,
        };
        record.transfer.credits.push(Credit {
            at: now,
            amount_minor,
        });
        self.floats.entry(key.0).or_default().held_minor -= amount_minor - asked;
    }

    fn plan_calls(&mut self, key: &Key, after: &[Millis], now: Millis) {
        for after in after {
            self.plan(now + after, key, Event::Call);
        }
    }

    fn plan(&mut self, due: Millis, key: &Key, event: Event) {
        self.next_event += 1;
        self.agenda
            .insert((due, self.next_event), (key.clone(), event));
    }

    fn record(&mut self, key: &Key) -> &mut CreditEntry {
        let place = self.records.len();
        let record = self.records.entry(key.clone());
        record.or_insert_with(|| CreditEntry::unknown(key, place))
    }
}

impl CreditEntry {
    fn unknown((rail, reference): &Key, place: usize) -> Self {
        Self {
            transfer: Transfer {
                rail: *rail,
                reference: reference.clone(),
                account: String::new(),
                amount_minor: 0,
                currency: String::new(),
                asked_at: Vec::new(),
                taken_at: Vec::new(),
                credits: Vec::new(),
                fee_minor: 0,
                reversed_at: None,
                said: Vec::new(),
            },
            place,
            life: None,
            stage: Stage::Unknown,
            shown: Stage::Unknown,
            fee_minor: 0,
            callback: None,
        }
    }

    fn ask(&mut self, asked: &CreditRequest) {
        self.callback.clone_from(&asked.callback);
        self.fee_minor = asked.fee_minor();
        self.transfer.account.clone_from(&asked.account);
        self.transfer.amount_minor = asked.amount.minor_units();
        self.transfer.currency = asked.amount.currency().code().to_owned();
    }

    fn view(&self) -> View {
        let credited = self.transfer.credits.last();
        let credited = credited.map(|credit| credit.amount_minor);
        View {
            reference: self.transfer.reference.clone(),
            phone: self.transfer.account.clone(),
            amount_minor: credited.unwrap_or(self.transfer.amount_minor),
            currency: self.transfer.currency.clone(),
            shape: self.life.as_ref().map_or(0, |life| life.shape),
            fee_minor: self.transfer.fee_minor,
            callback: self.callback.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
