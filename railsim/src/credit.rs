//! One credit as its network sees it: what was requested, its state, and what happens next.
//!
//! Pure: only events change it, and the time only decides what is due.

pub mod story;

use std::time::Duration;

use chassis::{
    clock::Timestamp,
    money::{Currency, Money},
};
use serde::{Deserialize, Serialize};

use crate::{call_plan::CallPlan, rail::Rail, request::Network};

use story::{Failure, Story};

/// How long after a query first reported it a failure turns into a payment (story 210), and a
/// payment is taken back (story 211).
const CHANGE_AFTER: Duration = Duration::from_secs(5);

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What a client asked its rail to pay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreditRequest {
    pub rail: Rail,
    /// Chosen by the client: `X-Reference-Id`, Paystack's `reference` or Hubtel's
    /// `ClientReference`.
    pub reference: String,
    pub payee: Payee,
    pub amount_minor: i64,
    #[serde(with = "crate::as_text")]
    pub currency: Currency,
    pub details: CreditDetails,
    pub callback_url: Option<String>,
}

/// An account that a rail can pay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payee {
    Wallet {
        network: Network,
        /// In E.164 form.
        phone: String,
    },
    Bank {
        code: String,
        number: String,
    },
}

/// Fields that each API returns as it received them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CreditDetails {
    Momo {
        external_id: String,
        payer_message: String,
        payee_note: String,
    },
    Paystack {
        reason: String,
        recipient_code: String,
        recipient_name: String,
    },
    Hubtel {
        description: String,
    },
}

impl Payee {
    /// The wallet's number in E.164 form, or the bank account's.
    pub fn account(&self) -> &str {
        match self {
            Self::Wallet { phone, .. } => phone,
            Self::Bank { number, .. } => number,
        }
    }

    pub fn is_bank(&self) -> bool {
        matches!(self, Self::Bank { .. })
    }
}

