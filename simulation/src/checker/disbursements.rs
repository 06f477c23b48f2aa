//! Promises about money that goes out: one key pays once, and the book of credits holds what the
//! records say.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{
    Findings, Promise,
    money::{HEARD_WITHIN, LOOK_SLACK, LOOKS, posted},
    suspense::{cases_of, in_suspense, undecided},
};
use crate::{
    history::{CaseDecision, RequestEnd, Spending},
    rails::{Asker, Rail, RailMessage, Transfer, Word},
    records::Disbursement,
    time::Millis,
    world::PAYOUT_FEES_MINOR,
};

pub fn check(found: &mut Findings<'_>) {
    let evidence = found.evidence;
    for spending in &evidence.history.spendings {
        check_told(found, spending);
    }
    check_spendings(found);
    for disbursement in &evidence.records.disbursements {
        let transfer = transfer_of(found, disbursement);
        check_credits(found, disbursement, transfer);
        check_ledger(found, disbursement, transfer);
        check_cases(found, disbursement);
        if let Some(transfer) = transfer {
            check_looks(found, disbursement, transfer);
        }
        if disbursement.state == "FAILED" {
            check_failed(found, disbursement, transfer);
        }
    }
    check_transfers(found);
    check_refunded(found);
    check_balances(found);
    check_settlements(found);
    check_floats(found);
}

fn transfer_of<'e>(found: &Findings<'e>, disbursement: &Disbursement) -> Option<&'e Transfer> {
    let mut transfers = found.evidence.transfers.iter();
    let reference = disbursement.rail_reference.to_string();
    transfers.find(|transfer| transfer.reference == reference)
}

/// Kept: whatever was acknowledged is there, for that merchant and amount. Once: one key, one
/// answer.
fn check_told(found: &mut Findings<'_>, spending: &Spending) {
    let evidence = found.evidence;
    let mut ids = HashSet::new();
    for told in told_of(spending).filter(|told| told.status() == Some(202)) {
        let (name, kind) = match spending.refunds {
            Some(_) => ("refund_id", "REFUND"),
            None => ("payout_id", "PAYOUT"),
        };
        let id = told.field(name).unwrap_or_default();
        ids.insert(id);
        let mut disbursements = evidence.records.disbursements.iter();
        let kept = disbursements.find(|disbursement| disbursement.shown_id == id);
        let merchant = evidence.merchants.get(spending.merchant);
        let is_kept = kept.is_some_and(|kept| {
            let amount = spending.amount_minor;
            kept.kind == kind
                && merchant.is_some_and(|of| of.merchant_id == kept.merchant_id.to_string())
                && amount.is_none_or(|asked| asked == kept.amount_minor)
                && kept.reference == spending.refunds
                && !kept.scheduled
                && kept.case_id.is_none()
        });
        if !is_kept {
            let what = format!("{id:?} was told of {spending:?} and there is {kept:?}");
            found.broken(Promise::Kept, what);
        }
    }
    if spending.keyed && ids.len() > 1 {
        found.broken(Promise::Once, format!("one key was told {ids:?}"));
    }
    if is_refused_for_good(spending) && !ids.is_empty() {
        let what = format!("one key was refused, and told {ids:?}: {spending:?}");
        found.broken(Promise::Once, what);
    }
}

fn told_of(spending: &Spending) -> impl Iterator<Item = &RequestEnd> {
    spending.tries.iter().map(|made| &made.told)
}

/// Whatever was refused for what stood in its way stays refused under its key.
fn is_refused_for_good(spending: &Spending) -> bool {
    spending.keyed && told_of(spending).any(|told| told.status() == Some(422))
}

/// Refusals that come before anything is recorded.
fn says_nothing_recorded(told: &RequestEnd) -> bool {
    told.says_nothing_started() || matches!(told.status(), Some(404 | 422))
}

