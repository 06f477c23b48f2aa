//! The book: every payment that the networks ever took, in memory and, if there is a data folder,
//! on disk.
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
    journal: Option<Journal>,
    changes: u64,
}

impl Book {
    /// Makes a book that is lost with the process. `alarm` rings on every change.
    pub fn in_memory(timing: Timing, alarm: Alarm) -> Self {
        Self {
            pages: Mutex::new(Pages::empty(timing)),
            durable: None,
            alarm,
        }
    }

    /// Opens the book stored in `folder`. `alarm` rings on every change.
    pub fn in_folder(folder: &Path, timing: Timing, alarm: Alarm) -> anyhow::Result<Self> {
        let (journal, durable, lines) = Journal::open(folder)?;
        let mut pages = Pages::empty(timing);
        for line in lines {
            let JournalLine {
                rail,
                reference,
                event,
            } = line;
            pages.apply(rail, &reference, &event);
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
    fn empty(timing: Timing) -> Self {
        Self {
            payments: Vec::new(),
            by_reference: HashMap::new(),
            by_prompt: HashMap::new(),
            due: BTreeSet::new(),
            timing,
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
        if let Some(journal) = &mut self.journal {
            let reference = reference.to_owned();
            journal.append(&JournalLine {
                rail,
                reference,
                event,
            });
        }
        self.find(rail, reference)
            .expect("only a payment that was found is changed")
            .clone()
    }

    /// The first payment that is due by `now`, and its step.
    pub fn first_due(&self, now: Timestamp) -> Option<(&Payment, Step)> {
        let (_, index) = self.due.first().filter(|(due, _)| *due <= now)?;
        let payment = self.payments.get(*index)?;
        let (_, step) = payment.next(&self.timing)?;
        Some((payment, step))
    }

    /// When the next step is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
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
