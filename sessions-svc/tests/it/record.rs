//! What becomes of a session as its charges are reported.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chassis::{
    ids::{ChargeId, MerchantId},
    testing::{check_invalid, check_refusal},
};
use proto::sessions::{
    RecordTransactionRequest, SessionStatus, Settlement, TransactionStatus,
    record_transaction_request::Step, record_transaction_response::Outcome,
};
use tokio::task::JoinSet;
use tonic::Code;

use crate::world::{DAY, HOUR, World, money, record_persistently};

#[tokio::test]
async fn a_direct_charge_brings_its_session_and_ends_it() {
    let world = World::start().await;
    let charge = world.direct_charge();
    assert_eq!(
        world.recorded(charge.open()).await,
        SessionStatus::Processing
    );
    let session = world.get(&charge.session_id).await.unwrap();
    assert_eq!(session.amount, Some(money("GHS", 1_234)));
    assert_eq!(session.description.as_deref(), Some("two cups"));
    assert_eq!(session.created_at, charge.at.to_string());
    assert_eq!(session.expires_at, (charge.at + DAY).to_string());
    let initiated = charge.transaction(TransactionStatus::Initiated);
    assert_eq!(session.transaction, Some(initiated));

    let required = charge.update(2, TransactionStatus::OtpRequired);
    assert_eq!(world.recorded(required).await, SessionStatus::Processing);
    assert_eq!(
        world.recorded(charge.settled(3)).await,
        SessionStatus::Completed
    );
    let session = world.get(&charge.session_id).await.unwrap();
    let settled = charge.transaction(TransactionStatus::Settled);
    assert_eq!(
        (session.status(), session.transaction),
        (SessionStatus::Completed, Some(settled))
    );

    let declined = world.direct_charge();
    world.recorded(declined.open()).await;
    assert_eq!(
        world.recorded(declined.failed(2)).await,
        SessionStatus::Failed
    );
    let shown = world
        .get(&declined.session_id)
        .await
        .unwrap()
        .transaction
        .unwrap();
    assert_eq!(shown.failure_reason.as_deref(), Some("PAYER_DECLINED"));
    world.end().await;
}

#[tokio::test]
async fn a_direct_session_is_there_even_if_its_open_never_arrived() {
    let world = World::start().await;
    let charge = world.direct_charge();
    assert_eq!(
        world.recorded(charge.settled(4)).await,
        SessionStatus::Completed
    );
    assert_eq!(
        world.recorded(charge.open()).await,
        SessionStatus::Completed
    );
    let shown = world.get(&charge.session_id).await.unwrap();
    assert_eq!(
        shown.transaction.unwrap().status(),
        TransactionStatus::Settled
    );
    world.end().await;
}

#[tokio::test]
async fn what_is_older_is_acknowledged_and_ignored() {
    let world = World::start().await;
    let charge = world.direct_charge();
    world.recorded(charge.open()).await;
    world.recorded(charge.failed(4)).await;
    for older in [
        charge.open(),
        charge.update(3, TransactionStatus::OtpRequired),
        charge.withdraw(2),
    ] {
        assert_eq!(world.recorded(older).await, SessionStatus::Failed);
    }
    let same = charge.update(4, TransactionStatus::Initiated);
    assert_eq!(world.recorded(same).await, SessionStatus::Failed);
    world.end().await;
}

#[tokio::test]
async fn a_withdrawn_direct_session_was_never_there() {
    let world = World::start().await;
    let charge = world.direct_charge();
    world.recorded(charge.open()).await;
    assert_eq!(
        world.recorded(charge.withdraw(2)).await,
        SessionStatus::Unspecified
    );
    check_refusal(
        world.get(&charge.session_id).await,
        Code::NotFound,
        "SESSION_NOT_FOUND",
    );
    assert_eq!(
        world.refused(charge.open()).await,
        SessionStatus::Unspecified
    );
    world.end().await;
}

