//! A callback causes a query and ends only with an answer to a query that began after it, whatever
//! those who did not query write in between.

use std::time::Duration;

use charges_svc::{
    case::CaseKind,
    charge::{Charge, Event, State},
    store::{self, steps::Written},
};
use chassis::{
    failure::FailureReason,
    testing::{
        fake_server::{Reaction, json},
        until,
    },
};
use db::Insert;
use proto::charges::{
    ReceiveCallbackRequest, ResolveChargeRequest, resolve_charge_request::Outcome,
};
use rails::testing::with_tokens;

use crate::world::{World, change, new_momo_charge, timing};

/// MTN's callback, whose address is the secret.
fn callback(charge: &Charge) -> ReceiveCallbackRequest {
    ReceiveCallbackRequest {
        rail: "momo".to_owned(),
        token: charge.facts.callback_token.clone(),
        body: b"{}".to_vec(),
        ..Default::default()
    }
}

/// A charge at MTN that has gone through these events.
async fn given(world: &World, events: &[Event]) -> Charge {
    let now = world.clock.now();
    let mut charge = new_momo_charge(now);
    let mut tx = world.db.begin().await.unwrap();
    assert_eq!(
        store::charges::insert(&mut tx, &charge).await.unwrap(),
        Insert::Inserted
    );
    for event in events {
        let after = charge.after(*event, now, timing()).unwrap();
        let changed = change(&mut tx, &charge, &after).await;
        assert_eq!(changed.unwrap(), Written::All);
        charge = after;
    }
    tx.commit().await.unwrap();
    charge
}

async fn queries(world: &World, charge: &Charge) -> i64 {
    let mut conn = world.db.read().await.unwrap();
    let evidence = store::evidence::list(&mut conn, charge.facts.transaction_id.uuid()).await;
    let said = evidence.unwrap().into_iter();
    said.filter(|said| said.action == "query")
        .map(|said| said.times)
        .sum()
}

/// The rail's answer that the payer was debited.
fn success(charge: &Charge) -> String {
    format!(
        r#"{{"amount":"25.50","currency":"GHS","externalId":"{}","status":"SUCCESSFUL"}}"#,
        charge.facts.rail_reference
    )
}

/// The rail is away when the callback comes. An operator, who has not queried the rail either,
/// ends the charge. Its next query would be due in an hour.
#[tokio::test]
async fn an_operator_who_ends_a_charge_does_not_end_its_callback() {
    let answer = std::sync::Arc::new(std::sync::Mutex::new(json(500, "{}")));
    let script = answer.clone();
    let network = with_tokens(move |_| script.lock().unwrap().clone()).await;
    let mut world = World::start_with(&[("momo-base-url", &network.address())]).await;
    let charge = given(&world, &[Event::Accepted]).await;
    world
        .charges
        .receive_callback(callback(&charge))
        .await
        .unwrap();
    let asked = async || queries(&world, &charge).await > 0;
    until("the rail was asked in vain", asked).await;
    let resolve = ResolveChargeRequest {
        reference: charge.facts.reference.to_string(),
        evidence: "statement of 31 January, line 12".to_owned(),
        outcome: Some(Outcome::FailedReason("PAYER_DECLINED".to_owned())),
    };
    world.operations.resolve_charge(resolve).await.unwrap();
    *answer.lock().unwrap() = json(200, success(&charge));
    let is_found = async || {
        let mut conn = world.db.read().await.unwrap();
        let cases = store::cases::list_open(&mut conn).await.unwrap();
        cases.iter().any(|case| case.kind == CaseKind::LateMoney)
    };
    until("the money was found", is_found).await;
    world.end().await;
}

