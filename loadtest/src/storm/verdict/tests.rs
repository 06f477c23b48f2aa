//! Each promise can be broken: one thing at a time is falsified in records that keep all of them.

use std::collections::BTreeMap;

use super::*;
use crate::storm::{
    books::{Debit, Pages},
    store::{Balance, Case, Posting},
    world::Acknowledged,
};

const CHARGE: Uuid = Uuid::from_u128(1);
const REFUND: Uuid = Uuid::from_u128(2);
const MERCHANT: Uuid = Uuid::from_u128(3);
const AT_RAIL: Uuid = Uuid::from_u128(4);

struct All {
    records: Records,
    books: Books,
    told: Told,
}

fn line(kind: &str, subject: Uuid, (account, amount_minor): (&str, i64)) -> Posting {
    Posting {
        kind: kind.to_owned(),
        subject,
        account: account.replace("merchant", &format!("merchant:{MERCHANT}")),
        amount_minor,
        currency: "GHS".to_owned(),
    }
}

fn movement(kind: &str, subject: Uuid, from: &str, to: &str, minor: i64) -> [Posting; 2] {
    [(from, -minor), (to, minor)].map(|of| line(kind, subject, of))
}

fn balance(account: &str, amount_minor: i64) -> Balance {
    Balance {
        account: account.replace("merchant", &format!("merchant:{MERCHANT}")),
        amount_minor,
        currency: "GHS".to_owned(),
    }
}

fn acknowledged(id: &str, minor: u64) -> Acknowledged {
    Acknowledged {
        merchant_id: MERCHANT.to_string(),
        id: id.to_owned(),
        amount_minor: Some(minor),
    }
}

fn page<T: for<'d> serde::Deserialize<'d>>(line: serde_json::Value) -> Pages<T> {
    let key = ("momo".to_owned(), AT_RAIL.to_string());
    [(key, serde_json::from_value(line).unwrap())].into()
}

/// A charge of 25.50 that has settled, of which 20.00 were refunded.
fn kept() -> All {
    let charge = Charge {
        transaction_id: CHARGE,
        merchant_id: MERCHANT,
        reference: "TX-1-1".to_owned(),
        tx_id_display: "TX-1".to_owned(),
        rail: "momo".to_owned(),
        rail_reference: AT_RAIL,
        callback_token: String::new(),
        amount_minor: 2_550,
        state: "SETTLED".to_owned(),
    };
    let refund = Disbursement {
        disbursement_id: REFUND,
        kind: "REFUND".to_owned(),
        shown_id: "RF-1".to_owned(),
        merchant_id: MERCHANT,
        transaction_id: Some(CHARGE),
        rail: "momo".to_owned(),
        rail_reference: AT_RAIL,
        callback_token: String::new(),
        amount_minor: 2_000,
        fee_minor: 0,
        state: "COMPLETED".to_owned(),
        sent_at: None,
        resent_at: None,
        reversed_at: None,
    };
    let (clearing, float) = ("rail:momo:clearing", "rail:momo:float");
    let postings = [
        movement("SETTLEMENT", CHARGE, clearing, "merchant", 2_550),
        movement("RESERVE", REFUND, "merchant", "merchant:reserved", 2_000),
        movement("DISBURSEMENT", REFUND, "merchant:reserved", float, 2_000),
    ];
    let records = Records {
        charges: vec![charge],
        disbursements: vec![refund],
        postings: postings.into_iter().flatten().collect(),
        balances: vec![balance("merchant", 550), balance("merchant:reserved", 0)],
        cases: Vec::new(),
        overdrafts: Vec::new(),
        untold: 0,
        void: 0,
    };
    let reference = AT_RAIL.to_string();
    let debit = serde_json::json!({
        "rail": "momo", "reference": reference, "phone": "+233240000001",
        "status": "succeeded", "debits": 1, "debited_minor": 2_550,
    });
    let credit = serde_json::json!({
        "rail": "momo", "reference": reference, "account": "+233240000001",
        "status": "succeeded", "credits": 1, "credited_minor": 2_000, "may_change": false,
    });
    let books = Books {
        debits: page(debit),
        credits: page(credit),
        spent_minor: BTreeMap::from([("momo".to_owned(), 2_000)]),
    };
    let told = Told {
        charges: vec![acknowledged("TX-1-1", 2_550)],
        disbursements: vec![acknowledged("RF-1", 2_000)],
        ..Told::default()
    };
    All {
        records,
        books,
        told,
    }
}

