//! Checks the whole history, the rails' book, the databases and the receiver's log against the
//! promises. Whatever it finds is a broken promise, whatever the reason.

mod disbursements;
mod events;
mod money;
mod suspense;
mod truth;

use std::{collections::HashMap, fmt};

use uuid::Uuid;

use crate::{
    actors::Account,
    history::{CaseDecision, HistoryRecord},
    rails::{Payment, Transfer},
    receiver::ReceivedAttempt,
    records::{Charge, Records},
    time::{Millis, Time},
};

/// The promises, in the order of `docs/simulation.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// 1. What was acknowledged exists.
    Kept,
    /// 2. One key, one debit.
    Once,
    /// 3. FAILED is final and the rail's word.
    Failed,
    /// 4. "Nothing was started" is true.
    Nothing,
    /// 5. SETTLED is exactly one debit of that amount.
    Settled,
    /// 6. Every debit that the rail reported belongs to somebody.
    Owned,
    /// 7. One event for each end, whose body never changes.
    Event,
    /// 8. A session is paid once.
    Session,
    /// 9. The ledger balances.
    Ledger,
    /// 10. Everything ends once the faults have.
    Live,
    /// 11. COMPLETED is exactly one credit of that amount to that account.
    Paid,
    /// 12. What goes out was there to go out.
    Covered,
}

/// A promise that a run broke.
#[derive(Clone, Debug)]
pub struct Violation {
    pub promise: Promise,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// Everything that a run left behind.
pub struct Evidence {
    pub time: Time,
    pub history: HistoryRecord,
    pub book: Vec<Payment>,
    pub transfers: Vec<Transfer>,
    pub received: Vec<ReceivedAttempt>,
    pub records: Records,
    pub merchants: Vec<Account>,
}

/// What the rail says only about a payment that it has, as the services record it.
const SHOWS: [&str; 9] = [
    "accepted",
    "already_known",
    "otp_required",
    "wrong_code",
    "pending",
    "abandoned",
    "succeeded",
    "reversed",
    "received",
];

/// What the services record when the rail said nothing about a payment, or that it does not know
/// it.
const SHOWS_NOTHING: [&str; 3] = ["unknown", "sent_again", DENIED];
const DENIED: &str = "reference_unknown";

/// Every promise that was broken.
pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Findings::new(evidence);
    truth::check(&mut found);
    money::check(&mut found);
    disbursements::check(&mut found);
    events::check(&mut found);
    found.violations
}

/// The evidence, sorted, and the violations found in it.
struct Findings<'e> {
    evidence: &'e Evidence,
    violations: Vec<Violation>,
    by_reference: HashMap<&'e str, &'e Charge>,
    /// Charges that are not void, by their wallet's number as orders write it.
    by_phone: HashMap<String, Vec<&'e Charge>>,
    payments: HashMap<Uuid, &'e Payment>,
}

impl<'e> Findings<'e> {
    fn new(evidence: &'e Evidence) -> Self {
        let charges = &evidence.records.charges;
        let mut by_phone: HashMap<String, Vec<&Charge>> = HashMap::new();
        for charge in charges.iter().filter(|charge| charge.state != "VOID") {
            by_phone
                .entry(local(&charge.phone))
                .or_default()
                .push(charge);
        }
        let payments = evidence.book.iter();
        let payments =
            payments.filter_map(|payment| Some((payment.reference.parse().ok()?, payment)));
        Self {
            evidence,
            violations: Vec::new(),
            by_reference: charges
                .iter()
                .map(|charge| (charge.reference.as_str(), charge))
                .collect(),
            by_phone,
            payments: payments.collect(),
        }
    }

    fn broken(&mut self, promise: Promise, what: String) {
        self.violations.push(Violation { promise, what });
    }

    fn payment(&self, charge: &Charge) -> Option<&'e Payment> {
        self.payments.get(&charge.rail_reference).copied()
    }

    /// When a charge ended, if it has.
    fn ended_at(&self, charge: &Charge) -> Millis {
        let ended = charge.updated_at.since(self.evidence.time.start());
        Millis::try_from(ended.as_millis()).unwrap_or(Millis::MAX)
    }

    /// Whether the services had heard, before the charge ended, that the rail had the payment.
    fn was_shown(&self, charge: &Charge) -> bool {
        let mut evidence = self.evidence.records.evidence.iter();
        evidence.any(|heard| {
            heard.transaction_id == charge.transaction_id
                && heard.first_at < charge.updated_at
                && SHOWS.contains(&heard.outcome.as_str())
        })
    }

    /// Whether all that the services heard from the rail is that it knows no such payment.
    fn was_denied(&self, charge: &Charge) -> bool {
        let evidence = self.evidence.records.evidence.iter();
        let heard = evidence.filter(|heard| heard.transaction_id == charge.transaction_id);
        let outcomes: Vec<&str> = heard.map(|heard| heard.outcome.as_str()).collect();
        outcomes.contains(&DENIED) && outcomes.iter().all(|it| SHOWS_NOTHING.contains(it))
    }

    /// Whether an operator ended it as FAILED.
    fn was_decided(&self, charge: &Charge) -> bool {
        let mut acts = self.evidence.history.acts.iter();
        acts.any(|act| act.reference == charge.reference && act.what == CaseDecision::Failed)
    }
}

/// A wallet's number as orders write it.
fn local(phone: &str) -> String {
    phone.replacen("+233", "0", 1)
}

#[cfg(test)]
mod tests;
