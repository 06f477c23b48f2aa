//! The lines that a balance is the sum of.

use std::time::Duration;

use charges_svc::{
    case::{Case, CaseKind},
    charge::{Charge, Event},
};
use chassis::{
    failure::FailureReason,
    ids::MerchantId,
    money::{Currency, Money},
    testing::{check_invalid, until},
};
use futures::future::join_all;
use proto::charges::{
    BalanceLine, BalancePart, CloseCaseRequest, DisbursementStatus, ListBalanceLinesRequest,
    close_case_request::Action,
};

use crate::{
    cases::{close, given_case},
    mtn::Mtn,
    shop::Shop,
    world::new_momo_charge,
};

impl Shop {
    /// All lines of one part, newest first, read by pages of this size.
    async fn lines(&self, merchant: &str, part: BalancePart, page_size: u32) -> Vec<BalanceLine> {
        let mut request = ListBalanceLinesRequest {
            merchant_id: merchant.to_owned(),
            page_size,
            part: part.into(),
            ..ListBalanceLinesRequest::default()
        };
        let mut lines = Vec::new();
        loop {
            let mut figures = self.world.figures.clone();
            let page = figures.list_balance_lines(request.clone()).await.unwrap();
            let page = page.into_inner();
            assert!(page.lines.len() <= usize::try_from(page_size).unwrap());
            lines.extend(page.lines);
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return lines;
            }
        }
    }
}

fn minor(money: Option<&proto::money::Money>) -> i64 {
    money.expect("an amount").minor_units
}

/// Checks that these lines lead from nothing to this sum, each with the balance after it.
fn check_lines(lines: &[BalanceLine], sum: i64) {
    let mut balance = 0;
    for line in lines.iter().rev() {
        balance += minor(line.amount.as_ref());
        assert_eq!(minor(line.balance.as_ref()), balance, "{line:?}");
    }
    assert_eq!(balance, sum);
}

#[tokio::test]
async fn lines_sum_to_what_is_shown_and_name_what_they_belong_to() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    shop.collect().await;
    shop.collect().await;
    shop.enable_payouts().await;
    let payout = shop.pay_out(1_000).await.unwrap();
    shop.until_payout(&payout, DisbursementStatus::Completed)
        .await;
    let refund = shop.refund(Some(500)).await.unwrap();
    until("both are paid", async || shop.balance().await.1 == 0).await;
    let merchant = shop.merchant();
    let owner = shop.change_merchant().await;
    assert_eq!(owner.facts.merchant_id.to_string(), merchant);

    for page_size in [1, 2, 100] {
        let available = shop
            .lines(&merchant, BalancePart::Available, page_size)
            .await;
        check_lines(&available, 3 * 2_550 - 1_500);
        let kinds: Vec<&str> = available.iter().map(|line| line.posting.as_str()).collect();
        let collected = ["SETTLEMENT"; 3];
        assert_eq!(kinds, [["RESERVE"; 2].as_slice(), &collected].concat());
        let about = available.iter().map(|line| line.reference().to_owned());
        let about: Vec<String> = about.collect();
        assert_eq!(
            &about[..2],
            [refund.refund_id.clone(), payout.payout_id.clone()]
        );
        assert_eq!(about.last(), Some(&owner.facts.reference.to_string()));
        let reserved = shop
            .lines(&merchant, BalancePart::Reserved, page_size)
            .await;
        let paid = reserved
            .iter()
            .filter(|line| line.posting == "DISBURSEMENT");
        assert_eq!(paid.count(), 2, "{reserved:?}");
        check_lines(&reserved, 0);
    }
    let other = shop
        .lines(&shop.merchant(), BalancePart::Available, 100)
        .await;
    check_lines(&other, 2_550);
    let nobody = MerchantId::new().to_string();
    assert!(
        shop.lines(&nobody, BalancePart::Available, 100)
            .await
            .is_empty()
    );
    shop.end().await;
}

