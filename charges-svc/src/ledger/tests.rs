//! Every posting that this service can make balances in its one currency.

use chassis::money::Currency;
use proptest::prelude::*;

use super::*;
use crate::charge::{Event, tests::charge};

fn sums_to_zero(posting: &Posting) -> bool {
    let lines = posting.lines();
    let currency = lines[0].amount.currency();
    let sum: i128 = lines
        .iter()
        .map(|line| i128::from(line.amount.minor_units()))
        .sum();
    sum == 0 && lines.iter().all(|line| line.amount.currency() == currency)
}

fn accounts(posting: &Posting) -> Vec<String> {
    posting
        .lines()
        .iter()
        .map(|line| line.account.to_string())
        .collect()
}

/// A case of this kind about the charge.
fn case(charge: &Charge, kind: CaseKind, suspense: Option<Money>) -> Case {
    let about = (charge.facts.transaction_id, &charge.facts.reference);
    Case::new(
        about,
        kind,
        String::new(),
        suspense,
        charge.facts.created_at,
    )
}

fn nothing() -> Money {
    Money::new(0, Currency::GHS)
}

proptest! {
    #[test]
    fn every_posting_balances(minor in 1..=i64::MAX, release in any::<bool>()) {
        let charge = charge();
        let amount = Money::new(minor, Currency::USD);
        let late = case(&charge, CaseKind::LateMoney, Some(amount));
        let how = if release { Closing::Release } else { Closing::Refund };
        prop_assert!(sums_to_zero(&settlement(&charge.facts)?));
        prop_assert!(sums_to_zero(&suspense(&charge.facts, amount)?));
        let closed = closing(&late, &charge, how, None, nothing())?.expect("suspense is posted out");
        prop_assert!(sums_to_zero(&closed));
        let name = Account::Suspense;
        let out = closed.lines().iter().find(|line| line.account == name);
        prop_assert_eq!(out.map(|line| line.amount.minor_units()), Some(-minor));
    }

    #[test]
    fn nothing_and_less_cannot_be_posted(minor in i64::MIN..=0) {
        prop_assert!(suspense(&charge().facts, Money::new(minor, Currency::GHS)).is_err());
    }
}

#[test]
fn a_settlement_is_credited_to_its_merchant() {
    let charge = charge();
    let posting = settlement(&charge.facts).expect("a balanced posting");
    let merchant = format!("merchant:{}", charge.facts.merchant_id);
    assert_eq!(
        accounts(&posting),
        ["rail:paystack:clearing".to_owned(), merchant]
    );
    assert_eq!(posting.lines()[1].amount, charge.facts.amount());
}

#[test]
fn a_settled_payment_that_went_back_is_taken_from_its_merchant() {
    let fresh = charge();
    let (now, timing) = (fresh.facts.created_at, crate::charge::tests::timing());
    let settled = fresh.after(Event::Settled, now, timing).expect("legal");
    let reversed = case(&settled, CaseKind::Reversed, None);
    let refund = closing(&reversed, &settled, Closing::Refund, None, nothing()).expect("balanced");
    let refund = refund.expect("there is something to post");
    assert_eq!(refund.kind, PostingKind::Reversal);
    assert_eq!(refund.subject, settled.facts.transaction_id.uuid());
    assert_eq!(refund.lines()[0].amount.minor_units(), -2550);
    assert_eq!(
        refund.lines()[0].account,
        Account::Merchant(settled.facts.merchant_id)
    );
    let release =
        closing(&reversed, &settled, Closing::Release, None, nothing()).expect("balanced");
    assert_eq!(release, None, "the merchant keeps it");
}

#[test]
fn a_case_without_money_posts_nothing() {
    let charge = charge();
    let unknown = case(&charge, CaseKind::UnknownOutcome, None);
    for how in [Closing::Refund, Closing::Release] {
        let posted = closing(&unknown, &charge, how, None, nothing()).expect("balanced");
        assert_eq!(posted, None);
    }
}
