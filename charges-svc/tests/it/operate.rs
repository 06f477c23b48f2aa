//! What operators do, and what happens to the money.

use charges_svc::{
    case::{Case, CaseKind},
    charge::{Charge, Event, State},
};
use chassis::{
    failure::FailureReason,
    money::{Currency, Money},
    testing::check_refusal,
};
use futures::future::join_all;
use proto::charges::{
    CloseCaseRequest, GetBalanceRequest, GetChargeRequest, ListCasesRequest, ResolveChargeRequest,
    ShowChargeRequest, SubmitOtpRequest, close_case_request::Action,
    resolve_charge_request::Outcome,
};
use tonic::Code;

use crate::{
    cases::{close, given_case, posted},
    world::{Neighbour, World, ghs},
};

const LATE: Event = Event::Failed(FailureReason::PayerTimeout);

fn resolve(charge: &Charge, outcome: Outcome) -> ResolveChargeRequest {
    ResolveChargeRequest {
        reference: charge.facts.reference.to_string(),
        evidence: "statement of 31 January, line 12".to_owned(),
        outcome: Some(outcome),
    }
}

fn failed() -> Outcome {
    Outcome::FailedReason("PAYER_DECLINED".to_owned())
}

async fn balance(world: &mut World, charge: &Charge) -> Vec<proto::money::Money> {
    let request = GetBalanceRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        with_suspense: true,
    };
    world
        .charges
        .get_balance(request)
        .await
        .unwrap()
        .into_inner()
        .available
}

#[tokio::test]
async fn a_charge_is_settled_once_however_many_decide_at_once() {
    let mut world = World::start_beside(Neighbour::Away).await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    let answers = join_all((0..16).map(|number| {
        let mut operations = world.operations.clone();
        let outcome = if number % 2 == 0 {
            Outcome::Settled(true)
        } else {
            failed()
        };
        let request = resolve(&charge, outcome);
        async move { operations.resolve_charge(request).await }
    }))
    .await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(done.len(), 1);
    for answer in refused {
        check_refusal(answer, Code::FailedPrecondition, "CHARGE_ALREADY_TERMINAL");
    }
    let after = world.charge(&charge.facts.reference).await;
    assert!(after.progress.state.is_terminal());
    let expected = if after.progress.state == State::Settled {
        vec![ghs(2550)]
    } else {
        Vec::new()
    };
    assert_eq!(balance(&mut world, &charge).await, expected);
    let mut conn = world.db.read().await.unwrap();
    let (events,): (i64,) = conn
        .sql("select count(*) from outbox where event_id is not null")
        .one()
        .await
        .unwrap();
    assert_eq!(events, 1, "one event tells of its end");
    drop(conn);
    world.restart().await.end().await;
}

#[tokio::test]
async fn an_operators_evidence_settles_a_charge_and_credits_its_merchant() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Unanswered]).await;
    let request = resolve(&charge, Outcome::Settled(true));
    let shown = world
        .operations
        .resolve_charge(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(shown.state, "SETTLED");
    assert_eq!(shown.evidence[0].action, "operator");
    assert_eq!(
        shown.evidence[0].rail_text.as_deref(),
        Some("statement of 31 January, line 12")
    );
    assert_eq!(shown.next_query_at, None);
    assert_eq!(
        posted(&mut world, &charge).await,
        [
            "SETTLEMENT rail:paystack:clearing -2550",
            "SETTLEMENT merchant:M 2550"
        ]
    );
    assert_eq!(balance(&mut world, &charge).await, [ghs(2550)]);
    let get = GetChargeRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
    };
    let got = world.charges.get_charge(get).await.unwrap().into_inner();
    assert_eq!(got.status(), proto::charges::ChargeStatus::Settled);
    assert_eq!(got.failure_reason, None);
    world.end().await;
}