/// Once: there are no more payouts and refunds than were asked for.
fn check_spendings(found: &mut Findings<'_>) {
    type Asked = (String, Option<String>, Option<i64>);
    let evidence = found.evidence;
    let mut most: HashMap<Asked, usize> = HashMap::new();
    for spending in &evidence.history.spendings {
        let Some(merchant) = evidence.merchants.get(spending.merchant) else {
            continue;
        };
        let may_have_begun = told_of(spending).filter(|told| !says_nothing_recorded(told));
        let may_have_begun = may_have_begun.count();
        let of = (
            merchant.merchant_id.clone(),
            spending.refunds.clone(),
            spending.amount_minor,
        );
        *most.entry(of).or_default() += match spending.keyed {
            true if is_refused_for_good(spending) => 0,
            true => may_have_begun.min(1),
            false => may_have_begun,
        };
    }
    let made = evidence.records.disbursements.iter();
    for made in made.filter(|made| !made.scheduled && made.case_id.is_none()) {
        let merchant = made.merchant_id.to_string();
        let exactly = (
            merchant.clone(),
            made.reference.clone(),
            Some(made.amount_minor),
        );
        let whole = (merchant, made.reference.clone(), None);
        let is_asked = [exactly, whole].iter().any(|of| {
            let left = most.get_mut(of).filter(|left| **left > 0);
            left.map(|left| *left -= 1).is_some()
        });
        if !is_asked {
            let what = format!("{made:?} is more than anybody asked for");
            found.broken(Promise::Once, what);
        }
    }
}

/// Paid: COMPLETED is one credit of that amount to that account, which the merchant chose, or which
/// paid.
fn check_credits(
    found: &mut Findings<'_>,
    disbursement: &Disbursement,
    transfer: Option<&Transfer>,
) {
    let evidence = found.evidence;
    let is_account = match &disbursement.transaction_id {
        Some(charge) => {
            let mut charges = evidence.records.charges.iter();
            charges.any(|of| of.transaction_id == *charge && of.phone == disbursement.account)
        }
        None => evidence
            .history
            .payout_accounts
            .iter()
            .any(|(of, account)| {
                let merchant = evidence.merchants.get(*of).map(|of| of.merchant_id.clone());
                *account == disbursement.account
                    && merchant == Some(disbursement.merchant_id.to_string())
            }),
    };
    let credits = transfer.map(|transfer| transfer.credits.as_slice());
    let credits = credits.unwrap_or_default();
    let is_paid = credits.len() == 1
        && credits
            .iter()
            .all(|credit| credit.amount_minor == disbursement.amount_minor)
        && transfer.is_some_and(|transfer| transfer.account == disbursement.account);
    let is_false = disbursement.state == "COMPLETED" && !is_paid;
    if !is_account || is_false || credits.len() > 1 {
        let what = format!("{disbursement:?} and the book has {transfer:?}");
        found.broken(Promise::Paid, what);
    }
}

/// What the rail last told of the end, unless nobody need have heard it: because it only just told
/// it, or because a part of it that knows nothing answered later.
fn last_told(found: &Findings<'_>, transfer: Option<&Transfer>) -> Result<Option<Word>, ()> {
    let said = transfer.map(|transfer| transfer.said.as_slice());
    let mut last: Option<&RailMessage> = None;
    let mut is_denied = false;
    for said in said.unwrap_or_default() {
        if said.to != Asker::Query || !said.delivered {
            continue;
        }
        match said.what {
            Word::Success | Word::Failed(_) | Word::Reversed => {
                last = Some(said);
                is_denied = false;
            }
            Word::Unknown404 => is_denied = last.is_some(),
            _ => {}
        }
    }
    let is_fresh = last.is_some_and(|said| said.at + HEARD_WITHIN > found.evidence.time.now());
    match is_fresh || is_denied {
        true => Err(()),
        false => Ok(last.map(|said| said.what)),
    }
}

