//! A process that died between recording a charge and calling the rail: MTN gets the request
//! again, under the same reference, which it takes only once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use charges_svc::charge::{Charge, State};
use chassis::{
    provider::Provider,
    testing::{
        check_refusal,
        fake_server::{FakeServer, Reaction, empty, json},
        until,
    },
};
use db::Update;
use rails::{RailName, testing::with_tokens};
use tokio::sync::watch;
use tonic::Code;

use crate::world::{Neighbour, World, charge_of, request};

const SECOND: Duration = Duration::from_secs(1);

const PAY: &str = "POST /collection/v1_0/requesttopay";

fn not_found() -> Reaction {
    json(404, r#"{"code":"RESOURCE_NOT_FOUND","message":"x"}"#)
}

fn unavailable() -> Reaction {
    json(503, r#"{"code":"SERVICE_UNAVAILABLE","message":"x"}"#)
}

/// An MTN that answers payment requests with `reaction`, knows no payment before it accepts one,
/// and then has the money at once.
async fn mtn(reaction: Reaction) -> FakeServer {
    let taken = Arc::new(AtomicBool::new(false));
    with_tokens(move |seen| {
        if seen.call == PAY {
            let is_accepted = matches!(reaction, Reaction::Answer { status: 202, .. });
            taken.fetch_or(is_accepted, Ordering::SeqCst);
            return reaction.clone();
        }
        if !taken.load(Ordering::SeqCst) {
            return not_found();
        }
        let (_, reference) = seen.call.rsplit_once('/').unwrap();
        json(
            200,
            format!(
                r#"{{"status":"SUCCESSFUL","externalId":"{reference}","amount":"25.50","currency":"GHS"}}"#
            ),
        )
    })
    .await
}

/// How often the network was asked to debit.
fn sent(network: &FakeServer) -> usize {
    let calls = network.calls();
    calls.iter().filter(|call| *call == PAY).count()
}

/// A charge whose process died right after its record was written.
async fn given_orphan(world: &World, age: Duration) -> Charge {
    world.stop().await;
    let charge = charge_of(Provider::Mtn, RailName::Momo, world.clock.now() - age);
    world.given(charge, &[]).await
}

#[tokio::test]
async fn the_same_request_goes_out_once_more_and_the_sale_is_made() {
    let network = mtn(empty(202)).await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = given_orphan(&world, 31 * SECOND).await;
    let world = world.restart().await;
    world.clock.advance(60 * SECOND).await.unwrap();
    let settled = world.charge(&charge.facts.reference).await;
    assert_eq!(settled.progress.state, State::Settled);
    assert_eq!(sent(&network), 1);
    let seen = network.seen();
    let pay = seen.iter().find(|seen| seen.call == PAY).unwrap();
    let reference = charge.facts.rail_reference.to_string();
    assert_eq!(pay.header("x-reference-id"), Some(reference.as_str()));
    assert_eq!(pay.json()["payerMessage"], "Ama s Shop");
    assert_eq!(pay.json()["payeeNote"], charge.facts.reference.as_str());
    world.end().await;
}

/// While sessions-svc is away, nothing is sent. When it is back, there is still time.
#[tokio::test]
async fn nothing_goes_out_before_the_session_has_taken_the_charge() {
    let network = mtn(empty(202)).await;
    let world = World::start_over(&network.address(), Neighbour::Away).await;
    let charge = given_orphan(&world, 31 * SECOND).await;
    let world = world.restart_beside(Neighbour::Away).await;
    world.clock.advance(SECOND).await.unwrap();
    assert!(!network.calls().is_empty(), "it was asked");
    assert_eq!(sent(&network), 0);
    let world = world.restart().await;
    world.clock.advance(40 * SECOND).await.unwrap();
    assert_eq!(sent(&network), 1);
    world.clock.advance(60 * SECOND).await.unwrap();
    let settled = world.charge(&charge.facts.reference).await;
    assert_eq!(settled.progress.state, State::Settled);
    world.end().await;
}

/// The session has ended meanwhile. It is not certain whether the first process had sent the
/// request.
#[tokio::test]
async fn a_session_that_takes_the_charge_no_more_keeps_it_from_being_sent() {
    let network = mtn(empty(202)).await;
    let world = World::start_over(&network.address(), Neighbour::Refusing).await;
    let charge = given_orphan(&world, 31 * SECOND).await;
    let world = world.restart_beside(Neighbour::Refusing).await;
    world.clock.advance(200 * SECOND).await.unwrap();
    let waiting = world.charge(&charge.facts.reference).await;
    assert_eq!(waiting.progress.state, State::Initiated);
    world.clock.advance(300 * SECOND).await.unwrap();
    let ended = world.charge(&charge.facts.reference).await;
    let reason = Some("RAIL_UNAVAILABLE".to_owned());
    assert_eq!(
        (ended.progress.state, ended.progress.failure_reason),
        (State::Failed, reason)
    );
    assert_eq!(sent(&network), 0);
    world.end().await;
}

#[tokio::test]
async fn after_ninety_seconds_nothing_goes_out_any_more() {
    let network = mtn(empty(202)).await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = given_orphan(&world, 90 * SECOND).await;
    let world = world.restart().await;
    world.clock.advance(600 * SECOND).await.unwrap();
    let ended = world.charge(&charge.facts.reference).await;
    let reason = Some("RAIL_UNAVAILABLE".to_owned());
    assert_eq!(
        (ended.progress.state, ended.progress.failure_reason),
        (State::Failed, reason)
    );
    assert_eq!(sent(&network), 0);
    world.end().await;
}

/// Paystack does not promise to refuse the second request.
#[tokio::test]
async fn no_other_rail_is_asked_twice() {
    let network = FakeServer::start(|_| {
        json(
            400,
            r#"{"status":false,"code":"transaction_not_found","message":"x"}"#,
        )
    })
    .await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    world.stop().await;
    let charge = world.given_old_charge(&[], 31 * SECOND).await;
    let world = world.restart().await;
    world.clock.advance(600 * SECOND).await.unwrap();
    let ended = world.charge(&charge.facts.reference).await;
    let reason = Some("RAIL_UNAVAILABLE".to_owned());
    assert_eq!(
        (ended.progress.state, ended.progress.failure_reason),
        (State::Failed, reason)
    );
    let calls = network.calls();
    assert!(
        !calls.iter().any(|call| call.starts_with("POST")),
        "{calls:?}"
    );
    world.end().await;
}

/// The second process dies as well, before or after sending.
#[tokio::test]
async fn a_second_crash_sends_nothing_again() {
    let network = mtn(empty(202)).await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = given_orphan(&world, 31 * SECOND).await;
    mark_resent(&world, &charge).await;
    let world = world.restart().await;
    world.clock.advance(60 * SECOND).await.unwrap();
    assert!(!network.calls().is_empty(), "it was asked");
    assert_eq!(sent(&network), 0);
    let open = world.charge(&charge.facts.reference).await;
    assert_eq!(open.progress.state, State::Initiated);
    world.end().await;
}

/// What a process writes right before it sends the request again.
async fn mark_resent(world: &World, charge: &Charge) {
    let mut tx = world.db.begin().await.unwrap();
    let marked = tx
        .sql("update charges set resent_at = $2 where transaction_id = $1")
        .bind(charge.facts.transaction_id)
        .bind(world.clock.now())
        .update()
        .await;
    assert_eq!(marked.unwrap(), Update::Updated);
    tx.commit().await.unwrap();
}

/// The network's reply to the second request says nothing about the first, which may still be on
/// its way.
#[tokio::test]
async fn a_refusal_of_the_second_ends_nothing() {
    let network = mtn(unavailable()).await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    let charge = given_orphan(&world, 31 * SECOND).await;
    let world = world.restart().await;
    world.clock.advance(240 * SECOND).await.unwrap();
    assert_eq!(sent(&network), 1);
    let open = world.charge(&charge.facts.reference).await;
    assert_eq!(open.progress.state, State::Initiated);
    // The network's time starts again with the second request.
    world.clock.advance(240 * SECOND).await.unwrap();
    let ended = world.charge(&charge.facts.reference).await;
    let reason = Some("RAIL_UNAVAILABLE".to_owned());
    assert_eq!(
        (ended.progress.state, ended.progress.failure_reason),
        (State::Failed, reason)
    );
    world.end().await;
}

/// A charge whose rail replies only after another process has taken it over, by `change`.
async fn charge_taken_over(reply: Reaction, change: &'static str) -> Charge {
    let (gate, held) = watch::channel(false);
    let network = mtn(Reaction::Held(held, Box::new(reply))).await;
    let world = World::start_over(&network.address(), Neighbour::Open).await;
    let (mut charges, waiting) = (world.charges.clone(), &network);
    let asking = charges.create_charge(request());
    let taking_over = async {
        until("the rail is asked", async || sent(waiting) == 1).await;
        let mut tx = world.db.begin().await.unwrap();
        let changed = tx.sql(change).bind(world.clock.now()).update().await;
        assert_eq!(changed.unwrap(), Update::Updated);
        tx.commit().await.unwrap();
        gate.send(true).unwrap();
    };
    let (told, ()) = tokio::join!(asking, taking_over);
    let charge = told.unwrap().into_inner().charge.unwrap();
    let charge = world.charge(&charge.reference.parse().unwrap()).await;
    world.end().await;
    charge
}

/// Nor does its reply to the first say anything once the second may be on its way.
#[tokio::test]
async fn a_refusal_that_comes_after_the_second_was_sent_ends_nothing() {
    let change = "update charges set resent_at = $1";
    let charge = charge_taken_over(unavailable(), change).await;
    assert!(
        !charge.progress.state.is_terminal(),
        "{:?}",
        charge.progress.failure_reason
    );
}

#[tokio::test]
async fn a_reply_that_comes_too_late_still_shows_that_the_rail_knows_the_charge() {
    let change = "update charges set state = 'INITIATED', version = 2, updated_at = $1";
    for (reply, is_seen) in [
        (empty(202), true),
        (
            json(409, r#"{"code":"RESOURCE_ALREADY_EXIST","message":"x"}"#),
            true,
        ),
        (unavailable(), false),
    ] {
        let charge = charge_taken_over(reply, change).await;
        assert_eq!(
            (charge.progress.state, charge.progress.version),
            (State::Initiated, 2)
        );
        assert_eq!(charge.progress.seen_at_rail, is_seen);
    }
}

/// A merchant who is told so tries again at once, under another key. So nobody may send the
/// request after that.
#[tokio::test]
async fn nobody_is_told_that_nothing_was_started_before_that_is_written() {
    let world = World::start_beside(Neighbour::Silent).await;
    let mut charges = world.charges.clone();
    let asking = charges.create_charge(request());
    let holding = async {
        let mut tx = None;
        until("the charge is written", async || {
            let mut conn = world.db.read().await.unwrap();
            let (count,): (i64,) = conn
                .sql("select count(*) from charges")
                .one()
                .await
                .unwrap();
            count == 1
        })
        .await;
        let held = tx.insert(world.db.begin().await.unwrap());
        // On SQLite the transaction alone keeps every other writer out.
        held.sql("update charges set hints = hints")
            .run()
            .await
            .unwrap();
        tx
    };
    let (told, held) = tokio::join!(asking, holding);
    check_refusal(told, Code::Unavailable, "OUTCOME_UNKNOWN");
    drop(held);
}