/// Something that happened to a credit; a line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A request with its reference, while the rail has not taken one.
    Requested {
        request: Box<CreditRequest>,
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// A request with the reference of a credit that was taken.
    RequestedAgain,
    /// From now on the reference is used.
    Taken {
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// Money reached the account.
    Credited {
        amount_minor: i64,
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    Failed {
        failure: Failure,
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// The money left the account again.
    Reversed {
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// A query reported how it ended. Recorded for stories 210 and 211 only.
    Told {
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// A callback is done: answered, or about to be sent by a rail that sends it only once.
    CalledBack,
    CallbackFailed {
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
}

/// Where a credit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every request was refused or lost. Queries do not find it.
    Untaken,
    Pending,
    Credited,
    Failed(Failure),
    Reversed,
}

/// A step that a credit takes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Credit,
    Fail(Failure),
    Reverse,
    CallBack,
}

/// One credit, with as much of its history as matters.
#[derive(Clone, Debug)]
pub struct Credit {
    pub request: CreditRequest,
    pub story: Story,
    /// The network's own number for it, from its position in the book.
    pub number: u64,
    pub created_at: Timestamp,
    /// When it entered its state.
    pub updated_at: Timestamp,
    pub state: State,
    /// How many requests had its reference.
    pub requests: u32,
    /// How many times the account was credited for it. Anything but 0 or 1 means a broken network.
    pub credits: u32,
    /// The sum of those credits, without what was taken back.
    pub credited_minor: i64,
    /// What it has taken from the rail's float, with the rail's fee.
    pub spent_minor: i64,
    told: Option<Timestamp>,
    calls: CallPlan,
}

impl Credit {
    pub fn new(request: CreditRequest, number: u64, at: Timestamp) -> Self {
        Self {
            story: Story::of(request.rail, request.payee.account()),
            request,
            number,
            created_at: at,
            updated_at: at,
            state: State::Untaken,
            requests: 1,
            credits: 0,
            credited_minor: 0,
            spent_minor: 0,
            told: None,
            calls: CallPlan::default(),
        }
    }

    /// Applies an event after the first request. Counts every credit, even one that should not be.
    pub fn apply(&mut self, event: &Event) {
        let pays = self.request.rail.pays();
        match event {
            Event::Requested { request, .. } => {
                self.requests += 1;
                self.story = Story::of(request.rail, request.payee.account());
                self.request = (**request).clone();
            }
            Event::RequestedAgain => self.requests += 1,
            Event::Taken { at } => {
                self.enter(State::Pending, *at);
                if pays.takes_first {
                    self.spent_minor = self.cost();
                }
            }
            Event::Credited { amount_minor, at } => {
                self.credits += 1;
                self.credited_minor = self.credited_minor.saturating_add(*amount_minor);
                self.spent_minor = amount_minor.saturating_add(self.fee_minor());
                self.enter(State::Credited, *at);
                self.plan_callbacks(self.story.callbacks(), *at);
            }
            Event::Failed { failure, at } => {
                self.spent_minor = 0;
                self.enter(State::Failed(*failure), *at);
                // A rail that calls back once saves that for the money that it pays late.
                let is_last = self.story.ending() != Err(Failure::GaveUp);
                let tells = pays.repeats_reports || is_last;
                self.plan_callbacks(u32::from(tells), *at);
            }
            Event::Reversed { at } => {
                self.credited_minor = 0;
                self.spent_minor = self.fee_minor();
                self.enter(State::Reversed, *at);
                self.plan_callbacks(1, *at);
            }
            Event::Told { at } => self.told = Some(*at),
            Event::CalledBack => self.calls.done(),
            Event::CallbackFailed { at } => self.calls.failed(*at),
        }
    }

    fn enter(&mut self, state: State, at: Timestamp) {
        self.state = state;
        self.updated_at = at;
        self.told = None;
    }

    fn plan_callbacks(&mut self, count: u32, at: Timestamp) {
        if self.request.callback_url.is_some() {
            self.calls.plan(count, at);
        }
    }

    /// Sets whether a callback is being sent.
    pub fn set_calling(&mut self, calling: bool) {
        self.calls.set_calling(calling);
    }

    /// The next step that this credit takes by itself, and when. A rail takes `delay` to pay.
    pub fn next(&self, delay: Duration) -> Option<(Timestamp, Step)> {
        let callback = self.calls.next().map(|due| (due, Step::CallBack));
        match (self.next_change(delay), callback) {
            (Some(change), Some(callback)) if change.0 < callback.0 => Some(change),
            (change, callback) => callback.or(change),
        }
    }

    fn next_change(&self, delay: Duration) -> Option<(Timestamp, Step)> {
        let after_told = |step| self.told.map(|told| (told + CHANGE_AFTER, step));
        match (self.state, self.story) {
            (State::Pending, story) => {
                let step = story.ending().map_or_else(Step::Fail, |()| Step::Credit);
                Some((self.updated_at + delay, step))
            }
            (State::Failed(Failure::GaveUp), _) => after_told(Step::Credit),
            (State::Credited, Story::TakenBack) => after_told(Step::Reverse),
            // Late enough for somebody to have decided who bears it.
            (State::Credited, Story::TakenBackLate) => Some((self.updated_at + DAY, Step::Reverse)),
            (State::Untaken | State::Credited | State::Failed(_) | State::Reversed, _) => None,
        }
    }

    /// Whether it takes another step, now or once a query has reported its end.
    pub fn may_change(&self) -> bool {
        self.waits_to_be_told() || self.next_change(Duration::ZERO).is_some()
    }

    /// Whether a query that reports its end causes the next step.
    pub fn waits_to_be_told(&self) -> bool {
        let waits = match self.state {
            State::Failed(failure) => failure == Failure::GaveUp,
            State::Credited => self.story == Story::TakenBack,
            State::Untaken | State::Pending | State::Reversed => false,
        };
        waits && self.told.is_none()
    }

    /// The amount that the network pays and reports.
    pub fn reported(&self) -> Money {
        let asked = self.request.amount_minor;
        Money::new(self.story.pays(asked), self.request.currency)
    }

    /// What the rail takes from the float for it, in minor units.
    pub fn cost(&self) -> i64 {
        let amount_minor = self.reported().minor_units();
        amount_minor.saturating_add(self.fee_minor())
    }

    /// What the rail takes for it on top, in minor units.
    pub fn fee_minor(&self) -> i64 {
        let is_bank = self.request.payee.is_bank();
        self.request.rail.pays().fee_minor(is_bank)
    }
}
