//! Calls that travel together: each as if it had been sent by itself.

use std::{
    collections::{BTreeSet, HashMap},
    future::pending,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use chassis::testing::until;
use futures::{FutureExt as _, future::join_all};
use proto::{
    batch::CarryRequest,
    charges::ChargeStatus,
    sessions::{CreateSessionRequest, CreateSessionResponse},
};
use tonic::{Code, Status};

use crate::{
    gateway::Gateway,
    services::{ChangeOutcome, charge, money, refusal, session, unchanged},
};

/// How many requests come at the same moment.
const BURST: i64 = 16;

/// An amount whose session is never created.
const HANGS: i64 = 666;

const GET_SESSION: &str = "payments.sessions.v1.Sessions/GetSession";
const GET_CHARGE: &str = "payments.charges.v1.Charges/GetCharge";
const CREATE_SESSION: &str = "payments.sessions.v1.Sessions/CreateSession";

fn requests(carried: CarryRequest) -> Vec<CreateSessionRequest> {
    let calls = carried.calls.into_iter();
    calls.map(|call| call.read().expect("a request")).collect()
}

/// Sends bursts of requests until one call stood for several. Every second one is refused: with an
/// amount in which that can be seen.
async fn send_until_together(gateway: &Gateway) {
    gateway.services.create_session.answers(|request| {
        let amount = request.amount.clone().unwrap_or_default();
        match amount.minor_units % 2 {
            0 => Ok(CreateSessionResponse {
                session: Some(session(request)),
                replayed: false,
            }),
            _ => Err(refusal(Code::AlreadyExists, "IDEMPOTENCY_KEY_REUSED")),
        }
    });
    until("some arrive while others are being created", async || {
        let burst = (0..BURST).map(|minor| async move {
            let body = format!(r#"{{"amount":1.{minor:02},"currency":"GHS"}}"#);
            (minor, gateway.initiate(&body).await)
        });
        for (minor, answer) in join_all(burst).await {
            if minor % 2 == 0 {
                assert_eq!(answer.status, 201, "{}", answer.text());
                assert!(
                    answer
                        .text()
                        .contains(&format!(r#""amount":1.{minor:02},"#))
                );
            } else {
                answer.assert_error(409, "IDEMPOTENCY_KEY_REUSED");
            }
        }
        !gateway.services.carry.asked().is_empty()
    })
    .await;
}

#[tokio::test]
async fn requests_that_come_together_share_a_call_and_keep_their_outcomes() {
    let gateway = Gateway::start().await;
    send_until_together(&gateway).await;
    for call in gateway.services.carry.asked() {
        assert!(call.calls.len() > 1, "one alone is sent as such");
        assert_eq!(call.method, CREATE_SESSION);
    }
}

#[tokio::test]
async fn a_service_of_the_version_before_creates_them_one_by_one() {
    for code in [Code::Unimplemented, Code::PermissionDenied] {
        let gateway = Gateway::start().await;
        let refused = move |_| Err(Status::new(code, "not this method"));
        gateway.services.carry.answers(refused);
        send_until_together(&gateway).await;
    }
}

#[tokio::test]
async fn what_has_no_outcome_is_repeated_under_its_key() {
    let none: ChangeOutcome = |outcome| Some(outcome).filter(|outcome| outcome.call != 0);
    let not_understood: ChangeOutcome = |mut outcome| {
        outcome.outcome = outcome.outcome.filter(|_| outcome.call != 0);
        Some(outcome)
    };
    let of_nobody: ChangeOutcome = |mut outcome| {
        outcome.call = if outcome.call == 0 { 64 } else { outcome.call };
        Some(outcome)
    };
    for change in [none, not_understood, of_nobody] {
        let gateway = Gateway::start().await;
        let is_first = AtomicBool::new(true);
        gateway.services.carry.answers(move |_| {
            let is_first = is_first.swap(false, Ordering::SeqCst);
            Ok(if is_first { change } else { unchanged })
        });
        send_until_together(&gateway).await;
        let first = gateway.services.carry.asked().swap_remove(0);
        let asked = gateway.services.create_session.asked();
        let times = |wanted| asked.iter().filter(|one| **one == wanted).count();
        let times: Vec<usize> = requests(first).into_iter().map(times).collect();
        assert_eq!(times[0], 2);
        assert!(times[1..].iter().all(|times| *times == 1), "{times:?}");
    }
}

/// The first attempt may be running still: that its repeat finds it so is none of the caller's.
#[tokio::test]
async fn what_a_service_says_of_a_repeat_is_not_said_of_the_request() {
    let gateway = Gateway::start().await;
    let is_first = AtomicBool::new(true);
    gateway.services.carry.answers(move |_| {
        let lose: ChangeOutcome = |_| None;
        let is_first = is_first.swap(false, Ordering::SeqCst);
        Ok(if is_first { lose } else { unchanged })
    });
    let asked = Mutex::new(HashMap::new());
    gateway.services.create_session.answers(move |request| {
        let mut asked = asked.lock().unwrap();
        let times = asked.entry(request.idempotency_key.clone()).or_insert(0);
        *times += 1;
        match times {
            2 => Err(refusal(Code::Aborted, "IDEMPOTENCY_IN_PROGRESS")),
            _ => Ok(CreateSessionResponse {
                session: Some(session(request)),
                replayed: false,
            }),
        }
    });
    until("some travel together", async || {
        let burst = (0..BURST).map(|_| gateway.initiate(r#"{"amount":1}"#));
        for answer in join_all(burst).await {
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
        !gateway.services.carry.asked().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_no_other() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .create_session
        .answers_late(async |request| {
            if request
                .amount
                .as_ref()
                .is_some_and(|amount| amount.minor_units == HANGS)
            {
                pending::<()>().await;
            }
            Ok(CreateSessionResponse {
                session: Some(session(request)),
                replayed: false,
            })
        });
    let carries_one_that_hangs = || {
        let carried = gateway.services.carry.asked().into_iter();
        let mut carried = carried.flat_map(requests);
        carried.any(|request| request.amount.unwrap_or_default().minor_units == HANGS)
    };
    until("one that hangs travels with others", async || {
        let hanging = (0..2).map(|_| gateway.initiate(r#"{"amount":6.66}"#).boxed());
        let mut hanging = futures::future::select_all(hanging);
        let others = join_all((0..BURST).map(|_| gateway.initiate(r#"{"amount":1}"#)));
        let answers = tokio::select! {
            answers = others => answers,
            _ = &mut hanging => panic!("it hangs"),
        };
        assert!(answers.iter().all(|answer| answer.status == 201));
        carries_one_that_hangs()
    })
    .await;
}

#[tokio::test]
async fn reads_travel_together_and_each_finds_its_own() {
    let gateway = Gateway::start().await;
    gateway.services.get_session.answers(|request| {
        let minor_units = match request.session_id.rsplit('-').next().map(str::parse) {
            Some(Ok(number)) if number % 2 == 0 => number,
            _ => return Err(refusal(Code::NotFound, "SESSION_NOT_FOUND")),
        };
        Ok(session(CreateSessionRequest {
            amount: money(minor_units, "GHS"),
            ..CreateSessionRequest::default()
        }))
    });
    gateway.services.get_charge.answers(|request| {
        let mut charge = charge(ChargeStatus::Settled, money(100, "GHS"));
        charge.reference = request.reference;
        Ok(charge)
    });
    let methods = || {
        let carried = gateway.services.carry.asked().into_iter();
        let methods: BTreeSet<_> = carried.map(|carried| carried.method).collect();
        methods
    };
    until("both kinds travel together", async || {
        join_all((0..BURST).map(|number| read(&gateway, number))).await;
        methods().len() == 2
    })
    .await;
    assert_eq!(
        methods(),
        BTreeSet::from([GET_CHARGE, GET_SESSION].map(str::to_owned))
    );
}

/// Reads a session, of which every second is missing, and a charge.
async fn read(gateway: &Gateway, number: i64) {
    let path = format!("/api/v1/payments/00000000-0000-4000-8000-{number:012}/status");
    let session = gateway.get(&path).send().await;
    if number % 2 == 0 {
        let amount = format!(r#""amount":0.{number:02},"#);
        assert!(session.text().contains(&amount), "{}", session.text());
    } else {
        session.assert_error(404, "NOT_FOUND");
    }
    let reference = format!("TX-0123456789-ABCD{number:02}");
    let path = format!("/api/v1/payments/charge/{reference}");
    let charge = gateway.get(&path).send().await;
    assert!(charge.text().contains(&reference), "{}", charge.text());
}