#[tokio::test]
async fn a_withdrawal_holds_against_an_open_that_comes_later() {
    let world = World::start().await;
    let direct = world.direct_charge();
    assert_eq!(
        world.recorded(direct.withdraw(2)).await,
        SessionStatus::Unspecified
    );
    assert_eq!(
        world.refused(direct.open()).await,
        SessionStatus::Unspecified
    );
    check_refusal(
        world.get(&direct.session_id).await,
        Code::NotFound,
        "SESSION_NOT_FOUND",
    );

    let session = world.hosted().await;
    let hosted = world.hosted_charge(&session, 1);
    assert_eq!(
        world.recorded(hosted.withdraw(2)).await,
        SessionStatus::Pending
    );
    assert_eq!(world.refused(hosted.open()).await, SessionStatus::Pending);
    assert_eq!(world.get(&session.session_id).await.unwrap(), session);
    world.end().await;
}

#[tokio::test]
async fn one_charge_at_a_time_claims_a_hosted_session() {
    let world = World::start().await;
    let session = world.hosted().await;
    let (first, second) = (
        world.hosted_charge(&session, 1),
        world.hosted_charge(&session, 2),
    );
    assert_eq!(
        world.recorded(first.open()).await,
        SessionStatus::Processing
    );
    assert_eq!(
        world.recorded(first.open()).await,
        SessionStatus::Processing,
        "a repeated claim"
    );
    assert_eq!(
        world.refused(second.open()).await,
        SessionStatus::Processing
    );
    let shown = world.get(&session.session_id).await.unwrap();
    assert_eq!(
        shown.transaction.unwrap().transaction_id,
        first.transaction_id
    );

    assert_eq!(
        world.recorded(second.withdraw(2)).await,
        SessionStatus::Processing,
        "not its claim"
    );
    assert_eq!(
        world.recorded(first.withdraw(2)).await,
        SessionStatus::Pending
    );
    assert_eq!(
        world.refused(first.open()).await,
        SessionStatus::Pending,
        "a withdrawn claim comes late"
    );
    assert_eq!(world.get(&session.session_id).await.unwrap(), session);

    let third = world.hosted_charge(&session, 3);
    assert_eq!(
        world.recorded(third.open()).await,
        SessionStatus::Processing
    );
    assert_eq!(
        world.recorded(third.failed(2)).await,
        SessionStatus::Pending
    );
    let fourth = world.hosted_charge(&session, 4);
    assert_eq!(
        world.recorded(fourth.open()).await,
        SessionStatus::Processing
    );
    assert_eq!(
        world.recorded(fourth.settled(2)).await,
        SessionStatus::Completed
    );
    assert_eq!(
        world.refused(world.hosted_charge(&session, 5).open()).await,
        SessionStatus::Completed
    );
    let shown = world
        .get(&session.session_id)
        .await
        .unwrap()
        .transaction
        .unwrap();
    assert_eq!(shown, fourth.transaction(TransactionStatus::Settled));
    world.end().await;
}

#[tokio::test]
async fn fifty_parallel_claims_have_one_winner() {
    let world = World::start().await;
    let session = world.hosted().await;
    let mut racing = JoinSet::new();
    for number in 1..=50 {
        let charge = world.hosted_charge(&session, number);
        let claiming = record_persistently(world.client.clone(), charge.open());
        racing.spawn(async move {
            let answer = claiming.await;
            (answer.outcome(), answer.session_status(), charge)
        });
    }
    let answers = racing.join_all().await;
    assert!(
        answers
            .iter()
            .all(|(_, status, _)| *status == SessionStatus::Processing)
    );
    let winners: Vec<_> = answers
        .iter()
        .filter(|(outcome, ..)| *outcome == Outcome::Recorded)
        .map(|(_, _, charge)| charge.transaction(TransactionStatus::Initiated))
        .collect();
    let shown = world.get(&session.session_id).await.unwrap().transaction;
    assert_eq!(winners, Vec::from_iter(shown));
    world.end().await;
}

