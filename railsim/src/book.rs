//! The book: every payment and credit that the networks ever took, in memory and, if there is a
//! data folder, on disk.
//!
//! Promise: a crash does not change what anyone was told. [`Book::update`] returns only once
//! everything that its caller saw is durable.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    sync::{Mutex, PoisonError},
};

use chassis::clock::{Alarm, Timestamp};
use uuid::Uuid;

use crate::{
    credit::{self, Credit, CreditRequest},
    credits::{Credits, Recipient, Terms},
    journal::{Durability, Journal, JournalLine, JournalLost},
    payment::{Event, Payment, Step, Timing},
    rail::Rail,
    request::PaymentRequest,
};

/// The payments behind one lock, and how far the disk has got.
pub struct Book {
    pages: Mutex<Pages>,
    durable: Option<Durability>,
    alarm: Alarm,
}

/// What the lock guards.
pub struct Pages {
    payments: Vec<Payment>,
    by_reference: HashMap<(Rail, String), usize>,
    by_prompt: HashMap<Uuid, usize>,
    /// The next step that each payment takes by itself.
    due: BTreeSet<(Timestamp, usize)>,
    timing: Timing,
    credits: Credits,
    journal: Option<Journal>,
    changes: u64,
}

impl Book {
    /// Makes a book that is lost with the process. `alarm` rings on every change.
    pub fn in_memory(timing: Timing, terms: Terms, alarm: Alarm) -> Self {
        Self {
            pages: Mutex::new(Pages::empty(timing, terms)),
            durable: None,
            alarm,
        }
    }

    /// Opens the book stored in `folder`. `alarm` rings on every change.
    pub fn in_folder(
        folder: &Path,
        timing: Timing,
        terms: Terms,
        alarm: Alarm,
    ) -> anyhow::Result<Self> {
        let (journal, durable, lines) = Journal::open(folder)?;
        let mut pages = Pages::empty(timing, terms);
        for line in &lines {
            pages.replay(line);
        }
        pages.journal = Some(journal);
        Ok(Self {
            pages: Mutex::new(pages),
            durable: Some(durable),
            alarm,
        })
    }

    /// Reads and changes the book atomically, then waits until what was read and changed is
    /// durable.
    pub async fn update<T>(&self, change: impl FnOnce(&mut Pages) -> T) -> Result<T, JournalLost> {
        let (outcome, lines) = {
            // A panic under the lock is a bug that shows elsewhere; the pages stay readable.
            let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
            let before = pages.changes;
            let outcome = change(&mut pages);
            if pages.changes != before {
                self.alarm.ring();
            }
            let lines = pages.journal.as_ref().map_or(0, Journal::appended);
            (outcome, lines)
        };
        if let Some(durable) = &self.durable {
            durable.reached(lines).await?;
        }
        Ok(outcome)
    }
}

impl Pages {
    fn empty(timing: Timing, terms: Terms) -> Self {
        Self {
            payments: Vec::new(),
            by_reference: HashMap::new(),
            by_prompt: HashMap::new(),
            due: BTreeSet::new(),
            timing,
            credits: Credits::empty(terms),
            journal: None,
            changes: 0,
        }
    }

    pub fn find(&self, rail: Rail, reference: &str) -> Option<&Payment> {
        let index = *self.by_reference.get(&(rail, reference.to_owned()))?;
        self.payments.get(index)
    }

    pub fn find_prompt(&self, prompt: Uuid) -> Option<&Payment> {
        let index = *self.by_prompt.get(&prompt)?;
        self.payments.get(index)
    }

    /// All payments, in the order of their first requests.
    pub fn payments(&self) -> &[Payment] {
        &self.payments
    }

    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Adds a payment: the first request with its reference.
    pub fn open(&mut self, request: PaymentRequest, at: Timestamp) -> Payment {
        let (rail, reference) = (request.rail, request.reference.clone());
        let (request, prompt) = (Box::new(request), Uuid::new_v4());
        self.record(
            rail,
            &reference,
            Event::Requested {
                request,
                prompt,
                at,
            },
        )
    }

    /// Records what happened to a payment, and returns its new state.
    ///
    /// # Panics
    /// If the book does not contain the reference; only [`Pages::open`] may add one.
    pub fn record(&mut self, rail: Rail, reference: &str, event: Event) -> Payment {
        self.apply(rail, reference, &event);
        self.keep(&JournalLine::Payment {
            rail,
            reference: reference.to_owned(),
            event,
        });
        self.find(rail, reference)
            .expect("only a payment that was found is changed")
            .clone()
    }

    /// The pages about credits.
    pub fn credits(&self) -> &Credits {
        &self.credits
    }