/// Whatever is written by somebody who knew of the callback but had not queried the rail.
#[tokio::test]
async fn nobody_who_did_not_ask_ends_a_callback() {
    let (mut world, failed) = (World::start().await, FailureReason::PayerDeclined);
    for (events, event) in [
        (&[][..], Event::Accepted),
        (&[], Event::Unanswered),
        (&[], Event::CodeWanted),
        (&[], Event::Failed(failed)),
        (&[Event::CodeWanted], Event::CodeSent),
        (&[Event::CodeWanted, Event::CodeSent], Event::CodeWrong),
        (&[Event::CodeWanted, Event::CodeSent], Event::CodeNotSent),
        (&[Event::Accepted], Event::Failed(failed)),
    ] {
        let charge = given(&world, events).await;
        let held = crate::world::lease(&world.clock);
        let mut tx = world.db.begin().await.unwrap();
        // This keeps the reconciler away meanwhile.
        store::charges::claim(&mut tx, charge.facts.transaction_id, held)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        world
            .charges
            .receive_callback(callback(&charge))
            .await
            .unwrap();
        let mut tx = world.db.begin().await.unwrap();
        let before = store::charges::find_locked(&mut tx, charge.facts.transaction_id).await;
        let before = before.unwrap().unwrap();
        let after = before.after(event, world.clock.now(), timing()).unwrap();
        let changed = change(&mut tx, &before, &after).await;
        assert_eq!(changed.unwrap(), Written::All);
        tx.commit().await.unwrap();
        let asked = async || queries(&world, &charge).await > 0;
        until(&format!("asked after {event:?}"), asked).await;
    }
    world.end().await;
}

/// The rail's answer may be about the time before it called back.
#[tokio::test]
async fn a_callback_that_comes_while_the_rail_is_asked_is_not_lost() {
    let (let_go, held) = tokio::sync::watch::channel(false);
    let pending = || Box::new(json(200, r#"{"status":"PENDING"}"#));
    let network = with_tokens(move |_| Reaction::Held(held.clone(), pending())).await;
    let mut world = World::start_with(&[("momo-base-url", &network.address())]).await;
    let charge = given(&world, &[Event::Accepted]).await;
    let asked = || {
        let mut calls = network.calls();
        calls.retain(|call| call.starts_with("GET"));
        calls.len()
    };
    for _ in 0..2 {
        let call = callback(&charge);
        world.charges.receive_callback(call).await.unwrap();
        until("the rail is asked", async || asked() == 1).await;
    }
    let_go.send(true).unwrap();
    until("it is asked again", async || asked() == 2).await;
    until("both answers are kept", async || {
        queries(&world, &charge).await == 2
    })
    .await;
    // The second answer settles both.
    assert_eq!(asked(), 2);
    world.end().await;
}

/// A rail that gives no answer is queried again with doubling waits, not in a tight loop.
#[tokio::test]
async fn a_callback_that_gets_no_answer_is_not_done_and_no_storm() {
    let mut world = World::start().await;
    let charge = given(
        &world,
        &[Event::Accepted, Event::Failed(FailureReason::PayerDeclined)],
    )
    .await;
    world
        .charges
        .receive_callback(callback(&charge))
        .await
        .unwrap();
    let asked = async || queries(&world, &charge).await > 0;
    until("the rail was asked", asked).await;
    world.clock.advance(Duration::from_secs(600)).await.unwrap();
    // Without the callback the first query would be due in an hour.
    let asked = queries(&world, &charge).await;
    assert!((5..=20).contains(&asked), "{asked}");
    assert_eq!(
        world.charge(&charge.facts.reference).await.progress.state,
        State::Failed
    );
    world.end().await;
}

#[tokio::test]
async fn a_callback_is_done_with_an_answer() {
    let network = with_tokens(|_| json(200, r#"{"status":"PENDING"}"#)).await;
    let mut world = World::start_with(&[("momo-base-url", &network.address())]).await;
    let charge = given(&world, &[Event::Accepted]).await;
    for _ in 0..3 {
        world
            .charges
            .receive_callback(callback(&charge))
            .await
            .unwrap();
    }
    let asked = async || queries(&world, &charge).await > 0;
    until("the rail was asked", asked).await;
    // Stops short of the schedule's first query.
    world.clock.advance(Duration::from_secs(10)).await.unwrap();
    assert!(queries(&world, &charge).await <= 3);
    world.end().await;
}