#[tokio::test]
async fn claims_exclude_each_other_while_charges_come_and_go() {
    let world = World::start().await;
    let session = world.hosted().await;
    let held = Arc::new(AtomicBool::new(false));
    let mut actors = JoinSet::new();
    for actor in 0..8 {
        let (client, held) = (world.client.clone(), held.clone());
        let charges: Vec<_> = (0..12)
            .map(|turn| world.hosted_charge(&session, 1 + actor + 8 * turn))
            .collect();
        actors.spawn(async move {
            let report = async |report| {
                let answer = record_persistently(client.clone(), report).await;
                answer.outcome()
            };
            let mut claims = 0;
            for charge in charges {
                if report(charge.open()).await == Outcome::Refused {
                    report(charge.withdraw(2)).await;
                    continue;
                }
                assert!(!held.swap(true, Ordering::SeqCst), "two claims at once");
                claims += 1;
                tokio::task::yield_now().await;
                held.store(false, Ordering::SeqCst);
                let end = match claims % 2 {
                    0 => charge.withdraw(2),
                    _ => charge.failed(2),
                };
                report(end).await;
            }
            claims
        });
    }
    let claims: u32 = actors.join_all().await.into_iter().sum();
    assert!(claims > 0);
    assert_eq!(
        world.status(&session.session_id).await,
        SessionStatus::Pending
    );
    world.end().await;
}

