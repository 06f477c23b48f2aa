//! The promises, held against the records, the networks' books, and what clients were told.
//!
//! What may still come is unfinished, and no broken promise until nobody waits for it any more.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
};

use serde::Serialize;
use uuid::Uuid;

use super::{
    books::{Books, Credit},
    store::{Charge, Disbursement, Records},
    wallets::PAID_LATE,
    world::Told,
};

/// What was found to be otherwise than promised.
#[derive(Debug, Default, Serialize)]
pub struct Verdict {
    /// Acknowledged and not there, or debited or credited and nobody's.
    pub lost: BTreeSet<String>,
    /// Twice what may be once.
    pub doubled: BTreeSet<String>,
    /// A merchant's balance below zero, at any moment.
    pub overdrawn: BTreeSet<String>,
    /// Sums that are not what they must be.
    pub unbalanced: BTreeSet<String>,
    /// Numbers of events that are missing in the feed.
    pub gaps: BTreeSet<String>,
    /// Not ended, or not told to all yet.
    pub unfinished: BTreeSet<String>,
    /// References of charges, `PO-…` and `RF-…`, whose rail knows more than we do.
    #[serde(skip)]
    pub unheard: BTreeSet<Uuid>,
}

impl Verdict {
    /// What the ledger, the records and the books say.
    pub fn on_money(records: &Records, books: &Books, told: &Told) -> Self {
        let mut money = Money {
            verdict: Self::default(),
            records,
            books,
            posted: HashMap::new(),
            cases: HashSet::new(),
        };
        for posting in &records.postings {
            *money
                .posted
                .entry((posting.subject, &posting.kind))
                .or_default() += posting.amount_minor.max(0);
        }
        let cases = records.cases.iter();
        money.cases = cases.map(|case| (case.subject, &*case.kind)).collect();
        money.check_charges();
        money.check_disbursements();
        money.check_refunds();
        money.check_books();
        money.check_told(told);
        money.check_ledger();
        money.verdict
    }

    pub fn is_kept(&self) -> bool {
        self.broken().iter().all(|(_, found)| found.is_empty())
    }