#[tokio::test]
async fn what_the_rail_reported_otherwise_cannot_be_settled() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    let money = Money::new(2450, Currency::GHS);
    let case = given_case(&world, &charge, CaseKind::Mismatch, Some(money)).await;
    let answer = world
        .operations
        .resolve_charge(resolve(&charge, Outcome::Settled(true)))
        .await;
    check_refusal(answer, Code::FailedPrecondition, "EVIDENCE_MISMATCH");
    let refused = close(&mut world, &case, Action::Refunded).await;
    check_refusal(
        refused,
        Code::FailedPrecondition,
        "CASE_NEEDS_CHARGE_RESOLVED",
    );
    world
        .operations
        .resolve_charge(resolve(&charge, failed()))
        .await
        .unwrap();
    close(&mut world, &case, Action::Refunded).await.unwrap();
    let again = close(&mut world, &case, Action::Release).await;
    check_refusal(again, Code::FailedPrecondition, "CASE_CLOSED");
    let mut posted = posted(&mut world, &charge).await;
    posted.sort();
    assert_eq!(
        posted,
        [
            "REFUND rail:paystack:clearing 2450",
            "REFUND suspense -2450",
            "SUSPENSE rail:paystack:clearing -2450",
            "SUSPENSE suspense 2450",
        ]
    );
    assert_eq!(balance(&mut world, &charge).await, []);
    world.end().await;
}

#[tokio::test]
async fn late_money_that_is_released_is_the_merchants_and_the_charge_stays_failed() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted, LATE]).await;
    let money = Money::new(2550, Currency::GHS);
    let case = given_case(&world, &charge, CaseKind::LateMoney, Some(money)).await;
    let listed = world
        .operations
        .list_cases(ListCasesRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.cases.len(), 1);
    assert_eq!(
        listed.cases[0].reference,
        charge.facts.reference.to_string()
    );
    assert_eq!(listed.cases[0].suspense, Some(ghs(2550)));
    close(&mut world, &case, Action::Release).await.unwrap();
    assert_eq!(balance(&mut world, &charge).await, [ghs(2550)]);
    assert_eq!(
        world.charge(&charge.facts.reference).await.progress.state,
        State::Failed
    );
    let listed = world
        .operations
        .list_cases(ListCasesRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.cases, []);
    world.end().await;
}

async fn open_cases(world: &mut World) -> Vec<proto::charges::Case> {
    let listed = world.operations.list_cases(ListCasesRequest {}).await;
    listed.unwrap().into_inner().cases
}

/// A session whose first charge failed, but whose money came later.
async fn given_late_money(world: &World) -> (Charge, Case) {
    let failed = world.given_charge(&[Event::Accepted, LATE]).await;
    let money = Money::new(2550, Currency::GHS);
    let case = given_case(world, &failed, CaseKind::LateMoney, Some(money)).await;
    (failed, case)
}

#[tokio::test]
async fn late_money_is_not_released_where_the_session_is_paid() {
    let mut world = World::start().await;
    let (failed, case) = given_late_money(&world).await;
    let second = world.given_next_charge(&failed, &[Event::Accepted]).await;
    let request = resolve(&second, Outcome::Settled(true));
    world.operations.resolve_charge(request).await.unwrap();
    let refused = close(&mut world, &case, Action::Release).await;
    let told = refused.clone().unwrap_err();
    assert!(told.message().contains("refund"), "{told}");
    check_refusal(
        refused,
        Code::FailedPrecondition,
        "RELEASE_WOULD_CREDIT_TWICE",
    );
    assert_eq!(balance(&mut world, &failed).await, [ghs(2550)]);
    assert_eq!(open_cases(&mut world).await.len(), 1);
    close(&mut world, &case, Action::Refunded).await.unwrap();
    assert_eq!(balance(&mut world, &failed).await, [ghs(2550)]);
    world.end().await;
}