    /// Records a request while no credit with its reference was taken.
    pub fn request_credit(&mut self, request: CreditRequest, at: Timestamp) -> Credit {
        let (rail, reference) = (request.rail, request.reference.clone());
        let request = Box::new(request);
        self.record_credit(rail, &reference, credit::Event::Requested { request, at })
    }

    /// Records what happened to a credit, and returns its new state.
    ///
    /// # Panics
    /// If the book does not contain the reference; only [`Pages::request_credit`] may add one.
    pub fn record_credit(&mut self, rail: Rail, reference: &str, event: credit::Event) -> Credit {
        self.credits.apply(rail, reference, &event);
        self.changes += 1;
        self.keep(&JournalLine::Credit {
            rail,
            reference: reference.to_owned(),
            credit: event,
        });
        let credit = self.credits.find(rail, reference);
        credit
            .expect("only a credit that was found is changed")
            .clone()
    }

    /// Marks whether a callback of the credit is being sent.
    pub fn set_calling_credit(&mut self, rail: Rail, reference: &str, calling: bool) {
        self.credits.set_calling(rail, reference, calling);
        self.changes += 1;
    }

    /// Makes a payee known. Returns the one with this code, which may have been known before.
    pub fn know_recipient(&mut self, recipient: Recipient) -> Recipient {
        if let Some(known) = self.credits.find_recipient(&recipient.code) {
            return known.clone();
        }
        self.credits.add_recipient(&recipient);
        self.keep(&JournalLine::Recipient {
            recipient: recipient.clone(),
        });
        recipient
    }

    /// Adds to a rail's float, or takes from it.
    pub fn add_float(&mut self, rail: Rail, added_minor: i64) {
        self.credits.add_float(rail, added_minor);
        self.keep(&JournalLine::Float { rail, added_minor });
    }

    fn keep(&mut self, line: &JournalLine) {
        if let Some(journal) = &mut self.journal {
            journal.append(line);
        }
    }

    fn replay(&mut self, line: &JournalLine) {
        match line {
            JournalLine::Payment {
                rail,
                reference,
                event,
            } => self.apply(*rail, reference, event),
            JournalLine::Credit {
                rail,
                reference,
                credit,
            } => self.credits.apply(*rail, reference, credit),
            JournalLine::Recipient { recipient } => self.credits.add_recipient(recipient),
            JournalLine::Float { rail, added_minor } => {
                self.credits.add_float(*rail, *added_minor);
            }
        }
    }

    /// The first payment that is due by `now`, and its step.
    pub fn first_due(&self, now: Timestamp) -> Option<(&Payment, Step)> {
        let (_, index) = self.due.first().filter(|(due, _)| *due <= now)?;
        let payment = self.payments.get(*index)?;
        let (_, step) = payment.next(&self.timing)?;
        Some((payment, step))
    }

    /// When the next step of a payment or a credit is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let of_payments = self.due.first().map(|(due, _)| *due);
        let of_credits = self.credits.next_due();
        of_payments.into_iter().chain(of_credits).min()
    }

    /// Marks whether a callback of the payment is being sent.
    pub fn set_calling(&mut self, rail: Rail, reference: &str, calling: bool) {
        self.change(rail, reference, |payment| payment.set_calling(calling));
    }

    fn apply(&mut self, rail: Rail, reference: &str, event: &Event) {
        let known = self.find(rail, reference).is_some();
        if let Event::Requested {
            request,
            prompt,
            at,
        } = event
            && !known
        {
            let index = self.payments.len();
            // The network's numbers start where nobody mistakes them for counts.
            let number = 4_000_000_000 + index as u64;
            let payment = Payment::new((**request).clone(), *prompt, number, *at);
            self.payments.push(payment);
            self.by_reference
                .insert((rail, reference.to_owned()), index);
            self.by_prompt.insert(*prompt, index);
            self.schedule(index, None);
            self.changes += 1;
            return;
        }
        self.change(rail, reference, |payment| payment.apply(event));
    }

    fn change(&mut self, rail: Rail, reference: &str, change: impl FnOnce(&mut Payment)) {
        let key = (rail, reference.to_owned());
        let Some(index) = self.by_reference.get(&key).copied() else {
            return;
        };
        let Some(payment) = self.payments.get_mut(index) else {
            return;
        };
        let before = payment.next(&self.timing).map(|(due, _)| due);
        change(payment);
        self.schedule(index, before);
        self.changes += 1;
    }

    fn schedule(&mut self, index: usize, before: Option<Timestamp>) {
        if let Some(before) = before {
            self.due.remove(&(before, index));
        }
        let next = self
            .payments
            .get(index)
            .and_then(|payment| payment.next(&self.timing));
        if let Some((due, _)) = next {
            self.due.insert((due, index));
        }
    }
}