#[tokio::test]
async fn lines_of_a_time_have_the_balances_of_that_time() {
    let mtn = Mtn::with_float("1000");
    let shop = Shop::open(&mtn).await;
    shop.collect().await;
    shop.collect().await;
    let all = shop
        .lines(&shop.merchant(), BalancePart::Available, 100)
        .await;
    let [_, middle, oldest] = all.as_slice() else {
        panic!("{all:?}");
    };
    let request = ListBalanceLinesRequest {
        merchant_id: shop.merchant(),
        from: oldest.at.clone(),
        to: middle.at.clone(),
        currency: "GHS".to_owned(),
        ..ListBalanceLinesRequest::default()
    };
    let mut figures = shop.world.figures.clone();
    let page = figures.list_balance_lines(request.clone()).await.unwrap();
    let before: Vec<_> = all
        .iter()
        .filter(|line| line.at < middle.at)
        .cloned()
        .collect();
    assert_eq!(page.into_inner().lines, before);
    let usd = ListBalanceLinesRequest {
        from: String::new(),
        to: String::new(),
        currency: "USD".to_owned(),
        ..request.clone()
    };
    let none = figures.list_balance_lines(usd).await.unwrap();
    assert!(none.into_inner().lines.is_empty());
    let wrong = |change: &dyn Fn(&mut ListBalanceLinesRequest)| {
        let mut wrong = request.clone();
        change(&mut wrong);
        wrong
    };
    for (field, request) in [
        (
            "merchant_id",
            wrong(&|request| request.merchant_id = String::new()),
        ),
        (
            "currency",
            wrong(&|request| request.currency = "cedi".to_owned()),
        ),
        (
            "page_token",
            wrong(&|request| request.page_token = "1.x".to_owned()),
        ),
        ("page_size", wrong(&|request| request.page_size = 101)),
        ("from", wrong(&|request| request.from = "today".to_owned())),
    ] {
        check_invalid(figures.list_balance_lines(request).await, field);
    }
    shop.end().await;
}

#[tokio::test]
async fn what_is_held_for_a_case_is_told_until_it_is_decided() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    assert!(shop.told_balance().await.suspense.is_empty());
    let mut charge = new_momo_charge(shop.world.clock.now());
    charge.facts_mut().merchant_id = shop.charge.facts.merchant_id;
    let late = Event::Failed(FailureReason::PayerTimeout);
    let charge = shop.world.given(charge, &[Event::Accepted, late]).await;
    let money = Money::new(2_550, Currency::GHS);
    let case = given_case(&shop.world, &charge, CaseKind::LateMoney, Some(money)).await;
    assert_eq!(shop.told_balance().await.suspense, [money.into()]);
    // Whoever looks meanwhile sees the money in one of the two places.
    let mut operations = shop.world.operations.clone();
    let release = CloseCaseRequest {
        case_id: case.case_id.to_string(),
        action: Action::Release.into(),
        override_reason: None,
        evidence: None,
    };
    let looks = join_all((0..40).map(|_| shop.told_balance()));
    let (closed, looks) = tokio::join!(operations.close_case(release), looks);
    closed.unwrap();
    for told in looks {
        let held = told.available.iter().chain(&told.suspense);
        let held: i64 = held.map(|money| money.minor_units).sum();
        assert_eq!(held, 2 * 2_550, "{told:?}");
    }
    assert!(shop.told_balance().await.suspense.is_empty());
    let lines = shop
        .lines(&shop.merchant(), BalancePart::Available, 100)
        .await;
    check_lines(&lines, 2 * 2_550);
    let released = lines.first().unwrap();
    assert_eq!(released.posting, "RELEASE");
    assert_eq!(released.reference(), charge.facts.reference.to_string());
    shop.change_merchant().await;
    assert!(shop.told_balance().await.suspense.is_empty());
    shop.end().await;
}

