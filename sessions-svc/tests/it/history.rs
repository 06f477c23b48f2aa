//! In whatever order and however often a history is reported, the same is known at the end.

use proptest::{prelude::*, test_runner::TestCaseResult};
use proto::sessions::{RecordTransactionRequest, SessionStatus, TransactionStatus};
use tokio::runtime::Runtime;

use crate::world::{Charge, World};

/// A charge's life as charges-svc would report it; versions count from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Settles,
    SettlesAfterOtp,
    Fails,
    IsVoid,
    Runs,
}

impl Life {
    fn reports(self, charge: &Charge) -> Vec<RecordTransactionRequest> {
        use TransactionStatus::{Initiated, OtpRequired};
        let open = charge.open();
        match self {
            Self::Settles => vec![open, charge.update(2, Initiated), charge.settled(3)],
            Self::SettlesAfterOtp => vec![
                open,
                charge.update(2, OtpRequired),
                charge.update(3, Initiated),
                charge.update(4, OtpRequired),
                charge.update(5, Initiated),
                charge.settled(6),
            ],
            Self::Fails => vec![open, charge.update(2, Initiated), charge.failed(3)],
            Self::IsVoid => vec![open, charge.withdraw(2)],
            Self::Runs => vec![open, charge.update(2, Initiated)],
        }
    }

    fn settles(self) -> bool {
        matches!(self, Self::Settles | Self::SettlesAfterOtp)
    }

    /// How its transaction is shown at the end, if it is shown.
    fn shown(self) -> Option<TransactionStatus> {
        match self {
            Self::Settles | Self::SettlesAfterOtp => Some(TransactionStatus::Settled),
            Self::Fails => Some(TransactionStatus::Failed),
            Self::Runs => Some(TransactionStatus::Initiated),
            Self::IsVoid => None,
        }
    }
}

fn any_life() -> impl Strategy<Value = Life> {
    prop_oneof![
        Just(Life::Settles),
        Just(Life::SettlesAfterOtp),
        Just(Life::Fails),
        Just(Life::IsVoid),
        Just(Life::Runs),
    ]
}

/// Charges of one hosted session: only the last may settle or still run.
fn hosted_lives() -> impl Strategy<Value = Vec<Life>> {
    let ended = prop_oneof![Just(Life::Fails), Just(Life::IsVoid)];
    (prop::collection::vec(ended, 0..3), any_life()).prop_map(|(mut lives, last)| {
        lives.push(last);
        lives
    })
}

/// Every one of `count` reports at least once, in any order.
fn deliveries(count: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..count, 0..count)
        .prop_map(move |again| (0..count).chain(again).collect::<Vec<_>>())
        .prop_shuffle()
}

fn a_hosted_history() -> impl Strategy<Value = (Vec<Life>, Vec<usize>)> {
    hosted_lives().prop_flat_map(|lives| {
        let count = lives.iter().map(|life| length(*life)).sum();
        (Just(lives), deliveries(count))
    })
}

fn a_direct_history() -> impl Strategy<Value = (Life, Vec<usize>)> {
    any_life().prop_flat_map(|life| (Just(life), deliveries(length(life))))
}

fn length(life: Life) -> usize {
    match life {
        Life::Settles | Life::Fails => 3,
        Life::SettlesAfterOtp => 6,
        Life::IsVoid | Life::Runs => 2,
    }
}

/// Runs a case for each of many histories, all on one service.
fn check<S: Strategy>(strategy: S, case: impl AsyncFn(&mut World, S::Value) -> TestCaseResult) {
    let runtime = Runtime::new().unwrap();
    let world = runtime.block_on(World::start());
    let world = std::cell::RefCell::new(world);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(48)
    });
    let result = runner.run(&strategy, |value| {
        runtime.block_on(case(&mut world.borrow_mut(), value))
    });
    runtime.block_on(world.into_inner().end());
    result.unwrap_or_else(|error| panic!("{error}"));
}

async fn deliver(world: &World, reports: &[RecordTransactionRequest], deliveries: &[usize]) {
    for delivery in deliveries {
        // A late Open may be refused while another charge runs; its answer does not matter.
        world.record(reports[*delivery].clone()).await.unwrap();
    }
}

#[test]
fn a_direct_charges_history_may_come_in_any_order() {
    check(a_direct_history(), async |world, (life, order)| {
        world.merchant = chassis::ids::MerchantId::new().to_string();
        let mut charge = world.direct_charge();
        charge.payer = Some(payer());
        deliver(world, &life.reports(&charge), &order).await;
        let session = world.get(&charge.session_id).await.ok();
        let status = match life {
            Life::Settles | Life::SettlesAfterOtp => Some(SessionStatus::Completed),
            Life::Fails => Some(SessionStatus::Failed),
            Life::Runs => Some(SessionStatus::Processing),
            Life::IsVoid => None,
        };
        prop_assert_eq!(session.as_ref().map(|session| session.status()), status);
        let shown = session.and_then(|session| session.transaction);
        prop_assert_eq!(shown, life.shown().map(|status| charge.transaction(status)));
        check_customers(world, life.settles()).await
    });
}

#[test]
fn a_hosted_sessions_history_may_come_in_any_order() {
    check(a_hosted_history(), async |world, (lives, order)| {
        world.merchant = chassis::ids::MerchantId::new().to_string();
        let session = world.hosted().await;
        let charges: Vec<(Life, Charge)> = (1..)
            .zip(&lives)
            .map(|(number, life)| {
                let mut charge = world.hosted_charge(&session, number);
                charge.payer = Some(payer());
                (*life, charge)
            })
            .collect();
        let reports: Vec<_> = charges
            .iter()
            .flat_map(|(life, charge)| life.reports(charge))
            .collect();
        deliver(world, &reports, &order).await;
        let left = world.get(&session.session_id).await.unwrap();
        let status = match lives.last() {
            Some(life) if life.settles() => SessionStatus::Completed,
            Some(Life::Runs) => SessionStatus::Processing,
            _ => SessionStatus::Pending,
        };
        prop_assert_eq!(left.status(), status);
        let latest = charges
            .iter()
            .rev()
            .find_map(|(life, charge)| Some(charge.transaction(life.shown()?)));
        prop_assert_eq!(left.transaction, latest);
        check_customers(world, lives.iter().any(|life| life.settles())).await
    });
}

fn payer() -> proto::sessions::Payer {
    proto::sessions::Payer {
        phone: Some("+233241234567".to_owned()),
        email: None,
        name: None,
    }
}

/// Checks for one customer who paid once, or for none.
async fn check_customers(world: &mut World, paid: bool) -> TestCaseResult {
    let customers = world.customers().await;
    let counts: Vec<u32> = customers
        .iter()
        .map(|customer| customer.payments_count)
        .collect();
    prop_assert_eq!(counts, if paid { vec![1] } else { vec![] });
    Ok(())
}
