//! What the networks do: accept requests and codes, answer queries, debit wallets, time out
//! prompts, pay credits and call back.
//!
//! Promise: a wallet is debited at most once per reference, and credited at most once. Every decision is made under the
//! book's lock, on the state that it changes, and is on disk before anyone learns of it.

use std::sync::Arc;

use chassis::{
    clock::{Clock, Timestamp, Worker},
    error_chain::chain,
    shutdown::{Shutdown, Tasks},
};
use uuid::Uuid;

use crate::{
    book::{Book, Pages},
    callback::CallbackSender,
    config::Config,
    credit::{self, Credit, CreditRequest},
    credits::Recipient,
    journal::JournalLost,
    paying::{self, Taking},
    payment::{Event, Payment, State, Step},
    rail::Rail,
    request::PaymentRequest,
    story::{self, Failure, Story},
};

/// All simulated networks together.
pub struct Networks {
    pub config: Config,
    pub clock: Clock,
    pub book: Book,
    pub callbacks: CallbackSender,
}

/// The outcome of a request to pay.
pub enum Intake {
    New(Payment),
    /// Its reference was used before.
    Again(Payment),
}

/// The outcome of a submitted code.
pub enum CodeOutcome {
    /// The payer now has the prompt.
    Right(Payment),
    Wrong(Payment),
    Expired(Payment),
    /// The payment is not waiting for a code.
    NotAwaited,
    UnknownReference,
}

/// What a person does with a prompt.
#[derive(Clone, Copy, Debug)]
pub enum PromptAnswer {
    Approve,
    Decline,
}

/// What a callback is about.
enum Subject {
    Payment(Box<Payment>),
    Credit(Box<Credit>),
}

impl Networks {
    pub async fn request(&self, request: PaymentRequest) -> Result<Intake, JournalLost> {
        let now = self.clock.now();
        self.book
            .update(|pages| take_request(pages, request, now))
            .await
    }

    pub async fn submit_code(
        &self,
        rail: Rail,
        reference: &str,
        code: &str,
    ) -> Result<CodeOutcome, JournalLost> {
        let now = self.clock.now();
        self.book
            .update(|pages| take_code(pages, rail, reference, code, now))
            .await
    }

    /// What a query returns: `None` for an unknown reference and for a request that was refused.
    pub async fn query(&self, rail: Rail, reference: &str) -> Result<Option<Payment>, JournalLost> {
        let now = self.clock.now();
        self.book
            .update(|pages| tell(pages, rail, reference, now))
            .await
    }

    /// A person approves or declines. Returns `None` if there is no such live prompt.
    pub async fn answer_prompt(
        &self,
        prompt: Uuid,
        answer: PromptAnswer,
    ) -> Result<Option<Payment>, JournalLost> {
        let now = self.clock.now();
        self.book
            .update(|pages| {
                let payment = pages.find_prompt(prompt)?;
                if !matches!(payment.state, State::Prompted { .. }) {
                    return None;
                }
                let event = match answer {
                    PromptAnswer::Approve => debit(payment, now),
                    PromptAnswer::Decline => fail(Failure::Declined, now),
                };
                let (rail, reference) = key(payment);
                Some(pages.record(rail, &reference, event))
            })
            .await
    }

    pub async fn request_credit(&self, request: CreditRequest) -> Result<Taking, JournalLost> {
        let now = self.clock.now();
        self.book
            .update(|pages| paying::take(pages, request, now))
            .await
    }

    /// What a query returns: `None` for a reference that was not taken.
    pub async fn query_credit(
        &self,
        rail: Rail,
        reference: &str,
    ) -> Result<Option<Credit>, JournalLost> {
        let now = self.clock.now();
        self.book
            .update(|pages| paying::tell(pages, rail, reference, now))
            .await
    }

    /// What a rail's float holds, in minor units.
    pub async fn float_minor(&self, rail: Rail) -> Result<i64, JournalLost> {
        self.book
            .update(|pages| pages.credits().float_minor(rail))
            .await
    }

    /// Makes a payee known. Returns the one with this code, which may have been known before.
    pub async fn know_recipient(&self, recipient: Recipient) -> Result<Recipient, JournalLost> {
        self.book
            .update(|pages| pages.know_recipient(recipient))
            .await
    }

    pub async fn find_recipient(&self, code: &str) -> Result<Option<Recipient>, JournalLost> {
        self.book
            .update(|pages| pages.credits().find_recipient(code).cloned())
            .await
    }

    /// Does whatever is due until `shutdown`.
    pub async fn run(
        self: Arc<Self>,
        mut worker: Worker,
        tasks: Tasks,
        shutdown: Shutdown,
    ) -> Result<(), JournalLost> {
        while !shutdown.has_begun() {
            let (callbacks, next) = self.play_due().await?;
            for subject in callbacks {
                self.call_back(subject, &tasks);
            }
            tokio::select! {
                _ = worker.rest(next) => {}
                () = shutdown.wait() => {}
            }
        }
        Ok(())
    }

