//! Every credit that the rails ever took, the payees that they know, and what is in their floats.
//!
//! Promise: a float is its opening amount, what was added since, and less what its credits took.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use chassis::clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    credit::{Credit, Event, Payee, Step},
    rail::Rail,
};

/// The pages of the book that are about credits.
pub struct Credits {
    credits: Vec<Credit>,
    by_reference: HashMap<(Rail, String), usize>,
    /// The next step that each credit takes by itself.
    due: BTreeSet<(Timestamp, usize)>,
    floats: BTreeMap<Rail, Float>,
    recipients: HashMap<String, Recipient>,
    terms: Terms,
}

/// How credits are paid.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long a rail takes to pay.
    pub delay: Duration,
    /// What each rail's float held at first, in minor units.
    pub opening_minor: i64,
}

/// What happened to a rail's float, in minor units.
#[derive(Clone, Copy, Debug, Default)]
struct Float {
    added: i64,
    spent: i64,
    was_filled: bool,
}

/// A payee as it was made known to Paystack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recipient {
    pub code: String,
    pub name: String,
    pub payee: Payee,
}

impl Credits {
    pub fn empty(terms: Terms) -> Self {
        Self {
            credits: Vec::new(),
            by_reference: HashMap::new(),
            due: BTreeSet::new(),
            floats: BTreeMap::new(),
            recipients: HashMap::new(),
            terms,
        }
    }

    pub fn find(&self, rail: Rail, reference: &str) -> Option<&Credit> {
        let index = *self.by_reference.get(&(rail, reference.to_owned()))?;
        self.credits.get(index)
    }

    /// All credits, in the order of their first requests.
    pub fn all(&self) -> &[Credit] {
        &self.credits
    }

    pub fn find_recipient(&self, code: &str) -> Option<&Recipient> {
        self.recipients.get(code)
    }

    /// What a rail's float holds, in minor units.
    pub fn float_minor(&self, rail: Rail) -> i64 {
        let float = self.floats.get(&rail).copied().unwrap_or_default();
        let all = self.terms.opening_minor.saturating_add(float.added);
        all.saturating_sub(float.spent)
    }

    /// Whether somebody has ever added to a rail's float.
    pub fn was_filled(&self, rail: Rail) -> bool {
        self.floats.get(&rail).is_some_and(|float| float.was_filled)
    }

    /// The first credit that is due by `now`, and its step.
    pub fn first_due(&self, now: Timestamp) -> Option<(&Credit, Step)> {
        let (_, index) = self.due.first().filter(|(due, _)| *due <= now)?;
        let credit = self.credits.get(*index)?;
        let (_, step) = credit.next(self.terms.delay)?;
        Some((credit, step))
    }

    /// When the next step is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    pub fn add_recipient(&mut self, recipient: &Recipient) {
        let code = recipient.code.clone();
        let kept = self.recipients.entry(code);
        kept.or_insert_with(|| recipient.clone());
    }

    /// Adds to a rail's float, or takes from it.
    pub fn add_float(&mut self, rail: Rail, added_minor: i64) {
        let float = self.floats.entry(rail).or_default();
        float.added = float.added.saturating_add(added_minor);
        float.was_filled |= added_minor > 0;
    }

    pub fn apply(&mut self, rail: Rail, reference: &str, event: &Event) {
        let known = self.find(rail, reference).is_some();
        if let Event::Requested { request, at } = event
            && !known
        {
            let index = self.credits.len();
            // Apart from the numbers of debits.
            let number = 7_000_000_000 + index as u64;
            let credit = Credit::new((**request).clone(), number, *at);
            self.credits.push(credit);
            self.by_reference
                .insert((rail, reference.to_owned()), index);
            return;
        }
        self.change(rail, reference, |credit| credit.apply(event));
    }

    /// Marks whether a callback of the credit is being sent.
    pub fn set_calling(&mut self, rail: Rail, reference: &str, calling: bool) {
        self.change(rail, reference, |credit| credit.set_calling(calling));
    }

    fn change(&mut self, rail: Rail, reference: &str, change: impl FnOnce(&mut Credit)) {
        let key = (rail, reference.to_owned());
        let Some(index) = self.by_reference.get(&key).copied() else {
            return;
        };
        let Some(credit) = self.credits.get_mut(index) else {
            return;
        };
        let delay = self.terms.delay;
        let (before, spent_before) = (credit.next(delay), credit.spent_minor);
        change(credit);
        if let Some((due, _)) = before {
            self.due.remove(&(due, index));
        }
        if let Some((due, _)) = credit.next(delay) {
            self.due.insert((due, index));
        }
        let float = self.floats.entry(rail).or_default();
        let spent = credit.spent_minor.saturating_sub(spent_before);
        float.spent = float.spent.saturating_add(spent);
    }
}