#[tokio::test]
async fn a_claim_and_its_withdrawal_may_race() {
    let world = World::start().await;
    for round in 0..20 {
        let session = world.hosted().await;
        let charges = [world.hosted_charge(&session, 1), world.direct_charge()];
        for charge in charges {
            let (mut opener, mut withdrawer) = (world.client.clone(), world.client.clone());
            let opening = opener.record_transaction(charge.open());
            let withdrawing = withdrawer.record_transaction(charge.withdraw(2));
            let (opened, withdrawn) = tokio::join!(opening, withdrawing);
            assert!(opened.is_ok() && withdrawn.is_ok(), "round {round}");
            let left = world.get(&charge.session_id).await;
            match charge.direct {
                Some(_) => check_refusal(left, Code::NotFound, "SESSION_NOT_FOUND"),
                None => assert_eq!(left.unwrap(), session, "round {round}"),
            }
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_claim_that_does_not_fit_its_session_is_refused() {
    let world = World::start().await;
    let session = world.hosted().await;
    let charge = || world.hosted_charge(&session, 1);
    let mut other_amount = charge();
    other_amount.amount = money("USD", 2_551);
    assert_eq!(
        world.refused(other_amount.open()).await,
        SessionStatus::Pending
    );
    let mut other_currency = charge();
    other_currency.amount = money("GHS", 2_550);
    assert_eq!(
        world.refused(other_currency.open()).await,
        SessionStatus::Pending
    );
    let mut other_merchant = charge();
    other_merchant.merchant_id = MerchantId::new().to_string();
    assert_eq!(
        world.refused(other_merchant.open()).await,
        SessionStatus::Unspecified
    );
    let mut unknown = charge();
    unknown.session_id = world.direct_charge().session_id;
    assert_eq!(
        world.refused(unknown.open()).await,
        SessionStatus::Unspecified
    );
    assert_eq!(
        world.get(&session.session_id).await.unwrap(),
        session,
        "nothing was changed"
    );

    world.recorded(charge().open()).await;
    let mut impostor = charge();
    impostor.transaction_id = ChargeId::new().to_string();
    assert_eq!(
        world.refused(impostor.open()).await,
        SessionStatus::Processing
    );
    world.end().await;
}

#[tokio::test]
async fn a_report_of_anothers_session_is_an_error_and_changes_nothing() {
    let world = World::start().await;
    let session = world.hosted().await;
    let charge = world.hosted_charge(&session, 1);
    let mut foreign = charge.clone();
    foreign.merchant_id = MerchantId::new().to_string();
    let mut larger = charge.clone();
    larger.amount = money("USD", 9_999);
    for report in [foreign.settled(2), foreign.withdraw(2), larger.settled(2)] {
        let answer = world.record(report).await;
        check_refusal(answer, Code::FailedPrecondition, "SESSION_MISMATCH");
    }
    let mut unknown = charge;
    unknown.session_id = world.direct_charge().session_id;
    check_refusal(
        world.record(unknown.settled(2)).await,
        Code::NotFound,
        "SESSION_NOT_FOUND",
    );
    assert_eq!(world.get(&session.session_id).await.unwrap(), session);
    world.end().await;
}

#[tokio::test]
async fn money_is_the_truth_whatever_the_session_was() {
    let world = World::start().await;
    let unclaimed = world.hosted().await;
    let charge = world.hosted_charge(&unclaimed, 1);
    assert_eq!(
        world.recorded(charge.settled(2)).await,
        SessionStatus::Completed
    );
    let expired = world.hosted().await;
    world.advance(DAY + HOUR).await;
    assert_eq!(
        world.status(&expired.session_id).await,
        SessionStatus::Expired
    );
    let charge = world.hosted_charge(&expired, 1);
    assert_eq!(
        world.recorded(charge.settled(2)).await,
        SessionStatus::Completed
    );
    assert_eq!(
        world.recorded(charge.failed(3)).await,
        SessionStatus::Completed,
        "and stays so"
    );
    world.end().await;
}

#[tokio::test]
async fn a_debit_in_another_currency_is_shown_beside_the_sessions_amount() {
    let world = World::start().await;
    let session = world.hosted().await;
    let charge = world.hosted_charge(&session, 1);
    let settlement = Settlement {
        amount: Some(money("GHS", 31_480)),
        rate: "12.345".to_owned(),
    };
    let mut settled = charge.settled(2);
    if let Some(Step::Update(update)) = &mut settled.step {
        update.transaction.as_mut().unwrap().settlement = Some(settlement.clone());
    }
    world.recorded(charge.open()).await;
    world.recorded(settled).await;
    let shown = world
        .get(&session.session_id)
        .await
        .unwrap()
        .transaction
        .unwrap();
    assert_eq!(shown.settlement, Some(settlement));
    assert_eq!(shown.amount, Some(money("USD", 2_550)));
    world.end().await;
}

#[tokio::test]
async fn reports_that_make_no_sense_are_refused() {
    let world = World::start().await;
    let charge = world.direct_charge();
    let open = || charge.open();
    let cases: [(&str, RecordTransactionRequest); 6] = [
        (
            "charge_number",
            RecordTransactionRequest {
                charge_number: 0,
                ..open()
            },
        ),
        (
            "version",
            RecordTransactionRequest {
                version: 0,
                ..open()
            },
        ),
        (
            "step",
            RecordTransactionRequest {
                step: None,
                ..open()
            },
        ),
        (
            "session_id",
            RecordTransactionRequest {
                session_id: "1".to_owned(),
                ..open()
            },
        ),
        (
            "merchant_id",
            RecordTransactionRequest {
                merchant_id: String::new(),
                ..open()
            },
        ),
        (
            "transaction.status",
            charge.update(2, TransactionStatus::Unspecified),
        ),
    ];
    for (field, report) in cases {
        check_invalid(world.record(report).await, field);
    }
    let mut late = charge.clone();
    late.at = charge.at + Duration::from_secs(1);
    let mut reasoned = late.settled(2);
    if let Some(Step::Update(update)) = &mut reasoned.step {
        update.transaction.as_mut().unwrap().failure_reason = Some("RAIL_ERROR".to_owned());
    }
    check_invalid(world.record(reasoned).await, "transaction.failure_reason");
    world.end().await;
}
