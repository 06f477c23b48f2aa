//! Each rail has its own slots and its own budget, and charges with a callback come first.

use std::{collections::HashSet, time::Duration};

use charges_svc::{
    charge::{Charge, Event},
    store::{self, steps::Written},
};
use chassis::testing::{
    fake_server::{FakeServer, Reaction, json},
    until,
};
use db::Insert;
use rails::testing::with_tokens;
use tokio::time::Instant;

use crate::world::{World, change, new_charge, new_momo_charge, timing};

/// Writes open charges.
async fn given(world: &World, charges: impl IntoIterator<Item = Charge>) {
    let mut tx = world.db.begin().await.unwrap();
    for charge in charges {
        assert_eq!(
            store::charges::insert(&mut tx, &charge).await.unwrap(),
            Insert::Inserted
        );
        let after = charge
            .after(Event::Accepted, charge.facts.created_at, timing())
            .unwrap();
        assert_eq!(
            change(&mut tx, &charge, &after).await.unwrap(),
            Written::All
        );
    }
    tx.commit().await.unwrap();
}

const PENDING: &str = r#"{"status":"PENDING"}"#;

/// As many as a reconciler queries at once.
const PLACES: usize = 128;

#[tokio::test]
async fn a_rail_that_hangs_takes_no_place_of_another() {
    let hanging = FakeServer::start(|_| Reaction::Silence).await;
    let momo = with_tokens(|_| json(200, PENDING)).await;
    let world = World::start_with(&[
        ("paystack-base-url", &hanging.address()),
        ("paystack-query-timeout", "8s"),
        ("paystack-queries-per-second", "1000"),
        ("momo-base-url", &momo.address()),
    ])
    .await;
    // So many that they would hold all places for longer than a test waits.
    let old = world.clock.now() - Duration::from_secs(90);
    given(&world, (0..PLACES + 72).map(|_| new_charge(old))).await;
    let is_hanging = async || hanging.calls().len() >= PLACES;
    until("all of its places hang", is_hanging).await;
    let later = world.clock.now() - Duration::from_secs(20);
    given(&world, [new_momo_charge(later)]).await;
    let is_asked = async || momo.calls().iter().any(|call| call.starts_with("GET"));
    until("the other rail is asked", is_asked).await;
}

#[tokio::test]
async fn what_exceeds_the_budget_is_delayed_and_not_lost() {
    const CHARGES: usize = 24;
    const PER_SECOND: u32 = 8;
    let network = with_tokens(|_| json(200, PENDING)).await;
    let world = World::start_with(&[
        ("momo-base-url", &network.address()),
        ("momo-queries-per-second", &PER_SECOND.to_string()),
        ("reconcile-schedule", "1h"),
    ])
    .await;
    let old = world.clock.now() - Duration::from_secs(20);
    let begun = Instant::now();
    given(&world, (0..CHARGES).map(|_| new_momo_charge(old))).await;
    let asked = || {
        let mut calls = network.calls();
        calls.retain(|call| call.starts_with("GET"));
        calls
    };
    let all = async || asked().len() >= CHARGES;
    until("all were asked about", all).await;
    // One query may have been saved up. Slowness only makes this longer.
    let least = Duration::from_secs(1) * (u32::try_from(CHARGES).unwrap() - 1) / PER_SECOND;
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    let asked = asked();
    let references: HashSet<&String> = asked.iter().collect();
    assert_eq!(
        (asked.len(), references.len()),
        (CHARGES, CHARGES),
        "each once"
    );
}

#[tokio::test]
async fn what_the_rail_called_about_is_asked_first() {
    let network = with_tokens(|_| json(200, PENDING)).await;
    let mut world = World::start_with(&[
        ("momo-base-url", &network.address()),
        ("momo-queries-per-second", "2"),
    ])
    .await;
    let old = world.clock.now() - Duration::from_secs(70);
    given(&world, (0..40).map(|_| new_momo_charge(old))).await;
    let hinted = new_momo_charge(world.clock.now());
    given(&world, [hinted.clone()]).await;
    let callback = proto::charges::ReceiveCallbackRequest {
        rail: "momo".to_owned(),
        token: hinted.facts.callback_token.clone(),
        body: b"{}".to_vec(),
        ..Default::default()
    };
    world.charges.receive_callback(callback).await.unwrap();
    let path = format!(
        "GET /collection/v1_0/requesttopay/{}",
        hinted.facts.rail_reference
    );
    let is_asked = async || network.calls().contains(&path);
    until("the rail was asked", is_asked).await;
    assert!(network.calls().len() < 30, "before most of the others");
}