/// Which promises are broken once this has been falsified.
fn broken(falsify: impl FnOnce(&mut All)) -> Vec<&'static str> {
    let mut all = kept();
    falsify(&mut all);
    let verdict = Verdict::on_money(&all.records, &all.books, &all.told);
    let broken = verdict.broken().into_iter();
    let broken = broken.filter(|(_, found)| !found.is_empty());
    broken.map(|(name, _)| name).collect()
}

fn debit(all: &mut All) -> &mut Debit {
    all.books.debits.values_mut().next().unwrap()
}

fn credit(all: &mut All) -> &mut Credit {
    all.books.credits.values_mut().next().unwrap()
}

#[test]
fn what_is_kept_is_found_kept() {
    assert!(broken(|_| {}).is_empty());
}

#[test]
fn what_was_acknowledged_and_is_not_there_is_lost() {
    let forget = |all: &mut All| all.told.charges.push(acknowledged("TX-2-1", 100));
    assert_eq!(broken(forget), ["lost"]);
    let change = |all: &mut All| all.told.disbursements[0].amount_minor = Some(1_999);
    assert_eq!(broken(change), ["lost"]);
}

#[test]
fn what_nobody_knows_of_is_lost_or_doubled() {
    // Debited, and the charge is void.
    let void = |all: &mut All| {
        all.records.charges.clear();
        all.told.charges.clear();
    };
    assert_eq!(broken(void), ["lost"]);
    let unasked = |all: &mut All| drop(all.told.charges.pop());
    assert_eq!(broken(unasked), ["doubled"]);
}

#[test]
fn a_second_debit_or_credit_is_doubled() {
    assert_eq!(broken(|all| debit(all).debits = 2), ["doubled"]);
    assert_eq!(broken(|all| credit(all).credits = 2), ["doubled"]);
}

#[test]
fn what_settled_or_was_paid_without_the_rail_is_lost() {
    let undebited = |all: &mut All| debit(all).debited_minor = 0;
    assert_eq!(broken(undebited), ["lost"]);
    let uncredited = |all: &mut All| credit(all).credits = 0;
    assert_eq!(broken(uncredited), ["lost"]);
}

#[test]
fn more_refunded_than_collected_is_doubled() {
    let more = |all: &mut All| {
        all.records.charges[0].amount_minor = 1_999;
        debit(all).debited_minor = 1_999;
        all.told.charges[0].amount_minor = Some(1_999);
        let postings = &mut all.records.postings;
        postings.retain(|line| line.kind != "SETTLEMENT");
        let settled = movement(
            "SETTLEMENT",
            CHARGE,
            "rail:momo:clearing",
            "merchant",
            1_999,
        );
        postings.extend(settled);
        all.records.balances[0].amount_minor = -1;
    };
    assert_eq!(broken(more), ["doubled"]);
}

#[test]
fn a_balance_below_zero_is_an_overdraft() {
    let overdraw = |all: &mut All| all.records.overdrafts.push(balance("merchant", -1));
    assert_eq!(broken(overdraw), ["overdrafts"]);
}

#[test]
fn sums_that_are_off_are_told() {
    let single = |all: &mut All| {
        let posted = line("FLOAT_MOVE", MERCHANT, ("house", 1));
        all.records.postings.push(posted);
    };
    assert_eq!(broken(single), ["sums"]);
    let balance = |all: &mut All| all.records.balances[0].amount_minor += 1;
    assert_eq!(broken(balance), ["sums"]);
    let float = |all: &mut All| {
        all.books.spent_minor.insert("momo".to_owned(), 2_100);
    };
    assert_eq!(broken(float), ["sums"]);
}

#[test]
fn late_money_is_unfinished_until_it_is_in_suspense_with_a_case() {
    let late = |all: &mut All| {
        all.records.disbursements.clear();
        all.told.disbursements.clear();
        all.books.credits.clear();
        all.books.spent_minor.clear();
        all.records.postings.clear();
        all.records.balances.clear();
        all.records.charges[0].state = "FAILED".to_owned();
    };
    assert_eq!(broken(late), ["unfinished"]);
    let heard = |all: &mut All| {
        late(all);
        let suspended = movement("SUSPENSE", CHARGE, "rail:momo:clearing", "suspense", 2_550);
        all.records.postings.extend(suspended);
        all.records.cases.push(Case {
            subject: CHARGE,
            kind: "LATE_MONEY".to_owned(),
        });
    };
    assert!(broken(heard).is_empty());
}