/// A charge of this merchant whose money is held for this reason.
async fn given_held(shop: &Shop, kind: CaseKind, minor: i64) -> (Charge, Case) {
    let mut charge = new_momo_charge(shop.world.clock.now());
    charge.facts_mut().merchant_id = shop.charge.facts.merchant_id;
    let late = Event::Failed(FailureReason::PayerTimeout);
    let events: &[Event] = match kind {
        CaseKind::LateMoney => &[Event::Accepted, late],
        _ => &[Event::Accepted],
    };
    let charge = shop.world.given(charge, events).await;
    let money = Money::new(minor, Currency::GHS);
    let case = given_case(&shop.world, &charge, kind, Some(money)).await;
    (charge, case)
}

#[tokio::test]
async fn what_is_held_is_the_sum_of_what_came_until_it_is_decided() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("PENDING", None);
    let mut shop = Shop::open(&mtn).await;
    let merchant = shop.merchant();
    let held = async |shop: &Shop, page_size| {
        let lines = shop
            .lines(&shop.merchant(), BalancePart::Suspense, page_size)
            .await;
        let told = shop.told_balance().await.suspense;
        check_lines(&lines, told.first().map_or(0, |money| money.minor_units));
        lines
    };
    assert!(held(&shop, 100).await.is_empty());
    // No money has come with these.
    given_case(&shop.world, &shop.charge, CaseKind::UnknownOutcome, None).await;
    given_case(&shop.world, &shop.charge, CaseKind::LateMoney, None).await;
    let (first, first_case) = given_held(&shop, CaseKind::LateMoney, 2_550).await;
    shop.world
        .clock
        .advance(Duration::from_secs(1))
        .await
        .unwrap();
    let (second, _) = given_held(&shop, CaseKind::Mismatch, 1_000).await;
    for page_size in [1, 2, 100] {
        let lines = held(&shop, page_size).await;
        let told = |line: &BalanceLine| {
            let (why, reference) = (line.held_for().to_owned(), line.reference().to_owned());
            (why, reference, minor(line.amount.as_ref()))
        };
        let told: Vec<_> = lines.iter().map(told).collect();
        let expected = [("MISMATCH", &second, 1_000), ("LATE_MONEY", &first, 2_550)];
        let expected = expected.map(|(why, charge, minor)| {
            (why.to_owned(), charge.facts.reference.to_string(), minor)
        });
        assert_eq!(told, expected);
        assert!(lines.iter().all(|line| line.posting == "SUSPENSE"));
        assert!(lines.iter().all(|line| line.refund_id.is_none()));
    }
    let [newest, oldest] = held(&shop, 100).await.try_into().unwrap();
    let before = ListBalanceLinesRequest {
        merchant_id: merchant.clone(),
        to: newest.at.clone(),
        part: BalancePart::Suspense.into(),
        ..ListBalanceLinesRequest::default()
    };
    let mut figures = shop.world.figures.clone();
    let before = figures.list_balance_lines(before).await.unwrap();
    assert_eq!(before.into_inner().lines, [oldest]);

    let owner = shop.change_merchant().await;
    assert!(held(&shop, 100).await.is_empty(), "it is another's");
    shop.charge = owner;

    // It is held until it has arrived.
    close(&mut shop.world, &first_case, Action::Refund)
        .await
        .unwrap();
    let lines = held(&shop, 100).await;
    let refunds: Vec<_> = lines.iter().map(|line| line.refund_id.clone()).collect();
    let [None, Some(refund_id)] = refunds.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(refund_id.starts_with("RF-"), "{refund_id}");
    mtn.ends("SUCCESSFUL", None);
    until("it has arrived", async || {
        let lines = shop.lines(&merchant, BalancePart::Suspense, 100).await;
        lines.len() == 1
    })
    .await;
    let left = held(&shop, 100).await;
    assert_eq!(left.first().unwrap().held_for(), "MISMATCH");
    shop.end().await;
}