    /// Each promise, with what breaks it.
    pub fn broken(&self) -> [(&'static str, &BTreeSet<String>); 6] {
        [
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("overdrafts", &self.overdrawn),
            ("sums", &self.unbalanced),
            ("gaps", &self.gaps),
            ("unfinished", &self.unfinished),
        ]
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        let counts = self
            .broken()
            .map(|(name, found)| format!("{name} {}", found.len()));
        writeln!(f, "  {}", counts.join(", "))?;
        for (name, found) in self.broken() {
            for what in found.iter().take(SHOWN) {
                writeln!(f, "  {name}: {what}")?;
            }
        }
        Ok(())
    }
}

/// What is looked at together.
struct Money<'a> {
    verdict: Verdict,
    records: &'a Records,
    books: &'a Books,
    /// By subject and kind: the credits of its lines.
    posted: HashMap<(Uuid, &'a str), i64>,
    /// What each case is about, and its kind.
    cases: HashSet<(Uuid, &'a str)>,
}

impl Money<'_> {
    fn posted(&self, subject: Uuid, kind: &str) -> i64 {
        self.posted.get(&(subject, kind)).copied().unwrap_or(0)
    }

    fn check_charges(&mut self) {
        for charge in &self.records.charges {
            let key = (charge.rail.clone(), charge.rail_reference.to_string());
            let debit = self.books.debits.get(&key);
            let debited = debit.map_or(0, |debit| debit.debited_minor);
            let Charge {
                reference,
                amount_minor,
                state,
                ..
            } = charge;
            let id = charge.transaction_id;
            match state.as_str() {
                "SETTLED" => {
                    let credited = self.posted(id, "SETTLEMENT");
                    if debited != *amount_minor || credited != *amount_minor {
                        let what = format!(
                            "{reference} of {amount_minor} is SETTLED, {debited} was debited and {credited} posted"
                        );
                        self.verdict.lost.insert(what);
                    }
                }
                "FAILED" if debited != 0 => {
                    let suspended = self.posted(id, "SUSPENSE");
                    let has_case = self.cases.contains(&(id, "LATE_MONEY"));
                    if suspended != debited || !has_case {
                        let what = format!(
                            "{reference} is FAILED, {debited} was debited and {suspended} is in suspense"
                        );
                        self.verdict.unfinished.insert(what);
                        self.verdict.unheard.insert(id);
                    }
                }
                "FAILED" => {
                    let is_late = |phone: &str| phone.ends_with(PAID_LATE);
                    if debit.is_some_and(|debit| debit.status == "failed" && is_late(&debit.phone))
                    {
                        let what = format!("{reference} will be paid late");
                        self.verdict.unfinished.insert(what);
                    }
                    if self.posted(id, "SETTLEMENT") != 0 {
                        let what = format!("{reference} is FAILED and was credited");
                        self.verdict.doubled.insert(what);
                    }
                }
                _ => {
                    let what = format!("{reference} is {state}");
                    self.verdict.unfinished.insert(what);
                }
            }
        }
    }

    fn check_disbursements(&mut self) {
        for disbursement in &self.records.disbursements {
            let rail_reference = disbursement.rail_reference.to_string();
            let key = (disbursement.rail.clone(), rail_reference);
            let credit = self.books.credits.get(&key);
            match disbursement.state.as_str() {
                "COMPLETED" => self.check_completed(disbursement, credit),
                "FAILED" => self.check_failed(disbursement, credit),
                state => {
                    let what = format!("{} is {state}", disbursement.shown_id);
                    self.verdict.unfinished.insert(what);
                }
            }
        }
    }

    fn check_completed(&mut self, paid: &Disbursement, credit: Option<&Credit>) {
        let (id, name, amount) = (paid.disbursement_id, &paid.shown_id, paid.amount_minor);
        let Some(credit) = credit.filter(|credit| credit.credits > 0) else {
            let what = format!("{name} is COMPLETED and nobody was credited");
            self.verdict.lost.insert(what);
            return;
        };
        let is_posted = self.posted(id, "DISBURSEMENT") == amount
            && self.posted(id, "PAYOUT_FEE") == paid.fee_minor
            && self.posted(id, "RETURN") == 0;
        if !is_posted {
            let what = format!("{name} is COMPLETED and is not posted so");
            self.verdict.unbalanced.insert(what);
        }
        let is_reversed = paid.reversed_at.is_some();
        let returned = self.posted(id, "DISBURSEMENT_REVERSAL");
        let is_posted_so = returned == if is_reversed { amount } else { 0 };
        match (credit.status.as_str(), is_reversed) {
            ("succeeded", false) if credit.may_change => {
                let what = format!("{name} will be taken back");
                self.verdict.unfinished.insert(what);
            }
            ("succeeded", false) if credit.credited_minor == amount && is_posted_so => {}
            ("reversed", true) if is_posted_so => {}
            ("reversed", false) => {
                let what = format!("{name} was taken back, which nobody has heard");
                self.verdict.unfinished.insert(what);
                self.verdict.unheard.insert(id);
            }
            _ => {
                let what = format!("{name} is COMPLETED, and at its rail {credit:?}");
                self.verdict.unbalanced.insert(what);
            }
        }
    }

    fn check_failed(&mut self, failed: &Disbursement, credit: Option<&Credit>) {
        let (id, name, amount) = (
            failed.disbursement_id,
            &failed.shown_id,
            failed.amount_minor,
        );
        let is_returned = self.posted(id, "RETURN") == amount + failed.fee_minor
            && self.posted(id, "PAYOUT_FEE") == 0
            && self.posted(id, "DISBURSEMENT") == 0;
        if !is_returned {
            let what = format!("{name} is FAILED and is not posted so");
            self.verdict.unbalanced.insert(what);
        }
        let Some(credit) = credit else {
            return;
        };
        if credit.status == "failed" && credit.may_change {
            let what = format!("{name} will be paid late");
            self.verdict.unfinished.insert(what);
        }
        let late = self.posted(id, "LATE_DISBURSEMENT");
        let has_case = self.cases.contains(&(id, "PAID_LATE"));
        if credit.credited_minor != 0 && (late != amount || !has_case) {
            let what = format!("{name} is FAILED and was paid late, which nobody has heard");
            self.verdict.unfinished.insert(what);
            self.verdict.unheard.insert(id);
        }
    }

    /// A charge's refunds never exceed what was collected. One that failed and was paid all the same
    /// is an operator's case.
    fn check_refunds(&mut self) {
        let mut refunded: HashMap<Uuid, i64> = HashMap::new();
        for refund in &self.records.disbursements {
            let stands = refund.state != "FAILED" && refund.reversed_at.is_none();
            if let Some(charge) = refund.transaction_id.filter(|_| stands) {
                *refunded.entry(charge).or_default() += refund.amount_minor;
            }
        }
        for charge in &self.records.charges {
            let refunded = refunded.get(&charge.transaction_id).copied().unwrap_or(0);
            if refunded > charge.amount_minor {
                let (reference, amount) = (&charge.reference, charge.amount_minor);
                let what = format!("{refunded} of {amount} was refunded of {reference}");
                self.verdict.doubled.insert(what);
            }
        }
    }

    /// The networks debited and credited once at most, and nothing that we do not know.
    fn check_books(&mut self) {
        let of = |rail: &String, reference: Uuid| (rail.clone(), reference.to_string());
        let charges = self.records.charges.iter();
        let charges: HashSet<_> = charges
            .map(|one| of(&one.rail, one.rail_reference))
            .collect();
        let paid = self.records.disbursements.iter();
        let paid: HashSet<_> = paid.map(|one| of(&one.rail, one.rail_reference)).collect();
        let Verdict { lost, doubled, .. } = &mut self.verdict;
        for (key, debit) in &self.books.debits {
            if debit.debits > 1 {
                doubled.insert(format!("debited {} times: {debit:?}", debit.debits));
            }
            if debit.debits > 0 && !charges.contains(key) {
                lost.insert(format!("debited without a charge: {debit:?}"));
            }
        }
        for (key, credit) in &self.books.credits {
            if credit.credits > 1 {
                doubled.insert(format!("credited {} times: {credit:?}", credit.credits));
            }
            if !paid.contains(key) {
                lost.insert(format!("credited without a record: {credit:?}"));
            }
        }
    }

    /// Whatever a merchant was told exists, is as it was told, and there is no more than one of it
    /// for each key.
    fn check_told(&mut self, told: &Told) {
        let charges = self.records.charges.iter();
        let charges = charges.map(|one| (&one.reference, one.merchant_id, one.amount_minor));
        let paid = self.records.disbursements.iter();
        let paid = paid.map(|one| (&one.shown_id, one.merchant_id, one.amount_minor));
        let known: HashMap<&String, (Uuid, i64)> = charges
            .chain(paid)
            .map(|(id, merchant, minor)| (id, (merchant, minor)))
            .collect();
        let Verdict { lost, doubled, .. } = &mut self.verdict;
        let all = || told.charges.iter().chain(&told.disbursements);
        for acknowledged in all() {
            let id = &acknowledged.id;
            let Some((merchant_id, minor)) = known.get(id) else {
                lost.insert(format!("{id} was acknowledged"));
                continue;
            };
            let asked = acknowledged.amount_minor.map(i64::try_from);
            let is_asked = asked.is_none_or(|asked| asked == Ok(*minor));
            if !is_asked || merchant_id.to_string() != acknowledged.merchant_id {
                lost.insert(format!("{id} is not what was acknowledged"));
            }
        }
        let ids: HashSet<&String> = all().map(|acknowledged| &acknowledged.id).collect();
        if ids.len() != all().count() {
            doubled.insert("two requests were told of the same".to_owned());
        }
        let more = known.keys().filter(|id| !ids.contains(*id)).count();
        if u64::try_from(more).unwrap_or(u64::MAX) > told.unanswered {
            doubled.insert(format!("{more} more exist than were asked for"));
        }
        lost.extend(told.contradictions.iter().cloned());
    }

    fn check_ledger(&mut self) {
        let mut totals: BTreeMap<&str, i64> = BTreeMap::new();
        let mut accounts: HashMap<(&str, &str), i64> = HashMap::new();
        let mut movements: HashMap<(Uuid, &str, &str), i64> = HashMap::new();
        for line in &self.records.postings {
            let (amount, currency) = (line.amount_minor, line.currency.as_str());
            *totals.entry(currency).or_default() += amount;
            *accounts.entry((&line.account, currency)).or_default() += amount;
            let movement = (line.subject, line.kind.as_str(), currency);
            *movements.entry(movement).or_default() += amount;
        }
        let Verdict {
            unbalanced,
            overdrawn,
            ..
        } = &mut self.verdict;
        let totals = totals.into_iter().filter(|(_, sum)| *sum != 0);
        unbalanced.extend(totals.map(|(currency, sum)| format!("{currency} sums to {sum}")));
        let movements = movements.into_iter().filter(|(_, sum)| *sum != 0);
        unbalanced.extend(movements.map(|(of, sum)| format!("{of:?} sums to {sum}")));
        let mut kept: HashMap<(&str, &str), i64> = HashMap::new();
        for balance in &self.records.balances {
            let of = (balance.account.as_str(), balance.currency.as_str());
            kept.insert(of, balance.amount_minor);
        }
        for (of, sum) in &accounts {
            let is_kept = of.0.starts_with("merchant:");
            if is_kept && kept.get(of) != Some(sum) {
                unbalanced.insert(format!("{of:?} sums to {sum} and is {:?}", kept.get(of)));
            }
        }
        let unposted = kept.keys().filter(|of| !accounts.contains_key(*of));
        unbalanced.extend(unposted.map(|of| format!("{of:?} has no postings")));
        for (rail, spent) in &self.books.spent_minor {
            let account = format!("rail:{rail}:float");
            let posted = accounts.get(&(account.as_str(), "GHS")).copied();
            if posted.unwrap_or(0) != *spent {
                unbalanced.insert(format!("{account} is {posted:?} and {spent} was spent"));
            }
        }
        let overdrafts = self.records.overdrafts.iter();
        overdrawn.extend(overdrafts.map(|below| format!("{below:?}")));
    }
}

#[cfg(test)]
mod tests;