#[tokio::test]
async fn two_charges_of_a_session_are_not_both_released() {
    let mut world = World::start().await;
    let (failed, case) = given_late_money(&world).await;
    let second = world
        .given_next_charge(&failed, &[Event::Accepted, LATE])
        .await;
    let money = Money::new(2550, Currency::GHS);
    let other = given_case(&world, &second, CaseKind::LateMoney, Some(money)).await;
    close(&mut world, &case, Action::Release).await.unwrap();
    let refused = close(&mut world, &other, Action::Release).await;
    check_refusal(
        refused,
        Code::FailedPrecondition,
        "RELEASE_WOULD_CREDIT_TWICE",
    );
    assert_eq!(balance(&mut world, &failed).await, [ghs(2550)]);
    world.end().await;
}

#[tokio::test]
async fn a_charge_that_settles_after_a_release_opens_a_case() {
    let mut world = World::start().await;
    let (failed, case) = given_late_money(&world).await;
    let second = world.given_next_charge(&failed, &[Event::Accepted]).await;
    close(&mut world, &case, Action::Release).await.unwrap();
    let request = resolve(&second, Outcome::Settled(true));
    world.operations.resolve_charge(request).await.unwrap();
    // The settlement is a fact and is not refused, so the merchant is credited twice.
    assert_eq!(balance(&mut world, &failed).await, [ghs(5100)]);
    let [opened] = &open_cases(&mut world).await[..] else {
        panic!("one case is open");
    };
    assert_eq!(opened.reference, second.facts.reference.to_string());
    assert_eq!(opened.kind(), proto::charges::CaseKind::CreditedTwice);
    // The payer gets back what the second charge took, and the merchant keeps the first.
    let request = CloseCaseRequest {
        case_id: opened.case_id.clone(),
        action: Action::Refund.into(),
        override_reason: None,
        evidence: None,
    };
    world.operations.close_case(request).await.unwrap();
    assert_eq!(balance(&mut world, &failed).await, [ghs(2550)]);
    world.end().await;
}

#[tokio::test]
async fn a_release_over_another_payment_is_recorded_with_its_reason() {
    let mut world = World::start().await;
    let (failed, case) = given_late_money(&world).await;
    let second = world.given_next_charge(&failed, &[Event::Accepted]).await;
    let settle = resolve(&second, Outcome::Settled(true));
    world.operations.resolve_charge(settle).await.unwrap();
    let mut request = CloseCaseRequest {
        case_id: case.case_id.to_string(),
        action: Action::Refund.into(),
        override_reason: Some("the payer bought two".to_owned()),
        evidence: None,
    };
    let of_a_refund = world.operations.close_case(request.clone()).await;
    assert_eq!(of_a_refund.unwrap_err().code(), Code::InvalidArgument);
    request.action = Action::Release.into();
    request.override_reason = Some(" ".to_owned());
    let without_words = world.operations.close_case(request.clone()).await;
    assert_eq!(without_words.unwrap_err().code(), Code::InvalidArgument);
    request.override_reason = Some("the payer bought two".to_owned());
    world.operations.close_case(request).await.unwrap();
    assert_eq!(balance(&mut world, &failed).await, [ghs(5100)]);
    let show = ShowChargeRequest {
        reference: failed.facts.reference.to_string(),
    };
    let shown = world
        .operations
        .show_charge(show)
        .await
        .unwrap()
        .into_inner();
    let [said] = &shown.evidence[..] else {
        panic!("the reason is kept");
    };
    assert_eq!(said.rail_text.as_deref(), Some("the payer bought two"));
    assert_eq!(open_cases(&mut world).await, []);
    world.end().await;
}

#[tokio::test]
async fn a_reason_to_override_is_evidence_only_where_something_was_overridden() {
    let mut world = World::start().await;
    let (failed, case) = given_late_money(&world).await;
    let request = CloseCaseRequest {
        case_id: case.case_id.to_string(),
        action: Action::Release.into(),
        override_reason: Some("the payer bought two".to_owned()),
        evidence: None,
    };
    world.operations.close_case(request).await.unwrap();
    assert_eq!(balance(&mut world, &failed).await, [ghs(2550)]);
    let show = ShowChargeRequest {
        reference: failed.facts.reference.to_string(),
    };
    let shown = world.operations.show_charge(show).await.unwrap();
    assert_eq!(shown.into_inner().evidence, []);
    world.end().await;
}

