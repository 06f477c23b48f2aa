//! The only true book of debits, and what each payment will still go through. Pure: time is an
//! argument, and a payment moves only on request or by its own agenda.

use std::collections::{BTreeMap, HashMap};

use chassis::money::Money;

use crate::{
    choice::Choices,
    rails::{
        life::{DebitedAmount, Entry, Fare, Life, PROCESSOR_ERROR, PaymentEnd, Stray},
        payment::{Debit, Failure, PayerNetwork, Payment, Rail, RailMessage, Word},
    },
    time::{Millis, SECOND},
};

/// The code that Telecel accepts.
pub const RIGHT_CODE: &str = "123456";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Unknown,
    Code,
    Prompted,
    Succeeded,
    Failed(Failure),
    Reversed,
}

/// A request for a debit.
#[derive(Clone, Debug)]
pub struct DebitRequest {
    pub network: PayerNetwork,
    pub reference: String,
    pub phone: String,
    pub amount: Money,
    /// Path to call back, if the request had one.
    pub callback: Option<String>,
}

impl DebitRequest {
    pub fn key(&self) -> Key {
        (self.network.rail(), self.reference.clone())
    }
}

pub type Key = (Rail, String);

/// What an answer shows besides its word.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub reference: String,
    /// A wallet's number in E.164; for a transfer to a bank, the account's.
    pub phone: String,
    pub amount_minor: i64,
    pub currency: String,
    /// What the rail took from the float on top of a transfer.
    pub fee_minor: i64,
    pub shape: u64,
    pub callback: Option<String>,
}

struct BookEntry {
    payment: Payment,
    /// Its position among all payments that anybody heard of.
    place: usize,
    life: Option<Life>,
    stage: Stage,
    /// What queries see.
    shown: Stage,
    wrong_codes: u64,
    submitted_codes: u64,
    queries: u64,
    callback: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    CodeOver,
    End,
    Tell,
    Late,
    /// A second request with the same reference debits too.
    Again,
    Reverse,
    Call(Call),
}

/// A callback that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Real,
    Stray(Stray),
}

pub struct Book {
    seed: u64,
    records: BTreeMap<Key, BookEntry>,
    /// How many requests each phone has made.
    requests: HashMap<String, u64>,
    agenda: BTreeMap<(Millis, u64), (Key, Event)>,
    next_event: u64,
}