    /// Does what is due now. Returns the callbacks to send, and when the next step is due.
    async fn play_due(&self) -> Result<(Vec<Subject>, Option<Timestamp>), JournalLost> {
        let now = self.clock.now();
        self.book
            .update(|pages| {
                let mut callbacks = Vec::new();
                while let Some((payment, step)) = pages.first_due(now) {
                    let (rail, reference) = key(payment);
                    match step {
                        Step::Debit => {
                            let event = debit(payment, now);
                            pages.record(rail, &reference, event);
                        }
                        Step::Fail(failure) => {
                            pages.record(rail, &reference, fail(failure, now));
                        }
                        Step::CallBack => {
                            callbacks.push(Subject::Payment(Box::new(payment.clone())));
                            begin_callback(pages, rail, &reference);
                        }
                    }
                }
                let credits = paying::play_due(pages, now).into_iter();
                callbacks.extend(credits.map(|credit| Subject::Credit(Box::new(credit))));
                (callbacks, pages.next_due())
            })
            .await
    }

    /// Starts a callback. Time travel waits for it.
    fn call_back(self: &Arc<Self>, subject: Subject, tasks: &Tasks) {
        let networks = self.clone();
        let activity = self.clock.activity();
        tasks.spawn(async move {
            let (rail, answered) = match &subject {
                Subject::Payment(payment) => {
                    (payment.request.rail, networks.callbacks.send(payment).await)
                }
                Subject::Credit(credit) => {
                    let answered = networks.callbacks.send_about_credit(credit).await;
                    (credit.request.rail, answered)
                }
            };
            if rail.behaviour().repeats_callbacks
                && let Err(error) = networks.end_callback(&subject, answered).await
            {
                tracing::error!(error = %chain(&error), "a callback's outcome is not kept");
            }
            drop(activity);
        });
    }

    async fn end_callback(&self, subject: &Subject, answered: bool) -> Result<(), JournalLost> {
        let at = self.clock.now();
        self.book
            .update(|pages| match subject {
                Subject::Payment(payment) => {
                    let (rail, reference) = key(payment);
                    pages.set_calling(rail, &reference, false);
                    let event = if answered {
                        Event::CalledBack
                    } else {
                        Event::CallbackFailed { at }
                    };
                    pages.record(rail, &reference, event);
                }
                Subject::Credit(credit) => {
                    let (rail, reference) = (credit.request.rail, &credit.request.reference);
                    pages.set_calling_credit(rail, reference, false);
                    let event = if answered {
                        credit::Event::CalledBack
                    } else {
                        credit::Event::CallbackFailed { at }
                    };
                    pages.record_credit(rail, reference, event);
                }
            })
            .await
    }
}

fn key(payment: &Payment) -> (Rail, String) {
    (payment.request.rail, payment.request.reference.clone())
}

fn debit(payment: &Payment, at: Timestamp) -> Event {
    let amount_minor = payment.reported().minor_units();
    Event::Debited { amount_minor, at }
}

fn fail(failure: Failure, at: Timestamp) -> Event {
    Event::Failed { failure, at }
}

/// A callback that is sent only once is recorded as done before it is sent.
fn begin_callback(pages: &mut Pages, rail: Rail, reference: &str) {
    if rail.behaviour().repeats_callbacks {
        pages.set_calling(rail, reference, true);
    } else {
        pages.record(rail, reference, Event::CalledBack);
    }
}

fn take_request(pages: &mut Pages, request: PaymentRequest, now: Timestamp) -> Intake {
    let (rail, reference) = (request.rail, request.reference.clone());
    if pages.find(rail, &reference).is_some() {
        return Intake::Again(pages.record(rail, &reference, Event::RequestedAgain));
    }
    let payment = pages.open(request, now);
    if payment.story == Story::Instant {
        let event = debit(&payment, now);
        return Intake::New(pages.record(rail, &reference, event));
    }
    Intake::New(payment)
}

fn take_code(
    pages: &mut Pages,
    rail: Rail,
    reference: &str,
    code: &str,
    now: Timestamp,
) -> CodeOutcome {
    let Some(payment) = pages.find(rail, reference) else {
        return CodeOutcome::UnknownReference;
    };
    match payment.state {
        State::AwaitingCode => {}
        State::Refused => return CodeOutcome::UnknownReference,
        State::Prompted { .. } | State::Succeeded { .. } | State::Failed { .. } => {
            return CodeOutcome::NotAwaited;
        }
    }
    if payment.story == Story::CodeExpires {
        let event = fail(Failure::CodeExpired, now);
        return CodeOutcome::Expired(pages.record(rail, reference, event));
    }
    if code != story::VOUCHER {
        return CodeOutcome::Wrong(payment.clone());
    }
    CodeOutcome::Right(pages.record(rail, reference, Event::Prompted { at: now }))
}

fn tell(pages: &mut Pages, rail: Rail, reference: &str, now: Timestamp) -> Option<Payment> {
    let payment = pages.find(rail, reference)?;
    match payment.state {
        State::Refused => None,
        State::Failed { .. } if payment.waits_to_be_told(pages.timing(), now) => {
            Some(pages.record(rail, reference, Event::ToldFailed { at: now }))
        }
        State::AwaitingCode
        | State::Prompted { .. }
        | State::Succeeded { .. }
        | State::Failed { .. } => Some(payment.clone()),
    }
}