/// However they interleave, the merchant is credited once or a case is open.
#[tokio::test]
async fn a_release_and_a_settlement_at_once_never_credit_twice_unseen() {
    let mut world = World::start().await;
    for _ in 0..12 {
        let (failed, case) = given_late_money(&world).await;
        let second = world.given_next_charge(&failed, &[Event::Accepted]).await;
        let request = resolve(&second, Outcome::Settled(true));
        let mut operations = world.operations.clone();
        let (settled, released) = tokio::join!(
            async move { operations.resolve_charge(request).await },
            close(&mut world, &case, Action::Release)
        );
        settled.unwrap();
        let cases = open_cases(&mut world).await;
        let twice = balance(&mut world, &failed).await == [ghs(5100)];
        let is_told = |charge: &Charge| {
            let reference = charge.facts.reference.to_string();
            cases.iter().any(|case| case.reference == reference)
        };
        assert_eq!(released.is_ok(), twice);
        assert_eq!(is_told(&second), twice);
        assert_eq!(is_told(&failed), !twice);
    }
    world.end().await;
}

async fn settle(world: &mut World, charge: &Charge) {
    let request = resolve(charge, Outcome::Settled(true));
    world.operations.resolve_charge(request).await.unwrap();
}

#[tokio::test]
async fn a_credit_is_taken_back_once_whatever_its_cases_say() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    settle(&mut world, &charge).await;
    let reversed = given_case(&world, &charge, CaseKind::Reversed, None).await;
    let twice = given_case(&world, &charge, CaseKind::CreditedTwice, None).await;
    close(&mut world, &twice, Action::Refund).await.unwrap();
    let again = close(&mut world, &reversed, Action::Refund).await;
    check_refusal(again, Code::FailedPrecondition, "ALREADY_TAKEN_BACK");
    assert_eq!(balance(&mut world, &charge).await, [ghs(0)]);
    close(&mut world, &reversed, Action::Release).await.unwrap();
    assert_eq!(balance(&mut world, &charge).await, [ghs(0)]);
    assert_eq!(open_cases(&mut world).await, []);
    world.end().await;
}

/// The older version used the case as the posting's subject.
#[tokio::test]
async fn what_an_older_version_took_back_is_not_taken_back_again() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    settle(&mut world, &charge).await;
    let reversed = given_case(&world, &charge, CaseKind::Reversed, None).await;
    let twice = given_case(&world, &charge, CaseKind::CreditedTwice, None).await;
    close(&mut world, &reversed, Action::Refund).await.unwrap();
    let mut tx = world.db.begin().await.unwrap();
    if world.db.is_postgres() {
        let unchecked = "set local session_replication_role = replica";
        tx.sql(unchecked).run().await.unwrap();
    }
    for table in [
        "update postings set subject = $1 where kind = 'REVERSAL'",
        "update unsealed_postings set subject = $1 where kind = 'REVERSAL'",
    ] {
        tx.sql(table).bind(reversed.case_id).run().await.unwrap();
    }
    tx.commit().await.unwrap();
    let again = close(&mut world, &twice, Action::Refund).await;
    check_refusal(again, Code::FailedPrecondition, "ALREADY_TAKEN_BACK");
    assert_eq!(balance(&mut world, &charge).await, [ghs(0)]);
    world.end().await;
}

#[tokio::test]
async fn released_money_that_the_rail_takes_back_is_taken_from_the_merchant() {
    let mut world = World::start().await;
    let (failed, late) = given_late_money(&world).await;
    close(&mut world, &late, Action::Release).await.unwrap();
    let reversed = given_case(&world, &failed, CaseKind::Reversed, None).await;
    close(&mut world, &reversed, Action::Refund).await.unwrap();
    assert_eq!(balance(&mut world, &failed).await, [ghs(0)]);
    let reversals: Vec<_> = posted(&mut world, &failed)
        .await
        .into_iter()
        .filter(|line| line.starts_with("REVERSAL"))
        .collect();
    assert_eq!(
        reversals,
        [
            "REVERSAL merchant:M -2550",
            "REVERSAL rail:paystack:clearing 2550"
        ]
    );
    world.end().await;
}