impl Book {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            records: BTreeMap::new(),
            requests: HashMap::new(),
            agenda: BTreeMap::new(),
            next_event: 0,
        }
    }

    /// All payments that anybody heard of, in order.
    pub fn payments(&self) -> Vec<Payment> {
        let mut records: Vec<&BookEntry> = self.records.values().collect();
        records.sort_by_key(|record| record.place);
        let payments = records.into_iter().map(|record| record.payment.clone());
        payments.collect()
    }

    /// From now on every part of the rails knows every payment.
    pub fn remember(&mut self) {
        let lives = self.records.values_mut();
        for life in lives.filter_map(|record| record.life.as_mut()) {
            life.forgotten = 0;
        }
    }

    /// When something next happens by itself.
    pub fn next_due(&self) -> Option<Millis> {
        self.agenda.first_key_value().map(|((due, _), _)| *due)
    }

    /// A request has arrived. Draws its effect, which it does not have yet.
    pub fn arrive(&mut self, asked: &DebitRequest, now: Millis) -> (Life, Fare) {
        let requests = self.requests.entry(asked.phone.clone()).or_default();
        *requests += 1;
        let actor = format!("rail {} {requests}", asked.phone);
        let mut choices = Choices::of(self.seed, &actor);
        let record = self.record(&asked.key());
        if record.stage == Stage::Unknown {
            record.ask(asked);
        }
        record.payment.asked_at.push(now);
        let life = Life::draw(&mut choices, asked.network);
        (life, Fare::of_request(&mut choices))
    }

    /// The request takes effect, unless an earlier one with the same reference has.
    pub fn take(&mut self, asked: &DebitRequest, life: Life, now: Millis) -> (Word, View) {
        let key = asked.key();
        let record = self.record(&key);
        if record.stage != Stage::Unknown && !life.debits_again {
            return (Word::Duplicate409, record.view());
        }
        if record.stage != Stage::Unknown {
            return self.take_again(&key, &life, now);
        }
        record.ask(asked);
        let entry = life.entry;
        if let Entry::Refused(words) = entry {
            // What a rail did not even try may be requested again; Paystack keeps what failed, and
            // Hubtel what the payer's network refused.
            let is_kept = match record.payment.rail {
                Rail::Momo => false,
                Rail::Paystack => words != PROCESSOR_ERROR,
                Rail::Hubtel => words.starts_with('2'),
            };
            if is_kept {
                record.move_to(Stage::Failed(Failure::AtOnce(words)));
            }
            return (Word::Refused(words), record.view());
        }
        record.payment.taken_at.push(now);
        let soon = now + life.shape % (2 * SECOND);
        let (ends_after, code) = (life.ends_after, life.code);
        let mut calls: Vec<Call> = life.strays.iter().copied().map(Call::Stray).collect();
        if life.calls_early {
            calls.push(Call::Real);
        }
        record.life = Some(life);
        for call in calls {
            self.plan(soon, &key, Event::Call(call));
        }
        let word = match entry {
            Entry::Instant => {
                if key.0 == Rail::Hubtel {
                    // It says `Unpaid` until it says `Paid`.
                    self.record(&key).move_to(Stage::Prompted);
                }
                self.conclude(&key, PaymentEnd::Approved, now)
            }
            Entry::Code => {
                self.record(&key).move_to(Stage::Code);
                self.plan(now + code.window, &key, Event::CodeOver);
                Word::CodeWanted
            }
            Entry::Prompt | Entry::Refused(_) => self.prompt(&key, now + ends_after),
        };
        (word, self.record(&key).view())
    }

    /// A second payment under the same reference.
    fn take_again(&mut self, key: &Key, life: &Life, now: Millis) -> (Word, View) {
        self.record(key).payment.taken_at.push(now);
        if life.ending == PaymentEnd::Approved {
            self.plan(now + life.ends_after, key, Event::Again);
        }
        (Word::Accepted, self.record(key).view())
    }

    /// A code has arrived. It has no effect yet.
    pub fn code_arrives(&mut self, key: &Key) -> Fare {
        let record = self.record(key);
        record.submitted_codes += 1;
        let actor = format!("code {} {}", record.payment.phone, record.submitted_codes);
        Fare::of_code(&mut Choices::of(self.seed, &actor))
    }

    pub fn submit_code(&mut self, key: &Key, code: &str, now: Millis) -> (Word, View) {
        let word = self.judge_code(key, code, now);
        (word, self.record(key).view())
    }

    fn judge_code(&mut self, key: &Key, code: &str, now: Millis) -> Word {
        let record = self.record(key);
        let Some(life) = record.life.as_ref().filter(|_| record.stage == Stage::Code) else {
            return Word::CodeNotAwaited;
        };
        let (rules, ends_after) = (life.code, life.ends_after);
        if code == RIGHT_CODE {
            if rules.is_instant {
                return self.conclude(key, PaymentEnd::Approved, now);
            }
            return self.prompt(key, now + ends_after);
        }
        record.wrong_codes += 1;
        let failure = if rules.expires {
            Failure::CodeExpired
        } else if rules.wrong_max == Some(record.wrong_codes) {
            Failure::WrongCodes
        } else {
            return Word::CodeWanted;
        };
        record.payment.decided_at = Some(now);
        record.move_to(Stage::Failed(failure));
        Word::Failed(failure.words(Rail::Paystack, 0))
    }

    /// A query has arrived. Draws how it is answered.
    pub fn query_arrives(&mut self, key: &Key) -> (Choices, Fare) {
        let record = self.record(key);
        record.queries += 1;
        let actor = format!("query {} {}", record.payment.phone, record.queries);
        let mut choices = Choices::of(self.seed, &actor);
        let fare = Fare::of_query(&mut choices);
        (choices, fare)
    }

    /// What the rail says about a reference. `checks`: the query is Paystack's check of a pending
    /// charge.
    pub fn look(
        &mut self,
        key: &Key,
        checks: bool,
        mut choices: Choices,
        now: Millis,
    ) -> (Word, View) {
        let record = self.record(key);
        let seen_from = record.payment.taken_at.first().copied().unwrap_or_default()
            + record.life.as_ref().map_or(0, |life| life.unseen);
        let forgotten = record.life.as_ref().map_or(0, |life| life.forgotten);
        let word = match (record.shown, record.payment.rail) {
            (Stage::Unknown, _) => Word::Unknown404,
            _ if choices.chance(forgotten) => Word::Unknown404,
            (Stage::Code | Stage::Prompted, _) if now < seen_from => Word::Unknown404,
            (Stage::Prompted, Rail::Momo) => Word::Pending,
            // It has one word for both.
            (Stage::Prompted | Stage::Failed(_), Rail::Hubtel) => Word::Abandoned,
            (Stage::Prompted, Rail::Paystack) => {
                choices.weighted(&[(9, Word::Pending), (1, Word::Abandoned)])
            }
            (Stage::Code, _) if checks => {
                choices.weighted(&[(9, Word::CodeWanted), (1, Word::Pending)])
            }
            (Stage::Code, _) => choices.weighted(&[
                (6, Word::Pending),
                (2, Word::CodeWanted),
                (1, Word::Abandoned),
            ]),
            (Stage::Succeeded, _) => Word::Success,
            (Stage::Reversed, _) => Word::Reversed,
            (Stage::Failed(failure), rail) => record.last_word(rail, failure),
        };
        (word, record.view())
    }

    /// What a callback about a payment says now, or `None` if this rail sends none.
    pub fn call(&mut self, key: &Key, call: Call) -> Option<(Word, View)> {
        let record = self.record(key);
        let word = match (record.stage, record.payment.rail) {
            (Stage::Succeeded | Stage::Reversed, _) => Word::Success,
            (_, Rail::Paystack) if call == Call::Real => return None,
            (Stage::Failed(failure), rail) => record.last_word(rail, failure),
            (Stage::Unknown | Stage::Code | Stage::Prompted, _) => Word::Pending,
        };
        Some((word, record.view()))
    }

    pub fn say(&mut self, key: &Key, said: RailMessage) {
        self.record(key).payment.said.push(said);
    }

    /// Does what is due by itself. Returns the callbacks to make.
    pub fn pass(&mut self, now: Millis) -> Vec<(Key, Call)> {
        let mut calls = Vec::new();
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (key, event) = entry.remove();
            if let Event::Call(call) = event {
                calls.push((key, call));
            } else {
                self.happen(&key, event, now);
            }
        }
        calls
    }

    fn happen(&mut self, key: &Key, event: Event, now: Millis) {
        let record = self.record(key);
        match event {
            Event::CodeOver if record.stage == Stage::Code => {
                record.payment.decided_at = Some(now);
                record.move_to(Stage::Failed(Failure::CodeExpired));
            }
            Event::End => {
                let ending = record.life.as_ref().map(|life| life.ending);
                self.conclude(key, ending.expect("what ends has lived"), now);
            }
            Event::Tell => record.shown = record.stage,
            Event::Late => {
                record.debit(now);
                record.move_to(Stage::Succeeded);
                let life = record.life.as_ref().expect("what comes late has lived");
                let calls = life.late_calls.clone();
                self.plan_calls(key, &calls, now);
            }
            Event::Again => {
                record.debit(now);
                record.move_to(Stage::Succeeded);
            }
            Event::Reverse => {
                record.payment.reversed_at = Some(now);
                record.move_to(Stage::Reversed);
            }
            Event::CodeOver | Event::Call(_) => {}
        }
    }

    fn prompt(&mut self, key: &Key, ends_at: Millis) -> Word {
        self.record(key).move_to(Stage::Prompted);
        self.plan(ends_at, key, Event::End);
        Word::Accepted
    }

    /// The payer, or the network on the payer's behalf, has decided.
    fn conclude(&mut self, key: &Key, ending: PaymentEnd, now: Millis) -> Word {
        let record = self.record(key);
        let life = record.life.clone().expect("what concludes has lived");
        record.payment.decided_at = Some(now);
        // A payment that was never pending is not shown as pending.
        let lag = if record.stage == Stage::Prompted {
            life.lag
        } else {
            0
        };
        let (after, event, word) = match ending {
            PaymentEnd::Approved => {
                record.debit(now);
                record.stage = Stage::Succeeded;
                (life.reversed_after, Event::Reverse, Word::Success)
            }
            PaymentEnd::Failed(failure) => {
                record.stage = Stage::Failed(failure);
                let word = record.last_word(key.0, failure);
                (life.late_after, Event::Late, word)
            }
        };
        if lag == 0 {
            record.shown = record.stage;
        } else {
            self.plan(now + lag, key, Event::Tell);
        }
        if let Some(after) = after {
            self.plan(now + lag + after, key, event);
        }
        if key.0 != Rail::Paystack || ending == PaymentEnd::Approved {
            self.plan_calls(key, &life.calls, now);
        }
        word
    }

    fn plan_calls(&mut self, key: &Key, after: &[Millis], now: Millis) {
        for after in after {
            self.plan(now + after, key, Event::Call(Call::Real));
        }
    }

    fn plan(&mut self, due: Millis, key: &Key, event: Event) {
        self.next_event += 1;
        self.agenda
            .insert((due, self.next_event), (key.clone(), event));
    }

    fn record(&mut self, key: &Key) -> &mut BookEntry {
        let place = self.records.len();
        let record = self.records.entry(key.clone());
        record.or_insert_with(|| BookEntry::unknown(key, place))
    }
}

