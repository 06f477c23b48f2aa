//! Money goes back to a payer once, whatever the rail says late.

use std::time::Duration;

use charges_svc::{
    case::{Case, CaseKind},
    charge::Event,
    disbursement::Disbursement,
    ledger, store,
};
use chassis::{
    failure::FailureReason,
    money::{Currency, Money},
    testing::{check_refusal, fake_server::empty, until},
};
use db::Insert;
use proto::charges::{
    CaseKind as ShownKind, CloseCaseRequest, DisbursementStatus, GetRefundRequest, Refund,
    ResolveDisbursementRequest, close_case_request::Action, resolve_disbursement_request::Outcome,
};
use tonic::Code;

use crate::{
    cases::{close, given_case, posted},
    mtn::{Mtn, transfers},
    shop::Shop,
    suspense_refunds::{given_late_money, refund_of},
    world::new_momo_charge,
};

const HOUR: Duration = Duration::from_hours(1);

impl Shop {
    async fn stored(&self, refund: &Refund) -> Disbursement {
        let mut conn = self.world.db.read().await.unwrap();
        let found = store::disbursements::find_shown(&mut conn, &refund.refund_id).await;
        found.unwrap().unwrap()
    }

    async fn until_refund(&self, refund: &Refund, status: DisbursementStatus) {
        let request = GetRefundRequest {
            merchant_id: self.merchant(),
            refund_id: refund.refund_id.clone(),
        };
        until(&format!("the refund is {status:?}"), async || {
            let mut disbursements = self.world.disbursements.clone();
            let found = disbursements.get_refund(request.clone()).await;
            found.unwrap().into_inner().status() == status
        })
        .await;
    }

    async fn until_case(&self, kind: ShownKind) {
        until(&format!("there is a case of {kind:?}"), async || {
            let open = self.open_cases().await;
            open.iter().any(|case| case.kind() == kind)
        })
        .await;
    }

