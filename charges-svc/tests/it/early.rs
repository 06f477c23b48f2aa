//! Callbacks that come before the rail has replied to the request.

use std::time::Duration;

use charges_svc::{
    charge::{Charge, Claim, State},
    store,
};
use chassis::testing::{
    fake_server::{FakeServer, Reaction, empty, json},
    until,
};
use proto::charges::ReceiveCallbackRequest;
use rails::testing::with_tokens;
use tokio::sync::watch;

use crate::world::{World, request};

/// An MTN that replies once the gate is open, and says of every payment that it was made.
async fn paying_at_once(gate: watch::Receiver<bool>) -> FakeServer {
    with_tokens(move |seen| match seen.call.strip_prefix("GET ") {
        Some(path) => {
            let reference = path.rsplit('/').next().unwrap();
            let body = format!(
                r#"{{"amount":"25.50","currency":"GHS","externalId":"{reference}","status":"SUCCESSFUL"}}"#
            );
            json(200, body)
        }
        None => Reaction::Held(gate.clone(), Box::new(empty(202))),
    })
    .await
}

fn queries(network: &FakeServer) -> usize {
    let calls = network.calls();
    calls.iter().filter(|call| call.starts_with("GET")).count()
}

/// The only charge, once its rail is being asked.
async fn the_charge(world: &World, network: &FakeServer) -> Charge {
    let is_asked = async || {
        let calls = network.calls();
        calls.iter().any(|call| call.contains("requesttopay"))
    };
    until("the rail is asked", is_asked).await;
    let mut conn = world.db.read().await.unwrap();
    let (id,) = conn
        .sql("select transaction_id from charges")
        .one()
        .await
        .unwrap();
    let found = store::charges::find(&mut conn, id).await.unwrap();
    found.unwrap()
}

async fn call_back(world: &World, charge: &Charge) {
    let callback = ReceiveCallbackRequest {
        rail: "momo".to_owned(),
        token: charge.facts.callback_token.clone(),
        body: b"{}".to_vec(),
        ..Default::default()
    };
    let heard = world.charges.clone().receive_callback(callback).await;
    heard.unwrap();
}

/// How many callbacks were recorded, once the charge is settled and free.
async fn recorded(world: &World, charge: &Charge) -> i64 {
    let is_settled = async || {
        let now = world.charge(&charge.facts.reference).await;
        now.progress.state == State::Settled && now.claim.fence == Claim::default().fence
    };
    until("the charge is settled", is_settled).await;
    let mut conn = world.db.read().await.unwrap();
    let evidence = store::evidence::list(&mut conn, charge.facts.transaction_id).await;
    let said = evidence.unwrap().into_iter();
    let callbacks: i64 = said
        .filter(|said| said.action == "callback")
        .map(|said| said.times)
        .sum();
    let hints = world.charge(&charge.facts.reference).await.timer.hints;
    assert_eq!(hints, callbacks);
    callbacks
}

#[tokio::test]
async fn a_callback_that_comes_before_the_reply_is_recorded_with_it() {
    let (gate, held) = watch::channel(false);
    let network = paying_at_once(held).await;
    let world = World::start_with(&[("momo-base-url", &network.address())]).await;
    let mut charges = world.charges.clone();
    let creating = charges.create_charge(request());
    let calling_back = async {
        let charge = the_charge(&world, &network).await;
        let replying = async {
            // Usually the callback waits by then. If not, all of this is true all the same.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(queries(&network), 0);
            gate.send(true).unwrap();
        };
        tokio::join!(call_back(&world, &charge), replying);
        charge
    };
    let (told, charge) = tokio::join!(creating, calling_back);
    assert!(told.is_ok(), "{told:?}");
    assert_eq!(recorded(&world, &charge).await, 1);
    assert_eq!(queries(&network), 1);
    world.end().await;
}

#[tokio::test]
async fn a_second_callback_before_the_reply_is_not_lost() {
    let (gate, held) = watch::channel(false);
    let network = paying_at_once(held).await;
    let world = World::start_with(&[("momo-base-url", &network.address())]).await;
    let mut charges = world.charges.clone();
    let creating = charges.create_charge(request());
    let calling_back = async {
        let charge = the_charge(&world, &network).await;
        let replying = async {
            let is_recorded = async || world.charge(&charge.facts.reference).await.timer.hints == 1;
            until("one of them is recorded by itself", is_recorded).await;
            gate.send(true).unwrap();
        };
        let callbacks =
            async { tokio::join!(call_back(&world, &charge), call_back(&world, &charge)) };
        tokio::join!(callbacks, replying);
        charge
    };
    let (told, charge) = tokio::join!(creating, calling_back);
    assert!(told.is_ok(), "{told:?}");
    assert_eq!(recorded(&world, &charge).await, 2);
    world.end().await;
}

/// The rail may have lost its reply.
#[tokio::test]
async fn a_callback_does_not_wait_for_a_reply_that_does_not_come() {
    let (gate, held) = watch::channel(false);
    let network = paying_at_once(held).await;
    let world = World::start_with(&[("momo-base-url", &network.address())]).await;
    let mut charges = world.charges.clone();
    let creating = charges.create_charge(request());
    let calling_back = async {
        let charge = the_charge(&world, &network).await;
        call_back(&world, &charge).await;
        let heard = world.charge(&charge.facts.reference).await;
        assert_eq!(heard.progress.state, State::Submitting);
        assert_eq!(heard.timer.hints, 1);
        gate.send(true).unwrap();
        charge
    };
    let (told, charge) = tokio::join!(creating, calling_back);
    assert!(told.is_ok(), "{told:?}");
    assert_eq!(recorded(&world, &charge).await, 1);
    world.end().await;
}
