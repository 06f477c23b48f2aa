//! One payment as its network sees it: what was requested, its state, and what happens next.
//!
//! Pure: only events change it, and the time only decides what is due.

use std::time::Duration;

use chassis::{clock::Timestamp, money::Money};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    call_plan::CallPlan,
    rail::Rail,
    request::PaymentRequest,
    story::{Ending, Failure, Story},
};

/// In story 010 the money arrives this long after a query first reported the payment as failed, or
/// as not paid although the payer's time was over.
const LATE_MONEY_AFTER: Duration = Duration::from_secs(5);

/// Something that happened to a payment; a line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first request with its reference.
    Requested {
        request: Box<PaymentRequest>,
        #[serde(with = "crate::as_text")]
        prompt: Uuid,
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// A later request with the same reference.
    RequestedAgain,
    /// The payer's code was right.
    Prompted {
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// Money left the wallet.
    Debited {
        amount_minor: i64,
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    Failed {
        failure: Failure,
        #[serde(with = "crate::as_text")]
        at: Timestamp,
    },
    /// A query reported the payment as failed. Recorded for story 010 only.
    ToldFailed {
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

/// Where a payment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Refused on request. Queries do not find it.
    Refused,
    AwaitingCode,
    /// The prompt is on the handset.
    Prompted {
        since: Timestamp,
    },
    Succeeded {
        at: Timestamp,
    },
    Failed {
        failure: Failure,
        at: Timestamp,
        /// When a query first reported this. Set for story 010 only.
        told: Option<Timestamp>,
    },
}

/// A step that a payment takes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Debit,
    Fail(Failure),
    CallBack,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub approve_delay: Duration,
    /// How long payers have to answer, if not as long as the rail gives them.
    pub prompt: Option<Duration>,
}

/// One payment, with as much of its history as matters.
#[derive(Clone, Debug)]
pub struct Payment {
    pub request: PaymentRequest,
    pub story: Story,
    /// Identifies the prompt on the handset.
    pub prompt: Uuid,
    /// The network's own number for it, from its position in the book.
    pub number: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub state: State,
    /// How many requests to pay had its reference.
    pub requests: u32,
    /// How many times the wallet was debited for it. Anything but 0 or 1 means a broken network.
    pub debits: u32,
    /// The sum of those debits.
    pub debited_minor: i64,
    calls: CallPlan,
}

impl Payment {
    pub fn new(request: PaymentRequest, prompt: Uuid, number: u64, at: Timestamp) -> Self {
        let story = Story::of(request.rail, request.network, &request.phone);
        Self {
            state: first_state(request.rail, story, at),
            request,
            story,
            prompt,
            number,
            created_at: at,
            updated_at: at,
            requests: 1,
            debits: 0,
            debited_minor: 0,
            calls: CallPlan::default(),
        }
    }

    /// Applies an event after the first request. Counts every debit, even one that should not be.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Requested { .. } | Event::RequestedAgain => self.requests += 1,
            Event::Prompted { at } => self.enter(State::Prompted { since: *at }, *at),
            Event::Debited { amount_minor, at } => {
                self.debits += 1;
                self.debited_minor = self.debited_minor.saturating_add(*amount_minor);
                self.enter(State::Succeeded { at: *at }, *at);
                self.plan_callbacks(self.story.callbacks(), *at);
            }
            Event::Failed { failure, at } => {
                let (failure, at) = (*failure, *at);
                let state = State::Failed {
                    failure,
                    at,
                    told: None,
                };
                self.enter(state, at);
                let behaviour = self.request.rail.behaviour();
                // Story 010 saves its only callback for the money, if a query tells the failure.
                let saves = behaviour.answers_failures && self.story == Story::LateMoney;
                let tells = behaviour.reports_failures && !saves;
                self.plan_callbacks(u32::from(tells), at);
            }
            Event::ToldFailed { at } => {
                if let State::Failed { told, .. } = &mut self.state {
                    told.get_or_insert(*at);
                }
            }
            Event::CalledBack => self.calls.done(),
            Event::CallbackFailed { at } => self.calls.failed(*at),
        }
    }

    fn enter(&mut self, state: State, at: Timestamp) {
        self.state = state;
        self.updated_at = at;
    }

    fn plan_callbacks(&mut self, count: u32, at: Timestamp) {
        if self.request.callback_url.is_some() && count > 0 {
            self.calls.plan(count, at);
        }
    }

    /// Sets whether a callback is being sent.
    pub fn set_calling(&mut self, calling: bool) {
        self.calls.set_calling(calling);
    }

    /// The next step that this payment takes by itself, and when.
    pub fn next(&self, timing: &Timing) -> Option<(Timestamp, Step)> {
        match (self.next_change(timing), self.next_callback()) {
            (Some(change), Some(callback)) if change.0 < callback.0 => Some(change),
            (change, callback) => callback.or(change),
        }
    }

    fn next_change(&self, timing: &Timing) -> Option<(Timestamp, Step)> {
        match self.state {
            State::Prompted { since } => match self.story.ending() {
                Ending::Approved => Some((since + timing.approve_delay, Step::Debit)),
                Ending::Fails(failure) => Some((since + timing.approve_delay, Step::Fail(failure))),
                Ending::RunsOut => {
                    let end = since + self.prompt_time(timing);
                    Some((end, Step::Fail(Failure::TimedOut)))
                }
                Ending::Waits => None,
            },
            State::Failed {
                told,
                failure: Failure::TimedOut,
                ..
            } if self.story == Story::LateMoney => {
                told.map(|told| (told + LATE_MONEY_AFTER, Step::Debit))
            }
            State::Refused
            | State::AwaitingCode
            | State::Succeeded { .. }
            | State::Failed { .. } => None,
        }
    }

    /// How long the payer has to answer.
    fn prompt_time(&self, timing: &Timing) -> Duration {
        let rails = self.request.rail.behaviour().prompt;
        timing.prompt.unwrap_or(rails)
    }

    /// Whether a query at `now` causes the late money of story 010.
    pub fn waits_to_be_told(&self, timing: &Timing, now: Timestamp) -> bool {
        let is_failed = matches!(self.state, State::Failed { told: None, .. });
        // What is not paid has failed for good only when the payer's time is over.
        let is_told = self.request.rail.behaviour().answers_failures
            || now >= self.created_at + self.prompt_time(timing);
        is_failed && is_told && self.story == Story::LateMoney
    }

    fn next_callback(&self) -> Option<(Timestamp, Step)> {
        Some((self.calls.next()?, Step::CallBack))
    }

    /// The amount that the network debits and reports.
    pub fn reported(&self) -> Money {
        let asked = self.request.amount_minor;
        Money::new(self.story.debits(asked), self.request.currency)
    }

    /// The amount that the client asked for.
    pub fn asked(&self) -> Money {
        Money::new(self.request.amount_minor, self.request.currency)
    }
}

fn first_state(rail: Rail, story: Story, at: Timestamp) -> State {
    match story {
        Story::UnknownPayer if rail.behaviour().keeps_unknown_payers => State::Failed {
            failure: Failure::PayerNotFound,
            at,
            told: None,
        },
        Story::Unavailable | Story::UnknownPayer | Story::CodeInError => State::Refused,
        story if story.wants_code() => State::AwaitingCode,
        _ => State::Prompted { since: at },
    }
}