    /// Lets hours pass, in each of which the refund is looked at, and left alone.
    async fn hours_pass(&self, refund: &Refund) {
        for _ in 0..3 {
            self.world.clock.advance(HOUR).await.unwrap();
            until("the refund is left alone", async || {
                let found = self.stored(refund).await;
                let now = self.world.clock.now();
                found.claim.fence.is_none() && found.next_due_at.is_some_and(|due| due > now)
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_refund_that_is_paid_after_it_failed_counts() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("FAILED", Some("COULD_NOT_PERFORM_TRANSACTION"));
    let mut shop = Shop::open(&mtn).await;
    let refund = shop.refund(None).await.unwrap();
    shop.until_refund(&refund, DisbursementStatus::Failed).await;
    mtn.ends("SUCCESSFUL", None);
    shop.world.clock.advance(2 * HOUR).await.unwrap();
    shop.until_case(ShownKind::PaidLate).await;
    let again = shop.refund(None).await;
    check_refusal(again, Code::FailedPrecondition, "REFUND_EXCEEDS_CHARGE");
    assert_eq!(transfers(&shop.network), 1);
    // Nor does an operator take the whole credit back beside it.
    let twice = given_case(&shop.world, &shop.charge, CaseKind::CreditedTwice, None).await;
    let refused = close(&mut shop.world, &twice, Action::Refund).await;
    check_refusal(refused, Code::FailedPrecondition, "ALREADY_TAKEN_BACK");

    let mut tx = shop.world.db.begin().await.unwrap();
    let taken_back = ledger::late_reversal(&shop.stored(&refund).await, None).unwrap();
    let posted = store::postings::post(&mut tx, &taken_back, shop.world.clock.now()).await;
    assert_eq!(posted.unwrap(), Insert::Inserted);
    tx.commit().await.unwrap();
    shop.refund(None).await.unwrap();
    shop.end().await;
}

#[tokio::test]
async fn a_refund_of_what_the_rail_took_back_meanwhile_is_not_sent() {
    let mtn = Mtn::with_float("0");
    let mut shop = Shop::open(&mtn).await;
    let refund = shop.refund(None).await.unwrap();
    shop.until_case(ShownKind::FloatEmpty).await;
    let reversed = given_case(&shop.world, &shop.charge, CaseKind::Reversed, None).await;
    mtn.set_float("1000");
    shop.hours_pass(&refund).await;
    let refused = close(&mut shop.world, &reversed, Action::Refund).await;
    check_refusal(refused, Code::FailedPrecondition, "CASE_BEING_REFUNDED");
    fail(&shop, &refund).await;
    shop.until_refund(&refund, DisbursementStatus::Failed).await;
    assert_eq!(transfers(&shop.network), 0);
    assert_eq!(shop.balance().await, (2550, 0));
    close(&mut shop.world, &reversed, Action::Refund)
        .await
        .unwrap();
    shop.end().await;
}

#[tokio::test]
async fn a_refund_that_waits_while_another_is_paid_late_is_not_sent() {
    let mtn = Mtn::with_float("1000");
    mtn.ends("FAILED", Some("COULD_NOT_PERFORM_TRANSACTION"));
    let mut shop = Shop::open(&mtn).await;
    let first = shop.refund(None).await.unwrap();
    shop.until_refund(&first, DisbursementStatus::Failed).await;
    mtn.set_float("0");
    let second = shop.refund(None).await.unwrap();
    shop.until_case(ShownKind::FloatEmpty).await;
    pay_first_late(&shop, &mtn, &second).await;
    shop.end().await;
}

/// Pays the first of two refunds late. The second stays where it is, though the float is filled.
async fn pay_first_late(shop: &Shop, mtn: &Mtn, second: &Refund) {
    mtn.ends("SUCCESSFUL", None);
    shop.world.clock.advance(2 * HOUR).await.unwrap();
    shop.until_case(ShownKind::PaidLate).await;
    mtn.set_float("1000");
    shop.hours_pass(second).await;
    assert_eq!(transfers(&shop.network), 1);
}

/// A case's suspense of which the first refund failed and was paid all the same, while the second
/// waits for the float.
async fn given_suspense_paid_late(mtn: &Mtn) -> (Shop, Case, Refund) {
    mtn.ends("FAILED", Some("COULD_NOT_PERFORM_TRANSACTION"));
    let mut shop = Shop::open(mtn).await;
    let (_, case) = given_late_money(&shop).await;
    close(&mut shop.world, &case, Action::Refund).await.unwrap();
    let first = refund_of(&shop).await;
    shop.until_refund(&first, DisbursementStatus::Failed).await;
    mtn.set_float("0");
    close(&mut shop.world, &case, Action::Refund).await.unwrap();
    shop.until_case(ShownKind::FloatEmpty).await;
    let open = shop.open_cases().await;
    let second = open.iter().find_map(|case| case.refund_id.clone());
    let second = Refund {
        refund_id: second.expect("a refund is on its way"),
        ..first
    };
    pay_first_late(&shop, mtn, &second).await;
    (shop, case, second)
}

async fn reopen(shop: &Shop, case_id: &str) {
    let mut tx = shop.world.db.begin().await.unwrap();
    let case_id = case_id.parse().unwrap();
    store::cases::reopen(&mut tx, case_id).await.unwrap();
    tx.commit().await.unwrap();
}

async fn fail(shop: &Shop, refund: &Refund) {
    let failed = ResolveDisbursementRequest {
        id: refund.refund_id.clone(),
        outcome: Some(Outcome::FailedReason("RAIL_UNAVAILABLE".to_owned())),
        evidence: "the payer has it already".to_owned(),
    };
    let mut treasury = shop.world.treasury.clone();
    treasury.resolve_disbursement(failed).await.unwrap();
}

#[tokio::test]
async fn a_second_refund_of_suspense_is_not_sent_once_the_first_was_paid_late() {
    let mtn = Mtn::with_float("1000");
    let (mut shop, case, second) = given_suspense_paid_late(&mtn).await;
    fail(&shop, &second).await;
    assert!(shop.open_cases().await.is_empty(), "the first has done it");
    for action in [Action::Refund, Action::Release] {
        let refused = close(&mut shop.world, &case, action).await;
        check_refusal(refused, Code::FailedPrecondition, "CASE_CLOSED");
    }
    assert_eq!(transfers(&shop.network), 1);
    assert_eq!(shop.balance().await, (2550, 0));
    shop.end().await;
}

/// Both are decided about by what becomes of the second, and never paid out again.
#[tokio::test]
async fn what_was_paid_late_waits_for_the_second_refund_of_its_suspense() {
    let mtn = Mtn::with_float("1000");
    let (mut shop, case, second) = given_suspense_paid_late(&mtn).await;
    let open = shop.open_cases().await;
    let late = open.iter().find(|case| case.kind() == ShownKind::PaidLate);
    let mut borne = CloseCaseRequest {
        case_id: late.unwrap().case_id.clone(),
        ..CloseCaseRequest::default()
    };
    borne.set_action(Action::Release);
    let refused = shop.world.operations.close_case(borne.clone()).await;
    check_refusal(refused, Code::FailedPrecondition, "CASE_BEING_REFUNDED");
    fail(&shop, &second).await;
    assert!(shop.open_cases().await.is_empty());
    // As if the second had come back after somebody had borne the first.
    reopen(&shop, &case.case_id.to_string()).await;
    for action in [Action::Refund, Action::Release] {
        let refused = close(&mut shop.world, &case, action).await;
        check_refusal(refused, Code::FailedPrecondition, "REFUND_PAID_LATE");
    }
    // As the version before left them.
    reopen(&shop, &borne.case_id).await;
    shop.world.operations.close_case(borne).await.unwrap();
    assert!(
        shop.open_cases().await.is_empty(),
        "one stands for the other"
    );
    assert_eq!(shop.balance().await, (2550, 0));
    assert_eq!(transfers(&shop.network), 1);
    shop.end().await;
}

#[tokio::test]
async fn a_refund_of_what_the_rail_took_back_meanwhile_is_not_sent_again() {
    let mtn = Mtn::with_float("1000");
    mtn.answers(empty(500), false);
    let mut shop = Shop::open(&mtn).await;
    shop.refund(None).await.unwrap();
    until("it is sent", async || transfers(&shop.network) == 1).await;
    given_case(&shop.world, &shop.charge, CaseKind::Reversed, None).await;
    until("a person is asked", async || {
        shop.world.clock.advance(HOUR).await.unwrap();
        let open = shop.open_cases().await;
        open.iter()
            .any(|case| case.kind() == ShownKind::UnknownOutcome)
    })
    .await;
    assert_eq!(transfers(&shop.network), 1);
    shop.end().await;
}

/// The rail is heard while the operator's decision waits for the charge.
#[tokio::test]
async fn suspense_that_arrives_while_its_case_is_closed_is_sent_back() {
    let mtn = Mtn::with_float("1000");
    let mut shop = Shop::open(&mtn).await;
    if !shop.world.db.is_postgres() {
        return shop.end().await;
    }
    let mut charge = new_momo_charge(shop.world.clock.now());
    charge.facts_mut().merchant_id = shop.charge.facts.merchant_id;
    let late = Event::Failed(FailureReason::PayerTimeout);
    let charge = shop.world.given(charge, &[Event::Accepted, late]).await;
    let mut case = given_case(&shop.world, &charge, CaseKind::LateMoney, None).await;
    let db = shop.world.db.clone();
    let mut tx = db.begin().await.unwrap();
    let locked = store::charges::find_locked(&mut tx, charge.facts.transaction_id).await;
    assert!(locked.unwrap().is_some());
    let found = case.clone();
    let now = shop.world.clock.now();
    let arrive = async {
        until("the operator waits", async || {
            let mut conn = db.read().await.unwrap();
            let waiting = "select count(*) from pg_stat_activity
                           where datname = current_database() and wait_event_type = 'Lock'";
            let (waiting,): (i64,) = conn.sql(waiting).one().await.unwrap();
            waiting == 1
        })
        .await;
        let money = Money::new(2550, Currency::GHS);
        let about = (charge.facts.transaction_id, &charge.facts.reference);
        case = charges_svc::case::Case::new(
            about,
            CaseKind::LateMoney,
            "as seen".to_owned(),
            Some(money),
            now,
        );
        store::cases::open(&mut tx, &case).await.unwrap();
        let posting = ledger::suspense(&charge.facts, money).unwrap();
        let posted = store::postings::post(&mut tx, &posting, now).await;
        assert_eq!(posted.unwrap(), Insert::Inserted);
        tx.commit().await.unwrap();
    };
    let (closed, ()) = futures::join!(close(&mut shop.world, &found, Action::Refund), arrive);
    closed.unwrap();
    until("it is sent back", async || transfers(&shop.network) == 1).await;
    until("the case is closed", async || {
        shop.open_cases().await.is_empty()
    })
    .await;
    assert_eq!(
        posted(&mut shop.world, &charge).await.len(),
        2,
        "the rest is the refund's"
    );
    shop.end().await;
}