/// Ledger: what left the float by the ledger is what the rail has told.
fn check_ledger(
    found: &mut Findings<'_>,
    disbursement: &Disbursement,
    transfer: Option<&Transfer>,
) {
    let id = disbursement.disbursement_id;
    let float = format!("rail:{}:float", disbursement.rail);
    let kinds = [
        "DISBURSEMENT",
        "DISBURSEMENT_REVERSAL",
        "LATE_DISBURSEMENT",
        "LATE_REVERSAL",
    ];
    let left: i64 = kinds
        .iter()
        .map(|kind| posted(found, kind, id, &float))
        .sum();
    let amount = disbursement.amount_minor;
    // What was taken back after the rail's last word is no longer ours to know.
    let credits = transfer.map_or(&[][..], |transfer| &transfer.credits);
    let credited: i64 = credits.iter().map(|credit| credit.amount_minor).sum();
    let is_ours = credited == amount;
    let told = last_told(found, transfer);
    let should = match (disbursement.state.as_str(), told) {
        ("PENDING" | "PROCESSING", _) => Some(0),
        (_, Err(())) => None,
        ("COMPLETED", Ok(Some(Word::Reversed))) => Some(0),
        ("COMPLETED", Ok(_)) => Some(amount),
        (_, Ok(Some(Word::Success))) if is_ours => Some(amount),
        (_, Ok(_)) => Some(0),
    };
    if should.is_some_and(|should| should != left) {
        let what = format!(
            "{left} left the float by the ledger, {should:?} did: {disbursement:?}, {transfer:?}"
        );
        found.broken(Promise::Ledger, what);
    }
    let paid_to_house = posted(found, "PAYOUT_FEE", id, "house");
    if paid_to_house != fee_due(disbursement) {
        let what = format!("{paid_to_house} was paid to the house for {disbursement:?}");
        found.broken(Promise::Ledger, what);
    }
    let fee = posted(found, "DISBURSEMENT_FEE", id, &float);
    let taken = transfer.map_or(0, |transfer| transfer.fee_minor);
    let is_known = disbursement.state == "COMPLETED" && !was_decided(found, disbursement);
    if (fee != 0 || is_known) && fee != taken {
        let what = format!("{fee} is posted as the fee of {disbursement:?}, {transfer:?}");
        found.broken(Promise::Ledger, what);
    }
}

/// What a merchant pays for a payout that was paid, by the settings.
fn fee_due(disbursement: &Disbursement) -> i64 {
    if disbursement.kind != "PAYOUT" || disbursement.state != "COMPLETED" {
        return 0;
    }
    let setting = match (disbursement.rail.as_str(), disbursement.account.as_str()) {
        ("momo", _) => "payout-fee-momo",
        ("hubtel", _) => "payout-fee-hubtel",
        (_, wallet) if wallet.starts_with('+') => "payout-fee-paystack-wallet",
        _ => "payout-fee-paystack-bank",
    };
    let mut fees = PAYOUT_FEES_MINOR.iter();
    let fee = fees.find(|(name, _)| *name == setting);
    fee.map_or(0, |(_, minor)| *minor)
}

fn was_decided(found: &Findings<'_>, disbursement: &Disbursement) -> bool {
    let mut acts = found.evidence.history.acts.iter();
    acts.any(|act| {
        let is_end = matches!(act.what, CaseDecision::Failed | CaseDecision::Settled);
        act.reference == disbursement.shown_id && is_end
    })
}

/// Owned: what was taken back or paid late has a case, and what is nobody's is in suspense.
fn check_cases(found: &mut Findings<'_>, disbursement: &Disbursement) {
    let id = disbursement.disbursement_id;
    let has = |kind: &str| cases_of(found, id).any(|case| case.kind == kind);
    let is_taken_back = posted(found, "DISBURSEMENT_REVERSAL", id, "rail:") != 0;
    let is_refund_of_case = disbursement.case_id.is_some();
    let is_late = posted(found, "LATE_DISBURSEMENT", id, "rail:") != 0;
    let lacks_case = (is_taken_back && !has("TAKEN_BACK"))
        || (is_late && !has("PAID_LATE") && !is_refund_of_case);
    let in_suspense = in_suspense(found, disbursement);
    let should_be = -undecided(found, disbursement);
    let is_false = !is_refund_of_case && in_suspense != should_be;
    if lacks_case || is_false || is_taken_back != disbursement.reversed_at.is_some() {
        let what = format!("{in_suspense} is in suspense of {disbursement:?}");
        found.broken(Promise::Owned, what);
    }
    let is_open = disbursement.is_open();
    if is_open && !cases_of(found, id).any(|case| case.closed_at.is_none()) {
        let transfer = transfer_of(found, disbursement);
        let what = format!("{disbursement:?} never ends: {transfer:?}");
        found.broken(Promise::Live, what);
    }
}