impl BookEntry {
    fn unknown((rail, reference): &Key, place: usize) -> Self {
        Self {
            payment: Payment {
                rail: *rail,
                reference: reference.clone(),
                phone: String::new(),
                amount_minor: 0,
                currency: String::new(),
                asked_at: Vec::new(),
                taken_at: Vec::new(),
                debits: Vec::new(),
                decided_at: None,
                reversed_at: None,
                said: Vec::new(),
            },
            place,
            life: None,
            stage: Stage::Unknown,
            shown: Stage::Unknown,
            wrong_codes: 0,
            submitted_codes: 0,
            queries: 0,
            callback: None,
        }
    }

    fn ask(&mut self, asked: &DebitRequest) {
        self.callback.clone_from(&asked.callback);
        self.payment.phone.clone_from(&asked.phone);
        self.payment.amount_minor = asked.amount.minor_units();
        self.payment.currency = asked.amount.currency().code().to_owned();
    }

    fn move_to(&mut self, stage: Stage) {
        self.stage = stage;
        self.shown = stage;
    }

    fn debit(&mut self, at: Millis) {
        let asked = self.payment.amount_minor;
        let debited = self
            .life
            .as_ref()
            .map_or(DebitedAmount::Asked, |life| life.debited);
        let amount_minor = match debited {
            DebitedAmount::Asked => asked,
            DebitedAmount::Less => (asked / 2).max(1),
            DebitedAmount::More => asked + 100,
        };
        self.payment.debits.push(Debit { at, amount_minor });
    }

    fn last_word(&self, rail: Rail, failure: Failure) -> Word {
        let shape = self.life.as_ref().map_or(0, |life| life.shape);
        let is_silence = matches!(failure, Failure::TimedOut | Failure::CodeExpired);
        // A payment whose code was found expired was not abandoned.
        if rail == Rail::Paystack && is_silence && self.wrong_codes == 0 && shape & 8 == 0 {
            return Word::Abandoned;
        }
        Word::Failed(failure.words(rail, shape))
    }

    fn view(&self) -> View {
        let debited = self.payment.debits.last().map(|debit| debit.amount_minor);
        View {
            reference: self.payment.reference.clone(),
            phone: self.payment.phone.clone(),
            amount_minor: debited.unwrap_or(self.payment.amount_minor),
            currency: self.payment.currency.clone(),
            fee_minor: 0,
            shape: self.life.as_ref().map_or(0, |life| life.shape),
            callback: self.callback.clone(),
        }
    }
}
