//! New charges are refused while those before them are late, or too many are being started.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use charges_svc::charge::Event;
use chassis::{
    grpc::{Reason, reason},
    testing::{
        fake_server::{FakeServer, Reaction, json},
        until,
    },
};
use futures::future::join_all;
use proto::charges::{CreateChargeRequest, Provider, ReceiveCallbackRequest};
use rails::{RailName, testing::with_tokens};
use tonic::{Code, Status};

use crate::world::{Neighbour, World, new_momo_charge, request};

/// Whether a charge is refused, with certainty that nothing was started.
async fn is_refused(world: &World, request: &CreateChargeRequest) -> bool {
    let mut charges = world.charges.clone();
    match charges.create_charge(request.clone()).await {
        Ok(_) => false,
        Err(refused) => {
            assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
            assert_eq!(
                reason(&refused).as_deref(),
                Some(Reason::NothingStarted.code())
            );
            true
        }
    }
}

/// A service beside this MTN, which may be asked often and may be slow to answer.
async fn start_beside(mtn: &FakeServer) -> World {
    World::start_with(&[
        ("momo-base-url", &mtn.address()),
        ("momo-query-timeout", "8s"),
        ("momo-queries-per-second", "10000"),
    ])
    .await
}

/// A charge on another rail.
fn elsewhere() -> CreateChargeRequest {
    CreateChargeRequest {
        mobile_number: "+233201234001".to_owned(),
        provider: Provider::Telecel.into(),
        ..request()
    }
}

#[tokio::test]
async fn while_a_rails_queries_are_late_its_new_charges_are_refused() {
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = is_silent.clone();
    let network = with_tokens(move |seen| match seen.call.starts_with("GET") {
        true if silent.load(Ordering::SeqCst) => Reaction::Silence,
        true => json(200, r#"{"status":"PENDING"}"#),
        false => json(202, ""),
    })
    .await;
    let world = start_beside(&network).await;
    let earlier = request();
    assert!(!is_refused(&world, &earlier).await);

    // More than are asked about at once, so that the others stay late.
    let old = world.clock.now() - Duration::from_secs(90);
    for _ in 0..300 {
        world.given(new_momo_charge(old), &[Event::Accepted]).await;
    }
    until("new charges are refused", async || {
        is_refused(&world, &request()).await
    })
    .await;
    assert!(!is_refused(&world, &earlier).await, "it was taken before");
    assert!(
        !is_refused(&world, &elsewhere()).await,
        "its rail is not late"
    );

    is_silent.store(false, Ordering::SeqCst);
    until("new charges are taken on again", async || {
        !is_refused(&world, &request()).await
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn while_a_rail_does_not_answer_about_callbacks_its_new_charges_are_refused() {
    let network = with_tokens(|seen| match seen.call.starts_with("GET") {
        true => Reaction::Silence,
        false => json(202, ""),
    })
    .await;
    let world = start_beside(&network).await;
    // More than may be in hand, all of which are asked about at once. None of it is late yet.
    let mut callbacks = Vec::new();
    for _ in 0..300 {
        let charge = new_momo_charge(world.clock.now());
        let charge = world.given(charge, &[Event::Accepted]).await;
        callbacks.push(ReceiveCallbackRequest {
            rail: RailName::Momo.code().to_owned(),
            token: charge.facts.callback_token.clone(),
            ..Default::default()
        });
    }
    let received = callbacks.into_iter().map(|callback| {
        let mut charges = world.charges.clone();
        async move { charges.receive_callback(callback).await }
    });
    for received in join_all(received).await {
        received.unwrap();
    }
    assert!(is_refused(&world, &request()).await);
    assert!(
        !is_refused(&world, &elsewhere()).await,
        "nothing is in hand there"
    );
    world.end().await;
}

#[tokio::test]
async fn more_than_can_be_started_at_once_are_refused_before_they_are_recorded() {
    let world = World::start_beside(Neighbour::Silent).await;
    let answer = |request: &CreateChargeRequest| {
        let mut charges = world.charges.clone();
        let request = request.clone();
        async move { charges.create_charge(request).await.unwrap_err() }
    };
    let recorded = async || {
        let mut conn = world.db.read().await.unwrap();
        let counted = conn.sql("select count(*) from charges").one().await;
        let (recorded,): (i64,) = counted.unwrap();
        recorded
    };
    let first = request();
    let others: Vec<_> = (0..400).map(|_| request()).collect();
    let (_, answers) = tokio::join!(answer(&first), async {
        until("one is being started", async || recorded().await == 1).await;
        join_all(iter::once(&first).chain(&others).map(answer)).await
    });
    let count = |counted: Reason| {
        let is_counted = |status: &&Status| reason(status).as_deref() == Some(counted.code());
        answers.iter().filter(is_counted).count()
    };
    let recorded = recorded().await;
    // The first ones hold their places until sessions-svc is given up, long after all have come.
    assert!((200..400).contains(&recorded), "{recorded}");
    let refused = 401 - usize::try_from(recorded).unwrap();
    assert!(count(Reason::NothingStarted) >= refused);
    // Nobody says that nothing was started under a key with which something is.
    let repeat = &answers[0];
    assert_eq!(
        reason(repeat).as_deref(),
        Some(Reason::IdempotencyInProgress.code())
    );
}