/// Owned: the rail was heard at every look at what had ended.
fn check_looks(found: &mut Findings<'_>, disbursement: &Disbursement, transfer: &Transfer) {
    if disbursement.is_open() || disbursement.reversed_at.is_some() {
        return;
    }
    let ended_at = since_start(found, disbursement);
    let answers = transfer
        .said
        .iter()
        .filter(|said| said.to == Asker::Query && said.delivered && said.what != Word::Nothing);
    let answered_at: Vec<Millis> = answers.map(|said| said.at).collect();
    let mut until = Millis::MAX;
    for look in LOOKS.into_iter().rev() {
        let from = ended_at + look - LOOK_SLACK;
        let is_over = until.min(ended_at + look + HEARD_WITHIN) < found.evidence.time.now();
        let is_heard = answered_at.iter().any(|at| (from..until).contains(at));
        if is_over && !is_heard {
            let what = format!(
                "the rail was not heard at the look after {look} ms: {disbursement:?}, {transfer:?}"
            );
            found.broken(Promise::Owned, what);
        }
        until = from;
    }
}

fn since_start(found: &Findings<'_>, disbursement: &Disbursement) -> Millis {
    let since = disbursement.ended_at().since(found.evidence.time.start());
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// Failed: only the rail or an operator ends a disbursement as FAILED, and what is paid all the same
/// has a case once the rail has told.
fn check_failed(
    found: &mut Findings<'_>,
    disbursement: &Disbursement,
    transfer: Option<&Transfer>,
) {
    // Allows a second for an answer that was read while the store was asked for the time.
    let until = since_start(found, disbursement) + 1_000;
    let said = transfer.map(|transfer| transfer.said.as_slice());
    let is_the_rails_word = said.unwrap_or_default().iter().any(|said| {
        let is_end = match said.what {
            Word::Failed(_) | Word::Reversed => said.to == Asker::Query,
            Word::Refused(words) => !MAY_BE_SENT_LATER
                .iter()
                .any(|later| words.starts_with(later)),
            _ => false,
        };
        is_end && said.delivered && said.at <= until
    });
    // The rail refused the recipient, and had refused whatever it was asked before that.
    let has_nothing = transfer.is_none_or(|transfer| {
        let refused = transfer.said.iter().filter(|said| {
            said.delivered && said.to == Asker::Request && matches!(said.what, Word::Refused(_))
        });
        transfer.taken_at.is_empty() && refused.count() == transfer.asked_at.len()
    });
    if !is_the_rails_word && !has_nothing && !was_decided(found, disbursement) {
        let what = format!("{disbursement:?}, and the rail had not said so: {transfer:?}");
        found.broken(Promise::Failed, what);
    }
    let paid = transfer.map_or(0, Transfer::paid_minor);
    let is_told = matches!(last_told(found, transfer), Ok(Some(Word::Success)));
    let mut cases = cases_of(found, disbursement.disbursement_id);
    let has_case = cases.any(|case| matches!(case.kind.as_str(), "PAID_LATE" | "MISMATCH"));
    if paid != 0 && is_told && !has_case && disbursement.case_id.is_none() {
        let what = format!("{disbursement:?}, and was paid: {transfer:?}");
        found.broken(Promise::Paid, what);
    }
}

/// What refusals begin with that leave a transfer to be sent later.
const MAY_BE_SENT_LATER: [&str; 9] = [
    "SERVICE_UNAVAILABLE",
    "NOT_ALLOWED",
    "You cannot initiate third party payouts at this time",
    "401 ",
    "403 ",
    "4075 ",
    "4101 ",
    "4103 ",
    "4105 ",
];

/// Kept: nothing was sent under a reference that is not recorded. Once: each has one rail, and is
/// sent to one that does not refuse a second use only once.
fn check_transfers(found: &mut Findings<'_>) {
    let records = &found.evidence.records;
    let known: HashMap<String, &str> = records
        .disbursements
        .iter()
        .map(|one| (one.rail_reference.to_string(), one.rail.as_str()))
        .collect();
    for transfer in &found.evidence.transfers {
        let Some(rail) = known.get(&transfer.reference) else {
            let what = format!("the rail has a transfer that nobody recorded: {transfer:?}");
            found.broken(Promise::Kept, what);
            continue;
        };
        if *rail != transfer.rail.name() {
            let what = format!("another rail than {rail} heard of its transfer: {transfer:?}");
            found.broken(Promise::Once, what);
        }
        // What was refused may be sent later.
        let refused = transfer.said.iter().filter(|said| {
            said.delivered && said.to == Asker::Request && matches!(said.what, Word::Refused(_))
        });
        if transfer.rail == Rail::Hubtel && transfer.asked_at.len() > refused.count() + 1 {
            let what = format!("a rail that may pay twice was asked twice: {transfer:?}");
            found.broken(Promise::Once, what);
        }
    }
}

/// Covered: nobody is refunded more than was collected.
fn check_refunded(found: &mut Findings<'_>) {
    let records = &found.evidence.records;
    for charge in &records.charges {
        let refunds = records.disbursements.iter().filter(|refund| {
            refund.transaction_id == Some(charge.transaction_id)
                && refund.case_id.is_none()
                && refund.state != "FAILED"
                && refund.reversed_at.is_none()
        });
        let refunded: i64 = refunds.map(|refund| refund.amount_minor).sum();
        let collected = match charge.state.as_str() {
            "SETTLED" => charge.amount_minor,
            _ => 0,
        };
        if refunded > collected {
            let what = format!(
                "{refunded} of {collected} is refunded of {}",
                charge.reference
            );
            found.broken(Promise::Covered, what);
        }
    }
}

/// Covered: a balance is below zero only by a rail's reversal, and what is reserved is on its way.
fn check_balances(found: &mut Findings<'_>) {
    let evidence = found.evidence;
    let records = &evidence.records;
    for (number, merchant) in evidence.merchants.iter().enumerate() {
        let account = format!("merchant:{}", merchant.merchant_id);
        let reserved_account = format!("{account}:reserved");
        let held = |account: &str| -> i64 {
            let lines = records.postings.iter();
            let lines = lines.filter(|line| line.account == account);
            lines.map(|line| line.amount_minor).sum()
        };
        let open = records.disbursements.iter().filter(|open| {
            open.is_open()
                && open.case_id.is_none()
                && open.merchant_id.to_string() == merchant.merchant_id
        });
        let open: i64 = open.map(|open| open.amount_minor + open.fee_minor).sum();
        let reserved = held(&reserved_account);
        if reserved != open {
            let what = format!("{reserved} is reserved at {account} and {open} is on its way");
            found.broken(Promise::Covered, what);
        }
        let is_reversed = records.postings.iter().any(|line| {
            line.kind == "REVERSAL" && line.account == account && is_by_rail(found, line.subject)
        });
        let read = evidence.history.balances.iter();
        let read = read.filter(|read| read.merchant == number);
        let read = read.map(|read| read.available_minor);
        let least = read.chain([held(&account)]).min().unwrap_or_default();
        if least < 0 && !is_reversed {
            found.broken(Promise::Covered, format!("{account} held {least}"));
        }
    }
}

/// Whether a rail said that it had taken a charge's payment back. An operator's decision takes
/// back only what is there.
fn is_by_rail(found: &Findings<'_>, transaction_id: Uuid) -> bool {
    let mut cases = cases_of(found, transaction_id);
    cases.any(|case| case.kind == "REVERSED")
}

/// Once: a day is settled once for each merchant.
fn check_settlements(found: &mut Findings<'_>) {
    let mut settled = HashSet::new();
    for payout in &found.evidence.records.disbursements {
        let day = payout.created_at.datetime().date();
        if payout.scheduled && !settled.insert((payout.merchant_id, day)) {
            let what = format!("{day} is settled twice: {payout:?}");
            found.broken(Promise::Once, what);
        }
    }
}

/// Ledger: what treasury was told is posted is posted, once.
fn check_floats(found: &mut Findings<'_>) {
    for moved in &found.evidence.history.float_moves {
        let lines = posted(found, "FLOAT_MOVE", moved.move_id, "rail:");
        if lines != -moved.amount_minor {
            let what = format!("{lines} is posted of {moved:?}");
            found.broken(Promise::Ledger, what);
        }
    }
}