#[tokio::test]
async fn money_that_the_rail_took_back_is_released_only_on_record() {
    let mut world = World::start().await;
    let (failed, late) = given_late_money(&world).await;
    let reversed = given_case(&world, &failed, CaseKind::Reversed, None).await;
    let refused = close(&mut world, &late, Action::Release).await;
    check_refusal(refused, Code::FailedPrecondition, "RELEASE_AFTER_REVERSAL");
    assert_eq!(balance(&mut world, &failed).await, []);
    let request = CloseCaseRequest {
        case_id: late.case_id.to_string(),
        action: Action::Release.into(),
        override_reason: Some("the network paid it again".to_owned()),
        evidence: None,
    };
    world.operations.close_case(request).await.unwrap();
    assert_eq!(balance(&mut world, &failed).await, [ghs(2550)]);
    let show = ShowChargeRequest {
        reference: failed.facts.reference.to_string(),
    };
    let shown = world.operations.show_charge(show).await.unwrap();
    let said = shown.into_inner().evidence;
    assert_eq!(said[0].outcome, "released over a reversal");
    assert_eq!(
        said[0].rail_text.as_deref(),
        Some("the network paid it again")
    );
    close(&mut world, &reversed, Action::Refund).await.unwrap();
    assert_eq!(balance(&mut world, &failed).await, [ghs(0)]);
    world.end().await;
}

#[tokio::test]
async fn a_case_about_an_unknown_outcome_ends_with_its_charge() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Unanswered]).await;
    given_case(&world, &charge, CaseKind::UnknownOutcome, None).await;
    world
        .operations
        .resolve_charge(resolve(&charge, failed()))
        .await
        .unwrap();
    let listed = world
        .operations
        .list_cases(ListCasesRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.cases, []);
    world.end().await;
}

#[tokio::test]
async fn what_is_not_there_or_makes_no_sense_is_refused() {
    let mut world = World::start().await;
    let charge = world.given_charge(&[Event::Accepted]).await;
    for reference in ["", "TX-0123456789-ABCDEF", "x"] {
        let show = ShowChargeRequest {
            reference: reference.to_owned(),
        };
        check_refusal(
            world.operations.show_charge(show).await,
            Code::NotFound,
            "CHARGE_NOT_FOUND",
        );
        let mut request = resolve(&charge, failed());
        request.reference = reference.to_owned();
        let answer = world.operations.resolve_charge(request).await;
        check_refusal(answer, Code::NotFound, "CHARGE_NOT_FOUND");
    }
    for outcome in [
        Outcome::FailedReason("BAD_LUCK".to_owned()),
        Outcome::Settled(false),
    ] {
        let answer = world
            .operations
            .resolve_charge(resolve(&charge, outcome))
            .await;
        assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
    }
    let close = CloseCaseRequest {
        case_id: "x".to_owned(),
        action: Action::Refund.into(),
        override_reason: None,
        evidence: None,
    };
    check_refusal(
        world.operations.close_case(close).await,
        Code::NotFound,
        "CASE_NOT_FOUND",
    );
    // Another merchant's charge is as unknown as one that does not exist.
    let get = GetChargeRequest {
        merchant_id: chassis::ids::MerchantId::new().to_string(),
        reference: charge.facts.reference.to_string(),
    };
    check_refusal(
        world.charges.get_charge(get).await,
        Code::NotFound,
        "CHARGE_NOT_FOUND",
    );
    let submit = SubmitOtpRequest {
        merchant_id: charge.facts.merchant_id.to_string(),
        reference: charge.facts.reference.to_string(),
        otp: "123456".to_owned(),
    };
    let answer = world.charges.submit_otp(submit).await;
    check_refusal(answer, Code::FailedPrecondition, "CHARGE_NOT_AWAITING_OTP");
    world.end().await;
}
